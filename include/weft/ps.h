/* weft's parameter server, seen from a worker: push gradients by id, pull weights by id, and be
 * told what was lost on the way.
 *
 * The other half is `weft server`: shards of the parameters, a port each. A table is a set of rows
 * of `dim` floats, named by u64 ids; a row exists from the first push of its id on, and reads as
 * its initial value before. The optimizer runs on the server. It is not a transport for anything
 * else (that is <weft/transport.h>), and knows nothing of models.
 *
 * The life of a worker:
 *
 *     weft_ps_config_init, set `servers`        weft_ps_connect -> ps
 *     weft_table_options_init, set `dim`        weft_table_open -> table
 *     in each step:   weft_pull_wait (the rows of this step)
 *                     weft_push_wait (their gradients)
 *                     weft_clock     (this worker's step is over)
 *     weft_ps_flush, weft_ps_close
 *
 * weft_pull and weft_push are the same without the wait: they send what the network takes now and
 * return an operation, which weft_wait or weft_test ends, so that a program computes meanwhile, or
 * has several on their way. What exceeds the congestion window is sent by later calls, or by the
 * thread of config.thread.
 *
 * Consistency, for each table. Workers count their steps: weft_clock ends one. "bsp": the server
 * adds up the pushes of all workers of a clock, makes one optimizer step when the last worker has
 * ended it, and a pull waits for that: all workers work in step, and every one must end as many
 * clocks as the others. "ssp:N": steps on arrival, a pull waits until no worker is more than N
 * clocks behind this one. "asp": nobody waits. In all of them a gradient is divided by `workers`.
 *
 * Loss. Every push and pull takes a bound: the fraction of its packets that may stay missing. A
 * push that lost rows has lost their gradients; a pull leaves the old values in the rows that did
 * not come, remembers their ids, and asks for them first next time. struct weft_result counts both.
 * With bound 0, which is safe for everything, nothing is ever missing, unless a deadline is set or the
 * job's scheduler drops an update.
 *
 * Scheduler. Where config.scheduler names the job's transfer scheduler, what a worker pushes for one
 * clock, over all tables, is an update: it is sent when the scheduler says so, or dropped as a whole. It
 * is complete when the clocks of its tables have been ended, or one of its pushes is waited for; to
 * begin all pushes, to end the clocks, and then to wait makes one decision of them. A pull also learns
 * how many updates its servers had opened, which is the version that the next update is based on.
 *
 * Progress. By default the calling thread makes it: packets are sent and received only inside
 * these functions. A program that computes for longer than a server's peer timeout (5 s) between
 * two of them calls weft_ps_idle before, or sets config.thread for a progress thread of the library.
 * One exception: the acknowledgement of the last answer goes with the next request, in a loop that
 * comes back within 100 us; when it does not, a thread sends it some milliseconds later.
 *
 * Structs with a `size` field may grow; see docs/API.md. Fill them by their _init function, then
 * set what differs. Times are nanoseconds, WEFT_NEVER = no limit; fractions are parts per million.
 *
 * Thread:  one at a time may use a ps and what belongs to it; a process may have many.
 * Source:  docs/PROTOCOL.md section 7; [imc20] for the latencies (docs/papers.md).
 */
#ifndef WEFT_PS_H
#define WEFT_PS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/export.h>
#include <weft/status.h>
#include <weft/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- connecting ------------------------------------------------------------------------------ */

/* One worker's connections to all shards. */
struct weft_ps;

#define WEFT_PS_WORKER_ENVIRONMENT UINT32_MAX
#define WEFT_PS_RECONNECT_ENVIRONMENT UINT64_MAX
#define WEFT_PS_REPLAY_ENVIRONMENT UINT64_MAX

