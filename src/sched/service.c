/* Lifecycle of the service, its connections, and the decisions of its planner. */
#include "sched/service.h"

#include "sched/service_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

void weft_sched_service_config_default(struct weft_sched_service_config *config_p)
{
    *config_p = (struct weft_sched_service_config){.conns_max = 4096,
                                                   .link_bps = UINT64_C(10000000000),
                                                   .silent_ns = 3 * WEFT_NS_PER_S,
                                                   .ahead = 3};
}

static bool config_valid(const struct weft_sched_service_config *config)
{
    return config->conns_max > 0 && config->workers <= WEFT_SCHED_WORKERS_MAX &&
           config->shards <= WEFT_SCHED_SHARDS_MAX && config->life != 0 && config->link_bps > 0 &&
           config->link_bps <= WEFT_TIMELINE_BPS_MAX && config->silent_ns > 0 &&
           config->read_credits <= WEFT_SCHED_WORKERS_MAX && config->ahead > 0 &&
           config->pieces <= WEFT_PLANNER_PIECES_MAX &&
           config->ahead <= WEFT_PLANNER_AHEAD_MAX;
}

static void reset_worker(struct service_worker *w, uint32_t conn, uint64_t incarnation)
{
    *w = (struct service_worker){.conn = conn,
                                 .incarnation = incarnation,
                                 .reports_due_ns = WEFT_NEVER,
                                 .limited_ns = WEFT_NEVER};
}

weft_status weft_sched_service_new(const struct weft_sched_service_config *config,
                                   struct weft_sched_service **service_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_sched_service *service = calloc(1, sizeof(*service));
    if (service == NULL) {
        return WEFT_NOMEM;
    }
    service->config = *config;
    service->given.workers = config->workers;
    service->given.shards = config->shards;
    memcpy(service->given.job, config->job, sizeof(service->given.job));
    service->lapse_ns = WEFT_NEVER;
    service->held_ns = WEFT_NEVER;
    service->conns = calloc(config->conns_max, sizeof(*service->conns));
    service->workers = calloc(WEFT_SCHED_WORKERS_MAX, sizeof(*service->workers));
    service->up = calloc(WEFT_SCHED_WORKERS_MAX, sizeof(*service->up));
    service->worker_up_bps = calloc(WEFT_SCHED_WORKERS_MAX, sizeof(*service->worker_up_bps));
    if (service->conns == NULL || service->workers == NULL || service->up == NULL ||
        service->worker_up_bps == NULL) {
        weft_sched_service_free(service);
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < WEFT_SCHED_WORKERS_MAX; i++) {
        reset_worker(&service->workers[i], CONN_NONE, 0);
    }
    for (uint32_t s = 0; s < WEFT_SCHED_SHARDS_MAX; s++) {
        service->shards[s].conn = CONN_NONE;
    }
    *service_p = service;
    return WEFT_OK;
}

void weft_sched_service_free(struct weft_sched_service *service)
{
    if (service != NULL) {
        weft_planner_free(service->planner);
        free(service->conns);
        free(service->workers);
        free(service->up);
        free(service->worker_up_bps);
        free(service);
    }
}

