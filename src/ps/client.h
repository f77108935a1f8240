/* A worker's side of the parameter server: split by shard, push, pull, clock, and what it took.
 *
 * A sans-I/O state machine over one transport with a peer per shard. Operations are started, then
 * finish while the caller feeds events; nothing blocks. One thread owns it.
 *
 *     loop:  progress the transport;  weft_ps_client_event for each event polled;
 *            weft_ps_client_progress;  until weft_ps_op_done.
 *
 * Clocks: a worker that has finished c clocks (0 at first) pushes for clock c + 1; weft_ps_clock
 * ends it. A pull in a BSP table waits on the server until everybody has finished c, in SSP(N)
 * c - N, in ASP it does not wait. It sees the worker's own earlier pushes (in BSP: those of
 * finished clocks).
 *
 * Loss: a push may lose chunks within its bound: their gradients are gone, and counted. A pull may
 * lose chunks of its answer: their rows keep the values that rows_out had on entry, the client
 * remembers their ids, and puts them first in the next pull, where they are in the chunk that must
 * not be missing.
 *
 * A shard that goes away (config.reconnect_ns): its operations wait, weft_ps_push says AGAIN, and the
 * driver connects to where the shard is now and hands the new connection over:
 *
 *     after a batch of events:  for each shard s: if weft_ps_client_away(client, s) and
 *         now >= weft_ps_client_reconnect_ns(client, s):
 *         connect; weft_ps_client_reconnect(client, s, peer).  A connection that fails is another
 *         PEER_DOWN: the shard is still away, connect again. PEER_DOWN (REPLACED) is not waited for:
 *         another process has this worker's rank, and what is unfinished fails.
 *     after weft_ps_client_progress:  weft_ps_client_take_resumed, for reports.
 *
 * The two ends tell each other which pushes they know. What is unfinished is sent again under its
 * number, so that each chunk counts at most once; CLOCKs that the shard does not know any more are
 * said again, those that have no pushes in one. Pushes that were finished, and that a restored shard lacks, are lost and counted. Those
 * under way whose clock a shrinking shard has ended meanwhile are done with what it took of them.
 * Pulled rows show that: a table of such a shard is what its checkpoint was. With replay_bytes the
 * client keeps what is finished, too, until the shard says that it is durable; then nothing is lost,
 * and a shard that came back is brought to where it was, clock by clock.
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
    uint32_t dim_max;
    uint8_t missed_key[WEFT_HASH_KEY_BYTES]; /* of sets and stores of ids; drawn by the driver:
                                              * nobody can guess it */
    uint16_t can; /* of enum weft_rpc_can: what requests are made of where a shard takes it */
    uint32_t missed_max;             /* ids remembered as missed; more are forgotten, and counted */
    uint64_t reconnect_ns;           /* how long a shard may be away before what waits for it fails
                                      * with PEER; 0 = not at all */
    uint64_t replay_bytes;           /* durability replay: pushes are kept in so much memory until a
                                      * checkpoint of their shard counts, and sent again to a shard
                                      * that came back without them. 0 = durability none. Needs
                                      * reconnect_ns, and servers that take checkpoints */
    uint32_t replay_messages_max;    /* of these, how many; with replay_bytes >= 1 */
    uint64_t update_bytes_min;       /* ps/update.h: pushes of a clock that are as many bytes together
                                      * wait for a grant. 0 = the job has no scheduler */
    uint64_t via_timeout_ns;         /* > 0: pushes and pulls may go by aggregators; one that has some and
                                      * has not answered for so long is given up */
    uint32_t aggregators;            /* with it: of each shard; more than one with update_bytes_min
                                      * alone, where grants say which. 0 is 1 */
    uint64_t park_lease_ns;          /* > 0: a connection to a shard that only its aggregator uses is
                                      * ended (client_park.c), and opened again when the shard has heard
                                      * nothing for a quarter of this time. At most
                                      * WEFT_RPC_PARK_MS_MAX. Needs via_timeout_ns; not with
                                      * replay_bytes or update_bytes_min. Where reconnect_ns is 0, the
                                      * shard must answer, and be the same process */
    uint64_t park_pause_ns;          /* so long nothing but the aggregator uses it before; twice as long
                                      * after each time that it was opened again */
    uint32_t hot_rows;               /* with via_timeout_ns: pushes and pulls are split by the hot rows of
                                      * a table at a shard, at most so many (client_hot.c); connections
                                      * are not parked then. 0 = they are not. <= WEFT_HOT_ROWS_MAX. Not
                                      * with update_bytes_min */
    uint64_t seed;                   /* of the pauses between attempts to connect; the rank is mixed in */
    uint64_t (*clock_ns)(void *arg); /* on the clock of now_ns */
    void *clock_arg;
    struct weft_rpc_record_ring
        *records; /* a record of every push and pull that is answered; borrowed
                                       * until free. NULL = none. Clients of one thread may share
                                       * one ring */
};

