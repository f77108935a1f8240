/* The /metrics families of servers: as text.h, for `count` shards at a time, each with its labels
 * (`shard="0"`).
 */
#ifndef WEFT_METRICS_TEXT_SHARDS_H
#define WEFT_METRICS_TEXT_SHARDS_H

#include "core/endpoint.h"
#include "io/driver.h"
#include "metrics/family.h"
#include "ps/shard.h"
#include "ps/transfer.h"

enum { WEFT_METRICS_TABLES_MAX = 64 };

/* One table of a shard. */
struct weft_metrics_table {
    uint16_t table;
    uint32_t clock; /* of the slowest worker */
    uint64_t rows;
    uint64_t bytes;
    uint64_t updates;
};

/* A copy of all counters of a shard, made by its own thread. */
struct weft_shard_stats {
    char labels[WEFT_METRICS_LABELS_BYTES];
    struct weft_driver_counters transport;
    struct weft_ep_gauges gauges; /* zero over TCP */
    struct weft_shard_counters shard;
    struct weft_shard_gauges shard_gauges;
    struct weft_shard_table_sums sums;
    struct weft_replication replication; /* zeros without replicas */
    struct weft_shard_latencies push;
    struct weft_shard_latencies pull;
    struct weft_metrics_table tables[WEFT_METRICS_TABLES_MAX]; /* the first ones, up to the
                                                                * maximum */
    uint32_t table_count;
};

/* Thread: the shard's. labels are not changed. */
void weft_shard_stats_take(struct weft_shard_stats *stats, struct weft_shard *shard,
                           struct weft_driver *driver, uint64_t now_ns);

void weft_metrics_text_shards(struct weft_exposition *text, const struct weft_shard_stats *stats,
                              uint32_t count);

#endif
