/* Interactions of the endpoint's parts: handshake and timers, sessions that replace many others,
 * IDLE, and closing before keys exist. */
#include "core_net.h"

/* ---- the first packet after ACCEPT ----------------------------------------------------------- */

static bool lose_first_packets(struct net *net, struct net_datagram *d)
{
    uint32_t *left = net->tap_arg;
    bool packet = (d->data[0] & 15) < WEFT_CLASS_HELLO;
    if (packet && *left > 0 && memcmp(&d->from, &net->end[0].addr, sizeof(d->from)) == 0) {
        --*left;
        return false;
    }
    return true;
}

/* The PING that confirms ACCEPT is lost, and this end has nothing else to send. The PING must be
 * repeated; otherwise the other end drops the connection that this end considers established. */
static void check_up_in_spite_of_loss(uint8_t mode)
{
    struct net *net = net_new(mode, mode);
    uint32_t left = 3;
    net->tap = lose_first_packets;
    net->tap_arg = &left;
    net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(left, 0);
    assert_int_equal(net->end[0].ups, 1);
    assert_int_equal(net->end[1].ups, 1);
    net_run(net, 20 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].downs + net->end[1].downs, 0);
    assert_int_equal(inspect_peer(net->end[1].ep, net->end[1].peer)->conn.state, PEER_OPEN);
    assert_false(weft_ep_busy(net->end[0].ep));
    net_free(net);
}

static void test_the_first_ping_is_lost(void **state)
{
    (void)state;
    check_up_in_spite_of_loss(WEFT_MODE_NONE);
    check_up_in_spite_of_loss(WEFT_MODE_SEAL);
}

/* ---- one session replaces many --------------------------------------------------------------- */

enum { SESSIONS = 20 };

static void hello_forge(struct net *net, uint64_t name, uint64_t incarnation, uint32_t id)
{
    struct weft_wire_hello hello = {
        .connection_id = id,
        .incarnation = incarnation,
        .name = name,
        .open_from = 1,
        .unscheduled = 8,
        .packet_bytes_max = 1472,
    };
    uint8_t bytes[WEFT_HELLO_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_addr from = net_addr(50);
    weft_wire_hello_encode(&w, &hello);
    net_deliver(net, &net->end[1], &from, bytes, sizeof(bytes));
}

/* Chunk `number` - `first` of a message of 10 elements, one a chunk, of which 2 may be missing. */
static void chunk_forge(struct net *net, const struct peer *p, uint32_t msg, uint32_t first,
                        uint32_t number, uint8_t flags)
{
    uint8_t bytes[WEFT_HEADER_BYTES + WEFT_DATA_BYTES + 4] = {0};
    struct weft_wire_packet packet = {
        .flags = WEFT_FLAG_DATA | flags,
        .data_count = (uint16_t)number,
        .connection_id = p->conn.id,
        .number = number,
    };
    struct weft_wire_data data = {.msg = msg,
                                  .chunk = number - first,
                                  .total = 10,
                                  .chunk_elems = 1,
                                  .elem_bytes = 4,
                                  .lost_max = 2};
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_addr from = net_addr(50);
    weft_wire_header_encode(&w, &packet);
    weft_wire_data_encode(&w, &data);
    net_deliver(net, &net->end[1], &from, bytes, sizeof(bytes));
}

static void data_forge(struct net *net, const struct peer *p, uint32_t msg)
{
    uint8_t bytes[WEFT_HEADER_BYTES + WEFT_DATA_BYTES + 4] = {0};
    struct weft_wire_packet packet = {
        .flags = WEFT_FLAG_DATA,
        .data_count = (uint16_t)msg,
        .connection_id = p->conn.id,
        .number = msg,
    };
    struct weft_wire_data data = {.msg = msg, .total = 2, .chunk_elems = 1, .elem_bytes = 4};
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_addr from = net_addr(50);
    weft_wire_header_encode(&w, &packet);
    weft_wire_data_encode(&w, &data);
    net_deliver(net, &net->end[1], &from, bytes, sizeof(bytes));
}

/* A peer may have a session per name from one address. All of them end when a new process sends
 * from there: more events than the ring holds at a time. */
static void test_a_session_replaces_more_than_the_ring_of_events_takes(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    struct weft_ep_config config;
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_NONE);
    config.incarnation = 11;
    config.peers_max = SESSIONS + 1;
    config.chunks_max = 64;
    net_open(net, 1, &config);
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_EVENT,
                                     .memory_bytes = 8,
                                     .count = UINT32_MAX,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    struct net_end *e = &net->end[1];
    assert_int_equal(e->msgr.ops->expect(e->msgr.self, &expect, &id), WEFT_OK);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        hello_forge(net, 1000 + i, 7, 70 + i);
        assert_int_equal(inspect_peer(e->ep, i)->conn.state, PEER_HALF_OPEN);
        for (uint32_t msg = 1; msg <= WEFT_MSGS_MAX; msg++) {
            data_forge(net, inspect_peer(e->ep, i), msg);
        }
    }
    assert_int_equal(e->ups, SESSIONS);
    hello_forge(net, 999, 8, 69);
    data_forge(net, inspect_peer(e->ep, SESSIONS), 1);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(e->ups, SESSIONS + 1);
    assert_int_equal(e->downs, SESSIONS);
    assert_int_equal(e->why, WEFT_DOWN_RESTARTED);
    assert_int_equal(e->received, SESSIONS * WEFT_MSGS_MAX);
    net_free(net);
}

