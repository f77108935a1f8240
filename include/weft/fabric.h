/* The communication library of [mlfabric] with weft's names. Workers push updates with their norm,
 * and learn whether each was committed or dropped. Servers run functions of the program, which
 * apply updates and fill replies.
 *
 * A worker is a struct weft_ps of <weft/ps.h>, with the job's transfer scheduler in
 * weft_ps_config.scheduler. Three functions here push, get and all-reduce whole updates. A server
 * runs one thread per shard in the program's process. It has the features of `weft server`, except
 * checkpoints, the coordinator and /metrics. It calls the program's functions to apply a gradient
 * to a row and to fill a reply. docs/FABRIC.md maps the paper's names to weft's.
 *
 *     weft_fabric_server_config_init      weft_fabric_server_open -> server
 *     weft_fabric_server_address          for weft_ps_config.servers of the workers
 *     ...                                 weft_fabric_server_close
 *
 *     set replicas, div_max, replica_of   weft_fabric_server_open -> a replica of a server
 *     the server has ended:               weft_fabric_server_promote(replica)
 *
 *     weft_ps_config_init; set scheduler, tau_max   weft_ps_connect -> ps; weft_table_open
 *     in each step:   weft_fabric_get               the model
 *                     weft_fabric_push              the update, with its norm: COMMITTED or DROPPED
 *
 * Structs with a `size` field may grow; see docs/API.md. Initialise them with their _init function,
 * then set the fields that differ. Structs passed to callbacks may get new fields at their end.
 *
 * Source: [mlfabric] section 4, Table 1 (docs/papers.md); docs/SCHEDULER.md.
 */
#ifndef WEFT_FABRIC_H
#define WEFT_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/coll.h>
#include <weft/export.h>
#include <weft/ps.h>
#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- workers --------------------------------------------------------------------------------- */

/* Push one update, end its step, and wait for the outcome. One operation pushes all lists, and the
 * clock of each of their tables ends once. The call returns when all shards have acknowledged the
 * update, or it was dropped. Push all tables of an update with one call, and do not call weft_clock
 * for them.
 *
 * Shape:   lists (count,), as in weft_push_lists; result_p as in weft_wait, may be NULL.
 * Units:   norm: of the update; the scheduler sums norms to bound the divergence of replicas.
 *          Finite; if negative, the library computes it.
 * Owns:    borrows all until return.
 * Errors:  WEFT_OK       COMMITTED: all servers have applied it, or in "bsp" added it to the sum of
 *                        the clock.
 *          WEFT_DROPPED  dropped by the scheduler, or refused by a server (see weft_wait): get the
 *                        model again before the next step. The caller may keep or discard the
 *                        values; if its table has feedback_rows, the library adds them to the next
 *                        push.
 *          Others as weft_push_lists, weft_clock and weft_wait, except WEFT_TIMEOUT. After an error
 *          of weft_push_lists no push has begun, and no clock has ended.
 * Thread:  as weft_ps. */
WEFT_API weft_status weft_fabric_push(struct weft_ps *ps, const struct weft_push_list *lists,
                                      uint32_t count, double norm, struct weft_result *result_p);

/* Get the complete model, or all rows of it that a step needs: weft_pull_lists_wait with bound 0.
 * The base version of the next update is the version in the replies.
 * Errors:  as weft_pull_lists_wait. */
WEFT_API weft_status weft_fabric_get(struct weft_ps *ps, const struct weft_pull_list *lists,
                                     uint32_t count, struct weft_result *result_p);

/* The sum of an update over all ranks, in place: weft_comm_run of an ALL_REDUCE with bound 0, over
 * the communicator's group 0. Workers that use it need no server.
 *
 * Shape:   update (count,) float32; count is the same at all ranks.
 * Errors:  as weft_comm_run; weft_comm_error returns the cause. */
WEFT_API weft_status weft_fabric_all_reduce(struct weft_comm *comm, float *update, uint64_t count);

