/* Private state of a shard, shared by shard.c (lifecycle, clocks, events), the other shard_*.c
 * files (one part of its work each), members.c, restore.c, snapshot.c, transfer*.c and replica.c.
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

/* Most chunks of a reply: as many as a message can have. */
enum { WEFT_SHARD_CHUNKS_MAX = 1 << 18 };

#define WEFT_SHARD_NONE UINT32_MAX

/* `user` of an expectation or a reply is its slot; of a CLOCK expectation this plus the rank. */
#define WEFT_SHARD_USER_CLOCK (UINT64_C(1) << 32)

/* `user` of a DURABLE_UPTO message: this plus the worker's rank. */
#define WEFT_SHARD_USER_DURABLE (UINT64_C(1) << 33)

/* `user` of an aggregate's expectation and reply: this plus its slot. */
#define WEFT_SHARD_USER_AGGREGATE (UINT64_C(1) << 34)

/* `user` of pieces for the replica, and of its messages: this plus a small number. */
#define WEFT_SHARD_USER_TRANSFER (UINT64_C(1) << 35)

enum shard_slot_state {
    SLOT_IDLE,    /* not posted: the worker is not connected, or the transport had no room */
    SLOT_POSTED,  /* waits for a request */
    SLOT_OPEN,    /* chunks arrive */
    SLOT_WAITING, /* complete; waits for consistency */
    SLOT_READY,   /* the reply is built; waits for the transport to accept it */
    SLOT_SENDING, /* the transport owns the reply */
};

/* Memory of one request, from posting it to the reply's SENT. */
struct shard_slot {
    enum shard_slot_state state;
    uint8_t op; /* requests it accepts: PUSH, PULL, TABLE or LIST */
    bool stale; /* OPEN, but its connection was replaced */
    bool dead;  /* the rest of this request is refused */
    bool head_seen;
    bool again;       /* PUSH: a duplicate, already applied whole */
    bool update;      /* PUSH: belongs to an update (ps/update.h), according to its tag */
    bool update_open; /* this push opened that update or joined it */
    uint32_t base;    /* base from the tag */
    uint32_t opened; /* PULL: number of updates opened when its rows were read; with HOT: ids in the
                      * reply */
    uint32_t version;    /* PULL: version of its rows: the minimum clock when they were read */
    uint8_t id_bytes;    /* PUSH, PULL: from the grid, or WEFT_RPC_ID_PACKED; TABLE: 0 */
    uint16_t can;        /* TABLE: what the worker was granted */
    uint32_t partial;    /* PUSH: index of its shard_partial; WEFT_SHARD_NONE = none */
    uint64_t number;     /* PUSH: the worker's count of pushes to this table; 0 = none */
    uint32_t list;       /* PUSH: the list that its chunks name; 0 = none so far */
    uint32_t list_place; /* index of that list: shard_list.c */
    uint16_t status;     /* the first error */
    uint16_t table;
    uint32_t worker; /* rank; PULL of an aggregator: workers_max plus its number */
    uint32_t clock;  /* of the request's tag */
    uint32_t next;   /* in `waiting`, `due` or `ready` */
    weft_expect_id expect;
    weft_peer peer;
    uint32_t rows; /* elements after the head, from the grid; with packed ids: rows that have
                    * arrived */
    struct weft_rpc_request request;
    struct weft_rpc_spans *spans; /* its entry of the shard's; NULL: not in `slots` */
    uint64_t b_ns;
    uint64_t proc_ns;
    uint64_t overlap_ns;
    uint64_t wait_begin_ns;
    uint64_t wait_ns;
    uint64_t cut_after;        /* PULL with CUT: number of cuts taken before it arrived */
    uint64_t *ids;             /* PULL, LIST: (rows_per_rpc_max,) */
    const uint8_t *ids_behind; /* PUSH from a journal: the ids stored after the chunk; */
    size_t ids_behind_bytes;   /* shard_list.c */
    uint64_t *came;            /* PULL with packed ids: one bit per id that has arrived */
    uint32_t rows_end;         /* PULL with packed ids: one past the last that has arrived */
    uint8_t *answer;           /* PULL: the largest reply; others: a head */
    uint32_t answer_elems;
    uint16_t answer_elem_bytes;
};