struct weft_ps_result {
    weft_status status;  /* OK. PEER: a shard is gone. PROTO: an answer was malformed. DATA: the
                               * server refused all or some of it, see rpc_status. UNSUPPORTED:
                               * the request cannot be sent in such packets */
    uint16_t rpc_status; /* enum weft_rpc_status, the first that was not OK */
    uint32_t shard;      /* of status or rpc_status when not OK, else of the slowest RPC */
    uint32_t rpcs;
    uint32_t rpcs_short;     /* of these, messages (either way) that arrived incomplete */
    uint32_t chunks_refused; /* push: by the server */
    uint32_t rpcs_dropped;   /* push: nothing of them was applied, by the scheduler's decision, or because
                              * their model was too old (ps/update.h); their rows count as missed. The
                              * worker should pull again */
    uint64_t elements_sent;  /* blocks of rows: pushed by us, or by the server in answers */
    uint64_t elements_delivered;
    uint64_t rows_missed; /* pull: that kept an old value, in whole or in part. Push: of which a
                           * gradient was lost. Which they are: weft_ps_op_missed */
    uint32_t clock;                  /* lowest version among the answers */
    struct weft_rpc_latency latency; /* of the RPC that finished last */
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
    uint64_t messages;       /* pushes / answers to pulls, closed */
    uint64_t messages_short; /* with at least one chunk missing, within the bound or not */
    uint64_t elements_sent;
    uint64_t elements_delivered;
    uint64_t chunks_refused;
};

