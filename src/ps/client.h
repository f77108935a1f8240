/* The worker's side of the parameter server: push, pull and clock over all shards, with latencies
 * and counters.
 *
 * A sans-I/O state machine over one transport with a peer per shard. An operation is started, then
 * completes while the caller feeds events; no call blocks. One thread owns it.
 *
 *     loop:  progress the transport;  weft_ps_client_event for each event polled;
 *            weft_ps_client_progress;  until weft_ps_op_done.
 *
 * Clocks: a worker that has finished c clocks (0 at first) pushes for clock c + 1; weft_ps_clock
 * ends it. A pull of a BSP table waits on the server until all workers have finished c, of an
 * SSP(N) table until all have finished c - N; of an ASP table it does not wait. It sees the
 * worker's own earlier pushes (BSP: those of finished clocks).
 *
 * Loss: a push may lose chunks within its bound; their gradients are lost and counted. A pull may
 * lose chunks of its reply; their rows keep the values that rows_out had on entry. The client
 * remembers their ids and puts them first in the next pull, in the chunk that must arrive.
 *
 * Reconnection (config.reconnect_ns): while a shard is disconnected, its operations wait and
 * weft_ps_push returns AGAIN. The driver connects to the shard's current address and passes the new
 * connection on:
 *
 *     after a batch of events:  for each shard s: if weft_ps_client_away(client, s) and
 *         now >= weft_ps_client_reconnect_ns(client, s):
 *         connect; weft_ps_client_reconnect(client, s, peer).  A failed connection is another
 *         PEER_DOWN: the shard is still away, connect again. PEER_DOWN (REPLACED) is final: another
 *         process has this worker's rank, and unfinished operations fail.
 *     after weft_ps_client_progress:  weft_ps_client_take_resumed, for reports.
 *
 * After a reconnection both ends exchange the numbers of the pushes they have. The client resends
 * unfinished pushes under their numbers, so each chunk is applied at most once. It also resends the
 * CLOCKs that the shard no longer has; consecutive clocks without pushes become one CLOCK. Finished
 * pushes that a restored shard lacks are lost and counted, and pulled rows show it: the table is as
 * in the shard's checkpoint. If a shard that shrinks has ended the clock of a push in flight, the
 * push completes with the chunks applied so far. With replay_bytes the client also keeps finished
 * pushes until the shard reports them durable. Then none is lost: a restarted shard is restored to
 * its previous state, clock by clock.
 *
 * Source: docs/PROTOCOL.md section 7.
 */
#ifndef WEFT_PS_CLIENT_H
#define WEFT_PS_CLIENT_H

#include "base/hash_key.h"
#include "base/hist.h"
#include "core/msg.h"
#include "rpc/latency.h"
#include "rpc/rpc_record.h"
#include "ps/row_store.h"

struct weft_ps_client;

/* Names an operation until it is released. */
typedef uint32_t weft_ps_op;

enum { WEFT_PS_LISTS_MAX = 256 };