/* One packet ends a message and begins the one that reuses its slot. The application has not read
 * the first message's mask yet. */
static void test_a_slot_is_not_taken_before_its_mask_was_seen(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    struct net_end *e = &net->end[1];
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_EVENT,
                                     .memory_bytes = 8,
                                     .count = 2,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(e->msgr.ops->expect(e->msgr.self, &expect, &id), WEFT_OK);
    hello_forge(net, 1000, 7, 70);
    data_forge(net, inspect_peer(e->ep, 0), 1);
    uint8_t bytes[128] = {0};
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet packet = {
        .flags = WEFT_FLAG_DATA | WEFT_FLAG_CONTROL,
        .data_count = 2,
        .connection_id = inspect_peer(e->ep, 0)->conn.id,
        .number = 2,
    };
    struct weft_wire_frame finish = {.type = WEFT_FRAME_FINISH};
    finish.finish.msg = 1;
    finish.finish.flags = WEFT_FINISH_SHORT;
    struct weft_wire_data data = {
        .msg = 1 + WEFT_MSGS_MAX, .chunk = 1, .total = 2, .chunk_elems = 1, .elem_bytes = 4};
    weft_wire_header_encode(&w, &packet);
    weft_write_u16(&w, WEFT_FINISH_BYTES);
    weft_wire_frame_encode(&w, &finish);
    weft_wire_data_encode(&w, &data);
    weft_write_u32(&w, 0);
    struct weft_addr from = net_addr(50);
    size_t count = (size_t)(w.at - bytes);
    weft_ep_recv(e->ep, &from, WEFT_ECN_NOT, bytes, count, net->now_ns, net->now_ns);
    struct weft_msg_event ev;
    bool seen = false;
    while (e->msgr.ops->poll(e->msgr.self, &ev)) {
        if (ev.type == WEFT_EVENT_RECEIVED) {
            seen = true;
            assert_int_equal(ev.received, 1);
            assert_int_equal(ev.mask[0], 1);
        }
    }
    assert_true(seen);
    net_free(net);
}

/* ---- idle ------------------------------------------------------------------------------------ */

/* The packet with IDLE may contain a PING. It is not answered, so the sender must not wait for a
 * reply. */
static void test_an_idle_peers_ping_keeps_nobody_busy(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    inspect_peer(net->end[0].ep, peer)->conn.need_ping = true; /* like the keep-alive */
    weft_ep_idle(net->end[0].ep, net->now_ns);
    net_run(net, WEFT_NS_PER_S);
    assert_true(inspect_peer(net->end[1].ep, net->end[1].peer)->conn.idle);
    assert_false(weft_ep_busy(net->end[1].ep));
    net_free(net);
}

