/* weft's parameter server, as used by a worker: push gradients by id, pull weights by id, and learn
 * which rows were lost.
 *
 * The server side is `weft server`: shards of the parameters, one port each. A table is a set of
 * rows of `dim` floats. A u64 id identifies a row. The first push of an id creates its row; a pull
 * of an id without a row returns the initial value. The optimizer runs on the server. The program
 * computes the gradients. This header is not a general transport (see <weft/transport.h>).
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
 * weft_pull and weft_push are the non-blocking forms. They send as much as the congestion window
 * admits and return an operation, which weft_wait or weft_test completes. A program can compute
 * meanwhile, or have several operations in flight. Later calls, or the progress thread of
 * config.thread, send the remaining packets.
 *
 * Consistency is a property of each table. A clock is a worker's step; weft_clock ends it.
 * "bsp": the server sums the pushes of all workers for a clock and makes one optimizer step when
 * the last worker has ended it. Pulls wait for that step. Every worker must end the same number of
 * clocks.
 * "ssp:N": the server makes an optimizer step for each gradient on its arrival; a pull waits until
 * no worker is more than N clocks behind this one.
 * "asp": the same, but pulls never wait.
 * Gradients are divided by `workers`, but those of a dense table in "bsp" by the number that
 * arrived, unless `average` specifies another divisor.
 *
 * Loss. Every push and pull has a bound: the fraction of its packets that may be missing. The
 * gradients that a push loses are not sent again (but see feedback_rows). A pull keeps the old
 * values in the rows that did not arrive, and the next pull that contains such a row requests it
 * before all others. struct weft_result counts the missing rows. With bound 0 no row is ever
 * missing, unless a deadline is set or the job's scheduler drops an update.
 *
 * Scheduler. If config.scheduler is set to the job's transfer scheduler, the pushes of a worker for
 * one clock, over all tables, are an update: the scheduler grants its transmission or drops it as a
 * whole. An update is complete when the clocks of its tables have been ended, or when the program
 * waits for one of its pushes. To get one decision for a step, begin all pushes, end the clocks,
 * then wait. The reply to a pull also contains the number of updates of which its server had
 * received a chunk; the library uses this number as the base version of the next update. If the
 * scheduler limits reads (--read-credits), pulls that begin after weft_clock wait until the
 * scheduler admits the worker. Once it has, or once the worker has begun a push for the clock, no
 * pull waits before the next weft_clock.
 *
 * Progress. By default the calling thread makes progress: packets are sent and received only inside
 * these functions. A program that computes for longer than a server's peer timeout (5 s) between
 * two calls must first call weft_ps_idle, or set config.thread for a progress thread of the
 * library. Without config.thread at most one packet is sent outside these functions: the
 * acknowledgement of the last reply. It is sent before the call returns, unless the program's last
 * two calls were at most 100 us apart. Then it is sent with the next request, or some milliseconds
 * later by a thread of the library.
 *
 * Structs with a `size` field may grow; see docs/API.md. Initialise them with their _init function,
 * then set the fields that differ. Times are nanoseconds, WEFT_NEVER = no limit; fractions are
 * parts per million.
 *
 * Thread:  one thread at a time may use a ps and its tables; a process may have several.
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
                                   * "localhost", IPv6 in brackets. NULL (default) = from
                                   * `coordinator`, else the environment variable WEFT_SERVERS */
    const char *key_file;         /* file with the job key, as in struct weft_transport_config */
    const uint8_t *key;           /* the key itself; neither (default) = the text in WEFT_JOB_KEY */
    uint32_t security;            /* enum weft_transport_security, as at the servers; default
                                   * AUTH */
    uint32_t worker;              /* rank of this worker, less than `workers`. Default
                                   * WEFT_PS_WORKER_ENVIRONMENT: WEFT_RANK, or the launcher's
                                   * variables (docs/RUN.md); 0 if there is one worker */
    uint32_t workers;             /* in the whole job, 1 .. 65,535. Default 0: WEFT_WORKERS, or
                                   * the launcher's variables; 1 if not set */
    uint32_t thread;              /* 1: the library has a progress thread; default 0 */
    const char *transport;        /* "weft" (NULL, the default), or "tcp" if UDP is blocked */
    const char *host;             /* address to bind; NULL (default) = chosen by the route to the
                                   * servers */
    uint32_t tables_max;          /* limit of table numbers: all are less than this; 1 .. 65,536;
                                   * default 4. The server has a separate limit (--tables) */
    uint32_t dim_max;             /* longest row, 1 .. 1,024; default 64. The server has a separate
                                   * limit (--dim-max) */
    uint32_t ops_max;             /* operations at a time, 1 .. 4,096; default 8 */
    uint32_t rows_max;            /* rows in one weft_push or weft_pull, 1 .. 2^28; default
                                   * 65,536. weft_ps_connect reserves address space for ops_max
                                   * operations, each at most about rows_max x (13 + 10 x dim_max)
                                   * bytes; memory is committed when used */
    uint32_t missed_max;          /* for each table: number of ids that the worker remembers as
                                   * missed, separately for pushes and pulls; default 65,536 */
    uint32_t busy_poll_us;        /* busy-poll the socket for up to this time before sleeping.
                                   * While few polls find a packet, only one sleep in 16 begins with
                                   * a poll. Default 0 = never */
    uint64_t connect_timeout_ns;  /* how long to wait for servers that are not running yet, and
                                   * for the reply of weft_table_open; default 60 s */
    uint64_t peer_timeout_ns;     /* declare a server down after this time without a reply;
                                   * default 5 s, or the environment variable WEFT_PEER_TIMEOUT_S */
    uint64_t keepalive_ns;        /* while an operation waits, send a keep-alive probe after this
                                   * time without a packet from the server; default 1 s; at least
                                   * 1 ms */
    uint32_t inject_loss_ppm;     /* drop received datagrams on purpose; default 0 */
    uint32_t inject_seed;         /* seed of the pseudo-random choice of dropped datagrams */
    uint32_t lists_max;           /* lists in one weft_push_lists or weft_pull_lists, 1 .. 256;
                                   * default 4 */
    const char *coordinator;        /* the coordinator of the job, `weft coordinator`:
                                     * "host:port", a name or an address. It lists the servers,
                                     * assigns a rank if none is set, and keeps this worker's
                                     * lease. NULL (default) = WEFT_COORDINATOR, or the
                                     * launcher's variables (docs/RUN.md), unless `servers` is
                                     * set; "" = none */
    uint64_t reconnect_timeout_ns; /* how long operations wait until a disconnected server is
                                    * connected again, for example after a restart from its
                                    * checkpoint. If a new connection ends within a second, the time
                                    * since the first disconnection counts. 0 = do not wait. Default
                                    * WEFT_PS_RECONNECT_ENVIRONMENT: WEFT_RECONNECT_S seconds, which
                                    * `weft run --restart` sets, else 0 */
    const char *records;          /* record the latency breakdown of every push and pull in the
                                   * file NAME.spool-worker-RANK; `weft trace merge` converts it
                                   * to a database (docs/RECORDS.md). NULL (default) =
                                   * WEFT_RECORDS; "" = none */
    uint64_t replay_bytes;        /* memory for finished pushes (`weft run --durability replay`).
                                   * The library keeps a push until a checkpoint of its server
                                   * contains it, and resends it to a server that was restored from
                                   * an older checkpoint, so that no push is lost. Set at least four
                                   * times the bytes that a worker pushes between checkpoints. 0 =
                                   * keep none (`--durability none`). Default
                                   * WEFT_PS_REPLAY_ENVIRONMENT: WEFT_REPLAY_BYTES, which `weft run
                                   * --restart` sets if servers make checkpoints, else 0. Needs
                                   * reconnect_timeout_ns */
    uint64_t call_timeout_ns;     /* how long weft_push, weft_pull, weft_clock, weft_table_open
                                   * and similar calls wait for a disconnected server, for space in
                                   * replay_bytes, or for the acknowledgement of the previous clock.
                                   * After this time they return WEFT_TIMEOUT without any effect,
                                   * and can be repeated. The _wait forms have no such limit.
                                   * Default WEFT_NEVER */
    const char *metrics;          /* serve /metrics over HTTP, for Prometheus and `weft top`, in
                                   * a separate thread: "port" on 127.0.0.1, or "host:port"; port 0
                                   * = any free one. Clients are not authenticated. weft_ps_metrics
                                   * returns the address, and a line on standard error reports it.
                                   * If the HTTP server cannot be started, the program continues
                                   * without metrics (docs/METRICS.md). NULL (default) =
                                   * WEFT_METRICS; "" = none */
    const char *via;              /* send pushes, and without a scheduler also pulls and clocks,
                                   * through aggregators, `weft aggregate`, which sum the pushes of
                                   * several workers. Either "host:port" of one process, whose
                                   * endpoint for shard s is at port + s, or a list of one
                                   * "host:port" for each shard, separated by commas; hosts numeric.
                                   * With a scheduler: one or more of these, separated by '/'; the
                                   * scheduler selects an aggregator for each update. "coordinator"
                                   * = the aggregator that the coordinator assigns; not with a
                                   * scheduler. If an aggregator is unreachable, requests are sent
                                   * to their server. NULL (default) = WEFT_VIA; "" = none */
    const char *scheduler;        /* the job's transfer scheduler, `weft scheduler`: "host:port",
                                   * numeric, the same for all workers and servers of a job. If
                                   * it does not reply for 1 s, updates are sent without a grant.
                                   * NULL (default) = WEFT_SCHEDULER; "" = none */
    const char *consistency;      /* with a scheduler: one consistency mode for all tables, equal
                                   * to the one in their options; NULL (default) = "bsp" */
    uint64_t tau_max;             /* delay bound: drop an update if more than this many other
                                   * updates would be applied between its base version (the model
                                   * that it was computed from) and the update; 1 .. 2^23 - 1.
                                   * Needs a scheduler, and "ssp:N" or "asp". Equal at all workers,
                                   * and at servers that should also refuse such updates
                                   * (--tau-max). 0 (default) = no bound */
    uint64_t update_bytes_min;    /* with a scheduler: updates of fewer bytes are sent without a
                                   * request to it; 0 (default) = 65,536. Without a scheduler: > 0 =
                                   * servers still count updates, and enforce their own --tau-max */
    const char *rack;             /* with via "coordinator": the rack or host of this worker; it
                                   * gets an aggregator with the same --rack, if there is one.
                                   * NULL (default) = none: aggregators are assigned by rank */
    uint64_t hot_rows;            /* with via: send only hot rows, those with the most updates,
                                   * through the aggregator, and all others to the servers. The
                                   * servers select N hot rows of each table and shard: `weft server
                                   * --hot-rows N`. This field must be at least N, and at most
                                   * 65,536: if a server has selected more rows, pushes are not
                                   * split. Not with a scheduler or update_bytes_min. 0 (default) =
                                   * send whole pushes through the aggregator */
    const char *replicas;         /* the replicas of all shards, in the order of `servers`: servers
                                   * of <weft/fabric.h> with replica_of. While a server is
                                   * disconnected, the worker tries its replica too, which serves
                                   * once it was promoted. Needs reconnect_timeout_ns. Not with a
                                   * coordinator, which lists the servers that were promoted. NULL
                                   * (default) = none */
    uint64_t link_mbps;           /* with a scheduler: rate of this host's links, in Mbit/s, at most
                                   * 10^7. The plan uses a lower one if it measures that. 0
                                   * (default) = not known: `weft scheduler --link-mbps` */
};