void service_note(struct weft_sched_service *service, enum weft_sched_note what,
                  enum weft_sched_role role, uint32_t index, uint16_t status)
{
    if (service->config.note != NULL) {
        service->config.note(service->config.arg, what, role, index, status);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static_assert(sizeof(struct weft_planner_counters) % sizeof(uint64_t) == 0);

static void add_counters(struct weft_planner_counters *sum, const struct weft_planner_counters *of)
{
    const uint64_t delay_max = weft_max_u64(sum->delay_max, of->delay_max);
    uint64_t *to = (uint64_t *)(void *)sum;
    const uint64_t *from = (const uint64_t *)(const void *)of;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++) {
        to[i] += from[i];
    }
    sum->delay_max = delay_max;
}

void weft_sched_service_planned(const struct weft_sched_service *service,
                                struct weft_planner_counters *counters_p)
{
    *counters_p = service->past;
    if (service->planner != NULL) {
        add_counters(counters_p, weft_planner_counters(service->planner));
    }
}

void service_end_job(struct weft_sched_service *service)
{
    weft_sched_service_planned(service, &service->past);
    weft_planner_free(service->planner);
    service->planner = NULL;
    service->has_job = service->has_mode = service->retry_held = false;
    service->config.workers = service->given.workers;
    service->config.shards = service->given.shards;
    memcpy(service->config.job, service->given.job, sizeof(service->config.job));
    for (uint32_t i = 0; i < WEFT_SCHED_WORKERS_MAX; i++) {
        struct service_worker *w = &service->workers[i];
        reset_worker(w, w->conn, w->incarnation);
        service->up[i] = (struct service_link){.count = 0};
        service->worker_up_bps[i] = 0;
    }
    for (uint32_t s = 0; s < WEFT_SCHED_SHARDS_MAX; s++) {
        struct service_shard *shard = &service->shards[s];
        *shard = (struct service_shard){.conn = shard->conn, .incarnation = shard->incarnation};
    }
    memset(service->has_sum_ppm, 0, sizeof(service->has_sum_ppm));
    service->aggregators = service->aggregators_here = service->flying = 0;
    service->batch_ns = 0;
    service->lapse_ns = service->held_ns = WEFT_NEVER;
}

/* ---- the planner ----------------------------------------------------------------------------- */

static bool all_shards(const struct weft_sched_service *service)
{
    return service->config.shards > 0 && service->counters.shards_here == service->config.shards;
}

bool weft_sched_service_is_ready(const struct weft_sched_service *service)
{
    return service->planner == NULL && all_shards(service) && service->has_mode &&
           !service->has_failed;
}

bool service_is_planning(const struct weft_sched_service *service)
{
    return service->planner != NULL && all_shards(service);
}

/* Assign hosts: one per worker, one per server (servers that share links share a host), one per
 * aggregator, and one for each server's replica. */
static uint32_t place_hosts(struct weft_sched_service *service, struct weft_planner_host *host)
{
    uint32_t hosts = service->config.workers;
    for (uint32_t i = 0; i < hosts; i++) {
        host[i] = (struct weft_planner_host){service->up[i].now_bps, service->up[i].now_bps};
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        struct service_shard *shard = &service->shards[s];
        shard->host_index = hosts;
        for (uint32_t t = 0; t < s; t++) {
            if (shard->host != 0 && service->shards[t].host == shard->host) {
                shard->host_index = service->shards[t].host_index;
            }
        }
        if (shard->host_index == hosts) {
            uint64_t up_bps = shard->up_bps != 0 ? shard->up_bps : service->config.link_bps;
            host[hosts++] = (struct weft_planner_host){up_bps, shard->down.now_bps};
        }
    }
    service->aggregator_host = hosts;
    for (uint32_t a = 0; a < service->aggregators; a++) {
        uint64_t bps = service->config.link_bps;
        host[hosts++] = (struct weft_planner_host){bps, bps};
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        uint64_t bps = service->config.link_bps;
        host[hosts++] = (struct weft_planner_host){bps, bps};
    }
    return hosts;
}

static enum weft_planner_mode planner_mode(enum weft_sched_mode mode)
{
    return mode == WEFT_SCHED_BSP   ? WEFT_PLANNER_SYNC
           : mode == WEFT_SCHED_SSP ? WEFT_PLANNER_SSP
                                    : WEFT_PLANNER_ASYNC;
}

/* The largest number of aggregators that a worker has reported. */
static uint32_t aggregators_of(const struct weft_sched_service *service)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        most = service->workers[i].aggregators > most ? service->workers[i].aggregators : most;
    }
    return most;
}

void service_find_aggregators(struct weft_sched_service *service, uint64_t now_ns)
{
    uint32_t all = UINT32_MAX;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        all &= service->workers[i].is_here ? service->workers[i].reached : UINT32_MAX;
    }
    for (uint32_t a = 0; service->planner != NULL && a < service->aggregators; a++) {
        uint32_t bit = UINT32_C(1) << a;
        if ((all & bit) != (service->aggregators_here & bit)) {
            (void)weft_planner_aggregator(service->planner, a, (all & bit) != 0, now_ns);
        }
    }
    service->aggregators_here = all;
}

