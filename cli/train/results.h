/* Results of a job: merges the children's messages, prints them, and writes the JSON report.
 *
 * Every value is a sum over processes, an exact merge of histograms, or a time measured by the
 * parent; nothing is estimated. docs/REPORT.md defines each key. */
#ifndef WEFT_CLI_TRAIN_RESULTS_H
#define WEFT_CLI_TRAIN_RESULTS_H

#include "cli/train/job.h"
#include "job/supervisor.h"
#include "metrics/report.h"

#include <stdio.h>

struct weft_results_epoch {
    uint32_t workers_ended;
    double train_loss_sum; /* of the workers' means; log-loss, or squared error for ratings */
    uint64_t ended_ns;     /* arrival of the last worker's message */
    bool tested;
    double test_logloss;
    double test_auc;
    double test_rmse;       /* models of ratings, which have no test_logloss and test_auc */
    double test_perplexity; /* lda; the same */
};

struct weft_results_worker {
    double elements;           /* cumulative over pushes and pull replies: sent ... */
    double elements_delivered; /* ... and delivered; whole numbers below 2^53 */
};

/* Of a job with replicas. */
struct weft_results_replication {
    double div_max;
    uint32_t promotions;
    double pushes_lost;            /* acknowledged, and lost with servers that died */
    double divergence_max_squares; /* over the shards at the end: of each one's maximum */
    bool is_given;                 /* a server had replicas */
};

struct weft_results {
    const struct weft_job *job; /* borrowed until fini */
    uint32_t servers;
    uint32_t shards_per_server;
    char dataset[128];
    uint32_t rows_train;
    uint32_t rows_test;
    uint32_t features;
    float learning_rate;         /* as reported by workers: given, the default, or found on the
                                  * data */
    uint32_t learning_rate_rows; /* size of the sample for the search; 0 = no search */
    uint32_t epoch_count;        /* --epochs, or fewer if a target was met */
    struct weft_hist step_ns;    /* of all workers: from the end of a step to the end of the next */
    struct weft_until_log until;
    uint64_t begun_ns;
    uint32_t epochs_before; /* complete epochs of the run that was resumed */
    uint32_t epochs_shown;
    struct weft_results_epoch *epochs;   /* (job->epochs,) */
    struct weft_results_worker *workers; /* (job->workers,) */
    cJSON *counters;                     /* summed over all processes, by name */
    struct weft_ps_latencies *latency;   /* (WEFT_REPORT_KINDS,) */
    struct weft_results_replication replication;
};

/* Errors:  WEFT_NOMEM. */
weft_status weft_results_init(struct weft_results *results, const struct weft_job *job);
void weft_results_fini(struct weft_results *results);

/* Process a message: ready, epoch, test, stopped, check or done; at_ns is its arrival time.
 * Errors: WEFT_DATA a field is missing. */
weft_status weft_results_add(struct weft_results *results, const struct weft_slot *slot,
                             const cJSON *message, uint64_t at_ns);

/* Print a line for each epoch that is complete and not yet shown. */
void weft_results_show_epochs(struct weft_results *results, FILE *out);

/* Print the final tables. */
void weft_results_show(const struct weft_results *results, FILE *out);

/* The report; NULL when out of memory.   Owns: gives the object. */
cJSON *weft_results_report(const struct weft_results *results);

/* Add "learning_rate" and "learning_rate_rows" to a report or a worker's event. */
void weft_results_add_rate(cJSON *object, float rate, uint32_t sample_rows);

/* Write text and a newline to path atomically: to a temporary file in the same directory, then
 * rename.
 * Errors: WEFT_IO see errno; path is unchanged. */
weft_status weft_results_write(const char *path, const char *text);

#endif
