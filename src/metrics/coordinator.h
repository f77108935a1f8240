/* /metrics of `weft coordinator`, and of a server that is the coordinator, too: who is in the job, copied
 * by the coordinator's thread. */
#ifndef WEFT_METRICS_COORDINATOR_H
#define WEFT_METRICS_COORDINATOR_H

#include "metrics/serve.h"
#include "node/coordinator.h"

struct weft_coordinator_stats {
    struct weft_driver_counters transport;
    struct weft_roster_counters roster;
    uint64_t members;
    uint64_t workers; /* of the job; 0 = not known yet */
};

struct weft_coordinator_metrics {
    struct weft_metrics metrics;
    struct weft_coordinator *coordinator;
    struct weft_coordinator_stats stats; /* as last copied */
};

/* Ask the coordinator, which runs in this process, and write who is in the job; as last copied where it
 * does not come to it. */
void weft_coordinator_metrics_members(struct weft_coordinator *coordinator,
                                    struct weft_coordinator_stats *stats,
                                    struct weft_exposition *text);

/* Owns:    coordinator, started, is borrowed until stop.   Errors:  as weft_metrics_start. */
weft_status weft_coordinator_metrics_start(struct weft_coordinator_metrics *metrics,
                                           const struct weft_metrics_options *options,
                                           struct weft_coordinator *coordinator,
                                           struct weft_error *error);

/* Before the coordinator stops. A zeroed one is fine. */
void weft_coordinator_metrics_stop(struct weft_coordinator_metrics *metrics);

#endif
