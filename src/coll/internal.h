/* Internals of coll, shared by its files. Private.
 *
 *     coll.c     the object: ranks, groups, dispatch of events, deadlines
 *     begin.c    start and completion of operations
 *     send.c     selection of the next message to send
 *     recv.c     messages of open operations
 *     early.c    messages of operations that this rank has not called yet
 *     reduce.c   reduction of contributions; residuals
 *     control.c  control messages about operations
 *     pair.c     send and recv
 *     failure.c  failure of the object
 *     shape.c    the communication pattern; fold.c: arithmetic; error_text.c: names and texts
 *     trees.c    plans: their validation, and sums along trees
 *     box.c      all_reduce through an aggregation box (box_internal.h)
 */
#ifndef WEFT_COLL_INTERNAL_H
#define WEFT_COLL_INTERNAL_H

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "coll/coll.h"
#include "coll/shape.h"

#include <string.h>

#define NONE WEFT_COLL_NONE

enum {
    EARLY_OPS = 32,  /* number of operations of a group that may be sent to a rank ahead of the last
                      * one that it has entered */
    REPORT_OPS = 16, /* number of operations after which progress is reported to a rank, unless
                      * another message has done so */
    HISTORY = 64,    /* calls of a group that are recorded, to describe a mismatch */
    DATA_MAX = 56,   /* data messages in flight to one rank; the remaining ones of 64 are for
                      * control messages */
    PAGE_BYTES = 4096,
    QUOTA_PAGES_MIN = 16,
    CONTROL_BYTES = 112,
};

/* ---- tags ------------------------------------------------------------------------------------
 *
 *     63..60  kind of message: data, control
 *     59..50  group
 *     49..28  operation, its low bits
 *     27..16  segment
 *     15..1   signature of the call
 *     0       phase
 *
 * and of a message for a recv
 *
 *     63..60  3
 *     59..36  slot of the operation at the receiver, from its READY
 *     35..20  life of that slot
 *     19..8   segment
 *     7..0    0
 */
enum { TAG_DATA = 1, TAG_CONTROL = 2, TAG_PAIR = 3, TAG_KINDS };
enum { PAIR_SLOT_SHIFT = 36, PAIR_LIFE_SHIFT = 20, PAIR_SEGMENT_SHIFT = 8 };
enum { PAIR_SLOT_MASK = 0xffffff };
enum { TAG_KIND_SHIFT = 60, TAG_GROUP_SHIFT = 50, TAG_OP_SHIFT = 28, TAG_SEGMENT_SHIFT = 16 };
enum { TAG_GROUP_MASK = 0x3ff, TAG_OP_MASK = 0x3fffff, TAG_SEGMENT_MASK = 0xfff };

struct tag {
    uint32_t group;
    uint32_t op; /* low bits */
    uint32_t segment;
    uint32_t signature;
    uint32_t phase;
};

/* ---- content of a message's `user`
 * ------------------------------------------------------------- */

enum user_type {
    USER_IGNORE,
    USER_OP,
    USER_EARLY,
    USER_CONTROL,
    USER_NOTE,
    USER_ABORT,
    USER_READY
};

struct user {
    enum user_type type;
    uint32_t slot; /* of the operation, or of the early message */
    uint16_t life;
    uint32_t phase;
    uint32_t segment;
    uint32_t index; /* sends: index of the receiver in the group, or its rank */
};

static inline uint64_t user_pack(struct user u)
{
    return (uint64_t)u.type << 60 | (uint64_t)u.phase << 59 | (uint64_t)u.segment << 50 |
           (uint64_t)u.life << 34 | (uint64_t)u.index << 24 | u.slot;
}

static inline struct user user_unpack(uint64_t user)
{
    return (struct user){
        .type = (enum user_type)(user >> 60),
        .phase = user >> 59 & 1,
        .segment = user >> 50 & 0x1ff,
        .life = (uint16_t)(user >> 34),
        .index = user >> 24 & 0x3ff,
        .slot = (uint32_t)(user & 0xffffff),
    };
}