static weft_status make_planner(struct weft_sched_service *service)
{
    static const uint32_t hosts_max =
        WEFT_SCHED_WORKERS_MAX + 2 * WEFT_SCHED_SHARDS_MAX + WEFT_SCHED_AGGREGATORS_MAX;
    struct weft_planner_host *host = calloc(hosts_max, sizeof(*host));
    uint32_t *worker_host = calloc(hosts_max, sizeof(*worker_host));
    if (host == NULL || worker_host == NULL) {
        free(host);
        free(worker_host);
        return WEFT_NOMEM;
    }
    uint32_t *server_host = worker_host + WEFT_SCHED_WORKERS_MAX;
    uint32_t *replica_host = server_host + WEFT_SCHED_SHARDS_MAX;
    uint32_t *aggregator_host = replica_host + WEFT_SCHED_SHARDS_MAX;
    bool is_bounded = service->mode != WEFT_SCHED_BSP && service->tau_max != WEFT_NEVER;
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    service_rate_init(service);
    service->aggregators = aggregators_of(service);
    config.hosts = place_hosts(service, host);
    for (uint32_t i = 0; i < service->config.workers; i++) {
        worker_host[i] = i;
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        server_host[s] = service->shards[s].host_index;
        replica_host[s] = service->aggregator_host + service->aggregators + s;
    }
    for (uint32_t a = 0; a < service->aggregators; a++) {
        aggregator_host[a] = service->aggregator_host + a;
    }
    config.aggregators = service->aggregators;
    config.aggregator_host = aggregator_host;
    config.groups_ahead = (uint32_t)weft_max_u64(service->aggregators, config.groups_ahead);
    config.groups_of_a_clock = service->mode == WEFT_SCHED_BSP;
    config.members_resend = is_bounded;
    config.mode = planner_mode(service->mode);
    config.policy = WEFT_PLAN_ORDER | (is_bounded ? WEFT_PLAN_BOUND : 0) |
                    (service->config.read_credits > 0 ? WEFT_PLAN_ADMISSION : 0) |
                    (service->aggregators > 0 ? WEFT_PLAN_AGGREGATE : 0) |
                    (service->config.pieces > 1 ? WEFT_PLAN_CUT_THROUGH : 0);
    config.pieces = service->config.pieces;
    config.tau_max = is_bounded ? weft_min_u64(service->tau_max, UINT32_MAX) : UINT32_MAX;
    /* An update that is granted in advance cannot be added to a sum later. */
    config.ahead = service_sends_at_once(service) ? WEFT_PLANNER_AHEAD_MAX
                   : service->aggregators > 0     ? 0
                                                  : service->config.ahead;
    config.workers = service->config.workers;
    config.servers = service->config.shards;
    config.host = host;
    config.worker_host = worker_host;
    config.server_host = server_host;
    config.replica_host = replica_host;
    config.version = FIRST_VERSION;
    if (service->config.read_credits > 0) {
        config.read_credits = service->config.read_credits;
    }
    weft_status status = weft_planner_new(&config, &service->planner);
    free(host);
    free(worker_host);
    return status;
}

weft_status weft_sched_job_new(struct weft_sched_service *service)
{
    WEFT_ASSERT(weft_sched_service_is_ready(service));
    weft_status status = make_planner(service);
    service->has_failed = status != WEFT_OK;
    if (status == WEFT_OK) {
        service->aggregators_here = UINT32_MAX; /* the state of a new planner */
        service_find_aggregators(service, 0);
        service_note(service, WEFT_SCHED_NOTE_READY, WEFT_SCHED_SERVER, 0, WEFT_SCHED_OK);
    }
    return status;
}

const struct weft_planner *weft_sched_service_planner(const struct weft_sched_service *service)
{
    return service->planner;
}

uint64_t weft_sched_service_capacity(struct weft_sched_service *service, enum weft_sched_role role,
                                     uint32_t index)
{
    bool is_worker = role == WEFT_SCHED_WORKER;
    if (service->planner == NULL ||
        index >= (is_worker ? service->config.workers : service->config.shards)) {
        return 0;
    }
    return service_capacity(service, is_worker, index);
}

