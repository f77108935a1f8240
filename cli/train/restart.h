/* `weft train --restart`: a job whose dead processes are started again. There is one supervisor that
 * does so, that of `weft run`, with its coordinator and the servers' journals; the job is put into its
 * words and handed over. What goes with that: a report. Its sums are of processes that begin and end
 * together, and what a killed one had counted is gone with it.
 */
#ifndef WEFT_CLI_TRAIN_RESTART_H
#define WEFT_CLI_TRAIN_RESTART_H

#include "cli/metrics.h"
#include "cli/train/args.h"

struct weft_train_again {
    uint32_t restarts;      /* 0 = the first death ends the run */
    const char *durability; /* NULL = as `weft run` chooses */
    bool has_reconnect;     /* --reconnect-s, --replay-bytes were given */
    bool has_replay;
};

/* Rows of an option table. */
#define WEFT_TRAIN_AGAIN_OPTIONS(again)                                                            \
    {"restart", "N", "restart a process that dies, up to N times each, as `weft run` does;\n"      \
     "needs --checkpoint and writes no report. 0 = the first death ends the\n"                     \
     "run", WEFT_OPTION_U32, .value = &(again)->restarts, .max = 1000000},                         \
    {"durability", "WHAT", "with --restart: replay = a killed server's pushes since its last\n"    \
     "checkpoint are restored from its journal; none = they are lost", WEFT_OPTION_STRING,         \
     .value = &(again)->durability, .fallback = "replay"}

struct weft_train_again_job {
    const struct weft_job *job;
    const char *data_path;
    uint32_t servers;
    uint32_t shards_per_server;
    const struct weft_checkpoint_options *checkpoints;
    const struct weft_metrics_options *metrics;
};

/* Before weft_job_settle. WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_train_again_check(const struct weft_command *command, struct weft_train_again *again,
                           const struct weft_job *job,
                           const struct weft_checkpoint_options *checkpoints);

/* Run it to its end; the exit status of `weft run`. */
int weft_train_again(const struct weft_train_again *again,
                     const struct weft_train_again_job *what);

#endif
