/* The binary interface of soname libweft.so.0 on 64-bit Linux, written down: sizes, offsets and
 * values as programs have them compiled in. A line here changes only together with the soname; a
 * struct that grew gets a new last line and a new size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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
    SIZE(weft_transport_config, 120);

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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_are_where_programs_have_them),
        cmocka_unit_test(values_are_as_programs_have_them),
    };
    return cmocka_run_group_tests_name("api_abi", tests, NULL, NULL);
}
