/* The delay bound: selection of the updates that must be next, that are too late, or that should be
 * dropped.
 *
 * Position deadlines. `opened` updates are granted so far. If at most tau_max - (opened - base)
 * others are granted before an update, its delay is at most tau_max; that number is its due
 * position, and 0 means that it must be next. A set of k + 1 updates that are all due by position k
 * is *tight*: no other update can be granted before it. If more than k + 1 updates are due by
 * position k, at least one cannot be in time; the longest is dropped, because the others then
 * complete sooner.
 *
 * A granted update can be overtaken, on a faster path or by chance. A grant therefore also requires
 * that every update in flight stays within the bound if all other granted updates are committed
 * before it (planner_may_fly). The bound then holds regardless of the network. The cost is that a
 * slow update with an old base delays the others; the check of Fig. 5 limits that cost.
 *
 * Source: [mlfabric] section 5, Fig. 5; planner_may_fly is ours.
 */
#include "sched/internal.h"

#include <string.h>

bool planner_may_fly(const struct weft_planner *planner, uint32_t count, uint64_t base_version_min)
{
    if (!planner_is_bounded(planner)) {
        return true;
    }
    uint64_t least = base_version_min;
    for (uint32_t i = 0; i < planner->flying_count; i++) {
        least = weft_min_u64(least, planner->workers[planner->flying[i]].base_version);
    }
    /* Worst case: the update with the oldest base is committed after all other granted updates. */
    uint64_t others = planner_opened(planner) + count - 1;
    return others <= weft_time_add(least, planner->config.tau_max);
}

bool planner_due_position(const struct weft_planner *planner, const struct planner_worker *w,
                          uint64_t *due_p)
{
    uint64_t last = weft_time_add(w->base_version, planner->config.tau_max);
    uint64_t opened = planner_opened(planner);
    *due_p = last >= opened ? last - opened : 0;
    return last >= opened;
}

uint64_t planner_least_clock(const struct weft_planner *planner)
{
    uint64_t least = WEFT_NEVER;
    for (uint32_t i = 0; i < planner->config.workers; i++) {
        const struct planner_worker *w = &planner->workers[i];
        if (w->has_clock) {
            bool has_update = w->phase == WORKER_WAITING || w->phase == WORKER_FLYING;
            least = weft_min_u64(least, has_update ? w->clock : weft_time_add(w->clock, 1));
        }
    }
    return least;
}

/* In SSP all workers wait for the workers at the least clock. */
static bool may_drop(const struct weft_planner *planner, const struct planner_worker *w,
                     uint64_t least_clock)
{
    return planner->config.mode == WEFT_PLANNER_ASYNC ||
           (planner->config.mode == WEFT_PLANNER_SSP && w->clock > least_clock);
}

/* The longest update due by a position, preferably one that may be dropped. */
static uint32_t longest_due(const struct weft_planner *planner, uint64_t due_max)
{
    uint32_t best = WEFT_PLANNER_NONE;
    bool best_may = false;
    uint64_t least_clock = planner_least_clock(planner);
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        const struct planner_worker *w = &planner->workers[planner->waiting[i]];
        uint64_t due;
        (void)planner_due_position(planner, w, &due);
        if (due > due_max) {
            continue;
        }
        bool may = may_drop(planner, w, least_clock);
        const struct planner_worker *b = &planner->workers[best == WEFT_PLANNER_NONE ? 0 : best];
        if (best == WEFT_PLANNER_NONE || (may && !best_may) ||
            (may == best_may &&
             (w->end_ns > b->end_ns || (w->end_ns == b->end_ns && w->asked > b->asked)))) {
            best = planner->waiting[i];
            best_may = may;
        }
    }
    return best;
}

uint64_t planner_crowded_position(struct weft_planner *planner, const uint32_t *set, uint32_t count,
                                  uint32_t taken, uint32_t excess)
{
    uint32_t positions = count + taken; /* updates due later do not constrain */
    memset(planner->due_count, 0, positions * sizeof(planner->due_count[0]));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t due;
        (void)planner_due_position(planner, &planner->workers[set[i]], &due);
        if (due < positions) {
            planner->due_count[due]++;
        }
    }
    uint32_t sum = 0;
    for (uint32_t k = 0; k < positions; k++) {
        sum += planner->due_count[k];
        if (sum > 0 && sum + taken >= k + 1 + excess) {
            return k;
        }
    }
    return WEFT_NEVER;
}

