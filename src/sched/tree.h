/* Selects a tree for an all-reduce: the parent of each node for sums, and the path of the result.
 *
 * The candidates are trees of several fan-outs, and pairs of trees, each for half of the vector;
 * the candidate with the earliest predicted end is selected. In a pair the inner nodes of one tree
 * are leaves of the other, so every link transmits about the bytes of the vector once in each
 * direction, at logarithmic depth. A chain (fan-out 1) needs the least bandwidth but has the
 * longest path of the first chunk.
 *
 * Model: every node shares each of its links equally among the transfers that use it at the same
 * time: with cut-through those of both directions, without it those of one direction. Nodes that
 * become ready late are near the root; slow nodes are leaves.
 *
 * The candidates do not include a ring, which is the baseline (docs/COLLECTIVES.md), and the search
 * over trees is not exhaustive.
 *
 * Source: [mlfabric] section 6 (MPI); [sanders09] for the pair.
 */
#ifndef WEFT_SCHED_TREE_H
#define WEFT_SCHED_TREE_H

#include "base/units.h"

#include <stdbool.h>

enum { WEFT_TREES_MAX = 2 };

struct weft_tree_node {
    uint64_t ready_ns; /* time at which its contribution is available */
    uint64_t up_bps;
    uint64_t down_bps;
    uint32_t members; /* updates in its contribution */
    bool is_merged;   /* its contribution is already in another node's sum, so it needs only the
                       * result */
};

/* One transfer: part `tree` of the vector from a node to another. */
struct weft_tree_edge {
    uint32_t from;
    uint32_t to;
    uint32_t tree;
    uint32_t members; /* reduce: number of updates in the sum */
    uint64_t start_ns;
    uint64_t end_ns;
};

struct weft_tree_options {
    uint64_t bytes;
    uint64_t chunk_bytes;
    bool is_cut_through; /* forward chunk by chunk, and broadcast the first chunks while later ones
                          * are being summed */
    bool is_broadcast;   /* the result goes to all nodes; false: only one node needs it */
    uint32_t trees_max;  /* 1 or 2 */
};

struct weft_tree_plan {
    uint32_t trees;
    uint32_t fanout;
    uint32_t root[WEFT_TREES_MAX];
    uint64_t end_ns; /* time at which all have the result */
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

/* Select a tree. At least one node must not be merged.
 *
 * Owns:    borrows all; plan_p's reduce and broadcast are set by the caller and filled in.
 * Returns false if a required node has no bandwidth.
 * Cost:    O(nodes^2) to sort, O(nodes) for each of about 16 candidates. */
bool weft_tree_choose(const struct weft_tree_node *nodes, uint32_t count,
                      const struct weft_tree_options *options,
                      const struct weft_tree_scratch *scratch, struct weft_tree_plan *plan_p);

#endif
