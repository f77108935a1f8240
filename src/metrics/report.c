#include "metrics/report.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* ---- counters -------------------------------------------------------------------------------- */

struct counter {
    const char *name;
    size_t at; /* offset of a uint64_t */
};

#define COUNTER(type, prefix, field) {prefix #field, offsetof(struct type, field)}

/* Both count datagrams and bytes; the socket's counts are complete. */
#define UDP(field) {#field, offsetof(struct weft_driver_counters, socket.field)}
#define EP(field)  {#field, offsetof(struct weft_driver_counters, ep.field)}

static const struct counter transport_counters[] = {
    UDP(datagrams_received), UDP(injected_drops), UDP(bytes_received), UDP(buffers_received),
    UDP(truncated), UDP(kernel_drops), UDP(datagrams_sent), UDP(bytes_sent), UDP(bursts_sent),
    UDP(send_dropped), UDP(send_blocked), UDP(gso_refused), UDP(socket_errors), UDP(unreached),
    UDP(recv_calls), UDP(send_calls), UDP(sleeps),
    EP(data_sent), EP(data_received), EP(retransmitted_packets), EP(lost_packets),
    EP(spurious_losses), EP(probes), EP(ce_received), EP(queue_waits), EP(messages_sent),
    EP(messages_short), EP(messages_unknown), EP(messages_shared), EP(chunks_missing), EP(duplicate_packets),
    EP(duplicate_chunks), EP(late_chunks), EP(no_memory), EP(bad_short), EP(bad_version),
    EP(bad_class), EP(bad_peer), EP(bad_packet), EP(bad_range), EP(bad_ack), EP(old_packets),
    EP(hello_refused), EP(closed_packets), EP(mtu_probes), EP(mtu_raised), EP(mtu_black_holes),
    EP(mtu_too_big), EP(ecn_failed), EP(path_challenges), EP(path_changes), EP(bad_tag),
    EP(bad_mode), EP(bad_key), EP(refused), EP(unknown_received), EP(unknown_sent),
    EP(cookies_sent), EP(rekeys), EP(crypto_failures),
    {"messages", offsetof(struct weft_driver_counters, ep.messages_received)},
};

#define SHARD(field) COUNTER(weft_shard_counters, "shard_", field)

static const struct counter shard_counters[] = {
    SHARD(pushes), SHARD(pulls), SHARD(clocks), SHARD(replies), SHARD(replies_failed),
    SHARD(requests_short), SHARD(requests_stale), SHARD(chunks_applied), SHARD(chunks_refused),
    SHARD(elements_applied), SHARD(rows_pulled), SHARD(rows_absent), SHARD(rows_stepped),
    SHARD(rows_refused), SHARD(clocks_refused), SHARD(waits), SHARD(workers_refused),
    SHARD(lists_stored), SHARD(lists_refused), SHARD(lists_received), SHARD(lists_unknown),
    SHARD(ids_by_list), SHARD(peers_ignored), SHARD(journal_records), SHARD(journal_full), SHARD(journal_failed),
    SHARD(updates_opened), SHARD(updates_closed), SHARD(updates_late),
    SHARD(updates_delay_sum), SHARD(updates_delay_max),
    SHARD(hot_epochs), SHARD(hot_updates), SHARD(hot_updates_of),
};

#define TABLE(field) COUNTER(weft_shard_table_sums, "table_", field)

static const struct counter table_counters[] = {
    TABLE(rows),         TABLE(bytes),      TABLE(rows_created),         TABLE(rows_evicted),
    TABLE(rows_expired), TABLE(unadmitted), TABLE(unadmitted_forgotten), TABLE(not_finite),
};

#define CLIENT(field) COUNTER(weft_ps_client_counters, "client_", field)

static const struct counter client_counters[] = {
    CLIENT(clocks), CLIENT(clock_probes), CLIENT(replies_malformed),
    CLIENT(rpcs_refused), CLIENT(rpcs_failed),
    CLIENT(missed_first), CLIENT(missed_ids_dropped), CLIENT(deferred), CLIENT(pushes_skipped),
    CLIENT(packed), CLIENT(lists_stored), CLIENT(pushes_listed), CLIENT(list_bytes_saved),
    CLIENT(lists_unknown), CLIENT(lists_sent), CLIENT(value_bytes_saved), CLIENT(residual_dropped),
    CLIENT(updates), CLIENT(updates_direct), CLIENT(updates_dropped), CLIENT(pushes_dropped),
    CLIENT(pushes_late), CLIENT(hot_epochs), CLIENT(hot_refused), CLIENT(rows_hot), CLIENT(rows_cold),
    {"push_elements", offsetof(struct weft_ps_client_counters, push.elements_sent)},
    {"push_elements_delivered", offsetof(struct weft_ps_client_counters, push.elements_delivered)},
    {"pull_elements", offsetof(struct weft_ps_client_counters, pull.elements_sent)},
    {"pull_elements_delivered", offsetof(struct weft_ps_client_counters, pull.elements_delivered)},
};

