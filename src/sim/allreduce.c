#include "sim/allreduce.h"

#include "base/assert.h"
#include "base/prng.h"
#include "core/cc.h"
#include "sim/allreduce_box.h"
#include "sim/allreduce_plan.h"
#include "sim/round_times.h"
#include "sim/wire_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round that takes longer is treated as hung. */
static const uint64_t round_ns_max = 60 * WEFT_NS_PER_S;
static const uint64_t check_interval_ns = WEFT_NS_PER_MS;
static const uint64_t deep_bytes = UINT64_C(1) << 40;
static const uint64_t local_ns = 10 * WEFT_NS_PER_US; /* from rank to rank of a host */

/* PACKET_HEADERS: of a packet after the first of its message. */
enum { SOCKET_PACKETS = 65536, OPS_MAX = 16, PACKET_HEADERS = 78, EPOCH = 1 };
enum { USER_SHORT = OPS_MAX }; /* of the short operations around the vector's */

/* What a rank does in a round that begins with a barrier. */
enum step { STEP_NONE, STEP_BARRIER, STEP_VECTOR, STEP_TIME };

struct host {
    struct weft_coll *coll;
    enum step step;
    uint32_t left; /* operations of the vector that are not done */
    uint64_t begun_ns;
    double time; /* the value that is exchanged after the vector */
    void *short_work;
    float *in; /* (elems,); also the following */
    float *out;
    float *residual;
    uint8_t *missed;
    void *work[OPS_MAX];
};

struct allreduce {
    struct weft_allreduce_config config;
    struct weft_world *world;
    struct host *host;
    uint64_t elems;
    struct weft_collective_plan made;
    struct weft_coll_plan plan;
    void *plan_memory; /* NULL = no plan */
    double *kept; /* (elems,): sum of all ranks' residuals before the round */
    uint32_t ups;
    uint32_t round;
    uint32_t left; /* operations of the round that are not done */
    uint64_t go_ns;
    uint64_t longest_ns;       /* of a rank, in the round, since it began its vector */
    uint64_t contributions_ns; /* maximum in the round */
    uint64_t contributions_ns_sum;
    uint64_t missing;
    uint64_t missing_told;
    uint64_t *times_ns;
    bool running;
    bool stopping;
};

void weft_allreduce_config_default(struct weft_allreduce_config *config_p)
{
    *config_p = (struct weft_allreduce_config){
        .ranks = 8,
        .bytes = 4000000,
        .ops = 1,
        .rate_bps = UINT64_C(1000000000),
        .rtt_ns = 50 * WEFT_NS_PER_US,
        .buffer_bytes = 64000,
        .rounds = 10,
        .host_ranks = 1,
        .seed = 1,
        .box_slots = 32,
    };
    struct weft_coll_config coll;
    weft_coll_config_default(&coll);
    config_p->segment_bytes = coll.segment_bytes;
    config_p->receivers_max = coll.receivers_max;
    struct weft_agg_member_config member;
    weft_agg_member_config_default(&member);
    config_p->box_reorder = member.reorder;
}

const char *weft_allreduce_config_check(const struct weft_allreduce_config *config)
{
    if (config->ranks < 2 || config->ranks > WEFT_ALLREDUCE_RANKS_MAX) {
        return "2 to 128 ranks";
    }
    if (config->ops < 1 || config->ops > OPS_MAX) {
        return "1 to 16 concurrent operations";
    }
    if (config->bytes == 0 || config->bytes % (4 * (uint64_t)config->ops) != 0 ||
        config->bytes > 400000000) {
        return "a vector is a multiple of 4 bytes for each operation, at most 400,000,000";
    }
    if (config->rate_bps < 1000000 || config->rate_bps > UINT64_C(1000000000000)) {
        return "a rate lies between 1 Mbit/s and 1 Tbit/s";
    }
    if (config->rtt_ns > WEFT_NS_PER_S || config->host_delay_ns > WEFT_NS_PER_S ||
        config->buffer_bytes < 4 * WEFT_SIM_PACKET_BYTES) {
        return "delays are at most a second, the buffer at least four packets";
    }
    if (config->loss_ppm >= WEFT_PPM / 2 || config->bound_ppm >= WEFT_PPM) {
        return "the loss is below one half, the bound below one";
    }
    if (config->segment_bytes < 2048) {
        return "a segment has at least 2,048 bytes";
    }
    if (config->rounds < 1 || config->rounds > WEFT_ALLREDUCE_ROUNDS_MAX) {
        return "1 to 10,000 rounds";
    }
    const char *wrong = weft_allreduce_plan_check(config);
    if (wrong != NULL) {
        return wrong;
    }
    if (config->box != WEFT_ALLREDUCE_NO_BOX) {
        return weft_allreduce_box_check(config);
    }
    if (config->box_block_float) {
        return "block exponents are those of a box";
    }
    return weft_cc_find(config->cc_name) == NULL ? "unknown congestion control" : NULL;
}

