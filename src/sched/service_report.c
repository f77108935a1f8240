/* Input of reports: they are checked against the state of the service, and become events of the
 * planner. wire.c has already checked the fields of each report. */
#include "sched/service_internal.h"

#include <math.h>
#include <string.h>

/* A base version above the number of updates that its shard has reported is not yet an error: the
 * shard's report may still be in flight. The update is held for this long. */
static const uint64_t hold_ns = 500 * WEFT_NS_PER_MS;
/* After the worker's report that an update has ended, the servers' reports are awaited for this
 * long, because they may arrive later. */
static const uint64_t reports_wait_ns = WEFT_NS_PER_S;

/* ---- the end of an update -------------------------------------------------------------------- */

/* Whether this shard still has to report the end of this update, which is in flight. */
static bool is_open(const struct service_worker *w, uint32_t shard)
{
    return w->shares[shard].bytes > 0 && (w->closed >> shard & 1) == 0;
}

void service_fly(struct weft_sched_service *service, struct service_worker *w)
{
    if (w->state != UPDATE_WAITING) {
        return;
    }
    w->state = UPDATE_IN_FLIGHT;
    service->flying++;
    service->retry_held = true;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        service->shards[s].flying += is_open(w, s);
    }
}

static void end_flight(struct weft_sched_service *service, struct service_worker *w)
{
    const bool was_in_flight = w->state == UPDATE_IN_FLIGHT;
    service->flying -= was_in_flight;
    service->retry_held |= was_in_flight;
    for (uint32_t s = 0; was_in_flight && s < service->config.shards; s++) {
        service->shards[s].flying -= is_open(w, s);
    }
    w->state = UPDATE_NONE;
    w->reports_due_ns = WEFT_NEVER;
}

void service_forget_update(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    if (service->planner != NULL && service_has_update(w)) {
        (void)weft_planner_worker_left(service->planner, worker, now_ns);
    }
    end_flight(service, w);
}

void service_leave(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    const struct service_worker *w = &service->workers[worker];
    if (service->planner != NULL && worker < service->config.workers && w->conn == CONN_NONE &&
        !service_has_update(w)) {
        (void)weft_planner_worker_left(service->planner, worker, now_ns);
    }
}

void service_commit(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    double norm = w->norm_square < 0 ? -1 : sqrt(w->norm_square);
    if (weft_planner_committed(service->planner, worker, norm, now_ns) != WEFT_OK &&
        /* The norm is invalid, but the update has ended nevertheless. */
        weft_planner_committed(service->planner, worker, -1, now_ns) != WEFT_OK) {
        /* The update was waiting again, because its aggregator had failed; but the sum that arrived
         * contains the update. */
        (void)weft_planner_worker_left(service->planner, worker, now_ns);
    }
    end_flight(service, w);
    service_leave(service, worker, now_ns);
}

/* ---- a worker's update ----------------------------------------------------------------------- */

/* Number of updates that are ordered at the shard between this base version and a new update: those
 * opened after the base, and those granted that the shard has not opened yet. */
static uint64_t distance(const struct weft_sched_service *service, uint32_t shard, uint64_t base)
{
    const struct service_shard *at = &service->shards[shard];
    uint64_t open = at->opened - at->closed;
    uint64_t opened = at->opened + (at->flying > open ? at->flying - open : 0);
    return base > opened ? WEFT_NEVER : opened - base;
}

/* The base version in the planner's count of updates; false: a base of the update is above the
 * number of updates that its shard has reported, so the version is not known yet. */
static bool base_version(const struct weft_sched_service *service, const struct service_worker *w,
                         uint64_t *version_p)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        uint64_t behind = w->shares[s].bytes > 0 ? distance(service, s, w->shares[s].base) : 0;
        if (behind == WEFT_NEVER) {
            return false;
        }
        most = weft_max_u64(most, behind);
    }
    uint64_t opened = weft_planner_version(service->planner) + service->flying;
    *version_p = opened > most ? opened - most : 0;
    return true;
}

/* The planner books a transfer to every server; an empty share is booked as one byte that is
 * delivered when it is granted. */
static void ask_planner(struct weft_sched_service *service, uint32_t worker, uint64_t base,
                        uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    uint64_t server_bytes[WEFT_SCHED_SHARDS_MAX];
    struct weft_planner_update update = {.worker = worker,
                                         .clock = w->clock,
                                         .server_bytes = server_bytes,
                                         .base_version = base,
                                         .norm = w->norm};
    for (uint32_t s = 0; s < service->config.shards; s++) {
        server_bytes[s] = weft_max_u64(w->shares[s].bytes, 1);
        update.bytes += server_bytes[s];
    }
    service_read_waits(service, worker, now_ns);
    bool taken = weft_planner_update(service->planner, &update, now_ns) == WEFT_OK;
    w->state = taken ? UPDATE_WAITING : UPDATE_UNPLANNED;
    service->counters.unplanned += !taken;
    if (taken) {
        service_read_passes(service, worker, now_ns);
    }
}

