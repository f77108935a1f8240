/* /metrics of `weft scheduler`: its requests and decisions, copied by its thread. */
#ifndef WEFT_METRICS_SCHEDULER_H
#define WEFT_METRICS_SCHEDULER_H

#include "metrics/serve.h"
#include "node/scheduler.h"

struct weft_scheduler_stats {
    struct weft_driver_counters transport;
    struct weft_sched_service_counters service;
    struct weft_planner_counters planner; /* of all jobs */
};

struct weft_scheduler_metrics {
    struct weft_metrics metrics;
    struct weft_scheduler *scheduler;
    struct weft_scheduler_stats stats; /* the last copy */
};

/* Request its counters; the last copy if the scheduler does not respond within a second. */
void weft_scheduler_stats_ask(struct weft_scheduler *scheduler, struct weft_scheduler_stats *stats);

/* Owns:    scheduler, started, is borrowed until stop.   Errors:  as weft_metrics_start. */
weft_status weft_scheduler_metrics_start(struct weft_scheduler_metrics *metrics,
                                         const struct weft_metrics_options *options,
                                         struct weft_scheduler *scheduler,
                                         struct weft_error *error);

/* Call before the scheduler stops. A zeroed one is allowed. */
void weft_scheduler_metrics_stop(struct weft_scheduler_metrics *metrics);

#endif