/* ---- servers --------------------------------------------------------------------------------- */

/* A gradient and its row. A row longer than 256 floats is passed in blocks of at most 256, with
 * one call for each block. */
struct weft_fabric_update {
    uint64_t id; /* of the row; in a dense table: the row's number, from 0 */
    uint32_t shard;
    uint32_t table;        /* table number */
    uint32_t column;       /* first column of this block */
    uint32_t count;        /* floats */
    const float *gradient; /* (count,): "bsp": the sum over all workers for one clock; else the
                            * gradient of one push. Divided as specified by the table's `average` */
    float *weights;        /* (count,): weights of the model, to be changed */
    float *state;          /* (states, stride): state k of weight i is state[k * stride + i], 0 <= k
                            * < states; to be changed. The table's optimizer initialises it: "sgd"
                            * has none, "momentum", "adagrad" and "adadelay" one, "adam" and "ftrl"
                            * two */
    uint32_t states;
    uint32_t stride;
};

/* A row requested by a worker. */
struct weft_fabric_request {
    uint64_t id;
    uint32_t shard;
    uint32_t table;
    uint32_t count;     /* floats: dim of the table */
    uint32_t states;    /* 0 if the row does not exist */
    float *values;      /* (count,): a copy of the row's weights, which is sent to the worker. The
                         * callback may change it; this does not change the model. A row that was
                         * never pushed has its initial weights */
    const float *state; /* (states, stride), as in struct weft_fabric_update */
    uint32_t stride;
    uint32_t exists; /* 1: the row exists */
};

/* A closed update: the shard has received all its pushes, and the CLOCKs that end it. A shard opens
 * an update when the first chunk of its pushes arrives; late updates are not opened. */
struct weft_fabric_committed {
    uint32_t shard;
    uint32_t worker;
    uint64_t clock;
    uint64_t number; /* sequence number, in the order in which this shard opened updates; of a late
                      * update, that of the last one opened */
    uint64_t base;   /* base version: number of updates that this shard had opened when the worker
                      * read the model from which it computed this update */
    uint64_t opened; /* number of updates opened so far, without late ones */
    uint64_t closed; /* of `opened`, the number closed, including this one unless it is late */
    uint32_t late;   /* 1: refused because its delay exceeded tau_max; none of it was applied */
    uint32_t reserved;
    double norm; /* Euclidean norm of the applied values, before they were divided (`average`) and
                  * passed to update() */
};

/* The three callbacks are called on the thread of a shard. Calls of one shard follow one another;
 * calls of different shards are concurrent. The program must lock data that its shards share; data
 * of one shard needs no lock.
 *
 * Owns:    pointers are valid until the callback returns; rows may be moved afterwards.
 * May:     access the memory of their arguments, and the program's own. They must not call this
 *          server, wait for any work of its shards (for example a pull by a worker in this
 *          process), throw an exception, longjmp, or end the thread.
 * Time:    while a callback runs, the shard sends no replies or acknowledgements and reads no
 *          packets. update and request may be called thousands of times for a message, so they
 *          should take only nanoseconds per float and avoid contended locks. Workers declare a
 *          shard dead if a callback blocks it for their peer_timeout_ns (5 s).
 */
