/* Collective operations between the ranks of a job, such as all_reduce, with bounded loss.
 *
 * A sans-I/O state machine over a transport (core/msg.h): it receives every event polled from the
 * endpoint and sends through the same msgr. It makes no system call, reads no clock, and prints
 * nothing. It allocates only in weft_coll_new: memory that an operation needs beyond its own
 * buffers is passed with the call. One thread owns it and the endpoint.
 *
 *     on every event:  weft_coll_event;  after a batch: weft_coll_progress, then weft_coll_poll
 *     until it returns false, and weft_coll_take_close;  at weft_coll_deadline:
 *     weft_coll_on_deadline.
 *
 * The driver makes the connections: of two ranks the higher one connects, with the name from
 * weft_coll_name in its HELLO. The name contains the job's epoch, which distinguishes a process
 * from those of earlier starts of the job.
 *
 * all_reduce is a transpose. Rank j owns slice j: all ranks send slice j to rank j (phase 1), which
 * reduces the contributions in rank order and returns the result to all (phase 2). The loss bound
 * applies to phase 1 only, so a missing chunk is missing from one rank's contribution only. Phase 2
 * is always complete, and the owner uses the same bytes that it sends, so the results of all ranks
 * are bit-identical. The other kinds consist of one phase or both, with other slices.
 *
 * Operations of a group match by the order in which each rank calls them. A signature in the tag of
 * the messages detects calls that differ between ranks. Send and recv are independent of that
 * order: the n-th send of a rank to another with a tag matches the n-th recv with that tag.
 *
 * If a rank fails, calls a different operation, or does not call in time, the whole object fails:
 * all operations end at all ranks, and all ranks report the same culprit (struct
 * weft_coll_failure).
 *
 * Source: docs/COLLECTIVES.md; [apnet19] section 3.2, idea 2.
 */
#ifndef WEFT_COLL_COLL_H
#define WEFT_COLL_COLL_H

#include "coll/plan.h"
#include "core/msg.h"

#include <stdbool.h>

struct weft_coll;

enum {
    WEFT_COLL_RANKS_MAX = 1024,
    WEFT_COLL_GROUPS_MAX = 1024,
    WEFT_COLL_OPS_MAX = 256,
    WEFT_COLL_OPS_SPARE = 4, /* ops_max may be larger by so many: for those of coll/box.h */
    WEFT_COLL_SEGMENTS_MAX = 16,
    WEFT_COLL_GRAIN = 32,       /* elements: unit of slices and of contributor counts */
    WEFT_COLL_ALIGN = 64,       /* bytes, alignment of `work` */
    WEFT_COLL_CHUNK_MIN = 1024, /* bytes, minimum capacity of a chunk */
};

#define WEFT_COLL_NONE      UINT32_MAX
#define WEFT_COLL_EPOCH_MAX ((UINT64_C(1) << 40) - 1)

enum weft_coll_kind {
    WEFT_COLL_ALL_REDUCE,     /* count: of the vector */
    WEFT_COLL_REDUCE,         /* as ALL_REDUCE; only the root has the result */
    WEFT_COLL_REDUCE_SCATTER, /* count: of a block; in has n blocks, out is this rank's block */
    WEFT_COLL_ALL_GATHER,     /* count: of a block; in is this rank's block, out has n */
    WEFT_COLL_BROADCAST,      /* count: of the vector; in at the root, out at all */
    WEFT_COLL_GATHER,         /* as ALL_GATHER; only the root uses out */
    WEFT_COLL_SCATTER,        /* count: of a block; in has n blocks, at the root */
    WEFT_COLL_ALL_TO_ALL,     /* count: of a block; in and out have n blocks */
    WEFT_COLL_BARRIER,        /* no buffers */
    WEFT_COLL_SEND,           /* count: of the vector; from `in`, to `peer`, with `tag` */
    WEFT_COLL_RECV,           /* count: of the vector; to `out`, from `peer`, with `tag` */
    WEFT_COLL_KINDS
};

enum weft_coll_type {
    WEFT_COLL_F32,
    WEFT_COLL_F64,
    WEFT_COLL_F16,
    WEFT_COLL_BF16,
    WEFT_COLL_I8,
    WEFT_COLL_U8,
    WEFT_COLL_I32,
    WEFT_COLL_I64,
    WEFT_COLL_TYPES
};

enum weft_coll_reduction {
    WEFT_COLL_SUM,  /* integers wrap */
    WEFT_COLL_MEAN, /* floats only; divided by the contributors of each grain, or by n with feedback
                     */
    WEFT_COLL_MIN,  /* NaN if any contribution is NaN */
    WEFT_COLL_MAX,
    WEFT_COLL_PRODUCT,
    WEFT_COLL_AND, /* AND, OR, XOR: bitwise, integers only */
    WEFT_COLL_OR,
    WEFT_COLL_XOR,
    WEFT_COLL_REDUCTIONS
};