/* ---- pauses ---------------------------------------------------------------------------------- */

/* A deadline long ago means that this process slept, which excuses the silence of all peers. A
 * deadline that was never set does not. */
static void test_a_broken_provider_is_no_pause(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_SEAL, WEFT_MODE_SEAL);
    net->now_ns = 100 * WEFT_NS_PER_S;
    net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    weft_toy_crypto_fail(net->end[1].toy, WEFT_IO);
    inspect_ping(net->end[0].ep, 0);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].downs, 1);
    assert_int_equal(net->end[1].why, WEFT_DOWN_CRYPTO);
    assert_int_equal(net->end[1].ep->resumed_ns, 0);
    net_free(net);
}

/* ---- close before there are keys ------------------------------------------------------------- */

static void test_a_packet_for_a_connection_closed_before_accept(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_SEAL, WEFT_MODE_SEAL);
    weft_peer peer = net_connect(net, 0, 1);
    net_pump(net);
    weft_ep_close(net->end[0].ep, peer, net->now_ns);
    uint8_t bytes[64] = {0};
    struct weft_wire_packet packet = {
        .klass = WEFT_CLASS_SEAL,
        .flags = WEFT_FLAG_CONTROL,
        .connection_id = inspect_peer(net->end[0].ep, peer)->conn.id,
        .number = 1,
    };
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_header_encode(&w, &packet);
    net_deliver(net, &net->end[0], &net->end[1].addr, bytes, sizeof(bytes));
    assert_int_equal(net_counters(net, 0)->bad_peer, 1);
    assert_int_equal(net_counters(net, 0)->crypto_failures, 0);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_LOCAL);
    net_free(net);
}

/* ---- eviction of connections ----------------------------------------------------------------- */

/* A slot that only waits for late packets is evicted before a handshake in progress. */
static void test_a_closed_connection_makes_room_before_a_handshake(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    struct weft_ep_config config;
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_NONE);
    config.incarnation = 11;
    config.peers_max = 2;
    net_open(net, 1, &config);
    const struct peer *slots = net->end[1].ep->peers;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    weft_ep_close(net->end[0].ep, peer, net->now_ns);
    net_run(net, 100 * WEFT_NS_PER_US);
    assert_int_equal(net->end[1].downs, 1);
    assert_int_equal(slots[0].conn.state, PEER_CLOSING);
    hello_forge(net, 1000, 7, 70);
    hello_forge(net, 1001, 7, 71);
    assert_int_equal(slots[0].conn.state, PEER_HALF_OPEN);
    assert_int_equal(slots[1].conn.state, PEER_HALF_OPEN);
    net_free(net);
}

/* ---- close after a slow round trip ----------------------------------------------------------- */

static bool lose_all(struct net *net, struct net_datagram *d)
{
    (void)net;
    (void)d;
    return false;
}

/* The peer chooses the clock echo in DATA, so the echo must not keep a closed connection for
 * minutes. */
static void test_a_slow_round_trip_does_not_delay_the_end(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    struct peer *p = inspect_peer(net->end[0].ep, peer);
    for (int i = 0; i < 50; i++) {
        weft_core_rtt_sample(p, i % 2 == 0 ? 9 * WEFT_NS_PER_S : WEFT_NS_PER_MS, 0);
    }
    net->tap = lose_all;
    weft_ep_close(net->end[0].ep, peer, net->now_ns);
    net_run(net, 3 * WEFT_NS_PER_S);
    assert_false(weft_ep_busy(net->end[0].ep));
    net_run(net, 3 * WEFT_NS_PER_S);
    assert_int_equal(p->conn.state, PEER_FREE);
    net_free(net);
}

/* ---- the end of a pass ----------------------------------------------------------------------- */

static void outcome_note(struct net *net, uint32_t end, const struct weft_msg_event *event)
{
    if (end == 1 && event->type == WEFT_EVENT_RECEIVED) {
        *(enum weft_msg_outcome *)net->tap_arg = event->outcome;
    }
}

