#include "sim/fabric_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>

enum { STREAM_STEPS = 1, STREAM_NORMS, STREAM_SLOW };

static bool sync(const struct weft_fabric *f)
{
    return f->config.mode == WEFT_FABRIC_SYNC;
}

static void enter(struct weft_fabric *f, uint32_t worker, enum weft_fabric_state state)
{
    f->workers[worker].state = state;
    f->workers[worker].since_ns = f->now_ns;
}

/* ---- read and compute ------------------------------------------------------------------------ */

static void compute(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    enter(f, worker, WEFT_FABRIC_COMPUTING);
    uint64_t ns = weft_fabric_step_ns(&f->config.compute, w->slow, &w->steps);
    weft_fabric_event(f, f->now_ns + ns, WEFT_FABRIC_EVENT_COMPUTED, worker, NULL);
}

/* From this point the worker's base version is fixed. */
static void take_base(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    WEFT_ASSERT(!w->outstanding);
    w->outstanding = true;
    w->base = f->version;
    f->outstanding++;
}

void weft_fabric_read_granted(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    take_base(f, worker);
    enter(f, worker, WEFT_FABRIC_READING);
    w->left = f->config.servers;
}

static void read_fair(struct weft_fabric *f, uint32_t worker)
{
    weft_fabric_read_granted(f, worker);
    for (uint32_t s = 0; s < f->config.servers; s++) {
        struct weft_fabric_transfer read = {
            .kind = WEFT_FABRIC_READ,
            .from = weft_fabric_server_host(f, s),
            .to = worker,
            .worker = worker,
            .server = s,
            .bytes = weft_fabric_part(f, f->config.model_bytes, s),
        };
        (void)weft_fabric_transfer_start(f, &read);
    }
}

static void read_model(struct weft_fabric *f, uint32_t worker)
{
    if (f->config.policy == WEFT_FABRIC_ADMISSION) {
        enter(f, worker, WEFT_FABRIC_ASKING);
        weft_fabric_report_read(f, worker);
    } else if (f->config.model_bytes == 0 || weft_fabric_is_all_reduce(f->config.policy)) {
        take_base(f, worker);
        compute(f, worker);
    } else {
        read_fair(f, worker);
    }
}

/* Resume workers that waited for the slowest one after it has advanced. */
static void unblock(struct weft_fabric *f)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < f->config.workers; i++) {
        least = weft_min_u64(least, f->workers[i].clock);
    }
    for (uint32_t i = 0; i < f->config.workers; i++) {
        bool may = f->workers[i].clock <= least + f->config.staleness;
        if (f->workers[i].state == WEFT_FABRIC_IDLE && may) {
            read_model(f, i);
        }
    }
}

static void go_on(struct weft_fabric *f, uint32_t worker)
{
    enter(f, worker, WEFT_FABRIC_IDLE);
    if (f->config.mode == WEFT_FABRIC_ASYNC) {
        read_model(f, worker);
    } else if (f->config.mode == WEFT_FABRIC_SSP) {
        unblock(f);
    }
}

/* ---- push ------------------------------------------------------------------------------------ */

static void push_fair(struct weft_fabric *f, uint32_t worker)
{
    f->workers[worker].sent_ns = f->now_ns;
    for (uint32_t s = 0; s < f->config.servers; s++) {
        struct weft_fabric_transfer push = {
            .kind = WEFT_FABRIC_PUSH,
            .from = worker,
            .to = weft_fabric_server_host(f, s),
            .worker = worker,
            .server = s,
            .bytes = weft_fabric_part(f, f->config.update_bytes, s),
        };
        (void)weft_fabric_transfer_start(f, &push);
    }
}

void weft_fabric_computed(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    weft_fabric_span(f, WEFT_FABRIC_SPAN_COMPUTE, worker, worker, w->since_ns, 0);
    enter(f, worker, WEFT_FABRIC_PUSHING);
    w->left = f->config.servers;
    w->chained = false;
    w->group = 0;
    w->sent_ns = WEFT_NEVER;
    /* 0.5 to 1.5 of the mean norm, which is one. */
    w->norm = 0.5 + (double)weft_prng_below(&w->norms, WEFT_PPM + 1) / WEFT_PPM;
    if (f->steps > 0) {
        weft_fabric_collective_go_on(f, worker);
    } else if (weft_fabric_is_planned(f->config.policy)) {
        weft_fabric_report_update(f, worker);
        weft_fabric_relay_stale(f, worker);
    } else {
        push_fair(f, worker);
    }
}