/* All values except `rank` must be equal at all ranks. */
struct weft_coll_config {
    uint32_t rank;
    uint32_t ranks;         /* 1 .. WEFT_COLL_RANKS_MAX */
    uint64_t epoch;         /* number of this start of the job; 0 .. WEFT_COLL_EPOCH_MAX */
    uint32_t peers_max;     /* of the endpoint */
    uint32_t chunks_max;    /* limit of the endpoint: longest message, in chunks */
    uint32_t groups_max;    /* including the group of all ranks */
    uint32_t ops_max;       /* concurrent operations, over all groups */
    uint64_t pool_bytes;    /* memory for messages that arrive before this rank's call of their
                             * operation; at least 64 KiB per rank */
    uint32_t segment_bytes; /* maximum size of a segment's message between two ranks; in a slice of
                             * more than WEFT_COLL_SEGMENTS_MAX of them, a multiple of half of it */
    uint32_t small_bytes;   /* longest vector that every rank sends to all others, if there are at
                             * most small_ranks ranks */
    uint32_t small_ranks;
    uint32_t bcast_bytes;   /* longest vector that the root of a broadcast sends to all others */
    uint32_t receivers_max; /* ranks that this rank sends to concurrently; 0 = no limit */
    uint64_t abort_ns;      /* maximum time to notify other ranks of a failure before connections
                             * are closed; two fifths of it if the failure is that of a
                             * connection. After a CLOSE, half of this time is the wait for such a
                             * notification. After twice this time an operation queries the ranks
                             * that it waits for */
    uint32_t settings;      /* hash of further settings that must be equal at all ranks; 0 = none */
};

/* One operation as this rank calls it. */
struct weft_coll_call {
    enum weft_coll_kind kind;
    enum weft_coll_type type;
    enum weft_coll_reduction reduction;
    uint32_t group;
    uint32_t root;  /* index within the group */
    uint32_t peer;  /* SEND, RECV: the other end, an index within the group, not this rank's */
    uint32_t tag;   /* SEND, RECV: calls of two ranks with the same tag match in their order */
    uint64_t count; /* number of elements, as defined for the kind. 0 at all ranks = no operation;
                     * but a send of 0 elements matches a recv of 0 elements like any other */
    const void *in; /* aligned to the size of an element; borrowed until done, like all buffers of
                     * the call */
    void *out;      /* may be `in` if the kind allows it: see weft_coll_begin */
    uint32_t
        bound_ppm;   /* reducing kinds: fraction of phase 1's chunks that may be missing, < 10^6 */
    uint32_t stream; /* the remainder of the bound carries over between calls with the same number
                      * (core/bound.h); for example one number per gradient bucket */
    float *residual; /* F32, reducing kinds: error feedback, same length as in. Holds the elements
                      * missing from earlier calls; it is added to in, and replaced by the elements
                      * missing from this call. NULL = none */
    uint8_t *missed; /* with residual: weft_coll_missed_bytes bytes, initially zero: number of
                      * consecutive calls in which each grain was missing. After two, the grain must
                      * arrive. NULL = not counted */
    uint64_t timeout_ns; /* time from weft_coll_begin; after it the object fails within 2 abort_ns
                          * and reports the late rank. WEFT_NEVER = none */
    void *work;    /* weft_coll_work_bytes bytes, aligned to WEFT_COLL_ALIGN; NULL if 0 bytes */
    uint64_t user; /* returned in done */
};

/* Description of a call, as sent to other ranks. */
struct weft_coll_descriptor {
    uint8_t kind;
    uint8_t type;
    uint8_t reduction;
    uint8_t feedback;
    uint32_t root; /* SEND, RECV: the tag */
    uint32_t bound_ppm;
    uint32_t members; /* hash of the group's ranks and of the configuration that must be equal */
    uint64_t count;
};

/* An operation and the aggregation box (coll/box.h). */
enum weft_coll_boxed {
    WEFT_COLL_WITHOUT_BOX, /* no box would sum it */
    WEFT_COLL_BOXED,       /* the box has summed it, or all but chunks that it cannot sum */
    WEFT_COLL_FALLBACK,    /* the box would have summed it, but has failed */
};

struct weft_coll_done {
    uint64_t user;
    weft_status status;        /* OK, or PEER: see weft_coll_failure */
    uint64_t own_missing;      /* elements of this rank's contribution that did not arrive */
    uint32_t contributors_min; /* of any grain of the slice that this rank reduced; n at ranks that
                                * reduced none */
    uint64_t nonfinite;        /* values of the residual that were NaN or infinite, and were set to
                                * 0 */
    uint64_t contributions_ns; /* from begin until all of phase 1 had arrived at this rank; 0
                                * without phase 1 */
    uint64_t total_ns;         /* from begin until done */
    enum weft_coll_boxed boxed;
};

