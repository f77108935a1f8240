/* The inside of an aggregator, shared by aggregator.c (life, peers, pushes, answers) and
 * aggregator_group.c (sums, and their way to the shard). Not for others. */
#ifndef WEFT_PS_AGGREGATOR_INTERNAL_H
#define WEFT_PS_AGGREGATOR_INTERNAL_H

#include "base/bits.h"
#include "ps/aggregator.h"
#include "ps/layout.h"

#define AGG_NONE UINT32_MAX

/* `user` of what is given to the transport: one of these, plus a number. */
#define AGG_USER_MASK   (UINT64_C(0xff) << 40)
#define AGG_USER_PUSH   (UINT64_C(1) << 40) /* slot */
#define AGG_USER_TABLE  (UINT64_C(2) << 40) /* rank */
#define AGG_USER_ANSWER (UINT64_C(3) << 40) /* answer */
#define AGG_USER_GROUP  (UINT64_C(4) << 40) /* group */

/* Memory of one answer to a PUSH: taken when memory for the push is posted, so that there is always one. */
struct agg_answer {
    uint32_t rank;
    uint32_t life; /* of the rank's connection */
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
    bool stale;    /* of a connection that is gone */
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

struct agg_worker {
    bool up;
    weft_peer peer;
    uint32_t life;
    uint64_t incarnation;
    bool table_posted;
    bool table_stale; /* what is under way belongs to a connection before */
    bool table_busy;  /* a TABLE arrives, or its answer leaves */
    weft_expect_id table_expect;
    uint8_t table_request[WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES];
    uint8_t table_answer[WEFT_RPC_REPLY_BYTES];
};

struct agg_table {
    struct weft_table_spec spec;
    bool declared;
    uint64_t *open; /* (workers_max,) bits: ranks that are connected and have opened it */
    uint32_t open_count;
};

struct agg_member {
    struct weft_aggregate_member push;
    uint32_t answer;
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
    bool wants_cut;
    uint16_t table;
    uint32_t clock;
    uint32_t rpc_id;
    uint64_t born_ns;
    uint32_t life; /* of its places in `index` */
    uint32_t members;
    struct agg_member member[WEFT_AGGREGATE_MEMBERS_MAX];
    uint64_t *ranks; /* (workers_max,) bits */
    uint32_t ranks_count;
    uint32_t rows;
    uint32_t rows_max;
    uint32_t count_max; /* of counts */
    uint64_t *index;    /* (2 x WEFT_AGGREGATE_ROWS_MAX,): life << 32 | row */
    uint64_t *ids;      /* (WEFT_AGGREGATE_ROWS_MAX,) */
    uint16_t *counts;   /* the same */
    float *sums;        /* WEFT_AGGREGATE_BYTES_MAX bytes */
    uint8_t *message;   /* the same */
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
    struct agg_worker *workers; /* (workers_max,) */
    struct agg_table *tables;   /* (tables_max,) */
    struct agg_slot *slots;     /* worker by worker */
    uint32_t slot_count;
    struct agg_answer *answers;
    uint32_t answer_count;
    uint32_t answer_free;
    uint32_t ready_head;
    uint32_t ready_tail;
    struct agg_group *groups;
    uint32_t group_count;
    uint64_t *ids;          /* (WEFT_PS_CHUNK_ROWS_MAX,) scratch */
    struct agg_sort *order; /* (2, WEFT_AGGREGATE_ROWS_MAX) scratch */
    weft_peer shard;
    bool shard_up;
    bool shard_connecting;
    uint32_t rpc_id;
    bool lacks; /* some expectation is to be posted once more */
    weft_peer closed[64];
    uint32_t closed_count;
};

/* aggregator.c */

/* The push is over: tell its worker. */
void weft_agg_answer(struct weft_aggregator *agg, uint32_t answer, enum weft_rpc_status status,
                     const struct weft_rpc_reply *from_shard);

/* aggregator_group.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_agg_groups_init(struct weft_aggregator *agg);
void weft_agg_groups_fini(struct weft_aggregator *agg);
/* Is a push of this worker and number in the group that it would go to? The shard would refuse all of it. */
bool weft_agg_group_has(struct weft_aggregator *agg, const struct agg_slot *slot);
/* Add a push that is there, whole, to a group. False: there is no room. */
bool weft_agg_group_add(struct weft_aggregator *agg, const struct agg_slot *slot, uint64_t now_ns);
/* All that is open of a table has all that may come. */
void weft_agg_groups_look(struct weft_aggregator *agg, uint16_t table);
void weft_agg_groups_progress(struct weft_aggregator *agg, uint64_t now_ns);
void weft_agg_group_sent(struct weft_aggregator *agg, uint32_t group);
void weft_agg_group_answered(struct weft_aggregator *agg, uint32_t group,
                             const struct weft_msg_event *event);
/* The shard is gone, and what was under way to it. */
void weft_agg_groups_drop(struct weft_aggregator *agg);

#endif
