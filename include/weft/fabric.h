/* The communication library of [mlfabric] under weft's names: workers push updates with their norm and
 * are told whether these were committed or dropped; servers are written by their users, with functions
 * that apply updates and answer requests.
 *
 * It is thin. A worker is what <weft/ps.h> connects, with the job's transfer scheduler in
 * weft_ps_config.scheduler; three functions here push, get and all-reduce whole updates. A server is a
 * thread for each of its shards in the caller's process, which does all that `weft server` does, but for
 * checkpoints, a coordinator and /metrics, and asks the caller's functions what a gradient does to a row
 * and what a row is answered with. docs/FABRIC.md has the table of the paper's names.
 *
 *     weft_fabric_server_config_init      weft_fabric_server_open -> server
 *     weft_fabric_server_address          for weft_ps_config.servers of the workers
 *     ...                                 weft_fabric_server_close
 *
 *     weft_ps_config_init, scheduler, tau_max       weft_ps_connect -> ps; weft_table_open
 *     in each step:   weft_fabric_get               the model
 *                     weft_fabric_push              the update, with its norm: COMMITTED or DROPPED
 *
 * It is not a replica of a server: there is none yet.
 *
 * Structs with a `size` field may grow; see docs/API.md. Fill them by their _init function, then set what
 * differs. Those that callbacks are given may grow at their ends.
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

/* Push one update, end its step, and wait for its fate: all lists are begun in one operation, the clock of
 * each of their tables is ended once, and this returns when all shards have the update or it was dropped.
 * So tables of one update are pushed by one call, and weft_clock is not called for them.
 *
 * Shape:   lists (count,), as in weft_push_lists; result_p NULL = not wanted, else as of weft_wait.
 * Units:   norm: of the update as the scheduler adds it up for replicas, finite; negative = computed.
 * Owns:    borrows all until return.
 * Errors:  WEFT_OK       COMMITTED: all servers have applied it, or in "bsp" added it up.
 *          WEFT_DROPPED  by the scheduler, or refused by a server (weft_wait says more): get the model
 *                        again before the next step. The values are the caller's to keep or to let go;
 *                        with feedback_rows of their tables they come with the next push.
 *          Others as weft_push_lists, weft_clock and weft_wait, but for WEFT_TIMEOUT. Those of
 *          weft_push_lists: nothing was begun, no clock ended.
 * Thread:  as weft_ps. */
WEFT_API weft_status weft_fabric_push(struct weft_ps *ps, const struct weft_push_list *lists,
                                      uint32_t count, double norm, struct weft_result *result_p);

/* Get the model, or the rows of it that a step needs, whole: weft_pull_lists_wait with bound 0. The version
 * that its answers name is what the next update is based on.
 * Errors:  as weft_pull_lists_wait. */
WEFT_API weft_status weft_fabric_get(struct weft_ps *ps, const struct weft_pull_list *lists,
                                     uint32_t count, struct weft_result *result_p);

/* The sum of an update over all ranks, in place: weft_comm_run of an ALL_REDUCE with bound 0, over the
 * communicator's group 0. Workers that use it need no server.
 *
 * Shape:   update (count,) float32, which all ranks have the same number of.
 * Errors:  as weft_comm_run; weft_comm_error says why. */
WEFT_API weft_status weft_fabric_all_reduce(struct weft_comm *comm, float *update, uint64_t count);

/* ---- servers --------------------------------------------------------------------------------- */

/* A gradient, and the row that it is for. Of a row longer than 256 floats it is a block of these, and each
 * block has a call of its own. */
struct weft_fabric_update {
    uint64_t id;           /* of the row; dense: its number in the vector of rows */
    uint32_t shard;
    uint32_t table;        /* its number */
    uint32_t column;       /* of the row, where this block begins */
    uint32_t count;        /* floats */
    const float *gradient; /* (count,): "bsp": of a clock, the sum over all workers, divided as the table's
                            * `average` says; else of one push, divided in the same way */
    float *weights;        /* (count,): of the model, to be changed */
    float *state;          /* of weight i: [k * stride + i], 0 <= k < states; to be changed. It begins as
                            * the table's optimizer makes it: "sgd" has none, "momentum" and "adagrad" one,
                            * "adam" and "ftrl" two */
    uint32_t states;
    uint32_t stride;
};

/* A row that a worker gets. */
struct weft_fabric_request {
    uint64_t id;
    uint32_t shard;
    uint32_t table;
    uint32_t count;     /* floats: dim of the table */
    uint32_t states;    /* 0 where the row does not exist */
    float *values;      /* (count,): its weights, to be changed into what the worker gets. The model stays as
                         * it is. Of a row that nobody has pushed they are those that it begins with */
    const float *state; /* of weight i: [k * stride + i] */
    uint32_t stride;
    uint32_t exists;    /* 1: it does */
};

/* An update that a shard has closed: all of it has come, and the worker's clocks have. */
struct weft_fabric_committed {
    uint32_t shard;
    uint32_t worker;
    uint64_t clock;
    uint64_t number; /* it was the number-th that this shard opened */
    uint64_t base;   /* updates that were opened in the model that it was computed from */
    uint64_t opened; /* by now */
    uint64_t closed; /* of these, with this one */
    uint32_t late;   /* 1: refused, for it would have been beyond tau_max; nothing of it was applied */
    uint32_t reserved;
    double norm;     /* Euclidean, of the values that were applied, before average and update() */
};

