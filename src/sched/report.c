/* Events reported by other processes. All events are validated in this file before any state
 * changes. An event that contradicts itself or the planner's state is refused and counted. */
#include "sched/internal.h"

#include <float.h>

/* ---- checks ---------------------------------------------------------------------------------- */

static weft_status refuse(uint64_t *counter)
{
    (*counter)++;
    return WEFT_DATA;
}

static weft_status check_worker(struct weft_planner *planner, uint32_t worker)
{
    return worker < planner->config.workers ? WEFT_OK : refuse(&planner->counters.refused_unknown);
}

/* The job must have servers. */
static weft_status check_mode(struct weft_planner *planner)
{
    return planner->config.servers > 0 ? WEFT_OK : refuse(&planner->counters.refused_unknown);
}

static weft_status check_bytes(struct weft_planner *planner, uint64_t bytes)
{
    return bytes > 0 && bytes <= WEFT_PLANNER_BYTES_MAX ? WEFT_OK
                                                        : refuse(&planner->counters.refused_range);
}

static weft_status check_shares(struct weft_planner *planner, uint64_t bytes,
                                const uint64_t *server_bytes)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; server_bytes != NULL && s < planner->config.servers; s++) {
        if (server_bytes[s] > WEFT_PLANNER_BYTES_MAX) {
            return refuse(&planner->counters.refused_range);
        }
        sum += server_bytes[s];
    }
    return server_bytes == NULL || sum == bytes ? WEFT_OK
                                                : refuse(&planner->counters.refused_range);
}

/* NaN is also refused, because every comparison with it is false. */
static weft_status check_norm(struct weft_planner *planner, double norm)
{
    return norm >= 0 && norm <= DBL_MAX ? WEFT_OK : refuse(&planner->counters.refused_norm);
}

static weft_status check_versions(struct weft_planner *planner,
                                  const struct weft_planner_update *update)
{
    const struct planner_worker *w = &planner->workers[update->worker];
    bool is_old = w->has_clock && update->clock < w->clock;
    return is_old || update->base_version > planner->positions
               ? refuse(&planner->counters.refused_version)
               : WEFT_OK;
}

/* The worker must not have a request in progress; a read must precede the worker's update. */
static weft_status check_phase(struct weft_planner *planner, uint32_t worker, bool is_read)
{
    enum worker_phase phase = planner->workers[worker].phase;
    bool is_free = phase == WORKER_IDLE || (!is_read && phase == WORKER_COMPUTING);
    return is_free ? WEFT_OK : refuse(&planner->counters.refused_twice);
}

#define CHECK(expression)                                                                          \
    do {                                                                                           \
        weft_status check_ = (expression);                                                         \
        if (check_ != WEFT_OK) {                                                                   \
            return check_;                                                                         \
        }                                                                                          \
    } while (0)

