/* /metrics of `weft coordinator`, and of a server that is also the coordinator: the members of
 * the job, copied by the coordinator's thread. */
#ifndef WEFT_METRICS_COORDINATOR_H
#define WEFT_METRICS_COORDINATOR_H

#include "metrics/serve.h"
#include "node/coordinator.h"

struct weft_coordinator_stats {
    struct weft_driver_counters transport;
    struct weft_roster_counters roster;
    uint64_t members;
    uint64_t workers; /* in the job; 0 = not known yet */
};

struct weft_coordinator_metrics {
    struct weft_metrics metrics;
    struct weft_coordinator *coordinator;
    struct weft_coordinator_stats stats; /* the last copy */
};

/* Request a copy from the coordinator, which runs in this process, and write the members of the
 * job. If the coordinator does not respond in time, the last copy is written. */
void weft_coordinator_metrics_members(struct weft_coordinator *coordinator,
                                      struct weft_coordinator_stats *stats,
                                      struct weft_exposition *text);

/* Owns:    coordinator, started, is borrowed until stop.   Errors:  as weft_metrics_start. */
weft_status weft_coordinator_metrics_start(struct weft_coordinator_metrics *metrics,
                                           const struct weft_metrics_options *options,
                                           struct weft_coordinator *coordinator,
                                           struct weft_error *error);

/* Call before the coordinator stops. A zeroed one is allowed. */
void weft_coordinator_metrics_stop(struct weft_coordinator_metrics *metrics);

#endif
