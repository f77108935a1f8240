/* One logical worker of a load: a node/worker.h of its own, and the requests that it has under way.
 * One thread makes the progress of many of them (run.h).
 *
 * Closed loop: a place for a request that falls free is taken at once. Open loop: requests are due
 * at times drawn beforehand (Poisson), whatever became of the earlier ones; one that finds no free
 * place waits, and its latency counts from when it was due. So a server that stalls is charged with
 * every request that it kept waiting, not with the few that were sent (coordinated omission).
 */
#ifndef WEFT_CLI_LOAD_WORKER_H
#define WEFT_CLI_LOAD_WORKER_H

#include "cli/load/servers.h"
#include "cli/metrics.h"
#include "sim/zipf.h"
#include "node/worker.h"

/* Aggregators: worker r goes by number r modulo count. */
enum { WEFT_LOAD_VIAS_MAX = 64 };

struct weft_load_vias {
    uint32_t count; /* 0: straight to the servers */
    const char *texts[WEFT_LOAD_VIAS_MAX];
    struct weft_launch_address at[WEFT_LOAD_VIAS_MAX][WEFT_LOAD_SHARDS_MAX];
};

enum weft_load_kind { WEFT_LOAD_PUSH, WEFT_LOAD_PULL, WEFT_LOAD_KINDS };

/* Of one thread's workers, in the time that is measured. */
struct weft_load_sums {
    struct weft_hist latency[WEFT_LOAD_KINDS]; /* ns, of requests, from when they were due */
    uint64_t rows[WEFT_LOAD_KINDS];
    uint64_t unanswered; /* due, and without an answer at the end; also in `latency`, with the time
                          * that they had waited until then */
    uint64_t refused;    /* answered with a status other than OK */
};

/* Of one thread's workers, of the whole run. */
struct weft_load_seen {
    struct weft_hist latency[WEFT_LOAD_KINDS]; /* as above */
    uint64_t refused;
};

/* A load: what is done, to which servers, and how. */
struct weft_load {
    struct weft_load_workload workload;
    struct weft_load_servers servers;
    struct weft_load_vias vias;
    struct weft_transport_options transport;
    struct weft_security security; /* loaded before servers and workers start */
    struct weft_recording recording; /* open before them, or off */
    struct weft_metrics_options metrics;
    struct weft_zipf zipf;
    uint32_t threads;
    uint32_t busy_poll_us;    /* of local shards */
    uint32_t start_timeout_s; /* for servers that do not answer; local ones are there */
    const char *workload_file; /* these four are options: NULL = not given */
    const char *server_list;
    bool print_workload;
    bool json;
};

/* What the workers of one thread share. */
struct weft_load_context {
    const struct weft_load *load;
    struct weft_record_ring *records; /* of this thread; NULL = none */
    const float *gradients;           /* (rows, dim): what every push pushes */
    float *weights;                   /* (rows, dim): where every pull of this thread goes */
    struct weft_load_sums *sums;
    struct weft_load_seen *seen; /* NULL = nobody will ask */
    uint64_t measure_from_ns;    /* requests due from here ... */
    uint64_t measure_to_ns;      /* ... until here count; WEFT_NEVER both: not yet known */
};

enum weft_load_state {
    WEFT_LOAD_OPENING, /* its table is being declared on all shards */
    WEFT_LOAD_READY,
    WEFT_LOAD_FAILED, /* error says why */
};

struct weft_load_request {
    bool busy;
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
    uint64_t next_ns;   /* open loop: when the next request is due */
    bool is_running;    /* starts requests */
    uint64_t looked_ns; /* weft_load_worker_look */
    uint64_t waited_ns; /* for the servers */
    struct weft_error error;
};

/* Open the endpoint, begin the connections and declare the table. Owns: weft_load_worker_fini is
 * due, also after an error. Errors: state FAILED, and error in words. */
weft_status weft_load_worker_init(struct weft_load_worker *worker,
                                  const struct weft_load_context *context, uint32_t rank);
void weft_load_worker_fini(struct weft_load_worker *worker);

/* Whether there is any sense in waiting for its servers: FAILED, with what to do about it, when its
 * patience is over and none has answered, or one has a reason that the network or it told. */
void weft_load_worker_look(struct weft_load_worker *worker, uint64_t now_ns);

/* Begin with requests; the first one of an open loop is due a random time after now_ns. */
void weft_load_worker_go(struct weft_load_worker *worker, uint64_t now_ns);

/* One turn without sleeping, then prepare for a wait. False: turn it again before waiting. */
bool weft_load_worker_turn(struct weft_load_worker *worker);

/* Begin no more requests, and enter those without an answer in the sums. */
void weft_load_worker_halt(struct weft_load_worker *worker);

#endif