/* All three functions are called on the thread of a shard, inside of its work: those of one shard one after
 * the other, those of several shards at once. So what shards share is the caller's to lock, and what is
 * kept for each shard is not.
 *
 * Owns:    what they are given is theirs until they return, and no longer: rows move.
 * May:     read and write the memory that is named above, and the caller's own. Not: call the server that
 *          calls them, wait for anything that a shard of it must do (a worker in this process that pulls,
 *          for instance), throw an exception, longjmp, or end the thread.
 * Time:    meanwhile the shard answers nobody, confirms nothing and reads no packet. A call of update or
 *          request is one of thousands for a message: nanoseconds for each float, no lock that another
 *          shard holds for long. A shard that does not come back for the workers' peer_timeout_ns (5 s) is
 *          dead to them.
 */
struct weft_fabric_server_config {
    size_t size;                  /* set by weft_fabric_server_config_init */
    const char *host;             /* address to bind: numeric, or "localhost"; NULL (default) = 127.0.0.1 */
    const char *key_file;         /* the job key, as in struct weft_transport_config, as are the next two */
    const uint8_t *key;
    uint32_t security;            /* enum weft_transport_security; default AUTH */
    uint32_t port;                /* of the first shard; the others have those behind it. 0 (default) = any
                                   * free ones */
    uint32_t shards;              /* of this server, 1 .. 64; default 1. A thread each */
    uint32_t shard_first;         /* number of the first; default 0 */
    uint32_t shards_total;        /* of the job's servers together; 0 (default) = shard_first + shards */
    uint32_t workers;             /* ranks 0 .. workers - 1 may connect; default 16 */
    uint32_t tables_max;          /* tables 0 .. tables_max - 1; default 4 */
    uint32_t rows_max;            /* of each table and shard, 1 .. 2^29; default 2^20 */
    uint32_t dim_max;             /* longest row; default 64 */
    uint32_t reserved;            /* 0 */
    const char *transport;        /* "weft" (NULL, the default), or "tcp" */
    const char *scheduler;        /* the job's transfer scheduler, "host:port", numeric; all workers and
                                   * servers name it. NULL (default) = WEFT_SCHEDULER; "" = none */
    uint64_t tau_max;             /* updates that would be applied more than so many others after the model
                                   * that they are computed from are refused; below 2^23. 0 (default) =
                                   * none are. Workers count updates for it where they have a scheduler, or
                                   * update_bytes_min */
    bool (*update)(void *user, const struct weft_fabric_update *update); /* apply a gradient. False: it did
                                   * not, and the table's own optimizer is to do it. NULL (default) = that
                                   * does all */
    void (*request)(void *user, const struct weft_fabric_request *request); /* answer. NULL (default) = with
                                   * the weights */
    void (*committed)(void *user, const struct weft_fabric_committed *committed); /* an update is closed,
                                   * where workers have a scheduler or update_bytes_min. NULL (default) */
    void *user;                   /* of all three */
};

WEFT_API void weft_fabric_server_config_init(struct weft_fabric_server_config *config_p, size_t size);

struct weft_fabric_server;

/* Start the threads of all shards; they serve when this returns.
 *
 * Owns:    borrows config until return, but for the functions and `user`: until weft_fabric_server_close.
 *          Gives *server_p.
 * Errors:  WEFT_INVALID   a field is out of range.   WEFT_NOTFOUND  no job key.
 *          WEFT_DATA      the key file makes no sense.   WEFT_NOMEM.
 *          WEFT_EXISTS    a port is taken.   WEFT_IO  a socket or a thread cannot be had.
 *          weft_fabric_server_error says which and what to do.
 * Thread:  any. */
WEFT_API weft_status weft_fabric_server_open(const struct weft_fabric_server_config *config,
                                             struct weft_fabric_server **server_p);

/* Why this thread's last weft_fabric_server_open failed: one sentence, "" when none has.
 * Owns:    valid until this thread's next. */
WEFT_API const char *weft_fabric_server_error(void);

/* "127.0.0.1:7700,127.0.0.1:7701": this server's part of weft_ps_config.servers.
 * Owns:    valid until weft_fabric_server_close. */
WEFT_API const char *weft_fabric_server_address(const struct weft_fabric_server *server);

/* Cumulative since weft_fabric_server_open, over all its shards. Updates are counted by each shard. */
struct weft_fabric_server_counters {
    size_t size;              /* the caller sets it to sizeof(counters) before the call */
    uint64_t pushes;          /* messages */
    uint64_t pulls;
    uint64_t elements_applied;
    uint64_t rows_pulled;
    uint64_t clocks;
    uint64_t updates_opened;
    uint64_t updates_closed;
    uint64_t updates_late;    /* refused: tau_max */
};

/* Errors:  WEFT_TIMEOUT  a shard does not get to it: one of the functions above has not returned for 5 s.
 * Thread:  any but a shard's. */
WEFT_API weft_status weft_fabric_server_counters_get(struct weft_fabric_server *server,
                                                     struct weft_fabric_server_counters *counters_p);

/* Tell the workers that it is over, join the threads, free. The model is gone. No function is called when
 * this has returned. NULL is fine.
 * Thread:  any but a shard's. */
WEFT_API void weft_fabric_server_close(struct weft_fabric_server *server);

#ifdef __cplusplus
}
#endif

#endif