/* ---- ideal ----------------------------------------------------------------------------------- */

/* For the longest message, as a rank counts chunks before it knows the chunk size of its peers. */
static uint32_t chunks_max(const struct allreduce *s)
{
    return (uint32_t)weft_div_ceil_u64(s->config.bytes, WEFT_COLL_CHUNK_MIN);
}

/* Bytes that one link carries in a round, with headers. */
static uint64_t link_bytes(const struct weft_allreduce_config *config)
{
    uint64_t slice = weft_div_ceil_u64(config->bytes, config->ranks);
    uint64_t packets =
        weft_div_ceil_u64(slice, weft_sim_chunk_elems() * (uint64_t)WEFT_SIM_ELEM_BYTES);
    return 2 * (config->ranks - 1) * (slice + packets * PACKET_HEADERS);
}

static uint64_t mixed_ideal_ns(const struct weft_allreduce_config *config)
{
    uint64_t packets =
        weft_div_ceil_u64(config->bytes, weft_sim_chunk_elems() * (uint64_t)WEFT_SIM_ELEM_BYTES);
    struct weft_collective_plan plan;
    free(weft_allreduce_plan_new(config, WEFT_COLLECTIVE_AUTO,
                                 config->bytes + packets * PACKET_HEADERS, 0, &plan));
    return weft_min_u64(plan.slices_ns, plan.trees_ns) + 2 * config->rtt_ns;
}

uint64_t weft_allreduce_ideal_without_box_ns(const struct weft_allreduce_config *config)
{
    if (weft_allreduce_is_mixed(config)) {
        return mixed_ideal_ns(config);
    }
    return weft_sim_wire_ns(link_bytes(config), config->rate_bps) + 2 * config->rtt_ns;
}

