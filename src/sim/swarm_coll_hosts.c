/* The ranks of a simulated job of collectives: each calls the operations of the script at its own
 * pace, and closes its connections some time after the last one is done. */
#include "sim/swarm_coll_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SOCKET_PACKETS = 4096, STEPS_MAX = 20000000, CHUNKS_MAX = 65536 };

static const uint64_t close_gap_ns_max = 20 * WEFT_NS_PER_MS;

/* ---- memory ---------------------------------------------------------------------------------- */

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

static void buffers_make(struct swarm_coll *s, uint32_t r, uint32_t o)
{
    struct coll_rank *rank = &s->rank[r];
    const struct coll_op *op = &s->op[o];
    uint32_t index = coll_index(s, op->group, r);
    uint64_t in_elems = coll_in_elems(s, op), out_elems = coll_out_elems(s, op);
    uint64_t most = weft_max_u64(in_elems, out_elems) + 64; /* for a rank that calls with a
                                                             * different count */
    rank->in[o] = get(most * weft_coll_type_bytes(op->type));
    for (uint64_t i = 0; i < in_elems; i++) {
        weft_swarm_coll_put(rank->in[o], op->type, i, weft_swarm_coll_value(s, o, index, i));
    }
    rank->out[o] = op->in_place ? rank->in[o] : get(most * weft_coll_type_bytes(op->type));
    if (op->feedback) {
        rank->residual[o] = get(most * sizeof(float));
        rank->residual_before[o] = get(most * sizeof(float));
        rank->missed[o] = get(most + COLL_RANKS_MAX);
        for (uint64_t i = 0; i < in_elems; i++) {
            rank->residual[o][i] = (float)((index + i) % 5);
        }
        memcpy(rank->residual_before[o], rank->residual[o], in_elems * sizeof(float));
    }
}

static void buffers_free(struct swarm_coll *s, uint32_t r)
{
    struct coll_rank *rank = &s->rank[r];
    for (uint32_t o = 0; o < s->ops; o++) {
        if (rank->out[o] != rank->in[o]) {
            free(rank->out[o]);
        }
        free(rank->in[o]);
        free(rank->work[o]);
        free(rank->residual[o]);
        free(rank->residual_before[o]);
        free(rank->missed[o]);
    }
}

/* ---- calling --------------------------------------------------------------------------------- */

static bool begin(struct swarm_coll *s, uint32_t r, uint32_t o, uint64_t now_ns)
{
    struct coll_rank *rank = &s->rank[r];
    const struct coll_op *op = &s->op[o];
    buffers_make(s, r, o);
    struct weft_coll_call call = {
        .kind = op->kind,
        .type = op->type,
        .reduction = op->reduction,
        .group = op->group,
        .root = op->root,
        .tag = op->tag,
        .count = op->count,
        .in = rank->in[o],
        .out = rank->out[o],
        .bound_ppm = op->bound_ppm,
        .stream = o % 2,
        .residual = rank->residual[o],
        .missed = rank->missed[o],
        .timeout_ns = s->timeout_ns,
        .user = o,
    };
    if (op->kind == WEFT_COLL_SEND) {
        /* A rank that waits for a rank that waits for the culprit would report the wrong one. */
        bool with = s->member[op->group][op->root] == s->culprit ||
                    s->member[op->group][op->receiver] == s->culprit;
        call.timeout_ns = with ? s->timeout_ns : WEFT_NEVER;
        bool sends = coll_index(s, op->group, r) == op->root;
        call.kind = sends ? WEFT_COLL_SEND : WEFT_COLL_RECV;
        call.peer = sends ? op->receiver : op->root;
    }
    if (s->end == COLL_END_MISMATCH && r == s->culprit && o == s->end_op &&
        !s->made[op->group].differs) {
        call.count += 33;
    }
    size_t bytes = weft_coll_work_bytes(rank->coll, &call);
    rank->work[o] = bytes == 0 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    WEFT_ASSERT(bytes == 0 || rank->work[o] != NULL);
    if (bytes > 0) {
        memset(rank->work[o], 0xa5, bytes);
    }
    call.work = rank->work[o];
    weft_status status = weft_coll_begin(rank->coll, &call, now_ns);
    if (status != WEFT_OK && status != WEFT_PEER) {
        weft_world_fail(s->world, "rank %" PRIu32 " cannot begin operation %" PRIu32 ": %s", r, o,
                        weft_status_name(status));
    }
    rank->open += status == WEFT_OK;
    return status == WEFT_OK;
}

