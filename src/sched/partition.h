/* Internals of partition.c, for partition_grant.c and tests. */
#ifndef WEFT_SCHED_PARTITION_H
#define WEFT_SCHED_PARTITION_H

#include "sched/internal.h"

enum { PLANNER_TRIAL_GROUPS = 8 };

struct planner_trial_group {
    uint32_t first; /* index in the order */
    uint32_t count;
    uint32_t aggregator;
    uint32_t host; /* host of the aggregator */
};

/* The predicted schedule of the waiting updates if the first `direct` are sent directly. */
struct planner_trial {
    uint32_t direct;
    bool waits;    /* a group with a single member by the frontier waits for a second one */
    bool is_short; /* there was such a group */
    uint32_t groups;
    struct planner_trial_group group[PLANNER_TRIAL_GROUPS];
    uint64_t makespan_ns; /* from now */
    uint64_t sum_ns;      /* of the completions, from now */
};

struct planner_partition {
    uint32_t order[WEFT_PLANNER_WINDOW_MAX];
    uint32_t count;
    uint32_t aggregator[PLANNER_TRIAL_GROUPS]; /* aggregator index of each group */
    uint32_t aggregators;
    struct planner_trial trial;
    /* Transfers that the trial has reserved; group = index in the trial. */
    struct planner_transfer *hops;
    uint32_t hops_count;
    uint32_t hops_max;
};

/* Compute the order and the aggregators. */
void planner_partition_prepare(struct weft_planner *planner);

/* Fill in trial and hops; the hops remain reserved. Returns false if the trial does not fit. */
bool planner_partition_try(struct weft_planner *planner, uint32_t direct, bool waits);

/* True if the delay bound still holds if the groups first .. end - 1 of a trial are granted now:
 * for their members, for the updates in flight, and for those that continue to wait. */
bool planner_partition_bound_holds(struct weft_planner *planner, const struct planner_trial *trial,
                                   uint32_t first, uint32_t end);

/* Release the hops from `first` on. */
void planner_partition_undo(struct weft_planner *planner, uint32_t first);

/* Returns the best number of direct updates, all of them if no trial with groups is better, and
 * whether groups wait. All trial reservations are released. */
uint32_t planner_partition_best(struct weft_planner *planner, bool *waits_p);

#endif
