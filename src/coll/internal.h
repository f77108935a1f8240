/* The inside of coll, shared by its files. Not for others.
 *
 *     coll.c     the object: ranks, groups, events dealt out, deadlines
 *     begin.c    a call becomes an operation; when it is done
 *     send.c     which message goes next
 *     recv.c     messages of operations that are open
 *     early.c    messages of operations that this rank has not called yet
 *     reduce.c   contributions become a result; residuals
 *     control.c  messages about operations
 *     pair.c     send and recv
 *     failure.c  the end
 *     shape.c    who sends what to whom; fold.c: arithmetic; words.c: names and sentences
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
    EARLY_OPS = 32, /* operations of a group that a rank may be sent ahead of what it has entered */
    TELL_OPS = 16,  /* operations after which a rank is told, when nothing else does */
    HISTORY = 64,   /* calls of a group that are remembered, to name a mismatch */
    DATA_MAX = 56,  /* messages of data under way to one rank; the rest of 64 is for control */
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
 *     59..36  place of the operation at the receiver, as its READY said
 *     35..20  life of that place
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

/* ---- what `user` of a message says ------------------------------------------------------------- */

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
    uint32_t index; /* sends: of the receiver in the group, or its rank */
};

static inline uint64_t user_pack(struct user u)
{
    return (uint64_t)u.type << 60 | (uint64_t)u.phase << 59 | (uint64_t)u.segment << 54 |
           (uint64_t)u.life << 38 | (uint64_t)u.index << 24 | u.slot;
}

static inline struct user user_unpack(uint64_t user)
{
    return (struct user){
        .type = (enum user_type)(user >> 60),
        .phase = user >> 59 & 1,
        .segment = user >> 54 & 0x1f,
        .life = (uint16_t)(user >> 38),
        .index = user >> 24 & 0x3fff,
        .slot = (uint32_t)(user & 0xffffff),
    };
}

/* ---- the others ------------------------------------------------------------------------------ */

enum rank_state { RANK_AWAY, RANK_UP, RANK_LEFT };

struct rank {
    enum rank_state state;
    weft_peer peer; /* NONE */
    uint64_t incarnation;
    uint32_t inflight;       /* messages of data that are not confirmed */
    uint32_t early_pages;    /* of the pool there, that messages may take whose operation it has not
                            * entered as far as this end knows */
    uint32_t pool_pages;     /* of the pool here, taken by its messages */
    uint32_t early_head;     /* its messages in the pool */
    uint64_t left_ns;        /* LEFT: when that is a failure, for who waits for it */
    enum weft_msg_down down; /* LEFT: how the connection ended */
    uint32_t tell_count;     /* ENTERED and ASK that are due, of all groups */
    bool telling;            /* one of them is under way, in `note` */
    uint32_t want_next;      /* number of the next READY to it */
    uint32_t want_frontier;  /* those of its READYs before this number have come */
    uint32_t want_head;      /* of these, and of later ones, those without a send; by number */
    uint32_t wants;
    bool abort_due;
    bool close_due;
    uint8_t note[CONTROL_BYTES];
};

/* What is known of a rank in a group, and what it knows. Counts of operations, from the first. */
struct member {
    uint32_t entered;                /* by it */
    uint32_t told;                   /* it knows that this rank has entered so many */
    uint32_t untold_pages;           /* that it sent meanwhile */
    uint32_t ask_op;                 /* `ask`: the operation */
    bool tell;                       /* ENTERED is due */
    bool ask;                        /* ASK is */
    uint16_t early_pages[EARLY_OPS]; /* sent to it, of the operations from `entered` on */
};

struct group {
    uint32_t n;  /* 0 = not made yet */
    uint32_t me; /* NONE = not a member */
    uint32_t next_op;
    uint32_t members_hash;
    uint32_t *ranks;                      /* (n,) */
    uint32_t *index_of;                   /* (ranks,): NONE = not a member */
    struct member *member;                /* (ranks,) */
    struct weft_coll_descriptor *history; /* (HISTORY,) */
};

/* ---- operations ------------------------------------------------------------------------------ */

enum op_state { OP_FREE, OP_OPEN, OP_DONE };

enum { BITS_OPENED, BITS_RECEIVED, BITS_SENT };

struct op {
    enum op_state state;
    uint32_t next; /* in the list of those that are open, by age, or done */
    uint16_t life; /* of this slot */
    uint32_t number;
    uint32_t signature;
    struct weft_coll_call call;
    struct shape shape;
    struct work work;
    bool lossy;                             /* something of phase 1 may be missing */
    uint32_t divisor;                       /* of MEAN, with feedback; 0 = contributors */
    uint32_t left1[WEFT_COLL_SEGMENTS_MAX]; /* messages of phase 1 that have to arrive */
    uint32_t segments_left;                 /* of phase 1 */
    uint32_t left2;
    uint32_t unsent[PHASES][WEFT_COLL_SEGMENTS_MAX];
    bool ready[WEFT_COLL_SEGMENTS_MAX]; /* phase 2 may go */
    bool gaps[WEFT_COLL_SEGMENTS_MAX];  /* something of phase 1 is missing */
    uint32_t unsent_all;
    uint32_t unconfirmed;
    uint32_t doubts; /* messages whose receiver went before it confirmed them */
    uint32_t doubt_rank;
    bool broken;  /* the failure that makes it fail is about to be known */
    bool overdue; /* it is past its time-out; the others have been asked how far they are */
    bool waits;   /* all that it waits for have entered it: one of them has to find the late one */
    uint64_t begun_ns;
    uint64_t deadline_ns;
    uint64_t ask_ns; /* when those it waits for are asked, next */
    uint64_t ask_step_ns;
    struct weft_coll_done done;
    uint8_t nothing[2]; /* BARRIER, and a send and recv without elements: in and out */
    bool ready_due;     /* RECV: READY has to be sent */
    uint32_t ready_seq;
    uint8_t ready_bytes[CONTROL_BYTES];
    bool matched; /* SEND: with the recv in this place */
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
    bool whole;    /* closed: all of it came */
    bool complete; /* closed: at least its bound */
    uint32_t slot; /* of the operation that has taken it over; NONE */
    uint16_t life;
};