struct weft_ps_client_config {
    uint32_t worker; /* rank; the endpoint's name must be
                      * weft_rpc_name(WEFT_ROLE_WORKER, worker) */
    uint32_t shards;
    uint32_t tables_max;       /* tables 0 .. tables_max - 1 */
    uint32_t ops_max;          /* operations not yet released */
    uint32_t lists_per_op_max; /* in one push or pull; <= WEFT_PS_LISTS_MAX */
    uint32_t rows_per_op_max;  /* rows in one push or pull, all lists together */
    uint32_t rows_per_rpc_max; /* larger parts are split; at most the server's */
    uint32_t rows_long_max;    /* likewise towards a shard with WEFT_RPC_CAN_LONG, if that is more;
                                * at most WEFT_RPC_ROWS_LONG. Not with aggregators */
    uint32_t dim_max;
    uint8_t missed_key[WEFT_HASH_KEY_BYTES]; /* hash key of the sets and stores of ids. The driver
                                              * draws it at random, so that peers cannot guess it */
    uint16_t can; /* enum weft_rpc_can: capabilities that requests use if the shard grants them */
    uint32_t missed_max;          /* ids remembered as missed; more are forgotten, and counted */
    uint64_t reconnect_ns;        /* operations on a shard that is disconnected for longer fail with
                                   * PEER; 0 = they fail at once */
    uint64_t replay_bytes;        /* durability replay: memory in which pushes are kept until a
                                   * valid checkpoint of their shard contains them. They are resent
                                   * to a shard that restarts without them. 0 = durability none.
                                   * Needs reconnect_ns, and servers that write checkpoints */
    uint32_t replay_messages_max; /* maximum number of these pushes; >= 1 with replay_bytes */
    uint64_t update_bytes_min;    /* pushes of a clock of at least this many bytes in total wait for
                                   * a grant (ps/update.h). 0 = the job has no scheduler */
    uint64_t via_timeout_ns; /* > 0: pushes and pulls may be sent through aggregators. An aggregator
                              * with outstanding requests times out after this long without any
                              * reply, and later without one to a request (client_via.c) */
    uint32_t aggregators;    /* with via_timeout_ns: aggregators per shard; 0 means 1. More than one
                              * only with update_bytes_min: grants then name the aggregator */
    uint32_t pieces; /* cut-through: pushes are cut into up to this many pieces by ranges of ids,
                      * each a push of its own, so that aggregators forward the sum of a piece
                      * while the next ones arrive (client_piece.c). <= WEFT_PS_PIECES_MAX; 0, 1 =
                      * do not cut. Needs via_timeout_ns and update_bytes_min. This and the next
                      * two must be the same for all workers */
    uint64_t piece_bytes_min; /* dense tables: of each shard; fewer pieces if they would be
                               * smaller */
    uint32_t piece_rows_min;  /* sparse tables: a push is not cut if its pieces would have fewer
                               * rows on average; a piece without rows makes the sum wait, as do
                               * members of which only some are cut */
    uint64_t park_lease_ns;  /* > 0: a connection to a shard is parked (client_park.c) while all
                              * requests go through its aggregator. It is reopened when no request
                              * has been committed for a quarter of this time. At most
                              * WEFT_RPC_PARK_MS_MAX. Needs via_timeout_ns; not with replay_bytes or
                              * update_bytes_min. If reconnect_ns is 0, the first attempt to reopen
                              * must reach the same process */
    uint64_t park_pause_ns;  /* a connection is parked after this long without direct requests; the
                              * time doubles with each reopening */
    uint32_t hot_rows;       /* with via_timeout_ns: split pushes and pulls into hot and cold rows
                              * (client_hot.c); the maximum size of a hot set, <= WEFT_HOT_ROWS_MAX.
                              * 0 = do not split. Connections are then not parked. Not with
                              * update_bytes_min */
    uint64_t seed;           /* seed of the random pauses between connection attempts; the rank is
                              * mixed in */
    uint64_t (*clock_ns)(void *arg); /* same clock as now_ns */
    void *clock_arg;
    struct weft_rpc_record_ring *records; /* receives a record of every push and pull that has a
                                           * reply; borrowed until free. NULL = none. Clients of one
                                           * thread may share one ring */
};

struct weft_ps_result {
    weft_status status;  /* OK. PEER: a shard is down. PROTO: a reply was malformed. DATA: the
                          * server refused all or part of the operation, see rpc_status.
                          * UNSUPPORTED: the request does not fit the packets */
    uint16_t rpc_status; /* enum weft_rpc_status, the first that was not OK */
    uint32_t shard;      /* shard of the error; if all is OK, shard of the slowest RPC */
    uint32_t rpcs;
    uint32_t rpcs_short;     /* of these, messages (either way) that arrived incomplete */
    uint32_t chunks_refused; /* push: chunks refused by the server */
    uint32_t rpcs_dropped;   /* push: RPCs of which nothing was applied, because the scheduler
                              * dropped the update or its model was too old (ps/update.h); their
                              * rows count as missed. The worker should pull again */
    uint64_t elements_sent;  /* blocks of rows: in pushes, or in the server's replies */
    uint64_t elements_delivered;
    uint64_t rows_missed; /* pull: rows that kept an old value, in whole or in part. Push: rows of
                           * which a gradient was lost. weft_ps_op_missed names them */
    uint32_t clock;       /* lowest version in the replies */
    struct weft_rpc_latency latency; /* of the last RPC to finish */
};

