/* /metrics and /targets of `weft train`: the progress of the job, and the metrics addresses of its
 * processes. */
#ifndef WEFT_CLI_TRAIN_METRICS_H
#define WEFT_CLI_TRAIN_METRICS_H

#include "job/supervisor.h"
#include "metrics/targets.h"

struct weft_train_metrics {
    struct weft_metrics metrics;
    struct weft_targets targets; /* its lock also protects the other fields */
    uint32_t servers_ready;
    uint32_t workers_ready;
    uint64_t epochs; /* finished, summed over all workers */
};

/* Errors:  as weft_metrics_start. */
weft_status weft_train_metrics_start(struct weft_train_metrics *train,
                                     const struct weft_metrics_options *options,
                                     struct weft_error *error);
/* A zeroed object is valid. */
void weft_train_metrics_stop(struct weft_train_metrics *train);

/* The slot's process has ended. */
void weft_train_metrics_gone(struct weft_train_metrics *train, const struct weft_slot *slot);

/* Process a message of a child. */
void weft_train_metrics_note(struct weft_train_metrics *train, const struct weft_slot *slot,
                             const cJSON *message);

#endif