/* When the receiver has waited long enough, two of ten chunks may be missing, but not three. */
static void test_one_chunk_below_the_bound_is_short(void **state)
{
    (void)state;
    for (uint32_t came = 7; came <= 8; came++) {
        struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
        enum weft_msg_outcome outcome = WEFT_MSG_UNKNOWN;
        struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                         .sink = WEFT_SINK_EVENT,
                                         .memory_bytes = 40,
                                         .count = 1,
                                         .timeout_ns = 5 * WEFT_NS_PER_MS};
        weft_expect_id id;
        net->on_event = outcome_note;
        net->tap_arg = &outcome;
        assert_int_equal(net_msg_expect(net, 1, &expect, &id), WEFT_OK);
        hello_forge(net, 1000, 7, 70);
        for (uint32_t number = 1; number <= came; number++) {
            chunk_forge(net, inspect_peer(net->end[1].ep, 0), 1, 1, number, 0);
        }
        net_run(net, WEFT_NS_PER_S);
        assert_int_equal(net->end[1].received, 1);
        assert_int_equal(outcome, came == 7 ? WEFT_MSG_SHORT : WEFT_MSG_COMPLETE);
        net_free(net);
    }
}

/* Within its bound a message ends with its pass, if the path preserves the order; otherwise it
 * waits for overtaken packets. */
static void test_the_end_of_a_pass_is_waited_behind_only_where_packets_overtake(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    struct net_end *e = &net->end[1];
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_EVENT,
                                     .memory_bytes = 40,
                                     .count = 3,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(e->msgr.ops->expect(e->msgr.self, &expect, &id), WEFT_OK);
    hello_forge(net, 1000, 7, 70);
    const struct peer *p = inspect_peer(e->ep, 0);
    for (uint32_t number = 1; number <= 8; number++) {
        chunk_forge(net, p, 1, 1, number, number == 8 ? WEFT_FLAG_PASS_END : 0);
    }
    net_run(net, 0);
    assert_int_equal(e->received, 1);
    for (uint32_t number = 11; number <= 18; number++) { /* 13 behind 14 */
        uint32_t swapped = number == 13 ? 14 : number == 14 ? 13 : number;
        chunk_forge(net, p, 2, 11, swapped, number == 18 ? WEFT_FLAG_PASS_END : 0);
    }
    net_run(net, 99 * WEFT_NS_PER_US);
    assert_int_equal(e->received, 1);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(e->received, 2);
    net->now_ns += 11 * WEFT_NS_PER_S; /* the path has kept the order since then */
    for (uint32_t number = 21; number <= 28; number++) {
        chunk_forge(net, p, 3, 21, number, number == 28 ? WEFT_FLAG_PASS_END : 0);
    }
    net_run(net, 0);
    assert_int_equal(e->received, 3);
    net_free(net);
}

/* ---- the short header ------------------------------------------------------------------------ */

/* A chunk with the short header; `bytes` of payload. */
static void brief_forge(struct net *net, const struct peer *p, uint64_t number, uint32_t msg,
                        uint32_t chunk, uint32_t bytes)
{
    uint8_t packet_bytes[64];
    struct weft_wire_packet packet = {.flags = WEFT_FLAG_BRIEF,
                                      .data_count = (uint16_t)number,
                                      .connection_id = p->conn.id,
                                      .number = number};
    struct weft_wire_data data = {.msg = msg, .chunk = chunk};
    struct weft_writer w = weft_writer_make(packet_bytes, sizeof(packet_bytes));
    weft_wire_header_encode(&w, &packet);
    weft_wire_brief_encode(&w, &data);
    weft_write_zeros(&w, bytes);
    struct weft_addr from = net_addr(50);
    net_deliver(net, &net->end[1], &from, packet_bytes, (size_t)(w.at - packet_bytes));
}

static bool number_taken(const struct peer *p, uint64_t number)
{
    return (p->ack.window[number / 64 % RX_WINDOW_BLOCKS] >> (number % 64) & 1) != 0;
}

/* A packet that does not match the message it names is neither accepted nor acknowledged, and an
 * undescribed message does not begin with it. */