/* Distributions over RPCs, one set for pushes, one for pulls; ns. */
struct weft_ps_latencies {
    struct weft_hist w_proc;
    struct weft_hist w_queue;
    struct weft_hist ps_proc;
    struct weft_hist ps_queue;
    struct weft_hist ps_wait;
    struct weft_hist n_tx;
    struct weft_hist total; /* t1 - t0 */
};

/* Cumulative since weft_ps_client_new. Elements are blocks of rows, without heads. */
struct weft_ps_flow {
    uint64_t messages;       /* pushes, or replies to pulls, closed */
    uint64_t messages_short; /* with at least one chunk missing, within the bound or not */
    uint64_t elements_sent;
    uint64_t elements_delivered;
    uint64_t chunks_refused;
};

struct weft_ps_client_counters {
    struct weft_ps_flow push;
    struct weft_ps_flow pull;   /* replies; `sent` counts what the server sent */
    uint64_t clocks;            /* CLOCK messages closed */
    uint64_t clock_probes;      /* empty pulls sent to learn that a clock has begun */
    uint64_t replies_malformed; /* malformed or inconsistent */
    uint64_t rpcs_refused;      /* the reply had a status other than OK */
    uint64_t rpcs_failed;       /* the shard was down */
    uint64_t packed;            /* requests with packed ids */
    uint64_t lists_stored;      /* pulls whose ids the shard keeps as a list */
    uint64_t pushes_listed;     /* pushes that named a list instead of their ids, with reply OK */
    uint64_t list_bytes_saved;  /* bytes of ids not sent, compared with unpacked ids */
    uint64_t lists_unknown;     /* pushes whose list the shard did not have; sent twice */
    uint64_t lists_sent;        /* LISTs sent: for these pushes, and for pushes requeued by a broken
                                 * connection */
    uint64_t missed_ids;        /* ids currently remembered as missed */
    uint64_t missed_first;      /* ids placed first in a pull because they had been missed */
    uint64_t missed_ids_dropped;  /* missed ids of pulls or pushes not remembered: missed_max was
                                   * reached */
    uint64_t last_values_evicted; /* rows whose last value was evicted for another row's */
    uint64_t feedback_rows_now;   /* rows that currently have kept gradients */
    uint64_t feedback_stored;     /* lost elements that were kept */
    uint64_t feedback_added;      /* elements to which kept ones were added */
    uint64_t feedback_dropped;    /* lost elements that were not kept: no room, not finite, or it is
                                   * unknown whether they arrived */
    uint64_t residual_dropped;    /* elements whose rounding error was not kept: no room */
    uint64_t value_bytes_saved;   /* bytes saved by encoding values that arrived, in pushes and
                                   * replies, compared with float32 */
    uint64_t updates;             /* complete updates (ps/update.h) */
    uint64_t updates_asked;       /* of these, long enough to request grants */
    uint64_t updates_direct;      /* of these, sent without a grant */
    uint64_t updates_dropped;     /* of these, dropped */
    uint64_t updates_unplaced;    /* pushes that began an update while WEFT_PS_UPDATES_MAX were in
                                   * progress */
    uint64_t pushes_dropped;
    uint64_t pushes_late;       /* pushes refused with LATE */
    uint64_t deadlines_expired; /* requests of pulls, and pushes, that a deadline ended or
                                 * prevented */
    uint64_t deferred;          /* sends and expectations deferred by the transport */
    uint64_t shard_disconnects; /* connections that ended, after which the client waited for
                                 * the shard */
    uint64_t resumes;           /* tables resumed at a shard */
    uint64_t pushes_resent;     /* messages sent again */
    uint64_t pushes_lost;       /* finished pushes that a restarted shard lacks, or that an
                                 * aggregator acknowledged on apply and did not commit */
    uint64_t pushes_durable;    /* kept pushes freed because a checkpoint contains them */
    uint64_t replay_bytes_now;  /* bytes of replay_bytes in use */
    uint64_t replay_full;       /* pushes deferred because the replay memory was full or nearly
                                 * full */
    uint64_t clocks_resent;     /* finished CLOCKs resent to a restarted shard */
    uint64_t via_pushes;        /* pushes sent to an aggregator */
    uint64_t via_committed;     /* of these, committed at their shard by the aggregator */
    uint64_t via_applied;       /* of these, acknowledged on apply */
    uint64_t via_direct;        /* of these, resent directly to the shard */
    uint64_t via_pulls;         /* the same for pulls */
    uint64_t via_answered;
    uint64_t via_pulls_direct;
    uint64_t via_clocks; /* the same for clocks */
    uint64_t via_clocks_taken;
    uint64_t via_clocks_direct;
    uint64_t via_downs;   /* connections to aggregators that ended */
    uint64_t hot_asked;   /* requests for hot sets */
    uint64_t hot_epochs;  /* of these, answered with a new set */
    uint64_t hot_refused; /* of these, refused: the set is larger than hot_rows */
    uint64_t rows_hot;    /* hot rows in split pushes */
    uint64_t rows_cold;   /* cold rows in split pushes; sent to the shard */
    uint64_t parks;       /* connections to shards that were parked */
    uint64_t unparks;     /* of these, reopened */
    uint64_t parks_refused;  /* PARKs refused by the shard */
    uint64_t pushes_skipped; /* pushes refused in part or whole because the shard had ended their
                              * clock without this worker (shrink). No error, but not applied */
};