/* ---- the other ranks ------------------------------------------------------------------------- */

enum rank_state { RANK_AWAY, RANK_UP, RANK_LEFT };

struct rank {
    enum rank_state state;
    weft_peer peer; /* NONE */
    uint64_t incarnation;
    uint32_t inflight;       /* data messages that are not acknowledged */
    uint32_t early_pages;    /* pages of the receiver's pool that messages may occupy whose
                              * operation it has not entered, as far as this end knows */
    uint32_t pool_pages;     /* pages of this rank's pool occupied by its messages */
    uint32_t early_head;     /* its messages in the pool */
    uint64_t left_ns;        /* LEFT: time at which this counts as a failure for operations that
                              * wait for the rank */
    enum weft_msg_down down; /* LEFT: reason for the end of the connection */
    uint32_t notes_due;      /* ENTERED and ASK messages that are due, over all groups */
    bool note_in_flight;     /* one of these messages is in flight, in `note` */
    uint32_t want_next;      /* number of the next READY to it */
    uint32_t want_frontier;  /* all READYs of the rank before this number have arrived */
    uint32_t want_head;      /* READYs, including later ones, that have no send yet; ordered by
                              * number */
    uint32_t wants;
    bool abort_due;
    bool close_due;
    uint8_t note[CONTROL_BYTES];
};

/* State of a rank in a group, as known to this rank. Operations are counted from the first. */
struct member {
    uint32_t entered;                /* number of operations that it has entered */
    uint32_t reported;               /* number of operations of this rank that it knows were
                                      * entered */
    uint32_t unreported_pages;       /* pages that it sent since the last report */
    uint32_t ask_op;                 /* `ask`: the operation */
    bool entered_due;                /* ENTERED is due */
    bool ask;                        /* ASK is due */
    uint16_t early_pages[EARLY_OPS]; /* pages sent to it, for the operations from `entered` on */
};

struct group {
    uint32_t n;  /* 0 = not created yet */
    uint32_t me; /* NONE = not a member */
    uint32_t next_op;
    uint32_t members_hash;
    const struct weft_coll_plan *plan; /* NULL = equal slices */
    uint32_t plan_hash;                /* 0 without a plan */
    uint32_t *ranks;                      /* (n,) */
    uint32_t *index_of;                   /* (ranks,): NONE = not a member */
    struct member *member;                /* (ranks,) */
    struct weft_coll_descriptor *history; /* (HISTORY,) */
};

/* ---- operations ------------------------------------------------------------------------------ */

enum op_state { OP_FREE, OP_OPEN, OP_DONE };

enum { BITS_OPENED, BITS_RECEIVED, BITS_SENT };

struct op_segment {
    uint32_t left1;          /* messages of phase 1 that have not arrived */
    uint32_t unsent[PHASES]; /* messages */
    bool ready;              /* phase 2 may be sent */
    bool gaps;               /* parts of phase 1 are missing */
    bool direct; /* the other rank's contribution is reduced chunk by chunk, as it arrives, instead
                  * of being staged */
    bool sums;   /* TREES: this rank sends the sum of several ranks, in `out` */
};

