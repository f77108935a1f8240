/* One shard of the parameter server: its tables, and the requests to them.
 *
 * A sans-I/O state machine over a transport: the driver passes it every event polled from the
 * endpoint, and it replies through the same msgr. It makes no system call; it calls the clock
 * function to measure durations inside one call. One thread owns it. A server has one shard per
 * thread; shards share nothing.
 *
 * A worker is identified by the name in its HELLO (weft_rpc_name(WEFT_ROLE_WORKER, rank)). Other
 * peers get no request memory, so their requests are not accepted. A new connection of a rank
 * replaces the old one.
 *
 * Request memory: every worker has its own slots, so that pulls waiting for the slowest worker
 * cannot block that worker's requests. Pushes and pulls have separate slots, so that a waiting pull
 * cannot block the push it waits for. CLOCK needs no slot. While all slots of a worker are in use,
 * its next request is not acknowledged: back-pressure.
 *
 *     on every event:  weft_shard_event;  after a batch: weft_shard_progress, then while
 *     weft_shard_wants_slab: weft_shard_add_slab.
 *
 * Source: docs/PROTOCOL.md section 7.
 */
#ifndef WEFT_PS_SHARD_H
#define WEFT_PS_SHARD_H

#include "base/hist.h"
#include "core/msg.h"
#include "ps/table.h"
#include "rpc/head.h"
#include "rpc/rpc_record.h"

struct weft_shard;

enum { WEFT_SHARD_AGGREGATORS_MAX = 64 };

/* Effect on a clock of the death of a member. */
enum weft_worker_death {
    WEFT_DEATH_WAIT,   /* the clock waits until the rank rejoins */
    WEFT_DEATH_SHRINK, /* continue without it; a new process joins at the clock in progress */
    WEFT_DEATH_FAIL,   /* as WAIT, and weft_shard_has_lost reports it; a connection that ends
                        * without CLOSE is a death */
};

struct weft_shard_config {
    uint32_t shard; /* this one, < shards */
    uint32_t shards;
    uint32_t workers_max;      /* ranks 0 .. workers_max - 1 may connect; <= 65,535 */
    uint32_t tables_max;       /* tables 0 .. tables_max - 1; <= 65,536 */
    uint32_t rows_max;         /* per table; memory for the index is allocated at init */
    uint32_t dim_max;          /* <= WEFT_RPC_DIM_MAX */
    uint32_t push_slots;       /* most pushes of one worker in progress; push + pull <= 60 */
    uint32_t pull_slots;       /* most pulls of one worker in progress, waiting ones included */
    uint32_t rows_per_rpc_max; /* ids in one pull; pushes have no limit here */
    uint16_t can;              /* enum weft_rpc_can: capabilities that workers may be granted. Lists
                                * require chunks_max */
    uint32_t list_ids;         /* most ids kept of the newest pulls of each worker
                                * (ps/list_store.h); 0 = none */
    uint32_t aggregators_max;  /* aggregators 0 .. aggregators_max - 1 may connect; <=
                                * WEFT_SHARD_AGGREGATORS_MAX. Each has memory for
                                * WEFT_AGGREGATE_SLOTS messages, first touched when used. Requires
                                * chunks_max */
    uint64_t slab_bytes;       /* of row memory per request to the driver */
    uint64_t table_bytes_max;  /* of each table: index, rows, admission; 0 = no limit */
    enum weft_worker_death on_death;
    uint32_t delay_max; /* ps/update.h: an update that would open more than this many updates after
                         * its base is refused. 0 = no limit */
    struct weft_table_keys keys;        /* drawn at random by the driver */
    const struct weft_row_hooks *hooks; /* of all tables; borrowed until free. NULL = none */
    uint32_t hot_top;  /* most-updated rows tracked per table (ps/hot.h); 0 = none */
    uint32_t hot_rows; /* size of each table's hot set, which workers with aggregators may request
                        * (shard_hot.c); 0 = none. At most 5/6 of hot_top and WEFT_HOT_ROWS_MAX */
    uint64_t hot_epoch_ns; /* with hot_rows: minimum time between two changes of the set; >= 1 ms */
    uint32_t step_rows;    /* BSP: rows stepped at a time at the end of a clock, so that a large
                            * table does not block the shard */
    bool checkpoints;      /* enable ps/snapshot.h: three bits per row. Needs chunks_max */
    uint32_t replicas_max; /* 1: a replica may connect (ps/transfer.h). Needs chunks_max; 8 bytes
                            * and three bits per row. 0 = none */
    double div_max; /* bound on the divergence between the replica and the state in this shard's
                     * replies (ps/divergence.h), >= 0. For a job's bound, divide it by the square
                     * root of the number of shards */
    uint64_t replica_lease_ns; /* a replica without a message for this long is not promoted; equal
                                * at both ends */
    size_t replica_cow_bytes;  /* memory for copies of rows that change while they are sent */
    uint32_t chunks_max; /* longest message of the endpoint in chunks. The shard keeps one bit per
                          * chunk for 2 x push_slots pushes of each worker, so that interrupted
                          * pushes can be resent. 0 = workers cannot resume */
    uint64_t (*clock_ns)(void *arg); /* same clock as now_ns */
    void *clock_arg;
    struct weft_rpc_record_ring *records; /* receives a record of every reply, and of every window
                                           * with a request; borrowed until free. NULL = none */
    uint64_t active_window_ns;            /* length of those windows; >= 1 */
};

