/* Internals of `weft run`, shared by run.c (options, key, directory), slots.c (command lines and
 * environments), replicas.c, aggregators.c, scheduler.c, supervise.c (process supervision) and
 * end.c (the end of a run). */
#ifndef WEFT_CLI_RUN_INTERNAL_H
#define WEFT_CLI_RUN_INTERNAL_H

#include "cli/run/metrics.h"
#include "cli/run/run.h"
#include "cli/server/deaths.h"
#include "cli/train/job.h"

#include <string.h>

struct run {
    const struct weft_run_options *options;
    bool replays;                  /* durability: replay */
    struct weft_security security; /* loaded */
    uint32_t lost;                 /* workers that died and are not restarted (SHRINK) */
    struct weft_run_metrics metrics;

    struct weft_supervisor supervisor;
    char folder[64];
    char key[WEFT_JOB_KEY_TEXT_BYTES + 2]; /* text and newline; "" in mode none */
    uint16_t coordinator_port;
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    uint64_t replace_ns[WEFT_JOB_SHARDS_MAX]; /* time to replace a server whose lease expired; 0 =
                                               * none */
    uint16_t replica_ports[WEFT_JOB_SHARDS_MAX];
    uint16_t scheduler_port; /* of the run's own */
    uint16_t aggregator_ports[WEFT_SHARD_AGGREGATORS_MAX][WEFT_JOB_SHARDS_MAX];
    char replica_metrics[WEFT_JOB_SHARDS_MAX][WEFT_METRICS_URL_BYTES]; /* "" = none */
    bool promoting[WEFT_JOB_SHARDS_MAX]; /* by server: its replica was asked to take over */
    bool was_ready[WEFT_JOB_SHARDS_MAX]; /* by server: was ready at least once */
    int interrupted;    /* signal number; 0 = none */
    uint64_t signal_ns; /* time of the last signal that was a request of its own */
    struct weft_error error; /* why the run is over; "" = it is not */
    /* A server or the coordinator has died and is not restarted. The run is over at give_up_ns
     * unless all workers end well before; text "" = none. */
    struct weft_error gone;
    uint64_t give_up_ns;
};

static inline struct weft_slot *run_coordinator(struct run *run)
{
    return &run->supervisor.slots[0];
}

static inline struct weft_slot *run_server(struct run *run, uint32_t s)
{
    return &run->supervisor.slots[1 + s];
}

static inline struct weft_slot *run_worker(struct run *run, uint32_t w)
{
    return &run->supervisor.slots[1 + run->options->servers + w];
}

/* Replicas follow the workers; only with --replicas. */
static inline struct weft_slot *run_replica(struct run *run, uint32_t s)
{
    return &run->supervisor.slots[1 + run->options->servers + run->options->workers + s];
}

/* After the workers and the replicas. */
static inline struct weft_slot *run_aggregator(struct run *run, uint32_t a)
{
    const struct weft_run_options *options = run->options;
    return &run->supervisor
                .slots[1 + options->servers * (1 + options->replicas) + options->workers + a];
}

static inline bool run_has_own_scheduler(const struct run *run)
{
    return run->options->scheduler != NULL && strcmp(run->options->scheduler, "on") == 0;
}

/* After the aggregators; only with --scheduler on. */
static inline struct weft_slot *run_scheduler(struct run *run)
{
    return run_aggregator(run, run->options->aggregators);
}

/* The server of a replica's slot; UINT32_MAX = not a replica. */
static inline uint32_t run_replica_of(struct run *run, const struct weft_slot *slot)
{
    for (uint32_t s = 0; run->options->replicas > 0 && s < run->options->servers; s++) {
        if (slot == run_replica(run, s)) {
            return s;
        }
    }
    return UINT32_MAX;
}

/* ---- slots.c --------------------------------------------------------------------------------- */

void weft_run_make_coordinator(struct run *run);
void weft_run_make_server(struct run *run, uint32_t s); /* call when the coordinator is ready */
void weft_run_make_worker(struct run *run, uint32_t w); /* call when the servers are ready */

void weft_run_make_replica(struct run *run, uint32_t s); /* call when its server is ready */

void weft_run_make_aggregator(struct run *run, uint32_t a); /* the servers are ready */

void weft_run_make_scheduler(struct run *run); /* before the servers */

/* Set the addresses of the shards in a worker's environment. */
void weft_run_set_servers(struct run *run, struct weft_slot *worker);

/* Errors: WEFT_IO, see run->error. */
weft_status weft_run_start(struct run *run, struct weft_slot *slot);

/* ---- replicas.c ------------------------------------------------------------------------------ */

/* Start the replica of a server that is ready, in its slot. Errors: run->error. */
void weft_run_start_replica(struct run *run, uint32_t s);
/* Handle the death of a server's process. True: its replica is being promoted. */
bool weft_run_promote(struct run *run, uint32_t s, const char *how);
/* Handle a message, or the exit, of a slot's process. False: it does not concern a replica. */
bool weft_run_replica_message(struct run *run, struct weft_slot *slot, const cJSON *message);
bool weft_run_replica_exit(struct run *run, struct weft_slot *slot, const char *how);

/* ---- end.c ----------------------------------------------------------------------------------- */

/* Print "weft run: ..." as a line on standard error, in order with the output of the processes. */
[[gnu::format(printf, 2, 3)]] void weft_run_say(struct run *run, const char *format, ...);

/* A signal has arrived: sets run->interrupted. False: it is the same request as an earlier one. */
bool weft_run_take_signal(struct run *run, int signal);

/* Print an "error" or "checkpoint" of a process; false: another event. */
bool weft_run_print(struct run *run, const struct weft_slot *slot, const cJSON *message);

/* Stop the servers. Each has its grace period, which in a successful run with a watch is at least
 * half a minute, so that its last message arrives. A signal, also an earlier one, ends that extra
 * time, and another one the grace periods. Sets run->interrupted at a signal, and run->error when a
 * server failed whose last checkpoint would be a result of the run. */
void weft_run_end_servers(struct run *run, bool good);

/* Stop the processes of another role, each within its grace period. In a successful run the watch
 * receives their last messages. A signal sets run->interrupted, and another one ends the servers'
 * grace periods. A server that dies meanwhile, and
 * what servers report, counts as in weft_run_end_servers. */
void weft_run_end_role(struct run *run, const char *role, bool good);

/* ---- aggregators.c --------------------------------------------------------------------------- */

/* False: run->error has the reason. */
bool weft_run_start_aggregators(struct run *run);
bool weft_run_is_aggregator(struct run *run, const struct weft_slot *slot);
void weft_run_aggregator_exit(struct run *run, struct weft_slot *slot, const char *how);
/* With a scheduler, which plans with one list of aggregators for all workers, they keep their
 * addresses. */
void weft_run_aggregator_ready(struct run *run, struct weft_slot *slot, const cJSON *message);
void weft_run_set_via(struct run *run, struct weft_slot *worker);

/* ---- scheduler.c: no effect without --scheduler ---------------------------------------------- */

/* False: run->error has the reason. */
bool weft_run_start_scheduler(struct run *run);
bool weft_run_is_scheduler(struct run *run, const struct weft_slot *slot);
void weft_run_scheduler_ready(struct run *run, const cJSON *message);
void weft_run_scheduler_exit(struct run *run, const char *how);
/* "" = none. */
void weft_run_scheduler_address(const struct run *run, char *text, size_t bytes);

/* ---- supervise.c ----------------------------------------------------------------------------- */

/* Run the job from the first process to the exit of the last. Returns the exit status. */
int weft_run_all(struct run *run);

#endif
