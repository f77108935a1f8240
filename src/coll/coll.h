/* Collective operations between the ranks of a job: all_reduce and its relatives, with bounded loss.
 *
 * A sans-I/O state machine over a transport (core/msg.h): it is fed every event polled from the
 * endpoint and sends through the same msgr. It makes no system call, reads no clock, prints nothing,
 * and allocates only in weft_coll_new: the memory that an operation needs beyond its own buffers is
 * given with the call. One thread owns it, and the endpoint.
 *
 *     on every event:  weft_coll_event;  after a batch: weft_coll_progress, then weft_coll_poll until
 *     there is nothing, and weft_coll_take_close;  when weft_coll_deadline has come:
 *     weft_coll_on_deadline.
 *
 * Connections are the driver's: between each two ranks the higher one connects, with the name that
 * weft_coll_name gives in its HELLO. A name holds the job's epoch, so a process of an earlier start
 * is not mistaken for its successor.
 *
 * all_reduce is a transpose. Rank j owns slice j: everyone sends slice j to j (phase 1), j reduces
 * the contributions in the order of the ranks, and returns the result to all (phase 2). Only phase 1
 * takes the loss bound, so a missing chunk is just one rank's contribution to it; phase 2 is whole
 * always, and the owner uses the bytes that it sends, so all ranks end with equal bits. Other kinds
 * are one phase or both, with other slices.
 *
 * Operations of a group match by the order in which each rank calls them. A call that does not agree
 * with another rank's is found out by a signature in the tag of its messages. Send and recv stand
 * outside that order: the n-th send of a rank to another with a tag matches the n-th recv with it.
 *
 * A rank that dies, or calls something else, or does not call in time, ends the whole object: all
 * operations at all ranks fail, and all say which rank it was (struct weft_coll_failure).
 *
 * Source: docs/COLLECTIVES.md; [apnet19] section 3.2, idea 2.
 */
#ifndef WEFT_COLL_COLL_H
#define WEFT_COLL_COLL_H

#include "core/msg.h"

#include <stdbool.h>

struct weft_coll;

enum {
    WEFT_COLL_RANKS_MAX = 1024,
    WEFT_COLL_GROUPS_MAX = 1024,
    WEFT_COLL_OPS_MAX = 256,
    WEFT_COLL_SEGMENTS_MAX = 16,
    WEFT_COLL_GRAIN = 32,       /* elements: slices and counts of contributors are made of these */
    WEFT_COLL_ALIGN = 64,       /* bytes, of `work` */
    WEFT_COLL_CHUNK_MIN = 1024, /* bytes that every chunk has room for */
};

#define WEFT_COLL_NONE      UINT32_MAX
#define WEFT_COLL_EPOCH_MAX ((UINT64_C(1) << 40) - 1)

enum weft_coll_kind {
    WEFT_COLL_ALL_REDUCE,     /* count: of the vector */
    WEFT_COLL_REDUCE,         /* the same; only the root has the result */
    WEFT_COLL_REDUCE_SCATTER, /* count: of a block; in has n of them, out is the own one */
    WEFT_COLL_ALL_GATHER,     /* count: of a block; in is the own one, out has n */
    WEFT_COLL_BROADCAST,      /* count: of the vector; in at the root, out at all */
    WEFT_COLL_GATHER,         /* as ALL_GATHER; only the root has an out */
    WEFT_COLL_SCATTER,        /* count: of a block; in has n of them, at the root */
    WEFT_COLL_ALL_TO_ALL,     /* count: of a block; in and out have n of them */
    WEFT_COLL_BARRIER,        /* no buffers */
    WEFT_COLL_SEND,           /* count: of the vector; in, to `peer`, with `tag` */
    WEFT_COLL_RECV,           /* the other end: out */
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
    WEFT_COLL_SUM, /* integers wrap */
    WEFT_COLL_MEAN, /* floats only; divided by the contributors of each grain, or by n with feedback */
    WEFT_COLL_MIN, /* NaN if any contribution is */
    WEFT_COLL_MAX,
    WEFT_COLL_PRODUCT,
    WEFT_COLL_AND, /* bitwise, integers only; so are the next two */
    WEFT_COLL_OR,
    WEFT_COLL_XOR,
    WEFT_COLL_REDUCTIONS
};