#define SCHED(field) COUNTER(weft_sched_daemon_counters, "sched_", field)

static const struct counter sched_counters[] = {
    SCHED(asked), SCHED(granted), SCHED(dropped), SCHED(direct), SCHED(timeouts), SCHED(wait_ns),
    SCHED(plans_refused), SCHED(reads_waited), SCHED(reads_direct), SCHED(reads_wait_ns),
};

/* Of several processes the largest counts; of all others the sum. */
static bool is_maximum(const char *name)
{
    return strcmp(name, "shard_updates_delay_max") == 0;
}

static void add_number(cJSON *into, const char *name, double value)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(into, name);
    if (item == NULL) {
        cJSON_AddNumberToObject(into, name, value);
    } else {
        double most = item->valuedouble > value ? item->valuedouble : value;
        cJSON_SetNumberHelper(item, is_maximum(name) ? most : item->valuedouble + value);
    }
}

void weft_report_add(cJSON *into, const char *name, uint64_t value)
{
    add_number(into, name, (double)value);
}

static void add_counters(cJSON *into, const struct counter *list, size_t count, const void *from)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)from + list[i].at, sizeof(value));
        weft_report_add(into, list[i].name, value);
    }
}

void weft_report_add_transport(cJSON *into, const struct weft_driver_counters *counters)
{
    add_counters(into, transport_counters, WEFT_ARRAY_COUNT(transport_counters), counters);
}

void weft_report_add_shard(cJSON *into, const struct weft_shard_counters *shard)
{
    add_counters(into, shard_counters, WEFT_ARRAY_COUNT(shard_counters), shard);
}

void weft_report_add_tables(cJSON *into, const struct weft_shard_table_sums *tables)
{
    add_counters(into, table_counters, WEFT_ARRAY_COUNT(table_counters), tables);
}

void weft_report_add_replication(cJSON *into, const struct weft_replication *replication,
                                 const struct weft_replica_state *replica)
{
    weft_report_add(into, "replica_bytes", replication->bytes);
    weft_report_add(into, "replica_rows", replication->rows);
    weft_report_add(into, "replica_transfers", replication->transfers);
    weft_report_add(into, "replica_transfers_failed", replication->failed);
    weft_report_add(into, "replica_reply_delays", replication->holds);
    weft_report_add(into, "replicas_lost", replication->lost);
    weft_report_add(into, "replica_transfers_taken", replica->transfers);
    add_number(into, "divergence_max", replication->divergence_max);
}

void weft_report_add_client(cJSON *into, const struct weft_ps_client_counters *client)
{
    add_counters(into, client_counters, WEFT_ARRAY_COUNT(client_counters), client);
}

void weft_report_add_sched(cJSON *into, const struct weft_sched_daemon_counters *sched)
{
    if (sched != NULL) {
        add_counters(into, sched_counters, WEFT_ARRAY_COUNT(sched_counters), sched);
    }
}

weft_status weft_report_add_all(cJSON *into, const cJSON *from)
{
    if (!cJSON_IsObject(from)) {
        return WEFT_DATA;
    }
    for (const cJSON *item = from->child; item != NULL; item = item->next) {
        if (!cJSON_IsNumber(item)) {
            return WEFT_DATA;
        }
        add_number(into, item->string, item->valuedouble);
    }
    return WEFT_OK;
}

/* ---- latencies ------------------------------------------------------------------------------- */

#define PART(name, field, meaning) {name, meaning, offsetof(struct weft_ps_latencies, field)}

const char *const weft_report_kinds[WEFT_REPORT_KINDS] = {"push", "pull"};
const struct weft_report_part weft_report_parts[WEFT_REPORT_PARTS] = {
    PART("W_proc", w_proc, "worker: takes the reply in"),
    PART("W_queue", w_queue, "worker: the reply waits to be taken up"),
    PART("PS_proc", ps_proc, "server: works on the request"),
    PART("PS_queue", ps_queue, "server: request and reply wait"),
    PART("N_tx", n_tx, "network and transport, both ways"),
    PART("PS_wait", ps_wait, "server: waits for other workers"),
};

