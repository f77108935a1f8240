/* Internals of `weft train`, shared by train.c (options and the phases of a run), start.c (starting
 * its processes), events.c (their events and exits) and end.c (stopping them). */
#ifndef WEFT_CLI_TRAIN_INTERNAL_H
#define WEFT_CLI_TRAIN_INTERNAL_H

#include "cli/run/run.h"
#include "cli/train/hosts.h"
#include "cli/train/metrics.h"
#include "cli/train/results.h"
#include "job/supervisor.h"
#include "node/checkpoint.h"

#include <string.h>

enum { TRAIN_AGGREGATORS_MAX = 8 };

struct train {
    struct weft_job job;
    uint32_t servers;
    uint32_t shards_per_server;
    uint32_t port;
    const char *report;
    bool json;
    bool quiet;
    struct weft_checkpoint_options checkpoints;
    struct weft_metrics_options metrics_options;
    bool has_own_scheduler; /* --scheduler on */
    uint32_t read_credits;  /* of it; 0 = off */
    uint32_t schedulers_ready;
    cJSON *scheduler_report; /* final report of the scheduler of this run; NULL = none */
    uint32_t restarts; /* 0 = the run ends when a process dies */
    uint32_t replicas; /* as in weft run, like the next two */
    double div_max;
    enum weft_run_server_death on_server_death;
    enum weft_run_durability durability;
    bool has_reconnect; /* --reconnect-s or --replay-bytes was given */
    bool has_replay;

    struct weft_train_metrics metrics;
    FILE *progress;
    int progress_fd;                /* STDOUT_FILENO or STDERR_FILENO */
    struct weft_supervisor *output; /* of the running job, to which progress goes; NULL = none */
    char data_path[WEFT_ML_PATH_BYTES];
    struct weft_supervisor supervisor;
    struct weft_results results;
    struct weft_train_hosts hosts;
    char addresses[WEFT_JOB_SHARDS_MAX * 24]; /* of all shards: "127.0.0.1:65535,..." */
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    uint32_t servers_ready;
    uint32_t workers_ready;
    uint32_t last_epoch_workers; /* workers that finished the last epoch */
    uint32_t workers_done;
    uint32_t servers_done;
    uint32_t aggregators_wanted; /* --aggregators */
    uint32_t flush_age_us;       /* 0 = the aggregators' default */
    uint32_t aggregators;        /* with --via on; else 0 */
    uint32_t aggregators_ready;
    uint32_t aggregators_ended;
    uint16_t aggregator_ports[TRAIN_AGGREGATORS_MAX][WEFT_JOB_SHARDS_MAX];
    /* of each aggregator, as `addresses` */
    char via[TRAIN_AGGREGATORS_MAX][WEFT_JOB_SHARDS_MAX * 24];
    int interrupted;           /* signal number */
    uint32_t signals;          /* requests by signals so far: two at once are one request */
    uint64_t signal_ns;        /* time of the last one */
    struct weft_error error;   /* the error reported by the first failed process */
    struct weft_error unsaved; /* why there is no --save file; "" = there is, or none is wanted */
    struct weft_slot *killed;  /* first process killed by a signal */
    struct weft_slot *ended;   /* first process that exited unexpectedly otherwise */
};

static inline bool train_is_server(const struct weft_slot *slot)
{
    return strcmp(slot->role, "server") == 0;
}

static inline bool train_is_aggregator(const struct weft_slot *slot)
{
    return strcmp(slot->role, "aggregator") == 0;
}

static inline bool train_is_scheduler(const struct weft_slot *slot)
{
    return strcmp(slot->role, "scheduler") == 0;
}

static inline uint32_t train_aggregator_process(const struct train *train, uint32_t number)
{
    return train->servers + train->job.workers + number;
}

/* Process number of the scheduler of --scheduler on. It is last, so that the host numbers of the
 * other processes do not depend on it. */
static inline uint32_t train_scheduler_process(const struct train *train)
{
    return train->servers + train->job.workers + train->aggregators;
}

static inline struct weft_slot *train_scheduler(struct train *train)
{
    return &train->supervisor.slots[train_scheduler_process(train)];
}

/* ---- start.c: return WEFT_IO, with the reason in train->error -------------------------------- */

weft_status weft_train_start_scheduler(struct train *train);
weft_status weft_train_start_server(struct train *train, uint32_t rank);
weft_status weft_train_start_aggregator(struct train *train, uint32_t number);
weft_status weft_train_start_worker(struct train *train, uint32_t rank);

/* ---- events.c -------------------------------------------------------------------------------- */

/* Process the next event; false if none arrived within timeout_ns. */
bool weft_train_next_event(struct train *train, uint64_t timeout_ns);

/* A signal has arrived: sets train->interrupted. */
void weft_train_take_signal(struct train *train, int signal);

/* Process events until *count reaches `wanted`. Errors: WEFT_PEER the run is over; WEFT_TIMEOUT. */
weft_status weft_train_await(struct train *train, const uint32_t *count, uint32_t wanted,
                             uint64_t patience_ns, const char *what);

/* Send a message to the processes of a role with ranks up to rank_max. */
void weft_train_send(struct train *train, const char *role, uint32_t rank_max, const char *word);

/* ---- progress.c ------------------------------------------------------------------------------ */

/* Open train->progress. False: errno has the reason. */
bool weft_train_progress_open(struct train *train);

/* After the end of all processes: wait until all progress is written. False: a signal has ended the
 * wait. */
bool weft_train_progress_finish(struct train *train);

/* ---- end.c ----------------------------------------------------------------------------------- */

/* Stop all processes that still run. Servers with checkpoints have their grace period for the last
 * one, which a second signal ends. */
void weft_train_stop(struct train *train);

/* ---- follow.c -------------------------------------------------------------------------------- */

/* Collect the results of a job of `weft run`, which reads *watch_p until its end. */
void weft_train_follow(struct train *train, struct weft_run_watch *watch_p);
/* The job has ended well. Returns WEFT_EXIT_OK if the results are complete; else prints what is
 * missing. */
int weft_train_follow_end(struct train *train, const struct weft_run_watch *watch);

/* ---- restart.c ------------------------------------------------------------------------------- */

/* Returns WEFT_OPTIONS_RUN, or the status of a usage error that was printed. */
int weft_train_restart_check(const struct weft_command *command, const struct train *train);

/* Run the job to its end, restarting processes that die. Returns the exit status. */
int weft_train_restart(struct train *train);

#endif
