/* Private state of an aggregator, shared by aggregator.c (lifecycle, peers, tables, replies),
 * aggregator_push.c (pushes), aggregator_clock.c (ended clocks), aggregator_child.c (sums of
 * aggregators below), aggregator_group.c (sums, and sending them up), aggregator_rows.c (their
 * rows), aggregator_parent.c (messages to an aggregator above), aggregator_pull.c (pulls),
 * aggregator_fetch.c (rows that pulls lack), aggregator_cache.c (cached rows) and
 * aggregator_record.c (records). Internal to these files.
 *
 * In these files "the shard" is the process that this aggregator is connected to: the shard itself
 * or the parent. "Below" are the connected workers and children, and the aggregators below those
 * children. */
#ifndef WEFT_PS_AGGREGATOR_INTERNAL_H
#define WEFT_PS_AGGREGATOR_INTERNAL_H

#include "base/bits.h"
#include "ps/aggregator.h"
#include "ps/id_sort.h"
#include "ps/layout.h"
#include "ps/row_store.h"

#include <string.h>

#define AGG_NONE UINT32_MAX

/* Groups of ended clocks: open or in flight. */
enum { AGG_ENDS_MAX = 8 };

/* Slots of a group's index of rows. */
enum { AGG_INDEX_SLOTS = 2 * WEFT_AGGREGATE_ROWS_MAX };

/* `user` of a message or expectation: one of these plus an index, which is named beside each. */
#define AGG_USER_MASK   (UINT64_C(0xff) << 40)
#define AGG_USER_PUSH   (UINT64_C(1) << 40) /* slot */
#define AGG_USER_TABLE  (UINT64_C(2) << 40) /* rank */
#define AGG_USER_ANSWER (UINT64_C(3) << 40) /* answer */
#define AGG_USER_GROUP  (UINT64_C(4) << 40) /* group */
#define AGG_USER_PULL   (UINT64_C(5) << 40) /* pull */
#define AGG_USER_FETCH  (UINT64_C(6) << 40) /* fetch */
#define AGG_USER_CHILD  (UINT64_C(7) << 40) /* struct agg_below */
#define AGG_USER_PARENT (UINT64_C(8) << 40) /* table */
#define AGG_USER_CLOCK  (UINT64_C(9) << 40) /* rank */

/* A rank is that of a worker, or workers_max plus the number of a child. */

/* Buffer of one reply to a PUSH, a CLOCK or an AGGREGATE. Allocated when the request's buffer is
 * posted, so that a reply is always possible. */
struct agg_answer {
    uint32_t rank;
    uint32_t life; /* generation of the rank's connection */
    uint8_t op;
    uint16_t table;
    uint32_t rpc_id;
    uint64_t t0_ns;
    uint32_t pushes; /* in the request; this and the next three: for its record, not of a CLOCK */
    uint32_t rows;
    uint64_t message_bytes;
    uint64_t arrival_ns;
    bool is_first; /* acknowledges a push on apply; another answer follows, with op COMMITTED */
    uint32_t next; /* next in the free or ready list */
    uint8_t bytes[WEFT_RPC_REPLY_BYTES];
};

enum agg_slot_state { AGG_SLOT_IDLE, AGG_SLOT_POSTED, AGG_SLOT_OPEN };

/* Buffer of one incoming PUSH. */
struct agg_slot {
    enum agg_slot_state state;
    bool dead; /* the remaining chunks are ignored */
    bool head_seen;
    bool stale;    /* belongs to a connection that is down */
    uint64_t *why; /* dead: the counter of the reason */
    uint32_t rank;
    uint32_t answer;
    weft_expect_id expect;
    uint16_t table;
    uint32_t clock;
    uint8_t id_bytes;
    struct weft_rpc_request request;
    uint32_t rows;
    uint64_t opened_ns; /* its first chunk arrived */
    uint64_t bytes;     /* of the message */
    uint8_t *memory; /* ids of as many rows as fit, u64; then their values, float32 */
};

