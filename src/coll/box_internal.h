/* Internals of coll/box.h. Private.
 *
 *     box.c        entries, their order, agreement, progress
 *     box_retry.c  vectors that the ranks sum themselves, and trials of a box that has failed
 *     box_sums.c   the hash of the settings; the vectors: chunks, hash, the numbers of the trial
 */
#ifndef WEFT_COLL_BOX_INTERNAL_H
#define WEFT_COLL_BOX_INTERNAL_H

#include "base/bits.h"
#include "coll/box.h"

enum {
    BOX_ELEMENT_BYTES = 4,
    BOX_SETUP = 2,   /* numbers of SETUP */
    BOX_VERDICT = 3, /* numbers of AGREE and RETRY */
};

#define BOX_NONE UINT32_MAX /* no entry */

/* Of an operation that this object begins: in `user`, with the entry. */
enum what {
    WHAT_SETUP,
    WHAT_ENTER,
    WHAT_AGREE,
    WHAT_REST,
    WHAT_PLAIN,
    WHAT_EXPECT, /* the sums of a later trial by the ranks themselves */
    WHAT_RETRY,  /* about a later trial */
};

#define USER_OWN (UINT64_C(1) << 63)
enum { USER_WHAT_SHIFT = 32 };

static inline uint64_t weft_coll_box_user(enum what what, uint32_t i)
{
    return USER_OWN | (uint64_t)what << USER_WHAT_SHIFT | i;
}

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

enum retry_state {
    RETRY_WAIT,  /* until the pause is over at every rank */
    RETRY_BEGIN, /* it is: the next step begins a trial */
    RETRY_TRIAL, /* until every rank has its outcome */
    RETRY_GOOD,  /* from the next step on the box is used */
};

/* Of a box that is off. */
struct retry {
    enum retry_state state;
    uint32_t plain;    /* vectors that the ranks have begun to sum since then */
    uint32_t step;     /* the number of the next one that is a step */
    uint32_t asking;   /* the entry whose step is in progress; BOX_NONE */
    uint64_t pause_ns; /* 0: the box has not failed yet */
    uint64_t due_ns;   /* the end of the pause */
    uint64_t on_ns;    /* when the box was used last */
    uint64_t epoch_ns; /* when the ranks agreed on this epoch */
};