struct op {
    enum op_state state;
    uint32_t next; /* next in the list of open operations, by age, or of done ones */
    uint16_t life; /* number of earlier operations in this slot */
    uint32_t number;
    uint32_t signature;
    struct weft_coll_call call;
    struct shape shape;
    struct work work;
    bool lossy;                             /* parts of phase 1 may be missing */
    uint32_t divisor;                       /* of MEAN, with feedback; 0 = contributors */
    uint32_t segments_left;                 /* of phase 1 */
    uint32_t left2;
    struct op_segment *segment; /* (segments,): own_segment, or in the call's work */
    struct op_segment own_segment[WEFT_COLL_SEGMENTS_MAX];
    uint32_t unsent_all;
    uint32_t unconfirmed;
    uint32_t unknown; /* messages with outcome UNKNOWN: their receiver left without an
                       * acknowledgement */
    uint32_t unknown_rank; /* that receiver; NONE */
    bool broken;  /* the operation will fail; the reason is not known yet */
    bool overdue; /* its timeout has expired; the other ranks have been queried for their
                   * progress */
    bool all_entered; /* all ranks that the operation waits for have entered it, and one of them
                       * must report the late rank */
    uint64_t begun_ns;
    uint64_t deadline_ns;
    uint64_t ask_ns; /* next time to query the ranks that it waits for */
    uint64_t ask_step_ns;
    struct weft_coll_done done;
    uint8_t nothing[2]; /* BARRIER, and send and recv without elements: in and out */
    bool ready_due;     /* RECV: READY must be sent */
    uint32_t ready_seq;
    uint8_t ready_bytes[CONTROL_BYTES];
    bool matched; /* SEND: matched with the recv in this slot */
    uint32_t far_slot;
    uint16_t far_life;
};

/* A READY: a rank has called recv. */
struct want {
    uint32_t next; /* of its rank, or free */
    uint32_t seq;
    uint32_t group;
    uint32_t slot;
    uint16_t life;
    struct weft_coll_descriptor called;
};

struct early {
    bool used;
    bool closed;
    uint32_t next; /* of its rank, or free */
    uint32_t rank;
    uint32_t group;
    uint32_t number;
    struct tag tag;
    uint32_t total;
    uint32_t chunk_elems;
    uint32_t elem_bytes;
    uint32_t pages;
    uint32_t page_first;
    bool whole;    /* closed: complete */
    bool complete; /* closed: at least its bound arrived */
    uint32_t slot; /* slot of the operation that owns it; NONE */
    uint16_t life;
};

/* A posted receive accepts a limited number of messages. */
struct posted {
    weft_expect_id id;
    uint32_t taken;
};

struct weft_coll {
    struct weft_coll_config config;
    struct weft_msgr msgr;
    struct posted posted[TAG_KINDS]; /* by kind of message */
    struct rank *rank;               /* (ranks,) */
    uint32_t *rank_of;               /* (peers_max,): NONE */
    bool *refused;                   /* (peers_max,): must be closed */
    struct group *group;             /* (groups_max,) */
    uint32_t groups;
    struct op *op; /* (ops_max,) */
    uint32_t open_head, open_tail;
    uint32_t done_head, done_tail;
    uint32_t ops_used;
    uint64_t *critical; /* a mask for send */
    uint8_t *pool;
    uint32_t *page_next; /* (pages,) */
    uint32_t page_free;
    uint32_t pages_used;
    uint32_t pages;
    uint32_t quota_pages; /* of each rank */
    struct early *early;  /* (pages,) */
    uint32_t early_free;
    struct want *want; /* (ranks x ops_max,) */
    uint32_t want_free;
    uint32_t receivers; /* ranks with unacknowledged messages */
    bool dirty;         /* there may be messages to send */
    bool closes;        /* there may be a connection to close */
    uint32_t refused_count;
    struct weft_coll_failure failure;
    uint64_t abort_ns; /* latest time to close connections; NEVER */
    uint8_t abort[CONTROL_BYTES];
    uint8_t describe[CONTROL_BYTES];
    bool describe_due;
    bool describe_sent;
    uint32_t describe_rank;
    uint64_t describe_ns;              /* time at which the wait for the reply ends */
    struct weft_coll_failure mismatch; /* the known part, until the reply arrives */
    uint64_t now_ns;                   /* of the current call */
    struct weft_coll_counters counters;
};

static inline bool coll_failed(const struct weft_coll *c)
{
    return c->failure.reason != WEFT_COLL_FINE;
}

static inline uint64_t *op_bits(const struct op *op, uint32_t phase, int which)
{
    return (uint64_t *)((uint8_t *)op->call.work + op->work.bits[phase][which]);
}

static inline uint32_t op_bit(const struct op *op, uint32_t segment, uint32_t index)
{
    return segment * op->shape.n + index;
}