struct weft_ps_config {
    size_t size;                  /* set by weft_ps_config_init */
    const char *servers;          /* the shards in order, "host:port,host:port"; hosts numeric or
                                   * "localhost", IPv6 in brackets. NULL (default) = from `coordinator`,
                                   * else the environment variable WEFT_SERVERS */
    const char *key_file;         /* the job key, as in struct weft_transport_config: */
    const uint8_t *key;           /* one of the two, or neither = WEFT_JOB_KEY */
    uint32_t security;            /* enum weft_transport_security, as the servers'; default AUTH */
    uint32_t worker;              /* rank of this worker, below `workers`. Default
                                   * WEFT_PS_WORKER_ENVIRONMENT: WEFT_RANK, or what a launcher left
                                   * in the environment (docs/RUN.md); 0 of one worker */
    uint32_t workers;             /* in the whole job, 1 .. 65,535. Default 0: WEFT_WORKERS, or as
                                   * above; 1 where nobody says */
    uint32_t thread;              /* 1: the library has a progress thread; default 0 */
    const char *transport;        /* "weft" (NULL, the default), or "tcp" where UDP is blocked */
    const char *host;             /* address to bind; NULL (default) = one that reaches servers */
    uint32_t tables_max;          /* tables 0 .. tables_max - 1; 1 .. 65,536; default 4. The server
                                   * has a limit of its own (--tables) */
    uint32_t dim_max;             /* longest row, 1 .. 1,024, as --dim-max there; default 64 */
    uint32_t ops_max;             /* operations at a time, 1 .. 4,096; default 8 */
    uint32_t rows_max;            /* rows in one weft_push or weft_pull, 1 .. 2^28; default 65,536.
                                   * The memory of an operation, rows_max x (12 + 4 x dim_max)
                                   * bytes, is reserved at once and used as it is needed */
    uint32_t missed_max;          /* ids remembered as missed, for each table; default 65,536 */
    uint32_t busy_poll_us;        /* look at the socket so long before a sleep, while that finds
                                   * something; default 0 = never */
    uint64_t connect_timeout_ns;  /* how long to wait for servers that do not run yet, and for the
                                   * answer of weft_table_open; default 60 s */
    uint64_t peer_timeout_ns;     /* a server that owes an answer so long is gone; default 5 s, or
                                   * WEFT_PEER_TIMEOUT_S of the environment */
    uint64_t keepalive_ns;        /* a server that was silent for so long while an operation waits
                                   * is asked whether it is there; default 1 s; at least 1 ms */
    uint32_t inject_loss_ppm;     /* drop arriving datagrams on purpose; default 0 */
    uint32_t inject_seed;         /* which ones */
    uint32_t lists_max;           /* tables in one weft_push_lists or weft_pull_lists, 1 .. 256;
                                   * default 4 */
    const char *coordinator;        /* the coordinator of the job, `weft coordinator`: "host:port", a
                                   * name or an address. It knows the servers, gives a rank where
                                   * none is told, and sees that this worker lives. NULL (default)
                                   * = WEFT_COORDINATOR, or what a launcher left in the environment
                                   * (docs/RUN.md), unless `servers` is set; "" = none */
    uint64_t reconnect_timeout_ns; /* how long a server that went away may take to come back, started
                                   * anew from its checkpoint for instance; operations wait for it
                                   * meanwhile. A connection that ends within a second does not
                                   * begin this time anew. 0 = what goes is gone. Default
                                   * WEFT_PS_RECONNECT_ENVIRONMENT: WEFT_RECONNECT_S seconds, which
                                   * `weft run --restart` sets, else 0 */
    const char *records;          /* write down where the time of every push and pull went, to the
                                   * file with this name and ".spool-worker-RANK" behind it;
                                   * `weft trace merge` makes a database of it (docs/RECORDS.md).
                                   * NULL (default) = WEFT_RECORDS; "" = none */
    uint64_t replay_bytes;        /* durability "replay": finished pushes are kept in so much memory
                                   * until a checkpoint of their servers counts, and sent again to
                                   * a server that came back without them, so that nothing is lost;
                                   * at least four times what a worker pushes between checkpoints.
                                   * 0 = durability "none". Default WEFT_PS_REPLAY_ENVIRONMENT:
                                   * WEFT_REPLAY_BYTES, which `weft run --restart` sets where
                                   * servers make checkpoints, else 0. Needs reconnect_timeout_ns */
    uint64_t call_timeout_ns;     /* how long weft_push, weft_pull, weft_clock, weft_table_open and
                                   * their kin wait for a server that is away, for room in
                                   * replay_bytes, or until the clock before has arrived: then they
                                   * return WEFT_TIMEOUT with nothing done, to be called again. Those
                                   * that end in _wait go on. Default WEFT_NEVER */
    const char *metrics;          /* serve /metrics over HTTP, for Prometheus and `weft top`, in a
                                   * thread of its own: "port" on 127.0.0.1, or "host:port", without
                                   * a password; port 0 = any free one. weft_ps_metrics tells the
                                   * address, and so does a line on standard error. Where it cannot
                                   * be had, all else goes on without (docs/METRICS.md). NULL
                                   * (default) = WEFT_METRICS; "" = none */
    const char *via;              /* send pushes through an aggregator, `weft aggregate`, which sums
                                   * those of several workers: "host:port" of the process, which
                                   * serves shard s at port + s, or one for each shard; numeric. With
                                   * a scheduler several of these, with '/' between them: it chooses
                                   * one for each update. "coordinator" = the aggregator that the
                                   * coordinator assigns; not with a scheduler. While an aggregator
                                   * is down, pushes are sent to the servers. NULL (default) =
                                   * WEFT_VIA; "" = none */
    const char *scheduler;        /* the job's transfer scheduler, `weft scheduler`: "host:port", numeric.
                                   * All workers and servers of a job name the same one. If it does not
                                   * reply for 1 s, updates are sent without it. NULL (default) =
                                   * WEFT_SCHEDULER; "" = none */
    const char *consistency;      /* with a scheduler: of all tables, as in their options, for it plans
                                   * them alike; NULL (default) = "bsp" */
    uint64_t tau_max;             /* delay bound: an update that would be applied more than so many others
                                   * after the model that it is computed from is dropped; 1 .. 2^23 - 1.
                                   * Needs a scheduler, and "ssp:N" or "asp". All workers say the same,
                                   * and servers that are to refuse such updates, too (--tau-max). 0
                                   * (default) = none */
    uint64_t update_bytes_min;    /* updates of fewer bytes are sent without a decision. 0 (default) =
                                   * 65,536 with a scheduler. Without one: > 0 = servers count updates
                                   * all the same, and keep their own --tau-max */
    const char *rack;             /* with via "coordinator": the name of the rack or host of this worker;
                                   * it is assigned an aggregator with the same --rack, if there is one.
                                   * NULL (default) = not given: aggregators are assigned by rank */
};