struct weft_fabric_server_config {
    size_t size;          /* set by weft_fabric_server_config_init */
    const char *host;     /* address to bind: numeric, or "localhost"; NULL (default) = 127.0.0.1 */
    const char *key_file; /* the job key; this and the next two as in struct
                           * weft_transport_config */
    const uint8_t *key;
    uint32_t security;            /* enum weft_transport_security; default AUTH */
    uint32_t port;                /* port of the first shard; the others use the following ports.
                                   * 0 (default) = any free ports */
    uint32_t shards;              /* number of shards (threads) of this server, 1 .. 64; default
                                   * 1 */
    uint32_t shard_first;         /* number of its first shard; default 0 */
    uint32_t shards_total;        /* number of shards of the job; 0 (default) = shard_first +
                                   * shards */
    uint32_t workers;             /* ranks 0 .. workers - 1 may connect, 1 .. 2040; default 16 */
    uint32_t tables_max;          /* limit of table numbers: all are less than this; default 4 */
    uint32_t rows_max;            /* maximum number of rows of each table and shard, 1 .. 2^29;
                                   * default 2^20 */
    uint32_t dim_max;             /* longest row; default 64 */
    uint32_t reserved;            /* 0 */
    const char *transport;        /* "weft" (NULL, the default), or "tcp" */
    const char *scheduler;        /* the job's transfer scheduler, "host:port", numeric, the same
                                   * at all workers and servers. NULL (default) =
                                   * WEFT_SCHEDULER; "" = none */
    uint64_t tau_max;             /* refuse an update if more than this many other updates would
                                   * be applied between its base version (the model that it was
                                   * computed from) and the update; below 2^23. 0 (default) = refuse
                                   * none. Needs workers with a scheduler or update_bytes_min,
                                   * because only these workers number their updates */
    bool (*update)(void *user, const struct weft_fabric_update *update); /* apply a gradient, and
                                   * return true. If it returns false, the table's optimizer applies
                                   * the gradient. NULL (default) = the optimizer applies all */
    void (*request)(void *user, const struct weft_fabric_request *request); /* fill a reply. NULL
                                   * (default) = reply with the weights of the model */
    void (*committed)(void *user, const struct weft_fabric_committed *committed); /* called when an
                                   * update is closed, for workers with a scheduler or
                                   * update_bytes_min. NULL (default) = not called */
    void *user;                   /* first argument of all three callbacks */
    double div_max;               /* with replicas: the divergence bound. A reply to a worker waits
                                   * while the state behind it differs from that of the replicas
                                   * by more than this, as a Euclidean norm over all weights of
                                   * the job. 0 (default) = until the replica has every update
                                   * behind it. The same at all servers and replicas */
    const char *replica_of;       /* run as a replica of the server with this address, as
                                   * weft_fabric_server_address returned it. It has the same
                                   * shards, limits and callbacks as the server, and sends no
                                   * replies before weft_fabric_server_promote. NULL (default) =
                                   * run as a server */
    uint64_t replicas;            /* 1: each shard accepts a replica; also needed with replica_of,
                                   * for the time after the promotion. 0 (default) = none */
    uint64_t link_mbps;           /* as in struct weft_ps_config: rate of this host's links */
};

WEFT_API void weft_fabric_server_config_init(struct weft_fabric_server_config *config_p,
                                             size_t size);

struct weft_fabric_server;

/* Start the threads of all shards; they serve when this returns.
 *
 * Owns:    borrows config until return, and the callbacks and `user` until
 *          weft_fabric_server_close. Gives *server_p.
 * Errors:  WEFT_INVALID   a field is out of range.   WEFT_NOTFOUND  no job key.
 *          WEFT_DATA      the key file is malformed.   WEFT_NOMEM.
 *          WEFT_EXISTS    a port is in use.   WEFT_IO  a socket or a thread cannot be created.
 *          weft_fabric_server_error returns the cause and the remedy.
 * Thread:  any. */
WEFT_API weft_status weft_fabric_server_open(const struct weft_fabric_server_config *config,
                                             struct weft_fabric_server **server_p);

/* The cause of this thread's last failed weft_fabric_server_open or weft_fabric_server_promote: one
 * sentence, "" if none has failed.
 * Owns:    valid until this thread's next call of one of them. */
WEFT_API const char *weft_fabric_server_error(void);

/* "127.0.0.1:7700,127.0.0.1:7701": this server's part of weft_ps_config.servers; of a replica: its
 * part of weft_ps_config.replicas.
 * Owns:    valid until weft_fabric_server_close. */
