/* The ring of records: off, filled, overwritten; and the records of two endpoints. */
#include "../lib/datagram_net.h"
#include "core/trace.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RING = 64, RECORDS = 1024 };

static struct net net;

static void pair_init(uint32_t records)
{
    net_init(&net, 1);
    for (unsigned i = 0; i < 2; i++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.seed = i + 1;
        config.incarnation = i + 1;
        config.name = i + 7;
        config.accept = 1;
        config.trace_records = records;
        assert_int_equal(weft_ep_new(&config, &net.end[i].ep), WEFT_OK);
        net.end[i].msgr = weft_ep_msgr(net.end[i].ep);
        net.end[i].addr = (struct weft_addr){.bytes = {(uint8_t)(i + 1)}, .bytes_used = 1};
    }
}

static void pair_fini(void)
{
    weft_ep_free(net.end[0].ep);
    weft_ep_free(net.end[1].ep);
    net_fini(&net);
}

static void transfer(void)
{
    static float source[30000];
    static float target[30000];
    weft_peer peer;
    weft_expect_id id;
    uint64_t seq;
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .memory = target,
                                     .memory_bytes = sizeof(target),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    assert_int_equal(net_msg_expect(&net, 1, &expect, &id), WEFT_OK);
    assert_int_equal(weft_ep_connect(net.end[0].ep, &net.end[1].addr, net.now_ns, &peer), WEFT_OK);
    net_run(&net, WEFT_NS_PER_MS / 10);
    struct weft_msg_send send = {.peer = peer,
                                 .base = source,
                                 .total = 30000,
                                 .elem_bytes = 4,
                                 .tag = UINT64_C(0x1122334455667788),
                                 .deadline_ns = WEFT_NEVER};
    assert_int_equal(net_msg_send(&net, 0, &send, &seq), WEFT_OK);
    net_run(&net, 2 * WEFT_NS_PER_MS);
    assert_int_equal(weft_ep_counters(net.end[0].ep)->messages_sent, 1);
}

static size_t read_all(struct weft_ep *ep, struct weft_trace_record *records, uint64_t *missed_p)
{
    uint64_t from = 0;
    return weft_ep_trace_read(ep, &from, records, RECORDS, missed_p);
}

static uint64_t count(const struct weft_trace_record *records, size_t n, enum weft_trace_type type)
{
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        found += records[i].type == type;
    }
    return found;
}

static const struct weft_trace_record *first(const struct weft_trace_record *records, size_t n,
                                             enum weft_trace_type type)
{
    for (size_t i = 0; i < n; i++) {
        if (records[i].type == type) {
            return &records[i];
        }
    }
    fail_msg("no record of type %d", (int)type);
    return NULL;
}

static void test_off(void **state)
{
    (void)state;
    struct weft_trace_record records[4];
    uint64_t missed = 7;
    uint64_t from = 0;
    pair_init(0);
    transfer();
    assert_int_equal(weft_ep_trace_written(net.end[0].ep), 0);
    assert_int_equal(weft_ep_trace_read(net.end[0].ep, &from, records, 4, &missed), 0);
    assert_int_equal(missed, 0);
    pair_fini();
}