/* Defaults: 1 shard, 4 tables, 8 operations of 4 lists and 65,536 rows, 16,384 rows per RPC, dim
 * 64, 65,536 ids missed. The caller sets worker and clock. */
void weft_ps_client_config_default(struct weft_ps_client_config *config_p);

/* Most expectations that this client posts; for expects_max of its endpoint. */
uint32_t weft_ps_client_expects_max(const struct weft_ps_client_config *config);

/* Shape:   shard_peers (shards,): connected or connecting.
 * Owns:    copies config and shard_peers; gives *client_p. Allocates all memory.
 * Errors:  WEFT_INVALID, WEFT_NOMEM. */
weft_status weft_ps_client_new(const struct weft_ps_client_config *config, struct weft_msgr msgr,
                               const weft_peer *shard_peers, struct weft_ps_client **client_p);

/* Free the endpoint first: it borrows the client's memory. NULL is allowed. */
void weft_ps_client_free(struct weft_ps_client *client);

/* Declare a table on all shards; usable once the operation is done with status OK. If the packets
 * cannot hold a block of a row and the specification leaves the block length open, the table is
 * declared with shorter blocks.
 * Errors:  WEFT_INVALID  spec is not valid or beyond this client's limits.
 *          WEFT_EXISTS   already open.
 *          WEFT_AGAIN    ops_max operations are not released yet, or a shard is disconnected. */
weft_status weft_ps_table_open(struct weft_ps_client *client, const struct weft_table_spec *spec,
                               uint64_t now_ns, weft_ps_op *op_p);

/* Add gradients. n = 0 is allowed and completes at once. Gradients of repeated ids are all applied.
 *
 * Shape:   ids (n,); rows (n, dim) float32, contiguous.
 * Owns:    borrows both until return: copies them to the client's memory.
 * Units:   bound_ppm is the fraction of chunks that may be lost, < 10^6.
 * Errors:  WEFT_STATE    the table is not open. WEFT_INVALID  n or bound_ppm out of range.
 *          WEFT_AGAIN    ops_max operations are not released yet, a shard is disconnected, or the
 *                        replay memory is full: feed events, then retry. The client requests a
 *                        checkpoint when half of the memory is used, and limits the rate of pushes
 *                        in the last quarter, because BSP tables are checkpointed only at ends of
 *                        clocks.
 *          WEFT_NOMEM    the replay memory is full, and no checkpoint will free any: all of it
 *                        belongs to the clock in progress, or no checkpoint was made within
 *                        reconnect_ns. Set replay_bytes to at least four times the bytes that a
 *                        worker pushes per clock.
 *          WEFT_UNSUPPORTED  a block of a row does not fit the packets to a shard. */
