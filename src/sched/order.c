/* Which update is sent next. */
#include "sched/internal.h"

#include <stdlib.h>

weft_status planner_order_init(struct weft_planner *planner)
{
    (void)planner;
    return WEFT_OK;
}

void planner_order_fini(struct weft_planner *planner)
{
    (void)planner;
}

/* When the update of a worker would be there if it were sent next; its start is the earliest. */
static bool estimate(struct weft_planner *planner, uint32_t worker, uint64_t *start_ns_p)
{
    struct planner_worker *w = &planner->workers[worker];
    uint32_t servers = planner->config.servers;
    const uint64_t *shares = planner->server_bytes + (size_t)worker * servers;
    struct weft_booking booking;
    w->end_ns = 0;
    *start_ns_p = WEFT_NEVER;
    for (uint32_t s = 0; s < servers; s++) {
        struct weft_path path = planner_path(planner, w->host, planner->config.server_host[s]);
        if (!weft_path_fit(&path, weft_max_u64(shares[s], 1), planner->now_ns,
                           WEFT_TIMELINE_BPS_MAX, &booking)) {
            w->end_ns = WEFT_NEVER;
            return false;
        }
        w->end_ns = weft_max_u64(w->end_ns, booking.end_ns);
        *start_ns_p = weft_min_u64(*start_ns_p, booking.start_ns);
    }
    return true;
}

/* Shortest completion, or first come. */
static uint32_t choose(struct weft_planner *planner, uint64_t *start_ns_p)
{
    uint32_t best = WEFT_PLANNER_NONE;
    bool by_end = planner_has(planner, WEFT_PLAN_ORDER);
    uint64_t best_key = WEFT_NEVER;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        uint64_t start_ns;
        if (!estimate(planner, worker, &start_ns)) {
            continue;
        }
        const struct planner_worker *w = &planner->workers[worker];
        uint64_t key = by_end ? w->end_ns : w->since_ns;
        if (best == WEFT_PLANNER_NONE || key < best_key || (key == best_key && worker < best)) {
            best = worker;
            best_key = key;
            *start_ns_p = start_ns;
        }
    }
    return best;
}

void planner_order(struct weft_planner *planner)
{
    for (;;) {
        uint64_t start_ns;
        uint32_t worker = choose(planner, &start_ns);
        if (worker == WEFT_PLANNER_NONE) {
            return;
        }
        planner_count_future(planner);
        for (uint32_t s = 0; s < planner->config.servers; s++) {
            if (start_ns > planner->now_ns && planner->future[s] >= planner->config.ahead) {
                return;
            }
        }
        if (!planner_grant_direct(planner, worker)) {
            return;
        }
    }
}