/* Write the defaults. Shape: size is sizeof(*config_p), as the caller was compiled. */
WEFT_API void weft_ps_config_init(struct weft_ps_config *config_p, size_t size);

/* Connect to all shards. The order in which servers and workers are started does not matter: this
 * waits for servers up to connect_timeout_ns, and as long for the coordinator before them.
 *
 * With a coordinator this worker is a member of the job until weft_ps_close, and its lease is kept by
 * a thread of the library.
 *
 * Owns:    borrows config until return; gives *ps_p, to be ended by weft_ps_close.
 * Errors:  WEFT_INVALID      a field is out of range; `servers` names another shard at some place
 *                            than is there.
 *          WEFT_NOTFOUND     no servers are named, no rank among several workers, or no job key.
 *          WEFT_DATA         a variable of the environment, or the key file, makes no sense.
 *          WEFT_TIMEOUT      a server or the coordinator does not answer, or that lacks servers.
 *          WEFT_PEER         a server refuses: another job key, security or version; or the
 *                            coordinator: another job, or number of workers, or a rank that lives.
 *          Others as weft_transport_open. weft_ps_error(NULL) says which server it is, and what to
 *          do.
 *          WEFT_EXISTS       another process writes the records of this rank to that name.
 *          WEFT_IO           records cannot be written there.
 * Thread:  any. */
WEFT_API weft_status weft_ps_connect(const struct weft_ps_config *config, struct weft_ps **ps_p);

/* Say CLOSE to the servers and free; the tables go with it, and operations end without a word, so
 * weft_ps_flush before. Memory lent to pulls is the caller's again. NULL is fine.
 *
 * The coordinator, where there is one, is told that this worker has done its work; when all have, the
 * job is over. But when pushes or clocks have not arrived, or a server is gone, as weft_ps_give_up. */
WEFT_API void weft_ps_close(struct weft_ps *ps);

/* The same of a worker that failed: the coordinator is told that its rank is free for another process,
 * which goes on with it. Without a coordinator there is no difference. */
WEFT_API void weft_ps_give_up(struct weft_ps *ps);

/* Why the last call on this ps (or a table of it) failed and what to do about it: one sentence, ""
 * when none has. With NULL: the same for the last weft_ps_connect of the calling thread.
 * Owns:    valid until the next call that fails. */
WEFT_API const char *weft_ps_error(const struct weft_ps *ps);

/* This worker's rank and the number of workers and shards, as they came out. */
WEFT_API uint32_t weft_ps_worker(const struct weft_ps *ps);
WEFT_API uint32_t weft_ps_workers(const struct weft_ps *ps);
WEFT_API uint32_t weft_ps_shards(const struct weft_ps *ps);

/* Where this worker serves its metrics, "http://127.0.0.1:41234/metrics"; "" when nobody asked for
 * them, or when they could not be had: then weft_ps_error says why after weft_ps_connect.
 * Owns:    valid until weft_ps_close. */
WEFT_API const char *weft_ps_metrics(const struct weft_ps *ps);

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table as this worker opened it. Lives as long as its ps. */
struct weft_ps_table;

/* What all workers must say alike about a table. A table is known by its number; the name is for
 * people. What an optimizer does not use is 0. */
