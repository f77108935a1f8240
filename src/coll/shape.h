/* The shape of an operation: which slice belongs to whom, who sends what to whom in which phase, and
 * where it lands. All of it follows from the call and the group alone, so all ranks agree.
 *
 * Every kind is one or both of two phases over slices:
 *
 *     phase 1   senders send slice j to its owner j
 *     phase 2   owner j sends slice j, or what it has become, to the targets
 *
 *     kind               slices            senders   lands                   targets
 *     all_reduce         of the vector     all       staged, then reduced    all
 *       small            the whole, each   all       staged, then reduced    -
 *     reduce             of the vector     all       staged, then reduced    the root
 *       small            the whole, root's all       staged, then reduced    -
 *     reduce_scatter     blocks            all       staged, then reduced    -
 *     all_gather         blocks            -                                 all
 *     gather             blocks            -                                 the root
 *     broadcast          of the vector     the root  in its place            all but the root
 *       small            the whole, root's -                                 all
 *     scatter            blocks            the root  at the start of out     -
 *     all_to_all         blocks            all       by sender               -
 *     send, recv         the whole         one       at the start of out     -
 *
 * A slice is cut into segments, each a message between two ranks, so that phase 2 of one overlaps
 * phase 1 of the next. Slices of a vector and segments begin on grains of 32 elements, chunks of the
 * transport have a multiple of it: so a bit for each grain says who contributed to it.
 */
#ifndef WEFT_COLL_SHAPE_H
#define WEFT_COLL_SHAPE_H

#include "coll/coll.h"

enum { PHASE_1, PHASE_2, PHASES };

enum slices { SLICES_VECTOR, SLICES_BLOCKS, SLICES_WHOLE, SLICES_ROOT };
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
    uint32_t root; /* of SEND and RECV the sender */
    uint32_t receiver;
    uint32_t segments;
    uint32_t elem_bytes;
    uint64_t count; /* a send of nothing is one byte, or the calls behind it would not match */
};

/* A segment of a slice: elements from its start. */
struct part {
    uint64_t at;
    uint32_t elems; /* 0 = there is none */
};

/* Offsets into the caller's work memory. */
struct work {
    size_t bits[PHASES][3]; /* opened, received, sent: (segments, n) bits */
    size_t bits_bytes;      /* all of these, from the start */
    size_t masks;           /* (n, mask_words): grains of the own slice that came from each */
    size_t mask_words;      /* 0 = nothing may be missing */
    size_t staging;         /* (n - 1, stage_bytes): the own slice as it came from each other */
    size_t stage_bytes;
    size_t result; /* of REDUCE, at ranks that are not the root: the own slice, reduced */
    size_t copy;   /* small all_reduce: what is sent, since out may be in */
    size_t bytes;
};

static inline bool weft_coll_is_pair(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_SEND || kind == WEFT_COLL_RECV;
}

/* False: the call is out of range; `n` and `me` are of the group. */
bool weft_coll_shape_make(const struct weft_coll_config *config, const struct weft_coll_call *call,
                          uint32_t n, uint32_t me, struct shape *shape_p);

/* May contributions be missing? Not of what is reduced at every rank: their results would differ. */
static inline bool weft_coll_shape_lossy(const struct shape *shape, uint32_t bound_ppm)
{
    return bound_ppm > 0 && shape->reduces && shape->slices != SLICES_WHOLE;
}

void weft_coll_work_make(const struct shape *shape, bool lossy, struct work *work_p);

/* Slice j: where it begins in a buffer that holds all slices, and its elements. */
uint64_t weft_coll_slice_at(const struct shape *shape, uint32_t j);
uint64_t weft_coll_slice_elems(const struct shape *shape, uint32_t j);
struct part weft_coll_part(const struct shape *shape, uint32_t j, uint32_t segment);

/* Whose slice a message of `phase` from src to dst is of; WEFT_COLL_NONE: there is no such message. */
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

/* Elements of that message's segment; 0 = there is none. */
static inline uint32_t shape_elems(const struct shape *s, uint32_t phase, uint32_t src,
                                   uint32_t dst, uint32_t segment)
{
    uint32_t slice = shape_slice(s, phase, src, dst);
    return slice == WEFT_COLL_NONE ? 0 : weft_coll_part(s, slice, segment).elems;
}

/* Index of an element of slice j among grains that are counted for each slice from its start. */
uint64_t weft_coll_grain(const struct shape *shape, uint32_t j, uint64_t at);

#endif