static void test_a_message(void **state)
{
    (void)state;
    static struct weft_trace_record records[RECORDS];
    uint64_t missed;
    pair_init(RECORDS);
    transfer();
    size_t n = read_all(net.end[0].ep, records, &missed);
    const struct weft_ep_counters *c = weft_ep_counters(net.end[0].ep);
    assert_int_equal(missed, 0);
    assert_int_equal(n, weft_ep_trace_written(net.end[0].ep));
    assert_int_equal(count(records, n, WEFT_TRACE_PACKET_SENT) +
                         count(records, n, WEFT_TRACE_HANDSHAKE_SENT),
                     c->datagrams_sent);
    assert_int_equal(count(records, n, WEFT_TRACE_PACKET_RECEIVED) +
                         count(records, n, WEFT_TRACE_HANDSHAKE_RECEIVED),
                     c->datagrams_received);
    const struct weft_trace_record *r = first(records, n, WEFT_TRACE_MSG_OPENED);
    assert_int_equal(r->number, 1);
    assert_int_equal(r->flags, WEFT_TRACE_OUTGOING);
    assert_int_equal(r->a, 86); /* 30,000 floats in chunks of 352 */
    assert_int_equal(r->c, 1408);
    r = first(records, n, WEFT_TRACE_MSG_TAG);
    assert_int_equal(r->a, 0x11223344);
    assert_int_equal(r->b, 0x55667788);
    assert_int_equal(r->c, 30000);
    r = first(records, n, WEFT_TRACE_MSG_CLOSED);
    assert_int_equal(r->flags, WEFT_TRACE_OUTGOING | WEFT_MSG_COMPLETE << 1);
    assert_int_equal(r->a, 86);
    assert_int_equal(first(records, n, WEFT_TRACE_PEER_UP)->number, 8);
    n = read_all(net.end[1].ep, records, &missed);
    r = first(records, n, WEFT_TRACE_MSG_CLOSED);
    assert_int_equal(r->flags, WEFT_TRACE_INCOMING | WEFT_MSG_COMPLETE << 1);
    assert_int_equal(first(records, n, WEFT_TRACE_DONE_SENT)->a, 86);
    for (size_t i = 1; i < n; i++) {
        assert_true(records[i - 1].time_ns <= records[i].time_ns);
    }
    pair_fini();
}

static void test_overwritten(void **state)
{
    (void)state;
    struct weft_trace_record records[RECORDS];
    uint64_t missed;
    uint64_t from = 0;
    pair_init(RING);
    transfer();
    uint64_t written = weft_ep_trace_written(net.end[1].ep);
    assert_true(written > RING);
    size_t n = weft_ep_trace_read(net.end[1].ep, &from, records, 10, &missed);
    assert_int_equal(n, 10);
    assert_int_equal(missed, written - RING);
    assert_int_equal(from, written - RING + 10);
    n = weft_ep_trace_read(net.end[1].ep, &from, records, RECORDS, &missed);
    assert_int_equal(n, RING - 10);
    assert_int_equal(missed, 0);
    assert_int_equal(weft_ep_trace_read(net.end[1].ep, &from, records, RECORDS, &missed), 0);
    pair_fini();
}

static void test_drops(void **state)
{
    (void)state;
    static struct weft_trace_record records[RECORDS];
    uint64_t missed;
    pair_init(RING);
    uint8_t short_one[] = {WEFT_WIRE_VERSION << 4};
    uint8_t stranger[] = {0x30};
    for (unsigned i = 0; i < 3; i++) {
        net_deliver(&net, &net.end[1], &net.end[0].addr, short_one, 1);
    }
    net_deliver(&net, &net.end[1], &net.end[0].addr, stranger, 1);
    size_t n = read_all(net.end[1].ep, records, &missed);
    uint64_t packets = 0;
    uint64_t versions = 0;
    for (size_t i = 0; i < n; i++) {
        if (records[i].type == WEFT_TRACE_DROPPED) {
            packets += records[i].flags == WEFT_TRACE_DROP_bad_packet ? records[i].a : 0;
            versions += records[i].flags == WEFT_TRACE_DROP_bad_version ? records[i].a : 0;
        }
    }
    assert_int_equal(packets, 3);
    assert_int_equal(versions, 1);
    /* missed records are reported once */
    assert_int_equal(read_all(net.end[1].ep, records, &missed), n);
    pair_fini();
}

static void test_config(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {1, 63, 65, 100, WEFT_TRACE_RECORDS_MAX + 1};
    struct weft_ep *ep;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.trace_records = wrong[i];
        assert_int_equal(weft_ep_new(&config, &ep), WEFT_INVALID);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_null(weft_trace_type_name(WEFT_TRACE_NONE));
    assert_string_equal(weft_trace_type_name(WEFT_TRACE_PACKET_SENT), "packet_sent");
    assert_string_equal(weft_trace_type_name(WEFT_TRACE_DROPPED), "dropped");
    assert_null(weft_trace_type_name(WEFT_TRACE_TYPE_END));
    assert_string_equal(weft_trace_drop_name(WEFT_TRACE_DROP_bad_key), "bad_key");
    assert_null(weft_trace_drop_name(WEFT_TRACE_DROP_END));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),         cmocka_unit_test(test_a_message),
        cmocka_unit_test(test_overwritten), cmocka_unit_test(test_drops),
        cmocka_unit_test(test_config),      cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("core_trace", tests, NULL, NULL);
}
