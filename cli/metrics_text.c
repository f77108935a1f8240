#include "cli/metrics_text.h"

#include "rpc/latency.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Rows of one name stand together. */
struct family {
    const char *name;
    const char *type;
    const char *labels; /* beside those of the thing; "" = none */
    size_t at;          /* offset of a uint64_t */
    const char *help;   /* of the first row of a name */
};

/* at: offset in the struct of a thing, `base` bytes after its begin. */
static void add_families(struct weft_exposition *text, const struct family *families, size_t rows,
                         const void *things, size_t stride, size_t base, uint32_t count)
{
    for (size_t f = 0; f < rows; f++) {
        const struct family *family = &families[f];
        if (f == 0 || strcmp(family->name, families[f - 1].name) != 0) {
            weft_exposition_family(text, family->name, family->type, family->help);
        }
        for (uint32_t i = 0; i < count; i++) {
            const char *thing = (const char *)things + i * stride;
            /* The labels of a thing, if it has any, are its first member. */
            const char *own = base > 0 ? thing : "";
            char labels[2 * WEFT_METRICS_LABELS_BYTES];
            uint64_t value;
            snprintf(labels, sizeof(labels), "%s%s%s", own,
                     own[0] != '\0' && family->labels[0] != '\0' ? "," : "", family->labels);
            memcpy(&value, thing + base + family->at, sizeof(value));
            weft_exposition_u64(text, family->name, labels, value);
        }
    }
}

/* ---- the transport ---------------------------------------------------------------------------- */

#define SOCKET(field) offsetof(struct weft_driver_counters, socket.field)
#define EP(field)     offsetof(struct weft_driver_counters, ep.field)
#define REJECTED      "weft_packets_rejected_total", "counter"

static const struct family transport[] = {
    {"weft_datagrams_received_total", "counter", "", SOCKET(datagrams_received),
     "Datagrams (over TCP records) that arrived."},
    {"weft_datagrams_sent_total", "counter", "", SOCKET(datagrams_sent),
     "Datagrams (over TCP records) given to the kernel."},
    {"weft_received_bytes_total", "counter", "", SOCKET(bytes_received), "Payload that arrived."},
    {"weft_sent_bytes_total", "counter", "", SOCKET(bytes_sent), "Payload given to the kernel."},
    {"weft_data_packets_received_total", "counter", "", EP(data_received),
     "Packets with a new chunk."},
    {"weft_data_packets_sent_total", "counter", "", EP(data_sent),
     "Packets with a chunk, sent again included."},
    {"weft_packets_lost_total", "counter", "", EP(lost_packets),
     "Packets of this sender that were declared lost."},
    {"weft_packets_spuriously_lost_total", "counter", "", EP(spurious_losses),
     "Of these, acknowledged later."},
    {"weft_packets_retransmitted_total", "counter", "", EP(retransmitted_packets),
     "Packets sent again."},
    {"weft_probes_total", "counter", "", EP(probes), "Probes after a silence."},
    {"weft_packets_marked_total", "counter", "", EP(ce_received),
     "Packets that a queue had marked (ECN)."},
    {"weft_packets_duplicate_total", "counter", "", EP(duplicate_packets),
     "Packets that had arrived before."},
    {"weft_packets_unexpected_total", "counter", "", EP(no_memory),
     "DATA for which no memory was posted: not acknowledged."},
    {"weft_datagrams_dropped_total", "counter", "where=\"receive_buffer\"", SOCKET(kernel_drops),
     "Datagrams that this host dropped: full buffers, and on purpose."},
    {"weft_datagrams_dropped_total", "counter", "where=\"send_buffer\"", SOCKET(send_dropped), ""},
    {"weft_datagrams_dropped_total", "counter", "where=\"injected\"", SOCKET(injected_drops), ""},
    {REJECTED, "reason=\"short\"", EP(bad_short), "Packets that were not taken, by why."},
    {REJECTED, "reason=\"version\"", EP(bad_version), ""},
    {REJECTED, "reason=\"class\"", EP(bad_class), ""},
    {REJECTED, "reason=\"peer\"", EP(bad_peer), ""},
    {REJECTED, "reason=\"packet\"", EP(bad_packet), ""},
    {REJECTED, "reason=\"range\"", EP(bad_range), ""},
    {REJECTED, "reason=\"ack\"", EP(bad_ack), ""},
    {REJECTED, "reason=\"old\"", EP(old_packets), ""},
    {REJECTED, "reason=\"tag\"", EP(bad_tag), ""},
    {REJECTED, "reason=\"mode\"", EP(bad_mode), ""},
    {REJECTED, "reason=\"key\"", EP(bad_key), ""},
    {REJECTED, "reason=\"hello\"", EP(hello_refused), ""},
    {"weft_messages_sent_total", "counter", "", EP(messages_sent), "Messages closed by DONE."},
    {"weft_messages_received_total", "counter", "", EP(messages_received),
     "Messages closed as their receiver."},
    {"weft_messages_short_total", "counter", "", EP(messages_short),
     "Of these, below the bound: the sender died, or the time was over."},
    {"weft_messages_unknown_total", "counter", "", EP(messages_unknown),
     "Messages whose receiver died first."},
    {"weft_chunks_missing_total", "counter", "", EP(chunks_missing),
     "Chunks that messages were closed without, within the bound or short."},
    {"weft_credits_reclaimed_total", "counter", "", EP(credits_reclaimed),
     "Times that a silent holder of credit was passed over."},
    {"weft_path_changes_total", "counter", "", EP(path_changes),
     "Peers that moved to another address."},
    {"weft_system_calls_total", "counter", "call=\"receive\"", SOCKET(recv_calls),
     "System calls on the socket."},
    {"weft_system_calls_total", "counter", "call=\"send\"", SOCKET(send_calls), ""},
    {"weft_system_calls_total", "counter", "call=\"sleep\"", SOCKET(sleeps), ""},
};