enum {
    AGG_TABLE_REQUEST_BYTES =
        WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_AGGREGATE_SHARD_BYTES,
    AGG_CHILD_TABLE_BYTES = AGG_TABLE_REQUEST_BYTES + WEFT_AGGREGATE_BELOW_BYTES,
    AGG_BELOW_WORDS = WEFT_AGGREGATE_NUMBERS_MAX / 64,
};

/* Buffer of one incoming AGGREGATE of a child. */
struct agg_below {
    enum agg_slot_state state;
    bool stale; /* belongs to a connection that is down */
    uint32_t rank;
    uint32_t answer;
    weft_expect_id expect;
    uint8_t *memory; /* (WEFT_AGGREGATE_BYTES_MAX,) */
};

/* Buffer of one incoming CLOCK of a worker. */
struct agg_clock {
    enum agg_slot_state state;
    bool stale; /* belongs to a connection that is down */
    uint32_t answer;
    weft_expect_id expect;
    uint8_t memory[WEFT_RPC_REQUEST_BYTES];
};

struct agg_worker {
    bool up;
    weft_peer peer;
    uint32_t life;
    uint64_t incarnation;
    bool table_posted;
    bool table_stale; /* the TABLE in progress belongs to an earlier connection */
    bool table_busy;  /* a TABLE is arriving, or its reply is being sent */
    bool table_due;   /* busy, and the transport has not accepted the reply yet */
    weft_expect_id table_expect;
    uint8_t table_request[AGG_CHILD_TABLE_BYTES];
    uint8_t table_answer[WEFT_RPC_REPLY_BYTES];
    uint64_t table_tag; /* of the reply */
    uint64_t below[AGG_BELOW_WORDS]; /* child: bitmap of aggregators below it, from its last
                                      * TABLE */
    uint64_t used_ns;                /* child: time of its last request */
    struct agg_clock clock;          /* worker: its CLOCK */
    uint64_t rival_ns; /* child: time since when another process requests its number; 0 = none */
};

enum agg_parent_state { AGG_PARENT_NONE, AGG_PARENT_ASKED, AGG_PARENT_OPEN, AGG_PARENT_REFUSED };