void weft_fabric_dropped(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    WEFT_ASSERT(w->state == WEFT_FABRIC_PUSHING && w->outstanding && w->sent_ns == WEFT_NEVER);
    weft_fabric_span(f, WEFT_FABRIC_SPAN_WAIT, worker, worker, w->since_ns, 0);
    weft_fabric_span(f, WEFT_FABRIC_SPAN_DROP, worker, worker, f->now_ns, f->config.update_bytes);
    f->delay_sum += f->version - w->base;
    f->outstanding--;
    w->outstanding = false;
    f->result->dropped++;
    read_model(f, worker);
}

/* ---- commit ---------------------------------------------------------------------------------- */

static void note_delay(struct weft_fabric *f, uint64_t delay)
{
    if (f->result->commits == f->delay_room) {
        f->delay_room = f->delay_room == 0 ? 4096 : 2 * f->delay_room;
        f->delays = realloc(f->delays, f->delay_room * sizeof(*f->delays));
        WEFT_ASSERT(f->delays != NULL);
    }
    f->delays[f->result->commits] = (uint32_t)delay;
    f->delay_sum += delay;
    if (f->config.policy >= WEFT_FABRIC_BOUND && weft_fabric_is_planned(f->config.policy) &&
        delay > f->config.tau_max) {
        weft_fabric_fail(f,
                         "an update was committed with delay %" PRIu64 ", above tau_max %" PRIu64,
                         delay, f->config.tau_max);
    }
}

static void note_divergence(struct weft_fabric *f, double norm)
{
    /* With a chain, the replicas have the update before it is committed. */
    bool kept_close = f->config.div_max > 0 && !weft_fabric_is_chained(&f->config);
    for (uint32_t s = 0; kept_close && s < f->config.servers; s++) {
        f->shards[s].pending += norm;
        if (f->shards[s].pending > f->result->replica_divergence_max) {
            f->result->replica_divergence_max = f->shards[s].pending;
        }
        if (f->shards[s].pending > f->config.div_max * (1 + 1e-9)) {
            weft_fabric_fail(f, "server %" PRIu32 " is %g norms ahead of its replica, above %g", s,
                             f->shards[s].pending, f->config.div_max);
        }
    }
}

static void commit(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    WEFT_ASSERT(w->outstanding);
    if (!sync(f)) {
        f->others_sum += f->outstanding - 1;
    }
    note_delay(f, sync(f) ? 0 : f->version - w->base);
    note_divergence(f, w->norm);
    f->version++;
    f->outstanding--;
    w->outstanding = false;
    w->clock++;
    f->result->commits++;
    f->result->commits_by_worker[worker]++;
    /* The planner detects the end of an all-reduce from its deliveries. */
    if (f->planner != NULL && !weft_fabric_is_all_reduce(f->config.policy)) {
        weft_fabric_report_committed(f, worker, w->norm);
    }
}

/* Sync: the last update of the round has arrived. */
static void round_over(struct weft_fabric *f)
{
    f->result->rounds++;
    f->rounds_ns += f->now_ns - f->round_ns;
    f->round_ns = f->now_ns;
    f->round_done = 0;
    if (f->steps > 0) {
        weft_fabric_collective_round(f);
    }
    for (uint32_t i = 0; i < f->config.workers; i++) {
        read_model(f, i);
    }
}

static void pushed(struct weft_fabric *f, uint32_t worker)
{
    const struct weft_fabric_worker *w = &f->workers[worker];
    if (w->sent_ns != WEFT_NEVER) {
        const struct weft_fabric_span wait = {WEFT_FABRIC_SPAN_WAIT, worker,     worker,
                                              w->since_ns,           w->sent_ns, 0};
        weft_fabric_span_until(f, &wait);
    }
    commit(f, worker);
    go_on(f, worker);
    if (sync(f) && ++f->round_done == f->config.workers) {
        round_over(f);
    }
}