/* All ranks must have the same values, but for rank. */
struct weft_coll_config {
    uint32_t rank;
    uint32_t ranks;         /* 1 .. WEFT_COLL_RANKS_MAX */
    uint64_t epoch;         /* of this start of the job; 0 .. WEFT_COLL_EPOCH_MAX */
    uint32_t peers_max;     /* of the endpoint */
    uint32_t chunks_max;    /* of the endpoint: longest message, in chunks */
    uint32_t groups_max;    /* the group of all ranks included */
    uint32_t ops_max;       /* operations at a time, all groups together */
    uint64_t pool_bytes;    /* memory for what other ranks send ahead of this one's calls; at least
                             * 64 KiB for each of them */
    uint32_t segment_bytes; /* least size of a segment's message between two ranks */
    uint32_t small_bytes;   /* longest vector that all send to all, up to small_ranks ranks */
    uint32_t small_ranks;
    uint32_t receivers_max; /* ranks that are sent to at a time; 0 = no limit */
    uint64_t abort_ns;      /* what telling the others of a failure may take before connections are
                             * closed; half of it is what news of a failure may take after a CLOSE;
                             * and twice it how long an operation waits before it asks why */
};

/* One operation as this rank calls it. */
struct weft_coll_call {
    enum weft_coll_kind kind;
    enum weft_coll_type type;
    enum weft_coll_reduction reduction;
    uint32_t group;
    uint32_t root; /* index within the group */
    uint32_t peer; /* SEND, RECV: the other end, an index within the group, not this rank's */
    uint32_t
        tag; /* SEND, RECV: of two ranks' calls those with the same tag match, in their order */
    uint64_t count; /* elements; of what: see the kind. 0 = nothing to do, for all ranks; but a send
                     * of nothing matches a recv of nothing, as others do */
    const void *in; /* aligned to its elements, borrowed until done, as all of these */
    void *out;      /* may be in where the kind says so: see weft_coll_begin */
    uint32_t
        bound_ppm;   /* reducing kinds: fraction of phase 1's chunks that may be missing, < 10^6 */
    uint32_t stream; /* calls with the same number pass on the fraction of a chunk that the bound
                          * leaves (core/bound.h): one for each gradient bucket, say */
    float *residual; /* F32, reducing kinds: error feedback. As long as in; what was missing of
                          * earlier calls, added to in, replaced by what is missing of this one.
                          * NULL = none */
    uint8_t *missed; /* with residual: weft_coll_missed_bytes bytes, zero at first: how often each
                          * grain was missing running; twice, and it must arrive. NULL = not counted */
    uint64_t timeout_ns; /* from begin; then the object fails within 2 abort_ns, naming who is late.
                     * WEFT_NEVER = none */
    void *work;    /* weft_coll_work_bytes bytes, aligned to WEFT_COLL_ALIGN; NULL when that is 0 */
    uint64_t user; /* returned in done */
};

/* What a call is, as other ranks are told of it. */
struct weft_coll_descriptor {
    uint8_t kind;
    uint8_t type;
    uint8_t reduction;
    uint8_t feedback;
    uint32_t root; /* SEND, RECV: the tag */
    uint32_t bound_ppm;
    uint32_t members; /* hash of the group's ranks and of what must be configured alike */
    uint64_t count;
};

