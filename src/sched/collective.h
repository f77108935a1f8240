/* Plans an all-reduce of given ranks: who owns how much of the vector, and along which trees it is
 * summed (coll/plan.h executes the plan).
 *
 * Ranks with the same `host` share its link in both directions; within a host data is free. Each
 * host h must send and receive the vector's bytes S at least once; a host that owns the fraction w
 * of the vector, with one rank, carries S (1 + (H - 2) w) in each direction. The least time T in
 * which all hosts can do this gives the fractions:
 *
 *     w(h) = ((T - ready(h)) rate(h) / S - 1) / (H - 2), not below 0;  their sum is 1
 *
 * so slow hosts, and hosts that are ready late, own nothing. The owner of w holds the
 * contributions of all others to it, so w is at most about 4 / (n - 1) for each rank of a host,
 * with host trees 4 / (H - 1); slower links own the rest. So no rank holds more than 5 vectors for
 * slices. A root of host trees does not either if all ranks of its host take turns; it may if
 * there are so many parts that only some do, or if hosts have different numbers of ranks. Three
 * forms are compared:
 *
 *     slices      every rank sends to the owners directly. A host with p of the n ranks carries
 *                 S (p + (n - 2 p) w), p times as much as necessary
 *     host trees  parts with the fractions above; the ranks of a host send to one of them, which
 *                 sends their sum to the root; the result comes back the same way. The leaders of a
 *                 host take turns, part by part
 *     deep trees  one or two trees of hosts (sched/tree.h), with the ranks of a host below their
 *                 leader
 *
 * If all ranks are on one host, each counts as a host.
 *
 * Slices are never slower than deep trees in this model when every rank has a link of its own with
 * equal rates in both directions: they carry the least possible bytes. Trees win when ranks share
 * links, or when uplinks and downlinks differ.
 *
 * It is not a measurement: the caller gives the rates. All arithmetic is in integers, so all ranks
 * with the same input make the same plan.
 *
 * Source: docs/COLLECTIVES.md, "Plans"; [mlfabric] section 6; [sanders09] for pairs of trees.
 */
#ifndef WEFT_SCHED_COLLECTIVE_H
#define WEFT_SCHED_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_COLLECTIVE_RANKS_MAX = 1024,
    WEFT_COLLECTIVE_TREE_RANKS_MAX = 256, /* with more ranks, only slices */
    WEFT_COLLECTIVE_PARTS_MAX = 256,
    WEFT_COLLECTIVE_WHOLE = 1 << 20, /* the whole vector, in the unit of positions */
};

#define WEFT_COLLECTIVE_BPS_MIN   UINT64_C(1000000)
#define WEFT_COLLECTIVE_BPS_MAX   UINT64_C(10000000000000)
#define WEFT_COLLECTIVE_READY_MAX UINT64_C(3600000000000)
#define WEFT_COLLECTIVE_BYTES_MAX (UINT64_C(1) << 36)

enum weft_collective_form {
    WEFT_COLLECTIVE_AUTO,   /* in the options: the form with the least predicted time */
    WEFT_COLLECTIVE_SLICES,
    WEFT_COLLECTIVE_TREES, /* host or deep trees; the slices are those for other operations */
};

struct weft_collective_rank {
    uint64_t up_bps;   /* of the host's link, BPS_MIN .. BPS_MAX; 0 = unknown: that of the fastest
                        * known */
    uint64_t down_bps; /* 0 = up_bps */
    uint64_t ready_ns; /* by how much it calls later than others, at most READY_MAX */
    uint64_t host;     /* any number, equal for the ranks of a host */
};

struct weft_collective_options {
    enum weft_collective_form form;
    uint64_t bytes;       /* of the vector, 1 .. BYTES_MAX */
    uint64_t chunk_bytes; /* of a segment of a tree, at least 1 */
    uint64_t hop_ns;      /* latency of a message from host to host */
};

/* The fields up to row are those of struct weft_coll_plan. */
struct weft_collective_plan {
    enum weft_collective_form form; /* SLICES or TREES */
    uint32_t ranks;
    uint32_t hosts;
    uint32_t parts;       /* 0 = none */
    uint32_t depth;       /* edges from a root to its farthest rank */
    uint32_t *slice;      /* (ranks + 1,) */
    uint32_t *part;       /* (parts + 1,) */
    uint16_t *up;         /* (parts, ranks); also the following */
    uint16_t *down;
    uint16_t *row;
    uint64_t equal_ns;  /* predicted time with slices of equal length */
    uint64_t slices_ns; /* with the plan's slices */
    uint64_t trees_ns;  /* with the best trees; WEFT_NEVER: none */
};

/* Size of the memory for a plan of so many ranks. */
size_t weft_collective_plan_bytes(uint32_t ranks);

/* NULL, or what is wrong with `count` of the n ranks, or with the options. */
const char *weft_collective_check(const struct weft_collective_rank *ranks, uint32_t count,
                                  uint32_t n, const struct weft_collective_options *options);

/* Make a plan.
 *
 * Shape:   ranks (n,), n = 1 .. RANKS_MAX.
 * Owns:    borrows memory, aligned to 8 bytes, for the life of *plan_p.
 * Returns NULL, or a description of the error: a value out of range, or trees for more than
 * TREE_RANKS_MAX ranks.   Cost: O(n^2) for trees, else O(n). */
const char *weft_collective_plan_make(const struct weft_collective_rank *ranks, uint32_t n,
                                      const struct weft_collective_options *options, void *memory,
                                      struct weft_collective_plan *plan_p);

#endif