const struct weft_sched_service_counters *
weft_sched_service_counters(const struct weft_sched_service *service)
{
    return &service->counters;
}

/* ---- connections ----------------------------------------------------------------------------- */

void service_due(struct weft_sched_service *service, uint32_t conn)
{
    if (conn != CONN_NONE && service->conns[conn].is_open) {
        service->conns[conn].is_due = true;
    }
}

static void gone(struct weft_sched_service *service, enum weft_sched_role role, uint32_t index,
                 enum weft_sched_note what)
{
    bool is_worker = role == WEFT_SCHED_WORKER;
    bool *is_here = is_worker ? &service->workers[index].is_here : &service->shards[index].is_here;
    if (*is_here) {
        *is_here = false;
        service->retry_held |= !is_worker;
        service->has_failed &= is_worker;
        *(is_worker ? &service->counters.workers_here : &service->counters.shards_here) -= 1;
        service_note(service, what, role, index, WEFT_SCHED_OK);
        if (is_worker) { /* the others may reach more aggregators than it did */
            service_find_aggregators(service, 0);
        }
    }
}

/* A new process starts from scratch: the transfers of its predecessor end here. It may be of the
 * next job, so its predecessor counts as gone, even if the end of its connection is reported
 * later. */
static void begin_worker(struct weft_sched_service *service, uint32_t index, uint64_t incarnation)
{
    struct service_worker *w = &service->workers[index];
    if (w->incarnation != incarnation) {
        service_read_forget(service, index, 0);
        service_forget_update(service, index, 0);
        if (service->planner != NULL) { /* its clocks restart */
            (void)weft_planner_worker_left(service->planner, index, 0);
        }
        w->incarnation = incarnation;
        w->clock = w->ended = 0;
        gone(service, WEFT_SCHED_WORKER, index, WEFT_SCHED_NOTE_LEFT);
    }
}

static void begin_shard(struct weft_sched_service *service, uint32_t index, uint64_t incarnation)
{
    struct service_shard *shard = &service->shards[index];
    if (shard->incarnation != incarnation) {
        service_transfer_over(service, index, 0);
        shard->incarnation = incarnation;
        shard->taken = shard->opened = shard->closed = 0;
        service->retry_held = true;
        gone(service, WEFT_SCHED_SERVER, index, WEFT_SCHED_NOTE_LEFT);
    }
}

void weft_sched_service_connected(struct weft_sched_service *service, uint32_t conn,
                                  enum weft_sched_role role, uint32_t index, uint64_t incarnation)
{
    bool is_worker = role == WEFT_SCHED_WORKER;
    WEFT_ASSERT(conn < service->config.conns_max);
    service->conns[conn] = (struct service_conn){.is_open = true, .role = role, .index = index};
    if (index >= (is_worker ? (uint32_t)WEFT_SCHED_WORKERS_MAX : WEFT_SCHED_SHARDS_MAX)) {
        return; /* its reports cannot be valid */
    }
    if (is_worker) {
        service->workers[index].conn = conn;
        begin_worker(service, index, incarnation);
    } else {
        service->shards[index].conn = conn;
        begin_shard(service, index, incarnation);
    }
}

void weft_sched_service_disconnected(struct weft_sched_service *service, uint32_t conn,
                                     uint64_t now_ns)
{
    struct service_conn was = service->conns[conn];
    service->conns[conn] = (struct service_conn){.is_open = false};
    if (!was.is_open) {
        return;
    }
    if (was.role == WEFT_SCHED_WORKER && was.index < WEFT_SCHED_WORKERS_MAX &&
        service->workers[was.index].conn == conn) {
        const struct service_worker *w = &service->workers[was.index];
        service->workers[was.index].conn = CONN_NONE;
        /* A worker that has reported the end of its last update may disconnect before the servers
         * report it. */
        if (w->state != UPDATE_IN_FLIGHT || w->reports_due_ns == WEFT_NEVER) {
            service_forget_update(service, was.index, now_ns);
        }
        service_read_forget(service, was.index, now_ns);
        service_leave(service, was.index, now_ns);
        gone(service, was.role, was.index, WEFT_SCHED_NOTE_LEFT);
    } else if (was.role == WEFT_SCHED_SERVER && was.index < WEFT_SCHED_SHARDS_MAX &&
               service->shards[was.index].conn == conn) {
        service->shards[was.index].conn = CONN_NONE;
        service_transfer_over(service, was.index, now_ns);
        gone(service, was.role, was.index, WEFT_SCHED_NOTE_LEFT);
    }
}

