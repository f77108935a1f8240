/* Private state of a shard, shared by shard.c (lifecycle, clocks, events), shard_peers.c (connected
 * peers, and slots), shard_request.c (handling of a request) and shard_push.c (a chunk of a push).
 * Internal to these files. */
#ifndef WEFT_PS_SHARD_INTERNAL_H
#define WEFT_PS_SHARD_INTERNAL_H

#include "ps/aggregate.h"
#include "ps/layout.h"
#include "ps/list_store.h"
#include "ps/push_window.h"
#include "ps/retired.h"
#include "ps/shard.h"
#include "rpc/latency.h"
#include "rpc/window.h"

/* Chunks of an answer, as many as a message can have. */
enum { WEFT_SHARD_CHUNKS_MAX = 1 << 18 };

#define WEFT_SHARD_NONE UINT32_MAX

/* `user` of an expectation or a reply is its slot; of a CLOCK expectation this plus the rank. */
#define WEFT_SHARD_USER_CLOCK (UINT64_C(1) << 32)

/* `user` of what tells a worker that pushes are durable: this plus its rank. */
#define WEFT_SHARD_USER_DURABLE (UINT64_C(1) << 33)

/* `user` of an aggregate's expectation and answer: this plus its slot. */
#define WEFT_SHARD_USER_AGGREGATE (UINT64_C(1) << 34)

/* `user` of pieces for the replica, and of what it says: this plus a small number. */
#define WEFT_SHARD_USER_TRANSFER (UINT64_C(1) << 35)

enum shard_slot_state {
    SLOT_IDLE,    /* its worker is not connected, or the transport had no room for it */
    SLOT_POSTED,  /* waits for a request */
    SLOT_OPEN,    /* chunks arrive */
    SLOT_WAITING, /* complete; waits for consistency */
    SLOT_READY,   /* answered; waits for the transport to take the reply */
    SLOT_SENDING, /* the transport has the reply */
};

/* Memory of one request, from posting it to the reply's SENT. */
struct shard_slot {
    enum shard_slot_state state;
    uint8_t op; /* what it takes: PUSH, PULL, TABLE or LIST */
    bool stale; /* OPEN of a connection that was replaced */
    bool dead;  /* nothing more of this request is taken */
    bool head_seen;
    bool again;       /* PUSH: applied whole before */
    bool update;      /* PUSH: of an update (ps/update.h), by its tag */
    bool update_open; /* and that one was opened for it */
    uint32_t base;    /* and the base in the tag */
    uint32_t opened;  /* PULL: updates opened, when its rows were read; with HOT: ids in the reply */
    uint32_t version; /* PULL: of its rows: the minimum clock, when they were read */
    uint8_t id_bytes; /* PUSH, PULL: by the grid, WEFT_RPC_ID_PACKED where ids are; TABLE: 0 */
    uint16_t can;     /* TABLE: what the worker was granted */
    uint32_t partial; /* PUSH: its entry, WEFT_SHARD_NONE without */
    uint64_t number;  /* PUSH: the worker's count of pushes to this table; 0 = none */
    uint32_t list;       /* PUSH: that its chunks name; 0 = none so far */
    uint32_t list_place; /* where that is: shard_list.c */
    uint16_t status;  /* first thing that went wrong */
    uint16_t table;
    uint32_t worker; /* rank; PULL of an aggregator: workers_max plus its number */
    uint32_t clock; /* of the request's tag */
    uint32_t next;  /* in `waiting`, `due` or `ready` */
    weft_expect_id expect;
    weft_peer peer;
    uint32_t rows; /* elements after the head, by the grid; ids are packed: rows that came */
    struct weft_rpc_request request;
    struct weft_rpc_spans spans;
    uint64_t b_ns;
    uint64_t proc_ns;
    uint64_t overlap_ns;
    uint64_t wait_begin_ns;
    uint64_t wait_ns;
    uint64_t cut_after; /* PULL with CUT: instants of cuts before it arrived */
    uint64_t *ids;      /* PULL, LIST: (rows_per_rpc_max,) */
    const uint8_t *ids_behind; /* PUSH out of a journal: what lies behind the chunk, */
    size_t ids_behind_bytes;   /* so many bytes; shard_list.c */
    uint64_t *came;     /* PULL with packed ids: one bit for each of them */
    uint32_t rows_end;  /* the same: behind the last that came */
    uint8_t *answer;    /* PULL: the largest reply; others: a head */
    uint32_t answer_elems;
    uint16_t answer_elem_bytes;
};