weft_status weft_ps_push(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         const float *rows, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p);

/* Fetch rows.
 *
 * Shape:   ids (n,); rows_out (n, dim), holding the old values on entry.
 * Owns:    borrows ids and rows_out until the operation is done.
 * Errors:  as weft_ps_push. */
weft_status weft_ps_pull(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         float *rows_out, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p);

/* An RPC without payload: an empty pull from one shard, which waits for no clock. Its duration is
 * the minimum of any RPC. Errors: WEFT_STATE, WEFT_AGAIN as weft_ps_push; WEFT_INVALID shard. */
weft_status weft_ps_ask(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                        uint64_t now_ns, weft_ps_op *op_p);

/* Request a checkpoint. Done when a checkpoint is valid that was cut after all shards had received
 * this request; it contains everything that finished before. A single process with all shards cuts
 * as soon as possible, with a BSP table at the end of a clock. Several server processes cut at the
 * end of the clock after the one in progress, so clocks must continue.
 * Errors:  WEFT_STATE   no table is open.   WEFT_EXISTS  a request is in progress.   WEFT_AGAIN.
 *          The result: DATA with rpc_status NO_CHECKPOINTS, NOT_KEPT, NO_COPIES or CUT_LATE. */
weft_status weft_ps_client_checkpoint(struct weft_ps_client *client, uint64_t now_ns,
                                      weft_ps_op *op_p);

struct ps_known;

/* Rows of one table in an operation. The same description is used from the caller down to the RPC.
 *
 * Rows of a dense table may be given without ids: they are first, first + 1, ..., and the caller's
 * memory is a slice of the vector, at most up to its end. With ids, each row has all dim floats. */
struct weft_ps_list {
    size_t n;
    const uint64_t *ids; /* (n,); DENSE: or NULL */
    uint64_t first;      /* DENSE without ids: number of the first row */
    const float *values; /* push: (n, dim) */
    float *out;          /* pull: (n, dim), holding the old values on entry */
    uint16_t table;

    /* Set by the client; ignored on entry. */
    uint8_t id_bytes; /* bytes per id in requests; in a part WEFT_RPC_ID_PACKED if its ids are
                       * packed */
    bool fill;        /* pull: `out` holds no old values */
    bool splits;      /* hot and cold rows form separate parts */
    uint8_t pieces;   /* push: number of pieces; 1 = it is not cut */
    uint8_t ahead;    /* pull: clocks later than the one in progress */
    uint32_t at;      /* index in the operation of the list's first row */
    uint64_t floats;  /* in the caller's memory: n x dim, or fewer at the end of a dense vector */
    const struct ps_known *known; /* push, while its parts are built: the pull of exactly these
                                   * rows; or NULL */
};

/* Options of an operation. */
struct weft_ps_how {
    uint32_t bound_ppm;
    uint64_t fill; /* pull: bit i: rows_out of list i has no values on entry (bit 63: all lists from
                    * 63 on). A missed row is set to the last value that this client received
                    * (weft_ps_client_remember), or else to its initial weights */
    uint64_t deadline_ns; /* same clock as now_ns; 0 = none. The operation ends at this time with
                           * the data that has arrived. A pull is done then: other rows are missed,
                           * and its slot is freed when their replies have arrived. A push sends no
                           * more data: it is done when the shards have reported what they received;
                           * the rest is never applied. Parts that still wait for a clock or for a
                           * disconnected shard are not sent. A push that was in flight when its
                           * connection broke is resent nevertheless, because it is unknown what
                           * arrived */
    uint32_t ahead; /* pull, BSP, 0 or 1: prefetch for this many clocks later. The request is sent
                     * during the current step, and the shard replies when all workers have ended
                     * this clock. Call weft_ps_clock before waiting for the result. Rows that the
                     * last pull missed are critical, because a pull without a reply yet may miss
                     * them again. A shard gets few of these requests at a time; the others are sent
                     * when this clock has ended */
    bool aside;     /* pull outside of a step, for example for an evaluation: needs no admission
                     * (ps/update.h) */
    bool has_norm;  /* push: `norm` is its Euclidean norm. Otherwise the client computes the norm if
                     * an update needs it */
    double norm;
};