/* ---- timeouts and decisions of the planner --------------------------------------------------- */

/* An expired worker may never send its update. The update is discarded, because it would block the
 * others. */
static void lapse_workers(struct weft_sched_service *service, uint64_t now_ns)
{
    service->lapse_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        struct service_worker *w = &service->workers[i];
        uint64_t due_ns = weft_time_add(w->heard_ns, service->config.silent_ns);
        /* A worker that computes may send no reports for longer; its credit has a separate
         * timeout. */
        bool is_waited_for = service_has_update(w) || w->read_state == READ_QUEUED;
        if (w->is_here && now_ns >= due_ns && is_waited_for) {
            service_forget_update(service, i, now_ns);
            if (w->read_state == READ_QUEUED) {
                service_read_forget(service, i, now_ns);
            }
            service->counters.expired++;
            gone(service, WEFT_SCHED_WORKER, i, WEFT_SCHED_NOTE_LAPSED);
        } else if (w->is_here && is_waited_for) {
            service->lapse_ns = weft_min_u64(service->lapse_ns, due_ns);
        }
        if (w->reports_due_ns <= now_ns) {
            w->norm_square = -1;
            service->counters.ended_unreported++;
            service_commit(service, i, now_ns);
        }
        service->lapse_ns = weft_min_u64(service->lapse_ns, w->reports_due_ns);
        if (w->state == UPDATE_HELD) { /* try the update again, and check how long it has been
                                        * held */
            service->lapse_ns = weft_min_u64(service->lapse_ns, now_ns + 100 * WEFT_NS_PER_MS);
        }
    }
}

/* BSP: the largest clock of an update in flight. Its shards take an update of an earlier clock
 * first, so that one must not wait. 0: none, or another mode. */
static uint64_t clock_in_flight(const struct weft_sched_service *service)
{
    uint64_t most = 0;
    if (service->mode != WEFT_SCHED_BSP || service->flying == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < service->config.workers; i++) {
        const struct service_worker *w = &service->workers[i];
        most = w->state == UPDATE_IN_FLIGHT ? weft_max_u64(most, w->clock) : most;
    }
    return most;
}

static void granted(struct weft_sched_service *service, const struct weft_planner_decision *d,
                    uint64_t now_ns)
{
    struct service_worker *w = &service->workers[d->worker];
    struct service_grant *grant = &w->grants[d->server];
    service_fly(service, w);
    if (w->shares[d->server].bytes == 0) {
        (void)weft_planner_delivered(service->planner, d->transfer, now_ns);
        return;
    }
    if (d->is_revised && d->booking.count == 0) {
        return; /* no room in the plan for now: the last grant remains valid */
    }
    uint64_t left = d->bytes, span_ns = d->booking.end_ns - d->booking.start_ns;
    if (d->is_revised) {
        /* A revised booking covers only the remaining bytes; their number follows from its
         * pieces. */
        left = 0;
        for (uint32_t i = 0; i < d->booking.count; i++) {
            const struct weft_booking_piece *piece = &d->booking.pieces[i];
            left += (uint64_t)((u128)(piece->to_ns - piece->from_ns) * piece->rate_bps /
                               (8 * WEFT_NS_PER_S));
        }
    }
    w->position = d->is_revised ? w->position : d->position;
    w->revision++;
    w->limited_ns = WEFT_NEVER;
    w->hop = w->group = w->members = 0;
    w->hop_transfer = 0;
    /* A BSP clock needs all updates: they are granted in order, and sent immediately. */
    const bool is_at_once = service_sends_at_once(service) || w->clock < clock_in_flight(service);
    uint64_t booked_bps = weft_rate_bps(weft_max_u64(left, 1), weft_max_u64(span_ns, 1));
    *grant = (struct service_grant){
        .transfer = d->transfer,
        .start_ns = is_at_once ? now_ns : d->booking.start_ns,
        .rate_bps = service_rate_of(service, d->worker, d->server, booked_bps),
        .booked_bps = weft_max_u64(booked_bps, d->is_revised ? grant->booked_bps : 0)};
}