/* Which chunks of a push are applied, until all are: kept over connections and, in checkpoints,
 * over restarts. */
struct shard_partial {
    bool live;
    uint16_t table;
    uint64_t number;
    uint32_t chunks;
    uint32_t chunk_elems;
    uint64_t *mask; /* (chunks_max,) bits */
};

struct shard_worker {
    bool up;
    weft_peer peer;
    uint64_t up_ns;       /* when it connected */
    uint64_t down_ns;     /* when its last connection ended; 0 = it had none here */
    uint64_t incarnation; /* of the pushes in the windows; 0 = none */
    struct weft_retired retired; /* processes that lost the rank: they hung, perhaps, and wake up */
    bool parked;          /* not up, and alive until vouched_ns + lease_ns; shard_park.c */
    uint64_t lease_ns;    /* of PARK; 0 = the end of its connection is its own */
    uint64_t vouched_ns;  /* the last PARK, or what an aggregator said of this rank */
    bool clock_posted;
    weft_expect_id clock_expect;
    struct weft_rpc_window closed;
    bool wants_durable;   /* it keeps its pushes until they are durable */
    bool durable_upto_sending; /* safe_message is in the transport */
    uint16_t durable_upto_table;
    uint64_t durable_upto_number;
    uint8_t durable_upto_message[WEFT_RPC_DURABLE_UPTO_BYTES];
    uint64_t active_window; /* number of the last window in which it began a request */
    uint64_t request_ns;    /* when it began the last one */
    struct weft_id_lists lists; /* of its pulls */
    uint32_t given;             /* list in the memory of its LIST slot; 0 = none */
    uint16_t given_table;
    uint32_t given_count;
};

/* First in, first out, of slot numbers; linked through slot.next. */
struct shard_queue {
    uint32_t head;
    uint32_t tail;
};

/* More of them at a time stay open, as idle connections do. */
enum { WEFT_SHARD_REPLACED_MAX = 64 };

/* A connection that the driver has to close. */
struct shard_replaced {
    weft_peer peer;
    bool for_good; /* the rank is another process's */
};

struct weft_shard_aggregates;
struct weft_shard_hots;
struct weft_transfer;

struct weft_shard {
    struct weft_shard_config config;
    struct weft_msgr msgr;
    struct weft_shard_counters counters;
    struct weft_shard_latencies push;
    struct weft_shard_latencies pull;
    struct weft_table *tables; /* (tables_max,) */
    uint32_t *clocks;          /* (tables_max, workers_max): clocks finished */
    uint32_t *clock_min;       /* (tables_max,) */
    uint32_t *step_to; /* (tables_max,): the clock_min that rows are being stepped for; 0 = none */
    uint32_t step_tables;         /* so many of them */
    struct shard_worker *workers; /* (workers_max,), then of each aggregator what its pulls need */
    struct weft_push_window *pushes;     /* (tables_max, workers_max) */
    uint64_t *critical;  /* (WEFT_SHARD_CHUNKS_MAX,) bits, scratch */
    uint64_t *durable_upto;      /* (tables_max, workers_max): pushes that are durable; NULL without
                                   * checkpoints */
    uint64_t *durable_upto_sent; /* the same: of those, what the worker was told */
    bool durable_upto_unsent;    /* some worker may have to be told */
    uint32_t cut_wanted; /* highest clock that a worker wants in a checkpoint; 0 = none */
    bool cut_asked;      /* a request for a checkpoint waits for a cut's instant */
    bool cut_told;       /* look through `asking` */
    uint32_t cut_asked_clock;
    uint64_t cut_instants; /* of cuts, counted */
    uint64_t cut_kept;     /* instant of the last cut that was kept, and of the last that counts */
    uint64_t cut_counting;
    bool *restored;                     /* (tables_max,): of a server before, not opened since */
    bool *members;                      /* (tables_max, workers_max): opened the table, and lives */
    uint32_t dead_rank;                 /* the first that died, WEFT_SHARD_NONE = none has */
    struct weft_snapshot *snapshot;     /* NULL without checkpoints */
    struct weft_shard_journal *journal; /* NULL without */
    struct weft_shard_updates *updates;
    struct weft_shard_aggregates *aggregates; /* NULL without */
    struct weft_shard_hots *hots;             /* likewise */
    struct weft_transfer *transfer;           /* NULL without replicas */
    struct shard_partial *partials;     /* worker by worker */
    uint32_t partials_per_worker;       /* 0 without checkpoints */
    uint32_t partial_count;
    struct shard_slot *slots; /* worker by worker: push slots, pull slots, the TABLE and the LIST slot;
                               * then aggregator by aggregator: WEFT_AGGREGATE_PULLS pull slots */
    uint64_t *list_ids;       /* (workers_max, list_ids): lists of pulls; NULL without */
    uint32_t slots_per_worker;
    uint32_t slot_count;
    uint32_t busy_count;     /* slots neither IDLE nor POSTED */
    uint32_t unposted_count; /* expectations that the transport still owes */
    struct shard_queue waiting;
    struct shard_queue due;    /* PULLs that waited, and may be answered */
    struct shard_queue asking; /* PULLs with CUT */
    struct shard_queue ready;
    uint32_t parked_count;
    uint64_t parked_due_ns; /* with some: no lease ends before */
    struct shard_replaced replaced[WEFT_SHARD_REPLACED_MAX];
    uint32_t replaced_count;
    uint64_t active_window;             /* windows begun; the last is in progress */
    uint64_t active_start_ns;           /* of that */
    uint32_t active_count;              /* workers that began a request in it */
    struct weft_table_row **chunk_rows; /* (WEFT_PS_CHUNK_ROWS_MAX,) scratch, like the next */
    uint64_t *chunk_hashes;
    uint64_t *chunk_ids;
    float *values; /* (WEFT_PS_CHUNK_VALUES_MAX,) scratch: of a chunk, or of rows that are answered */
};