static void try_update(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    const bool was_held = w->state == UPDATE_HELD;
    uint64_t base;
    if (!service_is_planning(service)) {
        w->state = UPDATE_UNPLANNED;
        service->counters.unplanned++;
    } else if (base_version(service, w, &base)) {
        ask_planner(service, worker, base, now_ns);
    } else if (now_ns >= weft_time_add(w->held_ns, hold_ns)) {
        w->state = UPDATE_UNPLANNED;
        service->counters.unplanned++;
        service->counters.refused_version++;
    } else {
        w->state = UPDATE_HELD;
        service->held_ns = weft_min_u64(service->held_ns, weft_time_add(w->held_ns, hold_ns));
    }
    if (!was_held || w->state != UPDATE_HELD) {
        service_due(service, w->conn);
    }
}

void service_release_held(struct weft_sched_service *service, uint64_t now_ns)
{
    if (!service->retry_held && now_ns < service->held_ns) {
        return;
    }
    service->retry_held = false;
    service->held_ns = WEFT_NEVER; /* those that stay held set it again */
    for (uint32_t i = 0; i < service->config.workers; i++) {
        if (service->workers[i].state == UPDATE_HELD) {
            service->counters.retried++;
            try_update(service, i, now_ns);
        }
    }
}

static void new_update(struct weft_sched_service *service, uint32_t worker,
                       const struct weft_sched_report *q, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    bool is_direct = (q->flags & WEFT_SCHED_SENDING) != 0;
    w->clock = q->clock;
    w->norm = q->norm;
    w->held_ns = now_ns;
    w->closed = 0;
    w->norm_square = 0;
    w->revision = 0;
    w->limited_ns = WEFT_NEVER;
    w->hop = w->group = w->members = 0;
    w->hop_transfer = 0;
    w->is_regrouped = false;
    w->why = 0;
    memcpy(w->shares, q->shares, q->count * sizeof(w->shares[0]));
    memset(w->grants, 0, sizeof(w->grants));
    service->counters.updates++;
    service->counters.direct += is_direct;
    if (is_direct) {
        w->state = UPDATE_UNPLANNED;
    } else {
        try_update(service, worker, now_ns);
    }
}

/* The worker reports the end of the update; the servers' events about it may still be in flight. */
static void ended(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    if (w->state == UPDATE_IN_FLIGHT) {
        w->reports_due_ns = weft_min_u64(w->reports_due_ns, weft_time_add(now_ns, reports_wait_ns));
    } else if (w->state == UPDATE_WAITING) {
        service_forget_update(service, worker, now_ns);
    } else {
        w->state = UPDATE_NONE;
    }
}

/* Delivery according to the worker's report or the server's. */
static void delivered(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                      uint64_t now_ns)
{
    struct service_grant *grant = &service->workers[worker].grants[shard];
    if (grant->transfer != 0) {
        (void)weft_planner_delivered(service->planner, grant->transfer, now_ns);
        grant->transfer = 0;
    }
}

static bool worker_says(struct weft_sched_service *service, uint32_t worker,
                        const struct weft_sched_report *q, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    if (q->ended < w->ended || (q->clock != 0 && q->clock < w->clock)) {
        service->counters.refused_version++;
        return false;
    }
    service_rate_given(service, worker, q->up_bps, now_ns);
    if (w->reached != q->reached || w->aggregators != q->aggregators) {
        w->aggregators = q->aggregators;
        w->reached = q->reached;
        service_find_aggregators(service, now_ns);
    }
    w->ended = q->ended;
    if (q->clock > w->clock) {
        if (w->state == UPDATE_IN_FLIGHT) { /* the previous update is over, regardless of later
                                             * reports from servers */
            service->counters.ended_unreported++;
            w->norm_square = -1;
            service_commit(service, worker, now_ns);
        }
        service_forget_update(service, worker, now_ns);
        new_update(service, worker, q, now_ns);
    } else if (q->clock != 0 && w->state == UPDATE_NONE && q->ended < q->clock &&
               (q->flags & WEFT_SCHED_SENDING) == 0) {
        /* Discarded earlier, when the worker had expired or was disconnected. */
        new_update(service, worker, q, now_ns);
    } else if (q->clock != 0 && (q->flags & WEFT_SCHED_SENDING) != 0 &&
               (w->state == UPDATE_WAITING || w->state == UPDATE_HELD)) {
        service_forget_update(service, worker, now_ns); /* the worker did not wait for the reply */
        w->state = UPDATE_UNPLANNED;
        service->counters.direct++;
    }
    if (w->state == UPDATE_IN_FLIGHT && q->clock == w->clock) {
        bool all = true;
        for (uint32_t s = 0; s < q->count; s++) {
            all &= q->shares[s].span_ns != 0 || w->shares[s].bytes == 0;
            if (q->shares[s].span_ns != 0) {
                delivered(service, worker, s, now_ns);
            }
        }
        if (all && w->hop_transfer != 0) {
            (void)weft_planner_delivered(service->planner, w->hop_transfer, now_ns);
            w->hop_transfer = 0;
        }
    }
    if (w->state != UPDATE_NONE && q->ended >= w->clock) {
        ended(service, worker, now_ns);
    }
    service_read_says(service, worker, q, now_ns);
    return true;
}

