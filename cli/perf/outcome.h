/* The results of a run, as text, as JSON, and round by round. */
#ifndef WEFT_CLI_PERF_OUTCOME_H
#define WEFT_CLI_PERF_OUTCOME_H

#include "cli/perf/figures.h"
#include "cli/perf/run.h"

struct weft_perf_outcome {
    const struct weft_perf_job *job;
    const struct weft_perf_result *result;
    uint32_t senders;
    uint32_t receivers;
    double ideal_ms;     /* 0 = not known */
    double start_lag_ms; /* from go until the last sender had begun: median over the rounds */
    struct weft_perf_summary round;
    struct weft_perf_summary flow; /* of pingpong the same */
    uint32_t undisturbed_rounds;
    struct weft_perf_summary undisturbed; /* of the rounds in which no processor was preempted */
};

/* Sorts a copy of the times. False: no memory. */
bool weft_perf_outcome_make(const struct weft_perf_job *job, const struct weft_perf_result *result,
                            uint32_t senders, uint32_t receivers,
                            struct weft_perf_outcome *outcome_p);

/* On standard output. False here and below: the reason is on standard error. */
void weft_perf_outcome_text(const struct weft_perf_outcome *outcome);
bool weft_perf_outcome_json(const struct weft_perf_outcome *outcome);

/* One line for each round: its number, its time, the fraction delivered, the times of its flows,
 * when it began, and (with --realtime) whether it ran without preemption; a header line with #
 * names the columns. */
bool weft_perf_outcome_rounds(const struct weft_perf_outcome *outcome, const char *path);

#endif