/* All members are sent to an aggregator at once. They share its downlink and end together with the
 * last one. */
static void granted_in_group(struct weft_sched_service *service,
                             const struct weft_planner_decision *d, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[d->worker];
    w->is_regrouped |= w->state == UPDATE_IN_FLIGHT && w->hop > 0;
    service_fly(service, w);
    w->position = d->position;
    w->revision++;
    w->hop = 1 + d->to_host - service->aggregator_host;
    w->group = (uint32_t)(d->group % UINT32_MAX) + 1;
    w->members = d->members;
    w->hop_transfer = d->transfer;
    w->is_new_member = true;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        w->grants[s] = (struct service_grant){.start_ns = now_ns};
        if (w->shares[s].bytes > 0) {
            w->grants[s].rate_bps = service->up[d->worker].given_bps;
            w->grants[s].members = w->members;
        }
    }
}

/* A member without bytes for a shard sends nothing to it, so the aggregator must not wait for it.
 * The decisions for all members of a group are made together; the numbers do not change when a
 * member leaves. */
static void count_members(struct weft_sched_service *service, struct service_worker *w)
{
    uint32_t all = 0, members[WEFT_SCHED_SHARDS_MAX] = {0};
    uint64_t largest[WEFT_SCHED_SHARDS_MAX] = {0}, bytes[WEFT_SCHED_SHARDS_MAX] = {0};
    for (uint32_t i = 0; i < service->config.workers; i++) {
        const struct service_worker *other = &service->workers[i];
        all += service_is_in_sum(other, w);
        for (uint32_t s = 0; service_is_in_sum(other, w) && s < service->config.shards; s++) {
            members[s] += other->shares[s].bytes > 0;
            largest[s] = weft_max_u64(largest[s], other->shares[s].bytes);
            bytes[s] += other->shares[s].bytes;
        }
    }
    w->is_new_member = false;
    for (uint32_t s = 0; all == w->members && s < service->config.shards; s++) {
        w->grants[s].members = w->shares[s].bytes > 0 ? members[s] : 0;
        w->grants[s].largest = largest[s];
        w->grants[s].others = bytes[s] - largest[s];
    }
}

static void decide(struct weft_sched_service *service, uint64_t now_ns)
{
    struct weft_planner_decision d;
    while (weft_planner_poll(service->planner, &d)) {
        if (d.kind == WEFT_PLANNER_REPLICATE) {
            service->shards[d.server].may_transfer = true;
            service_due(service, service->shards[d.server].conn);
            continue;
        }
        if (d.worker == WEFT_PLANNER_NONE) {
            continue; /* an aggregator sends a sum when its members have arrived */
        }
        struct service_worker *w = &service->workers[d.worker];
        if (d.kind == WEFT_PLANNER_GRANT_READ) {
            service_read_admitted(service, d.worker, d.transfer, now_ns);
            continue;
        }
        if (d.kind == WEFT_PLANNER_GRANT && d.server == WEFT_PLANNER_NONE) {
            if (!d.is_revised && service_has_update(w)) {
                granted_in_group(service, &d, now_ns);
            }
        } else if (d.kind == WEFT_PLANNER_GRANT && service_has_update(w)) {
            granted(service, &d, now_ns);
        } else if (d.kind == WEFT_PLANNER_DROP && w->state == UPDATE_WAITING) {
            w->state = UPDATE_DROPPED;
            w->why = (uint8_t)d.drop;
        }
        service_due(service, w->conn);
    }
    for (uint32_t i = 0; i < service->config.workers; i++) {
        if (service->workers[i].is_new_member) {
            count_members(service, &service->workers[i]);
        }
    }
}

/* Transmission time of an update on the slowest server's link. */
static uint64_t server_ns(struct weft_sched_service *service, const struct service_worker *w)
{
    uint64_t most_ns = 0;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        uint64_t bps = service_capacity(service, false, s);
        most_ns = weft_max_u64(most_ns, weft_transfer_ns(w->shares[s].bytes, bps));
    }
    return most_ns;
}

