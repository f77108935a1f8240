/* Internals of mode ALL_REDUCE. */
#ifndef WEFT_SCHED_REDUCE_H
#define WEFT_SCHED_REDUCE_H

#include "sched/internal.h"
#include "sched/tree.h"

/* transfers_left of a worker whose contribution is at a holder before the round's last plan. */
#define PLANNER_MERGED UINT32_MAX

struct planner_reduce {
    uint64_t round;
    uint32_t merged; /* workers of this round whose contribution is at a holder, or in flight to
                      * one */
    uint32_t count;  /* nodes */
    struct weft_tree_node *nodes;
    uint32_t *node_worker; /* (workers,) */
    uint64_t *ready_ns;    /* (workers,): planned time at which a holder has received everything
                            * sent to it */
    struct weft_tree_plan plan;
    struct weft_tree_scratch scratch;
    struct weft_tree_edge *edges;
    uint32_t *words;
    uint64_t *times;
};

#endif