/* The chunks of an incomplete push that are applied. Kept across connections and, in checkpoints,
 * across restarts. */
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
    uint64_t up_ns;              /* when it connected */
    uint64_t down_ns;            /* when its last connection ended; 0 = it had none here */
    uint64_t incarnation;        /* of the pushes in the windows; 0 = none */
    struct weft_retired retired; /* processes that lost the rank; a hung one may reconnect */
    bool parked;                 /* not up, and alive until vouched_ns + lease_ns; shard_park.c */
    uint64_t lease_ns;   /* from PARK; 0 = not parking: the end of its connection is its death or
                          * departure */
    uint64_t vouched_ns; /* time of the last PARK, or of the last request of this rank through an
                          * aggregator */
    bool clock_posted;
    weft_expect_id clock_expect;
    uint32_t rpc_newest; /* largest rpc_id on its own connection, modulo 2^32; 0 = none */
    struct weft_rpc_window closed;
    bool wants_durable;        /* the worker keeps its pushes until they are durable */
    bool durable_upto_sending; /* durable_upto_message is in the transport */
    uint16_t durable_upto_table;
    uint64_t durable_upto_number;
    uint8_t durable_upto_message[WEFT_RPC_DURABLE_UPTO_BYTES];
    uint64_t clock_ns;          /* arrival of its last CLOCK for begun_table */
    uint64_t begun_ns;          /* first packet of its first reply since then; 0 = none */
    uint16_t begun_table;       /* of that reply, or of the last one */
    uint64_t return_ns;         /* from a reply to the next CLOCK; 0 = not known; shard_wait.c */
    uint64_t active_window;     /* the last window in which it began a request */
    uint64_t connection_window; /* the same of its connection: not in an aggregate */
    uint64_t request_ns;        /* when it began its last request */
    struct weft_id_lists lists; /* lists of its pulls */
    uint32_t given;             /* the list in the memory of its LIST slot; 0 = none */
    uint16_t given_table;
    uint32_t given_count;
};

/* A FIFO of slot numbers, linked through slot.next. */
struct shard_queue {
    uint32_t head;
    uint32_t tail;
};

/* Most connections waiting to be closed; more stay open, like idle connections. */
enum { WEFT_SHARD_REPLACED_MAX = 64 };