/* Begin a push or a pull (kind: WEFT_RPC_PUSH or WEFT_RPC_PULL) of several tables as one operation
 * with one result. Its messages are passed to the transport together, so they are sent and arrive
 * as one burst.
 *
 * Shape:   lists (count,), count <= lists_per_op_max; a table may occur more than once.
 * Owns:    borrows lists until return, and their arrays as weft_ps_push and weft_ps_pull do.
 * Errors:  as weft_ps_push; WEFT_INVALID also: count, rows_per_op_max, or an id beyond a dense
 *          table. After an error nothing was started. */
weft_status weft_ps_begin(struct weft_ps_client *client, uint8_t kind,
                          const struct weft_ps_list *lists, uint32_t count,
                          const struct weft_ps_how *how, uint64_t now_ns, weft_ps_op *op_p);

/* The same with a bound only. */
weft_status weft_ps_push_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p);
weft_status weft_ps_pull_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p);

/* Remember the last value of up to rows_max rows of a table; beyond that the oldest entry is
 * evicted. From now on, every pull of the table costs one lookup per row.
 * Owns:    borrows memory, of weft_row_store_bytes(rows_max, dim), until free.
 * Errors:  WEFT_STATE  the table is not declared.   WEFT_INVALID  rows_max. */
weft_status weft_ps_client_remember(struct weft_ps_client *client, uint16_t table, void *memory,
                                    uint32_t rows_max);

/* Error feedback: keep the gradients that pushes of a table lose, and the rounding errors of values
 * that are not float32, by id, and add them to the next push of that id. At most rows_max rows;
 * further losses are counted (feedback_dropped, residual_dropped). Nothing is kept of refused or
 * failed pushes, except those refused as LATE, which are kept whole (ps/update.h).
 * Owns:    borrows memory, of weft_row_store_bytes(rows_max, dim), until free.
 * Errors:  as weft_ps_client_remember. */
weft_status weft_ps_client_feedback(struct weft_ps_client *client, uint16_t table, void *memory,
                                    uint32_t rows_max);

/* Default number of rows for error feedback of such a table: 0 if values are float32, because then
 * a push loses only what its bound allows. Otherwise as many rows as fit in 16 MiB, at most those
 * of a dense table. */
uint32_t weft_ps_feedback_rows(const struct weft_table_spec *spec);

/* Lists at most max ids with kept gradients and, unless rows_p is NULL, their rows (max, dim).
 * Returns the number of rows kept. A push of zeros for an id sends its kept gradients. */
uint32_t weft_ps_client_kept(const struct weft_ps_client *client, uint16_t table, uint64_t *ids_p,
                             float *rows_p, uint32_t max);

/* Finish this worker's clock. CLOCK is sent to each shard once all pushes of this clock to it are
 * closed. If a shard has continued without this worker (shrink) since its last clock, and nothing
 * was pushed since, that clock has already ended: the call finishes none.
 * Errors:  WEFT_STATE the table is not open. WEFT_AGAIN not all shards have the previous clock yet:
 *          feed events, then retry. WEFT_PEER a shard is down. */
weft_status weft_ps_clock(struct weft_ps_client *client, uint16_t table, uint64_t now_ns);

/* Epoch of the hot set by which operations on a table are split at a shard; 0 = no split. */
uint32_t weft_ps_client_hot_epoch(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard);