/* Whether it makes no further calls. */
static bool stops(const struct swarm_coll *s, uint32_t r)
{
    const struct coll_rank *rank = &s->rank[r];
    bool late = s->end == COLL_END_TIMEOUT && r == s->culprit && rank->next >= s->end_op;
    return late || rank->gave_up || rank->closed ||
           weft_coll_failure(rank->coll)->reason != WEFT_COLL_FINE;
}

static void call_next(struct swarm_coll *s, uint32_t r, uint64_t now_ns)
{
    struct coll_rank *rank = &s->rank[r];
    while (rank->next < s->ops && !stops(s, r) && now_ns >= rank->next_ns &&
           rank->open < s->ops_at_a_time) {
        uint32_t o = rank->order[rank->next];
        const struct coll_op *op = &s->op[o];
        if (coll_takes_part(op, coll_index(s, op->group, r)) && !begin(s, r, o, now_ns)) {
            return;
        }
        rank->next++;
        rank->next_ns = now_ns + weft_prng_below(&s->prng, s->gap_ns_max);
        weft_world_wake(s->world, r, rank->next_ns);
        weft_coll_progress(rank->coll, now_ns);
    }
}

/* With feedback a rank would have to know which part of its last messages arrived. Such seeds end
 * without CLOSE, like those in which a CLOSE can be lost. */
static bool may_close(const struct swarm_coll *s)
{
    bool may = s->end == COLL_END_WELL && !coll_silent_closes(s);
    for (uint32_t o = 0; o < s->ops; o++) {
        may = may && !s->op[o].feedback;
    }
    return may;
}

static void close_peers(struct swarm_coll *s, uint32_t r, uint64_t now_ns)
{
    struct coll_rank *rank = &s->rank[r];
    if (rank->next < s->ops || rank->open > 0 || rank->closed || !may_close(s)) {
        return;
    }
    if (rank->close_ns == 0) {
        rank->close_ns = now_ns + 1 + weft_prng_below(&s->prng, close_gap_ns_max);
        weft_world_wake(s->world, r, rank->close_ns);
    }
    if (now_ns >= rank->close_ns) {
        struct weft_ep *ep = weft_world_ep(s->world, r);
        rank->closed = true;
        for (weft_peer peer = 0; peer < s->config.peers_max; peer++) {
            weft_ep_close(ep, peer, now_ns);
        }
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct swarm_coll *s = self;
    bool lost = event->down == WEFT_DOWN_SILENT || event->down == WEFT_DOWN_PROTOCOL ||
                event->down == WEFT_DOWN_CRYPTO;
    uint32_t rank = event->name & 0xffff; /* see weft_coll_name */
    if (event->type == WEFT_EVENT_PEER_DOWN && s->end != COLL_END_DEATH && lost &&
        !(coll_silent_closes(s) && rank < s->n && s->rank[rank].failed_ns > 0)) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_DOWN (%d), but no process died", host,
                        (int)event->down);
    }
    weft_coll_event(s->rank[host].coll, event, now_ns);
}

static void step(struct swarm_coll *s, uint32_t r, uint64_t now_ns)
{
    struct coll_rank *rank = &s->rank[r];
    struct weft_coll_done done;
    if (weft_coll_deadline(rank->coll) <= now_ns) {
        weft_coll_on_deadline(rank->coll, now_ns);
    }
    /* It cannot notify ranks that it was never connected with; the launcher must handle those. */
    if (s->end == COLL_END_ABORT && r == s->culprit && now_ns >= s->end_ns && !rank->gave_up &&
        weft_swarm_coll_all_up(s)) {
        rank->gave_up = true;
        weft_coll_abort(rank->coll, "enough", now_ns);
    }
    weft_coll_progress(rank->coll, now_ns);
    while (weft_coll_poll(rank->coll, &done)) {
        rank->open--;
        rank->done[done.user] = true;
        rank->result[done.user] = done;
        s->closed_ns = now_ns;
    }
    call_next(s, r, now_ns);
    weft_coll_progress(rank->coll, now_ns);
    close_peers(s, r, now_ns);
    weft_peer peer;
    while (weft_coll_take_close(rank->coll, &peer)) {
        weft_ep_close(weft_world_ep(s->world, r), peer, now_ns);
    }
    if (rank->failed_ns == 0 && weft_coll_failure(rank->coll)->reason != WEFT_COLL_FINE) {
        rank->failed_ns = now_ns;
    }
    uint64_t deadline_ns = weft_coll_deadline(rank->coll);
    if (deadline_ns != WEFT_NEVER) {
        weft_world_wake(s->world, r, weft_max_u64(deadline_ns, now_ns + 1));
    }
}