enum weft_coll_reason {
    WEFT_COLL_FINE,
    WEFT_COLL_DOWN,     /* the connection to the rank failed; see `down` */
    WEFT_COLL_LEFT,     /* the rank closed its connection before all its messages arrived */
    WEFT_COLL_TIMEOUT,  /* the rank did not enter the operation, or did not complete its part, in
                         * time */
    WEFT_COLL_MISMATCH, /* the rank called a different operation: see `called` */
    WEFT_COLL_PROTOCOL, /* the rank violated the protocol */
    WEFT_COLL_TOO_LONG, /* a message would exceed the endpoint's maximum number of chunks: this
                         * rank */
    WEFT_COLL_ABORTED,  /* the rank's program called weft_coll_abort */
    WEFT_COLL_REASONS
};

/* Reason for the failure of the object: the same at all ranks that receive it before they detect
 * another failure. */
struct weft_coll_failure {
    enum weft_coll_reason reason;
    uint32_t rank;  /* the culprit */
    uint32_t by;    /* the rank that detected it */
    uint32_t group; /* WEFT_COLL_NONE: no operation was open */
    uint32_t op;    /* the group's operation number, from 0; NONE: a send or a recv */
    enum weft_msg_down down;
    bool entered;     /* TIMEOUT: the rank had entered the operation */
    uint32_t last_op; /* TIMEOUT: last operation that the rank is known to have entered, or NONE */
    bool has_called; /* MISMATCH: called[0] is the call of `rank`, called[1] that of `by`. called[1]
                      * is also set for a send or recv that timed out */
    struct weft_coll_descriptor called[2];
    char text[40]; /* ABORTED: the text from the program */
};

/* Cumulative. */
struct weft_coll_counters {
    uint64_t begun;
    uint64_t done;                 /* of these, with status OK */
    uint64_t messages_sent;        /* data messages */
    uint64_t bytes_sent;           /* in these */
    uint64_t elements_missing;     /* missing from the contributions that this rank reduced */
    uint64_t own_elements_missing; /* own contributions that did not arrive */
    uint64_t nonfinite;            /* values of residuals that were set to 0 */
    uint64_t planned;              /* all_reduces along slices or trees of a plan */
    uint64_t trees;                /* of these, along trees */
    uint64_t early_messages;       /* messages that arrived before this rank had called their
                                    * operation */
    uint64_t early_pages_max;      /* of the pool */
    uint64_t progress_sent;        /* messages sent to report this rank's progress */
    uint64_t peers_refused;        /* connections of another epoch, of an invalid rank, or of a rank
                                    * that is connected already */
    uint64_t ignored;              /* messages after a failure, or from refused connections */
};

/* 1,024 peers, 16 groups, 64 operations, 64 MiB of pool, segments of 126 KiB, small up to 1,408
 * bytes and 16 ranks, a broadcast's root sends up to 64 KiB itself, 8 receivers at a time, 1 s; the
 * caller sets rank, ranks and epoch. */
void weft_coll_config_default(struct weft_coll_config *config_p);

/* `name` for the endpoint's configuration. */
uint64_t weft_coll_name(uint64_t epoch, uint32_t rank);

/* Maximum number of receives that the object posts: for expects_max of its endpoint. */
enum { WEFT_COLL_EXPECTS = 3 };

/* Create the object. Group 0 contains all ranks.
 * Owns:    gives *coll_p; allocates all memory that it will use.
 * Errors:  WEFT_INVALID, WEFT_NOMEM; those of expect. */
weft_status weft_coll_new(const struct weft_coll_config *config, struct weft_msgr msgr,
                          struct weft_coll **coll_p);

/* Free the object. The endpoint must not make progress after this call. NULL is allowed. */
void weft_coll_free(struct weft_coll *coll);

/* Create a group of ranks, in this order. All ranks of the job must create the groups in the same
 * order, including ranks that are not members.
 * Errors:  WEFT_INVALID  a rank is out of range or listed twice. WEFT_NOMEM groups_max. */
weft_status weft_coll_group(struct weft_coll *coll, const uint32_t *ranks, uint32_t n,
                            uint32_t *group_p);

/* Divide the vectors of the group's all_reduces, from the next call on, as the plan says; NULL =
 * into equal slices again. All members set the same plan between the same two operations; if they
 * do not, their next all_reduces are a mismatch. A slice or segment that would be too long for the
 * endpoint is not used: then slices are equal.
 *
 * Owns:    borrows the plan and its arrays until it is replaced, or weft_coll_free.
 * Errors:  WEFT_INVALID  no such group, or the plan does not satisfy coll/plan.h.
 *          WEFT_STATE    an operation of the group is open: wait for it first. */