/* Number of clocks ended, and whether all shards have accepted the CLOCK of the last one. */
uint32_t weft_ps_clock_now(const struct weft_ps_client *client, uint16_t table);
bool weft_ps_clock_accepted(const struct weft_ps_client *client, uint16_t table);

/* A connected shard no longer accepts CLOCKs of this rank. Operations that wait for its clock will
 * never complete. */
struct weft_ps_clock_refusal {
    uint16_t table;
    uint32_t shard;
    uint32_t clock;     /* the refused one */
    weft_status status; /* STATE: refused, because the shard has another clock of this rank. After a
                         * reconnection that could not be resumed: DATA, see rpc_status; PROTO, the
                         * reply was malformed */
    uint16_t rpc_status;
};

/* False: no refusal. */
bool weft_ps_clock_refused(const struct weft_ps_client *client,
                           struct weft_ps_clock_refusal *refusal_p);

/* Process an event of the endpoint. Values of `user` with the top bit set are reserved for the
 * client: events of other messages are ignored only if that bit is clear.
 * Owns: borrows everything in it until return. */
void weft_ps_client_event(struct weft_ps_client *client, const struct weft_msg_event *event,
                          uint64_t now_ns);

/* Send whatever can be sent. Call after each batch of events and after starting operations. */
void weft_ps_client_progress(struct weft_ps_client *client, uint64_t now_ns);

/* True if the operation is done; then *result_p is set (NULL: not requested). */
bool weft_ps_op_done(const struct weft_ps_client *client, weft_ps_op op,
                     struct weft_ps_result *result_p);

/* Rows of a completed operation that did not arrive whole: one bit per row, numbered over its lists
 * in order. Includes all rows of parts that failed or were refused as a whole, but not the rows of
 * single refused chunks of a push (chunks_refused). NULL: none.
 * Owns:    valid until the operation is released. */
const uint64_t *weft_ps_op_missed(const struct weft_ps_client *client, weft_ps_op op,
                                  uint32_t *rows_p);

/* Latest time at which weft_ps_client_progress must be called; WEFT_NEVER = none. */
uint64_t weft_ps_client_deadline(const struct weft_ps_client *client);

/* Description of an operation in progress. */
struct weft_ps_op_about {
    bool is_push;
    bool is_checkpoint;
    uint16_t table; /* table of the first list */
    uint32_t lists;
    uint32_t rows; /* rows of all lists */
};

/* True: this slot (0 .. ops_max - 1) has a push, a pull or a checkpoint request that is neither
 * released nor abandoned. */
bool weft_ps_op_held(const struct weft_ps_client *client, weft_ps_op op);
struct weft_ps_op_about weft_ps_op_about(const struct weft_ps_client *client, weft_ps_op op);

/* A handle for programs, unique in this client: the slot and its generation. False: no such handle,
 * or its operation was released or abandoned. */
uint64_t weft_ps_op_handle(const struct weft_ps_client *client, weft_ps_op op);
bool weft_ps_op_find(const struct weft_ps_client *client, uint64_t handle, weft_ps_op *op_p);

/* Release the operation; it must be done. */
void weft_ps_op_release(struct weft_ps_client *client, weft_ps_op op);

/* Abandon an unfinished operation: the caller's memory is no longer borrowed, and the slot is freed
 * when the outstanding replies have arrived. A push is still sent. */
void weft_ps_op_abandon(struct weft_ps_client *client, weft_ps_op op);

/* True while the shard is disconnected and the client waits for it: connect to it, then pass the
 * connection on. *until_ns_p: when weft_ps_client_progress gives the shard up. False after that. */
bool weft_ps_client_away(const struct weft_ps_client *client, uint32_t shard, uint64_t *until_ns_p);

/* When to connect to a disconnected shard: at once after a connection that lasted, otherwise after
 * a pause that grows to one second. */
uint64_t weft_ps_client_reconnect_ns(const struct weft_ps_client *client, uint32_t shard);