static inline uint64_t shard_clock_ns(const struct weft_shard *shard)
{
    return shard->config.clock_ns(shard->config.clock_arg);
}

static inline struct weft_table *shard_table(const struct weft_shard *shard, uint16_t table)
{
    if (table >= shard->config.tables_max || !shard->tables[table].declared) {
        return NULL;
    }
    return &shard->tables[table];
}

static inline uint32_t shard_request_head_elems(const struct weft_msg_event *event)
{
    return weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
}

/* Keep the first thing that went wrong. */
static inline void shard_slot_note(struct shard_slot *slot, enum weft_rpc_status status)
{
    if (slot->status == WEFT_RPC_OK) {
        slot->status = status;
    }
}

/* Nothing more of this request is taken. */
static inline void shard_slot_reject(struct shard_slot *slot, enum weft_rpc_status status)
{
    shard_slot_note(slot, status);
    slot->dead = true;
}
static inline struct weft_push_window *shard_pushes(const struct weft_shard *shard, uint16_t table,
                                             uint32_t worker)
{
    return &shard->pushes[(size_t)table * shard->config.workers_max + worker];
}

/* shard_dedup.c: pushes that are sent again */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_partials_init(struct weft_shard *shard);
void weft_shard_partials_fini(struct weft_shard *shard);
/* An empty entry; NULL when the worker has none left. */
struct shard_partial *weft_shard_partial_take(struct weft_shard *shard, uint32_t worker);
/* OPEN of a push with this low byte of its number: is it known? */
void weft_shard_dedup_open(struct weft_shard *shard, struct shard_slot *slot, uint8_t low,
                           const struct weft_msg_event *event);
/* The same by slot->number; 0 = the worker does not count. */
void weft_shard_dedup_begin(struct weft_shard *shard, struct shard_slot *slot,
                            const struct weft_msg_event *event);
/* True: this chunk was applied before. */
bool weft_shard_dedup_chunk(const struct weft_shard *shard, const struct shard_slot *slot,
                            uint32_t chunk);
void weft_shard_dedup_applied(struct weft_shard *shard, const struct shard_slot *slot,
                              uint32_t chunk);
void weft_shard_dedup_closed(struct weft_shard *shard, const struct shard_slot *slot,
                             bool is_short);
/* All of this push is there, or enough. */
void weft_shard_dedup_close(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number);
/* Is a push with this number under way, or was it cut off in the middle? */
bool weft_shard_dedup_begun(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number);
/* The worker goes on after a break: it tells which pushes it will not send again. Of those begun,
 * what was applied stays, and what is kept of them is given up.
 * Errors:  WEFT_RPC_BAD_REQUEST  chunks are not kept here, so it cannot be told what was applied. */
enum weft_rpc_status weft_shard_dedup_resume(struct weft_shard *shard, uint16_t table,
                                             uint32_t worker, const struct weft_rpc_pushes *theirs);
