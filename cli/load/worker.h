/* One logical worker of a load: its own node/worker.h, and its outstanding requests. One thread
 * drives many of them (run.h).
 *
 * Closed loop: a free request slot is used at once. Open loop: requests are scheduled at times
 * drawn beforehand (Poisson), independent of earlier requests. If no slot is free, a request waits,
 * and its latency is measured from its scheduled time. A server that stalls is therefore charged
 * for every request that it delays, not only for those that were sent (coordinated omission). */
#ifndef WEFT_CLI_LOAD_WORKER_H
#define WEFT_CLI_LOAD_WORKER_H

#include "cli/load/servers.h"
#include "cli/metrics.h"
#include "sim/zipf.h"
#include "node/worker.h"

/* Aggregators: worker r uses the one with index r modulo count. */
enum { WEFT_LOAD_VIAS_MAX = 64 };

struct weft_load_vias {
    uint32_t count; /* 0: directly to the servers */
    const char *texts[WEFT_LOAD_VIAS_MAX];
    struct weft_launch_address at[WEFT_LOAD_VIAS_MAX][WEFT_LOAD_SHARDS_MAX];
};

enum weft_load_kind { WEFT_LOAD_PUSH, WEFT_LOAD_PULL, WEFT_LOAD_KINDS };

/* Results of one thread's workers in the measurement interval. */
struct weft_load_sums {
    struct weft_hist latency[WEFT_LOAD_KINDS]; /* ns, of requests, from their scheduled time */
    uint64_t rows[WEFT_LOAD_KINDS];
    uint64_t unanswered; /* scheduled, without a reply at the end; included in `latency` with
                          * their waiting time */
    uint64_t refused;    /* replied to with a status other than OK */
};

/* Results of one thread's workers over the whole run. */
struct weft_load_seen {
    struct weft_hist latency[WEFT_LOAD_KINDS]; /* as above */
    uint64_t refused;
};

/* A load: workload, servers and settings. */
struct weft_load {
    struct weft_load_workload workload;
    struct weft_load_servers servers;
    struct weft_load_vias vias;
    uint32_t hot_rows; /* > 0: only hot rows are sent through them, at most so many per shard */
    struct weft_transport_options transport;
    struct weft_security security;   /* loaded before servers and workers start */
    struct weft_recording recording; /* opened before them, or off */
    struct weft_metrics_options metrics;
    struct weft_zipf zipf;
    uint32_t threads;
    uint32_t busy_poll_us;     /* of local shards */
    uint32_t start_timeout_s;  /* for servers that do not reply */
    const char *workload_file; /* options of the command line, down to json; NULL = not given */
    const char *server_list;
    bool print_workload;
    bool json;
};

/* State shared by the workers of one thread. */
struct weft_load_context {
    const struct weft_load *load;
    struct weft_rpc_record_ring *records; /* of this thread; NULL = none */
    const float *gradients;               /* (rows, dim): the data of every push */
    float *weights;                       /* (rows, dim): the buffer of every pull of this thread */
    struct weft_load_sums *sums;
    struct weft_load_seen *seen; /* NULL = no /metrics */
    uint64_t measure_from_ns;    /* requests scheduled from here ... */
    uint64_t measure_to_ns;      /* ... until here are measured; both WEFT_NEVER: not yet known */
};

enum weft_load_state {
    WEFT_LOAD_OPENING, /* its table is being declared on all shards */
    WEFT_LOAD_READY,
    WEFT_LOAD_FAILED, /* see error */
};

struct weft_load_request {
    bool busy;
    bool unsent; /* busy, but the client could not take it yet; has no op */
    enum weft_load_kind kind;
    weft_ps_op op;
    uint64_t due_ns;
    uint64_t *ids; /* (rows,): borrowed by a pull until it is done */
};

struct weft_load_worker {
    const struct weft_load_context *context;
    uint32_t rank;
    enum weft_load_state state;
    struct weft_worker node;
    struct weft_prng prng;
    weft_ps_op opening;
    struct weft_load_request *requests; /* (in_flight,) */
    uint64_t *ids;
    uint32_t busy_count;
    uint64_t next_ns;   /* open loop: scheduled time of the next request */
    bool is_running;    /* starts requests */
    uint64_t checked_ns; /* weft_load_worker_check */
    uint64_t waited_ns; /* for the servers */
    struct weft_error error;
};

/* Open the endpoint, start connecting and declare the table. Owns: call weft_load_worker_fini also
 * after an error. Errors: state FAILED, with a text in error. */
weft_status weft_load_worker_init(struct weft_load_worker *worker,
                                  const struct weft_load_context *context, uint32_t rank);
void weft_load_worker_fini(struct weft_load_worker *worker);

/* Check a connecting worker. It becomes FAILED, with a remedy in its error, if no server has
 * replied within its time limit, or if a server or the network reported why the connection
 * fails. */
void weft_load_worker_check(struct weft_load_worker *worker, uint64_t now_ns);

/* Start sending requests; in an open loop the first one is scheduled a random time after now_ns. */
void weft_load_worker_go(struct weft_load_worker *worker, uint64_t now_ns);

/* Make progress without blocking, and prepare for a wait. False: call it again before waiting. */
bool weft_load_worker_turn(struct weft_load_worker *worker);

/* Start no more requests, and add those without a reply to the sums. */
void weft_load_worker_halt(struct weft_load_worker *worker);

#endif