WEFT_API const char *weft_fabric_server_address(const struct weft_fabric_server *server);

/* Cumulative since weft_fabric_server_open, summed over all shards of the server: an update counts
 * once for each shard that opens it. */
struct weft_fabric_server_counters {
    size_t size;     /* the caller sets it to sizeof(counters) before the call */
    uint64_t pushes; /* messages */
    uint64_t pulls;
    uint64_t elements_applied;
    uint64_t rows_pulled;
    uint64_t clocks;
    uint64_t updates_opened;
    uint64_t updates_closed;
    uint64_t updates_late; /* refused: tau_max */
};

/* Errors:  WEFT_TIMEOUT  a shard did not reply within 5 s, because a callback has not returned.
 * Thread:  any, except a shard's. */
WEFT_API weft_status weft_fabric_server_counters_get(struct weft_fabric_server *server,
                                                     struct weft_fabric_server_counters *counters_p);

/* ---- replicas -------------------------------------------------------------------------------- */

/* The replication of a server's shards, all together. */
struct weft_fabric_replication {
    size_t size;           /* the caller sets it to sizeof(replication) before the call */
    uint32_t shards;       /* of this server */
    uint32_t ready;        /* of these: of a server, those whose replica could be promoted; of a
                            * replica, those that could be */
    uint32_t is_replica;   /* 1: it was not promoted yet */
    uint32_t reserved;     /* 0 */
    double divergence;     /* at most this far are the replicas behind, as a Euclidean norm; 0 of a
                            * replica */
    double divergence_max; /* the largest at which a reply was sent while the replicas were ready */
    uint64_t transfers;    /* confirmed by the replicas; of a replica: applied */
    uint64_t bytes;        /* of a server: sent to its replicas; of a replica: received */
    uint64_t holds;        /* times that replies began to wait for a replica */
};

/* Errors:  WEFT_TIMEOUT  a shard did not reply within 5 s, because a callback has not returned.
 * Thread:  any, except a shard's. */
WEFT_API weft_status
weft_fabric_server_replication_get(struct weft_fabric_server *server,
                                   struct weft_fabric_replication *replication_p);

/* Let a replica serve instead of the server that it replicates. Workers that have its address in
 * weft_ps_config.replicas connect to it and continue as after a restart of the server. From then on
 * it may have a replica itself. No effect if it was promoted before.
 *
 * The caller must know that the server has ended, and ensure that it does not start again: two
 * processes that serve one shard would both apply updates. (Under `weft run` the lease of the
 * coordinator ensures that; servers opened here have no coordinator.)
 *
 * Loss:    updates that were acknowledged and that the replica lacks are lost. They have changed
 *          the weights by at most div_max; in "bsp" those of the clock in progress, which changed
 *          none yet, are lost as well. Workers count them (pushes_lost). Updates that were not
 *          acknowledged are sent again, and count once.
 * Units:   dead_for_ns: time since the server has sent nothing to any worker; 0 = it ended just
 *          now. A replica is too old if it had received nothing from the server for 2 s by then.
 * Errors:  WEFT_STATE    it is not a replica, or one of its shards may not replace the server's:
 *                        weft_fabric_server_error returns the reason. Nothing has changed.
 *          WEFT_TIMEOUT  a shard did not reply within 10 s.   WEFT_PEER  the server still runs.
 *                        After these two close this server: some of its shards may serve.
 * Thread:  any, except a shard's; one at a time for each server. */
WEFT_API weft_status weft_fabric_server_promote(struct weft_fabric_server *server,
                                                uint64_t dead_for_ns);

/* Close the connections to the workers, join the threads, and free the server, including the
 * model. No callback runs after it returns. NULL is allowed.
 * Thread:  any, except a shard's. */
WEFT_API void weft_fabric_server_close(struct weft_fabric_server *server);

#ifdef __cplusplus
}
#endif

#endif
