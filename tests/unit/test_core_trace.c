/* The ring of records: off, filled, overwritten; and what two endpoints write into it. */
#include "core/trace.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RING = 64, RECORDS = 1024 };

struct pair {
    struct weft_ep *ep[2];
    uint64_t now_ns;
};

static struct weft_addr addr_of(unsigned i)
{
    return (struct weft_addr){.bytes = {(uint8_t)(i + 1)}, .bytes_used = 1};
}

static void pair_init(struct pair *p, uint32_t records)
{
    for (unsigned i = 0; i < 2; i++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.seed = i + 1;
        config.incarnation = i + 1;
        config.name = i + 7;
        config.accept = 1;
        config.trace_records = records;
        assert_int_equal(weft_ep_new(&config, &p->ep[i]), WEFT_OK);
    }
    p->now_ns = WEFT_NS_PER_S;
}

static void pair_fini(struct pair *p)
{
    weft_ep_free(p->ep[0]);
    weft_ep_free(p->ep[1]);
}

/* What one sends the other gets, 10 us later. */
static void carry(struct pair *p, unsigned from)
{
    static struct weft_tx tx;
    uint8_t bytes[65536];
    struct weft_msg_event event;
    struct weft_addr addr = addr_of(from);
    while (weft_ep_send(p->ep[from], p->now_ns, &tx) > 0) {
        size_t have = 0;
        for (uint32_t i = 0; i < tx.iov_count; i++) {
            memcpy(bytes + have, tx.iov[i].base, tx.iov[i].bytes);
            have += tx.iov[i].bytes;
        }
        for (size_t at = 0; at < have; at += tx.seg_bytes) {
            size_t count = have - at < tx.seg_bytes ? have - at : tx.seg_bytes;
            weft_ep_recv(p->ep[1 - from], &addr, WEFT_ECN_ECT0, bytes + at, count, p->now_ns,
                         p->now_ns);
            struct weft_msgr m = weft_ep_msgr(p->ep[1 - from]);
            while (m.ops->poll(m.self, &event)) {
            }
        }
    }
    struct weft_msgr m = weft_ep_msgr(p->ep[from]);
    while (m.ops->poll(m.self, &event)) {
    }
}

static void run(struct pair *p, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        p->now_ns += 10 * WEFT_NS_PER_US;
        carry(p, 0);
        carry(p, 1);
        weft_ep_on_deadline(p->ep[0], p->now_ns);
        weft_ep_on_deadline(p->ep[1], p->now_ns);
    }
}

static void transfer(struct pair *p)
{
    static float source[30000];
    static float target[30000];
    weft_peer peer;
    weft_expect_id id;
    uint64_t seq;
    struct weft_addr to = addr_of(1);
    struct weft_msgr rx = weft_ep_msgr(p->ep[1]);
    struct weft_msgr tx = weft_ep_msgr(p->ep[0]);
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .memory = target,
                                     .memory_bytes = sizeof(target),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    assert_int_equal(rx.ops->expect(rx.self, &expect, &id), WEFT_OK);
    assert_int_equal(weft_ep_connect(p->ep[0], &to, p->now_ns, &peer), WEFT_OK);
    run(p, 4);
    struct weft_msg_send send = {.peer = peer,
                                 .base = source,
                                 .total = 30000,
                                 .elem_bytes = 4,
                                 .tag = UINT64_C(0x1122334455667788),
                                 .deadline_ns = WEFT_NEVER};
    assert_int_equal(tx.ops->send(tx.self, &send, p->now_ns, &seq), WEFT_OK);
    run(p, 200);
    assert_int_equal(weft_ep_counters(p->ep[0])->messages_sent, 1);
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
    struct pair p;
    struct weft_trace_record records[4];
    uint64_t missed = 7;
    uint64_t from = 0;
    pair_init(&p, 0);
    transfer(&p);
    assert_int_equal(weft_ep_trace_written(p.ep[0]), 0);
    assert_int_equal(weft_ep_trace_read(p.ep[0], &from, records, 4, &missed), 0);
    assert_int_equal(missed, 0);
    pair_fini(&p);
}

static void test_a_message(void **state)
{
    (void)state;
    static struct weft_trace_record records[RECORDS];
    struct pair p;
    uint64_t missed;
    pair_init(&p, RECORDS);
    transfer(&p);
    size_t n = read_all(p.ep[0], records, &missed);
    const struct weft_ep_counters *c = weft_ep_counters(p.ep[0]);
    assert_int_equal(missed, 0);
    assert_int_equal(n, weft_ep_trace_written(p.ep[0]));
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
    n = read_all(p.ep[1], records, &missed);
    r = first(records, n, WEFT_TRACE_MSG_CLOSED);
    assert_int_equal(r->flags, WEFT_TRACE_INCOMING | WEFT_MSG_COMPLETE << 1);
    assert_int_equal(first(records, n, WEFT_TRACE_DONE_SENT)->a, 86);
    for (size_t i = 1; i < n; i++) {
        assert_true(records[i - 1].time_ns <= records[i].time_ns);
    }
    pair_fini(&p);
}

static void test_overwritten(void **state)
{
    (void)state;
    struct weft_trace_record records[RECORDS];
    struct pair p;
    uint64_t missed;
    uint64_t from = 0;
    pair_init(&p, RING);
    transfer(&p);
    uint64_t written = weft_ep_trace_written(p.ep[1]);
    assert_true(written > RING);
    size_t n = weft_ep_trace_read(p.ep[1], &from, records, 10, &missed);
    assert_int_equal(n, 10);
    assert_int_equal(missed, written - RING);
    assert_int_equal(from, written - RING + 10);
    n = weft_ep_trace_read(p.ep[1], &from, records, RECORDS, &missed);
    assert_int_equal(n, RING - 10);
    assert_int_equal(missed, 0);
    assert_int_equal(weft_ep_trace_read(p.ep[1], &from, records, RECORDS, &missed), 0);
    pair_fini(&p);
}

static void test_drops(void **state)
{
    (void)state;
    static struct weft_trace_record records[RECORDS];
    struct pair p;
    uint64_t missed;
    struct weft_addr addr = addr_of(0);
    pair_init(&p, RING);
    uint8_t short_one[] = {WEFT_WIRE_VERSION << 4};
    uint8_t stranger[] = {0x30};
    for (unsigned i = 0; i < 3; i++) {
        weft_ep_recv(p.ep[1], &addr, WEFT_ECN_NOT, short_one, 1, p.now_ns, p.now_ns);
    }
    weft_ep_recv(p.ep[1], &addr, WEFT_ECN_NOT, stranger, 1, p.now_ns, p.now_ns);
    size_t n = read_all(p.ep[1], records, &missed);
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
    assert_int_equal(read_all(p.ep[1], records, &missed), n); /* not told twice */
    pair_fini(&p);
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
