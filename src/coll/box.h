/* all_reduce through an aggregation box (docs/AGGREGATION.md): float32 or int32 sums and means of
 * all ranks go through the box while it works, and through the ranks themselves (coll/coll.h)
 * otherwise. Results are the same bits at all ranks, whatever the box does.
 *
 * An operation that the box may sum is *eligible*: that depends only on the call and on the
 * configuration, so the ranks choose alike. All other operations are not affected. Eligible
 * operations have a group of their own, in which the order of calls is that of the program,
 * whatever time the box takes. There each of them is
 *
 *   ENTER   a barrier, while the box already sums. When all ranks have passed it, a box that stays
 *           silent has failed; before that, it may wait for a rank that is late.
 *   AGREE   an all_reduce of a verdict and of a hash of the result. The sum is used only if every
 *           rank has the whole sum, with the same hash.
 *   REST    an all_reduce of the chunks that the box could not sum (agg/dense_member.h, "direct"):
 *           they are the same at all ranks, because the hash covers which they are.
 *   PLAIN   instead of REST, if the ranks do not agree: an all_reduce of the whole vector. From
 *           then on all eligible operations are PLAIN, until the box has passed another trial
 *           (box_retry.c).
 *
 * The next vector is sent to the box while the ranks agree on this one.
 *
 * Before the first vector the ranks agree on an epoch (SETUP), and sum random numbers both ways
 * (the *trial*), in every slot. A box with another configuration fails it, and so does
 * one that still has sums of an earlier job in this epoch. After it, each slot is in a round that
 * this job began, so a repeated packet cannot be answered with an old sum. The same holds for each
 * later trial, of a box that has failed.
 *
 * It sends nothing to the box itself: `link` does. It reads no clock, and allocates only in new.
 *
 * The hash is no authentication: anybody who can send packets as the box or as a member can change
 * a sum at all ranks alike.
 */
#ifndef WEFT_COLL_BOX_H
#define WEFT_COLL_BOX_H

#include "coll/coll.h"

struct weft_coll_box;

enum {
    WEFT_COLL_BOX_OPS = 4,    /* operations of weft_coll that it begins besides the caller's */
    WEFT_COLL_BOX_GROUPS = 1, /* groups that it makes */
};

/* How vectors get to the box: one at a time, in the order of begin. */
struct weft_coll_box_link {
    void *self;
    /* Begin the rounds of this epoch; no vector is being summed. */
    void (*epoch)(void *self, uint32_t epoch);
    /* Begin to sum; the end is reported by weft_coll_box_summed. Arguments as for
     * weft_agg_member_begin.   Owns: borrows all three until then. */
    void (*begin)(void *self, const void *in, void *out, uint64_t count, uint64_t *direct);
    /* Stop; weft_coll_box_summed follows. */
    void (*stop)(void *self);
    /* The number of sums that have arrived. */
    uint64_t (*progress)(void *self);
};

/* All values except link, epoch, epoch_ns and nonce must be equal at all ranks: `settings` of
 * coll's configuration has their hash, so that ranks whose values differ report a mismatch. */
struct weft_coll_box_config {
    struct weft_coll_box_link link;
    enum weft_coll_type type; /* F32 or I32: what the box sums */
    int8_t exponent;          /* F32 in fixed point: multiples of 2^exponent; else 0 */
    uint32_t slots;           /* of the link; also the next field */
    uint32_t values;          /* of a chunk */
    uint64_t bytes_min;       /* shorter vectors do not go through the box */
    uint64_t silence_ns;      /* without a sum, with all ranks in the operation: the box failed. In
                               * a trial at most 16 s */
    uint64_t retry_ns;        /* a box that has failed is tried again after this time, or more, at
                               * most once a second; NEVER = it is not */
    uint32_t epoch;           /* this rank's clock in seconds, at epoch_ns. The latest clock of all
                               * ranks, but at most a minute after the earliest, is the epoch, at
                               * the first vector and at each later trial. If a clock is further
                               * behind, this may be before the epoch of an earlier job: then the
                               * box is not used until that clock plus a minute has passed it */
    uint64_t epoch_ns;        /* as now_ns of the calls below */
    uint64_t nonce;           /* random, for the trial */
};

enum weft_coll_box_state {
    WEFT_COLL_BOX_NEW, /* no eligible operation yet */
    WEFT_COLL_BOX_SETUP,
    WEFT_COLL_BOX_TRIAL,
    WEFT_COLL_BOX_ON,
    WEFT_COLL_BOX_OFF, /* it has failed; it may be tried again meanwhile */
};