struct weft_ps_client_counters {
    struct weft_ps_flow push;
    struct weft_ps_flow pull;  /* answers; `sent` is what the server sent */
    uint64_t clocks;           /* CLOCK messages closed */
    uint64_t clock_probes;     /* empty pulls sent to learn that a clock has begun */
    uint64_t replies_malformed;      /* malformed or contradicting */
    uint64_t rpcs_refused;     /* answered with a status other than OK */
    uint64_t rpcs_failed;      /* the shard was gone */
    uint64_t packed;           /* requests with packed ids */
    uint64_t lists_stored;       /* pulls whose ids their shard keeps as a list */
    uint64_t pushes_listed;    /* answered OK, that named a list instead of their ids */
    uint64_t list_bytes_saved; /* of ids that were not sent, against ids that are not packed */
    uint64_t lists_unknown;    /* pushes whose shard did not have their list; sent twice */
    uint64_t lists_sent;       /* LISTs: of those, and of such as a break put off */
    uint64_t missed_ids;       /* ids remembered as missed at this time */
    uint64_t missed_first;     /* ids that were put first because they had been missed */
    uint64_t missed_ids_dropped; /* missed_max was reached, of pulls or of pushes */
    uint64_t last_values_evicted;   /* rows whose last value made room for another's */
    uint64_t feedback_rows_now; /* rows of which something is kept at this time */
    uint64_t feedback_stored;     /* elements that were lost and kept */
    uint64_t feedback_added;    /* elements to which kept ones were added */
    uint64_t feedback_dropped;  /* elements that were lost and not kept: no room, not finite, or
                                 * it is not known whether they arrived */
    uint64_t residual_dropped;  /* elements of which what rounding left was not kept: no room */
    uint64_t value_bytes_saved; /* of values that arrived, in pushes and in answers, against float32 */
    uint64_t updates;          /* ps/update.h: complete */
    uint64_t updates_asked;    /* of these, that were long enough */
    uint64_t updates_direct;   /* of these, that went without a grant */
    uint64_t updates_dropped;  /* and that were dropped */
    uint64_t updates_unplaced; /* pushes that began an update when there was no place for one */
    uint64_t pushes_dropped;
    uint64_t pushes_late;      /* refused by their shard: LATE */
    uint64_t deadlines_expired; /* pulls' requests and pushes that a deadline ended or kept back */
    uint64_t deferred;            /* sends and expectations the transport put off */
    uint64_t shard_disconnects;      /* connections that ended and were waited for */
    uint64_t resumes;          /* tables of shards that went on */
    uint64_t pushes_resent;     /* messages sent again */
    uint64_t pushes_lost;      /* finished, and not in the shard that came back */
    uint64_t pushes_durable;   /* not kept any more: a checkpoint has them */
    uint64_t replay_bytes_now; /* of replay_bytes, in use at this time */
    uint64_t replay_full;      /* pushes put off because it was full, or nearly */
    uint64_t clocks_resent;     /* finished, and to be said again to a shard that came back */
    uint64_t via_pushes;    /* given to an aggregator; */
    uint64_t via_committed; /* of these, that came to their shard so; */
    uint64_t via_direct;    /* and that were sent once more, to the shard itself */
    uint64_t via_pulls;     /* the same of pulls; */
    uint64_t via_answered;
    uint64_t via_pulls_direct;
    uint64_t via_clocks;    /* and of clocks */
    uint64_t via_clocks_taken;
    uint64_t via_clocks_direct;
    uint64_t via_downs;     /* connections to aggregators that ended */
    uint64_t hot_asked;     /* requests for hot rows; */
    uint64_t hot_epochs;    /* answered with another set; */
    uint64_t hot_refused;   /* refused: the set is larger than hot_rows */
    uint64_t rows_hot;      /* rows of pushes that were split, those that were hot, */
    uint64_t rows_cold;     /* and the others, which went to their shard */
    uint64_t parks;         /* connections to shards that were ended, for only aggregators used them; */
    uint64_t unparks;       /* of these, that were opened again */
    uint64_t parks_refused; /* by their shard */
    uint64_t
        pushes_skipped; /* refused in part or whole, for the shard had ended their clock without
                                * this worker (shrink); not an error, but absent */
};

/* The reasonable: 1 shard, 4 tables, 8 operations of 4 lists and 65,536 rows, 16,384 rows per RPC, dim 64,
 * 65,536 ids missed. Worker and clock are left to fill in. */
void weft_ps_client_config_default(struct weft_ps_client_config *config_p);

/* Expectations that this client posts at most: for expects_max of its endpoint. */
uint32_t weft_ps_client_expects_max(const struct weft_ps_client_config *config);

/* Shape:   shard_peers (shards,): connected or connecting.
 * Owns:    copies config and shard_peers; gives *client_p. Allocates all memory it will use.
 * Errors:  WEFT_INVALID, WEFT_NOMEM. */
weft_status weft_ps_client_new(const struct weft_ps_client_config *config, struct weft_msgr msgr,
                               const weft_peer *shard_peers, struct weft_ps_client **client_p);

/* Free the endpoint first: it borrows the client's memory. NULL is fine. */
void weft_ps_client_free(struct weft_ps_client *client);

/* Declare a table on all shards; usable when the operation is done with status OK. Where the
 * packets cannot hold a block of a row and the specification does not say how long blocks are, it
 * is declared with shorter ones.
 * Errors:  WEFT_INVALID  spec is not valid or beyond this client's limits.
 *          WEFT_EXISTS   opened already.
 *          WEFT_AGAIN    ops_max operations are not released yet, or a shard is away. */
