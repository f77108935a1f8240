/* The metric families of /metrics, one for each counter in a struct. docs/METRICS.md is the same
 * list for people, and tests/cli/metrics.sh compares the two. Families of shards are in
 * text_shards.h.
 */
#ifndef WEFT_METRICS_TEXT_H
#define WEFT_METRICS_TEXT_H

#include "core/endpoint.h"
#include "io/driver.h"
#include "metrics/family.h"
#include "obs/exposition.h"
#include "ps/client.h"

/* A copy of all counters of a worker, made by the thread that runs it. */
struct weft_worker_stats {
    struct weft_driver_counters transport;
    struct weft_ep_gauges gauges;
    struct weft_ps_client_counters client;
    struct weft_ps_latencies push;
    struct weft_ps_latencies pull;
    struct weft_hist step_ns;
    uint64_t epochs; /* finished */
    uint64_t rank;
    bool has_gauges; /* the endpoint has gauges: not over TCP */
    bool has_epochs; /* the program counts epochs */
};

void weft_metrics_text_transport(struct weft_exposition *text,
                                 const struct weft_driver_counters *counters);
void weft_metrics_text_gauges(struct weft_exposition *text, const struct weft_ep_gauges *of);
void weft_metrics_text_client(struct weft_exposition *text,
                              const struct weft_ps_client_counters *counters);
void weft_metrics_text_worker(struct weft_exposition *text, const struct weft_worker_stats *stats);

/* Seconds since the statistics were copied; more if the thread is busy. Call `ages` once: it writes
 * the header of the family. Then call `age` for each object: it writes a sample (labels NULL:
 * without labels). */
void weft_metrics_text_ages(struct weft_exposition *text);
void weft_metrics_text_age(struct weft_exposition *text, const char *labels, uint64_t age_ns);

#endif