/* What the shard knows of this worker's pushes. */
struct weft_rpc_pushes weft_shard_dedup_pushes(const struct weft_shard *shard,
                                               const struct shard_slot *slot);
/* Another process speaks for this rank now: forget the pushes of the one before. */
void weft_shard_dedup_forget(struct weft_shard *shard, uint16_t table, uint32_t worker);

/* Its message is over, but it is not: it is sent again under the same number. */
void weft_shard_dedup_later(struct weft_shard *shard, const struct shard_slot *slot);

/* shard_list.c: lists of ids that pushes name */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_lists_init(struct weft_shard *shard);
void weft_shard_lists_fini(struct weft_shard *shard);
/* May workers be granted WEFT_RPC_CAN_LIST? */
static inline bool weft_shard_takes_lists(const struct weft_shard *shard)
{
    /* A push whose list is unknown is sent again: what is applied of it must be known. */
    return (shard->config.can & WEFT_RPC_CAN_LIST) != 0 && shard->partial_count > 0;
}
/* A PULL is answered: keep its ids, if it wants that. */
void weft_shard_list_keep(struct weft_shard *shard, struct shard_slot *slot);
/* A request for the memory of LIST begins: what was given before is gone. */
void weft_shard_list_open(struct weft_shard *shard, const struct shard_slot *slot);
/* All of a LIST is there. */
void weft_shard_list_given(struct weft_shard *shard, const struct shard_slot *slot);
/* The ids of a chunk that names a list, into chunk_ids. */
enum weft_rpc_status weft_shard_list_ids(struct weft_shard *shard, struct shard_slot *slot,
                                         const struct weft_ps_chunk_rows *rows);
/* A PUSH is over. */
void weft_shard_list_leave(struct weft_shard *shard, struct shard_slot *slot);
/* Another process speaks for this rank. */
void weft_shard_lists_forget(struct weft_shard *shard, uint32_t rank);
/* Ids for the journal, behind the chunk that names their list: WEFT_SHARD_IDS_BEHIND_MAX bytes at out.
 * Returns how many were written. */
size_t weft_shard_list_write(const uint64_t *ids, uint32_t count, uint8_t *out);

/* A head, and u64 each; packed they are never longer. */
enum { WEFT_SHARD_IDS_BEHIND_MAX = 8 + WEFT_PS_CHUNK_ROWS_MAX * 8 };

