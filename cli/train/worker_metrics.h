/* /metrics of `weft worker`: its figures, copied by the training thread between two steps.
 *
 * A worker that computes for longer than a second is shown as it was the last time;
 * weft_snapshot_age_seconds says how long ago that is.
 */
#ifndef WEFT_CLI_TRAIN_WORKER_METRICS_H
#define WEFT_CLI_TRAIN_WORKER_METRICS_H

#include "cli/metrics.h"
#include "metrics/target_file.h"
#include "metrics/text.h"
#include "node/stats_query.h"

struct weft_worker_metrics {
    struct weft_metrics metrics;
    struct weft_stats_query ask;
    weft_stats_query_fn *copy; /* fills a struct weft_worker_stats from the object of the asks */
    struct weft_worker_stats stats;
    uint64_t taken_ns; /* 0 = never */
    struct weft_target_file file;
};

/* Where the options say nothing WEFT_METRICS of the environment counts, as for programs of the C API
 * (checked before: weft_metrics_check); that it cannot be served there is said on standard
 * error and is no failure.
 * Errors:  as weft_metrics_start. */
weft_status weft_worker_metrics_start(struct weft_worker_metrics *worker,
                                      const struct weft_metrics_options *options, uint32_t rank,
                                      weft_stats_query_fn *copy, char error_p[WEFT_HTTP_ERROR_BYTES]);

/* Between two steps; object is what `copy` is given. Cost: one look at a flag. */
static inline void weft_worker_metrics_look(struct weft_worker_metrics *worker, void *object)
{
    if (worker->metrics.http != NULL) {
        weft_stats_query_poll(&worker->ask, object);
    }
}

/* A zeroed one is fine. */
void weft_worker_metrics_stop(struct weft_worker_metrics *worker);

#endif