/* An expectation takes a limited number of messages. */
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
    bool *refused;                   /* (peers_max,): to be closed */
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
    uint32_t receivers; /* ranks with messages that are not confirmed */
    bool dirty;         /* there may be something to send */
    bool closes;        /* there may be a connection to close */
    uint32_t refused_count;
    struct weft_coll_failure failure;
    uint64_t abort_ns; /* when connections are closed at the latest; NEVER */
    uint8_t abort[CONTROL_BYTES];
    uint8_t describe[CONTROL_BYTES];
    bool describe_due;
    bool describe_sent;
    uint32_t describe_rank;
    uint64_t describe_ns;              /* when the answer is not waited for any more */
    struct weft_coll_failure mismatch; /* what is known until it comes */
    uint64_t now_ns;                   /* of the call in progress */
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

/* Numbers of operations wrap. */
static inline bool op_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* A tag's operation, in full: the one nearest to what this rank calls next. */
uint32_t weft_coll_op_number(const struct group *group, uint32_t low_bits);
void weft_coll_entered(struct weft_coll *c, uint32_t group, uint32_t rank, uint32_t count);
struct op *weft_coll_find(struct weft_coll *c, uint32_t group, uint32_t number);
/* An operation is late, here or at a rank that waits for this one: it fails after wait_ns, naming the
 * rank that it waits for. */
void weft_coll_late(struct weft_coll *c, struct op *op, uint64_t wait_ns);

/* ---- begin.c --------------------------------------------------------------------------------- */

uint32_t weft_coll_signature(const struct weft_coll_descriptor *d);
struct weft_coll_descriptor weft_coll_descriptor_of(const struct group *g,
                                                    const struct weft_coll_call *call);
/* Is anything left that this rank waits for, or has yet to send, from or to this one? */
bool weft_coll_op_awaits(const struct op *op, uint32_t index);
bool weft_coll_op_needs(const struct op *op, uint32_t index);
void weft_coll_op_check(struct weft_coll *c, struct op *op);
/* All of phase 1 of a segment is here. */
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
/* Where an incoming message of an operation goes. */
uint8_t *weft_coll_place(const struct op *op, uint32_t phase, uint32_t segment, uint32_t index);
/* A message that came early, now that its operation is called; false: it does not fit the call. */
bool weft_coll_fits(const struct op *op, struct tag tag, uint32_t index, uint32_t total,
                    uint32_t elem_bytes);
/* One is whole, or as whole as it will be. */
void weft_coll_arrived(struct weft_coll *c, struct op *op, uint32_t phase, uint32_t segment,
                       uint32_t index);
/* Note which grains of the own slice came. */
uint64_t *weft_coll_mask(const struct op *op, uint32_t index);
void weft_coll_mask_put(struct weft_coll *c, struct op *op, uint32_t segment, uint32_t index,
                        const uint64_t *chunk_mask, uint32_t chunk_elems, uint32_t total);
/* May what is missing of a message be missing? */
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
/* Hand what has come already to an operation that has just begun. */
void weft_coll_early_adopt(struct weft_coll *c, struct op *op);

/* ---- reduce.c -------------------------------------------------------------------------------- */

void weft_coll_residual_add(struct op *op);
void weft_coll_reduce(struct op *op, uint32_t segment);
/* What of a contribution did not arrive. */
void weft_coll_contributed(struct weft_coll *c, struct op *op, const struct weft_msg_event *event,
                           uint32_t segment, uint32_t index);
/* NULL: no chunk of it must arrive more than others. */
const uint64_t *weft_coll_critical(struct weft_coll *c, const struct op *op, uint32_t segment,
                                   uint32_t index, uint32_t chunk_elems);

/* ---- control.c ------------------------------------------------------------------------------- */

void weft_coll_tell(struct weft_coll *c, uint32_t group, uint32_t rank);
/* How far are those that it waits for, and have they called the same? They answer with ENTERED. */
void weft_coll_ask(struct weft_coll *c, const struct op *op);
/* This rank's call differs from what the message of that rank belongs to. */
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
/* Sends to that rank with READYs of it. */
void weft_coll_pair_match(struct weft_coll *c, uint32_t rank);

/* The other end. */
static inline uint32_t weft_coll_pair_rank(const struct weft_coll *c, const struct op *op)
{
    return c->group[op->call.group].ranks[op->call.peer];
}

/* ---- failure.c ------------------------------------------------------------------------------- */

/* The first one stays. */
void weft_coll_fail(struct weft_coll *c, const struct weft_coll_failure *failure);
void weft_coll_fail_rank(struct weft_coll *c, enum weft_coll_reason reason, uint32_t rank,
                         const struct op *op);

#endif
