#include "cli/perf/collective_box.h"

#include "base/bits.h"
#include "cli/box_report.h"
#include "cli/stop.h"
#include "io/clock.h"
#include "metrics/serve.h"
#include "node/box_link.h"

#include <stdio.h>
#include <stdlib.h>

enum { NET_OVERHEAD_BYTES = 42 }; /* Ethernet, IPv4, UDP */

struct member {
    struct weft_box_link *link;
    const float *in;
    float *out;
    uint64_t *direct; /* (WEFT_BITS_WORDS(chunks),) */
    size_t direct_words;
    struct weft_box_link_end end;
};

struct weft_perf_box {
    const struct weft_perf_box_options *options;
    uint32_t ranks;
    uint32_t epoch;
    struct member member[];
};

const char *weft_perf_box_parse_exponent(const char *text, void *value)
{
    return weft_box_parse_exponent(text, value);
}

uint64_t weft_perf_box_wire_bytes(uint64_t bytes)
{
    uint64_t packets = weft_div_ceil_u64(bytes, WEFT_AGG_PAYLOAD_MAX);
    return bytes + packets * (WEFT_AGG_HEADER_BYTES + NET_OVERHEAD_BYTES);
}

uint32_t weft_perf_box_epoch(const struct weft_perf_box *box)
{
    return box->epoch;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static weft_status make_room(struct member *m, uint64_t count, struct weft_error *error)
{
    uint32_t chunks = weft_agg_member_chunks(weft_box_link_member(m->link), count);
    size_t words = WEFT_BITS_WORDS((size_t)chunks);
    if (words > m->direct_words) {
        free(m->direct);
        m->direct = calloc(words, sizeof(*m->direct));
        m->direct_words = m->direct != NULL ? words : 0;
    }
    return m->direct != NULL ? WEFT_OK : weft_fail(error, WEFT_NOMEM, "no memory");
}

static uint64_t resent_of(const struct weft_perf_box *box)
{
    uint64_t resent = 0;
    for (uint32_t r = 0; r < box->ranks; r++) {
        struct weft_box_link_counters c;
        weft_box_link_counters(box->member[r].link, &c);
        resent += c.resent;
    }
    return resent;
}

static weft_status check(const struct weft_perf_box *box, uint32_t rank, struct weft_error *error)
{
    const struct member *m = &box->member[rank];
    const struct weft_agg_member *state = weft_box_link_member(m->link);
    if (m->end.status == WEFT_AGAIN) {
        return WEFT_AGAIN;
    }
    if (m->end.status != WEFT_OK) {
        return weft_fail(error, m->end.status,
                         "rank %u: %.200s. Is %s a box with %u members and %u slots or more, of "
                         "job %u, whose epoch was before %u?",
                         rank, m->end.error.text, box->options->address, box->ranks,
                         box->options->slots, box->options->job, box->epoch);
    }
    if (state->counters.direct > 0) {
        const struct weft_perf_box_options *o = box->options;
        char with[32] = "";
        if (!o->floats && !o->block_floats) {
            snprintf(with, sizeof(with), " with exponent %d", o->exponent);
        }
        return weft_fail(error, WEFT_DATA,
                         "%llu chunks have no valid sum: the box does not sum %s%s",
                         (unsigned long long)state->counters.direct,
                         o->floats ? "float32" : "int32", with);
    }
    return WEFT_OK;
}

weft_status weft_perf_box_sum(struct weft_perf_box *box, uint64_t count, uint64_t timeout_ns,
                              uint64_t *ns_p, uint64_t *resent_p, struct weft_error *error)
{
    uint64_t resent = resent_of(box);
    weft_status status = WEFT_OK;
    for (uint32_t r = 0; r < box->ranks && status == WEFT_OK; r++) {
        status = make_room(&box->member[r], count, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    uint64_t begin_ns = weft_clock_now_ns();
    uint64_t done_ns = begin_ns;
    for (uint32_t r = 0; r < box->ranks; r++) {
        struct member *m = &box->member[r];
        weft_box_link_begin(m->link, m->in, m->out, count, m->direct, timeout_ns);
    }
    for (uint32_t r = 0; r < box->ranks; r++) {
        weft_box_link_wait(box->member[r].link, &box->member[r].end);
    }
    *resent_p += resent_of(box) - resent;
    for (uint32_t r = 0; r < box->ranks && status == WEFT_OK; r++) {
        done_ns = weft_max_u64(done_ns, box->member[r].end.at_ns);
        status = check(box, r, error);
    }
    *ns_p = done_ns - begin_ns;
    return status;
}

void weft_perf_box_vectors(struct weft_perf_box *box, uint32_t rank, const float *in, float *out)
{
    box->member[rank].in = in;
    box->member[rank].out = out;
}

/* ---- members --------------------------------------------------------------------------------- */

static bool is_stopped(void *arg)
{
    (void)arg;
    return weft_stop_requested();
}

static bool open_member(struct weft_perf_box *box, const struct weft_perf_layout *layout,
                        uint32_t rank, const char *host, uint16_t port, struct weft_error *error)
{
    const struct weft_perf_box_options *o = box->options;
    char own[WEFT_PERF_ADDRESS_BYTES];
    int home;
    struct weft_box_link_config config = {.dense = {.host = own,
                                                    .box_host = host,
                                                    .box_port = port,
                                                    .insecure_network = layout->lab != NULL,
                                                    .is_stopped = is_stopped}};
    struct weft_agg_member_config *member = &config.dense.member;
    weft_perf_layout_address(layout, rank, own);
    weft_agg_member_config_default(member);
    member->job = (uint16_t)o->job;
    member->member = (uint16_t)rank;
    member->members = box->ranks;
    member->slots = o->slots;
    member->epoch = box->epoch;
    member->element = o->floats         ? WEFT_AGG_FLOATS
                      : o->block_floats ? WEFT_AGG_BLOCK_FLOATS
                                        : WEFT_AGG_FIXED;
    member->exponent = (int8_t)o->exponent;
    if (!weft_perf_netns_enter(layout, rank, &home, error)) {
        return false;
    }
    weft_status status = weft_box_link_open(&config, &box->member[rank].link, error);
    weft_perf_netns_leave(home);
    return status == WEFT_OK;
}

bool weft_perf_box_open(const struct weft_perf_box_options *options,
                        const struct weft_perf_layout *layout, uint32_t ranks,
                        struct weft_perf_box **box_p, struct weft_error *error)
{
    char host[WEFT_METRICS_HOST_BYTES];
    uint16_t port;
    if (!weft_metrics_address(options->address, host, &port)) {
        return weft_perf_fail(error, "--box %.80s is not HOST:PORT", options->address);
    }
    struct weft_perf_box *box = calloc(1, sizeof(*box) + ranks * sizeof(box->member[0]));
    if (box == NULL) {
        return weft_perf_fail(error, "no memory for %u ranks", ranks);
    }
    *box_p = box;
    box->options = options;
    box->ranks = ranks;
    box->epoch = options->epoch != 0 ? options->epoch : weft_box_link_epoch_now();
    for (uint32_t r = 0; r < ranks; r++) {
        if (!open_member(box, layout, r, host, port, error)) {
            return false;
        }
    }
    return true;
}

void weft_perf_box_close(struct weft_perf_box *box)
{
    if (box == NULL) {
        return;
    }
    for (uint32_t r = 0; r < box->ranks; r++) {
        weft_box_link_close(box->member[r].link);
        free(box->member[r].direct);
    }
    free(box);
}