struct weft_table_options {
    size_t size;              /* set by weft_table_options_init */
    const char *name;         /* in error texts; NULL (default) = "table <number>" */
    const char *optimizer;    /* as given to _init; see there */
    const char *consistency;  /* "bsp" (default), "ssp:N" with N clocks of staleness, or "asp" */
    const char *admission;    /* when an id gets a row: "all" (default) = at its first push;
                               * "counter", "bloom" = at push number admission_count, counted
                               * exactly or in a Bloom filter */
    const char *eviction;     /* which row goes when there is no room: "none" (default) = the new
                               * one is refused; "ttl" = those not pushed for ttl clocks, full or
                               * not; "lru" = the one used longest ago; "l2" = the one of smallest
                               * norm */
    const char *not_finite;   /* gradients that are infinite or not a number: "reject" (default) =
                               * their packet is refused, "clip" = to [-clip, clip], NaN to 0;
                               * "drop" = their row's block is left out */
    uint64_t init_seed;       /* of initial weights */
    uint64_t bytes_max;       /* memory of each shard; 0 (default) = the server's limit */
    uint64_t length;          /* > 0: a dense vector of so many floats in rows of dim, and ids are
                               * the numbers of rows, from 0. Default 0: sparse */
    uint32_t number;          /* below the ps's and the servers' tables_max; default 0 */
    uint32_t dim;             /* floats in a row, 1 .. dim_max of the ps; default 1 */
    uint32_t workers;         /* that push and clock; default 0 = those of the ps */
    uint32_t init_skip;       /* leading columns that begin at 0 all the same */
    uint32_t admission_count; /* "counter", "bloom": 2 or more */
    uint32_t admission_cells; /* "counter": ids counted at a time; "bloom": bytes; on each shard */
    uint32_t ttl;             /* "ttl" */
    uint32_t rows_max;        /* on each shard; 0 (default) = the server's limit */
    float learning_rate;
    float epsilon;
    float accumulator;        /* sum of squares that a new row begins with */
    float beta1;
    float beta2;
    float l1;
    float l2;
    float init_scale;         /* initial weights are uniform in [-init_scale, init_scale), a
                               * function of init_seed, id and column; default 0 */
    float clip;               /* "clip" */
    uint32_t reserved;        /* 0 */
    const char *average;      /* what a sum of gradients is divided by: "workers", or "contributors" =
                               * in "bsp" the gradients that came for the row (its block) in the
                               * clock, else 1, each being a step of its own; "none" = by nothing,
                               * for counts and other sums. NULL (default) =
                               * "contributors" of a dense table in "bsp", else "workers". Zeros
                               * are a gradient, too, also those that go again after a break in the
                               * place of what was lost: they count, make rows and are counted by
                               * admission */

    /* From here on this worker's own: the servers are not told, other workers may differ. */
    uint32_t last_rows;       /* remember the last value of so many rows that were pulled, for pulls
                               * with `fill`; of more, the one remembered first is forgotten. Takes
                               * at most last_rows x (20 + 4 x dim) + 64 bytes, reserved at once and
                               * used as needed, and a lookup for each row of every pull. Default 0 */
    uint32_t feedback_rows;   /* error feedback: what pushes lose, within their bound or at a
                               * deadline, is kept, by id, and added to this worker's next push of
                               * that id; of so many rows, and when more are lost they are counted
                               * (feedback_dropped). Takes at most feedback_rows x (20 + 4 x dim)
                               * + 64 bytes, as above. 0 (default) = what is lost is gone, unless
                               * value_type is "bf16" or "int8" */
    uint64_t deadline_ns;     /* of operations that name none: see struct weft_op_options. Default
                               * WEFT_NEVER */

    /* Again what all workers must say alike. */
    const char *value_type;      /* how gradients travel: "float32" (default, NULL), "bf16" = the
                                  * upper half of a float32, or "int8" = as a number of steps, -127
                                  * .. 127, with one step for up to 64 values; rounded to nearest
                                  * even. What rounding takes from a gradient is kept, by id, and
                                  * added to this worker's next push of that id: error feedback, as
                                  * above, with feedback_rows, whose default is then as many rows as
                                  * 16 MiB hold. Of more it is dropped, and counted
                                  * (residual_dropped). Servers compute with float32 either way */
    const char *pull_value_type; /* the same of the weights that a pull gets: "float32" (default) or
                                  * "bf16". They are rounded each time; the servers' stay whole */
};

/* The defaults, and those of the named optimizer. A name that this library does not know is refused
 * by weft_table_open, which lists those that it does. With g the gradient divided as `average` says:
 *
 *     sgd       w -= rate g                                           rate 0.1
 *     momentum  v = beta1 v + g;  w -= rate v                         rate 0.01, beta1 0.9
 *     adagrad   s += g^2;  w -= rate g / (sqrt(s) + epsilon)          rate 0.1, epsilon 1e-10,
 *                                                                     accumulator 0.1
 *     adadelay  as adagrad, a late gradient counts less               the same
 *     adam      by rows, bias-corrected                               rate 0.001, beta1 0.9, beta2
 *                                                                     0.999, epsilon 1e-8
 *     ftrl      FTRL-proximal; epsilon is its beta, l1, l2            rate 0.1, epsilon 1
 *
 * What each of them does to the last bit is in docs/TABLES.md.
 *
 * Owns:    borrows the name until weft_table_open has returned. */