struct weft_coll_done {
    uint64_t user;
    weft_status status;        /* OK, or PEER: weft_coll_failure says why */
    uint64_t own_missing;      /* elements of this rank's contribution that did not arrive */
    uint32_t contributors_min; /* of any grain of the slice that this rank reduced; n elsewhere */
    uint64_t nonfinite;        /* values of the residual that were NaN or infinite, and became 0 */
    uint64_t phase1_ns; /* from begin until all of phase 1 had arrived here; 0: there is none */
    uint64_t total_ns;  /* from begin until done */
};

enum weft_coll_reason {
    WEFT_COLL_FINE,
    WEFT_COLL_DOWN,     /* the connection with the rank broke; `down` says how */
    WEFT_COLL_LEFT,     /* the rank closed its connection, and something of it is missing */
    WEFT_COLL_TIMEOUT,  /* it did not enter the operation, or did not finish its part, in time */
    WEFT_COLL_MISMATCH, /* it called something else: `called` */
    WEFT_COLL_PROTOCOL, /* it sent what a correct rank does not send */
    WEFT_COLL_TOO_LONG, /* a message would have more chunks than the endpoint takes: the own rank */
    WEFT_COLL_ABORTED,  /* its program called weft_coll_abort */
    WEFT_COLL_REASONS
};

/* Why the object failed: the same at all ranks that hear of it before another failure of their own. */
struct weft_coll_failure {
    enum weft_coll_reason reason;
    uint32_t rank;  /* whose fault it is */
    uint32_t by;    /* the rank that noticed */
    uint32_t group; /* WEFT_COLL_NONE: no operation was open */
    uint32_t op;    /* the group's operation number, from 0; NONE: a send or a recv */
    enum weft_msg_down down;
    bool entered;     /* TIMEOUT: the rank has entered the operation */
    uint32_t last_op; /* TIMEOUT: the last operation it is known to have entered; NONE */
    bool has_called; /* MISMATCH: called[0] is what `rank` called, called[1] what `by` did; that one
                       * is known of a send or recv that is late, too */
    struct weft_coll_descriptor called[2];
    char text[40]; /* ABORTED: what the program said */
};

/* Cumulative. */
struct weft_coll_counters {
    uint64_t begun;
    uint64_t done;             /* of these, with status OK */
    uint64_t messages_sent;    /* data */
    uint64_t bytes_sent;       /* of these */
    uint64_t elements_missing; /* of contributions to what this rank reduced */
    uint64_t elements_unsent;  /* own contributions that did not arrive */
    uint64_t nonfinite;        /* values of residuals that became 0 */
    uint64_t early_messages;   /* arrived before this rank had called their operation */
    uint64_t early_pages_max;  /* of the pool */
    uint64_t told;             /* messages that said how far this rank is */
    uint64_t
        peers_refused; /* connections of another epoch, of no rank, or of one that has another */
    uint64_t ignored;  /* messages after a failure, or from connections that were refused */
};

/* 1,024 peers, 16 groups, 64 operations, 64 MiB of pool, segments of 64 KiB, small up to 1,408 bytes
 * and 16 ranks, 8 receivers at a time, 1 s; rank, ranks and epoch are left to fill in. */
void weft_coll_config_default(struct weft_coll_config *config_p);

/* For name of the endpoint's configuration. */
uint64_t weft_coll_name(uint64_t epoch, uint32_t rank);

/* Expectations that it posts at most: for expects_max of its endpoint. */
enum { WEFT_COLL_EXPECTS = 3 };

/* Group 0, all ranks, exists from now on.
 * Owns:    gives *coll_p; allocates all memory it will use.
 * Errors:  WEFT_INVALID, WEFT_NOMEM; those of expect. */
weft_status weft_coll_new(const struct weft_coll_config *config, struct weft_msgr msgr,
                          struct weft_coll **coll_p);

/* The endpoint must not progress afterwards. NULL is fine. */
void weft_coll_free(struct weft_coll *coll);

/* A group of ranks, in this order. All ranks of the job must make their groups in the same order,
 * those that are not members, too.
 * Errors:  WEFT_INVALID  a rank is out of range or named twice. WEFT_NOMEM  groups_max. */