/* members.c: who counts in a table */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_members_init(struct weft_shard *shard);
bool weft_shard_member_counts(const struct weft_shard *shard, uint16_t table, uint32_t rank);
/* The rank has opened the table. */
void weft_shard_member_join(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* The rank's process is gone from all tables; died: it did not say that it goes. */
void weft_shard_members_leave(struct weft_shard *shard, uint32_t rank, bool died, uint64_t now_ns);
/* SHRINK: whose gradients a mean is of, by who counts now. */
void weft_shard_members_average(struct weft_shard *shard, uint16_t table);
/* All connections are gone with the process that had them. */
void weft_shard_members_clear(struct weft_shard *shard);
/* The clock that a rank was in is over for it. */
void weft_shard_close_short(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* The clock of the table moved for some worker, or somebody left: has the slowest one moved? */
void weft_shard_clock_advance(struct weft_shard *shard, uint16_t table, uint64_t now_ns);
/* SSP, ASP: the clock of rows, which a rank besides the fastest has finished, or the only one. */
uint32_t weft_shard_clock_reached(const struct weft_shard *shard, uint16_t table);
/* The clock of rows goes there; in BSP it goes with the steps. */
void weft_shard_now_follow(struct weft_shard *shard, uint16_t table);
/* A slice of every table whose rows are being stepped. */
void weft_shard_step(struct weft_shard *shard, uint64_t now_ns);

/* shard_durable.c: which pushes are durable, told to the workers that keep theirs */
weft_status weft_shard_durable_init(struct weft_shard *shard);
void weft_shard_durable_fini(struct weft_shard *shard);
/* Pushes up to this number of the windows given are in a checkpoint. Shape: (workers,). */
void weft_shard_durable_from(struct weft_shard *shard, uint16_t table,
                             const struct weft_push_window *pushes, uint32_t workers);
/* A new connection of this rank, or another process. */
void weft_shard_durable_unbind(struct weft_shard *shard, uint32_t rank, bool renewed);
void weft_shard_durable_forget(struct weft_shard *shard, uint16_t table, uint32_t rank);
void weft_shard_durable_sent(struct weft_shard *shard, uint32_t rank, bool complete);
void weft_shard_durable_send(struct weft_shard *shard, uint64_t now_ns);
/* shard_cut.c: checkpoints that workers ask for */

/* The request waits from now on. */
void weft_shard_cut_ask(struct weft_shard *shard, struct shard_slot *slot);
/* A cut has its instant; it is over, kept or not; the last that was kept counts. */
void weft_shard_cut_instant(struct weft_shard *shard);
void weft_shard_cut_over(struct weft_shard *shard, bool kept);
void weft_shard_cut_counts(struct weft_shard *shard);
/* Answer those whose checkpoint counts, or will not be. */
void weft_shard_cut_tell(struct weft_shard *shard, uint64_t now_ns);
/* A worker wants this clock in a checkpoint. */
static inline void weft_shard_want_cut(struct weft_shard *shard, uint32_t clock)
{
    shard->cut_wanted = clock > shard->cut_wanted ? clock : shard->cut_wanted;
}

/* shard_update.c: updates of a job with a scheduler */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_updates_init(struct weft_shard *shard);
void weft_shard_updates_fini(struct weft_shard *shard);
/* The first chunk of a push of an update is about to be applied: WEFT_RPC_OK, or LATE. */
enum weft_rpc_status weft_shard_update_open(struct weft_shard *shard, struct shard_slot *slot);
/* Is the update of this push open, and refused? */
bool weft_shard_update_is_late(const struct weft_shard *shard, const struct shard_slot *slot);
/* Values of it were applied, with this sum of squares. */
void weft_shard_update_applied(struct weft_shard *shard, const struct shard_slot *slot,
                               double squares);
/* Bytes of updates that came in messages of their own, ever. */
uint64_t weft_shard_updates_came(const struct weft_shard *shard);
/* It was in a sum of so many bytes, which took so long; meanwhile `all` bytes came with it. */
void weft_shard_update_in_sum(struct weft_shard *shard, const struct shard_slot *slot, uint64_t bytes,
                              uint64_t all, uint64_t took_ns);
/* A chunk of a push of an update has come, and so many bytes with it. */
void weft_shard_update_arrived(struct weft_shard *shard, const struct shard_slot *slot,
                               uint32_t bytes, uint64_t now_ns);
/* The rank has finished this clock of the table, and those before. */
void weft_shard_update_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                             uint32_t finished);
/* Another process speaks for this rank: what is open of it closes with what was applied. */
void weft_shard_updates_forget(struct weft_shard *shard, uint32_t rank);

/* shard_journal.c: each is nothing where there is no journal, or it is being done again */

/* listed: rows of the chunk whose ids are in a list, and in chunk_ids; 0: they are in the chunk. */
void weft_shard_journal_chunk(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_msg_event *event, uint32_t listed);
/* An aggregate that was applied: the message as received. */
void weft_shard_journal_aggregate(struct weft_shard *shard, const struct weft_rpc_tag *tag,
                                  const uint8_t *bytes, size_t count,
                                  const struct weft_aggregate_view *view);
void weft_shard_journal_closed(struct weft_shard *shard, uint16_t table, uint32_t rank,
                               uint64_t number);
void weft_shard_journal_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              uint32_t clock);
void weft_shard_journal_renewed(struct weft_shard *shard, uint32_t rank, uint64_t incarnation);
void weft_shard_journal_left(struct weft_shard *shard, uint32_t rank);
/* spec and pushes as they came; pushes of RESUME, else NULL. */
void weft_shard_journal_table(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              const uint8_t *spec, const uint8_t *pushes);
/* A cut: before its first table; of each table; when all are cut; when it is kept, or not; when it
 * counts. */
void weft_shard_journal_cut_begin(struct weft_shard *shard);
void weft_shard_journal_cut(struct weft_shard *shard, uint16_t table);
void weft_shard_journal_cut_ready(struct weft_shard *shard, uint64_t checkpoint);
void weft_shard_journal_cut_kept(struct weft_shard *shard);
void weft_shard_journal_cut_failed(struct weft_shard *shard);
void weft_shard_journal_durable(struct weft_shard *shard);
void weft_shard_journal_fini(struct weft_shard *shard);
/* What is being done again now, the checkpoint has of this table. */
bool weft_shard_journal_passes_over(const struct weft_shard *shard, uint16_t table);

