/* A job on this machine as run by `weft run`: coordinator, servers and workers, with restarts. Used
 * by `weft run` and `weft train --restart`. */
#ifndef WEFT_CLI_RUN_RUN_H
#define WEFT_CLI_RUN_RUN_H

#include "cli/metrics.h"
#include "cli/options.h"
#include "job/args.h"
#include "job/supervisor.h"
#include "node/security.h"
#include "node/transport_options.h"
#include "ps/shard.h"

/* Grace period of a server at shutdown for its last checkpoint, whose duration depends on the
 * disk. */
#define WEFT_RUN_CHECKPOINT_GRACE_NS (120 * WEFT_NS_PER_S)

/* A signal so soon after another one is the same request: timeout(1) sends each of its signals
 * twice. */
#define WEFT_RUN_SAME_SIGNAL_NS WEFT_NS_PER_S

/* Treatment of pushes that are not in a killed server's last checkpoint. */
enum weft_run_durability {
    WEFT_RUN_DURABILITY_NONE,   /* lost, and counted */
    WEFT_RUN_DURABILITY_REPLAY, /* restored from the server's journal; workers keep them, too */
    WEFT_RUN_DURABILITY_UNSAID, /* not given: replay if servers write checkpoints, else none */
};

/* Names for WEFT_OPTION_CHOICE. */
extern const char *const weft_run_durabilities[];

/* Reaction to the death of a server's process. */
enum weft_run_server_death {
    WEFT_RUN_RESTART, /* restart it, at most --restart times */
    WEFT_RUN_PROMOTE, /* promote its replica */
};

/* Names for WEFT_OPTION_CHOICE. */
extern const char *const weft_run_server_deaths[];

/* For `weft train`: workers are `weft worker`, send their events on a channel, and wait for "go"
 * and "test" from it. */
struct weft_run_watch {
    void *arg;
    /* A message of a worker, or the last one of a server, an aggregator or the scheduler. */
    void (*message)(void *arg, struct weft_supervisor *supervisor, struct weft_slot *slot,
                    const cJSON *message);
    uint32_t promotions;     /* counted by weft_run */
    uint16_t scheduler_port; /* of its own scheduler; 0 = none */
};

struct weft_run_options {
    uint32_t workers;
    uint32_t servers;
    uint32_t shards_per_server;
    uint32_t restarts; /* of each process; 0 = the run ends when a process dies */
    uint32_t replicas; /* of each server; 0 or 1 */
    double div_max;
    uint32_t aggregators;  /* processes of `weft aggregate` */
    const char *scheduler; /* "on": a process of `weft scheduler`; HOST:PORT; NULL = none */
    enum weft_run_server_death on_server_death;
    uint32_t lease_ms;
    const char *job; /* NULL = no name */
    enum weft_worker_death on_death;
    enum weft_run_durability durability;
    uint32_t no_key_caching; /* 1: WEFT_KEY_CACHING is 0 */
    uint64_t replay_bytes;   /* of each worker; UINT64_MAX = from WEFT_REPLAY_BYTES */
    struct weft_transport_options transport;
    struct weft_security security; /* not loaded */
    struct weft_metrics_options metrics;
    struct weft_args server_args; /* for every `weft server`, in addition to the standard options */
    struct weft_args aggregator_args; /* for every `weft aggregate`, likewise */
    struct weft_args scheduler_args;  /* for its own `weft scheduler`, likewise */
    struct weft_args worker_args;     /* the command of every worker */
    struct weft_run_watch *watch;     /* NULL = none */
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

/* Do the servers' arguments contain --NAME or --NAME=VALUE? */
bool weft_run_servers_have(const struct weft_run_options *options, const char *name);

/* Check the replica options of WEFT_REPLICA_ROWS; prints a usage error. */
int weft_run_check_replicas(const struct weft_command *command,
                            const struct weft_run_options *options, bool has_checkpoints);

/* Check that the options of aggregators are consistent; prints a usage error. */
int weft_run_check_aggregators(const struct weft_command *command,
                               const struct weft_run_options *options);

/* Without --scheduler use that of WEFT_SCHEDULER, if there is one; with --scheduler off use none.
 * Prints a usage error. */
int weft_run_settle_scheduler(const struct weft_command *command, struct weft_run_options *options);

/* The same of --scheduler, HOST:PORT included. */
int weft_run_check_scheduler(const struct weft_command *command,
                             const struct weft_run_options *options);

/* Rows of an option table; run is the struct weft_run_options. */
#define WEFT_REPLICA_ROWS(run)                                                                     \
    {"replicas", "N", "number of replicas of each server, 0 or 1; if a server dies, its\n"         \
                      "replica takes over at once", WEFT_OPTION_U32, .value = &(run)->replicas,    \
                      .max = 1},                                                                   \
    {"div-max", "D", "with --replicas: maximum divergence between the model and its\n"             \
                     "replicas, as a Euclidean norm over all weights; it also bounds the norm\n"   \
                     "of the acknowledged updates that a failure can lose", WEFT_OPTION_F64,       \
     .value = &(run)->div_max},                                                                    \
    {"on-server-death", "WHAT",                                                                    \
     "restart = restart it, as --restart allows; promote = promote its replica",                   \
     WEFT_OPTION_CHOICE, .value = &(run)->on_server_death, .choices = weft_run_server_deaths}

/* Run the job from the first process to the exit of the last. Returns the exit status; errors are
 * printed. */
int weft_run(const struct weft_run_options *options);

#endif