/* Write the defaults. Shape: size is sizeof(*config_p) in the caller's version of this header. */
WEFT_API void weft_ps_config_init(struct weft_ps_config *config_p, size_t size);

/* Connect to all shards. Servers and workers may be started in any order: this waits up to
 * connect_timeout_ns for the coordinator, if any, and then up to the same time for the servers.
 *
 * With a coordinator this worker is a member of the job until weft_ps_close, and a thread of the
 * library keeps its lease.
 *
 * Owns:    borrows config until return; gives *ps_p, to be ended by weft_ps_close.
 * Errors:  WEFT_INVALID      a field is out of range, or the entries of `servers` are not in the
 *                            order of the shards.
 *          WEFT_NOTFOUND     no servers, no rank although there are several workers, or no job key.
 *          WEFT_DATA         an environment variable or the key file is malformed.
 *          WEFT_TIMEOUT      no reply from a server or the coordinator, or the coordinator does
 *                            not know all servers yet.
 *          WEFT_PEER         a server refuses (another job key, security or version), or the
 *                            coordinator does (another job or number of workers, or the rank
 *                            belongs to a live process).
 *          WEFT_EXISTS       another process writes the records of this rank to the same file
 *                            (`records`).
 *          WEFT_IO           the file of `records` cannot be written.
 *          Others as weft_transport_open. weft_ps_error(NULL) names the server and the remedy.
 * Thread:  any. */
