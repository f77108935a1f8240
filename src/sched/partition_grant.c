/* Converts the groups of the best partition into transfers, up to the limit of groups in flight. */
#include "sched/partition.h"

static uint32_t groups_under_way(const struct weft_planner *planner, uint32_t *free_p)
{
    uint32_t count = 0;
    for (uint32_t g = PLANNER_GROUPS_MAX; g-- > 0;) {
        count += planner->groups[g].id != 0;
        *free_p = planner->groups[g].id == 0 ? g : *free_p;
    }
    return count;
}

/* True if the bounds still hold if the group is granted now, for its members and for the updates
 * that continue to wait. */
static bool keeps_bounds(struct weft_planner *planner, const struct planner_trial *trial,
                         uint32_t trial_group)
{
    const struct planner_partition *p = planner->partition;
    const struct planner_trial_group *group = &trial->group[trial_group];
    uint64_t norm = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        norm += planner->workers[p->order[group->first + i]].norm;
    }
    return planner_norm_fits(planner, norm) &&
           planner_partition_bound_holds(planner, trial, trial_group, trial_group + 1);
}

/* Set the deadlines of the members' transfers, which are the active ones from `first` on, to that
 * of all of them together: they are sent at once and share the aggregator's downlink, so each may
 * be the last to end. */
static void set_deadlines(struct weft_planner *planner, uint32_t first)
{
    struct weft_booking all = {.start_ns = WEFT_NEVER};
    for (uint32_t i = first; i < planner->active_count; i++) {
        const struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->kind == WEFT_PLANNER_GRANT) {
            all.start_ns = weft_min_u64(all.start_ns, transfer->booking.start_ns);
            all.end_ns = weft_max_u64(all.end_ns, transfer->booking.end_ns);
        }
    }
    for (uint32_t i = first; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->kind == WEFT_PLANNER_GRANT) {
            transfer->late_ns = planner_late_at(&all);
        }
    }
}

/* Convert the tentative hops of a trial's group into transfers. */
static bool grant_group(struct weft_planner *planner, const struct planner_trial *trial,
                        uint32_t trial_group, uint32_t hops)
{
    struct planner_partition *p = planner->partition;
    const struct planner_trial_group *group = &trial->group[trial_group];
    uint32_t g = WEFT_PLANNER_NONE, first = planner->active_count;
    if (groups_under_way(planner, &g) >= planner->config.groups_ahead ||
        !planner_has_room(planner, group->count + planner->config.servers) ||
        !keeps_bounds(planner, trial, trial_group)) {
        return false;
    }
    planner->groups[g] = (struct planner_group){.id = ++planner->groups_made,
                                                .aggregator = group->aggregator,
                                                .members = group->count,
                                                .members_left = group->count,
                                                .transfers_left = planner->config.servers,
                                                .position = planner->positions + 1};
    for (uint32_t i = 0; i < hops; i++) {
        struct planner_transfer hop = p->hops[i];
        if (hop.group != trial_group) {
            continue;
        }
        hop.group = g;
        if (planner_transfer_new(planner, &hop) == NULL) {
            planner_end_from(planner, first);
            planner->groups[g].id = 0;
            return false;
        }
    }
    set_deadlines(planner, first);
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t worker = p->order[group->first + i];
        planner_depart(planner, worker);
        planner->workers[worker].group = g;
        planner->workers[worker].transfers_left = 1;
    }
    for (uint32_t i = first; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->kind == WEFT_PLANNER_GRANT || planner_has(planner, WEFT_PLAN_CUT_THROUGH)) {
            planner_announce(planner, transfer, false);
        }
    }
    planner->counters.groups++;
    planner->counters.grouped += group->count;
    return true;
}

void planner_partition(struct weft_planner *planner)
{
    struct planner_partition *p = planner->partition;
    uint32_t g;
    if (planner->waiting_count < 2 ||
        groups_under_way(planner, &g) >= planner->config.groups_ahead) {
        return;
    }
    if (planner_is_bounded(planner)) { /* no group is granted before an update that is late */
        planner_estimate(planner);
        planner_drop_late(planner);
    }
    planner_partition_prepare(planner);
    if (p->aggregators == 0 || p->count < 2) {
        return;
    }
    bool waits;
    const uint32_t direct = planner_partition_best(planner, &waits);
    const bool found = planner_partition_try(planner, direct, waits);
    struct planner_trial trial = p->trial;
    uint32_t hops = p->hops_count;
    planner_partition_undo(planner, 0);
    for (uint32_t i = 0; found && i < trial.groups; i++) {
        if (!grant_group(planner, &trial, i, hops)) {
            return;
        }
    }
}
