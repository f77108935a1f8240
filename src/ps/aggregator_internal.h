/* Private state of an aggregator, shared by aggregator.c (lifecycle, peers, tables, replies),
 * aggregator_push.c (pushes), aggregator_clock.c (ended clocks), aggregator_child.c (sums of
 * aggregators below), aggregator_group.c (sums, and sending them up), aggregator_parent.c (messages
 * to an aggregator above), aggregator_pull.c (pulls), aggregator_fetch.c (rows that pulls lack) and
 * aggregator_cache.c (cached rows). Internal to these files.
 *
 * "The shard" is what is above: the shard itself, or the parent. */
#ifndef WEFT_PS_AGGREGATOR_INTERNAL_H
#define WEFT_PS_AGGREGATOR_INTERNAL_H

#include "base/bits.h"
#include "ps/aggregator.h"
#include "ps/layout.h"
#include "ps/row_store.h"

#define AGG_NONE UINT32_MAX

/* Messages that report clocks, at a time: being filled, and being sent. */
enum { AGG_ENDS_MAX = 8 };

/* `user` of what is given to the transport: one of these, plus a number. */
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

/* A rank: of a worker, or workers_max plus the number of a child. */

/* Memory of one answer to a PUSH, a CLOCK or an AGGREGATE: taken when memory for the push is
 * posted, so that there is always one. */
struct agg_answer {
    uint32_t rank;
    uint32_t life; /* of the rank's connection */
    uint8_t op;
    uint16_t table;
    uint32_t rpc_id;
    uint64_t t0_ns;
    uint32_t next; /* in `free` or `ready` */
    uint8_t bytes[WEFT_RPC_REPLY_BYTES];
};

enum agg_slot_state { AGG_SLOT_IDLE, AGG_SLOT_POSTED, AGG_SLOT_OPEN };

/* Memory of one PUSH while it arrives. */
struct agg_slot {
    enum agg_slot_state state;
    bool dead; /* nothing more of it is taken */
    bool head_seen;
    bool stale;    /* of a connection that has ended */
    uint64_t *why; /* dead: the counter that says so */
    uint32_t rank;
    uint32_t answer;
    weft_expect_id expect;
    uint16_t table;
    uint32_t clock;
    uint8_t id_bytes;
    struct weft_rpc_request request;
    uint32_t rows;
    uint64_t bytes;  /* of the message */
    uint8_t *memory; /* rows: id u64, values */
};

enum {
    AGG_TABLE_REQUEST_BYTES =
        WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_AGGREGATE_SHARD_BYTES,
    AGG_CHILD_TABLE_BYTES = AGG_TABLE_REQUEST_BYTES + WEFT_AGGREGATE_BELOW_BYTES,
    AGG_BELOW_WORDS = WEFT_AGGREGATE_NUMBERS_MAX / 64,
};

/* Memory of one AGGREGATE of a child while it arrives. */
struct agg_below {
    enum agg_slot_state state;
    bool stale; /* of a connection that has ended */
    uint32_t rank;
    uint32_t answer;
    weft_expect_id expect;
    uint8_t *memory; /* (WEFT_AGGREGATE_BYTES_MAX,) */
};

/* Memory of one CLOCK of a worker while it arrives. */
struct agg_clock {
    enum agg_slot_state state;
    bool stale; /* of a connection that has ended */
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
    bool table_stale; /* what is in progress belongs to an earlier connection */
    bool table_busy;  /* a TABLE arrives, or its answer leaves */
    weft_expect_id table_expect;
    uint8_t table_request[AGG_CHILD_TABLE_BYTES];
    uint8_t table_answer[WEFT_RPC_REPLY_BYTES];
    uint64_t below[AGG_BELOW_WORDS]; /* child: what it said last is below it */
    uint64_t used_ns;                /* child: asked for something last */
    struct agg_clock clock;          /* worker */
    uint64_t rival_ns; /* child: since when another process wants its number; 0 = none does */
};

enum agg_parent_state { AGG_PARENT_NONE, AGG_PARENT_ASKED, AGG_PARENT_OPEN, AGG_PARENT_REFUSED };

