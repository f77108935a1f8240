#include "metrics/text_shards.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SHARD(field) offsetof(struct weft_shard_counters, field)

static const struct weft_metrics_family shard[] = {
    {"weft_requests_total", "counter", "kind=\"push\"", SHARD(pushes), "Requests closed, by kind."},
    {"weft_requests_total", "counter", "kind=\"pull\"", SHARD(pulls), ""},
    {"weft_requests_total", "counter", "kind=\"clock\"", SHARD(clocks), ""},
    {"weft_requests_total", "counter", "kind=\"table\"", SHARD(tables), ""},
    {"weft_requests_short_total", "counter", "", SHARD(requests_short),
     "Requests whose worker died before they were complete."},
    {"weft_requests_stale_total", "counter", "", SHARD(requests_stale),
     "Requests of replaced connections."},
    {"weft_replies_total", "counter", "", SHARD(replies), "Replies passed to the transport."},
    {"weft_replies_failed_total", "counter", "", SHARD(replies_failed), "Replies not delivered."},
    {"weft_pulls_waited_total", "counter", "", SHARD(waits),
     "Pulls that waited for a slower worker."},
    {"weft_updates_applied_total", "counter", "", SHARD(elements_applied),
     "Gradients of rows (or blocks of rows) applied."},
    {"weft_updates_opened_total", "counter", "", SHARD(updates_opened),
     "With a scheduler: updates of which a chunk arrived."},
    {"weft_updates_closed_total", "counter", "", SHARD(updates_closed),
     "Of these, updates whose clock has ended."},
    {"weft_updates_late_total", "counter", "", SHARD(updates_late),
     "Updates refused because of the delay bound."},
    {"weft_updates_delay_total", "counter", "", SHARD(updates_delay_sum),
     "Sum of the delays of opened updates, in updates."},
    {"weft_rows_pulled_total", "counter", "", SHARD(rows_pulled), "Rows in replies."},
    {"weft_rows_absent_total", "counter", "", SHARD(rows_absent),
     "Of these, rows that do not exist (initial weights)."},
    {"weft_rows_stepped_total", "counter", "", SHARD(rows_stepped),
     "BSP: optimizer steps at the ends of clocks."},
    {"weft_push_chunks_applied_total", "counter", "", SHARD(chunks_applied), "Chunks of pushes."},
    {"weft_push_chunks_duplicate_total", "counter", "", SHARD(chunks_duplicate),
     "Chunks of resent pushes that were applied before."},
    {"weft_request_chunks_refused_total", "counter", "", SHARD(chunks_refused),
     "Invalid chunks of requests."},
    {"weft_chunks_without_room_total", "counter", "", SHARD(rows_refused),
     "Of these, because there was no memory for a new row."},
    {"weft_lists_stored_total", "counter", "", SHARD(lists_stored),
     "Pulls whose ids were stored as a list."},
    {"weft_lists_refused_total", "counter", "", SHARD(lists_refused),
     "Pulls whose ids could not be stored because of lack of room."},
    {"weft_lists_received_total", "counter", "", SHARD(lists_received),
     "Lists received from workers, for pushes that name them."},
    {"weft_lists_unknown_total", "counter", "", SHARD(lists_unknown),
     "Pushes that name an unknown list; they are resent."},
    {"weft_ids_by_list_total", "counter", "", SHARD(ids_by_list),
     "Applied gradients of rows whose ids were in a list."},
    {"weft_workers_replaced_total", "counter", "", SHARD(workers_replaced),
     "Ranks that reconnected."},
    {"weft_workers_parked_total", "counter", "", SHARD(workers_parked),
     "Connections closed by workers that now send through an aggregator only."},
    {"weft_workers_overdue_total", "counter", "", SHARD(workers_overdue),
     "Ranks that died while their connection was parked: no request of theirs arrived through an "
     "aggregator in time."},
    {"weft_workers_refused_total", "counter", "", SHARD(workers_refused),
     "Connections of processes that had lost their rank to another one."},
    {"weft_aggregates_total", "counter", "", SHARD(aggregates),
     "Aggregates applied: sums of several pushes."},
    {"weft_aggregate_pushes_total", "counter", "", SHARD(aggregate_pushes),
     "Pushes in them, also counted as requests."},
    {"weft_aggregate_rows_total", "counter", "", SHARD(aggregate_rows), "Rows in them."},
    {"weft_aggregate_updates_total", "counter", "", SHARD(aggregate_gradients),
     "Gradients summed in them, also counted as updates applied."},
    {"weft_aggregate_clocks_total", "counter", "", SHARD(aggregate_clocks),
     "Ends of clocks in aggregates, one for each rank and table."},
    {"weft_aggregates_refused_total", "counter", "", SHARD(aggregates_refused),
     "Aggregates refused; their pushes are sent directly."},
    {"weft_active_windows_total", "counter", "", SHARD(active_windows),
     "Windows (1 ms, or --active-window-us) with a request."},
    {"weft_active_workers_total", "counter", "", SHARD(active_workers),
     "Number of workers with a request in a window, summed over the windows; includes workers "
     "whose requests arrived through an aggregator."},
    {"weft_active_connections_total", "counter", "", SHARD(active_connections),
     "Number of connections, of workers and aggregators, with a request in a window, summed over "
     "the windows."},
    {"weft_hot_selections_total", "counter", "", SHARD(hot_selections),
     "Selections of the hot rows of a table."},
    {"weft_hot_epochs_total", "counter", "", SHARD(hot_epochs), "Of these, that changed the set."},
    {"weft_hot_rows_entered_total", "counter", "", SHARD(hot_rows_came), "Rows that became hot."},
    {"weft_hot_rows_left_total", "counter", "", SHARD(hot_rows_left),
     "Rows that ceased to be hot."},
    {"weft_hot_updates_total", "counter", "", SHARD(hot_updates),
     "Updates of rows while they were hot."},
    {"weft_hot_updates_seen_total", "counter", "", SHARD(hot_updates_of),
     "Updates of all rows of tables with hot rows, over the same time."},
};