/* State of one table at the parent. */
struct agg_parent {
    enum agg_parent_state state;
    bool open;        /* the parent accepts sums, also while TABLE is repeated */
    bool was_refused; /* workers were refused this table */
    bool unsaid;      /* `request` is complete but not sent yet */
    bool sending;     /* the transport is sending `request` */
    bool expected;
    weft_expect_id expect;
    uint32_t rpc_id;
    bool is_awaited;   /* accepted, not open below, and idle_ns not reached */
    bool waits;        /* a TABLE is due, but not before retry_ns */
    uint64_t retry_ns; /* refused: no TABLE before this time */
    uint64_t idle_ns;  /* accepted after a refusal: the disconnected workers and children have until
                        * this  time to open the table */
    uint64_t process;  /* incarnation of the shard in the last TABLE */
    uint64_t answers;  /* incarnation of the shard for which the parent answers pulls;
                        * 0 = none */
    uint64_t below[AGG_BELOW_WORDS]; /* bitmap in the last TABLE */
    uint8_t request[AGG_CHILD_TABLE_BYTES];
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct agg_table {
    struct weft_table_spec spec;
    bool declared;
    uint64_t *open; /* (ranks_max,) bits: connected ranks that have opened it */
    uint32_t open_count;
    uint64_t *shards; /* (ranks_max,): incarnation of the shard that each of these ranks named */
    uint32_t *ended;  /* (ranks_max,): highest clock that a member of this rank's messages has
                       * ended */
    uint32_t newest;  /* clock in progress of the fastest worker, as far as known here; 0 = not */
    struct agg_parent parent; /* used with has_parent */
    uint32_t version;         /* highest version in a reply with rows of the shard */
    void *memory;             /* of `kept`, or NULL */
    struct weft_row_store kept;
};

/* Header of each cached row. */
struct agg_mark {
    uint64_t asked_ns; /* time of the request; the shard read the row later */
    uint32_t version;
    uint32_t zero;
};

enum agg_pull_state {
    AGG_PULL_IDLE,
    AGG_PULL_POSTED,
    AGG_PULL_OPEN,
    AGG_PULL_WAITING, /* waits for fetches */
    AGG_PULL_READY,   /* reply complete; waits for the transport */
    AGG_PULL_SENDING,
};

/* Buffer of one PULL, from posting it to the reply's SENT event. */
struct agg_pull {
    enum agg_pull_state state;
    bool stale; /* belongs to a connection that is down */
    bool head_seen;
    uint64_t *why; /* counter of the reason if the pull goes direct, else NULL */
    uint32_t rank;
    weft_expect_id expect;
    uint16_t table;
    uint8_t id_bytes;
    struct weft_rpc_request request;
    uint64_t *ids; /* (pull_rows_max,) */
    uint64_t *came; /* (pull_rows_max,) bits of received ids; this and the next two as in struct
                     * weft_pull_ids */
    uint32_t rows;
    uint32_t rows_end;
    uint8_t *from;     /* (pull_rows_max,): index of the row's fetch plus 1; 0: the row is in the
                        * reply; AGG_FROM_NOWHERE: the row has to be fetched */
    uint32_t left;     /* rows not in the reply yet */
    uint32_t unasked;  /* of these, rows without a fetch */
    uint32_t waits;    /* bitmap of the fetches that it waits for */
    uint64_t fresh_ns; /* rows requested before this time are too old */
    uint32_t version;  /* lowest version of the rows in the reply */
    uint64_t at_ns;    /* time when the request was complete */
    uint64_t wait_ns;  /* start of the wait, by the caller's clock */
    uint64_t waited_ns;
    uint64_t proc_ns;
    uint8_t *answer; /* agg_rows_bytes() */
    uint32_t answer_elems;
    uint16_t elem_bytes;
};

/* One PULL to the shard. */
struct agg_fetch {
    bool live;
    bool message_closed;
    bool answered;
    uint16_t table;
    uint16_t elem_bytes; /* of the reply */
    uint32_t need;       /* version to wait for at the shard */
    bool is_void;        /* its rows are of a shard process that workers no longer use */
    uint32_t rpc_id;
    uint64_t sent_ns;
    uint64_t asked_ns; /* the shard reads its rows after this time */
    uint32_t rows;
    uint32_t life;   /* generation of its entries in `index` */
    uint64_t *ids;   /* (pull_rows_max,) */
    uint64_t *index; /* (agg->fetch_slots,): life << 32 | row */
    uint8_t *request;
    uint8_t *reply; /* agg_rows_bytes() */
    weft_expect_id expect;
};

struct agg_member {
    struct weft_aggregate_member push;
    uint32_t answer; /* AGG_NONE: another member of the same message has the reply */
    uint32_t from;   /* in a group: rank of the worker or child that sent the member */
};

/* Content of one message from below: the gradients of a push, sums, or ended clocks. */
struct agg_input {
    uint16_t table;
    uint32_t clock; /* 0 for ended clocks: each member has its own in `number` */
    uint32_t rank;
    bool wants_cut;
    bool ends;    /* ended clocks, no rows */
    uint32_t sum; /* push: the sum assigned by a scheduler; 0 = none, and always 0 for children */
    uint32_t piece; /* with sum: which piece of it, from 1; 0 = it is not cut */
    const struct agg_member *member; /* (members,) */
    uint32_t members;
    uint32_t rows;
    uint32_t count_max; /* upper bound of gradients of one id; above a group's limit: any larger
                         * value */
    uint64_t bytes;      /* length of the message */
    uint64_t arrival_ns; /* push: from its first chunk to its last one */
    const uint64_t *ids;   /* (rows,) */
    const uint8_t *values; /* (rows, dim) float32, unaligned */
    const struct weft_aggregate_view *view; /* source of the counts; NULL: each count is 1 */
};

enum agg_group_state {
    AGG_GROUP_FREE,
    AGG_GROUP_OPEN,   /* accepts pushes */
    AGG_GROUP_CLOSED, /* complete; waits for the transport */
    AGG_GROUP_SENT,   /* waits for SENT, the reply, or both */
};

struct agg_group {
    enum agg_group_state state;
    bool message_closed;
    bool answered;
    bool again; /* ended clocks: one was refused; send the others again */
    bool wants_cut;
    bool ends; /* as in agg_input; these groups are last in `groups` */
    uint16_t table;
    uint32_t clock; /* highest clock of its members */
    uint32_t rpc_id;
    uint32_t sum; /* the sum assigned by a scheduler, from its members' heads; 0 = none */
    uint32_t piece; /* of the sum, from 1; 0 = it is not cut */
    uint32_t weights; /* clock of the fastest worker for which its sums are weighted
                       * (ps/aggregate.h); 0 = not weighted */
    uint64_t born_ns;
    uint64_t heard_ns;       /* with `sum`: the last chunk of a push of this sum */
    uint64_t arrival_ns;     /* the longest time that a push in it took to arrive */
    uint64_t sent_ns;        /* 0 = not sent */
    const uint64_t *flushed; /* counter of the reason why it was closed; NULL = it is open */
    uint32_t messages;       /* added to it; their rows and bytes: */
    uint32_t rows_in;
    uint64_t bytes_in;
    uint32_t life;   /* generation of its entries in `index` */
    uint32_t newest; /* highest ended clock */
    uint32_t members;
    struct agg_member member[WEFT_AGGREGATE_MEMBERS_MAX];
    uint64_t *ranks; /* (ranks_max,) bits */
    uint32_t ranks_count;
    uint32_t rows;
    uint32_t rows_max;
    uint32_t count_max; /* sum of the inputs' count_max */
    uint64_t *index;    /* (AGG_INDEX_SLOTS,): life << 32 | row. This and the next
                         * three: NULL for ended clocks */
    uint64_t *ids;      /* (WEFT_AGGREGATE_ROWS_MAX,) */
    uint16_t *counts;   /* (WEFT_AGGREGATE_ROWS_MAX,) */
    float *sums;        /* WEFT_AGGREGATE_BYTES_MAX bytes */
    uint8_t *message;   /* WEFT_AGGREGATE_BYTES_MAX bytes; fewer for ended clocks */
    size_t message_bytes;
    weft_expect_id expect;
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct weft_aggregator {
    struct weft_aggregator_config config;
    struct weft_msgr msgr;
    struct weft_hash_key key;
    struct weft_aggregator_counters counters;
    uint32_t ranks_max;         /* workers and children */
    struct agg_worker *workers; /* (ranks_max,) */
    struct agg_table *tables;   /* (tables_max,) */
    struct agg_slot *slots;     /* ordered by worker */
    uint32_t slot_count;
    struct agg_below *below; /* ordered by child */
    uint32_t below_count;
    uint64_t *below_ids; /* (WEFT_AGGREGATE_ROWS_MAX,) scratch; only with children_max > 0 */
    struct agg_answer *answers;
    uint32_t answer_count;
    uint32_t answer_free;
    uint32_t ready_head;
    uint32_t ready_tail;
    struct agg_group *groups; /* groups of sums, then groups of ended clocks */
    uint32_t group_count;
    uint32_t sums_count;
    struct weft_id_sort *order; /* (2, WEFT_AGGREGATE_ROWS_MAX) scratch */
    struct agg_pull *pulls; /* ordered by rank */
    uint32_t pull_count;
    uint32_t pulls_waiting;
    uint32_t pulls_ready;
    float **found; /* (pull_rows_max,) scratch */
    struct agg_fetch fetches[WEFT_AGGREGATE_PULLS];
    uint32_t fetch_slots;
    uint64_t shard_incarnation; /* while connected; 0 = unknown */
    weft_peer shard;
    bool shard_up;
    bool shard_connecting;
    uint32_t rpc_id;
    bool lacks;            /* an expectation could not be posted; retry */
    uint64_t above_age_ns; /* longest wait of a sum at the parent and above, from its last reply */
    bool parent_due;       /* check whether the parent needs a TABLE */
    weft_peer *closed;     /* (closed_max,), unique; more slots than connections */
    bool *closed_for_good;
    uint32_t closed_max;
    uint32_t closed_count;
};

static inline bool agg_is_child(const struct weft_aggregator *agg, uint32_t rank)
{
    return rank >= agg->config.workers_max;
}

/* True: sums of this table may be sent to the shard or parent. */
static inline bool agg_takes_sums(const struct weft_aggregator *agg, uint16_t table)
{
    return agg->shard_up && (!agg->config.has_parent || agg->tables[table].parent.open);
}

/* Incarnation of the shard whose rows are cached and fetched; 0 = none. */
static inline uint64_t agg_process(const struct weft_aggregator *agg, uint16_t table)
{
    return agg->config.has_parent ? agg->tables[table].parent.answers : agg->shard_incarnation;
}

/* Index and count of a rank's entries in `pulls`. */
static inline uint32_t agg_pulls_of(const struct weft_aggregator *agg, uint32_t rank,
                                    uint32_t *count_p)
{
    const struct weft_aggregator_config *config = &agg->config;
    const uint32_t children_have = config->pull_slots > 0 ? WEFT_AGGREGATE_PULLS : 0;
    const bool is_child = agg_is_child(agg, rank);
    *count_p = is_child ? children_have : config->pull_slots;
    return is_child ? config->workers_max * config->pull_slots +
                          (rank - config->workers_max) * children_have
                    : rank * config->pull_slots;
}

/* aggregator.c */

/* Have the driver close this connection. for_good: another process has its rank. */
void weft_agg_close_later(struct weft_aggregator *agg, weft_peer peer, bool for_good);
/* Bind the rank to this connection, or end the binding. */
void weft_agg_bind(struct weft_aggregator *agg, uint32_t rank, const struct weft_msg_event *event);
void weft_agg_unbind(struct weft_aggregator *agg, uint32_t rank);
/* Allocate a reply buffer; AGG_NONE: none is free. */
uint32_t weft_agg_answer_take(struct weft_aggregator *agg);
/* Post an expectation for a request with this op from this rank. memory NULL: deliver it chunk by
 * chunk, without a size limit. False: not possible now; the rank is marked for a retry. */
bool weft_agg_expect(struct weft_aggregator *agg, uint32_t rank, enum weft_rpc_op op, void *memory,
                     size_t bytes, uint64_t user, weft_expect_id *id_p);
/* Post an expectation for the shard's reply to a request with this op. */
weft_status weft_agg_expect_answer(struct weft_aggregator *agg, enum weft_rpc_op op, uint16_t table,
                                   uint32_t rpc_id, void *memory, size_t bytes, uint64_t user,
                                   weft_expect_id *id_p);
/* Free a reply buffer that was sent or is not needed. */
void weft_agg_answer_free(struct weft_aggregator *agg, uint32_t answer);

/* Reply to the sender of a finished push. */
void weft_agg_answer(struct weft_aggregator *agg, uint32_t answer, enum weft_rpc_status status,
                     const struct weft_rpc_reply *from_shard);

/* The push of this answer was added to a sum: acknowledge it now. The answer becomes the second
 * one. */
void weft_agg_answer_first(struct weft_aggregator *agg, uint32_t answer);

/* aggregator_push.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_pushes_init(struct weft_aggregator *agg);
void weft_agg_pushes_fini(struct weft_aggregator *agg);
/* On connection of the rank: post buffers for its pushes. On disconnection: release them. */
void weft_agg_pushes_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pushes_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_push_event(struct weft_aggregator *agg, uint32_t slot,
                         const struct weft_msg_event *event, uint64_t now_ns);

/* aggregator_clock.c */

/* On connection of the rank: post a buffer for its CLOCK. On disconnection: release it. */
void weft_agg_clock_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_clock_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_clock_event(struct weft_aggregator *agg, uint32_t rank,
                          const struct weft_msg_event *event, uint64_t now_ns);

/* aggregator_group.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_groups_init(struct weft_aggregator *agg);
void weft_agg_groups_fini(struct weft_aggregator *agg);
/* True: the group for this input already has one of its pushes. The shard would refuse the whole
 * aggregate. */
bool weft_agg_group_has(struct weft_aggregator *agg, const struct agg_input *input);
/* Add a complete input to a group. False: no group has room. */
bool weft_agg_group_add(struct weft_aggregator *agg, const struct agg_input *input,
                        uint64_t now_ns);
/* A chunk of a push of this sum arrived: the sum waits for the push. */
void weft_agg_sum_heard(struct weft_aggregator *agg, uint16_t table, uint32_t sum, uint64_t now_ns);
/* Close the open groups of a table that have all members that can arrive. */
void weft_agg_groups_look(struct weft_aggregator *agg, uint16_t table);
void weft_agg_groups_progress(struct weft_aggregator *agg, uint64_t now_ns);
void weft_agg_group_sent(struct weft_aggregator *agg, uint32_t group);
void weft_agg_group_answered(struct weft_aggregator *agg, uint32_t group,
                             const struct weft_msg_event *event);
/* The connection to the shard has ended: drop all messages in flight. */
void weft_agg_groups_drop(struct weft_aggregator *agg);

/* aggregator_rows.c */

/* True: the input fits. A new id counts once per occurrence. */
bool weft_agg_rows_fit(const struct weft_aggregator *agg, const struct agg_group *group,
                       const struct agg_input *input);
/* Add the rows of the input to those of the group. */
void weft_agg_rows_add(struct weft_aggregator *agg, struct agg_group *group,
                       const struct agg_input *input);
/* `weights` of a group that begins with this input. */
uint32_t weft_agg_weights_of(const struct weft_aggregator *agg, const struct agg_input *input);

/* The usual lengths are known to the compiler. */
static inline void agg_row_copy(void *to, const void *from, uint32_t dim)
{
    if (dim == 16) {
        memcpy(to, from, 16 * sizeof(float));
    } else if (dim == 1) {
        memcpy(to, from, sizeof(float));
    } else {
        memcpy(to, from, dim * sizeof(float));
    }
}

/* aggregator_cache.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_cache_init(struct weft_aggregator *agg);
void weft_agg_cache_fini(struct weft_aggregator *agg);
/* The table has a new specification: drop its cached rows. */
void weft_agg_cache_begin(struct weft_aggregator *agg, uint16_t table);
/* Drop the cached rows of all tables. */
void weft_agg_cache_clear(struct weft_aggregator *agg);
/* Look up ids. Each result is NULL or the mark before the row's bytes. Shape: rows_p (count,). */
void weft_agg_cache_find(const struct weft_aggregator *agg, uint16_t table, const uint64_t *ids,
                         uint32_t count, float **rows_p);
void weft_agg_cache_put(struct weft_aggregator *agg, uint16_t table, uint64_t id,
                        struct agg_mark mark, const uint8_t *row, size_t bytes);

/* aggregator_pull.c */

/* Bytes of a reply with rows, including the head. */
static inline size_t agg_rows_bytes(const struct weft_aggregator *agg)
{
    return agg->config.push_bytes_max + WEFT_RPC_BLOCK_FLOATS * sizeof(float);
}
/* Errors: WEFT_NOMEM. */
weft_status weft_agg_pulls_init(struct weft_aggregator *agg);
void weft_agg_pulls_fini(struct weft_aggregator *agg);
/* On connection of the rank: post buffers for its pulls. On disconnection: release them. */
void weft_agg_pulls_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pulls_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pull_event(struct weft_aggregator *agg, uint32_t pull,
                         const struct weft_msg_event *event);
/* Answer the pull with SEND_DIRECT. why: counter of the reason. */
void weft_agg_pull_refuse(struct weft_aggregator *agg, struct agg_pull *pull, uint64_t *why);
/* The same for all waiting pulls of this table. */
void weft_agg_pulls_refuse_table(struct weft_aggregator *agg, uint16_t table, uint64_t *why);
/* The same for all pulls that wait for this fetch. */
void weft_agg_pulls_refuse(struct weft_aggregator *agg, uint32_t fetch, uint64_t *why);
/* A row of a waiting pull has arrived. */
void weft_agg_pull_fill(struct agg_pull *pull, uint32_t row, uint32_t version,
                        const uint8_t *bytes);
/* All rows of a pull have arrived. */
void weft_agg_pull_whole(struct weft_aggregator *agg, struct agg_pull *pull);
void weft_agg_pulls_progress(struct weft_aggregator *agg, uint64_t now_ns);
uint64_t weft_agg_pulls_deadline(const struct weft_aggregator *agg);

/* aggregator_fetch.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_fetches_init(struct weft_aggregator *agg);
void weft_agg_fetches_fini(struct weft_aggregator *agg);
/* Index, plus 1, of a fetch in flight that has this id and that this pull may share; 0 = none. */
uint8_t weft_agg_fetch_of(const struct weft_aggregator *agg, const struct agg_pull *pull,
                          uint64_t id);
/* Send fetches for the missing rows of waiting pulls, within the limit of concurrent fetches. */
void weft_agg_fetches_progress(struct weft_aggregator *agg);
void weft_agg_fetch_event(struct weft_aggregator *agg, uint32_t fetch,
                          const struct weft_msg_event *event);
/* Discard rows of this table that are in flight. */
void weft_agg_fetches_void(struct weft_aggregator *agg, uint16_t table);
/* The connection to the shard has ended. */
void weft_agg_fetches_drop(struct weft_aggregator *agg);

enum { AGG_FROM_NOWHERE = 255 };

/* aggregator_record.c */

/* A message from below is answered with SEND_DIRECT and was in no group. why: the counter of the
 * reason. */
void weft_agg_record_direct(struct weft_aggregator *agg, uint32_t answer, const uint64_t *why);
/* A group is done, with this reply to its members, which follows. */
void weft_agg_record_out(struct weft_aggregator *agg, const struct agg_group *group,
                         enum weft_rpc_status status, const uint64_t *why);

/* aggregator_child.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_children_init(struct weft_aggregator *agg);
void weft_agg_children_fini(struct weft_aggregator *agg);
/* A child has connected, or its connection has ended. */
void weft_agg_child_up(struct weft_aggregator *agg, const struct weft_msg_event *event,
                       uint64_t now_ns);
void weft_agg_child_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_child_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_child_event(struct weft_aggregator *agg, uint32_t below,
                          const struct weft_msg_event *event, uint64_t now_ns);
/* Store the child's bitmap of aggregators below it. False: it contains this aggregator's number. */
bool weft_agg_child_below(struct weft_aggregator *agg, uint32_t rank, const uint8_t *bytes);

/* aggregator_parent.c */

/* Send the TABLEs that are due to the parent. */
void weft_agg_parent_progress(struct weft_aggregator *agg, uint64_t now_ns);
void weft_agg_parent_event(struct weft_aggregator *agg, uint32_t table,
                           const struct weft_msg_event *event, uint64_t now_ns);
/* Time of the next TABLE; WEFT_NEVER = none. */
uint64_t weft_agg_parent_deadline(const struct weft_aggregator *agg);
/* The table has a new specification: its state at the parent is void. */
void weft_agg_parent_forget(struct weft_aggregator *agg, uint16_t table);
/* The connection to the parent has ended. */
void weft_agg_parent_down(struct weft_aggregator *agg);

#endif