/* Cumulative since weft_shard_new. */
struct weft_shard_counters {
    uint64_t pushes; /* requests closed, SHORT ones included */
    uint64_t pulls;
    uint64_t clocks;         /* CLOCK messages accepted */
    uint64_t tables;         /* TABLE requests with a reply */
    uint64_t replies;        /* queued to the transport */
    uint64_t replies_failed; /* replies dropped: the worker was gone, or the transport refused */
    uint64_t requests_short; /* requests closed with SHORT because the worker died */
    uint64_t requests_stale; /* requests dropped: from a connection that the worker had replaced */
    uint64_t chunks_applied; /* of pushes */
    uint64_t chunks_refused; /* of any request */
    uint64_t elements_applied;
    uint64_t rows_pulled;
    uint64_t rows_absent;      /* of these, rows without an entry: the reply had initial weights */
    uint64_t rows_stepped;     /* BSP: optimizer steps at the end of clocks */
    uint64_t rows_refused;     /* chunks refused for lack of memory for a new row */
    uint64_t clocks_refused;   /* CLOCKs that were not for the worker's next clock, or malformed */
    uint64_t clocks_duplicate; /* CLOCKs for finished clocks; accepted without effect */
    uint64_t chunks_duplicate; /* of resent pushes: already applied, so skipped */
    uint64_t clocks_skipped;   /* clocks ended for a worker that died in them */
    uint64_t waits;            /* pulls that had to wait for consistency */
    uint64_t workers_parked;   /* connections ended by PARK; the ranks stay members */
    uint64_t workers_overdue; /* of their ranks, those declared dead: no request arrived in time */
    uint64_t workers_replaced;
    uint64_t workers_refused;  /* connections of processes whose rank was given to another process,
                                * or that started before the connected one */
    uint64_t workers_joined;   /* SHRINK: tables opened by a rank that was not a member of them */
    uint64_t workers_left;     /* SHRINK: tables left by a member */
    uint64_t peers_ignored;    /* peers that connected but are not workers of this server */
    uint64_t slots_unposted;   /* expectations for which the transport had no room; retried */
    uint64_t lists_stored;     /* pulls whose ids were kept as a list */
    uint64_t lists_refused;    /* pulls that requested a list for which there was no memory */
    uint64_t lists_received;   /* LISTs accepted */
    uint64_t lists_unknown;    /* pushes answered UNKNOWN_LIST */
    uint64_t ids_by_list;      /* ids of pushes taken from a list instead of the message */
    uint64_t aggregates;       /* aggregates applied (ps/aggregate.h) */
    uint64_t aggregate_pushes; /* pushes in them; also counted in `pushes` */
    uint64_t aggregate_rows;   /* rows in them */
    uint64_t aggregate_gradients; /* row gradients summed in them */
    uint64_t
        aggregate_clocks; /* ended clocks reported by aggregators, including repeated reports */
    uint64_t aggregates_refused;  /* aggregates refused as a whole */
    uint64_t direct_proc_ns;      /* ps_proc and ps_overlap of pushes outside aggregates */
    uint64_t aggregate_proc_ns;   /* the same of aggregates */
    uint64_t active_windows;      /* windows of active_window_ns with a request */
    uint64_t active_workers;      /* with a request in a window, summed over the windows */
    uint64_t active_connections;  /* likewise */
    uint64_t aggregators_refused; /* aggregator connections refused because the number was in use */
    uint64_t hot_selections;      /* selections of hot sets */
    uint64_t hot_epochs;          /* selections that changed a hot set */
    uint64_t hot_rows_came;       /* rows added by these changes */
    uint64_t hot_rows_left;       /* rows removed by them */
    uint64_t hot_updates;         /* updates of rows in a hot set, counted at each selection for the
                                   * time since the last one */
    uint64_t hot_updates_of;      /* updates of all rows of these tables in the same time */
    uint64_t journal_records;     /* records written (ps/shard_journal.h) */
    uint64_t journal_full;        /* times that the journal became full and stopped until the next
                                   * cut */
    uint64_t journal_failed;      /* 1: the journal's memory failed, and writing has stopped */
    uint64_t updates_opened;  /* ps/update.h */
    uint64_t updates_closed;  /* of these, closed */
    uint64_t updates_late;    /* updates refused because of delay_max */
    uint64_t updates_delay_sum; /* sum over the opened updates of their delay: updates opened since
                                 * their base */
    uint64_t updates_delay_max;
    uint64_t updates_unreported;               /* COMMITTED reports discarded because the driver did
                                                * not fetch them in time */
    uint64_t by_status[WEFT_RPC_STATUS_COUNT]; /* replies by status */
};