WEFT_API void weft_table_options_init(struct weft_table_options *options_p, size_t size,
                                      const char *optimizer);

/* Declare a table on all shards, or join it: the first worker makes it, the others must say the
 * same. Its rows live until the servers end.
 *
 * Owns:    borrows options until return; gives *table_p, valid until weft_ps_close.
 * Errors:  WEFT_INVALID  an option is out of range.   WEFT_EXISTS  opened already.
 *          WEFT_DATA     a server refuses: it has the table with other options, or has less room.
 *          WEFT_PEER     a server is gone.
 *          WEFT_TIMEOUT  no answer within connect_timeout_ns: the server counts fewer workers than
 *                        this one's rank asks for. Call again to go on waiting.
 *          WEFT_AGAIN    as weft_push. */
WEFT_API weft_status weft_table_open(struct weft_ps *ps, const struct weft_table_options *options,
                                     struct weft_ps_table **table_p);

/* ---- push and pull --------------------------------------------------------------------------- */

/* Where the time of one request went: the five latencies of [imc20], and two that it folds into
 * them. Durations; no clocks are compared. */
struct weft_ps_latency {
    uint64_t w_proc_ns;     /* worker: taken up until handed over */
    uint64_t w_queue_ns;    /* worker: arrival of the answer until taken up */
    uint64_t ps_proc_ns;    /* server: working on it after it was there */
    uint64_t ps_queue_ns;   /* server: waiting for its turn */
    uint64_t n_tx_ns;       /* the network, both ways */
    uint64_t ps_overlap_ns; /* server: working on it while it arrived; a part of n_tx */
    uint64_t ps_wait_ns;    /* server: waiting for consistency */
};

/* What became of an operation. An element is a row's block of up to 256 floats: of rows up to that
 * long, the row. */
struct weft_result {
    size_t size;                    /* the caller sets it to sizeof(result) before a call */
    uint64_t elements_sent;         /* pushed by us, or answered to a pull by the servers */
    uint64_t elements_delivered;    /* of these, that arrived; the rest was lost within the bound */
    uint64_t rows_missed;           /* rows that did not arrive whole: of a pull, old values stayed;
                                     * of a push, gradients are lost. weft_result_gap names them */
    uint32_t chunks_refused;        /* push: packets that a server refused; see the error text */
    uint32_t requests;              /* that it was cut into: one or more for each shard with rows */
    uint32_t requests_short;        /* of these, with something lost */
    uint32_t clock;                 /* clocks that all workers had ended, by the oldest answer */
    uint32_t shard;                 /* that answered last, or refused */
    uint32_t reserved;
    struct weft_ps_latency latency; /* of the request that was answered last */
    uint64_t requests_dropped;      /* push: of `requests`, those of which nothing was applied, because the
                                     * scheduler dropped their update or a server refused it as too
                                     * late. Their rows are among rows_missed */
};

/* Add gradients to rows: begin, and return at once.
 *
 * Shape:   ids (n,), in any order, an id may occur more than once; rows (n, dim) float32,
 *          contiguous. n = 0 is allowed.
 * Units:   bound_ppm < 1,000,000: of the packets of all pushes to the table, or all pulls of it; a short
 *          one may lose a packet where those before it lost less than their part.
 * Owns:    borrows ids and rows until return; *op_p is to be ended by weft_wait or weft_test.
 * Errors:  WEFT_INVALID      NULL with n > 0, n above rows_max, or bound_ppm out of range.
 *          WEFT_AGAIN        ops_max operations are under way: weft_wait for one, then again.
 *          WEFT_UNSUPPORTED  a row does not fit the packets of the network.
 *          WEFT_TIMEOUT      config.call_timeout_ns is over: nothing is begun.
 *          WEFT_PEER         a server is gone: close, and connect again. */
WEFT_API weft_status weft_push(struct weft_ps_table *table, const uint64_t *ids, const float *rows,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);

/* Fetch rows: begin, and return at once. Sees this worker's own earlier pushes, in "bsp" those of
 * the clocks that are over.
 *
 * Shape:   ids (n,), rows_p (n, dim); what does not come within the bound keeps its value.
 * Owns:    borrows ids and rows_p until weft_wait or weft_test has ended *op_p, or weft_ps_close.
 * Errors:  as weft_push. */
WEFT_API weft_status weft_pull(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);

