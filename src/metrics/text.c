#include "metrics/text.h"

#include "metrics/family.h"
#include "rpc/latency.h"

#include <stddef.h>
#include <stdio.h>

/* ---- the transport --------------------------------------------------------------------------- */

#define SOCKET(field) offsetof(struct weft_driver_counters, socket.field)
#define EP(field)     offsetof(struct weft_driver_counters, ep.field)
#define REJECTED      "weft_packets_rejected_total", "counter"

static const struct weft_metrics_family transport[] = {
    {"weft_datagrams_received_total", "counter", "", SOCKET(datagrams_received),
     "Datagrams received (over TCP: records)."},
    {"weft_datagrams_sent_total", "counter", "", SOCKET(datagrams_sent),
     "Datagrams passed to the kernel (over TCP: records)."},
    {"weft_received_bytes_total", "counter", "", SOCKET(bytes_received), "Payload received."},
    {"weft_sent_bytes_total", "counter", "", SOCKET(bytes_sent), "Payload passed to the kernel."},
    {"weft_data_packets_received_total", "counter", "", EP(data_received),
     "Packets with a new chunk."},
    {"weft_data_packets_sent_total", "counter", "", EP(data_sent),
     "Packets with a chunk, including retransmissions."},
    {"weft_packets_lost_total", "counter", "", EP(lost_packets),
     "Packets of this sender declared lost."},
    {"weft_packets_spuriously_lost_total", "counter", "", EP(spurious_losses),
     "Of these, acknowledged later."},
    {"weft_packets_retransmitted_total", "counter", "", EP(retransmitted_packets),
     "Packets retransmitted."},
    {"weft_probes_total", "counter", "", EP(probes), "Probes sent when the PTO expired."},
    {"weft_packets_marked_total", "counter", "", EP(ce_received),
     "Packets marked by a queue (ECN)."},
    {"weft_packets_duplicate_total", "counter", "", EP(duplicate_packets),
     "Duplicate packets."},
    {"weft_packets_unexpected_total", "counter", "", EP(no_memory),
     "DATA packets without posted memory, not acknowledged."},
    {"weft_datagrams_dropped_total", "counter", "where=\"receive_buffer\"", SOCKET(kernel_drops),
     "Datagrams dropped by this host, because of full buffers or injected loss."},
    {"weft_datagrams_dropped_total", "counter", "where=\"send_buffer\"", SOCKET(send_dropped), ""},
    {"weft_datagrams_dropped_total", "counter", "where=\"injected\"", SOCKET(injected_drops), ""},
    {REJECTED, "reason=\"short\"", EP(bad_short), "Packets dropped as invalid, by reason."},
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
     "Messages that this process received and closed."},
    {"weft_messages_short_total", "counter", "", EP(messages_short),
     "Of these, with more missing than the bound allows: the sender died, or the deadline passed."},
    {"weft_messages_unknown_total", "counter", "", EP(messages_unknown),
     "Messages whose receiver died before their outcome was known."},
    {"weft_chunks_missing_total", "counter", "", EP(chunks_missing),
     "Chunks missing when their message was closed, within the bound or SHORT."},
    {"weft_credits_reclaimed_total", "counter", "", EP(credits_reclaimed),
     "Times that the credit of a peer that sent nothing was reclaimed."},
    {"weft_host_queue_waits_total", "counter", "", EP(queue_waits),
     "Times that sending waited for this host's transmit queue."},
    {"weft_path_changes_total", "counter", "", EP(path_changes),
     "Peers whose address changed."},
    {"weft_system_calls_total", "counter", "call=\"receive\"", SOCKET(recv_calls),
     "System calls on the socket."},
    {"weft_system_calls_total", "counter", "call=\"send\"", SOCKET(send_calls), ""},
    {"weft_system_calls_total", "counter", "call=\"sleep\"", SOCKET(sleeps), ""},
};

#define GAUGE(field) offsetof(struct weft_ep_gauges, field)