/* Sums over all tables: current contents, and the counters of weft_table_counters. */
struct weft_shard_table_sums {
    uint64_t rows;
    uint64_t bytes; /* of indices, slabs and admission */
    uint64_t rows_created;
    uint64_t rows_evicted;
    uint64_t rows_expired;
    uint64_t unadmitted;
    uint64_t unadmitted_forgotten; /* ids whose push count was discarded */
    uint64_t not_finite;
};

/* The current state. */
struct weft_shard_gauges {
    uint64_t workers_connected;
    uint64_t workers_active; /* connected or parked workers that began a request recently */
    uint64_t workers_parked; /* without a connection, but alive: their requests arrive through
                              * aggregators */
    uint64_t requests_open;  /* requests begun and not replied to */
    uint64_t aggregators_connected;
    uint64_t aggregators_active; /* likewise */
    uint64_t hot_rows;           /* rows in hot sets */
};

/* Over all replies to one kind of request, ns (rpc/latency.h). */
struct weft_shard_latencies {
    struct weft_hist ps_proc;
    struct weft_hist ps_queue;
    struct weft_hist ps_wait;
};

/* Defaults: 1 shard, 16 workers, 4 tables, 2^20 rows, dim 64, 8 + 4 slots, 32,768 rows per pull,
 * 131,072 ids (1 MiB) in lists of each worker, slabs of 1 MiB, windows of 1 ms, the 1,000 hottest
 * rows, 2 aggregators. The caller sets the clock. Each pull slot has memory for the ids and the
 * reply of the largest pull; unused memory is never touched. */
void weft_shard_config_default(struct weft_shard_config *config_p);