/* A table at the parent. */
struct agg_parent {
    enum agg_parent_state state;
    bool open;        /* it takes sums; also while it is asked again */
    bool was_refused; /* workers have been told that this table is not added up here */
    bool unsaid;      /* what was laid out last did not go */
    bool sending;     /* the transport has `request` */
    bool expected;
    weft_expect_id expect;
    uint32_t rpc_id;
    bool is_awaited;   /* accepted, and no worker below has it open; idle_ns is not reached */
    bool waits;        /* there is something to say, for which it is too early */
    uint64_t retry_ns; /* refused: not asked again before */
    uint64_t
        idle_ns; /* taken after that: those below, who were sent away, have until then to open it */
    uint64_t process;                /* of the shard, as it was told last */
    uint64_t answers;                /* of which process it answers pulls; 0 = none */
    uint64_t below[AGG_BELOW_WORDS]; /* as it was told last */
    uint8_t request[AGG_CHILD_TABLE_BYTES];
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct agg_table {
    struct weft_table_spec spec;
    bool declared;
    uint64_t *open; /* (ranks_max,) bits: ranks that are connected and have opened it */
    uint32_t open_count;
    uint64_t
        *shards; /* (ranks_max,): of these ranks, the incarnation of the shard that they named */
    uint32_t *ended; /* (ranks_max,): of these ranks, the last clock that any member has ended */
    struct agg_parent parent; /* only where there is one */
    uint32_t version;         /* highest that the shard has told in an answer with rows */
    void *memory;             /* of the rows that are kept, or NULL */
    struct weft_row_store kept;
};

/* In front of each row that is kept. */
struct agg_mark {
    uint64_t asked_ns; /* the shard was asked for it: it has read it later */
    uint32_t version;
    uint32_t zero;
};

enum agg_pull_state {
    AGG_PULL_IDLE,
    AGG_PULL_POSTED,
    AGG_PULL_OPEN,
    AGG_PULL_WAITING, /* for fetches */
    AGG_PULL_READY,   /* answered; waits for the transport */
    AGG_PULL_SENDING,
};

/* Memory of one PULL, from posting it to the answer's SENT. */
struct agg_pull {
    enum agg_pull_state state;
    bool stale; /* of a connection that has ended */
    bool head_seen;
    uint64_t *why; /* it goes direct: the counter that says so; NULL: it does not */
    uint32_t rank;
    weft_expect_id expect;
    uint16_t table;
    uint8_t id_bytes;
    struct weft_rpc_request request;
    uint64_t *ids; /* (pull_rows_max,) */
    uint64_t
        *came; /* (pull_rows_max,) bits, as struct weft_pull_ids has them; so are the next two */
    uint32_t rows;
    uint32_t rows_end;
    uint8_t *from;     /* (pull_rows_max,): fetch that brings this row, plus 1; 0: it is in the answer;
                        * AGG_FROM_NOWHERE: it is to be asked for */
    uint32_t left;     /* rows that are not in the answer */
    uint32_t unasked;  /* and of these, that are to be asked for */
    uint32_t waits;    /* fetches, as bits */
    uint64_t fresh_ns; /* rows that were asked for before are too old for it */
    uint32_t version;  /* lowest among the rows in the answer */
    uint64_t at_ns;    /* when it was there */
    uint64_t wait_ns;  /* begins to wait, by the caller's clock */
    uint64_t waited_ns;
    uint64_t proc_ns;
    uint8_t *answer; /* agg_rows_bytes() */
    uint32_t answer_elems;
    uint16_t elem_bytes;
};

/* Rows that are being fetched from the shard. */
struct agg_fetch {
    bool live;
    bool message_closed;
    bool answered;
    uint16_t table;
    uint16_t elem_bytes; /* of the answer */
    uint32_t need;       /* version that the shard waits for */
    bool is_void;        /* its rows are of a process that workers do not know any more */
    uint32_t rpc_id;
    uint64_t sent_ns;
    uint64_t asked_ns; /* its rows are read at the shard after this */
    uint32_t rows;
    uint32_t life;   /* of its places in `index` */
    uint64_t *ids;   /* (pull_rows_max,) */
    uint64_t *index; /* (agg->fetch_slots,): life << 32 | row */
    uint8_t *request;
    uint8_t *reply; /* agg_rows_bytes() */
    weft_expect_id expect;
};

struct agg_member {
    struct weft_aggregate_member push;
    uint32_t answer; /* AGG_NONE: that of another member of the same message stands for it */
    uint32_t
        from; /* of a member of a group: the rank, of a worker or a child, whose message has it */
};

/* What one message from below brings: the gradients of a push, sums, or clocks that are ended. */
struct agg_input {
    uint16_t table;
    uint32_t clock; /* 0 where clocks are ended: each member has its own, in place of the push's
                       number */
    uint32_t rank;
    bool wants_cut;
    bool ends;    /* clocks, and no rows */
    uint32_t sum; /* a push: that a scheduler wants it in; 0 = none, as of all that children send */
    const struct agg_member *member; /* (members,) */
    uint32_t members;
    uint32_t rows;
    uint32_t count_max; /* gradients of one id that may be in it; sums beyond a group's limit: any
                           above it */
    uint64_t bytes;     /* of the message */
    const uint8_t *ids; /* (rows,) u64, so far apart; so are the values */
    size_t ids_stride;
    const uint8_t *values; /* (dim,) float32 */
    size_t values_stride;
    const struct weft_aggregate_view *view; /* has the counts; NULL: each is 1 */
};

enum agg_group_state {
    AGG_GROUP_FREE,
    AGG_GROUP_OPEN,   /* pushes are added */
    AGG_GROUP_CLOSED, /* waits for the transport */
    AGG_GROUP_SENT,   /* waits for SENT, the answer, or both */
};

struct agg_group {
    enum agg_group_state state;
    bool message_closed;
    bool answered;
    bool again; /* clocks: one was refused, and the others are sent once more */
    bool wants_cut;
    bool ends; /* as of an input; such groups have places of their own, behind the others */
    uint16_t table;
    uint32_t clock; /* the highest of its members */
    uint32_t rpc_id;
    uint32_t sum; /* that a scheduler wants: of its members' heads; 0 = none */
    uint64_t born_ns;
    uint32_t life;   /* of its places in `index` */
    uint32_t newest; /* of clocks that are ended */
    uint32_t members;
    struct agg_member member[WEFT_AGGREGATE_MEMBERS_MAX];
    uint64_t *ranks; /* (ranks_max,) bits */
    uint32_t ranks_count;
    uint32_t rows;
    uint32_t rows_max;
    uint32_t count_max; /* of counts */
    uint64_t *index;    /* (2 x WEFT_AGGREGATE_ROWS_MAX,): life << 32 | row; where clocks are ended
                           NULL, as the next three */
    uint64_t *ids;      /* (WEFT_AGGREGATE_ROWS_MAX,) */
    uint16_t *counts;   /* the same */
    float *sums;        /* WEFT_AGGREGATE_BYTES_MAX bytes */
    uint8_t *message;   /* the same; where clocks are ended, less */
    size_t message_bytes;
    weft_expect_id expect;
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct agg_sort {
    uint64_t id;
    uint32_t row;
};

struct weft_aggregator {
    struct weft_aggregator_config config;
    struct weft_msgr msgr;
    struct weft_hash_key key;
    struct weft_aggregator_counters counters;
    uint32_t ranks_max;         /* workers and children */
    struct agg_worker *workers; /* (ranks_max,) */
    struct agg_table *tables;   /* (tables_max,) */
    struct agg_slot *slots;     /* worker by worker */
    uint32_t slot_count;
    struct agg_below *below; /* child by child */
    uint32_t below_count;
    uint64_t *below_ids; /* (WEFT_AGGREGATE_ROWS_MAX,) scratch; where there may be children */
    struct agg_answer *answers;
    uint32_t answer_count;
    uint32_t answer_free;
    uint32_t ready_head;
    uint32_t ready_tail;
    struct agg_group *groups; /* sums, then clocks that are ended */
    uint32_t group_count;
    uint32_t sums_count;
    uint64_t *ids;          /* (WEFT_PS_CHUNK_ROWS_MAX,) scratch */
    struct agg_sort *order; /* (2, WEFT_AGGREGATE_ROWS_MAX) scratch */
    struct agg_pull *pulls; /* worker by worker */
    uint32_t pull_count;
    uint32_t pulls_waiting;
    uint32_t pulls_ready;
    float **found; /* (pull_rows_max,) scratch */
    struct agg_fetch fetches[WEFT_AGGREGATE_PULLS];
    uint32_t fetch_slots;
    uint64_t shard_incarnation; /* while it is up; 0 = not known */
    weft_peer shard;
    bool shard_up;
    bool shard_connecting;
    uint32_t rpc_id;
    bool lacks;            /* some expectation is to be posted once more */
    uint64_t above_age_ns; /* sums wait so long at the parent and above, at most, as it said last */
    bool parent_due;       /* the parent may have to be told something */
    weft_peer *closed;     /* (closed_max,), each once; more than there are connections */
    bool *closed_for_good;
    uint32_t closed_max;
    uint32_t closed_count;
};

static inline bool agg_is_child(const struct weft_aggregator *agg, uint32_t rank)
{
    return rank >= agg->config.workers_max;
}

/* Sums of this table may go up. */
static inline bool agg_takes_sums(const struct weft_aggregator *agg, uint16_t table)
{
    return agg->shard_up && (!agg->config.has_parent || agg->tables[table].parent.open);
}

/* The process of the shard whose rows are kept and asked for; 0 = none. */
static inline uint64_t agg_process(const struct weft_aggregator *agg, uint16_t table)
{
    return agg->config.has_parent ? agg->tables[table].parent.answers : agg->shard_incarnation;
}

/* Where the pulls of a rank are, and how many. */
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

/* The driver is to close this connection; for_good: another process has its place. */
void weft_agg_close_later(struct weft_aggregator *agg, weft_peer peer, bool for_good);
/* Bind the rank to this connection; end that binding. */
void weft_agg_bind(struct weft_aggregator *agg, uint32_t rank, const struct weft_msg_event *event);
void weft_agg_unbind(struct weft_aggregator *agg, uint32_t rank);
/* Take a place for an answer; AGG_NONE. */
uint32_t weft_agg_answer_take(struct weft_aggregator *agg);
/* Take a request of this op from this rank; memory NULL: chunk by chunk, however large. False: not
 * now; it is noted that the rank lacks something. */
bool weft_agg_expect(struct weft_aggregator *agg, uint32_t rank, enum weft_rpc_op op, void *memory,
                     size_t bytes, uint64_t user, weft_expect_id *id_p);
/* Take the shard's answer to such a request. */
weft_status weft_agg_expect_answer(struct weft_aggregator *agg, enum weft_rpc_op op, uint16_t table,
                                   uint32_t rpc_id, void *memory, size_t bytes, uint64_t user,
                                   weft_expect_id *id_p);
/* An answer that is not to be sent, or was. */
void weft_agg_answer_free(struct weft_aggregator *agg, uint32_t answer);

/* The push is over: tell its worker. */
void weft_agg_answer(struct weft_aggregator *agg, uint32_t answer, enum weft_rpc_status status,
                     const struct weft_rpc_reply *from_shard);

/* aggregator_push.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_pushes_init(struct weft_aggregator *agg);
void weft_agg_pushes_fini(struct weft_aggregator *agg);
/* The rank has connected: post memory for its pushes; its connection has ended. */
void weft_agg_pushes_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pushes_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_push_event(struct weft_aggregator *agg, uint32_t slot,
                         const struct weft_msg_event *event, uint64_t now_ns);

/* aggregator_clock.c */

/* The rank has connected: post memory for its CLOCK; its connection has ended. */
void weft_agg_clock_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_clock_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_clock_event(struct weft_aggregator *agg, uint32_t rank,
                          const struct weft_msg_event *event, uint64_t now_ns);

/* aggregator_group.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_groups_init(struct weft_aggregator *agg);
void weft_agg_groups_fini(struct weft_aggregator *agg);
/* Is a push of it in the group that it would go to? The shard would refuse all of it. */
bool weft_agg_group_has(struct weft_aggregator *agg, const struct agg_input *input);
/* Add what is there, whole, to a group. False: there is no room. */
bool weft_agg_group_add(struct weft_aggregator *agg, const struct agg_input *input,
                        uint64_t now_ns);
/* All that is open of a table has all that may come. */
void weft_agg_groups_look(struct weft_aggregator *agg, uint16_t table);
void weft_agg_groups_progress(struct weft_aggregator *agg, uint64_t now_ns);
void weft_agg_group_sent(struct weft_aggregator *agg, uint32_t group);
void weft_agg_group_answered(struct weft_aggregator *agg, uint32_t group,
                             const struct weft_msg_event *event);
/* The connection to the shard has ended, with all that was being sent to it. */
void weft_agg_groups_drop(struct weft_aggregator *agg);

/* aggregator_cache.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_cache_init(struct weft_aggregator *agg);
void weft_agg_cache_fini(struct weft_aggregator *agg);
/* The table has this specification from now on: nothing of it is kept. */
void weft_agg_cache_begin(struct weft_aggregator *agg, uint16_t table);
/* Nothing is kept of any table. */
void weft_agg_cache_clear(struct weft_aggregator *agg);
/* NULL, or the mark in front of the row's bytes. Shape: rows_p (count,). */
void weft_agg_cache_find(const struct weft_aggregator *agg, uint16_t table, const uint64_t *ids,
                         uint32_t count, float **rows_p);
void weft_agg_cache_put(struct weft_aggregator *agg, uint16_t table, uint64_t id,
                        struct agg_mark mark, const uint8_t *row, size_t bytes);

/* aggregator_pull.c */

/* Bytes of an answer with rows, a head in front. */
static inline size_t agg_rows_bytes(const struct weft_aggregator *agg)
{
    return agg->config.push_bytes_max + WEFT_RPC_BLOCK_FLOATS * sizeof(float);
}
/* Errors: WEFT_NOMEM. */
weft_status weft_agg_pulls_init(struct weft_aggregator *agg);
void weft_agg_pulls_fini(struct weft_aggregator *agg);
/* The rank has connected: post memory for its pulls; its connection has ended. */
void weft_agg_pulls_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pulls_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_pull_event(struct weft_aggregator *agg, uint32_t pull,
                         const struct weft_msg_event *event);
/* It goes direct, for this reason. */
void weft_agg_pull_refuse(struct weft_aggregator *agg, struct agg_pull *pull, uint64_t *why);
/* All that wait, of this table. */
void weft_agg_pulls_refuse_table(struct weft_aggregator *agg, uint16_t table, uint64_t *why);
/* All that wait for this fetch. */
void weft_agg_pulls_refuse(struct weft_aggregator *agg, uint32_t fetch, uint64_t *why);
/* A row of a pull that waits is there. */
void weft_agg_pull_fill(struct agg_pull *pull, uint32_t row, uint32_t version,
                        const uint8_t *bytes);
/* All rows of a pull are there. */
void weft_agg_pull_whole(struct weft_aggregator *agg, struct agg_pull *pull);
void weft_agg_pulls_progress(struct weft_aggregator *agg, uint64_t now_ns);
uint64_t weft_agg_pulls_deadline(const struct weft_aggregator *agg);

/* aggregator_fetch.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_fetches_init(struct weft_aggregator *agg);
void weft_agg_fetches_fini(struct weft_aggregator *agg);
/* The fetch in progress that gets this id for a pull, plus 1; 0 = none. */
uint8_t weft_agg_fetch_of(const struct weft_aggregator *agg, const struct agg_pull *pull,
                          uint64_t id);
/* Request rows that pulls lack from the shard, as many requests as may be in progress. */
void weft_agg_fetches_progress(struct weft_aggregator *agg);
void weft_agg_fetch_event(struct weft_aggregator *agg, uint32_t fetch,
                          const struct weft_msg_event *event);
/* Rows of this table that are being fetched are discarded when they arrive. */
void weft_agg_fetches_void(struct weft_aggregator *agg, uint16_t table);
/* The connection to the shard has ended. */
void weft_agg_fetches_drop(struct weft_aggregator *agg);

enum { AGG_FROM_NOWHERE = 255 };

/* aggregator_child.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_children_init(struct weft_aggregator *agg);
void weft_agg_children_fini(struct weft_aggregator *agg);
/* An aggregator below has connected; its connection has ended. */
void weft_agg_child_up(struct weft_aggregator *agg, const struct weft_msg_event *event,
                       uint64_t now_ns);
void weft_agg_child_post(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_child_unbind(struct weft_aggregator *agg, uint32_t rank);
void weft_agg_child_event(struct weft_aggregator *agg, uint32_t below,
                          const struct weft_msg_event *event, uint64_t now_ns);
/* What it says is below it: false: this aggregator is, or has the number of one that is. */
bool weft_agg_child_below(struct weft_aggregator *agg, uint32_t rank, const uint8_t *bytes);

/* aggregator_parent.c */

/* Tell the parent what it is to know. */
void weft_agg_parent_progress(struct weft_aggregator *agg, uint64_t now_ns);
void weft_agg_parent_event(struct weft_aggregator *agg, uint32_t table,
                           const struct weft_msg_event *event, uint64_t now_ns);
/* When progress has something to tell; WEFT_NEVER. */
uint64_t weft_agg_parent_deadline(const struct weft_aggregator *agg);
/* The table has another specification: nothing is agreed on. */
void weft_agg_parent_forget(struct weft_aggregator *agg, uint16_t table);
/* The connection to the parent has ended. */
void weft_agg_parent_down(struct weft_aggregator *agg);

#endif
