#include "cli/counters.h"

void weft_counters_add(cJSON *into, const char *name, uint64_t value)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(into, name);
    if (item == NULL) {
        cJSON_AddNumberToObject(into, name, (double)value);
    } else {
        cJSON_SetNumberHelper(item, item->valuedouble + (double)value);
    }
}

void weft_counters_add_transport(cJSON *into, const struct weft_driver_counters *counters)
{
    const struct weft_udp_counters *udp = &counters->socket;
    const struct weft_ep_counters *ep = &counters->ep;
    /* Both count datagrams and bytes; the socket's counts are the whole truth. */
#define UDP(name) weft_counters_add(into, #name, udp->name)
    UDP(datagrams_received);
    UDP(injected_drops);
    UDP(bytes_received);
    UDP(buffers_received);
    UDP(truncated);
    UDP(kernel_drops);
    UDP(datagrams_sent);
    UDP(bytes_sent);
    UDP(bursts_sent);
    UDP(send_dropped);
    UDP(send_blocked);
    UDP(gso_refused);
    UDP(socket_errors);
    UDP(unreached);
    UDP(recv_calls);
    UDP(send_calls);
    UDP(sleeps);
#undef UDP
#define EP(name) weft_counters_add(into, #name, ep->name)
    EP(data_sent);
    EP(data_received);
    EP(retransmitted_packets);
    EP(lost_packets);
    EP(spurious_losses);
    EP(probes);
    EP(ce_received);
    EP(queue_waits);
    EP(messages_sent);
    EP(messages_short);
    EP(messages_unknown);
    EP(chunks_missing);
    EP(duplicate_packets);
    EP(duplicate_chunks);
    EP(late_chunks);
    EP(no_memory);
    EP(bad_short);
    EP(bad_version);
    EP(bad_class);
    EP(bad_peer);
    EP(bad_packet);
    EP(bad_range);
    EP(bad_ack);
    EP(old_packets);
    EP(hello_refused);
    EP(closed_packets);
    EP(mtu_probes);
    EP(mtu_raised);
    EP(mtu_black_holes);
    EP(mtu_too_big);
    EP(ecn_failed);
    EP(path_challenges);
    EP(path_changes);
    EP(bad_tag);
    EP(bad_mode);
    EP(bad_key);
    EP(refused);
    EP(unknown_received);
    EP(unknown_sent);
    EP(cookies_sent);
    EP(rekeys);
    EP(crypto_failures);
#undef EP
    weft_counters_add(into, "messages", ep->messages_received);
}

void weft_counters_add_shard(cJSON *into, const struct weft_shard_counters *shard)
{
#define SHARD(name) weft_counters_add(into, "shard_" #name, shard->name)
    SHARD(pushes);
    SHARD(pulls);
    SHARD(clocks);
    SHARD(replies);
    SHARD(replies_failed);
    SHARD(requests_short);
    SHARD(requests_stale);
    SHARD(chunks_applied);
    SHARD(chunks_refused);
    SHARD(elements_applied);
    SHARD(rows_pulled);
    SHARD(rows_absent);
    SHARD(rows_stepped);
    SHARD(rows_refused);
    SHARD(clocks_refused);
    SHARD(waits);
    SHARD(workers_refused);
    SHARD(peers_ignored);
    SHARD(journal_records);
    SHARD(journal_full);
    SHARD(journal_failed);
#undef SHARD
}

void weft_counters_add_tables(cJSON *into, const struct weft_shard_table_sums *tables)
{
#define TABLE(name) weft_counters_add(into, "table_" #name, tables->name)
    TABLE(rows);
    TABLE(bytes);
    TABLE(rows_made);
    TABLE(rows_evicted);
    TABLE(rows_expired);
    TABLE(unadmitted);
    TABLE(unadmitted_forgotten);
    TABLE(not_finite);
#undef TABLE
}

void weft_counters_add_client(cJSON *into, const struct weft_ps_client_counters *client)
{
#define CLIENT(name) weft_counters_add(into, "client_" #name, client->name)
    CLIENT(clocks);
    CLIENT(gates);
    CLIENT(replies_bad);
    CLIENT(rpcs_refused);
    CLIENT(rpcs_failed);
    CLIENT(missed_first);
    CLIENT(missed_forgotten);
    CLIENT(again);
    CLIENT(pushes_passed);
#undef CLIENT
    weft_counters_add(into, "push_elements", client->push.elements_sent);
    weft_counters_add(into, "push_elements_delivered", client->push.elements_delivered);
    weft_counters_add(into, "pull_elements", client->pull.elements_sent);
    weft_counters_add(into, "pull_elements_delivered", client->pull.elements_delivered);
}
