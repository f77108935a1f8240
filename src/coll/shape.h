/* The communication pattern of an operation: the owner of each slice, the messages of each phase,
 * and where received data is stored. It depends only on the call and the group, so all ranks
 * compute the same.
 *
 * Every kind is one or both of two phases over slices:
 *
 *     phase 1   senders send slice j to its owner, rank j
 *     phase 2   rank j sends slice j, reduced if the operation reduces, to the targets
 *
 *     kind               slices   senders   stored                  targets
 *     all_reduce         VECTOR   all       staged, then reduced    all
 *       small            WHOLE    all       staged, then reduced    -
 *     reduce             VECTOR   all       staged, then reduced    the root
 *       small            ROOT     all       staged, then reduced    -
 *     reduce_scatter     BLOCKS   all       staged, then reduced    -
 *     all_gather         BLOCKS   -                                 all
 *     gather             BLOCKS   -                                 the root
 *     broadcast          VECTOR   the root  at the slice's offset   all but the root
 *       small            ROOT     -                                 all but the root
 *     scatter            BLOCKS   the root  at offset 0 of out      -
 *     all_to_all         BLOCKS   all       in the sender's block   -
 *     send, recv         WHOLE    one       at offset 0 of out      -
 *     all_reduce, plan   VECTOR   all       staged, then reduced    all
 *       with trees       TREES    children  staged, then reduced    children
 *
 * Slice j is: VECTOR: one of n parts of the vector; BLOCKS: block j; WHOLE: the whole vector, at
 * every rank; ROOT: the whole vector at the root, empty at all others; TREES: the whole vector, of
 * which each segment has its own trees (plan.h). `small`: the vector is
 * short, and in all_reduce the ranks are few; or a reduce or broadcast has two ranks. With two
 * ranks, chunks are reduced as they arrive instead of being staged, if none may be missing.
 *
 * A slice is divided into segments, each a message between two ranks, so that phase 2 of a segment
 * overlaps phase 1 of the next. Slices of a vector, segments and chunks are aligned to grains of 32
 * elements, so that a bit for each grain records the contributors.
 */
#ifndef WEFT_COLL_SHAPE_H
#define WEFT_COLL_SHAPE_H

#include "coll/coll.h"

enum { PHASE_1, PHASE_2, PHASES };

enum slices { SLICES_VECTOR, SLICES_BLOCKS, SLICES_WHOLE, SLICES_ROOT, SLICES_TREES };
enum party { PARTY_NONE, PARTY_ALL, PARTY_ROOT, PARTY_PAIR };
enum landing { LAND_STAGED, LAND_BY_SENDER, LAND_IN_SLICE, LAND_AT_START };

struct shape {
    enum weft_coll_kind kind;
    enum slices slices;
    enum party senders;
    enum landing landing;
    enum party targets;
    bool reduces;
    uint32_t n;
    uint32_t me;
    uint32_t root; /* of SEND and RECV: the sender */
    uint32_t receiver;
    uint32_t segments;
    uint32_t elem_bytes;
    const struct weft_coll_plan *plan; /* of VECTOR, NULL = equal slices; of TREES */
    uint32_t each;                     /* TREES: segments of a part */
    uint64_t part_grains; /* VECTOR with a plan: length of a segment, except the last of a slice, so
                           * that messages are equally long; short slices have fewer segments */
    uint64_t count; /* an empty send transfers one byte, so that later calls match */
};

/* A segment of a slice: offset and length in elements. */
struct part {
    uint64_t at;
    uint32_t elems; /* 0 = no such segment */
};

/* Offsets into the caller's work memory. */
struct work {
    size_t bits[PHASES][3]; /* opened, received, sent: (segments, n) bits */
    size_t segments;        /* TREES: (segments,) struct op_segment */
    size_t bits_bytes;      /* all of these, from the start */
    size_t masks;           /* (n, mask_words): grains of this rank's slice received from each */
    size_t mask_words;      /* 0 = nothing may be missing */
    size_t staging;         /* (n - 1, stage_bytes): this rank's slice as received from each */
    size_t stage_bytes;
    size_t result; /* of REDUCE, at ranks other than the root: this rank's slice, reduced */
    size_t stage_at; /* TREES: (segments,) uint64_t: offset in staging of the children's sums */
    size_t copy;   /* small all_reduce: a copy to send, because out may equal in */
    size_t bytes;
};