weft_status weft_ps_table_open(struct weft_ps_client *client, const struct weft_table_spec *spec,
                               uint64_t now_ns, weft_ps_op *op_p);

/* Add gradients. n = 0 is allowed and done at once. An id may occur more than once; all count.
 *
 * Shape:   ids (n,); rows (n, dim) float32, contiguous.
 * Owns:    borrows both until return: they are gathered into the client's memory.
 * Units:   bound_ppm is the fraction of chunks that may be lost on the way, < 10^6.
 * Errors:  WEFT_STATE    the table is not open. WEFT_INVALID  n or bound_ppm out of range.
 *          WEFT_AGAIN    ops_max operations are not released yet, or a shard is away, or the memory
 *                        for replay is full: feed events, try again. The shards are asked for a
 *                        checkpoint when half of it is used, and the last quarter is given out
 *                        slowly, for checkpoints of BSP tables come at the ends of clocks.
 *          WEFT_NOMEM    the memory for replay is full, and no checkpoint will empty it: all of it
 *                        is of the clock in progress, or none came in reconnect_ns. Make
 *                        replay_bytes at least four times what a worker pushes in a clock.
 *          WEFT_UNSUPPORTED  a row's block does not fit the packets of a shard. */
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

/* An RPC that carries nothing: an empty pull of one shard, which waits for no clock. What it takes is
 * what every RPC takes at least. Errors: WEFT_STATE, WEFT_AGAIN as weft_ps_push; WEFT_INVALID shard. */
weft_status weft_ps_ask(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                        uint64_t now_ns, weft_ps_op *op_p);

/* Ask for a checkpoint. Done when one counts that was cut after all shards had heard of this; what was
 * finished before is in it. One process that has all shards cuts as soon as it can, at the end of a
 * clock where a table is BSP; if the shards are distributed over several server processes, these cut at the
 * end of the clock after the one in progress, so that clocks must continue.
 * Errors:  WEFT_STATE   no table is open.   WEFT_EXISTS  one is asked for already.   WEFT_AGAIN.
 *          The result: DATA with rpc_status NO_CHECKPOINTS, NOT_KEPT, NO_COPIES or CUT_LATE. */
weft_status weft_ps_client_checkpoint(struct weft_ps_client *client, uint64_t now_ns,
                                      weft_ps_op *op_p);

struct ps_known;

/* Rows of one table in an operation: the one description of them, from the caller to the RPC.
 *
 * Rows of a dense table may go without ids: then they are first, first + 1, ..., and the caller's
 * memory is a piece of the vector, which ends where the vector does. With ids, each is a whole row
 * of dim floats. */
struct weft_ps_list {
    size_t n;
    const uint64_t *ids; /* (n,); DENSE: or NULL */
    uint64_t first;      /* DENSE without ids: number of the first row */
    const float *values; /* push: (n, dim) */
    float *out;          /* pull: (n, dim), holding the old values on entry */
    uint16_t table;

    /* The rest is the client's, and means nothing on entry. */
    uint8_t id_bytes; /* in requests; of a part WEFT_RPC_ID_PACKED where its are packed */
    bool fill;        /* pull: `out` holds no old values */
    bool splits;      /* hot rows and others are parts of their own */
    uint8_t ahead;    /* pull: clocks later than the one in progress */
    uint32_t at;      /* row of the operation that its first one is */
    uint64_t floats;  /* that the caller's memory has: n x dim, or less at a dense vector's end */
    const struct ps_known *known; /* push, while it is made: the pull of just these rows; or NULL */
};