/* The round of progress caused by a wake does its work. */
static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    (void)self;
    (void)host;
    (void)now_ns;
}

static void on_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm_coll *s = self;
    uint32_t open, next;
    do { /* an operation that is done at once allows the next one to begin */
        open = s->rank[host].open;
        next = s->rank[host].next;
        step(s, host, now_ns);
    } while (open != s->rank[host].open || next != s->rank[host].next);
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void make_host(struct swarm_coll *s, uint32_t r)
{
    struct weft_world_host_config config = {
        .ep = s->plan.host[r].ep,
        .progress_delay_ns = s->plan.host[r].progress_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake, .batch = on_batch},
    };
    config.ep.name = weft_coll_name(COLL_EPOCH, r);
    config.ep.peers_max = s->config.peers_max;
    config.ep.expects_max = WEFT_COLL_EXPECTS;
    config.ep.chunks_max = CHUNKS_MAX;
    config.ep.keepalive_ns = 300 * WEFT_NS_PER_MS;
    config.ep.peer_timeout_ns =
        s->plan.heal_ns + (s->end == COLL_END_DEATH ? 3 : 30) * WEFT_NS_PER_S;
    weft_status status = weft_world_host_init(s->world, r, &config);
    if (status != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": the endpoint refuses its configuration", r);
        return;
    }
    struct weft_coll_config own = s->config;
    own.rank = r;
    own.chunks_max = CHUNKS_MAX;
    status = weft_coll_new(&own, weft_ep_msgr(weft_world_ep(s->world, r)), &s->rank[r].coll);
    WEFT_ASSERT(status == WEFT_OK);
    if (s->groups > 1) {
        uint32_t group;
        status = weft_coll_group(s->rank[r].coll, s->member[1], s->members[1], &group);
        WEFT_ASSERT(status == WEFT_OK && group == 1);
    }
    for (uint32_t g = 0; g < s->groups; g++) {
        status = weft_coll_plan_set(s->rank[r].coll, g, weft_swarm_coll_plan(s, g, r));
        WEFT_ASSERT(status == WEFT_OK);
    }
}

struct swarm_coll *weft_swarm_coll_new(uint64_t seed, const struct weft_world_tap *tap)
{
    struct swarm_coll *s = calloc(1, sizeof(*s));
    WEFT_ASSERT(s != NULL);
    weft_swarm_coll_draw(s, seed);
    struct weft_world_config config = {
        .hosts = s->n,
        .seed = weft_mix64(seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = s->plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    s->world = weft_world_new(&config);
    weft_plan_build(&s->plan, weft_world_net(s->world));
    for (uint32_t r = 0; r < s->n; r++) {
        make_host(s, r);
    }
    for (uint32_t r = 0; r < s->n && weft_world_wrong(s->world)[0] == '\0'; r++) {
        for (uint32_t to = 0; to < r; to++) {
            struct weft_addr addr = weft_world_addr(to);
            weft_peer peer;
            weft_status status = weft_ep_connect(weft_world_ep(s->world, r), &addr, 0, &peer);
            WEFT_ASSERT(status == WEFT_OK);
        }
        s->rank[r].next_ns = weft_prng_below(&s->prng, s->gap_ns_max);
        weft_world_wake(s->world, r, 0);
        weft_world_wake(s->world, r, s->rank[r].next_ns);
        if (s->end == COLL_END_ABORT && r == s->culprit) {
            weft_world_wake(s->world, r, s->end_ns);
        }
    }
    return s;
}

void weft_swarm_coll_free(struct swarm_coll *s)
{
    weft_world_free(s->world); /* first: endpoints borrow the memory of operations */
    for (uint32_t r = 0; r < s->n; r++) {
        weft_coll_free(s->rank[r].coll);
        buffers_free(s, r);
    }
    free(s);
}