/* restore.c */
bool weft_shard_respec(struct weft_shard *shard, const struct weft_table_spec *spec);

/* shard.c */
void weft_shard_queue_push(struct weft_shard *shard, struct shard_queue *queue, uint32_t slot);
uint32_t weft_shard_queue_pop(struct weft_shard *shard, struct shard_queue *queue);
/* The rank has finished this clock, and those before. False: nobody gets that far. */
bool weft_shard_clock_take(struct weft_shard *shard, uint16_t table, uint32_t rank, uint32_t clock,
                           uint64_t now_ns);

/* shard_peers.c */
void weft_shard_peer_up(struct weft_shard *shard, const struct weft_msg_event *event,
                        uint64_t now_ns);
void weft_shard_peer_down(struct weft_shard *shard, const struct weft_msg_event *event,
                          uint64_t now_ns);
/* What the transport had no room for. Rare, so the walk over all slots does not matter. */
void weft_shard_post_again(struct weft_shard *shard);
/* The request is over: post the slot's memory again when its worker is there. */
void weft_shard_slot_release(struct weft_shard *shard, uint32_t slot);
/* This connection was replaced by another one of its process: for the driver to close. */
void weft_shard_replace(struct weft_shard *shard, weft_peer peer);
/* This process has the place of another one that is connected: the driver tells it so, and closes. */
void weft_shard_refuse_peer(struct weft_shard *shard, weft_peer peer);
/* Aggregators that may connect; 0: none. */
static inline uint32_t weft_shard_aggregators(const struct weft_shard_config *config)
{
    return config->chunks_max > 0 ? config->aggregators_max : 0;
}
static inline bool shard_slot_is_aggregators(const struct weft_shard *shard,
                                             const struct shard_slot *slot)
{
    return slot->worker >= shard->config.workers_max;
}
/* An aggregator is connected: it may pull; or it is gone. */
void weft_shard_pulls_bind(struct weft_shard *shard, uint32_t aggregator, weft_peer peer);
void weft_shard_pulls_unbind(struct weft_shard *shard, uint32_t aggregator);
/* Another process speaks for this rank. */
void weft_shard_worker_renew(struct weft_shard *shard, uint32_t rank, uint64_t incarnation,
                             uint64_t now_ns);

/* shard_park.c: ranks without a connection, which aggregators speak for */

/* A worker says that it parks, for so many milliseconds without a word. False: it must stay connected. */
bool weft_shard_park(struct weft_shard *shard, uint32_t rank, uint32_t lease_ms, uint64_t now_ns);
/* The connection of a rank has ended. True: it had parked, and stays. */
bool weft_shard_parks(struct weft_shard *shard, uint32_t rank, uint64_t now_ns);
/* It is not parked any more. */
void weft_shard_unpark(struct weft_shard *shard, uint32_t rank);
/* Ranks that were not heard of in time are dead. */
void weft_shard_parked_overdue(struct weft_shard *shard, uint64_t now_ns);
/* Connected, or parked. */
static inline bool shard_is_there(const struct shard_worker *worker)
{
    return worker->up || worker->parked;
}

/* shard_push.c */

/* May this worker push for this clock now? */
enum weft_rpc_status weft_shard_push_allowed(const struct weft_shard *shard,
                                             const struct shard_slot *slot,
                                             const struct weft_table *table);
/* False = the chunk was refused. */
bool weft_shard_push_take(struct weft_shard *shard, struct shard_slot *slot,
                          const struct weft_msg_event *event);
/* The same without a connection; everything in event is looked at. behind: what follows the chunk. */
bool weft_shard_push_replay(struct weft_shard *shard, uint16_t table, uint32_t worker,
                           uint64_t number, uint32_t clock, const struct weft_msg_event *event,
                           size_t behind_bytes);

/* shard_aggregate.c: pushes that an aggregator has added up */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_aggregates_init(struct weft_shard *shard);
void weft_shard_aggregates_fini(struct weft_shard *shard);
/* Sets aggregators_connected and _active of *gauges_p. */
void weft_shard_aggregates_gauges(const struct weft_shard *shard, uint64_t since_ns,
                                  struct weft_shard_gauges *gauges_p);