uint64_t weft_allreduce_ideal_ns(const struct weft_allreduce_config *config)
{
    return config->box != WEFT_ALLREDUCE_NO_BOX ? weft_allreduce_box_ideal_ns(config)
                                                : weft_allreduce_ideal_without_box_ns(config);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Integers below 16, so that their sums are exact in any order. */
static float value_of(uint32_t rank, uint64_t i)
{
    return (float)(weft_mix64(rank * UINT64_C(1000003) + i) % 15 + 1);
}

static void residuals_add(struct allreduce *s)
{
    for (uint64_t i = 0; i < s->elems; i++) {
        s->kept[i] = 0;
        for (uint32_t r = 0; r < s->config.ranks; r++) {
            s->kept[i] += (double)s->host[r].residual[i];
        }
    }
}

static void check_sums(struct allreduce *s)
{
    uint32_t n = s->config.ranks;
    for (uint64_t i = 0; i < s->elems; i++) {
        double want = 0;
        for (uint32_t r = 0; r < n; r++) {
            want += (double)s->host[r].in[i];
        }
        double is = (double)s->host[0].out[i];
        if (s->config.feedback) {
            want += s->kept[i];
            for (uint32_t r = 0; r < n; r++) {
                is += (double)s->host[r].residual[i];
            }
        }
        bool exact = s->config.bound_ppm == 0 || s->config.feedback;
        if (exact ? is != want : !(is > 0 && is <= want)) {
            weft_world_fail(s->world, "element %" PRIu64 " is %.0f, not %.0f", i, is, want);
            return;
        }
    }
}

static void check_round(struct allreduce *s)
{
    for (uint32_t r = 1; r < s->config.ranks; r++) {
        if (memcmp(s->host[r].out, s->host[0].out, s->elems * sizeof(float)) != 0) {
            weft_world_fail(s->world, "rank %" PRIu32 " has a result different from rank 0", r);
            return;
        }
    }
    check_sums(s);
    uint64_t missing = 0;
    for (uint32_t r = 0; r < s->config.ranks; r++) {
        missing += weft_coll_counters(s->host[r].coll)->elements_missing;
    }
    s->missing = missing;
    if (missing != s->missing_told) {
        weft_world_fail(s->world,
                        "%" PRIu64 " elements are missing of the results, %" PRIu64
                        " of the contributions",
                        missing, s->missing_told);
    }
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static void begin(struct allreduce *s, uint32_t rank, uint64_t now_ns)
{
    struct host *h = &s->host[rank];
    uint64_t each = s->elems / s->config.ops;
    h->step = STEP_VECTOR;
    h->left = s->config.ops;
    h->begun_ns = now_ns;
    for (uint32_t op = 0; op < s->config.ops; op++) {
        uint64_t at = op * each;
        struct weft_coll_call call = {
            .kind = WEFT_COLL_ALL_REDUCE,
            .count = each,
            .in = h->in + at,
            .out = h->out + at,
            .bound_ppm = s->config.bound_ppm,
            .stream = op,
            .residual = s->config.feedback ? h->residual + at : NULL,
            .missed = s->config.feedback ? h->missed + at : NULL,
            .timeout_ns = WEFT_NEVER,
            .work = h->work[op],
            .user = op,
        };
        weft_status status = weft_coll_begin(h->coll, &call, now_ns);
        if (status != WEFT_OK) {
            weft_world_fail(s->world, "rank %" PRIu32 " cannot begin: %s", rank,
                            weft_status_name(status));
        }
    }
    weft_coll_progress(h->coll, now_ns);
}

static void short_begin(struct allreduce *s, uint32_t rank, enum step step, uint64_t now_ns)
{
    struct host *h = &s->host[rank];
    h->step = step;
    struct weft_coll_call call = {
        .kind = step == STEP_BARRIER ? WEFT_COLL_BARRIER : WEFT_COLL_ALL_REDUCE,
        .type = WEFT_COLL_F64,
        .reduction = WEFT_COLL_MAX,
        .count = 1,
        .in = &h->time,
        .out = &h->time,
        .timeout_ns = WEFT_NEVER,
        .work = h->short_work,
        .user = USER_SHORT,
    };
    weft_status status = weft_coll_begin(h->coll, &call, now_ns);
    if (status != WEFT_OK) {
        weft_world_fail(s->world, "rank %" PRIu32 " cannot begin a short operation: %s", rank,
                        weft_status_name(status));
    }
    weft_coll_progress(h->coll, now_ns);
}

static void round_begin(struct allreduce *s, uint64_t now_ns)
{
    s->go_ns = now_ns;
    s->left = s->config.ranks * s->config.ops;
    s->longest_ns = 0;
    s->contributions_ns = 0;
    if (s->config.feedback) {
        residuals_add(s);
    }
}

static void go(struct allreduce *s, uint64_t now_ns)
{
    s->running = true;
    round_begin(s, now_ns);
    for (uint32_t i = 0; i < s->config.ranks; i++) {
        weft_world_wake(s->world, i, now_ns + weft_allreduce_late_ns(&s->config, i));
    }
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct allreduce *s = self;
    if (!s->running || s->stopping || weft_coll_open_ops(s->host[host].coll) > 0) {
        return;
    }
    if (s->config.barrier) {
        short_begin(s, host, STEP_BARRIER, now_ns);
    } else {
        begin(s, host, now_ns);
    }
}

static void round_over(struct allreduce *s, uint64_t now_ns)
{
    check_round(s);
    s->contributions_ns_sum += s->contributions_ns;
    s->times_ns[s->round++] = s->config.barrier ? s->longest_ns : now_ns - s->go_ns;
    if (s->round == s->config.rounds) {
        s->stopping = true;
    } else if (s->config.barrier) {
        round_begin(s, now_ns); /* the ranks begin the next vector after the next barrier */
    } else {
        go(s, now_ns);
    }
}

static void vector_done(struct allreduce *s, uint32_t host, const struct weft_coll_done *done,
                        uint64_t now_ns)
{
    struct host *h = &s->host[host];
    s->missing_told += done->own_missing;
    s->contributions_ns = weft_max_u64(s->contributions_ns, done->contributions_ns);
    bool last = --h->left == 0;
    if (last) {
        s->longest_ns = weft_max_u64(s->longest_ns, now_ns - h->begun_ns);
    }
    if (--s->left == 0) {
        round_over(s, now_ns);
    }
    if (last && s->config.barrier && !s->stopping) {
        h->time = (double)h->begun_ns;
        short_begin(s, host, STEP_TIME, now_ns);
    }
}

static void short_done(struct allreduce *s, uint32_t host, uint64_t now_ns)
{
    if (s->host[host].step == STEP_BARRIER) {
        begin(s, host, now_ns);
    } else {
        short_begin(s, host, STEP_BARRIER, now_ns);
    }
}

static void on_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct allreduce *s = self;
    struct host *h = &s->host[host];
    struct weft_coll_done done;
    weft_coll_progress(h->coll, now_ns);
    while (weft_coll_poll(h->coll, &done)) {
        if (done.status != WEFT_OK) {
            char text[200];
            weft_coll_failure_text(weft_coll_failure(h->coll), text, sizeof(text));
            weft_world_fail(s->world, "rank %" PRIu32 ": %s", host, text);
            return;
        }
        if (done.user == USER_SHORT) {
            short_done(s, host, now_ns);
        } else {
            vector_done(s, host, &done, now_ns);
        }
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct allreduce *s = self;
    s->ups += event->type == WEFT_EVENT_PEER_UP;
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        weft_world_fail(s->world, "rank %" PRIu32 " lost a peer (reason %d)", host, event->down);
    }
    weft_coll_event(s->host[host].coll, event, now_ns);
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void make_endpoint(struct allreduce *s, uint32_t host)
{
    struct weft_net *net = weft_world_net(s->world);
    uint32_t port = weft_allreduce_port(&s->config, host);
    struct weft_net_link_config link = {
        .rate_bps = weft_allreduce_rate_bps(&s->config, host),
        .delay_ns = s->config.rtt_ns / 4,
        .buffer_bytes = deep_bytes,
    };
    if (port == host) {
        weft_net_link_set(net, host, WEFT_NET_UP, &link);
        link.buffer_bytes = s->config.buffer_bytes;
        link.ecn_mark_bytes = s->config.ecn_bytes;
        weft_net_link_set(net, host, WEFT_NET_DOWN, &link);
    } else {
        weft_net_share(net, host, port);
    }
    struct weft_world_host_config config = {
        .progress_delay_ns = s->config.host_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake, .batch = on_batch},
    };
    weft_ep_config_default(&config.ep);
    config.ep.name = weft_coll_name(EPOCH, host);
    config.ep.incarnation = host + 1;
    config.ep.seed = weft_mix64(s->config.seed) + host;
    config.ep.packet_bytes = WEFT_SIM_PACKET_BYTES;
    config.ep.chunks_max = chunks_max(s);
    config.ep.peers_max = s->config.ranks;
    config.ep.expects_max = WEFT_COLL_EXPECTS;
    config.ep.accept = 1;
    config.ep.host_queue = 1;
    config.ep.cc_name = s->config.cc_name;
    if (weft_world_host_init(s->world, host, &config) != WEFT_OK) {
        weft_world_fail(s->world, "an endpoint refuses its configuration");
    }
}

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

static void make_rank(struct allreduce *s, uint32_t rank)
{
    struct host *h = &s->host[rank];
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    config.rank = rank;
    config.ranks = s->config.ranks;
    config.epoch = EPOCH;
    config.peers_max = s->config.ranks;
    config.chunks_max = chunks_max(s);
    config.groups_max = 1;
    config.ops_max = OPS_MAX;
    config.receivers_max = s->config.receivers_max;
    config.segment_bytes = s->config.segment_bytes;
    weft_status status =
        weft_coll_new(&config, weft_ep_msgr(weft_world_ep(s->world, rank)), &h->coll);
    WEFT_ASSERT(status == WEFT_OK);
    if (s->plan_memory != NULL) {
        status = weft_coll_plan_set(h->coll, 0, &s->plan);
        WEFT_ASSERT(status == WEFT_OK);
    }
    h->in = get(s->elems * sizeof(float));
    h->out = get(s->elems * sizeof(float));
    h->residual = get(s->elems * sizeof(float));
    h->missed = get(s->elems);
    for (uint64_t i = 0; i < s->elems; i++) {
        h->in[i] = value_of(rank, i);
    }
    struct weft_coll_call call = {.count = s->elems / s->config.ops,
                                  .in = h->in,
                                  .out = h->out,
                                  .bound_ppm = s->config.bound_ppm};
    size_t bytes = weft_coll_work_bytes(h->coll, &call);
    for (uint32_t op = 0; op < s->config.ops; op++) {
        h->work[op] = aligned_alloc(64, bytes);
        WEFT_ASSERT(h->work[op] != NULL);
    }
    call = (struct weft_coll_call){.type = WEFT_COLL_F64, .count = 1, .in = &h->time,
                                   .out = &h->time};
    h->short_work = aligned_alloc(64, weft_coll_work_bytes(h->coll, &call));
    WEFT_ASSERT(h->short_work != NULL);
}

static void connect_all(struct allreduce *s)
{
    for (uint32_t i = 0; i < s->config.ranks; i++) {
        for (uint32_t j = 0; j < i; j++) {
            struct weft_addr addr = weft_world_addr(j);
            weft_peer peer;
            if (weft_ep_connect(weft_world_ep(s->world, i), &addr, 0, &peer) != WEFT_OK) {
                weft_world_fail(s->world, "rank %" PRIu32 " cannot connect", i);
            }
        }
        weft_world_wake(s->world, i, 0);
    }
}

static void make_plan(struct allreduce *s)
{
    static const enum weft_collective_form forms[] = {
        [WEFT_ALLREDUCE_PLAN_AUTO] = WEFT_COLLECTIVE_AUTO,
        [WEFT_ALLREDUCE_PLAN_SLICES] = WEFT_COLLECTIVE_SLICES,
        [WEFT_ALLREDUCE_PLAN_TREES] = WEFT_COLLECTIVE_TREES,
    };
    if (s->config.plan == WEFT_ALLREDUCE_NO_PLAN) {
        return;
    }
    s->plan_memory =
        weft_allreduce_plan_new(&s->config, forms[s->config.plan],
                                s->config.bytes / s->config.ops, s->config.rtt_ns / 2, &s->made);
    s->plan = (struct weft_coll_plan){
        .ranks = s->made.ranks,
        .parts = s->made.parts,
        .trees_bytes_min = WEFT_COLL_PLAN_TREES_BYTES_MIN,
        .slice = s->made.slice,
        .part = s->made.part,
        .up = s->made.up,
        .down = s->made.down,
        .row = s->made.row,
    };
}

static struct allreduce *allreduce_new(const struct weft_allreduce_config *config)
{
    struct allreduce *s = get(sizeof(*s));
    s->config = *config;
    s->elems = config->bytes / sizeof(float);
    s->host = get(config->ranks * sizeof(*s->host));
    s->kept = get(s->elems * sizeof(*s->kept));
    s->times_ns = get(config->rounds * sizeof(*s->times_ns));
    struct weft_world_config world = {
        .hosts = config->ranks,
        .seed = weft_mix64(config->seed ^ UINT64_C(0x616c6c726564)),
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    world.tap = config->tap != NULL ? *config->tap : world.tap;
    s->world = weft_world_new(&world);
    weft_net_overhead_set(weft_world_net(s->world), WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES);
    weft_net_local_set(weft_world_net(s->world), local_ns);
    make_plan(s);
    for (uint32_t i = 0; i < config->ranks; i++) {
        make_endpoint(s, i);
        make_rank(s, i);
    }
    connect_all(s);
    return s;
}

static void allreduce_free(struct allreduce *s)
{
    weft_world_free(s->world); /* first: endpoints borrow the memory */
    for (uint32_t i = 0; i < s->config.ranks; i++) {
        struct host *h = &s->host[i];
        weft_coll_free(h->coll);
        free(h->in);
        free(h->out);
        free(h->residual);
        free(h->missed);
        free(h->short_work);
        for (uint32_t op = 0; op < OPS_MAX; op++) {
            free(h->work[op]);
        }
    }
    free(s->host);
    free(s->kept);
    free(s->times_ns);
    free(s->plan_memory);
    free(s);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool good(const struct allreduce *s)
{
    return weft_world_wrong(s->world)[0] == '\0';
}

static bool all_up(const struct allreduce *s)
{
    return s->ups == s->config.ranks * (s->config.ranks - 1);
}

static bool rounds_done(const struct allreduce *s)
{
    return s->stopping;
}

static void run_until(struct allreduce *s, bool (*reached)(const struct allreduce *s),
                      const char *what)
{
    uint64_t at_ns = weft_world_now_ns(s->world);
    uint64_t start_ns = at_ns;
    while (good(s) && !reached(s)) {
        at_ns += check_interval_ns;
        start_ns = weft_max_u64(start_ns, s->go_ns);
        if (at_ns > start_ns + round_ns_max) {
            weft_world_fail(s->world, "after %" PRIu64 " s not %s", round_ns_max / WEFT_NS_PER_S,
                            what);
            return;
        }
        (void)weft_world_run(s->world, at_ns);
    }
}

static void run(struct allreduce *s)
{
    run_until(s, all_up, "all ranks have connected");
    struct weft_net_faults faults = {.loss_ppm = s->config.loss_ppm};
    for (uint32_t i = 0; i < s->config.ranks; i += s->config.host_ranks) {
        weft_net_faults_set(weft_world_net(s->world), i, WEFT_NET_DOWN, &faults);
    }
    go(s, weft_world_now_ns(s->world));
    run_until(s, rounds_done, "a round is over");
    const char *wrong = weft_net_check(weft_world_net(s->world), true);
    if (wrong != NULL) {
        weft_world_fail(s->world, "%s", wrong);
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static void result_times(struct allreduce *s, struct weft_allreduce_result *r)
{
    r->rounds = s->round;
    struct weft_sim_times times = weft_sim_times_of(s->times_ns, s->round);
    r->p50_ns = times.p50_ns;
    r->p99_ns = times.p99_ns;
    r->max_ns = times.max_ns;
    r->mean_ns = times.mean_ns;
    r->phase1_ns_mean = s->round == 0 ? 0 : s->contributions_ns_sum / s->round;
    uint64_t contributed = s->elems * (s->config.ranks - 1) * s->round;
    r->delivered_ppm =
        contributed == 0 ? 0 : (uint32_t)((contributed - s->missing) * WEFT_PPM / contributed);
}

static void result_counters(const struct allreduce *s, struct weft_allreduce_result *r)
{
    uint64_t again = 0, sent = 0, bytes = 0;
    for (uint32_t i = 0; i < s->config.ranks; i++) {
        const struct weft_net_link_counters *down =
            weft_net_link_counters(weft_world_net(s->world), i, WEFT_NET_DOWN);
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        bool owns = weft_allreduce_port(&s->config, i) == i;
        r->dropped_full += owns ? down->dropped_full : 0;
        r->dropped_wire += owns ? down->dropped_loss : 0;
        r->marked += owns ? down->marked : 0;
        r->queue_bytes_max = weft_max_u64(r->queue_bytes_max, down->queued_bytes_max);
        r->early_messages += weft_coll_counters(s->host[i].coll)->early_messages;
        r->probes += c->probes;
        r->packets += c->datagrams_sent;
        again += c->retransmitted_packets;
        sent += c->data_sent;
        bytes += c->bytes_sent +
                 c->datagrams_sent * (WEFT_NET_OVERHEAD_BYTES + (uint64_t)WEFT_TAG_BYTES);
    }
    r->retransmitted_ppm = sent == 0 ? 0 : (uint32_t)(again * WEFT_PPM / sent);
    uint64_t ideal = link_bytes(&s->config) * s->config.ranks * weft_max_u64(r->rounds, 1);
    r->overhead_ppm = bytes > ideal ? (uint32_t)((bytes - ideal) * WEFT_PPM / ideal) : 0;
}

void weft_allreduce_run(const struct weft_allreduce_config *config,
                        struct weft_allreduce_result *result_p)
{
    WEFT_ASSERT(weft_allreduce_config_check(config) == NULL);
    if (config->box != WEFT_ALLREDUCE_NO_BOX) {
        weft_allreduce_box_run(config, result_p);
        return;
    }
    struct allreduce *s = allreduce_new(config);
    if (good(s)) {
        run(s);
    }
    *result_p = (struct weft_allreduce_result){
        .ok = good(s),
        .ideal_ns = weft_allreduce_ideal_ns(config),
        .ideal_without_box_ns = weft_allreduce_ideal_without_box_ns(config),
        .virtual_ns = weft_world_now_ns(s->world),
        .trace_hash = weft_world_hash(s->world),
    };
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(s->world));
    if (s->plan_memory != NULL) {
        weft_allreduce_plan_result(&s->made, result_p);
    }
    result_times(s, result_p);
    result_counters(s, result_p);
    allreduce_free(s);
}
