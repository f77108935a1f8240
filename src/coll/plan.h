/* A plan: how an all_reduce divides its vector among the ranks of a group, and the path of each
 * part of it. Without a plan all slices are equally long, and every rank sends each slice to its
 * owner directly.
 *
 * Slices. Rank j owns slice j, whose length is given; it may be empty. A rank with a slow link, or
 * one that calls late, should own little: it then only sends its contribution and receives the
 * result, while the owner of a slice receives and sends the slice n - 1 times.
 *
 * Trees. The vector is divided into parts, and each part is summed along a tree: a rank adds the
 * sums of its children to its own contribution and sends the sum to its parent; the root has the
 * result, which is sent along a second tree with the same root. Both are pipelined by segments.
 * Ranks that share a link, such as those of one host, then send one sum over it instead of several
 * contributions. In a sum of several ranks it is not known whose contributions are missing, and a
 * type of 16 bits would be rounded at each rank. So trees serve operations with bound 0, without a
 * residual, and of other types; all others use the slices of the same plan.
 *
 * Who makes a plan: sched/collective.h. All ranks of the group must have the same one: its hash is
 * part of each call, so different plans are a mismatch.
 */
#ifndef WEFT_COLL_PLAN_H
#define WEFT_COLL_PLAN_H

#include <stdint.h>

enum {
    WEFT_COLL_PLAN_WHOLE = 1 << 20,    /* the whole vector, in the unit of positions */
    WEFT_COLL_PLAN_RANKS_MAX = 256,    /* in a plan with trees */
    WEFT_COLL_PLAN_PARTS_MAX = 256,
    WEFT_COLL_PLAN_SEGMENTS_MAX = 512, /* of all parts together */
    WEFT_COLL_PLAN_TREES_BYTES_MIN = 64 << 10, /* the usual trees_bytes_min */
};

struct weft_coll_plan {
    uint32_t ranks;           /* n, of the group */
    uint32_t parts;           /* 0 = no trees */
    uint64_t trees_bytes_min; /* shorter vectors use the slices */
    const uint32_t *slice;    /* (n + 1,): slice j is [slice[j], slice[j + 1]); ascending from 0 to
                               * WEFT_COLL_PLAN_WHOLE */
    const uint32_t *part;     /* (parts + 1,): parts, likewise */
    const uint16_t *up;       /* (parts, n): parent of each rank for the sums; at the root itself */
    const uint16_t *down;     /* (parts, n): rank that it receives the result from; likewise */
    const uint16_t *row;      /* (parts, n): number of the rank among the children of its parent
                               * `up`, in the order of the ranks; 0 at the root */
};

#endif
