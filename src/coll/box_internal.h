/* Internals of coll/box.h. Private.
 *
 *     box.c        entries, their order, agreement, progress
 *     box_sums.c   the hash of the settings; the vectors: chunks, hash, the numbers of the trial
 */
#ifndef WEFT_COLL_BOX_INTERNAL_H
#define WEFT_COLL_BOX_INTERNAL_H

#include "base/bits.h"
#include "coll/box.h"

enum {
    BOX_ELEMENT_BYTES = 4,
    BOX_VERDICT = 3, /* numbers of AGREE */
};

enum entry_state {
    ENTRY_FREE,
    ENTRY_QUEUED, /* until its verdict */
    ENTRY_REST,
    ENTRY_PLAIN,
    ENTRY_DONE,
};

struct entry {
    enum entry_state state;
    uint32_t next; /* in the queue, or of those done */
    struct weft_coll_call call;
    uint64_t *direct; /* bit for each chunk */
    uint8_t *spare;   /* sums in place; then the elements of direct chunks */
    void *ordinary;   /* work of REST and PLAIN */
    uint8_t *sums;    /* of the box: the call's out, or spare */
    uint32_t chunks;
    uint64_t direct_elements;
    bool summed;   /* by the link, which does not use the buffers any more */
    bool complete; /* every chunk has a sum, or is direct */
    bool entering;
    bool entered;
    bool agreeing;
    uint32_t pending; /* operations in coll */
    enum weft_coll_box_reason reason;
    uint64_t begun_ns;
    uint64_t deadline_ns;
    uint64_t entered_ns;
    uint64_t summed_ns;
    struct weft_coll_done done;
};

struct weft_coll_box {
    struct weft_coll_box_config config;
    struct weft_coll_config coll_config;
    struct weft_coll *coll;
    struct weft_coll_box_counters counters;
    enum weft_coll_box_state state;
    enum weft_coll_box_reason reason;
    uint32_t group;
    uint32_t ops_max;
    struct entry *entry;  /* (ops_max + 1,), the last one is the trial */
    uint32_t head, tail;  /* entries without a verdict, in the order of begin */
    uint32_t urgent;      /* of these, the one with the earliest deadline */
    uint32_t unsummed;    /* the first of them that was not given to the link */
    uint32_t summing;     /* the entry that the link sums */
    bool stopping;        /* it has been asked to stop */
    bool broken;          /* a sum was not complete: the link cannot sum any more in this epoch */
    uint64_t started_ns;  /* when the link began this vector */
    uint64_t progress;    /* of the link, as last seen, at heard_ns */
    uint64_t heard_ns;
    struct weft_coll_done *other; /* (others_max,): done operations of others, a ring */
    uint32_t others_max, other_at, others;
    uint32_t done_head, done_tail; /* entries */
    int64_t epoch_in, epoch_out;
    int64_t verdict_in[BOX_VERDICT], verdict_out[BOX_VERDICT];
    void *setup_work, *enter_work, *agree_work;
    uint8_t *trial; /* in, sums, expected */
    uint64_t *trial_direct;
    void *trial_work;
};

static inline uint64_t trial_count(const struct weft_coll_box *b)
{
    return (uint64_t)b->config.slots * b->config.values;
}

static inline uint64_t trial_bytes(const struct weft_coll_box *b)
{
    return trial_count(b) * BOX_ELEMENT_BYTES;
}

/* Of the call, of the chunks that are direct, and of the sums of the others; not negative. */
int64_t weft_coll_box_hash(const struct weft_coll_box *b, const struct entry *e);
/* Elements of direct chunks. */
uint64_t weft_coll_box_direct(const struct weft_coll_box *b, const struct entry *e);
/* Copy the elements of direct chunks from `in` to `spare`, in a row, and from there to `out`. */
void weft_coll_box_gather(const struct weft_coll_box *b, const struct entry *e);
void weft_coll_box_scatter(const struct weft_coll_box *b, const struct entry *e);
/* Copy the box's sums to `out`; a mean is divided. */
void weft_coll_box_take(const struct weft_coll_box *b, const struct entry *e);

/* Write this rank's numbers; compare the sums of both ways. */
void weft_coll_box_trial_fill(struct weft_coll_box *b);
enum weft_coll_box_reason weft_coll_box_trial_check(const struct weft_coll_box *b);

#endif
