#include "sim/allreduce_box.h"

#include "agg/box.h"
#include "agg/exponent.h"
#include "base/assert.h"
#include "base/bits.h"
#include "sim/hash.h"
#include "sim/round_times.h"
#include "sim/wire_time.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t round_ns_max = 60 * WEFT_NS_PER_S; /* a longer round is treated as hung */
static const uint64_t deep_bytes = UINT64_C(1) << 40;
static const uint64_t switch_bps = UINT64_C(1000000000000000); /* inside the switch */

enum { JOB = 1, EPOCH = 1, VALUE_MAX = 15, SLOTS_MAX = 65536 };

struct rank {
    struct weft_agg_member member;
    float *in; /* (elems,); also the next field */
    float *out;
    uint64_t *direct;
};

struct run {
    struct weft_allreduce_config config;
    struct weft_net *net;
    struct weft_agg_box box;
    struct rank *rank; /* (config.ranks,) */
    uint64_t elems;
    uint64_t *times_ns;
    uint32_t round;
    uint64_t go_ns;
    uint64_t hash;
    uint64_t packets;
    uint64_t bytes; /* with headers */
    char wrong[256];
};

const char *weft_allreduce_box_check(const struct weft_allreduce_config *config)
{
    if (config->ranks > WEFT_AGG_MEMBERS_MAX) {
        return "a box has at most 64 members";
    }
    if (config->ops != 1 || config->bound_ppm != 0 || config->feedback || config->barrier) {
        return "with a box there is one exact operation at a time: no bound, no feedback, no "
               "barrier";
    }
    if (config->ecn_bytes != 0 || config->host_delay_ns != 0 || config->tap != NULL ||
        config->cc_name != NULL) {
        return "with a box there are no congestion control, marks, host delays, traces or captures";
    }
    struct weft_allreduce_config defaults;
    weft_allreduce_config_default(&defaults);
    if (config->segment_bytes != defaults.segment_bytes ||
        config->receivers_max != defaults.receivers_max) {
        return "with a box there are no segments and no number of receivers";
    }
    return config->box_slots < 1 || config->box_slots > SLOTS_MAX ? "a box has 1 to 65,536 slots"
                                                                  : NULL;
}

static uint32_t chunks_of(const struct weft_allreduce_config *config)
{
    return (uint32_t)weft_div_ceil_u64(config->bytes, 4 * (uint64_t)WEFT_AGG_VALUES_MAX);
}

/* What a rank sends in a round, with headers. */
static uint64_t link_bytes(const struct weft_allreduce_config *config)
{
    return config->bytes +
           (uint64_t)chunks_of(config) * (WEFT_AGG_HEADER_BYTES + WEFT_NET_OVERHEAD_BYTES);
}

uint64_t weft_allreduce_box_ideal_ns(const struct weft_allreduce_config *config)
{
    bool host = config->box == WEFT_ALLREDUCE_BOX_HOST;
    uint64_t bytes = link_bytes(config) * (host ? config->ranks : 1);
    return weft_sim_wire_ns(bytes, config->rate_bps) + config->rtt_ns / (host ? 1 : 2);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void fail(struct run *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct run *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (s->wrong[0] == '\0') {
        vsnprintf(s->wrong, sizeof(s->wrong), format, args);
    }
    va_end(args);
}

/* Integers, so that their sums are exact. */
static float value_of(uint32_t rank, uint64_t i)
{
    return (float)(weft_mix64(rank * UINT64_C(1000003) + i) % VALUE_MAX + 1);
}

static void check_round(struct run *s)
{
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        if (s->rank[r].member.counters.direct > 0) {
            fail(s, "rank %" PRIu32 " has a chunk without a sum", r);
        }
        if (memcmp(s->rank[r].out, s->rank[0].out, s->elems * sizeof(float)) != 0) {
            fail(s, "rank %" PRIu32 " has a result different from rank 0", r);
        }
    }
    for (uint64_t i = 0; i < s->elems; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < s->config.ranks; r++) {
            sum += s->rank[r].in[i];
        }
        if (s->rank[0].out[i] != sum) {
            fail(s, "element %" PRIu64 " is %.0f, not %.0f", i, (double)s->rank[0].out[i],
                 (double)sum);
            return;
        }
    }
}

/* ---- packets --------------------------------------------------------------------------------- */

static void send_packet(struct run *s, uint32_t from, uint32_t to, const uint8_t *bytes,
                        uint32_t count)
{
    struct weft_net_packet *packet = weft_net_packet_new(from, to, WEFT_ECN_NOT, count);
    memcpy(packet->bytes, bytes, count);
    s->packets++;
    s->bytes += count + WEFT_NET_OVERHEAD_BYTES;
    weft_net_send(s->net, packet);
}