/* How an operation is done. */
struct weft_ps_how {
    uint32_t bound_ppm;
    uint64_t fill; /* pull: bit i = rows_out of list i holds nothing on entry (bit 63: of all from 63
                    * on). What does not come reads as the last value that this client had of it
                    * (weft_ps_client_remember), or as the row begins */
    uint64_t deadline_ns; /* on the clock of now_ns; 0 = none. Then the operation ends with what has
                           * arrived. A pull is done at this time: rows that have not come are
                           * missed, and its place is free when their answers have come. Of a push
                           * nothing is sent any more: it is done when the shards have said what
                           * they have; the rest is never applied. What waits to be sent, for a clock
                           * or for a shard that is away, is not sent. What was sent to a shard whose
                           * connection broke meanwhile is sent again all the same: what of it
                           * arrived is not known */
    uint32_t ahead; /* pull, BSP, 0 or 1: of the weights as this many clocks from now, for the next
                     * step. Its ids travel while weights and gradients of this step do; the answer
                     * leaves when all workers have ended this clock, so it is not to be waited for
                     * before weft_ps_clock. Rows that were missing at the last pull must arrive: in
                     * the one that is not answered yet they may be missing again. A shard is given
                     * few of these requests at a time, the others when this clock has ended */
    bool aside; /* pull: not of a step, but for example of a test: waits for no admission
                 * (ps/update.h) */
    bool has_norm; /* push: `norm` is its Euclidean norm; else it is computed, where an update needs it */
    double norm;
};

/* Begin a push or a pull (kind: WEFT_RPC_PUSH or WEFT_RPC_PULL) of several tables: one operation, whose
 * result speaks of all. Their messages are handed to the transport together, so that they leave and
 * arrive as one burst; each is a message of its own.
 *
 * Shape:   lists (count,), count <= lists_per_op_max; a table may occur more than once.
 * Owns:    borrows lists until return, what they point to as weft_ps_push and weft_ps_pull.
 * Errors:  as weft_ps_push; WEFT_INVALID also: count, rows_per_op_max, or an id beyond a dense table.
 *          Nothing of any list is begun then. */
weft_status weft_ps_begin(struct weft_ps_client *client, uint8_t kind,
                          const struct weft_ps_list *lists, uint32_t count,
                          const struct weft_ps_how *how, uint64_t now_ns, weft_ps_op *op_p);

/* The same with a bound and nothing else. */
weft_status weft_ps_push_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p);
weft_status weft_ps_pull_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p);

/* Remember the last value of so many rows of a table; of more, that which was first put there goes.
 * Every pull of the table from now on costs a lookup for each row.
 * Owns:    borrows memory, of weft_row_store_bytes(rows_max, dim), until free.
 * Errors:  WEFT_STATE  the table is not declared.   WEFT_INVALID  rows_max. */
weft_status weft_ps_client_remember(struct weft_ps_client *client, uint16_t table, void *memory,
                                    uint32_t rows_max);

/* Error feedback: keep what pushes of a table lose, and what rounding takes from them where values are
 * not float32, by id, and add it to the next push of that id; so many rows at most, of more the loss is
 * counted (feedback_dropped, residual_dropped). Of what a shard refuses, and of pushes that fail, nothing
 * is kept; but all of what it refuses as LATE is (ps/update.h).
 * Owns:    borrows memory, of weft_row_store_bytes(rows_max, dim), until free.
 * Errors:  as weft_ps_client_remember. */
weft_status weft_ps_client_feedback(struct weft_ps_client *client, uint16_t table, void *memory,
                                    uint32_t rows_max);

/* The rows that error feedback of such a table keeps where nobody says otherwise: none where values are
 * float32, for then a push loses only what its bound allows. Else as many as 16 MiB hold, and no more
 * than a dense table has. */
uint32_t weft_ps_feedback_rows(const struct weft_table_spec *spec);

/* What is kept: at most max ids and, where rows_p is not NULL, their rows (max, dim). Returns how many
 * there are. A push of zeros for an id sends what is kept of it. */
uint32_t weft_ps_client_kept(const struct weft_ps_client *client, uint16_t table, uint64_t *ids_p,
                             float *rows_p, uint32_t max);