/* Why the box is not used, at whichever rank; the same at all ranks. */
enum weft_coll_box_reason {
    WEFT_COLL_BOX_FINE,
    WEFT_COLL_BOX_SILENT,   /* no sum for silence_ns */
    WEFT_COLL_BOX_SLOW,     /* a vector took too long */
    WEFT_COLL_BOX_FORM,     /* it did not sum the trial's numbers: another exponent or format */
    WEFT_COLL_BOX_WRONG,    /* the trial's sums are wrong: another job or epoch uses this box */
    WEFT_COLL_BOX_DIFFERS,  /* the ranks have different sums or calls */
    WEFT_COLL_BOX_REASONS
};

/* Cumulative. */
struct weft_coll_box_counters {
    uint64_t begun;           /* eligible operations; also the next field */
    uint64_t done;            /* of these, with status OK */
    uint64_t own_begun;       /* operations of its own, which coll counts, too; also the next */
    uint64_t own_done;
    uint64_t operations;      /* summed by the box, but for direct chunks */
    uint64_t fallbacks;       /* eligible operations that were not */
    uint64_t direct_elements; /* of `operations`, elements of chunks that it could not sum */
    uint64_t retries;         /* trials of a box that had failed */
    uint64_t recoveries;      /* times that it was used again */
};

/* Chunks of 352 values, 32 slots, 256 KiB, 1 s, 16 s; the caller sets the other fields. */
void weft_coll_box_config_default(struct weft_coll_box_config *config_p);

/* Hash of the values that must be equal, and of `more`; not 0. */
uint32_t weft_coll_box_settings(const struct weft_coll_box_config *config, uint64_t more);

/* Create the object, and its group in coll, whose ops_max and groups_max must have room for
 * WEFT_COLL_BOX_OPS and WEFT_COLL_BOX_GROUPS. All ranks do so before they make other groups.
 *
 * Shape:   ops_max: eligible operations in progress.
 * Owns:    gives *box_p; borrows coll. From now on operations of coll are polled here only.
 * Errors:  WEFT_INVALID, WEFT_NOMEM; those of weft_coll_group. */
weft_status weft_coll_box_new(const struct weft_coll_box_config *config, struct weft_coll *coll,
                              const struct weft_coll_config *coll_config, uint32_t ops_max,
                              struct weft_coll_box **box_p);

/* Free the object, when the link does not sum. NULL is allowed. */
void weft_coll_box_free(struct weft_coll_box *box);

/* Whether the call is eligible: begin it here, not with weft_coll_begin. */
bool weft_coll_box_takes(const struct weft_coll_box *box, const struct weft_coll_call *call);

/* As weft_coll_work_bytes, for an eligible call. More than the ordinary operation needs by one
 * vector, which is touched only in place or if chunks are direct. */
size_t weft_coll_box_work_bytes(const struct weft_coll_box *box,
                                const struct weft_coll_call *call);

/* As weft_coll_begin, for an eligible call with `work`; user is below 2^63.
 * Errors:  WEFT_PEER  coll has failed; WEFT_AGAIN  ops_max; WEFT_INVALID  work. */
weft_status weft_coll_box_begin(struct weft_coll_box *box, const struct weft_coll_call *call,
                                uint64_t now_ns);

/* The link's sum has ended. complete: every chunk has a sum or is direct. */
void weft_coll_box_summed(struct weft_coll_box *box, bool complete, uint64_t now_ns);

/* Make progress, with weft_coll_progress. Call it after each batch of events, begin and summed, and
 * at the deadline. */
void weft_coll_box_progress(struct weft_coll_box *box, uint64_t now_ns);

/* When progress has to be called at the latest; without that of coll. */
uint64_t weft_coll_box_deadline(const struct weft_coll_box *box);

/* As weft_coll_poll, for operations begun here and for those of coll. */
bool weft_coll_box_poll(struct weft_coll_box *box, struct weft_coll_done *done_p);

enum weft_coll_box_state weft_coll_box_state(const struct weft_coll_box *box);
enum weft_coll_box_reason weft_coll_box_reason(const struct weft_coll_box *box);
const struct weft_coll_box_counters *weft_coll_box_counters(const struct weft_coll_box *box);

/* One clause, such as "it sent no sum for 1.0 s". */
void weft_coll_box_reason_text(const struct weft_coll_box *box, char *text, size_t bytes);

#endif