WEFT_API weft_status weft_ps_connect(const struct weft_ps_config *config, struct weft_ps **ps_p);

/* Send CLOSE to the servers and free the ps and its tables. Open operations are discarded, so
 * call weft_ps_flush first. Memory lent to pulls belongs to the caller again. NULL is allowed.
 *
 * In the child of a fork it does nothing, and frees nothing: the connections are the parent's.
 *
 * The coordinator, if any, is notified that this worker has finished; the job is over when all
 * workers have finished. If pushes or clocks are unacknowledged, or a server is down, this call
 * behaves as weft_ps_abort. */
WEFT_API void weft_ps_close(struct weft_ps *ps);

/* Close after a failure: the coordinator is notified that the rank is free, so that another process
 * can continue with it. Without a coordinator it is the same as weft_ps_close. */
WEFT_API void weft_ps_abort(struct weft_ps *ps);

/* The cause of the last failed call on this ps (or a table of it), and the remedy: one sentence,
 * "" if none has failed. With NULL: the same for the last weft_ps_connect of the calling thread.
 * Owns:    valid until the next failing call. */
WEFT_API const char *weft_ps_error(const struct weft_ps *ps);

/* This worker's rank and the number of workers and shards, as resolved by weft_ps_connect. */
WEFT_API uint32_t weft_ps_worker(const struct weft_ps *ps);
WEFT_API uint32_t weft_ps_workers(const struct weft_ps *ps);
WEFT_API uint32_t weft_ps_shards(const struct weft_ps *ps);

/* The address of this worker's metrics, "http://127.0.0.1:41234/metrics"; "" if metrics are off
 * or could not be started. In the latter case weft_ps_error returns the reason after
 * weft_ps_connect.
 * Owns:    valid until weft_ps_close. */
WEFT_API const char *weft_ps_metrics(const struct weft_ps *ps);

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table that this worker has opened. Valid as long as its ps. */
struct weft_ps_table;

/* Specification of a table, equal at all workers. The number identifies the table; the name
 * appears in error texts only. Fields that an optimizer does not use are 0. */
