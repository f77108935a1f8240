/* Training until a target quality is reached: the options, the tests at fixed steps, and the
 * training time until the test that met the target.
 *
 * Every --check-steps steps, and at the end of each epoch, all workers stop: their pushes and
 * clocks are closed. Worker 0 then pulls the complete weights and evaluates them on all test rows,
 * and the parent sends go or stop. The tested model is therefore the one after exactly that many
 * steps of every worker, in every mode and over every transport, and a job without losses ends at
 * the same step on every transport. The parent's clock runs from its go until the last worker has
 * stopped: the sum is the training time, without startup and tests.
 *
 * If several targets are set, all of them must be met. */
#ifndef WEFT_CLI_TRAIN_UNTIL_H
#define WEFT_CLI_TRAIN_UNTIL_H

#include "cli/options.h"
#include "job/args.h"

#include "base/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { WEFT_UNTIL_STEPS = 10 };

struct weft_until {
    float loss;       /* at most; 0 = no target */
    float auc;        /* at least; 0 = no target */
    float perplexity; /* at most; 0 = no target. For lda, which has no other */
    uint32_t check_steps;
    uint32_t timeout_s; /* seconds of training; 0 = never */
};

#define WEFT_UNTIL_DEFAULTS {.check_steps = WEFT_UNTIL_STEPS}

/* Rows of an option table. */
#define WEFT_UNTIL_OPTIONS(until)                                                                  \
    {"until-loss", "X", "stop when the log-loss on the test examples is at most X; the workers\n"  \
     "pause for each evaluation. Training ends after --epochs in any case", WEFT_OPTION_F32,             \
     .value = &(until)->loss, .fallback = ""},                                                     \
    {"until-auc", "X", "stop when the AUC on the test examples is at least X", WEFT_OPTION_F32,    \
     .value = &(until)->auc, .fallback = ""},                                                      \
    {"until-perplexity", "X",                                                                      \
     "lda: stop when the perplexity of the test documents is at most X", WEFT_OPTION_F32,          \
     .value = &(until)->perplexity, .fallback = ""},                                               \
    {"check-steps", "N", "steps between evaluations for --until-...; the model is also evaluated at\n" \
     "the end of each epoch", WEFT_OPTION_U32, .value = &(until)->check_steps, .min = 1,           \
     .max = 1000000},                                                                              \
    {"timeout-s", "S", "stop after S seconds of training without the target; 0 = never",           \
     WEFT_OPTION_U32, .value = &(until)->timeout_s, .max = 86400}

/* Is a target set? */
bool weft_until_is_set(const struct weft_until *until);

/* Checks between options. Returns WEFT_OPTIONS_RUN, or the status of a usage error that was
 * printed. */
int weft_until_verify(const struct weft_command *command, const struct weft_until *until);

/* Add the options to the arguments of a worker. */
void weft_until_add(const struct weft_until *until, struct weft_args *args);

/* True if a worker stops after this step of an epoch of `steps`, numbered from 0. */
bool weft_until_is_check(const struct weft_until *until, uint32_t epoch, uint32_t step,
                         uint32_t steps);

/* ---- the parent's side ----------------------------------------------------------------------- */

struct weft_until_check {
    uint32_t step;        /* steps of each worker so far */
    uint64_t training_ns; /* so far, without startup and tests */
    double test_logloss;
    double test_auc;
    double test_perplexity; /* lda, which has no other */
};

struct weft_until_log {
    const struct weft_until *until;  /* borrowed */
    struct weft_until_check *checks; /* (capacity,) */
    uint32_t count;
    uint32_t capacity;
    uint32_t stopped; /* workers that have stopped at the current check */
    uint32_t tested;  /* checks tested: count or count - 1 */
    uint32_t epoch;   /* of the last stop, from 1 */
    uint32_t steps_per_epoch;
    bool is_last;        /* no step follows */
    uint64_t went_ns;    /* time of the last go */
    uint64_t stopped_ns; /* time at which the last worker stopped */
    uint64_t training_ns;
};

/* A log that is zero except for `until` is initialized. */
void weft_until_log_fini(struct weft_until_log *log);

/* The parent has sent go. */
void weft_until_log_go(struct weft_until_log *log, uint64_t now_ns);

/* Process "stopped" or "check".
 * Errors: WEFT_DATA a field is missing. WEFT_NOMEM. */
weft_status weft_until_log_add(struct weft_until_log *log, const cJSON *message, uint64_t at_ns);

/* After a check: are its targets met, and is the job over, with or without meeting them? */
bool weft_until_is_met(const struct weft_until_log *log);
bool weft_until_is_over(const struct weft_until_log *log);

/* Print a line about the last check. */
void weft_until_log_show(const struct weft_until_log *log, FILE *out);

/* For the report: targets, whether and when they were met, and every check. Owns: gives. */
cJSON *weft_until_log_report(const struct weft_until_log *log);

#endif
