#include "metrics/text.h"

#include "metrics/family.h"
#include "rpc/latency.h"

#include <stddef.h>
#include <stdio.h>

/* ---- the transport ---------------------------------------------------------------------------- */

#define SOCKET(field) offsetof(struct weft_driver_counters, socket.field)
#define EP(field)     offsetof(struct weft_driver_counters, ep.field)
#define REJECTED      "weft_packets_rejected_total", "counter"

static const struct weft_metrics_family transport[] = {
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
    {"weft_host_queue_waits_total", "counter", "", EP(queue_waits),
     "Times that chunks waited for this host's own queue to drain."},
    {"weft_path_changes_total", "counter", "", EP(path_changes),
     "Peers that moved to another address."},
    {"weft_system_calls_total", "counter", "call=\"receive\"", SOCKET(recv_calls),
     "System calls on the socket."},
    {"weft_system_calls_total", "counter", "call=\"send\"", SOCKET(send_calls), ""},
    {"weft_system_calls_total", "counter", "call=\"sleep\"", SOCKET(sleeps), ""},
};

#define GAUGE(field) offsetof(struct weft_ep_gauges, field)

static const struct weft_metrics_family gauges[] = {
    {"weft_peers_connected", "gauge", "", GAUGE(peers), "Connections that are up."},
    {"weft_credit_outstanding_packets", "gauge", "", GAUGE(credit_outstanding),
     "DATA packets that peers may send here now."},
    {"weft_host_queue_limit_bytes", "gauge", "", GAUGE(queue_limit_bytes),
     "Most chunks in this host's own queue; 0 = no limit."},
    {"weft_credit_budget_packets", "gauge", "", GAUGE(credit_budget),
     "Most that may be outstanding."},
    {"weft_senders_active", "gauge", "", GAUGE(senders), "Peers with a message open here."},
    {"weft_senders_waiting", "gauge", "", GAUGE(senders_waiting),
     "Of these, that could use more credit."},
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

/* ---- the worker ------------------------------------------------------------------------------- */

#define CLIENT(field) offsetof(struct weft_ps_client_counters, field)

static const struct weft_metrics_family client[] = {
    {"weft_client_messages_total", "counter", "kind=\"push\"", CLIENT(push.messages),
     "Pushes and answers to pulls closed."},
    {"weft_client_messages_total", "counter", "kind=\"pull\"", CLIENT(pull.messages), ""},
    {"weft_client_messages_short_total", "counter", "kind=\"push\"", CLIENT(push.messages_short),
     "Of these, with a chunk missing, within the bound or not."},
    {"weft_client_messages_short_total", "counter", "kind=\"pull\"", CLIENT(pull.messages_short),
     ""},
    {"weft_client_pushes_listed_total", "counter", "", CLIENT(pushes_listed),
     "Pushes answered that named a list of ids."},
    {"weft_client_list_bytes_saved_total", "counter", "", CLIENT(list_bytes_saved),
     "Bytes of ids that they did not send, against ids that are not packed."},
    {"weft_client_value_bytes_saved_total", "counter", "", CLIENT(value_bytes_saved),
     "Bytes that values which arrived took less than as float32."},
    {"weft_client_residual_dropped_total", "counter", "", CLIENT(residual_dropped),
     "Elements of pushes of which what rounding took was not kept, for want of room."},
    {"weft_client_updates_total", "counter", "", CLIENT(updates),
     "With a scheduler: updates complete, all pushes of a clock together."},
    {"weft_client_updates_direct_total", "counter", "", CLIENT(updates_direct),
     "Of these, that were sent without a grant, though one was asked for."},
    {"weft_client_updates_dropped_total", "counter", "", CLIENT(updates_dropped),
     "Of these, that the scheduler dropped."},
    {"weft_client_pushes_late_total", "counter", "", CLIENT(pushes_late),
     "Pushes that their shard refused: the update was beyond the delay bound."},
    {"weft_client_lists_unknown_total", "counter", "", CLIENT(lists_unknown),
     "Pushes whose list their shard did not have; they were sent again."},
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
                           "From the end of a step to that of the next.");
    weft_exposition_hist(text, "weft_step_seconds", NULL, &stats->step_ns);
    weft_exposition_family(text, "weft_rpc_latency_seconds", "histogram",
                           "Where the time of RPCs went, as the worker has it.");
    add_rpc_latencies(text, "push", &stats->push);
    add_rpc_latencies(text, "pull", &stats->pull);
}

/* ---- how old it is ----------------------------------------------------------------------------- */

void weft_metrics_text_ages(struct weft_exposition *text)
{
    weft_exposition_family(text, "weft_snapshot_age_seconds", "gauge",
                           "Since the figures were copied; a busy thread gives them later.");
}

void weft_metrics_text_age(struct weft_exposition *text, const char *labels, uint64_t age_ns)
{
    weft_exposition_real(text, "weft_snapshot_age_seconds", labels, (double)age_ns / 1e9);
}