struct weft_table_options {
    size_t size;              /* set by weft_table_options_init */
    const char *name;         /* in error texts; NULL (default) = "table <number>" */
    const char *optimizer;    /* as passed to weft_table_options_init */
    const char *consistency;  /* "bsp" (default), "ssp:N" with N clocks of staleness, or "asp" */
    const char *admission;    /* when an id gets a row: "all" (default) = at its first push;
                               * "counter", "bloom" = at push number admission_count, counted
                               * exactly or in a Bloom filter */
    const char *eviction;     /* which row is evicted when the table is full: "none" (default) =
                               * none, the new row is refused; "ttl" = rows not pushed for ttl
                               * clocks, also when not full; "lru" = the least recently used;
                               * "l2" = the one with the smallest norm */
    const char *not_finite;   /* gradients that are infinite or NaN: "reject" (default) = reject
                               * the packet; "clip" = clip to [-clip, clip], NaN to 0; "drop" =
                               * skip the block of up to 256 floats of the row that contains it */
    uint64_t init_seed;       /* seed of the initial weights */
    uint64_t bytes_max;       /* memory limit of the table on each shard; 0 (default) = the
                               * server's limit */
    uint64_t length;          /* > 0: a dense vector of this many floats in rows of dim; ids are
                               * row numbers, from 0. Default 0: sparse */
    uint32_t number;          /* less than tables_max of the ps and of the servers; default 0 */
    uint32_t dim;             /* floats in a row, 1 .. dim_max of the ps; default 1 */
    uint32_t workers;         /* number of workers that push and end clocks; default 0 = those of
                               * the ps */
    uint32_t init_skip;       /* number of leading columns initialised to 0 regardless of
                               * init_scale */
    uint32_t admission_count; /* "counter", "bloom": 2 or more */
    uint32_t admission_cells; /* "counter": number of ids that can have a counter at the same
                               * time; "bloom": size in bytes; on each shard */
    uint32_t ttl;             /* "ttl": see eviction */
    uint32_t rows_max;        /* on each shard; 0 (default) = the server's limit */
    float learning_rate;
    float epsilon;
    float accumulator; /* initial sum of squares of a new row */
    float beta1;
    float beta2;
    float l1;
    float l2;
    float init_scale;         /* initial weights are uniform in [-init_scale, init_scale), a
                               * function of init_seed, id and column; default 0 */
    float clip;               /* "clip": see not_finite */
    uint32_t reserved;        /* 0 */
    const char *average;      /* divisor of a sum of gradients: "workers"; "contributors" = in
                               * "bsp" the number of gradients that arrived for the row (its
                               * block) in the clock, in the other modes 1, because there each
                               * gradient is a separate step; "none" = 1, for counts and other sums.
                               * NULL (default) = "contributors" for a dense table in "bsp", else
                               * "workers". A zero gradient counts as a gradient: it creates rows
                               * and counts for admission. If a push is resent after a
                               * reconnection, the rows that it had lost, and that error feedback
                               * keeps, are sent as zeros; these zeros count, too */

    /* Local options: not sent to the servers; they may differ between workers. */
    uint32_t last_values_max; /* cache the last pulled value of up to this many rows, FIFO, for
                               * pulls with `fill`. Uses at most last_values_max x (20 + 4 x dim) +
                               * 64 bytes, reserved at once and committed when used, and a lookup
                               * for each row of every pull. Default 0 */
    uint32_t feedback_rows;   /* error feedback: keep, by id, the gradients of this many rows that
                               * pushes lose within their bound or at a deadline, and add them to
                               * this worker's next push of that id. Further losses are dropped and
                               * counted (feedback_dropped). Uses at most feedback_rows x (20 + 4 x
                               * dim) + 64 bytes, as above. 0 (default) = lost gradients are not
                               * kept, unless value_type is "bf16" or "int8" */
    uint64_t deadline_ns;     /* default deadline of operations that do not set one: see struct
                               * weft_op_options. Default WEFT_NEVER */

    /* The remaining fields must be equal at all workers. */
    const char *value_type;      /* encoding of gradients in messages: "float32" (default, NULL);
                                  * "bf16" = the upper half of a float32; "int8" = a number of
                                  * quantization steps, -127 .. 127, with one step size for up to 64
                                  * values. Rounded to nearest even. The rounding error is kept by
                                  * id and added to this worker's next push of that id, as with
                                  * feedback_rows, whose default is then as many rows as fit into 16
                                  * MiB. Errors beyond that are dropped and counted
                                  * (residual_dropped). Servers compute with float32 in all cases */
    const char *pull_value_type; /* the same for the weights of a pull: "float32" (default) or
                                  * "bf16". They are rounded for each pull; the servers keep
                                  * float32 */
};

/* The defaults, and those of the named optimizer. weft_table_open returns an error for an unknown
 * name; its text lists the known ones. g is the gradient divided as specified by `average`:
 *
 *     sgd       w -= rate g                                           rate 0.1
 *     momentum  v = beta1 v + g;  w -= rate v                         rate 0.01, beta1 0.9
 *     adagrad   s += g^2;  w -= rate g / (sqrt(s) + epsilon)          rate 0.1, epsilon 1e-10,
 *                                                                     accumulator 0.1
 *     adadelay  as adagrad, with late gradients scaled down           the same
 *     adam      bias-corrected with a count of steps for each row     rate 0.001, beta1 0.9, beta2
 *                                                                     0.999, epsilon 1e-8
 *     ftrl      FTRL-proximal, with l1 and l2; epsilon is its beta    rate 0.1, epsilon 1
 *
 * docs/TABLES.md has the exact formulas.
 *
 * Owns:    borrows the name until weft_table_open has returned. */
