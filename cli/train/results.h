/* What a job measured: the children's messages merged, shown, and written as the JSON report.
 *
 * Every figure is a sum over processes, an exact merge of histograms, or a time taken by the
 * parent; nothing is estimated. docs/REPORT.md says what each key means.
 */
#ifndef WEFT_CLI_TRAIN_RESULTS_H
#define WEFT_CLI_TRAIN_RESULTS_H

#include "cli/train/job.h"
#include "job/supervisor.h"
#include "metrics/report.h"

#include <stdio.h>

struct weft_results_epoch {
    uint32_t workers_ended;
    double train_loss_sum; /* of the workers' means; log-loss, for ratings squared error */
    uint64_t ended_ns;        /* when the last worker's news came */
    bool tested;
    double test_logloss;
    double test_auc;
    double test_rmse; /* models of ratings; these have no test_logloss and test_auc */
    double test_perplexity; /* lda; the same */
};

struct weft_results_worker {
    double elements; /* cumulative, pushes and pull replies: promised ... */
    double elements_delivered; /* ... and delivered; whole numbers below 2^53 */
};

struct weft_results {
    const struct weft_job *job; /* borrowed until fini */
    uint32_t servers;
    uint32_t shards_per_server;
    char dataset[128];
    uint32_t rows_train;
    uint32_t rows_test;
    uint32_t features;
    float learning_rate;         /* as the workers say: given, the default, or found in the data */
    uint32_t learning_rate_rows; /* of the sample on which it was found; 0 = it was not */
    uint32_t epoch_count; /* as asked for, or fewer when a target was met */
    struct weft_hist step_ns; /* of all workers: from the end of a step to that of the next */
    struct weft_until_log until;
    uint64_t begun_ns;
    uint32_t epochs_before; /* of the run that was resumed, whole ones */
    uint32_t epochs_shown;
    struct weft_results_epoch *epochs;   /* (job->epochs,) */
    struct weft_results_worker *workers; /* (job->workers,) */
    cJSON *counters;                     /* summed over all processes, by name */
    struct weft_ps_latencies *latency;   /* (WEFT_REPORT_KINDS,) */
};

/* Errors:  WEFT_NOMEM. */
weft_status weft_results_init(struct weft_results *results, const struct weft_job *job);
void weft_results_fini(struct weft_results *results);

/* Take in a message: ready, epoch, test, stopped, check or done; at_ns is when it came.
 * Errors:  WEFT_DATA  it lacks something. */
weft_status weft_results_add(struct weft_results *results, const struct weft_slot *slot,
                             const cJSON *message, uint64_t at_ns);

/* Print a line for each epoch that is complete and not yet shown. */
void weft_results_show_epochs(struct weft_results *results, FILE *out);

/* The two tables at the end. */
void weft_results_show(const struct weft_results *results, FILE *out);

/* The report; NULL when out of memory.   Owns: gives the object. */
cJSON *weft_results_report(const struct weft_results *results);

/* "learning_rate" and "learning_rate_rows" into a report, or into what a worker says. */
void weft_results_add_rate(cJSON *object, float rate, uint32_t sample_rows);

/* Write text and a newline to path, whole or not at all: a neighbour file, then rename.
 * Errors:  WEFT_IO  errno says why; path is as it was. */
weft_status weft_results_write(const char *path, const char *text);

#endif