const struct weft_hist *weft_report_part(const struct weft_ps_latencies *of, unsigned part)
{
    return (const struct weft_hist *)((const char *)of + weft_report_parts[part].at);
}

cJSON *weft_report_pack_one(const struct weft_hist *hist)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "sum", (double)hist->sum);
    cJSON_AddNumberToObject(object, "max", (double)hist->max);
    cJSON *buckets = cJSON_AddArrayToObject(object, "buckets");
    for (size_t i = 0; i < WEFT_HIST_BUCKETS; i++) {
        if (hist->buckets[i] != 0) {
            cJSON_AddItemToArray(buckets, cJSON_CreateNumber((double)i));
            cJSON_AddItemToArray(buckets, cJSON_CreateNumber((double)hist->buckets[i]));
        }
    }
    return object;
}

/* {"push": {"W_proc": ...}}: the result of `part_of` for each histogram. */
static cJSON *each_part(const struct weft_ps_latencies *const of[WEFT_REPORT_KINDS],
                        cJSON *(*part_of)(const struct weft_hist *hist))
{
    cJSON *object = cJSON_CreateObject();
    for (unsigned kind = 0; kind < WEFT_REPORT_KINDS; kind++) {
        cJSON *parts = cJSON_AddObjectToObject(object, weft_report_kinds[kind]);
        for (unsigned part = 0; part < WEFT_REPORT_PARTS; part++) {
            cJSON_AddItemToObject(parts, weft_report_parts[part].name,
                                  part_of(weft_report_part(of[kind], part)));
        }
    }
    return object;
}

cJSON *weft_report_pack(const struct weft_ps_latencies *const of[WEFT_REPORT_KINDS])
{
    return each_part(of, weft_report_pack_one);
}

/* JSON numbers are doubles: exact for integers up to this. Counts and nanoseconds of a run stay
 * far below. */
static const double whole_max = 9007199254740992.0;

static bool whole(const cJSON *item, double max, uint64_t *value_p)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0 && item->valuedouble <= max)) {
        return false;
    }
    *value_p = (uint64_t)item->valuedouble;
    return true;
}

weft_status weft_report_unpack_one_add(const cJSON *object, struct weft_hist *hist)
{
    static struct weft_hist one; /* 15 KB; only one thread merges */
    memset(&one, 0, sizeof(one));
    const cJSON *buckets = cJSON_GetObjectItemCaseSensitive(object, "buckets");
    if (!cJSON_IsArray(buckets) ||
        !whole(cJSON_GetObjectItemCaseSensitive(object, "sum"), whole_max, &one.sum) ||
        !whole(cJSON_GetObjectItemCaseSensitive(object, "max"), whole_max, &one.max)) {
        return WEFT_DATA;
    }
    for (const cJSON *index = buckets->child; index != NULL; index = index->next->next) {
        uint64_t i;
        uint64_t n;
        if (!whole(index, WEFT_HIST_BUCKETS - 1, &i) || index->next == NULL ||
            !whole(index->next, whole_max, &n)) {
            return WEFT_DATA;
        }
        one.buckets[i] += n;
        one.count += n;
    }
    weft_hist_merge(hist, &one);
    return WEFT_OK;
}

weft_status weft_report_unpack_add(const cJSON *object,
                                   struct weft_ps_latencies of[WEFT_REPORT_KINDS])
{
    weft_status status = WEFT_OK;
    for (unsigned i = 0; status == WEFT_OK && i < WEFT_REPORT_KINDS * WEFT_REPORT_PARTS; i++) {
        unsigned kind = i / WEFT_REPORT_PARTS;
        const struct weft_report_part *part = &weft_report_parts[i % WEFT_REPORT_PARTS];
        const cJSON *parts = cJSON_GetObjectItemCaseSensitive(object, weft_report_kinds[kind]);
        status = weft_report_unpack_one_add(cJSON_GetObjectItemCaseSensitive(parts, part->name),
                                            (struct weft_hist *)((char *)&of[kind] + part->at));
    }
    return status;
}

static cJSON *two_quantiles_us(const struct weft_hist *hist)
{
    cJSON *two = cJSON_CreateObject();
    cJSON_AddNumberToObject(two, "p50",
                            (double)weft_hist_quantile(hist, 500000) / (double)WEFT_NS_PER_US);
    cJSON_AddNumberToObject(two, "p99",
                            (double)weft_hist_quantile(hist, 990000) / (double)WEFT_NS_PER_US);
    return two;
}

cJSON *weft_report_quantiles_us(const struct weft_ps_latencies *const of[WEFT_REPORT_KINDS])
{
    return each_part(of, two_quantiles_us);
}