/* Wait until an operation is over, and take what became of it.
 *
 * Shape:   result_p NULL = not wanted; else written whenever the operation is over, whatever the
 *          status.
 * Errors:  WEFT_TIMEOUT      it is under way still; only then it must be waited for again.
 *          WEFT_DATA         a server refused all or some of it: infinite gradients, no room for
 *                            rows. What was not refused is done.
 *          WEFT_PEER         a server is gone; other shards may have done their part.
 *          WEFT_PROTO        an answer made no sense.   WEFT_UNSUPPORTED  as weft_push.
 *          WEFT_INVALID      there is no such operation: it is over and has been waited for.
 *          WEFT_DROPPED      a push in a job with a scheduler: its update was dropped, before anything of
 *                            it was sent, or refused by a server, because its model was too old. The
 *                            operation is over. Nothing of the rows that weft_result_gap names was
 *                            applied, and nothing of them will be; all others were, as where one server
 *                            refuses and another does not. Clocks go on as after any push. Pull before
 *                            the next step: the model has moved on. The values are the caller's: let
 *                            them go, as [mlfabric] does, or add them to the next push of these rows.
 *                            With feedback_rows the library keeps them, and does that. */
WEFT_API weft_status weft_wait(struct weft_ps *ps, uint64_t op, uint64_t timeout_ns,
                               struct weft_result *result_p);

/* The same without waiting: makes progress once.
 * Errors:  WEFT_AGAIN  it is under way still. Others as weft_wait. */
WEFT_API weft_status weft_test(struct weft_ps *ps, uint64_t op, struct weft_result *result_p);

/* Which rows the operation has missed that ended last: the one of which weft_wait, weft_test or a
 * form with the wait in it has just written the result. Row i is the i-th of ids (or of the piece;
 * of several lists, counted over all of them in their order); those of parts behind one that failed
 * are not named. Of a push they are the rows of which a gradient did not arrive; which chunks a
 * server refused (chunks_refused) is not known here, so only when it refused all are they named, and
 * of an operation that failed with WEFT_PEER those not known to have arrived.
 *
 * weft_result_gap: the first run of such rows at or behind row `from`; false when there is none. All:
 *     for (size_t at = 0; weft_result_gap(ps, at, &first, &count); at = first + count)
 * weft_result_missed: the same as bits, bit i % 64 of word i / 64 is row i, 1 = missed. Writes
 * `words` words, zeros behind the last row; returns how many rows the operation had. */
WEFT_API bool weft_result_gap(const struct weft_ps *ps, size_t from, size_t *first_p,
                              size_t *count_p);
WEFT_API size_t weft_result_missed(const struct weft_ps *ps, uint64_t *bits_p, size_t words);

/* weft_push and weft_pull with the wait in it, for any n: long lists go in parts of rows_max, whose
 * results are added up. Without a limit of time: it ends when it is done or a server is gone.
 *
 * Shape:   result_p NULL = not wanted; else written unless WEFT_INVALID or WEFT_AGAIN is returned.
 * Owns:    borrows all until return.
 * Errors:  as weft_push and weft_wait, but for WEFT_TIMEOUT. Parts before the one that failed are
 *          done. WEFT_DROPPED is said at the end, of any of them; each part is an update of its own, of
 *          which the first of a clock can be dropped. */
WEFT_API weft_status weft_push_wait(struct weft_ps_table *table, const uint64_t *ids,
                                    const float *rows, size_t n, uint32_t bound_ppm,
                                    struct weft_result *result_p);
WEFT_API weft_status weft_pull_wait(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                                    size_t n, uint32_t bound_ppm, struct weft_result *result_p);

/* ---- pieces of a vector, several tables ------------------------------------------------------- */

/* A contiguous piece of a dense table, without a list of ids: its rows first .. first + n - 1. Else
 * as weft_push, weft_pull and their forms with the wait, which take pieces of any length.
 *
 * Shape:   values (n, dim) float32, contiguous: n x dim floats of the vector, which begin at its
 *          first x dim. The piece that ends the vector ends where that does: with its `length`.
 *          The whole of it is first 0, n = length / dim, rounded up.
 * Errors:  as weft_push; WEFT_INVALID also: the table is sparse, or shorter than that. */
WEFT_API weft_status weft_push_range(struct weft_ps_table *table, uint64_t first,
                                     const float *values, size_t n, uint32_t bound_ppm,
                                     uint64_t *op_p);
WEFT_API weft_status weft_pull_range(struct weft_ps_table *table, uint64_t first, float *values_p,
                                     size_t n, uint32_t bound_ppm, uint64_t *op_p);
WEFT_API weft_status weft_push_range_wait(struct weft_ps_table *table, uint64_t first,
                                          const float *values, size_t n, uint32_t bound_ppm,
                                          struct weft_result *result_p);
WEFT_API weft_status weft_pull_range_wait(struct weft_ps_table *table, uint64_t first,
                                          float *values_p, size_t n, uint32_t bound_ppm,
                                          struct weft_result *result_p);