/* A connection that the driver must close. */
struct shard_replaced {
    weft_peer peer;
    bool for_good; /* another process has the rank permanently */
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
    uint32_t *step_to; /* (tables_max,): the clock_min for which rows are being stepped; 0 = none */
    uint32_t step_tables;         /* number of tables being stepped */
    struct shard_worker *workers; /* (workers_max,), then an entry per aggregator for its pulls */
    struct weft_push_window *pushes; /* (tables_max, workers_max) */
    uint64_t *critical;              /* (WEFT_SHARD_CHUNKS_MAX,) bits, scratch */
    uint64_t *durable_upto;      /* (tables_max, workers_max): pushes up to this number are durable;
                                  * NULL = no checkpoints */
    uint64_t *durable_upto_sent; /* the same: the number last sent to the worker */
    bool durable_upto_unsent;    /* some worker may need a DURABLE_UPTO */
    uint32_t cut_wanted; /* highest clock that a worker requests in a checkpoint; 0 = none */
    bool cut_asked;      /* a checkpoint request waits for a cut */
    bool cut_told;       /* a request in `asking` may have its result */
    uint32_t cut_asked_clock;
    uint64_t cut_instants; /* number of cuts taken */
    uint64_t cut_kept;     /* number of the last cut that was kept; cut_counting: of the last that
                            * is in a valid checkpoint */
    uint64_t cut_counting;
    bool *restored;                     /* (tables_max,): restored, and not opened since */
    bool *members;                      /* (tables_max, workers_max): has opened the table, and is
                                         * alive */
    uint32_t dead_rank;                 /* the first rank that died; WEFT_SHARD_NONE = none */
    struct weft_snapshot *snapshot;     /* NULL = no checkpoints */
    struct weft_shard_journal *journal; /* NULL = none */
    struct weft_shard_updates *updates;
    struct weft_shard_aggregates *aggregates; /* NULL = none */
    struct weft_shard_hots *hots;             /* NULL = none */
    struct weft_transfer *transfer;           /* NULL = no replicas */
    struct shard_partial *partials;           /* ordered by worker */
    uint32_t partials_per_worker;             /* 0 if chunks_max is 0 */
    uint32_t partial_count;
    struct shard_slot *slots; /* ordered by worker: push slots, pull slots, the TABLE and the LIST
                               * slot; then by aggregator: WEFT_AGGREGATE_PULLS pull slots */
    struct weft_rpc_spans *spans; /* (slot_count,): apart, as some slots are made on the stack */
    uint64_t *list_ids;       /* (workers_max, list_ids): lists of pulls; NULL = none */
    uint32_t slots_per_worker;
    uint32_t slot_count;
    uint32_t busy_count;     /* slots that are neither IDLE nor POSTED */
    uint32_t unposted_count; /* expectations that are still to be posted */
    struct shard_queue waiting;
    struct shard_queue due;    /* PULLs whose wait is over */
    struct shard_queue asking; /* PULLs with CUT */
    struct shard_queue ready;
    uint32_t parked_count;
    uint64_t parked_due_ns; /* with parked_count > 0: no lease ends before this time */
    struct shard_replaced replaced[WEFT_SHARD_REPLACED_MAX];
    uint32_t replaced_count;
    uint64_t active_window;             /* number of windows begun; the last is in progress */
    uint64_t active_start_ns;           /* start of the window in progress */
    uint32_t active_count;              /* workers that have begun a request in it */
    uint32_t connection_count;          /* connections on which a request has begun in it */
    struct weft_table_row **chunk_rows; /* (WEFT_PS_CHUNK_ROWS_MAX,) scratch, like the next */
    uint64_t *chunk_hashes;
    uint64_t *chunk_ids;
    float *values; /* (WEFT_PS_CHUNK_VALUES_MAX,) scratch: values of a chunk, or of rows of a
                    * reply */
};

static inline uint64_t shard_clock_ns(const struct weft_shard *shard)
{
    return shard->config.clock_ns(shard->config.clock_arg);
}

