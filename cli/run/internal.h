/* The inside of `weft run`, shared by run.c (options, key, folder), run_places.c (commands and
 * environments) and run_job.c (the supervisor). Not for others. */
#ifndef WEFT_CLI_RUN_INTERNAL_H
#define WEFT_CLI_RUN_INTERNAL_H

#include "cli/run/metrics.h"
#include "cli/server/deaths.h"
#include "cli/train/job.h"
#include "cli/train/process.h"
#include "node/security.h"

#include <string.h>

/* Words of --server-options; a server's command has some of its own. */
enum { SERVER_OPTIONS_MAX = 40 };

/* What becomes of pushes that a server's last checkpoint does not have, when it is killed. */
enum durability {
    DURABILITY_UNSAID,
    DURABILITY_NONE,   /* lost, and counted */
    DURABILITY_REPLAY, /* the server's journal has them; workers keep them, too */
};

struct run {
    uint32_t workers;
    uint32_t servers;
    uint32_t shards_per_server;
    uint32_t restarts;
    uint32_t lease_ms;
    const char *job;
    enum weft_worker_death on_death;
    enum durability durability;
    bool durability_said;       /* by an option */
    uint64_t replay_bytes;      /* of each worker; UINT64_MAX = no option has said so */
    uint32_t lost;              /* workers that died and are not started again (SHRINK) */
    const char *server_options; /* words with blanks between them; NULL = none */
    struct weft_transport_options transport;
    struct weft_security security;
    char **words; /* of the command */
    struct weft_metrics_options metrics_options;
    struct weft_run_metrics metrics;

    struct weft_squad squad;
    char folder[64];
    char key[WEFT_JOB_KEY_TEXT_BYTES + 2]; /* text and newline; "" in mode none */
    uint16_t scheduler_port;
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    /* Due; 0 = not. The last places are spare ones (cli/run/squad.h), and never due. */
    uint64_t restart_ns[1 + 2 * WEFT_JOB_SHARDS_MAX + WEFT_JOB_WORKERS_MAX];
    uint64_t replace_ns[WEFT_JOB_SHARDS_MAX]; /* of a server whose lease lapsed; 0 = not */
    struct weft_arguments scheduler_words;
    struct weft_arguments server_words[WEFT_JOB_SHARDS_MAX];
    bool was_ready[WEFT_JOB_SHARDS_MAX]; /* servers, once at least */
    int interrupted;
    char error[640]; /* why the run is over; "" = it is not */
};

static inline struct weft_place *run_scheduler(struct run *run)
{
    return &run->squad.places[0];
}

static inline struct weft_place *run_server(struct run *run, uint32_t s)
{
    return &run->squad.places[1 + s];
}

static inline struct weft_place *run_worker(struct run *run, uint32_t w)
{
    return &run->squad.places[1 + run->servers + w];
}

static inline bool run_has_checkpoints(const struct run *run)
{
    return run->server_options != NULL && strstr(run->server_options, "--checkpoint") != NULL;
}

/* ---- run_places.c ---------------------------------------------------------------------------- */

void weft_run_make_scheduler(struct run *run);
void weft_run_make_server(struct run *run, uint32_t s); /* the scheduler is ready */
void weft_run_make_worker(struct run *run, uint32_t w); /* the servers are */

/* What a worker is told of where the shards are. */
void weft_run_tell_servers(struct run *run, struct weft_place *worker);

/* Errors:  WEFT_IO  run->error says why. */
weft_status weft_run_start(struct run *run, struct weft_place *place);

void weft_run_replace_last(struct weft_arguments *arguments, const char *text);

/* ---- run_job.c ------------------------------------------------------------------------------- */

/* From the first process to the end of the last one. The exit status. */
int weft_run_all(struct run *run);

#endif