#define GAUGE(field) offsetof(struct weft_ep_gauges, field)

static const struct family gauges[] = {
    {"weft_peers_connected", "gauge", "", GAUGE(peers), "Connections that are up."},
    {"weft_credit_outstanding_packets", "gauge", "", GAUGE(credit_outstanding),
     "DATA packets that peers may send here now."},
    {"weft_credit_budget_packets", "gauge", "", GAUGE(credit_budget),
     "Most that may be outstanding."},
    {"weft_senders_active", "gauge", "", GAUGE(senders), "Peers with a message open here."},
    {"weft_senders_waiting", "gauge", "", GAUGE(senders_waiting),
     "Of these, that could use more credit."},
};

/* ---- the shard -------------------------------------------------------------------------------- */

#define SHARD(field) offsetof(struct weft_shard_counters, field)

static const struct family shard[] = {
    {"weft_requests_total", "counter", "kind=\"push\"", SHARD(pushes), "Requests closed, by kind."},
    {"weft_requests_total", "counter", "kind=\"pull\"", SHARD(pulls), ""},
    {"weft_requests_total", "counter", "kind=\"clock\"", SHARD(clocks), ""},
    {"weft_requests_total", "counter", "kind=\"table\"", SHARD(tables), ""},
    {"weft_requests_short_total", "counter", "", SHARD(requests_short),
     "Requests of a worker that died in them."},
    {"weft_requests_stale_total", "counter", "", SHARD(requests_stale),
     "Requests of a connection that its worker had replaced."},
    {"weft_replies_total", "counter", "", SHARD(replies), "Answers given to the transport."},
    {"weft_replies_failed_total", "counter", "", SHARD(replies_failed), "Answers nobody took."},
    {"weft_pulls_waited_total", "counter", "", SHARD(waits),
     "Pulls that had to wait for a slower worker."},
    {"weft_updates_applied_total", "counter", "", SHARD(elements_applied),
     "Gradients of rows (or blocks of rows) applied."},
    {"weft_rows_pulled_total", "counter", "", SHARD(rows_pulled), "Rows in answers."},
    {"weft_rows_absent_total", "counter", "", SHARD(rows_absent),
     "Of these, rows that do not exist: initial weights."},
    {"weft_rows_stepped_total", "counter", "", SHARD(rows_stepped),
     "BSP: steps of the optimizer at ends of clocks."},
    {"weft_push_chunks_applied_total", "counter", "", SHARD(chunks_applied), "Chunks of pushes."},
    {"weft_push_chunks_again_total", "counter", "", SHARD(chunks_again),
     "Chunks of pushes sent again, applied before."},
    {"weft_request_chunks_refused_total", "counter", "", SHARD(chunks_refused),
     "Chunks of requests that were not valid."},
    {"weft_chunks_without_room_total", "counter", "", SHARD(rows_refused),
     "Of these, no memory for a new row."},
    {"weft_workers_replaced_total", "counter", "", SHARD(workers_replaced),
     "Ranks that connected again."},
};