static void test_a_short_header_is_checked_against_its_message(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    uint8_t memory[8];
    struct net_end *e = &net->end[1];
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = sizeof(memory),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(e->msgr.ops->expect(e->msgr.self, &expect, &id), WEFT_OK);
    hello_forge(net, 1000, 7, 70);
    const struct peer *p = inspect_peer(e->ep, 0);
    const struct weft_ep_counters *c = net_counters(net, 1);
    brief_forge(net, p, 1, 1, 0, 4); /* the message is not described yet */
    assert_int_equal(c->bad_range, 1);
    assert_false(number_taken(p, 1));
    data_forge(net, p, 2); /* message 2, chunk 0 of two of 4 bytes */
    assert_true(number_taken(p, 2));
    brief_forge(net, p, 3, 2, 1, 8); /* too long */
    brief_forge(net, p, 4, 2, 1, 3); /* too short */
    brief_forge(net, p, 5, 2, 2, 4); /* chunk N */
    brief_forge(net, p, 6, 3, 1, 4); /* another message */
    assert_int_equal(c->bad_range, 5);
    assert_int_equal(e->received, 0);
    brief_forge(net, p, 7, 2, 0, 4);
    assert_int_equal(c->duplicate_chunks, 1);
    brief_forge(net, p, 8, 2, 1, 4);
    assert_int_equal(e->received, 1);
    brief_forge(net, p, 9, 2, 1, 4); /* the message is closed */
    assert_int_equal(c->late_chunks, 1);
    assert_int_equal(c->old_packets, 0);
    inspect_peer(e->ep, 0)->rx.open_from = 200;
    brief_forge(net, p, 10, 100, 1, 4); /* far below the window */
    assert_int_equal(c->old_packets, 1);
    assert_int_equal(c->bad_range, 5);
    for (uint64_t number = 3; number <= 6; number++) {
        assert_false(number_taken(p, number));
    }
    assert_true(number_taken(p, 8) && number_taken(p, 9) && !number_taken(p, 10));
    assert_int_equal(p->credit.data_count, 9); /* refused packets had no effect */
    net_free(net);
}

struct headers {
    uint32_t whole;
    uint32_t brief;
};

static bool count_headers(struct net *net, struct net_datagram *d)
{
    struct headers *seen = net->tap_arg;
    bool packet = (d->data[0] & 15) < WEFT_CLASS_HELLO;
    if (packet && memcmp(&d->from, &net->end[0].addr, sizeof(d->from)) == 0) {
        seen->brief += weft_wire_is_brief(d->data[1]);
        seen->whole += (d->data[1] & WEFT_FLAG_DATA) != 0;
    }
    return true;
}

/* Fourteen bits of a message's number are sent: messages around every wrap of these bits, or of 32
 * bits, are identified correctly. */
static void test_short_headers_where_message_numbers_wrap(void **state)
{
    (void)state;
    static const uint64_t firsts[] = {1, (1 << 14) - 2, (5 << 14) - 2, (UINT64_C(1) << 32) - 2};
    enum { BYTES = 200000, MESSAGES = 4 };
    uint8_t *bytes = malloc(BYTES);
    uint8_t *memory = malloc(BYTES);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(firsts); i++) {
        struct net *net = net_new(WEFT_MODE_SEAL, WEFT_MODE_SEAL);
        struct headers seen = {0};
        net->tap = count_headers;
        net->tap_arg = &seen;
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 100 * WEFT_NS_PER_MS);
        struct peer *p = inspect_peer(net->end[0].ep, peer);
        p->tx.next_seq = p->tx.open_from = firsts[i];
        inspect_peer(net->end[1].ep, net->end[1].peer)->rx.open_from = firsts[i];
        for (uint32_t n = 0; n < MESSAGES; n++) {
            memset(bytes, (int)(n + 1), BYTES);
            net_message(net, 0, peer, 1, bytes, BYTES, memory);
            net_run(net, 100 * WEFT_NS_PER_MS);
            assert_int_equal(net->end[0].sent, n + 1);
            assert_memory_equal(memory, bytes, BYTES);
        }
        assert_int_equal(net_drops(net, 1), 0);
        assert_true(seen.whole >= MESSAGES && seen.brief > seen.whole);
        net_free(net);
    }
    free(memory);
    free(bytes);
}

