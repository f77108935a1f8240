/* A job on this machine as `weft run` runs it: coordinator, servers and workers, and those that die
 * started again. For `weft run` itself and for `weft train --restart`. */
#ifndef WEFT_CLI_RUN_RUN_H
#define WEFT_CLI_RUN_RUN_H

#include "cli/metrics.h"
#include "cli/options.h"
#include "job/args.h"
#include "node/security.h"
#include "node/transport_options.h"
#include "ps/shard.h"

/* What becomes of pushes that a server's last checkpoint does not have, when it is killed. */
enum weft_run_durability {
    WEFT_RUN_DURABILITY_NONE,   /* lost, and counted */
    WEFT_RUN_DURABILITY_REPLAY, /* the server's journal has them; workers keep them, too */
    WEFT_RUN_DURABILITY_UNSAID, /* replay where servers write checkpoints, else none */
};

/* For WEFT_OPTION_CHOICE. */
extern const char *const weft_run_durabilities[];

/* What is done when a server's process has died. */
enum weft_run_server_death {
    WEFT_RUN_RESTART, /* it is started again, as --restart says */
    WEFT_RUN_PROMOTE, /* its replica takes its place */
};

/* For WEFT_OPTION_CHOICE. */
extern const char *const weft_run_server_deaths[];

struct weft_run_options {
    uint32_t workers;
    uint32_t servers;
    uint32_t shards_per_server;
    uint32_t restarts; /* of each process; 0 = the first death ends the run */
    uint32_t replicas; /* of each server; 0 or 1 */
    double div_max;
    uint32_t aggregators; /* processes of `weft aggregate` */
    enum weft_run_server_death on_server_death;
    uint32_t lease_ms;
    const char *job; /* NULL = without a name */
    enum weft_worker_death on_death;
    enum weft_run_durability durability;
    uint32_t no_key_caching; /* 1: WEFT_KEY_CACHING is 0 */
    uint64_t replay_bytes; /* of each worker; UINT64_MAX = as WEFT_REPLAY_BYTES says */
    struct weft_transport_options transport;
    struct weft_security security; /* not loaded */
    struct weft_metrics_options metrics;
    struct weft_args server_args; /* for every `weft server`, beside what all servers are told */
    struct weft_args aggregator_args; /* for every `weft aggregate`, likewise */
    struct weft_args worker_args; /* the command of every worker */
};

#define WEFT_RUN_DEFAULTS                                                                          \
    {.workers = 1,                                                                                 \
     .servers = 1,                                                                                 \
     .shards_per_server = 1,                                                                       \
     .lease_ms = 5000,                                                                             \
     .durability = WEFT_RUN_DURABILITY_UNSAID,                                                     \
     .replay_bytes = UINT64_MAX,                                                                   \
     .transport = WEFT_TRANSPORT_DEFAULTS,                                                         \
     .security = WEFT_SECURITY_DEFAULTS}

/* True when an argument of the servers is --NAME or --NAME=VALUE. */
bool weft_run_servers_have(const struct weft_run_options *options, const char *name);

/* How options of replicas fit together; a usage error is printed. `command` has those of WEFT_REPLICA_ROWS. */
int weft_run_check_replicas(const struct weft_command *command,
                            const struct weft_run_options *options, bool has_checkpoints);

/* How options of aggregators fit together; a usage error is printed. */
int weft_run_check_aggregators(const struct weft_command *command,
                               const struct weft_run_options *options);

/* Rows of a table of options; run is the struct weft_run_options. */
#define WEFT_REPLICA_ROWS(run)                                                                     \
    {"replicas", "N", "of each server, so that one that dies is replaced at once by its replica;\n"       \
     "0 or 1", WEFT_OPTION_U32, .value = &(run)->replicas, .max = 1},                              \
    {"div-max", "D", "with --replicas: how far the model may be from its replicas, a Euclidean\n"  \
     "norm over all weights: what is lost at most of what servers have answered", WEFT_OPTION_F64, \
     .value = &(run)->div_max},                                                                    \
    {"on-server-death", "WHAT", "restart = as --restart says; promote = its replica takes its place",    \
     WEFT_OPTION_CHOICE, .value = &(run)->on_server_death, .choices = weft_run_server_deaths}

/* From the first process to the end of the last one. The exit status; what went wrong is printed. */
int weft_run(const struct weft_run_options *options);

#endif