WEFT_API void weft_table_options_init(struct weft_table_options *options_p, size_t size,
                                      const char *optimizer);

/* Declare a table on all shards, or join it: the first worker creates it, the others must pass
 * the same options. Its rows exist until the servers end.
 *
 * Owns:    borrows options until return; gives *table_p, valid until weft_ps_close.
 * Errors:  WEFT_INVALID  an option is out of range.   WEFT_EXISTS  opened already.
 *          WEFT_NOMEM    no memory for last_values_max or feedback_rows.
 *          WEFT_DATA     a server refuses: it has the table with other options, or a lower
 *                        limit.
 *          WEFT_PEER     a server is down.
 *          WEFT_TIMEOUT  no reply within connect_timeout_ns or call_timeout_ns, usually because
 *                        --workers of the server is not above this rank. Call again to continue
 *                        waiting.
 *          WEFT_AGAIN    as weft_push. */
WEFT_API weft_status weft_table_open(struct weft_ps *ps, const struct weft_table_options *options,
                                     struct weft_ps_table **table_p);

/* ---- push and pull --------------------------------------------------------------------------- */

/* Latency breakdown of one request: the five latencies of [imc20], a component of n_tx
 * (ps_overlap), and the wait for consistency, which is not included in the five (ps_wait). All are
 * computed from durations on one host, so that clocks need not be synchronised. */
struct weft_ps_latency {
    uint64_t w_proc_ns;     /* worker: from dequeuing the reply to its delivery */
    uint64_t w_queue_ns;    /* worker: from arrival of the reply to its dequeuing */
    uint64_t ps_proc_ns;    /* server: processing after the request was complete */
    uint64_t ps_queue_ns;   /* server: queueing */
    uint64_t n_tx_ns;       /* the network, both ways */
    uint64_t ps_overlap_ns; /* server: processing while it arrived; a part of n_tx */
    uint64_t ps_wait_ns;    /* server: waiting for consistency */
};

/* Result of an operation. An element is a row's block of up to 256 floats; for rows up to that
 * length it is the row. */
struct weft_result {
    size_t size;                 /* the caller sets it to sizeof(result) before a call */
    uint64_t elements_sent;      /* pushed by this worker, or sent by the servers in reply to
                                  * a pull */
    uint64_t elements_delivered; /* of these, those that arrived; the rest was lost within the
                                  * bound */
    uint64_t rows_missed;        /* rows that did not arrive completely: a pull keeps their
                                  * old values, a push has lost their gradients.
                                  * weft_result_gap returns them */
    uint32_t chunks_refused;     /* push: packets refused by a server; weft_ps_error returns the
                                  * reason */
    uint32_t requests;           /* number of requests into which the operation was divided: one or
                                  * more for each shard that has rows of it */
    uint32_t requests_short;     /* of these, those with missing elements */
    uint32_t clock;              /* clocks that all workers had ended: the lowest number among
                                  * the replies */
    uint32_t shard;              /* shard that replied last, or refused */
    uint32_t reserved;
    struct weft_ps_latency latency; /* of the request whose reply arrived last */
    uint64_t requests_dropped;      /* push: of `requests`, those of which nothing was applied,
                                     * because the scheduler dropped their update or a server
                                     * refused it as too late. Their rows are included in
                                     * rows_missed */
};

/* Add gradients to rows: begin the operation, and return at once.
 *
 * Shape:   ids (n,), in any order, an id may occur more than once; rows (n, dim) float32,
 *          contiguous. n = 0 is allowed.
 * Units:   bound_ppm < 1,000,000. The bound applies to the packets of all pushes to the table,
 *          or of all its pulls. It is rounded down to whole packets and the remainder carries
 *          over to later operations, so that even a short operation may lose a packet.
 * Owns:    borrows ids and rows until return; the caller must complete *op_p with weft_wait or
 *          weft_test.
 * Errors:  WEFT_INVALID      NULL with n > 0, n above rows_max, bound_ppm out of range, or an id
 *                            beyond the end of a dense table.
 *          WEFT_AGAIN        ops_max operations are in progress: weft_wait for one, then repeat.
 *          WEFT_UNSUPPORTED  a row does not fit into a packet.
 *          WEFT_NOMEM        push: replay_bytes is too small for it; or it is full, and either no
 *                            checkpoint can free space, because a "bsp" clock in progress uses all
 *                            of it, or none has freed space for reconnect_timeout_ns.
 *          WEFT_TIMEOUT      config.call_timeout_ns has passed: nothing was begun.
 *          WEFT_PEER         a server is down: close, and connect again. */
WEFT_API weft_status weft_push(struct weft_ps_table *table, const uint64_t *ids, const float *rows,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);

/* Fetch rows: begin the operation, and return at once. The result includes this worker's own
 * earlier pushes, in "bsp" those of completed clocks.
 *
 * Shape:   ids (n,), rows_p (n, dim); rows that are missing within the bound keep their values.
 * Owns:    borrows ids and rows_p until weft_wait or weft_test has completed *op_p, or
 *          weft_ps_close.
 * Errors:  as weft_push. */