static const struct weft_metrics_family gauges[] = {
    {"weft_peers_connected", "gauge", "", GAUGE(peers), "Connections that are up."},
    {"weft_credit_outstanding_packets", "gauge", "", GAUGE(credit_outstanding),
     "Credit that peers hold, in DATA packets."},
    {"weft_host_queue_limit_bytes", "gauge", "", GAUGE(queue_limit_bytes),
     "Limit of bytes in this host's transmit queue; 0 = no limit."},
    {"weft_credit_budget_packets", "gauge", "", GAUGE(credit_budget),
     "Limit of outstanding credit."},
    {"weft_senders_active", "gauge", "", GAUGE(senders), "Peers with a message open here."},
    {"weft_senders_waiting", "gauge", "", GAUGE(senders_waiting),
     "Of these, peers that could use more credit."},
};

void weft_metrics_add_transport(struct weft_exposition *text, const void *things, size_t stride,
                                size_t base, uint32_t count)
{
    weft_metrics_families(text, transport, WEFT_ARRAY_COUNT(transport), things, stride, base,
                          count);
}

void weft_metrics_add_gauges(struct weft_exposition *text, const void *things, size_t stride,
                             size_t base, uint32_t count)
{
    weft_metrics_families(text, gauges, WEFT_ARRAY_COUNT(gauges), things, stride, base, count);
}

void weft_metrics_text_transport(struct weft_exposition *text,
                                 const struct weft_driver_counters *counters)
{
    weft_metrics_add_transport(text, counters, sizeof(*counters), 0, 1);
}

void weft_metrics_text_gauges(struct weft_exposition *text, const struct weft_ep_gauges *of)
{
    weft_metrics_add_gauges(text, of, sizeof(*of), 0, 1);
}

/* ---- the worker ------------------------------------------------------------------------------ */

#define CLIENT(field) offsetof(struct weft_ps_client_counters, field)

static const struct weft_metrics_family client[] = {
    {"weft_client_messages_total", "counter", "kind=\"push\"", CLIENT(push.messages),
     "Closed messages: pushes, and replies to pulls."},
    {"weft_client_messages_total", "counter", "kind=\"pull\"", CLIENT(pull.messages), ""},
    {"weft_client_messages_short_total", "counter", "kind=\"push\"", CLIENT(push.messages_short),
     "Of these, with a chunk missing, within the bound or not."},
    {"weft_client_messages_short_total", "counter", "kind=\"pull\"", CLIENT(pull.messages_short),
     ""},
    {"weft_client_pushes_listed_total", "counter", "", CLIENT(pushes_listed),
     "Acknowledged pushes that named a list of ids."},
    {"weft_client_list_bytes_saved_total", "counter", "", CLIENT(list_bytes_saved),
     "Bytes of ids that they did not send, compared with plain ids."},
    {"weft_client_value_bytes_saved_total", "counter", "", CLIENT(value_bytes_saved),
     "Bytes saved by the encoding of delivered values, compared with float32."},
    {"weft_client_residual_dropped_total", "counter", "", CLIENT(residual_dropped),
     "Elements whose rounding error was not kept, because of lack of room."},
    {"weft_client_updates_total", "counter", "", CLIENT(updates),
     "With a scheduler: complete updates (all pushes of a clock)."},
    {"weft_client_updates_direct_total", "counter", "", CLIENT(updates_direct),
     "Of these, sent without a grant although one was requested."},
    {"weft_client_updates_dropped_total", "counter", "", CLIENT(updates_dropped),
     "Of these, dropped by the scheduler."},
    {"weft_client_pushes_late_total", "counter", "", CLIENT(pushes_late),
     "Pushes refused by their shard because of the delay bound."},
    {"weft_client_lists_unknown_total", "counter", "", CLIENT(lists_unknown),
     "Pushes whose list their shard did not have; they were resent."},
    {"weft_client_elements_total", "counter", "kind=\"push\"", CLIENT(push.elements_sent),
     "Rows (or blocks of rows) in pushes and in replies to pulls."},
    {"weft_client_elements_total", "counter", "kind=\"pull\"", CLIENT(pull.elements_sent), ""},
    {"weft_client_elements_delivered_total", "counter", "kind=\"push\"",
     CLIENT(push.elements_delivered), "Of these, delivered; the rest was lost within the bound."},
    {"weft_client_elements_delivered_total", "counter", "kind=\"pull\"",
     CLIENT(pull.elements_delivered), ""},
    {"weft_client_rows_hot_total", "counter", "", CLIENT(rows_hot),
     "With hot rows: rows of pushes sent to an aggregator."},
    {"weft_client_rows_cold_total", "counter", "", CLIENT(rows_cold),
     "Rows of these pushes sent to their server."},
    {"weft_client_clocks_total", "counter", "", CLIENT(clocks), "Clocks finished at the servers."},
    {"weft_client_rpcs_refused_total", "counter", "", CLIENT(rpcs_refused),
     "RPCs rejected by a server."},
    {"weft_client_rpcs_failed_total", "counter", "", CLIENT(rpcs_failed),
     "RPCs whose server was down."},
};