static inline uint64_t pages_for(uint64_t elems, uint32_t elem_bytes)
{
    uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
    uint64_t bytes = elems * elem_bytes + 8 + WEFT_BITS_WORDS(grains) * sizeof(uint64_t);
    return weft_div_ceil_u64(bytes, PAGE_BYTES);
}

/* ---- coll.c ---------------------------------------------------------------------------------- */

/* Operation numbers wrap around. */
static inline bool op_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* Expand the operation number of a tag: the result is the one closest to this rank's next
 * operation. */
uint32_t weft_coll_op_number(const struct group *group, uint32_t low_bits);
void weft_coll_entered(struct weft_coll *c, uint32_t group, uint32_t rank, uint32_t count);
struct op *weft_coll_find(struct weft_coll *c, uint32_t group, uint32_t number);
/* An operation is late, at this rank or at a rank that waits for this one. It fails after wait_ns,
 * and the error names the rank that it waits for. */
void weft_coll_late(struct weft_coll *c, struct op *op, uint64_t wait_ns);

/* ---- begin.c --------------------------------------------------------------------------------- */

uint32_t weft_coll_signature(const struct weft_coll_descriptor *d);
struct weft_coll_descriptor weft_coll_descriptor_of(const struct group *g,
                                                    const struct weft_coll_call *call);
/* Whether the operation still has to receive from, or send to, this rank. */
bool weft_coll_op_awaits(const struct op *op, uint32_t index);
bool weft_coll_op_needs(const struct op *op, uint32_t index);
void weft_coll_op_check(struct weft_coll *c, struct op *op);
/* All of phase 1 of a segment has arrived. */
void weft_coll_segment_here(struct weft_coll *c, struct op *op, uint32_t segment);

/* ---- send.c ---------------------------------------------------------------------------------- */

void weft_coll_send_all(struct weft_coll *c);
void weft_coll_sent(struct weft_coll *c, const struct weft_msg_event *event, struct user user,
                    uint32_t rank);

/* ---- recv.c ---------------------------------------------------------------------------------- */

uint64_t weft_coll_tag_pack(uint32_t kind, struct tag tag);
struct tag weft_coll_tag_unpack(uint64_t tag);
void weft_coll_data_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event);
void weft_coll_data_chunk(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event);
void weft_coll_data_received(struct weft_coll *c, uint32_t rank,
                             const struct weft_msg_event *event);
/* Destination of an incoming message of an operation. */
uint8_t *weft_coll_place(const struct op *op, uint32_t phase, uint32_t segment, uint32_t index);
/* Store data of an incoming message of an operation, or reduce it. at: its offset in the message,
 * in bytes. Once for each byte. */
void weft_coll_land(struct op *op, uint32_t phase, uint32_t segment, uint32_t index, uint64_t at,
                    const uint8_t *data, uint64_t bytes);
/* Whether a message that arrived early fits the call of its operation. */
bool weft_coll_fits(const struct op *op, struct tag tag, uint32_t index, uint32_t total,
                    uint32_t elem_bytes);
/* A message is complete, or closed with chunks missing. */
void weft_coll_arrived(struct weft_coll *c, struct op *op, uint32_t phase, uint32_t segment,
                       uint32_t index);
/* Bitmap of the grains of this rank's slice that were received, and its update for one message. */
uint64_t *weft_coll_mask(const struct op *op, uint32_t index);
void weft_coll_mask_put(struct weft_coll *c, struct op *op, uint32_t segment, uint32_t index,
                        const uint64_t *chunk_mask, uint32_t chunk_elems, uint32_t total);
/* Whether the missing chunks of a message are within the allowed loss. */
bool weft_coll_missing_valid(const struct op *op, uint32_t phase, bool whole, bool complete,
                             uint32_t chunk_elems);

/* ---- early.c --------------------------------------------------------------------------------- */

weft_status weft_coll_early_init(struct weft_coll *c);
void weft_coll_early_fini(struct weft_coll *c);
void weft_coll_early_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event,
                          struct tag tag, uint32_t number);