static void set_now(struct weft_planner *planner, uint64_t now_ns)
{
    planner->now_ns = weft_max_u64(planner->now_ns, now_ns);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void keep_shares(struct weft_planner *planner, const struct weft_planner_update *update)
{
    uint32_t servers = planner->config.servers;
    uint64_t *shares = planner->server_bytes + (size_t)update->worker * servers;
    for (uint32_t s = 0; s < servers; s++) {
        shares[s] = update->server_bytes != NULL
                        ? update->server_bytes[s]
                        : update->bytes / servers + (s < update->bytes % servers);
    }
}

weft_status weft_planner_update(struct weft_planner *planner,
                                const struct weft_planner_update *update, uint64_t now_ns)
{
    CHECK(check_worker(planner, update->worker));
    CHECK(check_phase(planner, update->worker, false));
    CHECK(check_bytes(planner, update->bytes));
    CHECK(check_shares(planner, update->bytes, update->server_bytes));
    CHECK(check_norm(planner, update->norm));
    CHECK(check_versions(planner, update));
    set_now(planner, now_ns);
    struct planner_worker *w = &planner->workers[update->worker];
    planner->outstanding += w->phase == WORKER_IDLE;
    w->phase = WORKER_WAITING;
    w->is_gone = false;
    w->members = 1;
    w->has_clock = true;
    w->clock = w->step = update->clock;
    w->bytes = update->bytes;
    w->base_version = update->base_version;
    w->norm = planner_norm(planner, update->norm);
    w->since_ns = planner->now_ns;
    w->asked = planner->requests++;
    keep_shares(planner, update);
    planner_set_add(planner->waiting, &planner->waiting_count, update->worker);
    planner->counters.updates++;
    return WEFT_OK;
}

weft_status weft_planner_read(struct weft_planner *planner, uint32_t worker, uint64_t bytes,
                              uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    const struct planner_worker *w = &planner->workers[worker];
    uint64_t clock = w->has_clock ? weft_time_add(w->clock, 1) : 0;
    return weft_planner_read_at(planner, worker, clock, bytes, now_ns);
}

weft_status weft_planner_read_at(struct weft_planner *planner, uint32_t worker, uint64_t clock,
                                 uint64_t bytes, uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    CHECK(check_mode(planner));
    CHECK(check_phase(planner, worker, true));
    CHECK(check_bytes(planner, bytes));
    set_now(planner, now_ns);
    struct planner_worker *w = &planner->workers[worker];
    w->phase = WORKER_READ_WAITING;
    w->is_gone = false;
    w->step = clock;
    w->bytes = bytes;
    w->since_ns = planner->now_ns;
    w->asked = planner->requests++;
    planner_set_add(planner->reading, &planner->reading_count, worker);
    planner->counters.reads++;
    return WEFT_OK;
}

weft_status weft_planner_has_read(struct weft_planner *planner, uint32_t worker, uint64_t clock,
                                  uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    CHECK(check_mode(planner));
    struct planner_worker *w = &planner->workers[worker];
    if (w->phase == WORKER_READ_WAITING) {
        planner_set_remove(planner->reading, &planner->reading_count, worker);
    } else if (w->phase != WORKER_IDLE) {
        return refuse(&planner->counters.refused_twice);
    }
    set_now(planner, now_ns);
    planner->outstanding++;
    w->phase = WORKER_COMPUTING;
    w->is_gone = false;
    w->step = clock;
    return WEFT_OK;
}

weft_status weft_planner_read_over(struct weft_planner *planner, uint32_t worker, uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    CHECK(check_mode(planner));
    struct planner_worker *w = &planner->workers[worker];
    if (w->phase == WORKER_READ_WAITING) {
        planner_set_remove(planner->reading, &planner->reading_count, worker);
    } else if (w->phase == WORKER_READING || w->phase == WORKER_COMPUTING) {
        planner->outstanding--;
    } else {
        return refuse(&planner->counters.refused_unknown);
    }
    set_now(planner, now_ns);
    planner_cancel_of(planner, worker);
    w->phase = WORKER_IDLE;
    return WEFT_OK;
}

/* ---- completed actions ----------------------------------------------------------------------- */

weft_status weft_planner_delivered(struct weft_planner *planner, uint64_t transfer, uint64_t now_ns)
{
    struct planner_transfer *t = planner_transfer_find(planner, transfer);
    if (t == NULL || !t->is_announced) {
        return refuse(&planner->counters.refused_unknown);
    }
    set_now(planner, now_ns);
    struct planner_transfer was = *t;
    planner_transfer_end(planner, t);
    if (was.round != 0) {
        planner_reduce_delivered(planner, &was);
        return WEFT_OK;
    }
    if (was.worker != WEFT_PLANNER_NONE) {
        struct planner_worker *w = &planner->workers[was.worker];
        w->transfers_left--;
        if (was.kind == WEFT_PLANNER_GRANT_READ && w->transfers_left == 0) {
            w->phase = WORKER_COMPUTING;
        }
    }
    if (was.kind == WEFT_PLANNER_REPLICATE && !planner_has(planner, WEFT_PLAN_REPLICATE)) {
        planner->replica_bytes[was.server] = planner->replica_transfer[was.server] = 0;
    } else if (was.kind == WEFT_PLANNER_REPLICATE) {
        planner_replica_delivered(planner);
    } else if (was.kind == WEFT_PLANNER_GRANT_GROUP) {
        planner_group_at_server(planner, was.group);
    } else if (was.group != WEFT_PLANNER_NONE) {
        planner_group_delivered(planner, was.group);
    }
    return WEFT_OK;
}

/* A worker's update is no longer in flight. */
void planner_end_flight(struct weft_planner *planner, uint32_t worker)
{
    struct planner_worker *w = &planner->workers[worker];
    planner_set_remove(planner->flying, &planner->flying_count, worker);
    planner->norm_flying -= w->norm;
    planner->outstanding--;
    w->phase = WORKER_IDLE;
    w->group = WEFT_PLANNER_NONE;
}

weft_status weft_planner_committed(struct weft_planner *planner, uint32_t worker,
                                   double applied_norm, uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    CHECK(check_mode(planner));
    struct planner_worker *w = &planner->workers[worker];
    if (w->phase != WORKER_FLYING) {
        return refuse(&planner->counters.refused_unknown);
    }
    if (!(applied_norm < 0)) {
        CHECK(check_norm(planner, applied_norm));
    }
    set_now(planner, now_ns);
    /* The base version may come from a server that was ahead of the reports: the delay is then
     * 0. */
    uint64_t delay = planner->version > w->base_version ? planner->version - w->base_version : 0;
    planner->counters.delay_sum += delay;
    planner->counters.delay_max = weft_max_u64(planner->counters.delay_max, delay);
    planner->commit_ns[planner->counters.commits++ % PLANNER_COMMITS] = planner->now_ns;
    w->commits++;
    planner_norm_committed(planner, worker, applied_norm);
    uint32_t group = w->group;
    bool is_at_aggregator = w->transfers_left == 0;
    planner_cancel_of(planner, worker);
    planner_end_flight(planner, worker);
    if (group != WEFT_PLANNER_NONE && !is_at_aggregator) {
        planner_group_left(planner, group); /* its delivery was not reported, and never will be */
    }
    if (group != WEFT_PLANNER_NONE && planner->groups[group].id != 0) {
        planner_group_over(planner, group);
    }
    planner->version++;
    return WEFT_OK;
}

weft_status weft_planner_sum_arrived(struct weft_planner *planner, uint32_t worker,
                                     uint32_t server, uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    const uint32_t group = planner->workers[worker].group;
    if (server >= planner->config.servers || group == WEFT_PLANNER_NONE) {
        return refuse(&planner->counters.refused_unknown);
    }
    set_now(planner, now_ns);
    planner_group_sum_arrived(planner, group, server);
    return WEFT_OK;
}

/* True if bytes of the update may be at a server, where they count as an opened update. */
static bool may_have_begun(const struct weft_planner *planner, uint32_t worker)
{
    const struct planner_worker *w = &planner->workers[worker];
    if (w->transfers_left < planner->config.servers) {
        return true;
    }
    for (uint32_t i = 0; i < planner->active_count; i++) {
        const struct planner_transfer *t = &planner->transfers[planner->active[i]];
        if (t->worker == worker && t->booking.start_ns <= planner->now_ns) {
            return true;
        }
    }
    return false;
}

static void worker_left_flying(struct weft_planner *planner, uint32_t worker)
{
    const struct planner_worker *w = &planner->workers[worker];
    uint32_t group = w->group;
    bool is_at_aggregator = w->transfers_left == 0;
    if (group == WEFT_PLANNER_NONE ? may_have_begun(planner, worker)
                                   : is_at_aggregator || planner->config.members_resend) {
        planner_norm_committed(planner, worker, -1);
        planner->version++;
    }
    planner_cancel_of(planner, worker);
    planner_end_flight(planner, worker);
    if (group != WEFT_PLANNER_NONE && !is_at_aggregator) {
        planner_group_left(planner, group);
        planner_replan_sum(planner, group); /* with cut-through the sum waits for one member less */
    }
    if (group != WEFT_PLANNER_NONE && planner->groups[group].id != 0) {
        planner_group_over(planner, group);
    }
}

weft_status weft_planner_worker_left(struct weft_planner *planner, uint32_t worker, uint64_t now_ns)
{
    CHECK(check_worker(planner, worker));
    set_now(planner, now_ns);
    struct planner_worker *w = &planner->workers[worker];
    w->is_gone = true;
    w->has_clock = false;
    if (planner->config.mode == WEFT_PLANNER_ALL_REDUCE) {
        planner_reduce_worker_left(planner);
        return WEFT_OK;
    }
    switch (w->phase) {
    case WORKER_IDLE:
        break;
    case WORKER_READ_WAITING:
        planner_set_remove(planner->reading, &planner->reading_count, worker);
        break;
    case WORKER_READING:
    case WORKER_COMPUTING:
        planner->outstanding--;
        break;
    case WORKER_WAITING:
        planner_set_remove(planner->waiting, &planner->waiting_count, worker);
        planner->outstanding--;
        break;
    case WORKER_FLYING:
        worker_left_flying(planner, worker);
        break;
    }
    planner_cancel_of(planner, worker);
    w->phase = WORKER_IDLE;
    return WEFT_OK;
}

weft_status weft_planner_replica(struct weft_planner *planner, uint32_t server, uint64_t bytes,
                                 uint64_t now_ns)
{
    if (server >= planner->config.servers || planner_has(planner, WEFT_PLAN_REPLICATE) ||
        planner->config.replica_host[server] == WEFT_PLANNER_NONE) {
        return refuse(&planner->counters.refused_unknown);
    }
    CHECK(check_bytes(planner, bytes));
    if (planner->replica_bytes[server] != 0) {
        return refuse(&planner->counters.refused_twice);
    }
    set_now(planner, now_ns);
    planner->replica_bytes[server] = bytes;
    return WEFT_OK;
}

weft_status weft_planner_replica_over(struct weft_planner *planner, uint32_t server,
                                      uint64_t now_ns)
{
    if (server >= planner->config.servers || planner_has(planner, WEFT_PLAN_REPLICATE) ||
        planner->replica_bytes[server] == 0) {
        return refuse(&planner->counters.refused_unknown);
    }
    set_now(planner, now_ns);
    struct planner_transfer *t =
        planner_transfer_find(planner, planner->replica_transfer[server]);
    if (t != NULL) {
        planner_transfer_end(planner, t);
    }
    planner->replica_bytes[server] = planner->replica_transfer[server] = 0;
    return WEFT_OK;
}

weft_status weft_planner_aggregator(struct weft_planner *planner, uint32_t idx, bool is_there,
                                    uint64_t now_ns)
{
    if (idx >= planner->config.aggregators) {
        return refuse(&planner->counters.refused_unknown);
    }
    set_now(planner, now_ns);
    planner->aggregator_gone[idx] = !is_there;
    for (uint32_t g = 0; !is_there && g < PLANNER_GROUPS_MAX; g++) {
        if (planner->groups[g].id != 0 && planner->groups[g].aggregator == idx) {
            planner_group_broken(planner, g);
        }
    }
    return WEFT_OK;
}

weft_status weft_planner_sum_share(struct weft_planner *planner, uint32_t members,
                                   uint32_t share_ppm)
{
    if (members < 2 || members > WEFT_PLANNER_WINDOW_MAX || share_ppm > WEFT_PLANNER_SHARE_MAX) {
        return refuse(&planner->counters.refused_range);
    }
    planner->has_sum_ppm[members] = true;
    planner->sum_ppm[members] = share_ppm;
    return WEFT_OK;
}

weft_status weft_planner_capacity(struct weft_planner *planner, uint32_t host, bool is_up,
                                  uint64_t capacity_bps, uint64_t now_ns)
{
    if (host >= planner->config.hosts || capacity_bps > WEFT_TIMELINE_BPS_MAX) {
        return refuse(&planner->counters.refused_range);
    }
    set_now(planner, now_ns);
    planner_link(planner, host, is_up)->capacity_bps = capacity_bps;
    planner_find_fastest(planner);
    planner_replan_link(planner, host, is_up);
    return WEFT_OK;
}