WEFT_API weft_status weft_pull(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);

/* Wait until an operation completes, and return its result.
 *
 * Shape:   result_p NULL = no result; else written whenever the operation is complete, whatever
 *          the status.
 * Errors:  WEFT_TIMEOUT      not complete yet. Only after this status must the caller wait for it
 *                            again.
 *          WEFT_DATA         a server refused all or some of it: infinite gradients, no room for
 *                            rows. The rest was applied.
 *          WEFT_PEER         a server is down; other shards may have completed their part.
 *          WEFT_PROTO        a reply was malformed.   WEFT_UNSUPPORTED  as weft_push.
 *          WEFT_INVALID      there is no such operation: it is complete and has been waited for.
 *          WEFT_DROPPED      a push in a job with a scheduler: the scheduler dropped its update
 *                            before any of it was sent, or a server refused it because its model
 *                            was too old. The operation is complete. The rows returned by
 *                            weft_result_gap were not applied, and never will be. All others were:
 *                            one server may refuse an update that another applies. Clocks continue
 *                            as after any push. Pull before the next step, because the model has
 *                            changed. The values belong to the caller: discard them, as [mlfabric]
 *                            does, or add them to the next push of these rows. With feedback_rows
 *                            the library keeps the values and adds them. */
WEFT_API weft_status weft_wait(struct weft_ps *ps, uint64_t op, uint64_t timeout_ns,
                               struct weft_result *result_p);

/* The same without blocking: makes progress once.
 * Errors:  WEFT_AGAIN  not complete yet. Others as weft_wait. */
WEFT_API weft_status weft_test(struct weft_ps *ps, uint64_t op, struct weft_result *result_p);

/* The missed rows of the most recently completed operation: the one whose result weft_wait,
 * weft_test or a blocking form has just written. Row i is the i-th of ids (or of the range; of
 * several lists, counted over all of them in their order).
 *
 * - Push: rows of which a gradient did not arrive. The worker does not know which chunks a server
 *   refused (chunks_refused), so refused rows are included only if the server refused all.
 * - Operation that failed with WEFT_PEER: also rows that are not known to have arrived; possibly
 *   all rows.
 * - In a blocking form, rows of the parts after the one that failed are not included.
 *
 * weft_result_gap: the first run of such rows at or after row `from`; false if there is none. To
 * visit all runs:
 *     for (size_t at = 0; weft_result_gap(ps, at, &first, &count); at = first + count)
 * weft_result_missed: the same as bits: bit i % 64 of word i / 64 is row i, 1 = missed. Writes
 * `words` words, zeros after the last row; returns the number of rows of the operation. */
WEFT_API bool weft_result_gap(const struct weft_ps *ps, size_t from, size_t *first_p,
                              size_t *count_p);
WEFT_API size_t weft_result_missed(const struct weft_ps *ps, uint64_t *bits_p, size_t words);

/* Blocking forms of weft_push and weft_pull, for any n: long lists are divided into parts of
 * rows_max, whose results are summed. There is no time limit: the call ends when the operation
 * is complete or a server is down.
 *
 * Shape:   result_p NULL = no result; else written if at least the first part was begun, whatever
 *          the status.
 * Owns:    borrows all until return.
 * Errors:  as weft_push and weft_wait, except WEFT_TIMEOUT. Parts before the one that failed are
 *          applied. With a scheduler each part is a separate update, because the call waits for it
 *          before it begins the next. Only the first update of a clock can be dropped. If a part
 *          was dropped, the other parts are still applied, and the call returns WEFT_DROPPED. */
WEFT_API weft_status weft_push_wait(struct weft_ps_table *table, const uint64_t *ids,
                                    const float *rows, size_t n, uint32_t bound_ppm,
                                    struct weft_result *result_p);
WEFT_API weft_status weft_pull_wait(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                                    size_t n, uint32_t bound_ppm, struct weft_result *result_p);

/* ---- ranges of a vector, several tables ------------------------------------------------------ */

/* Push or pull a contiguous range of a dense table without a list of ids: n rows, from row `first`
 * on. Otherwise as weft_push and weft_pull; the blocking forms accept ranges of any length.
 *
 * Shape:   values (n, dim) float32, contiguous: n x dim floats of the vector, starting at element
 *          first x dim. A range that includes the last row ends at the `length` of the vector,
 *          which may be within that row. For the whole vector pass first = 0 and n = length / dim,
 *          rounded up.
 * Errors:  as weft_push; WEFT_INVALID also: the table is sparse, or the range exceeds it. */
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

/* One table's part of an operation on several: rows by their ids, or a range of a dense table. */
struct weft_push_list {
    struct weft_ps_table *table;
    const uint64_t *ids; /* (n,); for a range of a dense table NULL */
    uint64_t first;      /* of a range; else 0 */
    const float *rows;   /* (n, dim), as in weft_push or weft_push_range */
    size_t n;
};

struct weft_pull_list {
    struct weft_ps_table *table;
    const uint64_t *ids;
    uint64_t first;
    float *rows_p; /* (n, dim); rows that are missing within the bound keep their values */
    size_t n;
};