/* ---- a server's events ----------------------------------------------------------------------- */

static void take_event(struct weft_sched_service *service, uint32_t shard,
                       const struct weft_sched_event *event, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[event->worker];
    uint64_t bit = UINT64_C(1) << shard;
    if (event->worker >= service->config.workers) {
        service->counters.refused_events++;
        return;
    }
    if (w->state != UPDATE_IN_FLIGHT || w->clock != event->clock) {
        return; /* sent without a grant, or its end was already taken from the worker's report */
    }
    if ((w->closed & bit) != 0) {
        return;
    }
    service->shards[shard].flying -= is_open(w, shard);
    service->retry_held = true;
    w->closed |= bit;
    w->norm_square =
        event->norm < 0 || w->norm_square < 0 ? -1 : w->norm_square + event->norm * event->norm;
    service_rate_measured(service, event->worker, shard, event, now_ns);
    service_sum_measured(service, event->worker, shard, event);
    /* After a failure of the first aggregator the sum may be that of the former group, which says
     * nothing about the current one. */
    if (w->hop > 0 && event->members > 0 && !w->is_regrouped) {
        (void)weft_planner_sum_arrived(service->planner, event->worker, shard, now_ns);
    }
    delivered(service, event->worker, shard, now_ns);
    for (uint32_t s = 0; s < service->config.shards; s++) {
        if (w->shares[s].bytes > 0 && (w->closed >> s & 1) == 0) {
            return;
        }
    }
    service_commit(service, event->worker, now_ns);
}

void service_transfer_over(struct weft_sched_service *service, uint32_t shard, uint64_t now_ns)
{
    struct service_shard *s = &service->shards[shard];
    if (s->transfer != 0) {
        (void)weft_planner_replica_over(service->planner, shard, now_ns);
        s->transfer = 0;
        s->may_transfer = false;
    }
}

/* A shard's report of a transfer to its replica. A transfer that has begun without a grant is not
 * planned. */
static void transfer_says(struct weft_sched_service *service, uint32_t shard,
                          const struct weft_sched_report *q, uint64_t now_ns)
{
    struct service_shard *s = &service->shards[shard];
    const bool waits = (q->flags & WEFT_SCHED_TRANSFER_WAITS) != 0;
    if (s->transfer != q->transfer || (!waits && !s->may_transfer)) {
        service_transfer_over(service, shard, now_ns);
    }
    if (waits && s->transfer == 0 && service_is_planning(service) &&
        weft_planner_replica(service->planner, shard, q->transfer_bytes, now_ns) == WEFT_OK) {
        s->transfer = q->transfer;
    }
}

static bool server_says(struct weft_sched_service *service, uint32_t shard,
                        const struct weft_sched_report *q, uint64_t now_ns)
{
    struct service_shard *s = &service->shards[shard];
    if (q->opened < s->opened && s->taken > 0) {
        service->counters.refused_version++;
        return false;
    }
    if (q->count > 0 && q->first > s->taken + 1) {
        /* Events from before this scheduler's start, or discarded by the server. */
        service->counters.events_lost += s->taken > 0 ? q->first - s->taken - 1 : 0;
        s->taken = q->first - 1;
    }
    service->retry_held |= s->opened != q->opened || s->closed != q->closed;
    s->opened = q->opened;
    s->closed = q->closed;
    s->host = q->host;
    service_rate_given_shard(service, shard, q->up_bps, q->down_bps, now_ns);
    transfer_says(service, shard, q, now_ns);
    for (uint32_t i = 0; i < q->count; i++) {
        if (q->first + i <= s->taken) {
            service->counters.repeated++;
            continue;
        }
        s->taken = q->first + i;
        if (service->planner != NULL) {
            take_event(service, shard, &q->events[i], now_ns);
        }
    }
    return true;
}

