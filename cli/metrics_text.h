/* The families of /metrics: which counter of which struct has which name. docs/METRICS.md is the
 * same list for people, and tests/cli/metrics.sh compares the two.
 *
 * Every function takes `count` things of one kind with the labels of each (`shard="0"`, or ""), and
 * writes each family once for all of them.
 */
#ifndef WEFT_CLI_METRICS_TEXT_H
#define WEFT_CLI_METRICS_TEXT_H

#include "core/endpoint.h"
#include "io/driver.h"
#include "obs/exposition.h"
#include "ps/client.h"
#include "ps/shard.h"

enum { WEFT_METRICS_LABELS_BYTES = 64, WEFT_METRICS_TABLES_MAX = 64 };

/* One table of a shard. */
struct weft_metrics_table {
    uint16_t table;
    uint32_t clock; /* of the slowest worker */
    uint64_t rows;
    uint64_t bytes;
    uint64_t updates;
};

/* A copy of all that a shard counts, made by its own thread. */
struct weft_shard_stats {
    char labels[WEFT_METRICS_LABELS_BYTES];
    struct weft_driver_counters transport;
    struct weft_ep_gauges gauges; /* zeros over TCP */
    struct weft_shard_counters shard;
    struct weft_shard_gauges shard_gauges;
    struct weft_shard_table_sums sums;
    struct weft_shard_latencies push;
    struct weft_shard_latencies pull;
    struct weft_metrics_table tables[WEFT_METRICS_TABLES_MAX]; /* the first so many */
    uint32_t table_count;
};

/* The same of a worker. */
struct weft_worker_stats {
    struct weft_driver_counters transport;
    struct weft_ep_gauges gauges;
    struct weft_ps_client_counters client;
    struct weft_ps_latencies push;
    struct weft_ps_latencies pull;
    struct weft_hist step_ns;
    uint64_t epochs; /* finished */
    uint64_t rank;
    bool has_gauges; /* the thread that copies turns the endpoint */
};

/* Thread: the shard's. labels are left as they are. */
void weft_shard_stats_take(struct weft_shard_stats *stats, struct weft_shard *shard,
                           struct weft_driver *driver, uint64_t now_ns);

void weft_metrics_text_shards(struct weft_exposition *text, const struct weft_shard_stats *stats,
                              uint32_t count);
void weft_metrics_text_transport(struct weft_exposition *text,
                                 const struct weft_driver_counters *counters);
void weft_metrics_text_client(struct weft_exposition *text,
                              const struct weft_ps_client_counters *counters);
void weft_metrics_text_worker(struct weft_exposition *text, const struct weft_worker_stats *stats);

/* Seconds since the figures were copied: those of a thread that is busy are of before. The family,
 * then a sample for each thing (labels NULL: there is one). */
void weft_metrics_text_ages(struct weft_exposition *text);
void weft_metrics_text_age(struct weft_exposition *text, const char *labels, uint64_t age_ns);

#endif