static inline bool weft_coll_is_pair(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_SEND || kind == WEFT_COLL_RECV;
}

/* Returns false if the call is out of range. `n` and `me` are those of the group. */
bool weft_coll_shape_make(const struct weft_coll_config *config, const struct weft_coll_call *call,
                          uint32_t n, uint32_t me, struct shape *shape_p);

/* Change the shape of an all_reduce to that of the group's plan, if it serves this call: `lossy` or
 * with a residual, only with its slices. */
void weft_coll_shape_plan(const struct weft_coll_config *config, const struct weft_coll_call *call,
                          const struct weft_coll_plan *plan, struct shape *shape_p);

/* Whether contributions may be missing. Never if every rank reduces the vector itself, because
 * the results would differ. */
static inline bool weft_coll_shape_lossy(const struct shape *shape, uint32_t bound_ppm)
{
    return bound_ppm > 0 && shape->reduces && shape->slices != SLICES_WHOLE;
}

void weft_coll_work_make(const struct shape *shape, bool lossy, struct work *work_p);

/* Slice j: its offset in a buffer of all slices, and its elements. */
uint64_t weft_coll_slice_at(const struct shape *shape, uint32_t j);
uint64_t weft_coll_slice_elems(const struct shape *shape, uint32_t j);
struct part weft_coll_part(const struct shape *shape, uint32_t j, uint32_t segment);

/* The slice of the message of `phase` from src to dst; WEFT_COLL_NONE: there is no such message. */
static inline uint32_t shape_slice(const struct shape *s, uint32_t phase, uint32_t src,
                                   uint32_t dst)
{
    if (src == dst) {
        return WEFT_COLL_NONE;
    }
    if (s->senders == PARTY_PAIR) {
        bool is = phase == PHASE_1 && src == s->root && dst == s->receiver;
        return is ? dst : WEFT_COLL_NONE;
    }
    if (phase == PHASE_1) {
        bool sends = s->senders == PARTY_ALL || (s->senders == PARTY_ROOT && src == s->root);
        return sends ? dst : WEFT_COLL_NONE;
    }
    bool wants = s->targets == PARTY_ALL || (s->targets == PARTY_ROOT && dst == s->root);
    bool has = s->kind == WEFT_COLL_BROADCAST && dst == s->root;
    return wants && !has ? src : WEFT_COLL_NONE;
}

/* Of TREES: whether there is such a message of the segment. */
static inline bool shape_tree_edge(const struct shape *s, uint32_t phase, uint32_t src,
                                   uint32_t dst, uint32_t segment)
{
    size_t at = (size_t)(segment / s->each) * s->n;
    bool is = phase == PHASE_1 ? s->plan->up[at + src] == dst : s->plan->down[at + dst] == src;
    return is && src != dst;
}

/* Number of elements of that message's segment; 0 if there is none. */
static inline uint32_t shape_elems(const struct shape *s, uint32_t phase, uint32_t src,
                                   uint32_t dst, uint32_t segment)
{
    if (s->slices == SLICES_TREES) {
        return shape_tree_edge(s, phase, src, dst, segment) ? weft_coll_part(s, 0, segment).elems
                                                            : 0;
    }
    uint32_t slice = shape_slice(s, phase, src, dst);
    return slice == WEFT_COLL_NONE ? 0 : weft_coll_part(s, slice, segment).elems;
}

/* Whether this rank sends data to rank i without having to wait for data from it: such data tells
 * rank i that this rank has entered the operation. */
bool weft_coll_shape_tells(const struct shape *shape, uint32_t i);

static inline size_t weft_coll_aligned(size_t bytes)
{
    return (bytes + WEFT_COLL_ALIGN - 1) / WEFT_COLL_ALIGN * WEFT_COLL_ALIGN;
}

/* Grain index of an element of slice j, where each slice starts a new grain. */
uint64_t weft_coll_grain(const struct shape *shape, uint32_t j, uint64_t at);

#endif