weft_status weft_coll_plan_set(struct weft_coll *coll, uint32_t group,
                               const struct weft_coll_plan *plan);

/* Bytes that a call needs in `work` and in `missed`; 0 for a call that weft_coll_begin would
 * reject. */
size_t weft_coll_work_bytes(const struct weft_coll *coll, const struct weft_coll_call *call);
size_t weft_coll_missed_bytes(const struct weft_coll *coll, const struct weft_coll_call *call);

/* Validate a call of member `me` of a group of n ranks. Returns NULL if it is valid, else an error
 * message without a full stop. The group itself is not checked. Thread: any. */
const char *weft_coll_call_check(const struct weft_coll_config *config,
                                 const struct weft_coll_call *call, uint32_t n, uint32_t me);

/* Begin an operation.
 *
 * In place: out == in for ALL_REDUCE, REDUCE, BROADCAST; in is block `rank` of out for ALL_GATHER
 * and GATHER; out is block `rank` of in for REDUCE_SCATTER and SCATTER. Otherwise they must not
 * overlap.
 * Owns:    borrows all buffers of the call until weft_coll_poll has returned it.
 * Errors:  WEFT_AGAIN    ops_max operations are open: poll, then retry.
 *          WEFT_INVALID  an argument is out of range or not aligned, this rank is not in the group,
 *                        or a message between two ranks would exceed chunks_max chunks of
 *                        WEFT_COLL_CHUNK_MIN bytes: with 65,536, slices over 1 GiB.
 *          WEFT_PEER     the object has failed.
 *          On an error no operation is begun. */
weft_status weft_coll_begin(struct weft_coll *coll, const struct weft_coll_call *call,
                            uint64_t now_ns);

/* Lower the deadline of the open operations with this user, as if they had been begun with a
 * shorter timeout: for one that waits for them. */
void weft_coll_limit(struct weft_coll *coll, uint64_t user, uint64_t deadline_ns);

/* Process an event of the endpoint. Owns: borrows everything in it until return. */
void weft_coll_event(struct weft_coll *coll, const struct weft_msg_event *event, uint64_t now_ns);

/* Send all messages that can be sent now. Call it after each batch of events, and after begin. */
void weft_coll_progress(struct weft_coll *coll, uint64_t now_ns);

/* Get the next completed operation, in order of completion; false if there is none. */
bool weft_coll_poll(struct weft_coll *coll, struct weft_coll_done *done_p);

/* The latest time for the next call of weft_coll_on_deadline. */
uint64_t weft_coll_deadline(const struct weft_coll *coll);
void weft_coll_on_deadline(struct weft_coll *coll, uint64_t now_ns);

/* Fail, at all ranks. The first 39 bytes of text are sent. No effect if the object has already
 * failed. */
void weft_coll_abort(struct weft_coll *coll, const char *text, uint64_t now_ns);

/* Get a connection that the driver must close: of a refused peer, or after a failure. */
bool weft_coll_take_close(struct weft_coll *coll, weft_peer *peer_p);

/* The failure; FINE if there is none. */
const struct weft_coll_failure *weft_coll_failure(const struct weft_coll *coll);

/* Format a failure as one sentence, truncated to fit. */
void weft_coll_failure_text(const struct weft_coll_failure *failure, char *text, size_t bytes);

/* Format a call, such as "all_reduce(float32 x 4194304, sum)", truncated to fit. */
void weft_coll_descriptor_text(const struct weft_coll_descriptor *d, char *text, size_t bytes);

/* Number of operations begun and not polled. */
uint32_t weft_coll_open_ops(const struct weft_coll *coll);

/* Number of connected ranks, including this one. */
uint32_t weft_coll_ranks_up(const struct weft_coll *coll);

/* Whether a rank is, or was, connected; and the number of such ranks. */
bool weft_coll_rank_met(const struct weft_coll *coll, uint32_t rank);
uint32_t weft_coll_ranks_met(const struct weft_coll *coll);

/* Whether the group's oldest open operation waits for a message of a rank, by its index. */
bool weft_coll_waits_for(const struct weft_coll *coll, uint32_t group, uint32_t index);

/* Whether a rank has closed, or is lost: it will take part in no operation. */
bool weft_coll_has_left(const struct weft_coll *coll);

const struct weft_coll_counters *weft_coll_counters(const struct weft_coll *coll);

const char *weft_coll_kind_name(enum weft_coll_kind kind);
const char *weft_coll_type_name(enum weft_coll_type type);
const char *weft_coll_reduction_name(enum weft_coll_reduction reduction);
uint32_t weft_coll_type_bytes(enum weft_coll_type type);

#endif