/* Several tables in one operation, which uses one of ops_max slots, one wait and one result.
 * Their messages are sent together and the replies arrive together; one operation per table
 * would cost one round trip per table.
 *
 * Shape:   lists (count,), all of this ps; a table may occur more than once. All lists together
 *          have at most rows_max rows.
 * Owns:    borrows lists until return, and the memory they point to as weft_push and weft_pull.
 * Errors:  as weft_push; WEFT_INVALID also: count above lists_max, a table of another ps, or
 *          NULL ids of a list that is not a range. If one list is invalid, no list is sent. */
WEFT_API weft_status weft_push_lists(struct weft_ps *ps, const struct weft_push_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);
WEFT_API weft_status weft_pull_lists(struct weft_ps *ps, const struct weft_pull_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);

/* Blocking forms.
 * Errors:  as weft_push_lists and weft_wait, except WEFT_TIMEOUT. */
WEFT_API weft_status weft_push_lists_wait(struct weft_ps *ps, const struct weft_push_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);
WEFT_API weft_status weft_pull_lists_wait(struct weft_ps *ps, const struct weft_pull_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);

/* The residuals of a table (feedback_rows): gradients that were lost and not pushed again yet, and
 * with value_type "bf16" or "int8" the rounding errors of pushed gradients. To send the residuals,
 * push zeros for these ids with bound 0; this push counts as a gradient of these rows like any
 * other (see `average`).
 *
 * Invariant: sum of pushed values = sum of delivered values + residuals. Exceptions:
 * feedback_dropped and residual_dropped elements; failed pushes with the residuals that were added
 * to them; chunks refused by a server, of which no residual is kept. Residuals are lost when this
 * worker ends.
 *
 * Shape:   ids_p (max,), rows_p (max, dim) or NULL; at most max rows are written.
 * Returns the number of rows that have residuals, which may exceed max; with max = 0, ids_p may be
 * NULL. */
WEFT_API size_t weft_table_residuals(const struct weft_ps_table *table, uint64_t *ids_p,
                                     float *rows_p, size_t max);

/* Options of one operation. */
struct weft_op_options {
    size_t size;          /* set by weft_op_options_init */
    uint32_t bound_ppm;   /* default 0 */
    uint32_t reserved;    /* 0 */
    uint64_t fill;        /* pull: bit i = the memory of list i holds no old values (bit 63: of all
                           * lists from 63 on). Rows that do not arrive are set to their last
                           * pulled value (last_values_max of the table), or else to their initial
                           * value (init_scale, init_skip). Default 0: the memory keeps its
                           * content */
    uint64_t deadline_ns; /* maximum duration. At the deadline the operation ends even if more than
                           * the bound is missing. Rows that did not arrive are missed
                           * (weft_result_gap), and the status is OK. A pull ends at the deadline in
                           * any state, but occupies its slot until its replies have arrived. A push
                           * ends about a round trip later, when the servers have reported the rows
                           * that arrived; the others are never applied, and unsent parts are not
                           * sent. Exception: parts that had been sent when a connection broke are
                           * resent completely, even after the deadline. WEFT_NEVER = no deadline;
                           * default 0 = the shortest deadline of its tables */
    double norm;          /* push, with a scheduler: Euclidean norm of the pushed values, finite.
                           * The norm of an update is the square root of the sum of the squared
                           * norms of its pushes. Negative (default -1) = the library computes it,
                           * with one pass over the values */
};

WEFT_API void weft_op_options_init(struct weft_op_options *options_p, size_t size);

/* weft_push_lists and weft_pull_lists with options.
 * Owns:    borrows options until return.
 * Errors:  as those; WEFT_INVALID also: an option is out of range. */
