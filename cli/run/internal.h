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

/* ---- slots.c --------------------------------------------------------------------------------- */

void weft_run_make_coordinator(struct run *run);
void weft_run_make_server(struct run *run, uint32_t s); /* the coordinator is ready */
void weft_run_make_worker(struct run *run, uint32_t w); /* the servers are */

/* What a worker is told of where the shards are. */
void weft_run_tell_servers(struct run *run, struct weft_slot *worker);

/* Errors:  WEFT_IO  run->error says why. */
weft_status weft_run_start(struct run *run, struct weft_slot *slot);

/* ---- supervise.c ----------------------------------------------------------------------------- */

/* From the first process to the end of the last one. The exit status. */
int weft_run_all(struct run *run);

#endif
