/* /metrics of `weft load`: how far the run is and what its workers have done so far, copied by the
 * threads that turn them when somebody asks.
 *
 * It is of the workers alone: what shards of the same process (--local) count is not in it. Unlike
 * the result it counts from the beginning, warm-up included. A thread that does not come to the
 * question within a second is shown as it was the last time.
 */
#ifndef WEFT_CLI_LOAD_LIVE_H
#define WEFT_CLI_LOAD_LIVE_H

#include "cli/load/worker.h"
#include "cli/metrics.h"
#include "metrics/text.h"
#include "node/stats_query.h"

/* Of one thread's workers. */
struct weft_load_figures {
    struct weft_driver_counters transport;
    struct weft_ps_client_counters client;
    struct weft_load_seen seen;
    uint64_t connected; /* workers that have reached all shards */
    uint64_t measuring; /* 1: what happens counts for the result */
};

/* One thread. */
struct weft_load_part {
    struct weft_stats_query ask;
    struct weft_load_figures figures; /* as last copied */
    uint64_t taken_ns;
};

struct weft_load_live {
    struct weft_metrics metrics;
    weft_stats_query_fn *copy;      /* fills a struct weft_load_figures from the object of the asks */
    struct weft_load_part *parts; /* (count,); NULL = off */
    uint32_t count;
    uint32_t workers;
};

/* Nothing happens without --metrics.
 * Errors:  as weft_metrics_start; WEFT_NOMEM. live is zeroed then. */
weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 char error_p[WEFT_HTTP_ERROR_BYTES]);
/* After the threads have ended, before what `copy` looks at goes away. A zeroed one is fine. */
void weft_load_live_stop(struct weft_load_live *live);

/* A thread between two turns; object is what `copy` is given. Cost: one look at a flag. */
static inline void weft_load_live_look(struct weft_load_live *live, uint32_t thread, void *object)
{
    if (live->parts != NULL) {
        weft_stats_query_poll(&live->parts[thread].ask, object);
    }
}

/* The thread answers no more. */
void weft_load_live_leave(struct weft_load_live *live, uint32_t thread);

/* Add the counters of one of them: structs of nothing but uint64_t. */
void weft_load_figures_add(struct weft_load_figures *into,
                           const struct weft_driver_counters *transport,
                           const struct weft_ps_client_counters *client);

#endif