/* One table's part of an operation on several: rows by their ids, or a piece of a dense table. */
struct weft_push_list {
    struct weft_ps_table *table;
    const uint64_t *ids; /* (n,); dense: or NULL, for a piece */
    uint64_t first;      /* of a piece; else 0 */
    const float *rows;   /* (n, dim), as in weft_push or weft_push_range */
    size_t n;
};

struct weft_pull_list {
    struct weft_ps_table *table;
    const uint64_t *ids;
    uint64_t first;
    float *rows_p; /* (n, dim); what does not come within the bound keeps its value */
    size_t n;
};

/* Several tables in one operation, which has one place, one wait and one result. Their messages
 * leave together and the answers arrive together, where one operation after the other would wait
 * for the network as often as there are tables.
 *
 * Shape:   lists (count,), all of this ps; a table may occur more than once. The rows of all
 *          together are at most rows_max.
 * Owns:    borrows lists until return, what they point to as weft_push and weft_pull.
 * Errors:  as weft_push; WEFT_INVALID also: count above lists_max, a table of another ps, ids of a
 *          list that is no piece being NULL. Where one list is wrong, nothing of any is done. */
WEFT_API weft_status weft_push_lists(struct weft_ps *ps, const struct weft_push_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);
WEFT_API weft_status weft_pull_lists(struct weft_ps *ps, const struct weft_pull_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);

/* The same with the wait in it.
 * Errors:  as weft_push_lists and weft_wait, but for WEFT_TIMEOUT. */
WEFT_API weft_status weft_push_lists_wait(struct weft_ps *ps, const struct weft_push_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);
WEFT_API weft_status weft_pull_lists_wait(struct weft_ps *ps, const struct weft_pull_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);

/* What error feedback (feedback_rows) keeps of a table: gradients that were lost and not pushed again
 * yet, and with value_type "bf16" or "int8" what rounding took of those that were pushed. A push of zeros for these ids, with bound 0, sends it; it is a gradient of these rows like any
 * other (see `average`).
 *
 * The sum of all that was pushed is at any time the sum of what arrived and of what is kept, but for
 * feedback_dropped and residual_dropped elements; and for pushes that failed, with what had been added to them, and chunks
 * that a server refused, of which nothing is kept. What is kept dies with this worker.
 *
 * Shape:   ids_p (max,), rows_p (max, dim) or NULL; written as far as there are such rows.
 * Returns how many there are: with max = 0, ids_p may be NULL. */
WEFT_API size_t weft_table_kept(const struct weft_ps_table *table, uint64_t *ids_p, float *rows_p,
                                size_t max);

/* How an operation is done. */
struct weft_op_options {
    size_t size;        /* set by weft_op_options_init */
    uint32_t bound_ppm; /* default 0 */
    uint32_t reserved;  /* 0 */
    uint64_t fill;      /* pull: bit i = the memory of list i holds no old values (bit 63: of all
                         * from 63 on). What does not come reads as the last value that this worker
                         * has pulled of the row (last_rows of the table), else as the row begins
                         * (init_scale and its kin). Default 0: it keeps what it holds */
    uint64_t deadline_ns; /* so long after its begin the operation ends with what has arrived, also
                         * below the bound; the rest is missed (weft_result_gap), the status is OK.
                         * A pull is over at that time, whatever it waits for, and keeps its place
                         * until its answers have come. A push is over when the servers have said
                         * what they have, about a round trip later; what they have not never
                         * counts, and what was not sent yet is not sent. Only what had been sent
                         * when a connection broke is sent again, whole. WEFT_NEVER = none; default
                         * 0 = the shortest deadline of its tables */
    double norm;        /* push, with a scheduler: Euclidean norm of what is pushed, which the scheduler
                         * adds up (an update's is the root of the sum of squares of its pushes').
                         * Default -1, as any negative number: computed from the values, which takes a
                         * pass over them. Finite */
};

WEFT_API void weft_op_options_init(struct weft_op_options *options_p, size_t size);

/* weft_push_lists and weft_pull_lists with more to say.
 * Owns:    borrows options until return.
 * Errors:  as those; WEFT_INVALID also: an option is out of range. */