#define SHARD_GAUGE(field) offsetof(struct weft_shard_gauges, field)

static const struct family shard_gauges[] = {
    {"weft_workers_connected", "gauge", "", SHARD_GAUGE(workers_connected),
     "Ranks with a connection."},
    {"weft_workers_active", "gauge", "", SHARD_GAUGE(workers_active),
     "Ranks that sent a request in the last second."},
    {"weft_requests_open", "gauge", "", SHARD_GAUGE(requests_open),
     "Requests begun and not answered."},
};

#define SUMS(field) offsetof(struct weft_shard_table_sums, field)

static const struct family sums[] = {
    {"weft_rows_made_total", "counter", "", SUMS(rows_made), "Rows of all tables that came to be."},
    {"weft_rows_evicted_total", "counter", "", SUMS(rows_evicted), "Rows that made room."},
    {"weft_rows_expired_total", "counter", "", SUMS(rows_expired), "Rows whose time was over."},
    {"weft_pushes_unadmitted_total", "counter", "", SUMS(unadmitted),
     "Pushes of ids that have no row yet."},
    {"weft_gradients_not_finite_total", "counter", "", SUMS(not_finite),
     "Gradients clipped or dropped because they were not finite."},
};

/* One table of one shard; made for the text. */
struct labeled_table {
    char labels[WEFT_METRICS_LABELS_BYTES];
    uint64_t rows;
    uint64_t bytes;
    uint64_t updates;
    uint64_t clock;
};

#define LABELED(field) (offsetof(struct labeled_table, field) - WEFT_METRICS_LABELS_BYTES)

static const struct family tables[] = {
    {"weft_table_rows", "gauge", "", LABELED(rows), "Rows that exist."},
    {"weft_table_bytes", "gauge", "", LABELED(bytes), "Memory of rows, index and admission."},
    {"weft_table_updates_total", "counter", "", LABELED(updates),
     "Updates of rows since they were made, in checkpoints before this process included."},
    {"weft_table_clock", "gauge", "", LABELED(clock), "Clock that all workers have finished."},
};

/* ---- the worker ------------------------------------------------------------------------------- */

#define CLIENT(field) offsetof(struct weft_ps_client_counters, field)

static const struct family client[] = {
    {"weft_client_messages_total", "counter", "kind=\"push\"", CLIENT(push.messages),
     "Pushes and answers to pulls closed."},
    {"weft_client_messages_total", "counter", "kind=\"pull\"", CLIENT(pull.messages), ""},
    {"weft_client_messages_short_total", "counter", "kind=\"push\"", CLIENT(push.messages_short),
     "Of these, with a chunk missing, within the bound or not."},
    {"weft_client_messages_short_total", "counter", "kind=\"pull\"", CLIENT(pull.messages_short),
     ""},
    {"weft_client_elements_total", "counter", "kind=\"push\"", CLIENT(push.elements_sent),
     "Rows (or blocks of rows) in pushes and in answers to pulls."},
    {"weft_client_elements_total", "counter", "kind=\"pull\"", CLIENT(pull.elements_sent), ""},
    {"weft_client_elements_delivered_total", "counter", "kind=\"push\"",
     CLIENT(push.elements_delivered), "Of these, that arrived: the rest is within the loss bound."},
    {"weft_client_elements_delivered_total", "counter", "kind=\"pull\"",
     CLIENT(pull.elements_delivered), ""},
    {"weft_client_clocks_total", "counter", "", CLIENT(clocks), "Clocks finished at the servers."},
    {"weft_client_rpcs_refused_total", "counter", "", CLIENT(rpcs_refused),
     "RPCs that a server refused."},
    {"weft_client_rpcs_failed_total", "counter", "", CLIENT(rpcs_failed),
     "RPCs whose server was gone."},
};

#define WORKER(field) offsetof(struct weft_worker_stats, field)

static const struct family worker[] = {
    {"weft_worker_epochs_total", "counter", "", WORKER(epochs), "Epochs finished."},
    {"weft_worker_rank", "gauge", "", WORKER(rank), "Rank in the job."},
};

/* ---- latencies -------------------------------------------------------------------------------- */