/* Send what a rank has to send now, and have it woken for the next time. */
static void pump(struct run *s, uint32_t rank, uint64_t now_ns)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
    struct weft_agg_member *member = &s->rank[rank].member;
    uint32_t count;
    while ((count = weft_agg_member_send(member, bytes, now_ns)) > 0) {
        send_packet(s, rank, s->config.ranks, bytes, count);
    }
    weft_net_wake(s->net, rank, weft_agg_member_deadline(member));
}

static void box_receive(struct run *s, const struct weft_net_packet *packet)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
    uint32_t count;
    memcpy(bytes, packet->bytes, packet->count);
    enum weft_agg_action action = weft_agg_box_receive(&s->box, bytes, packet->count, &count);
    for (uint32_t r = 0; action != WEFT_AGG_DROP && r < s->config.ranks; r++) {
        if (action == WEFT_AGG_ANSWER_ALL || r == packet->from) {
            weft_wire_agg_put_member(bytes, (uint16_t)r);
            send_packet(s, s->config.ranks, r, bytes, count);
        }
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void go(struct run *s, uint64_t now_ns)
{
    s->go_ns = now_ns;
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        struct rank *rank = &s->rank[r];
        weft_status status =
            weft_agg_member_begin(&rank->member, rank->in, rank->out, s->elems, rank->direct);
        WEFT_ASSERT(status == WEFT_OK);
        pump(s, r, now_ns);
    }
}

static bool is_over(const struct run *s)
{
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        if (!weft_agg_member_is_done(&s->rank[r].member)) {
            return false;
        }
    }
    return true;
}

static void handle(struct run *s, const struct weft_net_event *event)
{
    uint64_t now_ns = weft_net_now_ns(s->net);
    if (event->type == WEFT_NET_PACKET) {
        const struct weft_net_packet *packet = event->packet;
        s->hash = weft_sim_hash_u64(weft_sim_hash_u64(s->hash, now_ns), event->host);
        s->hash = weft_sim_hash_bytes(s->hash, packet->bytes, packet->count);
        if (event->host == s->config.ranks) {
            box_receive(s, packet);
        } else if (weft_agg_member_receive(&s->rank[event->host].member, packet->bytes,
                                           packet->count, now_ns) &&
                   is_over(s)) {
            check_round(s);
            s->times_ns[s->round++] = now_ns - s->go_ns;
            if (s->round < s->config.rounds) {
                go(s, now_ns);
            }
        } else {
            pump(s, event->host, now_ns);
        }
        weft_net_packet_free(event->packet);
    } else if (event->type == WEFT_NET_WAKE && event->host < s->config.ranks) {
        pump(s, event->host, now_ns);
    }
}

static void run(struct run *s)
{
    struct weft_net_event event;
    go(s, 0);
    while (s->wrong[0] == '\0' && s->round < s->config.rounds) {
        if (!weft_net_step(s->net, &event)) {
            fail(s, "nothing is left to happen, and a round is not over");
            return;
        }
        if (weft_net_now_ns(s->net) > s->go_ns + round_ns_max) {
            if (event.type == WEFT_NET_PACKET) {
                weft_net_packet_free(event.packet);
            }
            fail(s, "after %" PRIu64 " s a round is not over", round_ns_max / WEFT_NS_PER_S);
            return;
        }
        handle(s, &event);
    }
    const char *wrong = weft_net_check(s->net, true);
    if (wrong != NULL) {
        fail(s, "%s", wrong);
    }
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

static void make_links(struct run *s)
{
    const struct weft_allreduce_config *c = &s->config;
    bool host = c->box == WEFT_ALLREDUCE_BOX_HOST;
    for (uint32_t i = 0; i <= c->ranks; i++) {
        bool is_rank = i < c->ranks;
        struct weft_net_link_config link = {
            .rate_bps = is_rank || host ? c->rate_bps : switch_bps,
            .delay_ns = is_rank || host ? c->rtt_ns / 4 : 0,
            .buffer_bytes = deep_bytes,
        };
        const struct weft_net_faults faults = {.loss_ppm = is_rank || host ? c->loss_ppm : 0};
        weft_net_link_set(s->net, i, WEFT_NET_UP, &link);
        link.buffer_bytes = is_rank || host ? c->buffer_bytes : deep_bytes;
        weft_net_link_set(s->net, i, WEFT_NET_DOWN, &link);
        weft_net_faults_set(s->net, i, WEFT_NET_DOWN, &faults);
    }
}

static void make_ranks(struct run *s, int8_t exponent)
{
    struct weft_agg_member_config config;
    weft_agg_member_config_default(&config);
    config.job = JOB;
    config.members = s->config.ranks;
    config.slots = s->config.box_slots;
    config.reorder = s->config.box_reorder;
    config.epoch = EPOCH;
    config.element = s->config.box_block_float ? WEFT_AGG_BLOCK_FLOATS : WEFT_AGG_FIXED;
    config.exponent = s->config.box_block_float ? 0 : exponent;
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        struct rank *rank = &s->rank[r];
        config.member = (uint16_t)r;
        weft_status status = weft_agg_member_init(&rank->member, &config);
        WEFT_ASSERT(status == WEFT_OK);
        rank->in = get(s->elems * sizeof(float));
        rank->out = get(s->elems * sizeof(float));
        rank->direct = get(WEFT_BITS_WORDS((size_t)chunks_of(&s->config)) * sizeof(uint64_t));
        for (uint64_t i = 0; i < s->elems; i++) {
            rank->in[i] = value_of(r, i);
        }
    }
}