/* May workers be granted WEFT_RPC_CAN_AGGREGATE? */
static inline bool weft_shard_takes_aggregates(const struct weft_shard *shard)
{
    /* A push that was begun another way must be known. */
    return shard->aggregates != NULL && (shard->config.can & WEFT_RPC_CAN_AGGREGATE) != 0 &&
           shard->partial_count > 0;
}
/* A TABLE was taken: the worker's session. */
void weft_shard_aggregate_session(struct weft_shard *shard, const struct shard_slot *slot);
/* Another process speaks for this rank. */
void weft_shard_aggregate_forget(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* False: the event is for others, too. */
bool weft_shard_aggregate_event(struct weft_shard *shard, const struct weft_msg_event *event,
                                uint64_t now_ns);
/* Hand the ready answers to the transport. */
void weft_shard_aggregate_send(struct weft_shard *shard, uint64_t now_ns);
/* Out of a journal. */
bool weft_shard_aggregate_replay(struct weft_shard *shard, uint16_t table, uint32_t clock,
                                const uint8_t *bytes, size_t count);

/* shard_hot.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_hots_init(struct weft_shard *shard);
void weft_shard_hots_fini(struct weft_shard *shard);
/* May workers be granted WEFT_RPC_CAN_HOT for this table? */
bool weft_shard_hot_takes(const struct weft_shard *shard, uint16_t table);
/* Lay out the answer to a PULL with HOT. False: it is a head alone, with a status. */
bool weft_shard_hot_answer(struct weft_shard *shard, struct shard_slot *slot, uint64_t now_ns);
uint64_t weft_shard_hot_rows(const struct weft_shard *shard);

/* transfer.c: to the replica; each is nothing where there are none */

/* Errors: WEFT_NOMEM. */
weft_status weft_transfer_init(struct weft_shard *shard);
void weft_transfer_fini(struct weft_shard *shard);
/* False: the event is for others, too. */
bool weft_transfer_event(struct weft_shard *shard, const struct weft_msg_event *event,
                         uint64_t now_ns);
void weft_transfer_progress(struct weft_shard *shard, uint64_t now_ns);
/* Rows of a table have been stepped: it can be cut. */
void weft_transfer_boundary(struct weft_shard *shard, uint64_t now_ns);
/* No answer may leave now. */
bool weft_transfer_holds_answers(struct weft_shard *shard);
/* BSP: no clock may end now; weft_shard_clock_advance is called again when one may. */
bool weft_transfer_holds_steps(const struct weft_shard *shard);

/* shard_record.c */

/* A worker's request has begun. */
void weft_shard_record_open(struct weft_shard *shard, uint32_t worker, uint64_t at_ns);
/* Its answer was given to the transport. */
void weft_shard_record_served(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_rpc_reply *reply, uint64_t departure_ns);

/* shard_request.c */

/* By the size of an element of a PUSH; 0: it is none. Rows of several blocks have no packed ids. */
uint8_t weft_shard_push_id_bytes(const struct weft_table *table, uint16_t elem_bytes);
/* Most elements in its chunks. */
static inline uint32_t weft_shard_chunk_elems_max(uint8_t id_bytes)
{
    return id_bytes == WEFT_RPC_ID_PACKED ? WEFT_PS_PACKED_CHUNK_BYTES : WEFT_PS_CHUNK_ROWS_MAX;
}
/* A rank opens a table: as WEFT_RPC_OK, or why not. */
enum weft_rpc_status weft_shard_table_open(struct weft_shard *shard,
                                           const struct weft_table_spec *spec, uint32_t rank);
void weft_shard_request_open(struct weft_shard *shard, struct shard_slot *slot,
                             const struct weft_msg_event *event);
void weft_shard_request_chunk(struct weft_shard *shard, struct shard_slot *slot,
                              const struct weft_msg_event *event);
void weft_shard_request_closed(struct weft_shard *shard, struct shard_slot *slot,
                               const struct weft_msg_event *event, uint64_t now_ns);
/* Pulls whose condition has come true are due. Sends what is ready. */
void weft_shard_wake(struct weft_shard *shard, uint64_t now_ns);
/* Answer pulls that are due: some, so that the first answers leave while others are made; or all, before
 * anything happens to the weights that they are of. */
void weft_shard_answer_due(struct weft_shard *shard, bool all);
/* Answer a request with a head alone. */
void weft_shard_answer_head(struct weft_shard *shard, struct shard_slot *slot);
/* Hand the ready replies to the transport, as far as it takes them. */
void weft_shard_send_ready(struct weft_shard *shard, uint64_t now_ns);

#endif