weft_status weft_coll_group(struct weft_coll *coll, const uint32_t *ranks, uint32_t n,
                            uint32_t *group_p);

/* Bytes that a call needs in `work` and in `missed`; 0 for a call that begin would refuse. */
size_t weft_coll_work_bytes(const struct weft_coll *coll, const struct weft_coll_call *call);
size_t weft_coll_missed_bytes(const struct weft_coll *coll, const struct weft_coll_call *call);

/* What is wrong with a call of member `me` of a group of n ranks, in words without a full stop; NULL when
 * nothing is. The group itself is not looked at. Thread: any. */
const char *weft_coll_call_check(const struct weft_coll_config *config,
                                 const struct weft_coll_call *call, uint32_t n, uint32_t me);

/* Begin an operation.
 *
 * In place: out == in for ALL_REDUCE, REDUCE, BROADCAST; in is block `rank` of out for ALL_GATHER and
 * GATHER; out is block `rank` of in for REDUCE_SCATTER and SCATTER. Else they must not overlap.
 * Owns:    borrows all buffers of the call until weft_coll_poll has returned it.
 * Errors:  WEFT_AGAIN    ops_max operations are open: poll, then try again.
 *          WEFT_INVALID  an argument is out of range or not aligned, this rank is not in the group, or
 *                        a message between two ranks would be longer than chunks_max chunks of
 *                        WEFT_COLL_CHUNK_MIN bytes: with 65,536, slices over 1 GiB.
 *          WEFT_PEER     the object has failed.
 *          Nothing is begun. */
weft_status weft_coll_begin(struct weft_coll *coll, const struct weft_coll_call *call,
                            uint64_t now_ns);

/* Take an event of the endpoint. Owns: borrows everything in it until return. */
void weft_coll_event(struct weft_coll *coll, const struct weft_msg_event *event, uint64_t now_ns);

/* Send what can be sent. After each batch of events, and after begin. */
void weft_coll_progress(struct weft_coll *coll, uint64_t now_ns);

/* The next operation that is done, in the order of their ends; false when there is none. */
bool weft_coll_poll(struct weft_coll *coll, struct weft_coll_done *done_p);

/* When on_deadline must be called at the latest. */
uint64_t weft_coll_deadline(const struct weft_coll *coll);
void weft_coll_on_deadline(struct weft_coll *coll, uint64_t now_ns);

/* Fail, at all ranks; of text the first 39 bytes are told. Nothing when it has failed already. */
void weft_coll_abort(struct weft_coll *coll, const char *text, uint64_t now_ns);

/* A connection for the driver to close: of a peer that is refused, or after a failure. */
bool weft_coll_take_close(struct weft_coll *coll, weft_peer *peer_p);

/* FINE as long as nothing has failed. */
const struct weft_coll_failure *weft_coll_failure(const struct weft_coll *coll);

/* One sentence in English, cut to fit. */
void weft_coll_failure_text(const struct weft_coll_failure *failure, char *text, size_t bytes);

/* "all_reduce(float32 x 4194304, sum)", cut to fit. */
void weft_coll_descriptor_text(const struct weft_coll_descriptor *d, char *text, size_t bytes);

/* Operations that are begun and not polled. */
uint32_t weft_coll_open_ops(const struct weft_coll *coll);

/* Ranks connected, this one included; and whether one is. */
uint32_t weft_coll_ranks_up(const struct weft_coll *coll);
bool weft_coll_rank_is_up(const struct weft_coll *coll, uint32_t rank);

const struct weft_coll_counters *weft_coll_counters(const struct weft_coll *coll);

const char *weft_coll_kind_name(enum weft_coll_kind kind);
const char *weft_coll_type_name(enum weft_coll_type type);
const char *weft_coll_reduction_name(enum weft_coll_reduction reduction);
uint32_t weft_coll_type_bytes(enum weft_coll_type type);

#endif