void weft_coll_early_chunk(struct weft_coll *c, uint32_t slot, const struct weft_msg_event *event);
void weft_coll_early_received(struct weft_coll *c, uint32_t slot,
                              const struct weft_msg_event *event);
/* Deliver early messages to an operation that has just begun. */
void weft_coll_early_adopt(struct weft_coll *c, struct op *op);

/* ---- reduce.c -------------------------------------------------------------------------------- */

void weft_coll_residual_add(struct op *op);
void weft_coll_reduce(struct op *op, uint32_t segment);
/* Reduce elements [at, at + elems) of a direct segment: this rank's, and the other's in `data`,
 * which need not be aligned. Once for each element. */
void weft_coll_reduce_chunk(struct op *op, uint32_t segment, uint64_t at, uint64_t elems,
                            const uint8_t *data);
/* Account for the elements of a contribution that did not arrive. */
void weft_coll_contributed(struct weft_coll *c, struct op *op, const struct weft_msg_event *event,
                           uint32_t segment, uint32_t index);
/* Mask of the chunks that must arrive; NULL if there are none. */
const uint64_t *weft_coll_critical(struct weft_coll *c, const struct op *op, uint32_t segment,
                                   uint32_t index, uint32_t chunk_elems);

/* ---- trees.c --------------------------------------------------------------------------------- */

bool weft_coll_plan_valid(const struct weft_coll_plan *plan, uint32_t n);
uint32_t weft_coll_plan_hash(const struct weft_coll_plan *plan);
/* Destination of the sum from child `index`. */
uint8_t *weft_coll_trees_place(const struct op *op, uint32_t segment, uint32_t index);
bool weft_coll_trees_root(const struct op *op, uint32_t segment);
/* After its messages were counted. */
void weft_coll_trees_start(struct op *op);
/* All sums of the children have arrived: add them to this rank's contribution. */
void weft_coll_trees_reduce(struct op *op, uint32_t segment);

static inline bool op_has_trees(const struct op *op)
{
    return op->shape.slices == SLICES_TREES;
}

/* ---- control.c ------------------------------------------------------------------------------- */

void weft_coll_tell(struct weft_coll *c, uint32_t group, uint32_t rank);
/* Query the ranks that the operation waits for: their progress and their call. They reply with
 * ENTERED. */
void weft_coll_ask(struct weft_coll *c, const struct op *op);
/* This rank's call differs from the call that a rank's message belongs to. */
void weft_coll_mismatch(struct weft_coll *c, uint32_t rank, uint32_t group, uint32_t number);
void weft_coll_control_send(struct weft_coll *c);
void weft_coll_control_recv(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event);
void weft_coll_control_sent(struct weft_coll *c, struct user user, uint32_t rank,
                            enum weft_msg_outcome outcome);
void weft_coll_abort_pack(struct weft_coll *c);

/* ---- pair.c ---------------------------------------------------------------------------------- */

weft_status weft_coll_pair_init(struct weft_coll *c);
void weft_coll_pair_fini(struct weft_coll *c);
void weft_coll_pair_begin(struct weft_coll *c, struct op *op);
uint64_t weft_coll_pair_tag(const struct op *op, uint32_t segment);
void weft_coll_pair_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event);
void weft_coll_pair_ready(struct weft_coll *c, uint32_t rank, const struct want *want);
/* Match sends to that rank with its READYs. */
void weft_coll_pair_match(struct weft_coll *c, uint32_t rank);

/* The rank at the other end. */
static inline uint32_t weft_coll_pair_rank(const struct weft_coll *c, const struct op *op)
{
    return c->group[op->call.group].ranks[op->call.peer];
}

/* ---- failure.c ------------------------------------------------------------------------------- */

/* Record a failure. Only the first one is kept. */
void weft_coll_fail(struct weft_coll *c, const struct weft_coll_failure *failure);
void weft_coll_fail_rank(struct weft_coll *c, enum weft_coll_reason reason, uint32_t rank,
                         const struct op *op);

#endif