static struct run *run_new(const struct weft_allreduce_config *config)
{
    struct run *s = get(sizeof(*s));
    const struct weft_agg_config box = {
        .members = UINT64_MAX >> (WEFT_AGG_MEMBERS_MAX - config->ranks),
        .dense_epoch = EPOCH,
        .slots = config->box_slots,
        .job = JOB,
        .exponent = weft_agg_exponent(VALUE_MAX, config->ranks),
    };
    s->config = *config;
    s->elems = config->bytes / sizeof(float);
    s->rank = get(config->ranks * sizeof(*s->rank));
    s->times_ns = get(config->rounds * sizeof(*s->times_ns));
    s->hash = WEFT_SIM_HASH_INIT;
    s->net = weft_net_new(config->ranks + 1, weft_mix64(config->seed ^ UINT64_C(0x626f78)));
    weft_status status = weft_agg_box_init(&s->box, &box);
    WEFT_ASSERT(status == WEFT_OK);
    make_links(s);
    make_ranks(s, box.exponent);
    return s;
}

static void run_free(struct run *s)
{
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        weft_agg_member_fini(&s->rank[r].member);
        free(s->rank[r].in);
        free(s->rank[r].out);
        free(s->rank[r].direct);
    }
    weft_agg_box_fini(&s->box);
    weft_net_free(s->net);
    free(s->rank);
    free(s->times_ns);
    free(s);
}

/* ---- the result ------------------------------------------------------------------------------ */

static void result_counters(const struct run *s, struct weft_allreduce_result *r)
{
    uint64_t sent = 0;
    for (uint32_t i = 0; i <= s->config.ranks; i++) {
        const struct weft_net_link_counters *down =
            weft_net_link_counters(s->net, i, WEFT_NET_DOWN);
        r->dropped_full += down->dropped_full;
        r->dropped_wire += down->dropped_loss;
        if (i < s->config.ranks || s->config.box == WEFT_ALLREDUCE_BOX_HOST) {
            r->queue_bytes_max = weft_max_u64(r->queue_bytes_max, down->queued_bytes_max);
        }
        if (i < s->config.ranks) {
            const struct weft_agg_member_counters *c = &s->rank[i].member.counters;
            r->resent_timeout += c->resent_timeout;
            r->resent_early += c->resent_early;
            sent += c->sent;
        }
    }
    uint64_t again = r->resent_timeout + r->resent_early;
    r->retransmitted_ppm = sent == 0 ? 0 : (uint32_t)(again * WEFT_PPM / sent);
    uint64_t ideal =
        2 * link_bytes(&s->config) * s->config.ranks * weft_max_u64(r->rounds, 1);
    r->overhead_ppm = s->bytes > ideal ? (uint32_t)((s->bytes - ideal) * WEFT_PPM / ideal) : 0;
}

void weft_allreduce_box_run(const struct weft_allreduce_config *config,
                            struct weft_allreduce_result *result_p)
{
    struct run *s = run_new(config);
    run(s);
    struct weft_sim_times times = weft_sim_times_of(s->times_ns, s->round);
    *result_p = (struct weft_allreduce_result){
        .ok = s->wrong[0] == '\0',
        .rounds = s->round,
        .ideal_ns = weft_allreduce_ideal_ns(config),
        .ideal_without_box_ns = weft_allreduce_ideal_without_box_ns(config),
        .p50_ns = times.p50_ns,
        .p99_ns = times.p99_ns,
        .max_ns = times.max_ns,
        .mean_ns = times.mean_ns,
        .delivered_ppm = s->round > 0 ? WEFT_PPM : 0,
        .packets = s->packets,
        .virtual_ns = weft_net_now_ns(s->net),
        .trace_hash = s->hash,
    };
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", s->wrong);
    result_counters(s, result_p);
    run_free(s);
}
