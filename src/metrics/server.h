/* /metrics and /hot of `weft server`: the statistics of each shard, copied on request by the
 * shard's own thread.
 *
 * If a shard does not respond within a second (it is writing a checkpoint, or the machine is
 * loaded), its last copy is shown; weft_snapshot_age_seconds is the age of that copy.
 */
#ifndef WEFT_METRICS_SERVER_H
#define WEFT_METRICS_SERVER_H

#include "metrics/coordinator.h"
#include "metrics/text.h"
#include "metrics/text_shards.h"
#include "node/shard_thread.h"

struct weft_server_metrics {
    struct weft_metrics metrics;
    struct weft_shard_thread *threads; /* (count,) borrowed */
    uint32_t count;
    struct weft_shard_stats *stats;       /* (count,) the last copies */
    uint64_t *taken_ns;                   /* (count,) */
    struct weft_coordinator *coordinator; /* in the same process; NULL = none */
    struct weft_coordinator_stats members;
};

/* Owns:    threads and coordinator, started, are borrowed until stop.
 * Errors:  as weft_metrics_start; WEFT_NOMEM. */
weft_status weft_server_metrics_start(struct weft_server_metrics *server,
                                      const struct weft_metrics_options *options,
                                      struct weft_shard_thread *threads, uint32_t count,
                                      struct weft_coordinator *coordinator,
                                      struct weft_error *error);

/* Call before the threads are joined. A zeroed one is allowed. */
void weft_server_metrics_stop(struct weft_server_metrics *server);

#endif
