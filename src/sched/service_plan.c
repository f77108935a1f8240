/* Plans that the service sends: each has all decisions for its receiver. */
#include "sched/service_internal.h"

/* Number of updates in flight that were granted earlier. */
static uint32_t rank(const struct weft_sched_service *service, uint64_t position)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        const struct service_worker *w = &service->workers[i];
        before += w->state == UPDATE_IN_FLIGHT && w->position < position;
    }
    return before;
}

static const uint64_t latest_ns = WEFT_SCHED_START_S_MAX * WEFT_NS_PER_S;

static bool is_beyond(const struct service_worker *w, uint64_t now_ns)
{
    uint64_t last_ns = 0;
    for (uint32_t s = 0; s < WEFT_SCHED_SHARDS_MAX; s++) {
        const struct service_grant *grant = &w->grants[s];
        last_ns = grant->rate_bps != 0 ? weft_max_u64(last_ns, grant->start_ns) : last_ns;
    }
    return last_ns > weft_time_add(now_ns, latest_ns);
}

/* A worker refuses a start more than a minute ahead. A later one is sent as in a minute, and sent
 * again, as a new revision, when half of that has passed. A worker reports several times a second,
 * and each report is answered by a plan, so no timer is needed. */
static void revise_limited(struct service_worker *w, uint64_t now_ns)
{
    if (w->limited_ns != WEFT_NEVER && now_ns >= weft_time_add(w->limited_ns, latest_ns / 2)) {
        w->revision++;
        w->limited_ns = WEFT_NEVER;
    }
    if (w->limited_ns == WEFT_NEVER && is_beyond(w, now_ns)) {
        w->limited_ns = now_ns;
    }
}

static void tell_worker(struct weft_sched_service *service, uint32_t index, uint64_t now_ns,
                        struct weft_sched_plan *plan)
{
    static const enum weft_sched_verdict verdicts[] = {
        [UPDATE_NONE] = WEFT_SCHED_NONE,       [UPDATE_HELD] = WEFT_SCHED_WAITING,
        [UPDATE_WAITING] = WEFT_SCHED_WAITING, [UPDATE_IN_FLIGHT] = WEFT_SCHED_GRANTED,
        [UPDATE_DROPPED] = WEFT_SCHED_DROPPED, [UPDATE_UNPLANNED] = WEFT_SCHED_UNPLANNED,
    };
    struct service_worker *w = &service->workers[index];
    plan->verdict = verdicts[w->state];
    plan->clock = w->state != UPDATE_NONE ? w->clock : 0;
    if (service_admits(service)) {
        plan->flags = WEFT_SCHED_ADMITS;
        plan->admitted = w->read_state == READ_HELD ? w->read : 0;
    }
    plan->why = w->state == UPDATE_DROPPED ? w->why : 0;
    if (w->state != UPDATE_IN_FLIGHT) {
        return;
    }
    revise_limited(w, now_ns);
    const uint32_t before = rank(service, w->position); /* the same for all shards */
    for (uint32_t s = 0; s < service->config.shards; s++) {
        const struct service_grant *grant = &w->grants[s];
        const uint64_t wait_ns = grant->start_ns > now_ns ? grant->start_ns - now_ns : 0;
        if (grant->rate_bps != 0) { /* delivered shares are included, so that the list does not
                                     * become shorter */
            plan->grants[plan->count++] = (struct weft_sched_grant){
                .shard = s,
                .rank = before,
                .members = w->hop > 0 ? grant->members : 0,
                .start_in_ns = weft_min_u64(wait_ns, latest_ns),
                .rate_bps = grant->rate_bps};
        }
    }
    plan->revision = w->revision;
    plan->hop = w->hop;
    plan->group = w->group;
    plan->members = w->members;
    if (plan->count == 0) {
        plan->hop = plan->group = plan->members = 0;
        plan->verdict = WEFT_SCHED_WAITING;
        plan->revision = 0;
    }
}

static void fill(struct weft_sched_service *service, struct service_conn *conn, uint64_t now_ns,
                 struct weft_sched_plan *plan)
{
    *plan = (struct weft_sched_plan){.number = ++conn->number_out,
                                     .status = conn->status,
                                     .report = conn->number_in,
                                     .life = service->config.life,
                                     .direct_bps = service_direct_bps(service)};
    if (plan->status != WEFT_SCHED_OK) {
        return;
    }
    if (!service_is_planning(service)) {
        plan->status = WEFT_SCHED_INCOMPLETE;
    }
    if (conn->role == WEFT_SCHED_WORKER) {
        tell_worker(service, conn->index, now_ns, plan);
    } else {
        const struct service_shard *shard = &service->shards[conn->index];
        plan->taken = shard->taken;
        plan->flags = shard->may_transfer ? WEFT_SCHED_MAY_TRANSFER : 0;
        plan->group = shard->may_transfer ? shard->transfer : 0;
    }
}

bool weft_sched_service_poll(struct weft_sched_service *service, uint64_t now_ns, uint32_t *conn_p,
                             struct weft_sched_plan *plan_p)
{
    for (uint32_t i = 0; i < service->config.conns_max; i++) {
        uint32_t at = (service->due_next + i) % service->config.conns_max;
        struct service_conn *conn = &service->conns[at];
        if (conn->is_open && conn->is_due) {
            conn->is_due = false;
            service->due_next = (at + 1) % service->config.conns_max;
            fill(service, conn, now_ns, plan_p);
            service->counters.plans++;
            *conn_p = at;
            return true;
        }
    }
    return false;
}

void weft_sched_service_unsent(struct weft_sched_service *service, uint32_t conn)
{
    service_due(service, conn);
}