/* Finish this worker's clock. Told to each shard when the pushes of this clock to it are closed.
 * Where a shard went on without this worker (shrink) since its last clock, and nothing was pushed
 * since, that clock is over already: this finishes none.
 * Errors:  WEFT_STATE  the table is not open.
 *          WEFT_AGAIN  the clock before is not yet known to all shards: feed events, try again.
 *          WEFT_PEER   a shard is gone. */
weft_status weft_ps_clock(struct weft_ps_client *client, uint16_t table, uint64_t now_ns);

/* Of the hot rows by which operations on a table are split at a shard; 0 = they are not. */
uint32_t weft_ps_client_hot_epoch(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard);

/* Clocks finished, and whether all shards know. */
uint32_t weft_ps_clock_now(const struct weft_ps_client *client, uint16_t table);
bool weft_ps_clock_known(const struct weft_ps_client *client, uint16_t table);

/* A shard that is there takes no CLOCK of this rank any more: its clock will never be known there, and
 * operations that wait for that never end. */
struct weft_ps_clock_refusal {
    uint16_t table;
    uint32_t shard;
    uint32_t clock;     /* that it does not take */
    weft_status status; /* STATE: it refused it, for it knows another clock of this rank. After a
                          * break it could not go on: DATA, as rpc_status says; PROTO, its answer
                          * made no sense */
    uint16_t rpc_status;
};

/* False: there is none. */
bool weft_ps_clock_refused(const struct weft_ps_client *client,
                           struct weft_ps_clock_refusal *refusal_p);

/* Take an event of the endpoint. Events of others' messages are ignored only when their `user` has
 * the top bit clear: values with the top bit set are the client's.
 * Owns: borrows everything in it until return. */
void weft_ps_client_event(struct weft_ps_client *client, const struct weft_msg_event *event,
                          uint64_t now_ns);

/* Send what can be sent. Call after a batch of events and after starting operations. */
void weft_ps_client_progress(struct weft_ps_client *client, uint64_t now_ns);

/* True when the operation is finished; then *result_p is filled in (NULL: not wanted). */
bool weft_ps_op_done(const struct weft_ps_client *client, weft_ps_op op,
                     struct weft_ps_result *result_p);

/* Rows of an operation that is done which did not arrive whole: one bit a row, counted over its lists
 * in their order. Of parts that failed or were refused as a whole it names all; of a push of which a
 * shard refused chunks (chunks_refused) it does not say which. NULL: there is none.
 * Owns:    valid until the operation is released. */
const uint64_t *weft_ps_op_missed(const struct weft_ps_client *client, weft_ps_op op,
                                  uint32_t *rows_p);

/* When weft_ps_client_progress must be called at the latest, for a deadline; WEFT_NEVER = there is
 * none. */
uint64_t weft_ps_client_deadline(const struct weft_ps_client *client);

/* What an operation was begun as. */
struct weft_ps_op_about {
    bool is_push;
    bool is_checkpoint;
    uint16_t table; /* of its first list */
    uint32_t lists;
    uint32_t rows; /* of all of them */
};

/* Is this place (0 .. ops_max - 1) that of a push, a pull or an order for a checkpoint which is neither
 * released nor given up? */
bool weft_ps_op_held(const struct weft_ps_client *client, weft_ps_op op);
struct weft_ps_op_about weft_ps_op_about(const struct weft_ps_client *client, weft_ps_op op);

/* A name for programs, which no other operation of this client has: the place, and which of those that
 * had it. False: it is none, or of one that is released or given up. */
uint64_t weft_ps_op_handle(const struct weft_ps_client *client, weft_ps_op op);
bool weft_ps_op_find(const struct weft_ps_client *client, uint64_t handle, weft_ps_op *op_p);

/* Give the operation back; it must be done. */
void weft_ps_op_release(struct weft_ps_client *client, weft_ps_op op);

/* Give an unfinished operation up: what it borrowed is the caller's again, and its place is free when
 * the answers have come. A push is still sent. */
void weft_ps_op_abandon(struct weft_ps_client *client, weft_ps_op op);