#define SHARD_GAUGE(field) offsetof(struct weft_shard_gauges, field)

static const struct weft_metrics_family shard_gauges[] = {
    {"weft_workers_connected", "gauge", "", SHARD_GAUGE(workers_connected),
     "Ranks with a connection."},
    {"weft_workers_parked", "gauge", "", SHARD_GAUGE(workers_parked),
     "Ranks without a connection that send through an aggregator."},
    {"weft_workers_active", "gauge", "", SHARD_GAUGE(workers_active),
     "Ranks that sent a request in the last second."},
    {"weft_aggregators_connected", "gauge", "", SHARD_GAUGE(aggregators_connected),
     "Aggregators with a connection."},
    {"weft_aggregators_active", "gauge", "", SHARD_GAUGE(aggregators_active),
     "Aggregators that sent a request in the last second."},
    {"weft_hot_rows", "gauge", "", SHARD_GAUGE(hot_rows), "Hot rows of all tables."},
    {"weft_requests_open", "gauge", "", SHARD_GAUGE(requests_open),
     "Requests in progress, without a reply yet."},
};

#define SUMS(field) offsetof(struct weft_shard_table_sums, field)

static const struct weft_metrics_family sums[] = {
    {"weft_rows_created_total", "counter", "", SUMS(rows_created), "Rows created, all tables."},
    {"weft_rows_evicted_total", "counter", "", SUMS(rows_evicted), "Rows evicted."},
    {"weft_rows_expired_total", "counter", "", SUMS(rows_expired), "Rows expired."},
    {"weft_pushes_unadmitted_total", "counter", "", SUMS(unadmitted),
     "Pushes of ids that have no row yet."},
    {"weft_gradients_not_finite_total", "counter", "", SUMS(not_finite),
     "Gradients clipped or dropped because they were not finite."},
};

#define REPLICATION(field) offsetof(struct weft_replication, field)