struct weft_coll_box {
    struct weft_coll_box_config config;
    struct weft_coll_config coll_config;
    struct weft_coll *coll;
    struct weft_coll_box_counters counters;
    enum weft_coll_box_state state;
    enum weft_coll_box_reason reason;
    bool reason_of_trial; /* a trial found it, not a vector */
    uint32_t group;
    uint32_t ops_max;
    struct entry *entry;  /* (ops_max + 1,), the last one is the trial */
    uint32_t head, tail;  /* entries without a verdict, in the order of begin */
    uint32_t urgent;      /* of these, the one with the earliest deadline */
    uint32_t unsummed;    /* the first of them that was not given to the link */
    uint32_t summing;     /* the entry that the link sums */
    bool stopping;        /* it has been asked to stop */
    struct retry retry;
    bool broken;          /* a sum was not complete: the link cannot sum any more in this epoch */
    uint64_t started_ns;  /* when the link began this vector */
    uint64_t progress;    /* of the link, as last seen, at heard_ns */
    uint64_t heard_ns;
    struct weft_coll_done *other; /* (others_max,): done operations of others, a ring */
    uint32_t others_max, other_at, others;
    uint32_t done_head, done_tail; /* entries */
    int64_t setup_in[BOX_SETUP], setup_out[BOX_SETUP];
    uint32_t epoch; /* the ranks have agreed on it last */
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

/* The epoch that follows from the earliest and the latest clock of the ranks: the latest, but at
 * most a minute after the earliest. A box forgets no epoch, so one rank with a wrong clock would
 * make it useless for all later jobs until their clocks have reached that one. */
static inline uint32_t weft_coll_box_epoch_of(int64_t earliest, int64_t latest)
{
    int64_t limit = earliest + 60;
    return (uint32_t)(latest < limit ? latest : limit);
}

/* This rank's clock, in seconds. */
static inline uint32_t weft_coll_box_clock(const struct weft_coll_box *b, uint64_t now_ns)
{
    return b->config.epoch + (uint32_t)((now_ns - b->config.epoch_ns) / WEFT_NS_PER_S);
}

/* ---- box.c ----------------------------------------------------------------------------------- */

static inline struct weft_coll_call weft_coll_box_all_reduce(enum weft_coll_type type,
                                                             enum weft_coll_reduction reduction,
                                                             const void *in, void *out,
                                                             uint64_t count)
{
    return (struct weft_coll_call){.kind = WEFT_COLL_ALL_REDUCE,
                                   .type = type,
                                   .reduction = reduction,
                                   .count = count,
                                   .in = in,
                                   .out = out};
}

static inline struct weft_coll_call weft_coll_box_agree_call(struct weft_coll_box *b)
{
    return weft_coll_box_all_reduce(WEFT_COLL_I64, WEFT_COLL_MIN, b->verdict_in, b->verdict_out,
                                    BOX_VERDICT);
}

/* The trial's sums by the ranks themselves. When they are there, every rank has entered it. */
static inline struct weft_coll_call weft_coll_box_expected_call(struct weft_coll_box *b)
{
    return weft_coll_box_all_reduce(b->config.type, WEFT_COLL_SUM, b->trial,
                                    b->trial + 2 * trial_bytes(b), trial_count(b));
}

/* Begin an operation of its own for an entry. False: coll has failed, which the next step finds. */
bool weft_coll_box_post(struct weft_coll_box *b, enum what what, uint32_t i,
                        struct weft_coll_call call, void *work, uint64_t deadline_ns,
                        uint64_t now_ns);
void weft_coll_box_drop_head(struct weft_coll_box *b);
void weft_coll_box_finish(struct weft_coll_box *b, uint32_t i, weft_status status,
                          uint64_t now_ns);
/* Note the progress of the link. */
void weft_coll_box_hear(struct weft_coll_box *b, uint64_t now_ns);
/* Give an entry's vector to the link, which has none. */
void weft_coll_box_sum(struct weft_coll_box *b, uint32_t i, uint64_t now_ns);
/* Stop the link, if it sums. */
void weft_coll_box_stop(struct weft_coll_box *b);

/* ---- box_retry.c ----------------------------------------------------------------------------- */

/* The ranks have agreed on an epoch, which begins. */
void weft_coll_box_epoch(struct weft_coll_box *b, uint64_t now_ns);
/* The ranks have agreed that the box has failed. */
void weft_coll_box_off(struct weft_coll_box *b, enum weft_coll_box_reason reason, uint64_t now_ns);
/* The box is off: the ranks sum the vectors, in the order of begin. Returns whether any was begun,
 * or the box is used again. */
bool weft_coll_box_plain_all(struct weft_coll_box *b, uint64_t now_ns);
/* PLAIN, EXPECT or RETRY of an entry is done. */
void weft_coll_box_plain_done(struct weft_coll_box *b, enum what what, uint32_t i,
                              const struct weft_coll_done *done, uint64_t now_ns);
/* The entry of a trial, which is the last one, with new numbers. */
struct entry *weft_coll_box_trial_make(struct weft_coll_box *b, uint64_t now_ns);
/* Without a sum for this time a trial has failed. */
uint64_t weft_coll_box_trial_silence(const struct weft_coll_box *b);
/* When a later trial's sum is given up; NEVER: not yet known, or none is in progress. */
uint64_t weft_coll_box_retry_deadline(const struct weft_coll_box *b);

/* ---- box_sums.c ------------------------------------------------------------------------------ */

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