/* a - b, at least 0. */
static inline uint64_t shard_since(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
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

/* Record the first error. */
static inline void shard_slot_note(struct shard_slot *slot, enum weft_rpc_status status)
{
    if (slot->status == WEFT_RPC_OK) {
        slot->status = status;
    }
}

/* Refuse the rest of this request. */
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

/* shard_dedup.c: detection of resent pushes */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_partials_init(struct weft_shard *shard);
void weft_shard_partials_fini(struct weft_shard *shard);
/* Allocate an entry; NULL if the worker has no free one. */
struct shard_partial *weft_shard_partial_take(struct weft_shard *shard, uint32_t worker);
/* OPEN of a push with this low byte of its number: look it up. */
void weft_shard_dedup_open(struct weft_shard *shard, struct shard_slot *slot, uint8_t low,
                           const struct weft_msg_event *event);
/* The same by slot->number; 0 = the worker does not number its pushes. */
void weft_shard_dedup_begin(struct weft_shard *shard, struct shard_slot *slot,
                            const struct weft_msg_event *event);
/* True: the chunk is a duplicate. */
bool weft_shard_dedup_chunk(const struct weft_shard *shard, const struct shard_slot *slot,
                            uint32_t chunk);
void weft_shard_dedup_applied(struct weft_shard *shard, const struct shard_slot *slot,
                              uint32_t chunk);
/* The push's message is closed. is_short: its connection ended, so the push stays open and will be
 * resent. */
void weft_shard_dedup_closed(struct weft_shard *shard, const struct shard_slot *slot,
                             bool is_short);
/* The same for a push without a slot: from an aggregate, or from a journal. */
void weft_shard_dedup_close(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number);
/* True: a push with this number is in progress or was interrupted. */
bool weft_shard_dedup_begun(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number);
/* The worker resumes after a break and reports which pushes it will not resend. Chunks of these
 * that were applied stay applied; their entries are freed.
 * Errors:  WEFT_RPC_BAD_REQUEST  no masks of chunks are kept here, so it is unknown what was
 *                                applied. */
enum weft_rpc_status weft_shard_dedup_resume(struct weft_shard *shard, uint16_t table,
                                             uint32_t worker, const struct weft_rpc_pushes *theirs);
/* The shard's record of this worker's pushes. */
struct weft_rpc_pushes weft_shard_dedup_pushes(const struct weft_shard *shard,
                                               const struct shard_slot *slot);
/* A new process has this rank: forget the pushes of the previous one. */
void weft_shard_dedup_forget(struct weft_shard *shard, uint16_t table, uint32_t worker);

/* The message is closed, but the push is not: it will be resent under the same number. */
void weft_shard_dedup_later(struct weft_shard *shard, const struct shard_slot *slot);

/* shard_list.c: lists of ids that pushes name */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_lists_init(struct weft_shard *shard);
void weft_shard_lists_fini(struct weft_shard *shard);
/* True: workers may be granted WEFT_RPC_CAN_LIST. */
static inline bool weft_shard_takes_lists(const struct weft_shard *shard)
{
    /* A push whose list is unknown is resent: the shard must know which chunks are applied. */
    return (shard->config.can & WEFT_RPC_CAN_LIST) != 0 && shard->partial_count > 0;
}
/* A PULL was replied to: keep its ids, if it requests that. */
void weft_shard_list_keep(struct weft_shard *shard, struct shard_slot *slot);
/* A request for the memory of LIST begins: the previous list there is discarded. */
void weft_shard_list_open(struct weft_shard *shard, const struct shard_slot *slot);
/* A LIST is complete. */
void weft_shard_list_given(struct weft_shard *shard, const struct shard_slot *slot);
/* Copy the ids of a chunk that names a list to chunk_ids. */
enum weft_rpc_status weft_shard_list_ids(struct weft_shard *shard, struct shard_slot *slot,
                                         const struct weft_ps_chunk_rows *rows);
/* A PUSH has ended: drop its reference to a list. */
void weft_shard_list_leave(struct weft_shard *shard, struct shard_slot *slot);
/* A new process has this rank. */
void weft_shard_lists_forget(struct weft_shard *shard, uint32_t rank);
/* Write ids for the journal, to be stored after the chunk that names their list. out:
 * WEFT_SHARD_IDS_BEHIND_MAX bytes. Returns the number of bytes written. */
size_t weft_shard_list_write(const uint64_t *ids, uint32_t count, uint8_t *out);

/* A head and a u64 per id; packed ids are never longer. */
enum { WEFT_SHARD_IDS_BEHIND_MAX = 8 + WEFT_PS_CHUNK_ROWS_MAX * 8 };

/* members.c: the members of a table */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_members_init(struct weft_shard *shard);
bool weft_shard_member_counts(const struct weft_shard *shard, uint16_t table, uint32_t rank);
/* The rank has opened the table. */
void weft_shard_member_join(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* The rank's process leaves all tables; died: it ended without notice. */
void weft_shard_members_leave(struct weft_shard *shard, uint32_t rank, bool died, uint64_t now_ns);
/* SHRINK: set the divisor of the mean from the current members. */
void weft_shard_members_average(struct weft_shard *shard, uint16_t table);
/* All connections ended with the previous process. */
void weft_shard_members_clear(struct weft_shard *shard);
/* End the rank's clock in progress for it. */
void weft_shard_close_short(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* A worker's clock in the table advanced, or a member left: recompute the minimum clock. */
void weft_shard_clock_advance(struct weft_shard *shard, uint16_t table, uint64_t now_ns);
/* SSP, ASP: the clock of rows: the second highest clock finished by any rank, or that of the only
 * rank. */
uint32_t weft_shard_clock_reached(const struct weft_shard *shard, uint16_t table);
/* Advance the clock of rows to it; in BSP it advances with the steps. */
void weft_shard_now_follow(struct weft_shard *shard, uint16_t table);
/* Step a slice of every table that is being stepped. */
void weft_shard_step(struct weft_shard *shard, uint64_t now_ns);

/* shard_durable.c: reports durable pushes to the workers that keep them */
weft_status weft_shard_durable_init(struct weft_shard *shard);
void weft_shard_durable_fini(struct weft_shard *shard);
/* The pushes in these windows are in a checkpoint. Shape: pushes (workers,). */
void weft_shard_durable_from(struct weft_shard *shard, uint16_t table,
                             const struct weft_push_window *pushes, uint32_t workers);
/* A new connection of this rank, or another process. */
void weft_shard_durable_unbind(struct weft_shard *shard, uint32_t rank, bool renewed);
void weft_shard_durable_forget(struct weft_shard *shard, uint16_t table, uint32_t rank);
void weft_shard_durable_sent(struct weft_shard *shard, uint32_t rank, bool complete);
void weft_shard_durable_send(struct weft_shard *shard, uint64_t now_ns);

/* shard_cut.c: checkpoints requested by workers */

/* Add a waiting request. */
void weft_shard_cut_ask(struct weft_shard *shard, struct shard_slot *slot);
/* A cut was taken; has ended, kept or not; the last kept one is in a valid checkpoint. */
void weft_shard_cut_instant(struct weft_shard *shard);
void weft_shard_cut_over(struct weft_shard *shard, bool kept);
void weft_shard_cut_counts(struct weft_shard *shard);
/* Reply to requests whose checkpoint is valid, or will not be made. */
void weft_shard_cut_tell(struct weft_shard *shard, uint64_t now_ns);
/* A worker requests this clock in a checkpoint. */
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
/* A member of a sum. */
struct shard_opening {
    uint32_t rank;
    uint32_t clock;
    uint32_t base;
    bool has_update; /* its pushes belong to updates */
};

/* Determine the order in which the updates of a sum open, one after the other. False: the update of
 * a member would be too late then, or was refused before. *order_p: (count,). */
bool weft_shard_updates_fit(const struct weft_shard *shard, const struct shard_opening *of,
                            uint32_t count, uint8_t *order_p);
/* True: the update of this push was refused when it opened. */
bool weft_shard_update_is_late(const struct weft_shard *shard, const struct shard_slot *slot);
/* Values of the push were applied, with this sum of squares. */
void weft_shard_update_applied(struct weft_shard *shard, const struct shard_slot *slot,
                               double squares);
/* Time in which aggregates arrive, and bytes of updates that arrive directly meanwhile, since the
 * start. While several aggregates arrive each has an equal part of both: the time of all of them
 * together is then that of the link. One whose sender has stopped has none (shard_aggregate.c). */
struct shard_part {
    uint64_t ns;
    uint64_t came;
};
/* An aggregate begins to arrive, and ends or stops, whether it is applied or not: the parts by
 * then. */
struct shard_part weft_shard_sum_begins(struct weft_shard *shard, uint64_t at_ns);
struct shard_part weft_shard_sum_ends(struct weft_shard *shard, uint64_t at_ns);
/* An aggregate that was applied. */
struct shard_sum {
    uint32_t updates; /* in it */
    uint64_t bytes;
    uint64_t timed;   /* of these, after its first chunk, whose arrival took an unknown time */
    uint64_t all;     /* timed, and its part of the bytes that arrived directly while it did */
    uint64_t took_ns; /* its part of the time; 0 = unknown */
};

/* Pushes of this push's update were in this aggregate; once for each update in it. */
void weft_shard_update_in_sum(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct shard_sum *sum);
/* A chunk of a push of an update has arrived, in this many bytes. */
void weft_shard_update_arrived(struct weft_shard *shard, const struct shard_slot *slot,
                               uint32_t bytes, uint64_t now_ns);
/* The rank has finished this clock of the table, and those before. */
void weft_shard_update_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                             uint32_t finished);
/* A new process has this rank: close its open updates with what was applied. */
void weft_shard_updates_forget(struct weft_shard *shard, uint32_t rank);

/* shard_journal.c: no effect without a journal, or during its replay */

/* listed: number of rows whose ids come from a list, and are in chunk_ids; 0: the chunk contains
 * its ids. */
void weft_shard_journal_chunk(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_msg_event *event, uint32_t listed);
/* Around the search for the rows of a chunk: record which rows it evicts; in a replay, evict those
 * of the record. */
void weft_shard_journal_watch(struct weft_shard *shard, struct weft_table *table);
void weft_shard_journal_unwatch(struct weft_shard *shard, struct weft_table *table);
/* After unwatch: the chunk was refused, because there was no room for a row. */
void weft_shard_journal_refused(struct weft_shard *shard, const struct shard_slot *slot,
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
/* spec and pushes as received; pushes: of RESUME, else NULL. */
void weft_shard_journal_table(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              const uint8_t *spec, const uint8_t *pushes);
/* Stages of a cut: before its first table; each table; all tables cut; kept, or failed; in a valid
 * checkpoint. */
void weft_shard_journal_cut_begin(struct weft_shard *shard);
void weft_shard_journal_cut(struct weft_shard *shard, uint16_t table);
void weft_shard_journal_cut_ready(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut);
void weft_shard_journal_cut_kept(struct weft_shard *shard);
void weft_shard_journal_cut_failed(struct weft_shard *shard);
void weft_shard_journal_durable(struct weft_shard *shard);
void weft_shard_journal_fini(struct weft_shard *shard);
/* True: the checkpoint already contains the record being replayed for this table. */
bool weft_shard_journal_passes_over(const struct weft_shard *shard, uint16_t table);

/* restore.c */
bool weft_shard_respec(struct weft_shard *shard, const struct weft_table_spec *spec);

/* shard.c */
void weft_shard_queue_push(struct weft_shard *shard, struct shard_queue *queue, uint32_t slot);
uint32_t weft_shard_queue_pop(struct weft_shard *shard, struct shard_queue *queue);
/* The rank has finished this clock and all before it. False: the clock is out of range. */
bool weft_shard_clock_take(struct weft_shard *shard, uint16_t table, uint32_t rank, uint32_t clock,
                           uint64_t now_ns);

/* shard_peers.c */
void weft_shard_peer_up(struct weft_shard *shard, const struct weft_msg_event *event,
                        uint64_t now_ns);
void weft_shard_peer_down(struct weft_shard *shard, const struct weft_msg_event *event,
                          uint64_t now_ns);
/* Post the expectations for which the transport had no room. Rare, so a walk over all slots is
 * acceptable. */
void weft_shard_post_again(struct weft_shard *shard);
/* The request has ended: post the slot's memory again if its worker is connected. */
void weft_shard_slot_release(struct weft_shard *shard, uint32_t slot);
/* The connection was replaced by another one of its process: the driver closes it. */
void weft_shard_replace(struct weft_shard *shard, weft_peer peer);
/* The rank of this peer belongs to another connected process: the driver closes with REPLACED. */
void weft_shard_refuse_peer(struct weft_shard *shard, weft_peer peer);
/* Number of aggregators that may connect; 0: none. */
static inline uint32_t weft_shard_aggregators(const struct weft_shard_config *config)
{
    return config->chunks_max > 0 ? config->aggregators_max : 0;
}
static inline bool shard_slot_is_aggregators(const struct weft_shard *shard,
                                             const struct shard_slot *slot)
{
    return slot->worker >= shard->config.workers_max;
}
/* An aggregator has connected, and may pull; or its connection has ended. */
void weft_shard_pulls_bind(struct weft_shard *shard, uint32_t aggregator, weft_peer peer);
void weft_shard_pulls_unbind(struct weft_shard *shard, uint32_t aggregator);
/* A new process has this rank. */
void weft_shard_worker_renew(struct weft_shard *shard, uint32_t rank, uint64_t incarnation,
                             uint64_t now_ns);

/* shard_park.c: ranks without a connection, whose requests arrive through aggregators */

/* PARK: the worker may be silent for lease_ms. False: it must stay connected. */
bool weft_shard_park(struct weft_shard *shard, uint32_t rank, uint32_t lease_ms, uint64_t now_ns);
/* The connection of a rank has ended. True: it had parked, and stays a member. */
bool weft_shard_parks(struct weft_shard *shard, uint32_t rank, uint64_t now_ns);
/* The rank is no longer parked. */
void weft_shard_unpark(struct weft_shard *shard, uint32_t rank);
/* Declare parked ranks dead whose lease has expired. */
void weft_shard_parked_overdue(struct weft_shard *shard, uint64_t now_ns);
/* Connected, or parked. */
static inline bool shard_is_there(const struct shard_worker *worker)
{
    return worker->up || worker->parked;
}

/* shard_push.c */

/* WEFT_RPC_OK: this worker may push for this clock now. */
enum weft_rpc_status weft_shard_push_allowed(const struct weft_shard *shard,
                                             const struct shard_slot *slot,
                                             const struct weft_table *table);
/* False = the chunk was refused. */
bool weft_shard_push_take(struct weft_shard *shard, struct shard_slot *slot,
                          const struct weft_msg_event *event);
/* A chunk from a journal, without a connection. Every field of event is checked. */
struct weft_shard_replayed {
    uint16_t table;
    uint32_t worker;
    uint64_t number;
    uint32_t clock;
    struct weft_msg_event event;
    size_t behind_bytes; /* stored after the chunk */
};

/* The same from a journal. refused: the chunk was refused for lack of room, which may have created
 * and evicted rows, and counted ids for admission. */
bool weft_shard_push_replay(struct weft_shard *shard, const struct weft_shard_replayed *push);
bool weft_shard_push_replay_refused(struct weft_shard *shard,
                                    const struct weft_shard_replayed *push);

/* Number of its rows; 0: the chunk is invalid. */
uint32_t weft_shard_push_rows(const struct weft_shard *shard,
                              const struct weft_shard_replayed *push);

/* shard_aggregate.c, shard_aggregate_apply.c: pushes summed by an aggregator */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_aggregates_init(struct weft_shard *shard);
void weft_shard_aggregates_fini(struct weft_shard *shard);
/* Sets aggregators_connected and _active of *gauges_p. */
void weft_shard_aggregates_gauges(const struct weft_shard *shard, uint64_t since_ns,
                                  struct weft_shard_gauges *gauges_p);
/* True: workers may be granted WEFT_RPC_CAN_AGGREGATE. */
static inline bool weft_shard_takes_aggregates(const struct weft_shard *shard)
{
    /* Aggregates need duplicate detection: the shard must know pushes that were begun directly. */
    return shard->aggregates != NULL && (shard->config.can & WEFT_RPC_CAN_AGGREGATE) != 0 &&
           shard->partial_count > 0;
}
/* A TABLE was accepted: record the worker's session. */
void weft_shard_aggregate_session(struct weft_shard *shard, const struct shard_slot *slot);
/* A new process has this rank. */
void weft_shard_aggregate_forget(struct weft_shard *shard, uint16_t table, uint32_t rank);
/* False: other modules handle the event, too. */
bool weft_shard_aggregate_event(struct weft_shard *shard, const struct weft_msg_event *event,
                                uint64_t now_ns);
/* Pass the ready replies to the transport. */
void weft_shard_aggregate_send(struct weft_shard *shard, uint64_t now_ns);
/* Apply an aggregate from a journal. */
bool weft_shard_aggregate_replay(struct weft_shard *shard, uint16_t table, uint32_t clock,
                                 const uint8_t *bytes, size_t count);

/* shard_hot.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_shard_hots_init(struct weft_shard *shard);
void weft_shard_hots_fini(struct weft_shard *shard);
/* True: workers may be granted WEFT_RPC_CAN_HOT for this table. */
bool weft_shard_hot_takes(const struct weft_shard *shard, uint16_t table);
/* Build the reply to a PULL with HOT. False: only a head with a status. */
bool weft_shard_hot_answer(struct weft_shard *shard, struct shard_slot *slot, uint64_t now_ns);
uint64_t weft_shard_hot_rows(const struct weft_shard *shard);

/* transfer.c: transfers to the replica; no effect without replicas */

/* Errors: WEFT_NOMEM. */
weft_status weft_transfer_init(struct weft_shard *shard);
void weft_transfer_fini(struct weft_shard *shard);
/* False: other modules handle the event, too. */
bool weft_transfer_event(struct weft_shard *shard, const struct weft_msg_event *event,
                         uint64_t now_ns);
void weft_transfer_progress(struct weft_shard *shard, uint64_t now_ns);
/* All rows of a table have been stepped: it can be cut now. */
void weft_transfer_boundary(struct weft_shard *shard, uint64_t now_ns);
/* True: no reply may be sent now. */
bool weft_transfer_holds_answers(struct weft_shard *shard);
/* BSP, true: no clock may end now; weft_shard_clock_advance is called again when one may. */
bool weft_transfer_holds_steps(const struct weft_shard *shard);

/* shard_record.c */

/* A request of this rank has begun on its own connection, or an aggregate of it is complete. */
void weft_shard_record_open(struct weft_shard *shard, uint32_t rank, uint64_t at_ns);
/* A push or an ended clock of this worker was accepted in an aggregate. */
void weft_shard_record_member(struct weft_shard *shard, uint32_t rank, uint64_t at_ns);
/* Its reply was passed to the transport. */
void weft_shard_record_served(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_rpc_reply *reply, uint64_t departure_ns);

/* shard_request.c */

/* Bytes per id, from the element size of a PUSH; 0: invalid. Rows of several blocks have no packed
 * ids. */
uint8_t weft_shard_push_id_bytes(const struct weft_table *table, uint16_t elem_bytes);
/* Most elements in a chunk of a PUSH. */
static inline uint32_t weft_shard_chunk_elems_max(uint8_t id_bytes)
{
    return id_bytes == WEFT_RPC_ID_PACKED ? WEFT_PS_PACKED_CHUNK_BYTES : WEFT_PS_CHUNK_ROWS_MAX;
}
/* A rank opens a table: WEFT_RPC_OK, or the reason for refusal. */
enum weft_rpc_status weft_shard_table_open(struct weft_shard *shard,
                                           const struct weft_table_spec *spec, uint32_t rank);
void weft_shard_request_open(struct weft_shard *shard, struct shard_slot *slot,
                             const struct weft_msg_event *event);
void weft_shard_request_chunk(struct weft_shard *shard, struct shard_slot *slot,
                              const struct weft_msg_event *event);
void weft_shard_request_closed(struct weft_shard *shard, struct shard_slot *slot,
                               const struct weft_msg_event *event, uint64_t now_ns);
/* Build the reply to a pull. */
void weft_shard_answer_pull(struct weft_shard *shard, struct shard_slot *slot);
/* Reply to a request with a head only. */
void weft_shard_answer_head(struct weft_shard *shard, struct shard_slot *slot);
/* Pass ready replies to the transport until it accepts no more. */
void weft_shard_send_ready(struct weft_shard *shard, uint64_t now_ns);

/* shard_wait.c */
/* True: the clock and the push that the pull waits for have ended, and its table's rows are not
 * being stepped. */
bool weft_shard_pull_allowed(const struct weft_shard *shard, const struct shard_slot *slot);
/* Move waiting pulls whose condition is met to `due`. Sends ready replies. */
void weft_shard_wake(struct weft_shard *shard, uint64_t now_ns);
/* Build replies to due pulls: a slice of them, so that the first replies are sent while others are
 * built; or all, because the weights are about to change. */
void weft_shard_answer_due(struct weft_shard *shard, bool all);
/* A request has arrived on the connection of its worker. */
void weft_shard_rpc_seen(struct weft_shard *shard, uint32_t rank, uint32_t rpc_id);

/* False: this rpc_id, named by an aggregator, is more than a window ahead of all that have arrived
 * on the worker's own connection. If it were recorded as closed, requests that the worker has yet
 * to send would count as closed. */
bool weft_shard_rpc_plausible(const struct weft_shard *shard, uint32_t rank, uint32_t rpc_id);

/* The message with the reply of this slot has ended (SENT). */
void weft_shard_reply_sent(struct weft_shard *shard, const struct shard_slot *slot,
                           const struct weft_msg_event *event);
/* A new CLOCK of this rank arrived, over its connection or through an aggregator. */
void weft_shard_clock_arrived(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              uint64_t now_ns);

#endif