/* Most expectations that this shard posts; for expects_max of its endpoint. */
uint32_t weft_shard_expects_max(const struct weft_shard_config *config);

/* Owns:    gives *shard_p; allocates all memory except that of rows.
 * Errors:  WEFT_INVALID, WEFT_NOMEM. */
weft_status weft_shard_new(const struct weft_shard_config *config, struct weft_msgr msgr,
                           struct weft_shard **shard_p);

/* Take all slabs back first, and free the endpoint first: it must not progress with this shard's
 * messages afterwards. NULL is allowed. */
void weft_shard_free(struct weft_shard *shard);

/* Process an event of the endpoint. Owns: borrows everything in it until return. */
void weft_shard_event(struct weft_shard *shard, const struct weft_msg_event *event,
                      uint64_t now_ns);

/* Continue the shard's own work (rows to step, replies to build, expired leases, a transfer), and
 * retry what the transport refused. */
void weft_shard_progress(struct weft_shard *shard, uint64_t now_ns);

/* True: there is work for the next weft_shard_progress; do not sleep. */
bool weft_shard_has_work(const struct weft_shard *shard);

/* Row memory. True: table *table_p requests a slab of *bytes_p bytes. The driver need not supply
 * it. */
bool weft_shard_wants_slab(const struct weft_shard *shard, uint16_t *table_p, size_t *bytes_p);
/* Owns: borrows memory (8-byte aligned) until take_slab. Errors: as weft_table_add_slab. */
weft_status weft_shard_add_slab(struct weft_shard *shard, uint16_t table, void *memory,
                                size_t bytes);
/* At the end: returns one slab per call, then NULL. */
void *weft_shard_take_slab(struct weft_shard *shard);

/* A connection of a rank that was replaced by another connection, for the driver to close. False:
 * none. *for_good_p: another process has the rank permanently. The driver closes with
 * WEFT_CLOSE_REPLACED, and the process ends. Otherwise the process may connect again. Call it after
 * a step of the driver, not inside. */
bool weft_shard_take_replaced(struct weft_shard *shard, weft_peer *peer_p, bool *for_good_p);

/* Write the record of the unfinished window of active workers: once, at the end. */
void weft_shard_records_end(struct weft_shard *shard);

/* The driver reports that the process of a rank died at at_ns: the shard acts as if its connection
 * had broken. No effect if the rank's connection is newer: then a new process has connected.
 * weft_shard_take_replaced returns the connection. */
void weft_shard_worker_died(struct weft_shard *shard, uint32_t rank, uint64_t at_ns,
                            uint64_t now_ns);

/* FAIL: a member of a table has died; *rank_p: the first to die. */
bool weft_shard_has_lost(const struct weft_shard *shard, uint32_t *rank_p);

/* True while a request is open, waiting or not yet replied to. */
bool weft_shard_busy(const struct weft_shard *shard);

const struct weft_shard_counters *weft_shard_counters(const struct weft_shard *shard);

const struct weft_shard_latencies *weft_shard_push_latencies(const struct weft_shard *shard);
const struct weft_shard_latencies *weft_shard_pull_latencies(const struct weft_shard *shard);

/* Recently: within span_ns before now_ns. */
void weft_shard_gauges(const struct weft_shard *shard, uint64_t now_ns, uint64_t span_ns,
                       struct weft_shard_gauges *gauges_p);

void weft_shard_table_sums(const struct weft_shard *shard, struct weft_shard_table_sums *sums_p);
/* Most-updated rows tracked per table (ps/hot.h). */
uint32_t weft_shard_hot_top(const struct weft_shard *shard);
/* Tables 0 .. tables_max - 1 may be declared. */
uint32_t weft_shard_tables_max(const struct weft_shard *shard);

/* NULL if not declared. */
const struct weft_table *weft_shard_table(const struct weft_shard *shard, uint16_t table);

/* Minimum clock of the members; 0 when not declared. */
uint32_t weft_shard_clock(const struct weft_shard *shard, uint16_t table);

#endif
