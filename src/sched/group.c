/* Groups in flight: members arrive at the aggregator, then their sum is sent to the servers. */
#include "sched/internal.h"

/* The sum is complete at the aggregator: it starts now instead of at the planned time. */
static void start_sum(struct weft_planner *planner, uint32_t group)
{
    for (uint32_t i = 0; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->group != group || transfer->kind != WEFT_PLANNER_GRANT_GROUP ||
            transfer->is_announced) {
            continue;
        }
        struct weft_path path = planner_path(planner, transfer->from_host, transfer->to_host);
        if (!weft_path_release(&path, &transfer->booking, planner->now_ns)) {
            planner->counters.full++;
        }
        transfer->booking.start_ns = planner->now_ns;
        planner_rebook(planner, transfer, transfer->bytes);
        transfer->needs_announce = true;
    }
}

/* End all transfers of a group. Sums that wait behind its sum follow it. */
static void end_transfers(struct weft_planner *planner, uint32_t group)
{
    uint64_t servers = 0; /* bits: those whose links had a booking of the sum */
    for (uint32_t i = planner->active_count; i-- > 0;) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->group == group) {
            servers |= transfer->kind == WEFT_PLANNER_GRANT_GROUP
                           ? UINT64_C(1) << transfer->server
                           : 0;
            planner_transfer_end(planner, transfer);
        }
    }
    for (uint32_t s = 0; servers != 0; s++, servers >>= 1) {
        if ((servers & 1) != 0) {
            planner_sums_follow(planner, planner->config.server_host[s]);
        }
    }
}

void planner_group_delivered(struct weft_planner *planner, uint32_t group)
{
    if (--planner->groups[group].members_left == 0) {
        start_sum(planner, group);
    }
}

/* The members stay in flight until each is reported as committed, but no longer belong to the
 * group. */
static void forget(struct weft_planner *planner, uint32_t group)
{
    for (uint32_t i = 0; i < planner->flying_count; i++) {
        struct planner_worker *w = &planner->workers[planner->flying[i]];
        w->group = w->group == group ? WEFT_PLANNER_NONE : w->group;
    }
    planner->groups[group].id = 0;
}

void planner_group_at_server(struct weft_planner *planner, uint32_t group)
{
    if (--planner->groups[group].transfers_left == 0) {
        forget(planner, group);
    }
}

void planner_group_sum_arrived(struct weft_planner *planner, uint32_t group, uint32_t server)
{
    for (uint32_t i = 0; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->group == group && transfer->kind == WEFT_PLANNER_GRANT_GROUP &&
            transfer->server == server) {
            planner_transfer_end(planner, transfer);
            planner_sums_follow(planner, planner->config.server_host[server]);
            return;
        }
    }
}

void planner_group_over(struct weft_planner *planner, uint32_t group)
{
    for (uint32_t i = 0; i < planner->flying_count; i++) {
        if (planner->workers[planner->flying[i]].group == group) {
            return;
        }
    }
    end_transfers(planner, group);
    planner->groups[group].id = 0;
}

void planner_group_left(struct weft_planner *planner, uint32_t group)
{
    struct planner_group *g = &planner->groups[group];
    g->members_left--;
    if (--g->members == 0) {
        end_transfers(planner, group);
        forget(planner, group);
    } else if (g->members_left == 0) {
        start_sum(planner, group);
    }
}

/* The members send to the servers; no booking is made for that. */
static void resend(struct weft_planner *planner, uint32_t group)
{
    for (uint32_t i = 0; i < planner->flying_count; i++) {
        struct planner_worker *w = &planner->workers[planner->flying[i]];
        w->transfers_left = w->group == group ? 0 : w->transfers_left;
    }
    forget(planner, group);
}

void planner_group_broken(struct weft_planner *planner, uint32_t group)
{
    end_transfers(planner, group);
    if (planner->config.members_resend) {
        resend(planner, group);
        return;
    }
    for (uint32_t i = planner->flying_count; i-- > 0;) {
        uint32_t worker = planner->flying[i];
        struct planner_worker *w = &planner->workers[worker];
        if (w->group == group) {
            planner_set_remove(planner->flying, &planner->flying_count, worker);
            planner_set_add(planner->waiting, &planner->waiting_count, worker);
            planner->norm_flying -= w->norm;
            w->phase = WORKER_WAITING;
            w->group = WEFT_PLANNER_NONE;
        }
    }
    planner->groups[group].id = 0;
}
