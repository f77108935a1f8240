/* The binary interface of soname libweft.so.0 on 64-bit Linux: sizes, offsets and values that are
 * compiled into programs. A line here changes only together with the soname; a struct that grew
 * gets a new last line and a new size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <weft/fabric.h>
#include <weft/ps.h>
#include <weft/transport.h>

#define AT(type, field, offset) assert_int_equal(offsetof(struct type, field), offset)
#define SIZE(type, bytes)       assert_int_equal(sizeof(struct type), bytes)

static void structs_are_where_programs_have_them(void **state)
{
    (void)state;
    if (sizeof(void *) != 8) {
        print_message("the table is of 64-bit hosts\n");
        skip();
    }
    AT(weft_transport_config, host, 8);
    AT(weft_transport_config, key_file, 16);
    AT(weft_transport_config, key, 24);
    AT(weft_transport_config, security, 32);
    AT(weft_transport_config, port, 36);
    AT(weft_transport_config, accept, 38);
    AT(weft_transport_config, thread, 39);
    AT(weft_transport_config, peers_max, 40);
    AT(weft_transport_config, receives_max, 44);
    AT(weft_transport_config, message_bytes_max, 48);
    AT(weft_transport_config, packet_bytes, 56);
    AT(weft_transport_config, senders_expected, 60);
    AT(weft_transport_config, name, 64);
    AT(weft_transport_config, peer_timeout_ns, 72);
    AT(weft_transport_config, congestion, 80);
    AT(weft_transport_config, socket_buffer_bytes, 88);
    AT(weft_transport_config, busy_poll_us, 92);
    AT(weft_transport_config, inject_loss_ppm, 96);
    AT(weft_transport_config, inject_seed, 100);
    AT(weft_transport_config, keepalive_ns, 104);
    AT(weft_transport_config, idle_timeout_ns, 112);
    AT(weft_transport_config, metrics, 120);
    SIZE(weft_transport_config, 128);

    AT(weft_transport_send, data, 8);
    AT(weft_transport_send, elements, 16);
    AT(weft_transport_send, peer, 20);
    AT(weft_transport_send, bound_ppm, 24);
    AT(weft_transport_send, elem_bytes, 28);
    AT(weft_transport_send, priority, 30);
    AT(weft_transport_send, critical, 32);
    AT(weft_transport_send, critical_count, 40);
    AT(weft_transport_send, tag, 48);
    AT(weft_transport_send, timeout_ns, 56);
    AT(weft_transport_send, user, 64);
    SIZE(weft_transport_send, 72);

    AT(weft_transport_receive, memory, 8);
    AT(weft_transport_receive, memory_bytes, 16);
    AT(weft_transport_receive, tag, 24);
    AT(weft_transport_receive, tag_mask, 32);
    AT(weft_transport_receive, peer, 40);
    AT(weft_transport_receive, sink, 44);
    AT(weft_transport_receive, timeout_ns, 48);
    AT(weft_transport_receive, user, 56);
    SIZE(weft_transport_receive, 64);

    AT(weft_transport_event, type, 8);
    AT(weft_transport_event, peer, 12);
    AT(weft_transport_event, user, 16);
    AT(weft_transport_event, tag, 24);
    AT(weft_transport_event, outcome, 32);
    AT(weft_transport_event, down, 36);
    AT(weft_transport_event, name, 40);
    AT(weft_transport_event, incarnation, 48);
    AT(weft_transport_event, mask, 56);
    SIZE(weft_transport_event, 88);

    AT(weft_mask, elements, 8);
    AT(weft_mask, elem_bytes, 12);
    AT(weft_mask, chunk_elems, 16);
    AT(weft_mask, chunks, 20);
    AT(weft_mask, chunks_received, 24);
    SIZE(weft_mask, 32);
    AT(weft_range, count, 4);
    SIZE(weft_range, 8);

    AT(weft_transport_counters, datagrams_sent, 8);
    AT(weft_transport_counters, unauthentic_packets, 152);
    SIZE(weft_transport_counters, 160);
}

static void structs_of_the_parameter_server(void **state)
{
    (void)state;
    if (sizeof(void *) != 8) {
        print_message("the table is of 64-bit hosts\n");
        skip();
    }
    AT(weft_ps_config, servers, 8);
    AT(weft_ps_config, key_file, 16);
    AT(weft_ps_config, key, 24);
    AT(weft_ps_config, security, 32);
    AT(weft_ps_config, worker, 36);
    AT(weft_ps_config, workers, 40);
    AT(weft_ps_config, thread, 44);
    AT(weft_ps_config, transport, 48);
    AT(weft_ps_config, host, 56);
    AT(weft_ps_config, tables_max, 64);
    AT(weft_ps_config, dim_max, 68);
    AT(weft_ps_config, ops_max, 72);
    AT(weft_ps_config, rows_max, 76);
    AT(weft_ps_config, missed_max, 80);
    AT(weft_ps_config, busy_poll_us, 84);
    AT(weft_ps_config, connect_timeout_ns, 88);
    AT(weft_ps_config, peer_timeout_ns, 96);
    AT(weft_ps_config, keepalive_ns, 104);
    AT(weft_ps_config, inject_loss_ppm, 112);
    AT(weft_ps_config, inject_seed, 116);
    AT(weft_ps_config, lists_max, 120);
    AT(weft_ps_config, coordinator, 128);
    AT(weft_ps_config, reconnect_timeout_ns, 136);
    AT(weft_ps_config, records, 144);
    AT(weft_ps_config, replay_bytes, 152);
    AT(weft_ps_config, call_timeout_ns, 160);
    AT(weft_ps_config, metrics, 168);
    AT(weft_ps_config, via, 176);
    AT(weft_ps_config, scheduler, 184);
    AT(weft_ps_config, consistency, 192);
    AT(weft_ps_config, tau_max, 200);
    AT(weft_ps_config, update_bytes_min, 208);
    AT(weft_ps_config, rack, 216);
    AT(weft_ps_config, hot_rows, 224);
    AT(weft_ps_config, replicas, 232);
    AT(weft_ps_config, link_mbps, 240);
    SIZE(weft_ps_config, 248);

    AT(weft_table_options, name, 8);
    AT(weft_table_options, optimizer, 16);
    AT(weft_table_options, consistency, 24);
    AT(weft_table_options, admission, 32);
    AT(weft_table_options, eviction, 40);
    AT(weft_table_options, not_finite, 48);
    AT(weft_table_options, init_seed, 56);
    AT(weft_table_options, bytes_max, 64);
    AT(weft_table_options, length, 72);
    AT(weft_table_options, number, 80);
    AT(weft_table_options, dim, 84);
    AT(weft_table_options, workers, 88);
    AT(weft_table_options, init_skip, 92);
    AT(weft_table_options, admission_count, 96);
    AT(weft_table_options, admission_cells, 100);
    AT(weft_table_options, ttl, 104);
    AT(weft_table_options, rows_max, 108);
    AT(weft_table_options, learning_rate, 112);
    AT(weft_table_options, epsilon, 116);
    AT(weft_table_options, accumulator, 120);
    AT(weft_table_options, beta1, 124);
    AT(weft_table_options, beta2, 128);
    AT(weft_table_options, l1, 132);
    AT(weft_table_options, l2, 136);
    AT(weft_table_options, init_scale, 140);
    AT(weft_table_options, clip, 144);
    AT(weft_table_options, reserved, 148);
    AT(weft_table_options, average, 152);
    AT(weft_table_options, last_values_max, 160);
    AT(weft_table_options, feedback_rows, 164);
    AT(weft_table_options, deadline_ns, 168);
    AT(weft_table_options, value_type, 176);
    AT(weft_table_options, pull_value_type, 184);
    SIZE(weft_table_options, 192);

    AT(weft_op_options, bound_ppm, 8);
    AT(weft_op_options, reserved, 12);
    AT(weft_op_options, fill, 16);
    AT(weft_op_options, deadline_ns, 24);
    AT(weft_op_options, norm, 32);
    SIZE(weft_op_options, 40);

    AT(weft_ps_latency, w_proc_ns, 0);
    AT(weft_ps_latency, w_queue_ns, 8);
    AT(weft_ps_latency, ps_proc_ns, 16);
    AT(weft_ps_latency, ps_queue_ns, 24);
    AT(weft_ps_latency, n_tx_ns, 32);
    AT(weft_ps_latency, ps_overlap_ns, 40);
    AT(weft_ps_latency, ps_wait_ns, 48);
    SIZE(weft_ps_latency, 56);

    AT(weft_result, elements_sent, 8);
    AT(weft_result, elements_delivered, 16);
    AT(weft_result, rows_missed, 24);
    AT(weft_result, chunks_refused, 32);
    AT(weft_result, requests, 36);
    AT(weft_result, requests_short, 40);
    AT(weft_result, clock, 44);
    AT(weft_result, shard, 48);
    AT(weft_result, reserved, 52);
    AT(weft_result, latency, 56);
    AT(weft_result, requests_dropped, 112);
    SIZE(weft_result, 120);

    AT(weft_push_list, ids, 8);
    AT(weft_push_list, first, 16);
    AT(weft_push_list, rows, 24);
    AT(weft_push_list, n, 32);
    SIZE(weft_push_list, 40);
    AT(weft_pull_list, ids, 8);
    AT(weft_pull_list, first, 16);
    AT(weft_pull_list, rows_p, 24);
    AT(weft_pull_list, n, 32);
    SIZE(weft_pull_list, 40);

    AT(weft_ps_counters, push_messages, 8);
    AT(weft_ps_counters, injected_drops, 176);
    AT(weft_ps_counters, pushes_lost, 200);
    AT(weft_ps_counters, replay_bytes_now, 216);
    AT(weft_ps_counters, pushes_skipped, 224);
    AT(weft_ps_counters, last_values_evicted, 232);
    AT(weft_ps_counters, feedback_dropped, 264);
    AT(weft_ps_counters, deadlines_expired, 272);
    AT(weft_ps_counters, residual_dropped, 280);
    AT(weft_ps_counters, value_bytes_saved, 288);
    AT(weft_ps_counters, updates, 296);
    AT(weft_ps_counters, pushes_late, 328);
    SIZE(weft_ps_counters, 336);
}

static void structs_of_servers_of_users(void **state)
{
    (void)state;
    if (sizeof(void *) != 8) {
        print_message("the table is of 64-bit hosts\n");
        skip();
    }
    AT(weft_fabric_server_config, host, 8);
    AT(weft_fabric_server_config, key_file, 16);
    AT(weft_fabric_server_config, key, 24);
    AT(weft_fabric_server_config, security, 32);
    AT(weft_fabric_server_config, port, 36);
    AT(weft_fabric_server_config, shards, 40);
    AT(weft_fabric_server_config, shard_first, 44);
    AT(weft_fabric_server_config, shards_total, 48);
    AT(weft_fabric_server_config, workers, 52);
    AT(weft_fabric_server_config, tables_max, 56);
    AT(weft_fabric_server_config, rows_max, 60);
    AT(weft_fabric_server_config, dim_max, 64);
    AT(weft_fabric_server_config, reserved, 68);
    AT(weft_fabric_server_config, transport, 72);
    AT(weft_fabric_server_config, scheduler, 80);
    AT(weft_fabric_server_config, tau_max, 88);
    AT(weft_fabric_server_config, update, 96);
    AT(weft_fabric_server_config, request, 104);
    AT(weft_fabric_server_config, committed, 112);
    AT(weft_fabric_server_config, user, 120);
    AT(weft_fabric_server_config, div_max, 128);
    AT(weft_fabric_server_config, replica_of, 136);
    AT(weft_fabric_server_config, replicas, 144);
    AT(weft_fabric_server_config, link_mbps, 152);
    SIZE(weft_fabric_server_config, 160);

    AT(weft_fabric_update, id, 0);
    AT(weft_fabric_update, shard, 8);
    AT(weft_fabric_update, table, 12);
    AT(weft_fabric_update, column, 16);
    AT(weft_fabric_update, count, 20);
    AT(weft_fabric_update, gradient, 24);
    AT(weft_fabric_update, weights, 32);
    AT(weft_fabric_update, state, 40);
    AT(weft_fabric_update, states, 48);
    AT(weft_fabric_update, stride, 52);
    AT(weft_fabric_request, values, 24);
    AT(weft_fabric_request, state, 32);
    AT(weft_fabric_request, stride, 40);
    AT(weft_fabric_request, exists, 44);
    AT(weft_fabric_committed, worker, 4);
    AT(weft_fabric_committed, clock, 8);
    AT(weft_fabric_committed, late, 48);
    AT(weft_fabric_committed, norm, 56);
    AT(weft_fabric_server_counters, pushes, 8);
    AT(weft_fabric_server_counters, updates_late, 64);
    SIZE(weft_fabric_server_counters, 72);
    AT(weft_fabric_replication, shards, 8);
    AT(weft_fabric_replication, ready, 12);
    AT(weft_fabric_replication, is_replica, 16);
    AT(weft_fabric_replication, divergence, 24);
    AT(weft_fabric_replication, divergence_max, 32);
    AT(weft_fabric_replication, transfers, 40);
    AT(weft_fabric_replication, bytes, 48);
    AT(weft_fabric_replication, holds, 56);
    SIZE(weft_fabric_replication, 64);
}

/* Programs of other releases: fields that they lack are not written, fields unknown here are
 * refused. */
