/* /metrics of `weft load`: how far the run is and what its workers have done so far, copied by the
 * threads that turn them when somebody asks (metrics/live.h).
 *
 * It is of the workers alone: what shards of the same process (--local) count is not in it. Unlike
 * the result it counts from the beginning, warm-up included.
 */
#ifndef WEFT_CLI_LOAD_LIVE_H
#define WEFT_CLI_LOAD_LIVE_H

#include "cli/load/worker.h"
#include "cli/metrics.h"
#include "metrics/live.h"

/* Of one thread's workers. */
struct weft_load_figures {
    struct weft_driver_counters transport;
    struct weft_ps_client_counters client;
    struct weft_load_seen seen;
    uint64_t connected; /* workers that have reached all shards */
    uint64_t measuring; /* 1: what happens counts for the result */
};

struct weft_load_live {
    struct weft_metrics_live *served; /* NULL = off */
    uint32_t threads;
    uint32_t workers;
};

/* copy fills a struct weft_load_figures from what each thread polls served with.
 * Errors:  as weft_metrics_live_start. */
weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 char error_p[WEFT_HTTP_ERROR_BYTES]);

/* Add the counters of one of them: structs of nothing but uint64_t. */
void weft_load_figures_add(struct weft_load_figures *into,
                           const struct weft_driver_counters *transport,
                           const struct weft_ps_client_counters *client);

#endif