/* A short header has 32 bits of a packet's number: packets around every wrap are opened under their
 * full number, which is part of the nonce. */
static void test_short_headers_where_packet_numbers_wrap(void **state)
{
    (void)state;
    enum { BYTES = 200000 };
    uint8_t *bytes = malloc(BYTES);
    uint8_t *memory = malloc(BYTES);
    for (uint64_t wraps = 1; wraps <= 3; wraps++) {
        struct net *net = net_new(WEFT_MODE_SEAL, WEFT_MODE_SEAL);
        struct headers seen = {0};
        net->tap = count_headers;
        net->tap_arg = &seen;
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 100 * WEFT_NS_PER_MS);
        struct peer *p = inspect_peer(net->end[0].ep, peer);
        assert_int_equal(p->recovery.in_flight_count, 0);
        p->recovery.pn_next = p->recovery.pn_oldest = (wraps << 32) - 60;
        memset(bytes, (int)wraps, BYTES);
        net_message(net, 0, peer, 1, bytes, BYTES, memory);
        net_run(net, 100 * WEFT_NS_PER_MS);
        assert_int_equal(net->end[0].sent, 1);
        assert_memory_equal(memory, bytes, BYTES);
        assert_true(p->recovery.pn_next > wraps << 32);
        assert_int_equal(net_drops(net, 1), 0);
        assert_true(seen.brief > seen.whole);
        net_free(net);
    }
    free(memory);
    free(bytes);
}

static void test_the_nearest_packet_number(void **state)
{
    (void)state;
    static const uint64_t known[] = {1, 0x7fffffff, 0xfffffff0, UINT64_C(0x100000000),
                                     UINT64_C(0x5000000ff)};
    static const int64_t ahead[] = {0, 1, 4096, INT32_MAX, -1, -4096, INT32_MIN};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(known); i++) {
        for (size_t j = 0; j < WEFT_ARRAY_COUNT(ahead); j++) {
            uint64_t number = known[i] + (uint64_t)ahead[j];
            assert_int_equal(weft_core_number_near(known[i], (uint32_t)number), number);
        }
    }
}

/* No number with this low half is near the expected one: the packet is refused, and no state
 * changes. */
static void test_a_short_header_with_a_number_below_the_first(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    hello_forge(net, 1000, 7, 70);
    const struct peer *p = inspect_peer(net->end[1].ep, 0);
    const struct weft_ep_counters *c = net_counters(net, 1);
    uint64_t bad = c->bad_packet;
    brief_forge(net, p, 0, 1, 0, 4);
    brief_forge(net, p, 0xfffffff0, 1, 0, 4);
    assert_int_equal(c->bad_packet, bad + 2);
    assert_int_equal(p->sec.seen_largest, 0);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_ping_is_lost),
        cmocka_unit_test(test_short_headers_where_packet_numbers_wrap),
        cmocka_unit_test(test_the_nearest_packet_number),
        cmocka_unit_test(test_a_short_header_with_a_number_below_the_first),
        cmocka_unit_test(test_a_session_replaces_more_than_the_ring_of_events_takes),
        cmocka_unit_test(test_a_slot_is_not_taken_before_its_mask_was_seen),
        cmocka_unit_test(test_an_idle_peers_ping_keeps_nobody_busy),
        cmocka_unit_test(test_a_broken_provider_is_no_pause),
        cmocka_unit_test(test_a_packet_for_a_connection_closed_before_accept),
        cmocka_unit_test(test_a_closed_connection_makes_room_before_a_handshake),
        cmocka_unit_test(test_a_slow_round_trip_does_not_delay_the_end),
        cmocka_unit_test(test_one_chunk_below_the_bound_is_short),
        cmocka_unit_test(test_the_end_of_a_pass_is_waited_behind_only_where_packets_overtake),
        cmocka_unit_test(test_a_short_header_is_checked_against_its_message),
        cmocka_unit_test(test_short_headers_where_message_numbers_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