static const struct weft_metrics_family replication[] = {
    {"weft_replica_transfers_total", "counter", "", REPLICATION(transfers),
     "Transfers that the replica has acknowledged."},
    {"weft_replica_transfers_failed_total", "counter", "", REPLICATION(failed),
     "Transfers abandoned: the connection ended, or the memory for copies was exhausted."},
    {"weft_replica_bytes_total", "counter", "", REPLICATION(bytes), "Bytes sent to the replica."},
    {"weft_replica_rows_total", "counter", "", REPLICATION(rows), "Rows sent to the replica."},
    {"weft_replica_reply_delays_total", "counter", "", REPLICATION(holds),
     "Times that replies began to wait for the replica."},
    {"weft_replicas_lost_total", "counter", "", REPLICATION(lost),
     "Replicas that were ready and whose connection ended."},
};

#define REAL(field) offsetof(struct weft_replication, field)

/* As the above, but with values that are real numbers. */
static const struct weft_metrics_family divergences[] = {
    {"weft_replica_divergence", "gauge", "", REAL(divergence),
     "Upper bound of the distance between the weights here and at the replica."},
    {"weft_replica_divergence_max", "gauge", "", REAL(divergence_max),
     "Its maximum over the replies sent while a replica was ready."},
    {"weft_replica_divergence_bound", "gauge", "", REAL(bound),
     "Divergence beyond which replies wait; 0 also without replicas."},
};

static void add_replication(struct weft_exposition *text, const struct weft_shard_stats *stats,
                            uint32_t count)
{
    weft_exposition_family(text, "weft_replica_ready", "gauge",
                           "1 = the shard has a replica that may be promoted.");
    for (uint32_t i = 0; i < count; i++) {
        weft_exposition_u64(text, "weft_replica_ready", stats[i].labels,
                            stats[i].replication.ready);
    }
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(divergences); f++) {
        const struct weft_metrics_family *family = &divergences[f];
        weft_exposition_family(text, family->name, family->type, family->help);
        for (uint32_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, (const char *)&stats[i].replication + family->at, sizeof(value));
            weft_exposition_real(text, family->name, stats[i].labels, value);
        }
    }
}

static void add_push_processing(struct weft_exposition *text, const struct weft_shard_stats *stats,
                                uint32_t count)
{
    static const char name[] = "weft_push_processing_seconds_total";
    weft_exposition_family(text, name, "counter",
                           "Processing time of pushes (PS_proc and PS_overlap), by their path.");
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_shard_counters *counters = &stats[i].shard;
        const struct {
            const char *path;
            uint64_t ns;
        } paths[] = {{"direct", counters->direct_proc_ns},
                     {"aggregated", counters->aggregate_proc_ns}};
        for (size_t p = 0; p < WEFT_ARRAY_COUNT(paths); p++) {
            char labels[WEFT_METRICS_LABELS_BYTES + 32];
            snprintf(labels, sizeof(labels), "%s,path=\"%s\"", stats[i].labels, paths[p].path);
            weft_exposition_real(text, name, labels, (double)paths[p].ns / WEFT_NS_PER_S);
        }
    }
}

/* One table of one shard; built for the output. */
struct labeled_table {
    char labels[WEFT_METRICS_LABELS_BYTES];
    uint64_t rows;
    uint64_t bytes;
    uint64_t updates;
    uint64_t clock;
};

#define LABELED(field) (offsetof(struct labeled_table, field) - WEFT_METRICS_LABELS_BYTES)

static const struct weft_metrics_family tables[] = {
    {"weft_table_rows", "gauge", "", LABELED(rows), "Rows that exist."},
    {"weft_table_bytes", "gauge", "", LABELED(bytes), "Memory of rows, index and admission."},
    {"weft_table_updates_total", "counter", "", LABELED(updates),
     "Updates of rows since their creation, including restored checkpoints."},
    {"weft_table_clock", "gauge", "", LABELED(clock), "Clock that all workers have finished."},
};