/* True while the shard's connection is gone and waited for: connect to it, then hand the connection
 * over. *until_ns_p: when weft_ps_client_progress gives it up. False for one that is given up. */
bool weft_ps_client_away(const struct weft_ps_client *client, uint32_t shard, uint64_t *until_ns_p);

/* When to connect to a shard that is away: at once after a connection that held, else after a pause
 * that grows to a second. */
uint64_t weft_ps_client_reconnect_ns(const struct weft_ps_client *client, uint32_t shard);

/* A new connection, connected or connecting, to the shard that is away.
 * Errors:  WEFT_STATE  it is not away. */
weft_status weft_ps_client_reconnect(struct weft_ps_client *client, uint32_t shard, weft_peer peer,
                                     uint64_t now_ns);

/* How a table of a shard went on. */
struct weft_ps_resumed {
    uint32_t shard;
    uint16_t table;
    uint32_t clock;        /* of this rank, as the shard has it; it is told the rest again */
    uint32_t clocks_resent; /* how many that are */
    uint64_t pushes_resent;
    uint64_t pushes_lost;
};

/* The next that is not reported yet; false when there is none. Two breaks of one table in a row may
 * become one report. */
bool weft_ps_client_take_resumed(struct weft_ps_client *client, struct weft_ps_resumed *resumed_p);

/* Aggregators (ps/aggregator.h), one a shard, where via_timeout_ns says so; in a job with a scheduler as
 * many as `aggregators` says, and pushes go by the one that their grant names, pulls to their shard. They go
 * direct while there is none, so nothing waits for it. Number `via` is aggregator via / shards of shard
 * via % shards.
 *
 *     after a batch of events, for each via: if weft_ps_client_wants_via and now >= again_ns:
 *         connect; weft_ps_client_via, or weft_ps_client_via_failed.  A connection that fails is
 *         another PEER_DOWN.
 *     then: while weft_ps_client_take_via_close: disconnect. It may be a connection to a shard, which is
 *     parked then: it is neither away nor down. */
bool weft_ps_client_wants_via(const struct weft_ps_client *client, uint32_t via,
                              uint64_t *retry_ns_p);
void weft_ps_client_via(struct weft_ps_client *client, uint32_t via, weft_peer peer);
void weft_ps_client_via_failed(struct weft_ps_client *client, uint32_t via, uint64_t now_ns);
bool weft_ps_client_take_via_close(struct weft_ps_client *client, weft_peer *peer_p);
/* Would PEER_DOWN of the shard's connection for this reason be no end? reconnect_ns says so, or it parks. */
bool weft_ps_client_waits(const struct weft_ps_client *client, uint32_t shard,
                          enum weft_msg_down down);
/* No connection, and none is wanted: the shard is reached by its aggregator. */
bool weft_ps_client_parked(const struct weft_ps_client *client, uint32_t shard);
/* Connect again to shards that are parked, and park none from now on: before the end, so that they hear
 * of it, and before a long computation, during which a parked rank would be declared dead. True: some are
 * not connected yet, or have not answered what resumes their tables. */
bool weft_ps_client_unpark(struct weft_ps_client *client, uint64_t now_ns);
/* They may be parked again. */
void weft_ps_client_park_again(struct weft_ps_client *client);
/* Bit a: aggregator a takes pushes to all tables that are open, for every shard. */
uint32_t weft_ps_client_vias_open(const struct weft_ps_client *client);

/* True while an operation is unfinished or a CLOCK is not closed. */
bool weft_ps_client_busy(const struct weft_ps_client *client);

const struct weft_ps_client_counters *weft_ps_client_counters(const struct weft_ps_client *client);
const struct weft_ps_latencies *weft_ps_client_push_latencies(const struct weft_ps_client *client);
const struct weft_ps_latencies *weft_ps_client_pull_latencies(const struct weft_ps_client *client);
/* Reset both, after a warm-up. */
void weft_ps_client_latencies_clear(struct weft_ps_client *client);

#endif