/* Pass on a new connection, connected or connecting, to a disconnected shard.
 * Errors:  WEFT_STATE  the shard is not disconnected. */
weft_status weft_ps_client_reconnect(struct weft_ps_client *client, uint32_t shard, weft_peer peer,
                                     uint64_t now_ns);

/* Result of resuming a table at a shard. */
struct weft_ps_resumed {
    uint32_t shard;
    uint16_t table;
    uint32_t clock;         /* clock of this rank at the shard; later CLOCKs are resent */
    uint32_t clocks_resent; /* number of CLOCKs resent */
    uint64_t pushes_resent;
    uint64_t pushes_lost;
};

/* Return the next unreported result; false: none. Two consecutive broken connections may be
 * reported as one. */
bool weft_ps_client_take_resumed(struct weft_ps_client *client, struct weft_ps_resumed *resumed_p);

/* Aggregators (ps/aggregator.h), if via_timeout_ns > 0: one per shard. In a job with a scheduler
 * there are `aggregators` per shard: a push is sent to the one that its grant names, pulls to the
 * shard. Without a connected aggregator requests are sent directly; none waits for one. Number
 * `via` is aggregator via / shards of shard via % shards.
 *
 *     after a batch of events, for each via: if weft_ps_client_wants_via and now >= retry_ns:
 *         connect; weft_ps_client_via, or weft_ps_client_via_failed.  A failed connection is
 *         another PEER_DOWN.
 *     then: while weft_ps_client_take_via_close: disconnect. If it is a connection to a shard,
 *     the shard is parked then: neither away nor down. */
bool weft_ps_client_wants_via(const struct weft_ps_client *client, uint32_t via,
                              uint64_t *retry_ns_p);
void weft_ps_client_via(struct weft_ps_client *client, uint32_t via, weft_peer peer);
void weft_ps_client_via_failed(struct weft_ps_client *client, uint32_t via, uint64_t now_ns);
bool weft_ps_client_take_via_close(struct weft_ps_client *client, weft_peer *peer_p);
/* True: the client can continue after PEER_DOWN of the shard's connection for this reason: with
 * reconnect_ns, or while parking. */
bool weft_ps_client_waits(const struct weft_ps_client *client, uint32_t shard,
                          enum weft_msg_down down);
/* True if the shard has no connection and needs none: requests go through its aggregator. */
bool weft_ps_client_parked(const struct weft_ps_client *client, uint32_t shard);
/* Reconnect to all parked shards, and park none from now on. Call it before the worker ends, so
 * that the shards are notified, and before a long computation, during which a parked rank would be
 * declared dead. True: some shards are not connected yet, or have not resumed their tables. */
bool weft_ps_client_unpark(struct weft_ps_client *client, uint64_t now_ns);
/* Allow parking again. */
void weft_ps_client_park_again(struct weft_ps_client *client);
/* Bit a: aggregator a accepts pushes to all open tables, for every shard. None does if the last
 * complete update had a push with too many rows for a sum (ps/aggregate.h): such a push is sent to
 * its shard. */
uint32_t weft_ps_client_vias_open(const struct weft_ps_client *client);

/* Number of pushes that an aggregator has acknowledged on apply and that are not committed yet.
 * Their operations are done. If the aggregator fails, the shard is asked which of them it has; the
 * others are counted in pushes_lost. */
uint32_t weft_ps_client_applied(const struct weft_ps_client *client);

/* True while an operation is unfinished, a CLOCK is not closed, or a push is acknowledged and not
 * committed. */
bool weft_ps_client_busy(const struct weft_ps_client *client);

const struct weft_ps_client_counters *weft_ps_client_counters(const struct weft_ps_client *client);
const struct weft_ps_latencies *weft_ps_client_push_latencies(const struct weft_ps_client *client);
const struct weft_ps_latencies *weft_ps_client_pull_latencies(const struct weft_ps_client *client);
/* Reset latencies and counters, for example after a warm-up. */
void weft_ps_client_latencies_clear(struct weft_ps_client *client);

#endif