static void take_tables(struct weft_shard_stats *stats, const struct weft_shard *from)
{
    stats->table_count = 0;
    for (uint32_t t = 0; t < weft_shard_tables_max(from); t++) {
        const struct weft_table *table = weft_shard_table(from, (uint16_t)t);
        struct weft_hot_total total;
        if (table == NULL || stats->table_count == WEFT_METRICS_TABLES_MAX) {
            continue;
        }
        weft_table_hot_total(table, &total);
        stats->tables[stats->table_count++] = (struct weft_metrics_table){
            .table = (uint16_t)t,
            .clock = weft_shard_clock(from, (uint16_t)t),
            .rows = weft_table_rows(table),
            .bytes = weft_table_bytes(table),
            .updates = total.updates,
        };
    }
}

void weft_shard_stats_take(struct weft_shard_stats *stats, struct weft_shard *from,
                           struct weft_driver *driver, uint64_t now_ns)
{
    weft_driver_counters(driver, &stats->transport);
    if (weft_driver_udp(driver) != NULL) {
        weft_ep_gauges(weft_udp_ep(weft_driver_udp(driver)), &stats->gauges);
    }
    stats->shard = *weft_shard_counters(from);
    weft_shard_gauges(from, now_ns, WEFT_NS_PER_S, &stats->shard_gauges);
    weft_shard_table_sums(from, &stats->sums);
    weft_shard_replication(from, &stats->replication);
    stats->push = *weft_shard_push_latencies(from);
    stats->pull = *weft_shard_pull_latencies(from);
    take_tables(stats, from);
}

static void add_served(struct weft_exposition *text, const char *own, const char *kind,
                       const struct weft_shard_latencies *of)
{
    static const char name[] = "weft_served_latency_seconds";
    weft_metrics_add_hist(text, name, own, kind, "ps_proc", &of->ps_proc);
    weft_metrics_add_hist(text, name, own, kind, "ps_queue", &of->ps_queue);
    weft_metrics_add_hist(text, name, own, kind, "ps_wait", &of->ps_wait);
}

static void add_tables(struct weft_exposition *text, const struct weft_shard_stats *stats,
                       uint32_t count)
{
    static struct labeled_table all[32 * WEFT_METRICS_TABLES_MAX];
    uint32_t used = 0;
    for (uint32_t s = 0; s < count; s++) {
        for (uint32_t t = 0; t < stats[s].table_count && used < WEFT_ARRAY_COUNT(all); t++) {
            const struct weft_metrics_table *table = &stats[s].tables[t];
            struct labeled_table *labeled = &all[used++];
            *labeled = (struct labeled_table){.rows = table->rows,
                                              .bytes = table->bytes,
                                              .updates = table->updates,
                                              .clock = table->clock};
            snprintf(labeled->labels, sizeof(labeled->labels), "%.40s,table=\"%u\"",
                     stats[s].labels, table->table);
        }
    }
    WEFT_METRICS_FAMILIES(text, tables, all, WEFT_METRICS_LABELS_BYTES, used);
}

void weft_metrics_text_shards(struct weft_exposition *text, const struct weft_shard_stats *stats,
                              uint32_t count)
{
#define AT(member) offsetof(struct weft_shard_stats, member)
    weft_metrics_add_transport(text, stats, sizeof(*stats), AT(transport), count);
    weft_metrics_add_gauges(text, stats, sizeof(*stats), AT(gauges), count);
    WEFT_METRICS_FAMILIES(text, shard, stats, AT(shard), count);
    WEFT_METRICS_FAMILIES(text, shard_gauges, stats, AT(shard_gauges), count);
    WEFT_METRICS_FAMILIES(text, sums, stats, AT(sums), count);
    WEFT_METRICS_FAMILIES(text, replication, stats, AT(replication), count);
#undef AT
    add_replication(text, stats, count);
    add_push_processing(text, stats, count);
    add_tables(text, stats, count);
    weft_exposition_family(text, "weft_served_latency_seconds", "histogram",
                           "Latency of requests by part, measured at the server.");
    for (uint32_t i = 0; i < count; i++) {
        add_served(text, stats[i].labels, "push", &stats[i].push);
        add_served(text, stats[i].labels, "pull", &stats[i].pull);
    }
}