/* ---- sender of a report ---------------------------------------------------------------------- */

static uint16_t check_job(struct weft_sched_service *service, const struct weft_sched_report *q)
{
    struct weft_sched_service_config *config = &service->config;
    if (config->job[0] != '\0' && memcmp(config->job, q->job, sizeof(config->job)) != 0) {
        return WEFT_SCHED_OTHER_JOB;
    }
    if (config->shards != 0 && q->shards != config->shards) {
        return WEFT_SCHED_OTHER_SHARDS;
    }
    if (config->workers != 0 && q->workers != 0 && q->workers != config->workers) {
        return WEFT_SCHED_OTHER_WORKERS;
    }
    /* A parameter that is not configured is set by the first consistent report of a job. */
    service->has_job = true;
    memcpy(config->job, q->job, sizeof(config->job));
    config->shards = q->shards;
    config->workers = config->workers != 0 ? config->workers : q->workers;
    if (q->role != WEFT_SCHED_WORKER) {
        return WEFT_SCHED_OK;
    }
    if (!service->has_mode) {
        service->has_mode = true;
        service->mode = q->mode;
        service->tau_max = q->tau_max;
    }
    return q->mode == service->mode && q->tau_max == service->tau_max ? WEFT_SCHED_OK
                                                                      : WEFT_SCHED_OTHER_MODE;
}

/* Record the time of the last report of a process. True: it has joined, or is back. */
static bool heard(struct weft_sched_service *service, const struct weft_sched_report *q,
                  uint64_t now_ns)
{
    bool is_worker = q->role == WEFT_SCHED_WORKER;
    bool *is_here =
        is_worker ? &service->workers[q->index].is_here : &service->shards[q->index].is_here;
    *(is_worker ? &service->workers[q->index].heard_ns : &service->shards[q->index].heard_ns) =
        now_ns;
    if (*is_here) {
        return false;
    }
    *is_here = true;
    service->retry_held |= !is_worker;
    *(is_worker ? &service->counters.workers_here : &service->counters.shards_here) += 1;
    service_note(service, WEFT_SCHED_NOTE_JOINED, q->role, q->index, WEFT_SCHED_OK);
    return true;
}

static bool take(struct weft_sched_service *service, struct service_conn *conn,
                 const struct weft_sched_report *q, uint64_t now_ns)
{
    if (service->has_job && service->counters.workers_here + service->counters.shards_here == 0) {
        service_end_job(service);
    }
    uint16_t status = check_job(service, q);
    if (status != WEFT_SCHED_OK) {
        service->counters.refused_job++;
        if (conn->status != status) {
            service_note(service, WEFT_SCHED_NOTE_REFUSED, q->role, q->index, status);
        }
        conn->status = status;
        return false;
    }
    conn->status = WEFT_SCHED_OK;
    const bool joins = heard(service, q, now_ns);
    if (q->role == WEFT_SCHED_SERVER) {
        return server_says(service, q->index, q, now_ns);
    }
    const bool taken = worker_says(service, q->index, q, now_ns);
    if (joins) { /* what it reached when it left counts again */
        service_find_aggregators(service, now_ns);
    }
    return taken;
}

bool weft_sched_service_report(struct weft_sched_service *service, uint32_t index,
                               const uint8_t *bytes, size_t count, uint64_t now_ns)
{
    WEFT_ASSERT(index < service->config.conns_max);
    struct service_conn *conn = &service->conns[index];
    struct weft_sched_report q;
    if (!conn->is_open || weft_sched_report_unpack(bytes, count, &q) != WEFT_OK) {
        service->counters.refused_malformed++;
        return false;
    }
    if (q.role != conn->role || q.index != conn->index) {
        service->counters.refused_identity++;
        return false;
    }
    if (q.number <= conn->number_in) {
        service->counters.repeated++;
        return false;
    }
    conn->number_in = q.number;
    service->counters.reports++;
    service_due(service, index);
    uint32_t current = q.role == WEFT_SCHED_WORKER ? service->workers[q.index].conn
                                                   : service->shards[q.index].conn;
    if (current != index) {
        conn->status = WEFT_SCHED_SUPERSEDED;
        return false;
    }
    if ((q.flags & WEFT_SCHED_LEAVE) != 0) {
        weft_sched_service_disconnected(service, index, now_ns);
        return true;
    }
    return take(service, conn, &q, now_ns);
}
