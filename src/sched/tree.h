/* A tree for an all-reduce: who sends its sum to whom, and how the result comes back.
 *
 * Among trees of several fan-outs, and pairs of them that take half of the vector each, the one
 * that is predicted to end first. In a pair the inner nodes of one are leaves of the other, so
 * every link carries about the vector once in each direction, and the depth is a logarithm. A chain
 * (fan-out 1) needs the least bandwidth, and has the longest way for the first chunk.
 *
 * Model: every node shares each of its links equally among the transfers that use it at the same
 * time: with cut-through those of both directions, without it those of one direction. Nodes that
 * are ready late are near the root, slow ones are leaves.
 *
 * What it is not: the ring, which the fabric has as a baseline (docs/COLLECTIVES.md), and no search
 * for the best of all trees.
 *
 * Source: [mlfabric] section 6 (MPI); [sanders09] for the pair.
 */
#ifndef WEFT_SCHED_TREE_H
#define WEFT_SCHED_TREE_H

#include "base/units.h"

#include <stdbool.h>

enum { WEFT_TREES_MAX = 2 };

struct weft_tree_node {
    uint64_t ready_ns; /* when its contribution is there */
    uint64_t up_bps;
    uint64_t down_bps;
    uint32_t members; /* updates in its contribution */
    bool is_merged;   /* its contribution is in another's: it only wants the result */
};

/* Part `tree` of the vector goes from node to node. */
struct weft_tree_edge {
    uint32_t from;
    uint32_t to;
    uint32_t tree;
    uint32_t members; /* of a reduce: updates in the sum */
    uint64_t start_ns;
    uint64_t end_ns;
};

struct weft_tree_options {
    uint64_t bytes;
    uint64_t chunk_bytes;
    bool is_cut_through; /* forward chunk by chunk, and the result while others are summed yet */
    bool is_broadcast;   /* the result goes back to all nodes; false: only one node wants it */
    uint32_t trees_max;  /* 1 or 2 */
};

struct weft_tree_plan {
    uint32_t trees;
    uint32_t fanout;
    uint32_t root[WEFT_TREES_MAX];
    uint64_t end_ns; /* all have the result */
    uint32_t reduce_count;
    uint32_t broadcast_count;
    struct weft_tree_edge *reduce;    /* (WEFT_TREES_MAX * nodes,) caller's memory */
    struct weft_tree_edge *broadcast; /* the same */
};

/* (nodes,) each: caller's memory. */
struct weft_tree_scratch {
    uint32_t *order[WEFT_TREES_MAX + 1];
    uint32_t *up_flows;
    uint32_t *down_flows;
    uint32_t *members;
    uint64_t *first_ns;
    uint64_t *last_ns;
};

/* Choose a tree. At least one node must not be merged.
 *
 * Owns:    borrows all; plan_p's reduce and broadcast are set by the caller and filled in.
 * Returns false when a node that is needed has no bandwidth.
 * Cost:    O(nodes^2) to sort, O(nodes) for each of about 16 candidates. */
bool weft_tree_choose(const struct weft_tree_node *nodes, uint32_t count,
                      const struct weft_tree_options *options,
                      const struct weft_tree_scratch *scratch, struct weft_tree_plan *plan_p);

#endif