bool planner_positions_left(struct weft_planner *planner, const uint32_t *set, uint32_t count,
                            uint32_t taken)
{
    return planner_crowded_position(planner, set, count, taken, 1) == WEFT_NEVER;
}

/* A waiting update that is due by a position, and whose path is down. */
static uint32_t unreachable_due(const struct weft_planner *planner, uint64_t due_max)
{
    for (uint32_t i = 0; due_max != WEFT_NEVER && i < planner->waiting_count; i++) {
        const struct planner_worker *w = &planner->workers[planner->waiting[i]];
        uint64_t due;
        (void)planner_due_position(planner, w, &due);
        if (w->end_ns == WEFT_NEVER && due <= due_max) {
            return planner->waiting[i];
        }
    }
    return WEFT_PLANNER_NONE;
}

static bool can_send(const struct weft_planner *planner)
{
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        if (planner->workers[planner->waiting[i]].end_ns != WEFT_NEVER) {
            return true;
        }
    }
    return false;
}

/* No update may be granted before a tight set, and a member of the set without a path cannot be
 * granted either, so it would block all updates that can be sent. In SSP this also drops updates at
 * the least clock, because otherwise no worker could send. */
static void drop_unreachable(struct weft_planner *planner)
{
    while (can_send(planner)) {
        uint64_t due =
            planner_crowded_position(planner, planner->waiting, planner->waiting_count, 0, 0);
        uint32_t worker = unreachable_due(planner, due);
        if (worker == WEFT_PLANNER_NONE || !planner_has_room(planner, 1)) {
            return;
        }
        planner_drop(planner, worker, WEFT_PLANNER_DROP_LATE);
    }
}

void planner_drop_late(struct weft_planner *planner)
{
    for (uint32_t i = planner->waiting_count; i-- > 0;) {
        uint64_t due;
        uint32_t worker = planner->waiting[i];
        if (!planner_due_position(planner, &planner->workers[worker], &due) &&
            planner_has_room(planner, 1)) {
            planner_drop(planner, worker, WEFT_PLANNER_DROP_LATE);
        }
    }
    for (uint64_t due;
         (due = planner_crowded_position(planner, planner->waiting, planner->waiting_count, 0,
                                         1)) != WEFT_NEVER &&
         planner_has_room(planner, 1);) {
        planner_drop(planner, longest_due(planner, due), WEFT_PLANNER_DROP_CROWDED);
    }
    drop_unreachable(planner);
}

/* ---- Fig. 5 ---------------------------------------------------------------------------------- */

/* Expected number of updates that complete before this one although granted after it: the larger of
 * the number of shorter waiting updates, and the number of commits, at their recent rate, in the
 * time by which this update takes longer than the average. */
static uint64_t overtakers(const struct weft_planner *planner, const struct planner_worker *w)
{
    uint64_t shorter = 0, expected = 0;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        shorter += planner->workers[planner->waiting[i]].end_ns < w->end_ns;
    }
    uint64_t duration_ns = w->end_ns - w->start_ns, commits = planner->counters.commits;
    if (commits >= PLANNER_COMMITS && duration_ns > planner->duration_ns) {
        uint64_t first_ns = planner->commit_ns[commits % PLANNER_COMMITS];
        uint64_t last_ns = planner->commit_ns[(commits - 1) % PLANNER_COMMITS];
        uint64_t gap_ns = weft_max_u64((last_ns - first_ns) / (PLANNER_COMMITS - 1), 1);
        expected = (duration_ns - planner->duration_ns) / gap_ns;
    }
    return weft_max_u64(shorter, expected);
}

bool planner_holds_up(const struct weft_planner *planner, const struct planner_worker *w)
{
    uint64_t due;
    (void)planner_due_position(planner, w, &due);
    return w->drops_in_row < planner->config.drops_max &&
           may_drop(planner, w, planner_least_clock(planner)) &&
           overtakers(planner, w) > weft_time_add(due, planner->config.hold_max);
}