void weft_fabric_all_reduced(struct weft_fabric *f)
{
    for (uint32_t i = 0; i < f->config.workers; i++) {
        weft_fabric_span(f, WEFT_FABRIC_SPAN_WAIT, i, i, f->workers[i].since_ns,
                         f->config.update_bytes);
        pushed(f, i);
    }
}

static void chain(struct weft_fabric *f, uint32_t worker)
{
    struct weft_fabric_worker *w = &f->workers[worker];
    w->chained = true;
    w->left = f->config.servers;
    for (uint32_t s = 0; s < f->config.servers; s++) {
        struct weft_fabric_transfer copy = {
            .kind = WEFT_FABRIC_CHAIN,
            .from = weft_fabric_server_host(f, s),
            .to = weft_fabric_replica_host(f, s),
            .worker = worker,
            .server = s,
            .bytes = weft_fabric_part(f, f->config.update_bytes, s),
        };
        (void)weft_fabric_transfer_start(f, &copy);
    }
}

void weft_fabric_part_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer)
{
    struct weft_fabric_worker *w = &f->workers[transfer->worker];
    f->result->update_bytes += transfer->kind == WEFT_FABRIC_PUSH ? transfer->bytes : 0;
    f->result->replica_bytes += transfer->kind == WEFT_FABRIC_CHAIN ? transfer->bytes : 0;
    WEFT_ASSERT(w->left > 0);
    if (--w->left > 0) {
        return;
    }
    if (transfer->kind == WEFT_FABRIC_READ) {
        weft_fabric_span(f, WEFT_FABRIC_SPAN_READ, transfer->worker, transfer->from, w->since_ns,
                         f->config.model_bytes);
        compute(f, transfer->worker);
        return;
    }
    if (transfer->kind == WEFT_FABRIC_PUSH) {
        weft_fabric_span(f, WEFT_FABRIC_SPAN_PUSH, transfer->worker, transfer->to, w->sent_ns,
                         f->config.update_bytes);
        if (weft_fabric_is_chained(&f->config)) {
            chain(f, transfer->worker);
            return;
        }
    }
    pushed(f, transfer->worker);
}

void weft_fabric_group_arrived(struct weft_fabric *f, uint64_t group, uint32_t server)
{
    uint32_t members = 0;
    (void)server;
    for (uint32_t i = 0; i < f->config.workers; i++) {
        struct weft_fabric_worker *w = &f->workers[i];
        if (w->group != group) {
            continue;
        }
        WEFT_ASSERT(w->left > 0);
        members++;
        if (--w->left == 0) {
            w->group = 0;
            pushed(f, i);
            f->result->grouped++;
            f->result->groups += members == 1;
        }
    }
    WEFT_ASSERT(members > 0);
}

void weft_fabric_replicated(struct weft_fabric *f, const struct weft_fabric_transfer *transfer)
{
    f->shards[transfer->server].pending -= transfer->norm;
    f->result->replica_bytes += transfer->bytes;
}

/* ---- start ----------------------------------------------------------------------------------- */

void weft_fabric_workers_start(struct weft_fabric *f)
{
    bool slow[WEFT_FABRIC_WORKERS_MAX];
    struct weft_prng prng;
    weft_prng_split(&prng, f->config.seed, STREAM_SLOW);
    weft_fabric_choose(&prng, f->config.compute.slow_workers_ppm, f->config.workers, slow);
    for (uint32_t i = 0; i < f->config.workers; i++) {
        struct weft_fabric_worker *w = &f->workers[i];
        w->slow = slow[i];
        weft_prng_split(&w->steps, f->config.seed, (uint64_t)i << 32 | STREAM_STEPS);
        weft_prng_split(&w->norms, f->config.seed, (uint64_t)i << 32 | STREAM_NORMS);
    }
    if (f->steps > 0) {
        weft_fabric_collective_round(f);
    }
    for (uint32_t i = 0; i < f->config.workers; i++) {
        read_model(f, i);
    }
}
