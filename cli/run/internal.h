/* The inside of `weft run`, shared by run.c (options, key, folder), slots.c (commands and environments)
 * and supervise.c (what happens to them). Not for others. */
#ifndef WEFT_CLI_RUN_INTERNAL_H
#define WEFT_CLI_RUN_INTERNAL_H

#include "cli/run/metrics.h"
#include "cli/run/run.h"
#include "cli/server/deaths.h"
#include "cli/train/job.h"

#include <string.h>

struct run {
    const struct weft_run_options *options;
    bool replays;                   /* durability: replay */
    struct weft_security security;  /* loaded */
    uint32_t lost;                  /* workers that died and are not started again (SHRINK) */
    struct weft_run_metrics metrics;

    struct weft_supervisor supervisor;
    char folder[64];
    char key[WEFT_JOB_KEY_TEXT_BYTES + 2]; /* text and newline; "" in mode none */
    uint16_t coordinator_port;
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    uint64_t replace_ns[WEFT_JOB_SHARDS_MAX]; /* of a server whose lease lapsed: due; 0 = not */
    uint16_t replica_ports[WEFT_JOB_SHARDS_MAX];
    char replica_metrics[WEFT_JOB_SHARDS_MAX][WEFT_METRICS_URL_BYTES]; /* "" = none */
    bool promoting[WEFT_JOB_SHARDS_MAX]; /* of servers: the replica was told so */
    bool was_ready[WEFT_JOB_SHARDS_MAX]; /* servers, once at least */
    int interrupted;
    struct weft_error error; /* why the run is over; "" = it is not */
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

/* Behind the workers; only with replicas. */
static inline struct weft_slot *run_replica(struct run *run, uint32_t s)
{
    return &run->supervisor.slots[1 + run->options->servers + run->options->workers + s];
}

/* Behind the workers and the replicas. */
static inline struct weft_slot *run_aggregator(struct run *run, uint32_t a)
{
    const struct weft_run_options *options = run->options;
    return &run->supervisor.slots[1 + options->servers * (1 + options->replicas) + options->workers + a];
}

/* Which server's replica a slot is for; UINT32_MAX = none. */
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
void weft_run_make_server(struct run *run, uint32_t s); /* the coordinator is ready */
void weft_run_make_worker(struct run *run, uint32_t w); /* the servers are */

void weft_run_make_replica(struct run *run, uint32_t s); /* its server is ready */

void weft_run_make_aggregator(struct run *run, uint32_t a); /* the servers are ready */

/* What a worker is told of where the shards are. */
void weft_run_tell_servers(struct run *run, struct weft_slot *worker);

/* Errors:  WEFT_IO  run->error says why. */
weft_status weft_run_start(struct run *run, struct weft_slot *slot);

/* ---- replicas.c ------------------------------------------------------------------------------ */

/* Start the replica of a server that is ready, in its slot, anew. Errors: run->error. */
void weft_run_start_replica(struct run *run, uint32_t s);
/* The process of a server has died. True: its replica is to take its place. */
bool weft_run_promote(struct run *run, uint32_t s, const char *how);
/* A message, or the end, of a slot. False: it is not a replica's, or not about that. */
bool weft_run_replica_message(struct run *run, struct weft_slot *slot, const cJSON *message);
bool weft_run_replica_exit(struct run *run, struct weft_slot *slot, const char *how);

/* ---- aggregators.c --------------------------------------------------------------------------- */

/* False: run->error says why. */
bool weft_run_start_aggregators(struct run *run);
bool weft_run_is_aggregator(struct run *run, const struct weft_slot *slot);
void weft_run_aggregator_exit(struct run *run, struct weft_slot *slot, const char *how);

/* ---- supervise.c ----------------------------------------------------------------------------- */

/* From the first process to the end of the last one. The exit status. */
int weft_run_all(struct run *run);

#endif