WEFT_API weft_status weft_push_with(struct weft_ps *ps, const struct weft_push_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);
WEFT_API weft_status weft_pull_with(struct weft_ps *ps, const struct weft_pull_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* End this worker's clock (step) of a table. The library sends CLOCK to the servers when the pushes
 * of this clock are acknowledged. The call waits until the CLOCK of the previous clock is
 * acknowledged, not for that of this clock. Servers with --on-worker-death shrink may end a clock
 * without a disconnected worker. When it has reconnected, its unfinished pushes for this clock are
 * not applied (requests_short, pushes_skipped), and weft_clock_ended includes this clock. The
 * worker's own weft_clock for it, if it follows before another push to the table, returns WEFT_OK
 * and has no effect.
 * Errors:  WEFT_PEER     a server is down, or rejects a clock because its count for this worker
 *                        differs. Pending operations fail with the same status.
 *          WEFT_TIMEOUT  config.call_timeout_ns has passed: the clock has not ended. */
WEFT_API weft_status weft_clock(struct weft_ps_table *table);

/* Number of clocks of the table that this worker has ended. */
WEFT_API uint32_t weft_clock_ended(const struct weft_ps_table *table);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Request a checkpoint from the servers: begin the operation, and return at once. It completes
 * when the checkpoint is on the disk and valid; weft_wait and weft_test return WEFT_OK then, or the
 * error. The checkpoint contains all operations that this worker had waited for before this call.
 *
 * With a "bsp" table the servers take the checkpoint at the end of a clock, so the workers must
 * continue to end clocks meanwhile. They need not if one process has all shards of the job and all
 * workers have called weft_ps_flush. If the shards are distributed over several server processes,
 * these take the checkpoint at the end of the clock after the one in progress, in every mode,
 * because the end of a clock is their only common instant. The operation then completes when every
 * worker has ended two more clocks, so a worker must not wait for it before it has ended these
 * clocks. Servers need --checkpoint.
 *
 * Owns:    gives *op_p, to be completed with weft_wait or weft_test.
 * Errors:  WEFT_INVALID  no table is open.   WEFT_EXISTS  a checkpoint is in progress.
 *          WEFT_AGAIN, WEFT_PEER  as weft_push.
 *          From weft_wait or weft_test: WEFT_DATA  a server was started without --checkpoint, or
 *          its disk is full or fails. Earlier checkpoints stay valid. */
WEFT_API weft_status weft_ps_checkpoint(struct weft_ps *ps, uint64_t *op_p);

/* ---- progress and counters ------------------------------------------------------------------- */

/* Make progress: sleep until a packet arrives, a timer expires or timeout_ns has passed (0 = do not
 * sleep). For programs that call it between parts of a computation, while operations are in
 * progress. */
WEFT_API void weft_ps_progress(struct weft_ps *ps, uint64_t timeout_ns);

/* Wait until every push and every clock is acknowledged. The caller must still complete operations
 * with weft_wait or weft_test.
 * Errors:  WEFT_TIMEOUT; WEFT_PEER as weft_clock. */
WEFT_API weft_status weft_ps_flush(struct weft_ps *ps, uint64_t timeout_ns);

/* Announce a long computation: for 10 minutes the servers do not declare this worker dead.
 * Complete all operations first, because the announcement has no effect while operations are in
 * progress. The next call that makes progress ends it. Not needed with config.thread. A worker with
 * config.via closes its connections to servers while all its requests are sent through the
 * aggregator. This call first opens them again. That usually takes some round trips; the limit is
 * one second more than the peer timeout, which for this purpose is 1 s to 60 s. */
WEFT_API void weft_ps_idle(struct weft_ps *ps);

/* Cumulative since weft_ps_connect, except missed_ids and those with `_now`. */
struct weft_ps_counters {
    size_t size; /* the caller sets it to sizeof(counters) before the call */
    uint64_t push_messages;
    uint64_t push_messages_short; /* with missing elements */
    uint64_t push_elements_sent;
    uint64_t push_elements_delivered;
    uint64_t push_chunks_refused;
    uint64_t pull_messages; /* replies with rows */
    uint64_t pull_messages_short;
    uint64_t pull_elements_sent;
    uint64_t pull_elements_delivered;
    uint64_t missed_ids;         /* ids whose last pull missed their row; the present number */
    uint64_t missed_ids_dropped; /* ids not remembered, because missed_max was reached */
    uint64_t clocks;             /* acknowledged CLOCKs, counted for each shard */
    uint64_t requests_refused;
    uint64_t requests_failed; /* the shard was down */
    uint64_t replies_malformed;
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
    uint64_t lost_packets;
    uint64_t injected_drops;
    uint64_t server_disconnects;  /* connections that ended, after which operations waited for a new
                                   * one */
    uint64_t pushes_resent;       /* messages resent to a server that reconnected */
    uint64_t pushes_lost;         /* acknowledged pushes that the restored server did not have, or
                                   * that an aggregator which acknowledges on apply lost */
    uint64_t pushes_durable;      /* replay: contained in a checkpoint */
    uint64_t replay_bytes_now;    /* bytes of replay_bytes in use now */
    uint64_t pushes_skipped;      /* messages received partly or not at all, because the server had
                                   * already ended their clock without this worker */
    uint64_t last_values_evicted; /* rows whose cached last value was evicted (last_values_max) */
    uint64_t feedback_rows_now;   /* rows that have residuals now (feedback_rows) */
    uint64_t feedback_stored;     /* lost elements that were kept as residuals */
    uint64_t feedback_added;      /* elements sent with a residual added */
    uint64_t feedback_dropped;    /* lost elements that were not kept: no space, infinite or NaN, or
                                   * the server went down before it reported which elements it had
                                   * received */
    uint64_t deadlines_expired;   /* requests ended by a deadline, or not sent because of it */
    uint64_t residual_dropped;    /* elements whose rounding error was not kept: no space
                                   * (feedback_rows) */
    uint64_t value_bytes_saved;   /* by value_type and pull_value_type, compared with float32; of
                                   * delivered gradients and weights */
    uint64_t updates;             /* complete updates. This and all following counters are 0 if
                                   * neither a scheduler nor update_bytes_min is set */
    uint64_t updates_asked;       /* updates with a request to the scheduler */
    uint64_t updates_direct;      /* of updates_asked, sent without a grant because the scheduler
                                   * did not reply */
    uint64_t updates_dropped;     /* of updates_asked, dropped */
    uint64_t pushes_late;         /* messages that a server refused because the delay of their
                                   * update exceeded --tau-max */
};

WEFT_API void weft_ps_counters_get(struct weft_ps *ps, struct weft_ps_counters *counters_p);

#ifdef __cplusplus
}
#endif

#endif