static void structs_of_another_size(void **state)
{
    (void)state;
    struct {
        struct weft_ps_config config;
        uint64_t later[2];
    } newer;
    struct weft_ps *ps = NULL;
    weft_ps_config_init(&newer.config, sizeof(newer));
    assert_int_equal(newer.config.size, sizeof(newer));
    assert_true(newer.later[0] == 0 && newer.later[1] == 0);
    newer.config.servers = "nowhere";
    assert_int_equal(weft_ps_connect(&newer.config, &ps), WEFT_INVALID);
    newer.later[1] = 1;
    assert_int_equal(weft_ps_connect(&newer.config, &ps), WEFT_UNSUPPORTED);
    newer.config.size = sizeof(newer.config) - 1;
    assert_int_equal(weft_ps_connect(&newer.config, &ps), WEFT_INVALID);
}

static void values_are_as_programs_have_them(void **state)
{
    (void)state;
    assert_int_equal(WEFT_OK, 0);
    assert_int_equal(WEFT_AGAIN, 1);
    assert_int_equal(WEFT_INVALID, 2);
    assert_int_equal(WEFT_STATE, 3);
    assert_int_equal(WEFT_NOMEM, 4);
    assert_int_equal(WEFT_PROTO, 5);
    assert_int_equal(WEFT_NOTFOUND, 6);
    assert_int_equal(WEFT_EXISTS, 7);
    assert_int_equal(WEFT_IO, 8);
    assert_int_equal(WEFT_DATA, 9);
    assert_int_equal(WEFT_PEER, 10);
    assert_int_equal(WEFT_TIMEOUT, 11);
    assert_int_equal(WEFT_UNSUPPORTED, 12);
    assert_int_equal(WEFT_DROPPED, 13);
    assert_int_equal(WEFT_TRANSPORT_COPY, 0);
    assert_int_equal(WEFT_TRANSPORT_ADD, 1);
    assert_int_equal(WEFT_TRANSPORT_UP, 1);
    assert_int_equal(WEFT_TRANSPORT_DOWN, 2);
    assert_int_equal(WEFT_TRANSPORT_SENT, 3);
    assert_int_equal(WEFT_TRANSPORT_RECEIVED, 4);
    assert_int_equal(WEFT_TRANSPORT_COMPLETE, 0);
    assert_int_equal(WEFT_TRANSPORT_SHORT, 1);
    assert_int_equal(WEFT_TRANSPORT_UNKNOWN, 2);
    assert_int_equal(WEFT_TRANSPORT_DOWN_CLOSED, 1);
    assert_int_equal(WEFT_TRANSPORT_DOWN_NO_ANSWER, 2);
    assert_int_equal(WEFT_TRANSPORT_DOWN_SILENT, 3);
    assert_int_equal(WEFT_TRANSPORT_DOWN_PROTOCOL, 4);
    assert_int_equal(WEFT_TRANSPORT_DOWN_LOCAL, 5);
    assert_int_equal(WEFT_TRANSPORT_DOWN_RESTARTED, 6);
    assert_int_equal(WEFT_TRANSPORT_DOWN_CRYPTO, 7);
    assert_int_equal(WEFT_TRANSPORT_DOWN_IDLE, 8);

    assert_int_equal(WEFT_TRANSPORT_AUTH, 0);
    assert_int_equal(WEFT_TRANSPORT_SEAL, 1);
    assert_int_equal(WEFT_TRANSPORT_NONE, 2);
    assert_int_equal(WEFT_GRAIN, 32);
    assert_true(WEFT_NEVER == UINT64_MAX);
    assert_true(WEFT_PEER_ANY == UINT32_MAX);
    assert_true(WEFT_PS_WORKER_ENVIRONMENT == UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_are_where_programs_have_them),
        cmocka_unit_test(structs_of_the_parameter_server),
        cmocka_unit_test(structs_of_servers_of_users),
        cmocka_unit_test(structs_of_another_size),
        cmocka_unit_test(values_are_as_programs_have_them),
    };
    return cmocka_run_group_tests_name("api_abi", tests, NULL, NULL);
}