#define WORKER(field) offsetof(struct weft_worker_stats, field)

static const struct weft_metrics_family epochs[] = {
    {"weft_worker_epochs_total", "counter", "", WORKER(epochs), "Epochs finished."},
};

static const struct weft_metrics_family worker[] = {
    {"weft_worker_rank", "gauge", "", WORKER(rank), "Rank in the job."},
};

void weft_metrics_add_hist(struct weft_exposition *text, const char *name, const char *own,
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
    weft_metrics_add_hist(text, name, "", kind, "w_proc", &of->w_proc);
    weft_metrics_add_hist(text, name, "", kind, "w_queue", &of->w_queue);
    weft_metrics_add_hist(text, name, "", kind, "ps_proc", &of->ps_proc);
    weft_metrics_add_hist(text, name, "", kind, "ps_queue", &of->ps_queue);
    weft_metrics_add_hist(text, name, "", kind, "ps_wait", &of->ps_wait);
    weft_metrics_add_hist(text, name, "", kind, "n_tx", &of->n_tx);
}

void weft_metrics_text_client(struct weft_exposition *text,
                              const struct weft_ps_client_counters *counters)
{
    WEFT_METRICS_FAMILIES(text, client, counters, 0, 1);
}

void weft_metrics_text_worker(struct weft_exposition *text, const struct weft_worker_stats *stats)
{
    weft_metrics_text_transport(text, &stats->transport);
    if (stats->has_gauges) {
        weft_metrics_text_gauges(text, &stats->gauges);
    }
    weft_metrics_text_client(text, &stats->client);
    if (stats->has_epochs) {
        WEFT_METRICS_FAMILIES(text, epochs, stats, 0, 1);
    }
    WEFT_METRICS_FAMILIES(text, worker, stats, 0, 1);
    weft_exposition_family(text, "weft_step_seconds", "histogram",
                           "Time between the ends of two steps.");
    weft_exposition_hist(text, "weft_step_seconds", NULL, &stats->step_ns);
    weft_exposition_family(text, "weft_rpc_latency_seconds", "histogram",
                           "Latency of RPCs by part, measured at the worker.");
    add_rpc_latencies(text, "push", &stats->push);
    add_rpc_latencies(text, "pull", &stats->pull);
}

/* ---- age of the copies
 * ------------------------------------------------------------------------ */

void weft_metrics_text_ages(struct weft_exposition *text)
{
    weft_exposition_family(text, "weft_snapshot_age_seconds", "gauge",
                           "Age of the values; they are older if the thread is busy.");
}

void weft_metrics_text_age(struct weft_exposition *text, const char *labels, uint64_t age_ns)
{
    weft_exposition_real(text, "weft_snapshot_age_seconds", labels, (double)age_ns / 1e9);
}