WEFT_API weft_status weft_push_with(struct weft_ps *ps, const struct weft_push_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);
WEFT_API weft_status weft_pull_with(struct weft_ps *ps, const struct weft_pull_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* End this worker's clock of a table, that is: its step. The servers are told when the pushes of
 * this clock have arrived; this waits for it of the clock before, not of this one.
 * Servers with --on-worker-death shrink may go on without a worker whose connection breaks. What it
 * was pushing then is absent (requests_short, pushes_passed), the clock of its step is over, and this
 * does not end another one: weft_clock_ended says where it stands.
 * Errors:  WEFT_PEER  a server is gone, or refuses a clock: it knows another one of this worker. What
 *                     waits ends with that, too. */
WEFT_API weft_status weft_clock(struct weft_ps_table *table);

/* Clocks that this worker has ended. */
WEFT_API uint32_t weft_clock_ended(const struct weft_ps_table *table);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Ask the servers for a checkpoint: begin, and return at once. The operation is over when it is on the
 * disk and counts: weft_wait and weft_test say so, or why there is none. It holds what this worker had
 * waited for before; with a "bsp" table it is cut at the end of a clock, so go on meanwhile. One
 * process that has all shards of the job needs no further clock when all workers have flushed. Servers
 * that share them have no other common instant than the end of a clock, and cut at that of the clock
 * behind the one in progress, whatever the mode: the operation is over when every worker has ended two
 * more clocks, so who waits for it must not be who holds those up. Servers need --checkpoint.
 *
 * Owns:    gives *op_p, to be ended by weft_wait or weft_test.
 * Errors:  WEFT_INVALID  no table is open.   WEFT_EXISTS  one is under way.
 *          WEFT_AGAIN, WEFT_PEER  as weft_push. Of the operation: WEFT_DATA  a server makes none: it was
 *          started without --checkpoint, its disk is full or fails; those before stay. */
WEFT_API weft_status weft_ps_checkpoint(struct weft_ps *ps, uint64_t *op_p);

/* ---- the rest -------------------------------------------------------------------------------- */

/* Make progress: sleep until something arrives, or timeout_ns has passed (0 = do not
 * sleep). For programs that compute in pieces with operations under way. */
WEFT_API void weft_ps_progress(struct weft_ps *ps, uint64_t timeout_ns);

/* Wait until every push and every clock has arrived. Operations stay to be waited for.
 * Errors:  WEFT_TIMEOUT; WEFT_PEER as weft_clock. */
WEFT_API weft_status weft_ps_flush(struct weft_ps *ps, uint64_t timeout_ns);

/* Tell the servers that this worker will not answer for a while, because it computes: for 10 minutes
 * they do not declare it dead. With operations under way they would; wait for these before.
 * The next call that makes progress ends it. Nothing with config.thread. */
WEFT_API void weft_ps_idle(struct weft_ps *ps);

/* Cumulative since weft_ps_connect. */
struct weft_ps_counters {
    size_t size;                /* the caller sets it to sizeof(counters) before the call */
    uint64_t push_messages;
    uint64_t push_messages_short; /* with something lost */
    uint64_t push_elements_sent;
    uint64_t push_elements_delivered;
    uint64_t push_chunks_refused;
    uint64_t pull_messages;     /* answers with rows */
    uint64_t pull_messages_short;
    uint64_t pull_elements_sent;
    uint64_t pull_elements_delivered;
    uint64_t missed_now;        /* ids that will be asked for first */
    uint64_t missed_forgotten;  /* missed_max was reached */
    uint64_t clocks;            /* CLOCKs that arrived, counted for each shard */
    uint64_t requests_refused;
    uint64_t requests_failed;   /* the shard was gone */
    uint64_t answers_bad;
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
    uint64_t lost_packets;
    uint64_t injected_drops;
    uint64_t servers_away;      /* connections that ended and were waited for */
    uint64_t pushes_again;      /* messages that were sent again to a server that came back */
    uint64_t pushes_lost;       /* that had been answered, and that it no longer knew */
    uint64_t pushes_durable;    /* replay: a checkpoint has them */
    uint64_t replay_bytes_now;  /* of replay_bytes, in use */
    uint64_t pushes_passed;     /* messages that came in part or not at all, because a server had gone
                                 * on without this worker and ended their clock */
    uint64_t last_forgotten;    /* rows whose last value made room for another's (last_rows) */
    uint64_t feedback_rows_now; /* rows of which lost gradients are kept (feedback_rows) */
    uint64_t feedback_kept;     /* elements that were lost and kept */
    uint64_t feedback_added;    /* elements to which what was kept has been added */
    uint64_t feedback_dropped;  /* elements lost and not kept: no room, infinite or not a number, or
                                 * the server went before it said what it had */
    uint64_t late;              /* requests that a deadline ended, or kept from being sent */
    uint64_t residual_dropped;  /* elements of which what rounding took was not kept: no room
                                 * (feedback_rows) */
    uint64_t value_bytes_saved; /* of gradients and weights that arrived, against float32 */
    uint64_t updates;           /* complete; all that follow are 0 without scheduler and update_bytes_min */
    uint64_t updates_asked;     /* of these, of which the scheduler was asked */
    uint64_t updates_direct;    /* of those, that went without a grant: nobody answered */
    uint64_t updates_dropped;   /* and that were dropped */
    uint64_t pushes_late;       /* messages that a server refused: their update was too late */
};

WEFT_API void weft_ps_counters_get(struct weft_ps *ps, struct weft_ps_counters *counters_p);

#ifdef __cplusplus
}
#endif

#endif