/* End of the bookings on the servers' links. */
static uint64_t booked_until(const struct weft_sched_service *service)
{
    uint64_t until_ns = 0;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        const struct weft_timeline *down =
            weft_planner_link(service->planner, service->shards[s].host_index, false);
        until_ns = weft_max_u64(until_ns, down->steps[down->count - 1].from_ns);
    }
    return until_ns;
}

static uint32_t service_pieces(const struct weft_sched_service *service, uint64_t server_bytes)
{
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    config.pieces = service->config.pieces;
    return weft_planner_pieces(&config, server_bytes);
}

/* With aggregators a plan covers a batch: returns the time until which to wait for more requests;
 * 0 = plan now. A granted update cannot join another sum. While the servers have data to receive,
 * waiting updates are therefore granted as late as possible, so that they are at an aggregator when
 * the servers' links become free. If the links are free, the wait for further requests is an eighth
 * of an update's transmission time. An update that others in flight wait for is not held back. */
static uint64_t batch_until(struct weft_sched_service *service, uint64_t now_ns)
{
    uint32_t waiting = 0, others = 0;
    uint64_t until_ns = WEFT_NEVER, gather_ns = 0, sum_ns = 0, least_bytes = UINT64_MAX;
    if (service->aggregators == 0 ||
        service->aggregators_here << (32 - service->aggregators) == 0) {
        return 0;
    }
    const uint64_t later = clock_in_flight(service);
    for (uint32_t i = 0; i < service->config.workers; i++) {
        const struct service_worker *w = &service->workers[i];
        others += w->is_here && !service_has_update(w) && w->read_state != READ_QUEUED;
        if (w->state == UPDATE_WAITING) {
            if (w->clock < later) {
                return 0;
            }
            uint64_t eighth_ns = server_ns(service, w) / 8, bytes = 0;
            for (uint32_t s = 0; s < service->config.shards; s++) {
                bytes += w->shares[s].bytes;
            }
            waiting++;
            least_bytes = weft_min_u64(least_bytes, bytes / service->config.shards);
            gather_ns += weft_transfer_ns(bytes, service->config.link_bps);
            gather_ns += waiting == 1 ? eighth_ns : 0;
            sum_ns = weft_max_u64(sum_ns, 8 * eighth_ns);
            until_ns = weft_min_u64(until_ns, weft_time_add(w->held_ns, eighth_ns));
        }
    }
    uint64_t booked_ns = booked_until(service);
    const uint32_t pieces = service_pieces(service, least_bytes);
    if (pieces > 1) { /* the sum is sent while its members arrive */
        const uint64_t first_ns = gather_ns / pieces;
        gather_ns = weft_max_u64(first_ns, gather_ns - weft_min_u64(gather_ns, sum_ns));
    }
    if (waiting == 0 || others == 0) {
        return 0;
    }
    until_ns = weft_max_u64(until_ns, booked_ns > gather_ns ? booked_ns - gather_ns : 0);
    return now_ns < until_ns ? until_ns : 0;
}

void weft_sched_service_progress(struct weft_sched_service *service, uint64_t now_ns)
{
    if (service->planner == NULL) {
        return;
    }
    lapse_workers(service, now_ns);
    service_release_held(service, now_ns);
    uint64_t read_ns = service_read_progress(service, now_ns);
    service->lapse_ns = weft_min_u64(service->lapse_ns, read_ns);
    service->batch_ns = batch_until(service, now_ns);
    if (service->batch_ns != 0) {
        weft_planner_plan_reads(service->planner, now_ns); /* reads do not wait for the batch */
    } else {
        weft_planner_plan(service->planner, now_ns);
    }
    decide(service, now_ns);
}

uint64_t weft_sched_service_deadline(const struct weft_sched_service *service)
{
    if (service->planner == NULL) {
        return WEFT_NEVER;
    }
    uint64_t plan_ns =
        service->batch_ns != 0 ? service->batch_ns : weft_planner_deadline(service->planner);
    return weft_min_u64(service->lapse_ns, plan_ns);
}
