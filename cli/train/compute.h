/* Compute times of a job's steps (`--compute`): each worker computes at least for as long as a
 * distribution of `weft sim fabric` says, so that a job on one machine has stragglers.
 *
 * From the arrival of a step's weights to its push a worker takes at least the time drawn for
 * (seed, rank, step), and waits for the rest of it. Meanwhile it sends and receives, as in every
 * wait of a worker. A worker that really needs longer is not affected. */
#ifndef WEFT_CLI_TRAIN_COMPUTE_H
#define WEFT_CLI_TRAIN_COMPUTE_H

#include "cli/fabric_settings.h"
#include "cli/options.h"
#include "job/args.h"

#include <cjson/cJSON.h>

enum { WEFT_COMPUTE_SCALE_MAX = 100 };

struct weft_compute {
    const char *given;                  /* --compute; NULL = no minimum time */
    float scale;                        /* times are multiplied by it; 0 = not given: 1 */
    struct weft_fabric_compute setting; /* valid after weft_compute_settle */
};

/* Rows of an option table. */
#define WEFT_COMPUTE_OPTIONS(compute)                                                              \
    {"compute", "NAME|FILE", "minimum compute time of a step, drawn from a distribution of\n"      \
     "`weft sim fabric`: fixed, uniform, bimodal, slow-20, brief, CS1, CS2, CS3,\n"                \
     "or a file (docs/SIMULATOR.md, \"Settings\"). A worker that computes faster\n"                \
     "waits. The time depends only on --seed, rank and step", WEFT_OPTION_STRING,                  \
     .value = &(compute)->given, .fallback = "none"},                                              \
    {"compute-scale", "X", "multiply the times of --compute by X: with 0.01, 2 s are 20 ms",       \
     WEFT_OPTION_F32, .value = &(compute)->scale, .fallback = "1"}

/* Load the setting. Returns WEFT_OPTIONS_RUN, or the status of a usage error that was printed. */
int weft_compute_settle(const struct weft_command *command, struct weft_compute *compute);

/* Options for a worker. */
void weft_compute_add(const struct weft_compute *compute, struct weft_args *args);

/* Time of a step, in ns; 0 without --compute. */
uint64_t weft_compute_step_ns(const struct weft_compute *compute, uint64_t seed, uint32_t rank,
                              uint32_t workers, uint32_t step);

/* For the report: the setting, and the time that all workers together have waited; null without
 * --compute. Owns: gives. */
cJSON *weft_compute_report(const struct weft_compute *compute, double waited_s);

#endif