static void add_hist(struct weft_exposition *text, const char *name, const char *own,
                     const char *kind, const char *part, const struct weft_hist *hist)
{
    char labels[2 * WEFT_METRICS_LABELS_BYTES];
    snprintf(labels, sizeof(labels), "%s%skind=\"%s\",part=\"%s\"", own, own[0] != '\0' ? "," : "",
             kind, part);
    weft_exposition_hist(text, name, labels, hist);
}

static void add_rpc_latencies(struct weft_exposition *text, const char *kind,
                              const struct weft_ps_latencies *of)
{
    static const char name[] = "weft_rpc_latency_seconds";
    add_hist(text, name, "", kind, "w_proc", &of->w_proc);
    add_hist(text, name, "", kind, "w_queue", &of->w_queue);
    add_hist(text, name, "", kind, "ps_proc", &of->ps_proc);
    add_hist(text, name, "", kind, "ps_queue", &of->ps_queue);
    add_hist(text, name, "", kind, "ps_wait", &of->ps_wait);
    add_hist(text, name, "", kind, "n_tx", &of->n_tx);
}

static void add_served(struct weft_exposition *text, const char *own, const char *kind,
                       const struct weft_shard_latencies *of)
{
    static const char name[] = "weft_served_latency_seconds";
    add_hist(text, name, own, kind, "ps_proc", &of->ps_proc);
    add_hist(text, name, own, kind, "ps_queue", &of->ps_queue);
    add_hist(text, name, own, kind, "ps_wait", &of->ps_wait);
}

/* ---- all together ----------------------------------------------------------------------------- */

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
    stats->push = *weft_shard_push_latencies(from);
    stats->pull = *weft_shard_pull_latencies(from);
    take_tables(stats, from);
}

#define FAMILIES(text, list, things, base, count)                                                  \
    add_families(text, list, WEFT_ARRAY_COUNT(list), things, sizeof(*(things)), base, count)

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
    FAMILIES(text, tables, all, WEFT_METRICS_LABELS_BYTES, used);
}

void weft_metrics_text_shards(struct weft_exposition *text, const struct weft_shard_stats *stats,
                              uint32_t count)
{
#define AT(member) offsetof(struct weft_shard_stats, member)
    FAMILIES(text, transport, stats, AT(transport), count);
    FAMILIES(text, gauges, stats, AT(gauges), count);
    FAMILIES(text, shard, stats, AT(shard), count);
    FAMILIES(text, shard_gauges, stats, AT(shard_gauges), count);
    FAMILIES(text, sums, stats, AT(sums), count);
#undef AT
    add_tables(text, stats, count);
    weft_exposition_family(text, "weft_served_latency_seconds", "histogram",
                           "Where the time of requests went, as the server has it.");
    for (uint32_t i = 0; i < count; i++) {
        add_served(text, stats[i].labels, "push", &stats[i].push);
        add_served(text, stats[i].labels, "pull", &stats[i].pull);
    }
}

void weft_metrics_text_transport(struct weft_exposition *text,
                                 const struct weft_driver_counters *counters)
{
    FAMILIES(text, transport, counters, 0, 1);
}

void weft_metrics_text_client(struct weft_exposition *text,
                              const struct weft_ps_client_counters *counters)
{
    FAMILIES(text, client, counters, 0, 1);
}

void weft_metrics_text_worker(struct weft_exposition *text, const struct weft_worker_stats *stats)
{
    weft_metrics_text_transport(text, &stats->transport);
    if (stats->has_gauges) {
        FAMILIES(text, gauges, &stats->gauges, 0, 1);
    }
    weft_metrics_text_client(text, &stats->client);
    FAMILIES(text, worker, stats, 0, 1);
    weft_exposition_family(text, "weft_step_seconds", "histogram",
                           "From the end of a step to that of the next.");
    weft_exposition_hist(text, "weft_step_seconds", NULL, &stats->step_ns);
    weft_exposition_family(text, "weft_rpc_latency_seconds", "histogram",
                           "Where the time of RPCs went, as the worker has it.");
    add_rpc_latencies(text, "push", &stats->push);
    add_rpc_latencies(text, "pull", &stats->pull);
}

void weft_metrics_text_ages(struct weft_exposition *text)
{
    weft_exposition_family(text, "weft_snapshot_age_seconds", "gauge",
                           "Since the figures were copied; a busy thread gives them later.");
}

void weft_metrics_text_age(struct weft_exposition *text, const char *labels, uint64_t age_ns)
{
    weft_exposition_real(text, "weft_snapshot_age_seconds", labels, (double)age_ns / 1e9);
}
