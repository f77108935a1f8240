/* Short messages that share packets: fewer packets, the same messages, each exactly once, under
 * loss, duplication and reordering of packets. */
#include "core_net.h"

enum { MESSAGES = 48, FLOATS_MAX = 400, SEEDS = 300 };

/* Message i from end 0 to end 1 has tag i; what() gives its floats. */
static struct {
    float values[MESSAGES][FLOATS_MAX];
    float memory[MESSAGES][FLOATS_MAX];
    uint32_t floats[MESSAGES];
    uint32_t received[MESSAGES]; /* number of deliveries */
    uint32_t sent[MESSAGES];
    uint32_t order[MESSAGES]; /* order of arrival */
    uint32_t arrived;
} box;

static float what(uint32_t i, uint32_t k)
{
    return (float)(1000 * (i + 1) + k);
}

static void on_event(struct net *net, uint32_t end, const struct weft_msg_event *event)
{
    (void)net;
    if (event->type == WEFT_EVENT_RECEIVED && end == 1 && event->tag < MESSAGES) {
        assert_int_equal(event->outcome, WEFT_MSG_COMPLETE);
        box.received[event->tag]++;
        box.order[box.arrived++ % MESSAGES] = (uint32_t)event->tag;
    } else if (event->type == WEFT_EVENT_SENT && end == 0 && event->tag < MESSAGES) {
        assert_int_equal(event->outcome, WEFT_MSG_COMPLETE);
        assert_int_equal(event->received, event->chunks);
        box.sent[event->tag]++;
    }
}

static void post(struct net *net, uint32_t i)
{
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                           .sink = WEFT_SINK_COPY,
                                           .tag = i,
                                           .tag_mask = UINT64_MAX,
                                           .memory = box.memory[i],
                                           .memory_bytes = sizeof(box.memory[i]),
                                           .count = 1,
                                           .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(net_msg_expect(net, 1, &expect, &id), WEFT_OK);
}

static uint64_t put(struct net *net, uint32_t i, uint32_t floats, uint8_t priority, bool shares)
{
    box.floats[i] = floats;
    for (uint32_t k = 0; k < floats; k++) {
        box.values[i][k] = what(i, k);
    }
    const struct weft_msg_send send = {.peer = net->end[0].peer,
                                       .base = box.values[i],
                                       .total = floats,
                                       .elem_bytes = sizeof(float),
                                       .priority = priority,
                                       .shares = shares,
                                       .tag = i,
                                       .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    assert_int_equal(net_msg_send(net, 0, &send, &seq), WEFT_OK);
    return seq;
}

static void all_arrived(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(box.received[i], 1);
        assert_int_equal(box.sent[i], 1);
        for (uint32_t k = 0; k < box.floats[i]; k++) {
            assert_true(box.memory[i][k] == what(i, k));
        }
    }
}

static struct net *joined(uint8_t mode)
{
    struct net *net = net_new(mode, mode);
    memset(&box, 0, sizeof(box));
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1);
    net->on_event = on_event;
    return net;
}

static void quiet(struct net *net)
{
    for (uint32_t end = 0; end < 2; end++) {
        assert_false(weft_ep_busy(net->end[end].ep));
        assert_int_equal(inspect_peer(net->end[end].ep, 0)->rx.closed, 0);
        assert_int_equal(weft_ep_deadline(net->end[end].ep), WEFT_NEVER);
        assert_int_equal(weft_core_credit_backlog(inspect_peer(net->end[end].ep, 0)), 0);
    }
}

/* ---- how many packets ------------------------------------------------------------------------ */

static uint64_t datagrams(const struct net *net)
{
    return net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
}

static uint64_t eight(uint8_t mode, bool share)
{
    struct net *net = joined(mode);
    uint64_t before = datagrams(net);
    for (uint32_t i = 0; i < 8; i++) {
        post(net, i);
        put(net, i, 16, 1, share);
    }
    net_run(net, WEFT_NS_PER_S);
    all_arrived(8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(box.order[i], i);
    }
    assert_int_equal(net_counters(net, 0)->messages_shared, share ? 7 : 0);
    assert_int_equal(net_drops(net, 0) + net_drops(net, 1), 0);
    quiet(net);
    uint64_t count = datagrams(net) - before;
    net_free(net);
    return count;
}

static void eight_messages_are_one_packet(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        assert_int_equal(eight(mode, true), 3); /* messages; DONE of all of them; its ACK */
        assert_true(eight(mode, false) >= 10);
    }
}

/* Two messages of 700 bytes fit one packet, two of 740 do not; a message of two chunks never shares
 * a packet. */
static void what_does_not_fit_goes_alone(void **state)
{
    (void)state;
    static const struct {
        uint32_t floats[3];
        uint64_t shared;
    } cases[] = {
        {{165, 165, 1}, 1}, {{185, 185, 1}, 1}, {{FLOATS_MAX, 16, 16}, 1}, {{352, 352, 352}, 0}};
    for (size_t c = 0; c < WEFT_ARRAY_COUNT(cases); c++) {
        struct net *net = joined(WEFT_MODE_AUTH);
        for (uint32_t i = 0; i < 3; i++) {
            post(net, i);
            put(net, i, cases[c].floats[i], 1, true);
        }
        net_run(net, WEFT_NS_PER_S);
        all_arrived(3);
        assert_int_equal(net_counters(net, 0)->messages_shared, cases[c].shared);
        quiet(net);
        net_free(net);
    }
}

/* A message that may not share is not overtaken: it ends the packet. */
static void order_is_kept(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    for (uint32_t i = 0; i < 9; i++) {
        post(net, i);
        put(net, i, 4, i == 8 ? 0 : 1, i != 4);
    }
    net_run(net, WEFT_NS_PER_S);
    all_arrived(9);
    static const uint32_t order[] = {8, 0, 1, 2, 3, 4, 5, 6, 7};
    assert_memory_equal(box.order, order, sizeof(order));
    assert_int_equal(net_counters(net, 0)->messages_shared, 6); /* 8 and 0 to 3; 5 to 7 */
    quiet(net);
    net_free(net);
}

/* The burst with the last chunks of a long message ends before the short ones behind it. */
static void those_behind_a_long_message_share(void **state)
{
    (void)state;
    for (uint32_t chunks = 1; chunks <= 5; chunks++) {
        struct net *net = joined(WEFT_MODE_AUTH);
        static float values[5 * 352], memory[5 * 352];
        net_message(net, 0, net->end[0].peer, 1, values, chunks * 352 * sizeof(float), memory);
        for (uint32_t i = 0; i < 4; i++) {
            post(net, i);
            put(net, i, 16, 0, true);
        }
        net_run(net, WEFT_NS_PER_S);
        assert_int_equal(net_counters(net, 0)->data_sent, chunks + 1);
        assert_int_equal(net_counters(net, 0)->messages_shared, 3);
        quiet(net);
        net_free(net);
    }
}

enum { ALONE = 6 };

/* The bytes of four short messages that share a packet, ALONE packets without others after an end
 * that was announced `ago` packets before those. */
static uint64_t bytes_of_four(uint32_t ago)
{
    struct net *net = joined(WEFT_MODE_NONE);
    struct peer *p = inspect_peer(net->end[0].ep, 0);
    p->tx.backlog_end = p->allowed.sent - ago;
    for (uint32_t i = 4; i < 4 + ALONE; i++) {
        post(net, i);
        put(net, i, 16, 1, false);
        net_run(net, WEFT_NS_PER_S);
    }
    uint64_t before = net_counters(net, 0)->bytes_sent;
    for (uint32_t i = 0; i < 4; i++) {
        post(net, i);
        put(net, i, 16, 1, true);
    }
    net_run(net, WEFT_NS_PER_S);
    all_arrived(4 + ALONE);
    assert_int_equal(net_counters(net, 0)->messages_shared, 3);
    quiet(net);
    uint64_t bytes = net_counters(net, 0)->bytes_sent - before;
    net_free(net);
    return bytes;
}

/* Ends are compared modulo 2^32: one of long ago would seem to be ahead, and each shared packet had
 * a BACKLOG that took it back. */
static void an_old_backlog_is_not_ahead(void **state)
{
    (void)state;
    uint64_t bytes = bytes_of_four(0);
    assert_int_equal(bytes_of_four(1000), bytes);
    assert_int_equal(bytes_of_four((UINT32_C(1) << 31) - ALONE / 2), bytes);
}

/* Requests and answers, four at a time: a packet each way, as a single one. */
static void an_answer_may_be_several(void **state)
{
    (void)state;
    enum { ROUNDS = 10 };
    struct net *net = calloc(1, sizeof(*net));
    struct weft_ep_config config;
    static const float value = 3;
    static float memory[2][4];
    net_init(net, 1);
    for (uint32_t end = 0; end < 2; end++) {
        net_config(&config, WEFT_MODE_AUTH);
        config.incarnation = 10 + end;
        config.confirm_later = 1;
        net_open(net, end, &config);
    }
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    uint64_t before = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t end = 0; end < 2; end++) {
            for (uint32_t i = 0; i < 4; i++) {
                const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                                       .tag = i,
                                                       .tag_mask = UINT64_MAX,
                                                       .memory = &memory[1 - end][i],
                                                       .memory_bytes = sizeof(value),
                                                       .count = 1,
                                                       .timeout_ns = WEFT_NEVER};
                const struct weft_msg_send send = {.peer = net->end[end].peer,
                                                   .base = &value,
                                                   .total = 1,
                                                   .elem_bytes = sizeof(value),
                                                   .shares = true,
                                                   .tag = i,
                                                   .deadline_ns = WEFT_NEVER};
                weft_expect_id id;
                uint64_t seq;
                assert_int_equal(net_msg_expect(net, 1 - end, &expect, &id), WEFT_OK);
                assert_int_equal(net_msg_send(net, end, &send, &seq), WEFT_OK);
            }
            for (uint32_t i = 0; i < 20 && net->end[1 - end].received < 4 * (round + 1); i++) {
                assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
            }
            assert_int_equal(net->end[1 - end].received, 4 * (round + 1));
        }
        net_run(net, 50 * WEFT_NS_PER_MS);
        before = round == 0 ? datagrams(net) : before; /* both ends know LATER now */
    }
    assert_int_equal(datagrams(net) - before, 2 * (ROUNDS - 1));
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent + net->end[1].sent, 8 * ROUNDS);
    assert_int_equal(net_counters(net, 0)->probes + net_counters(net, 1)->probes, 0);
    quiet(net);
    net_free(net);
}

/* ---- when packets are lost ------------------------------------------------------------------- */

static uint32_t lose_next;

static bool lose(struct net *net, struct net_datagram *d)
{
    (void)net;
    if (d->from_end == 0 && lose_next > 0) {
        lose_next--;
        return false;
    }
    return true;
}

static void a_lost_packet_is_sent_again_as_one(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    net->tap = lose;
    lose_next = 1;
    uint64_t before = datagrams(net);
    for (uint32_t i = 0; i < 8; i++) {
        post(net, i);
        put(net, i, 16, 1, true);
    }
    net_run(net, WEFT_NS_PER_S);
    all_arrived(8);
    /* The probe contains the first message; its acknowledgement reveals the loss of the other
     * seven. */
    assert_int_equal(net_counters(net, 0)->messages_shared, 7 + 6);
    assert_int_equal(net_counters(net, 0)->lost_packets, 1);
    assert_true(datagrams(net) - before <= 6);
    quiet(net);
    net_free(net);
}

static void each_arrives_once_on_any_network(void **state)
{
    (void)state;
    uint64_t shared = 0, lost = 0, duplicates = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        struct net *net = joined((uint8_t)(seed % 3));
        weft_prng_init(&net->prng, seed);
        net->loss_ppm = seed % 4 == 0 ? 0 : 200000;
        net->duplicate_ppm = 100000;
        net->late_ppm = 200000;
        net->late_ns = 2 * WEFT_NS_PER_MS;
        uint32_t posted = 0, put_count = 0;
        while (put_count < MESSAGES) {
            uint32_t burst = (uint32_t)weft_prng_range(&net->prng, 1, 12);
            for (uint32_t i = 0; i < burst && put_count < MESSAGES; i++) {
                bool is_short = weft_prng_below(&net->prng, 8) != 0;
                uint32_t floats =
                    (uint32_t)weft_prng_range(&net->prng, 1, is_short ? 60 : FLOATS_MAX);
                /* Sometimes no buffer is posted yet. */
                while (posted <= put_count && weft_prng_below(&net->prng, 10) != 0) {
                    post(net, posted++);
                }
                put(net, put_count++, floats, (uint8_t)weft_prng_below(&net->prng, 3),
                    weft_prng_below(&net->prng, 10) != 0);
            }
            net_run(net, weft_prng_below(&net->prng, 300) * WEFT_NS_PER_US);
        }
        while (posted < MESSAGES) {
            post(net, posted++);
        }
        net_run(net, 20 * WEFT_NS_PER_S);
        net->loss_ppm = 0;
        net_run(net, 20 * WEFT_NS_PER_S);
        all_arrived(MESSAGES);
        quiet(net);
        shared += net_counters(net, 0)->messages_shared;
        lost += net_counters(net, 0)->lost_packets;
        duplicates += net_counters(net, 1)->late_chunks;
        assert_int_equal(net_counters(net, 1)->bad_packet + net_counters(net, 1)->bad_range, 0);
        net_free(net);
    }
    print_message("%llu shared, %llu packets lost, %llu copies\n", (unsigned long long)shared,
                  (unsigned long long)lost, (unsigned long long)duplicates);
    assert_true(shared > 2 * SEEDS && lost > SEEDS && duplicates > SEEDS / 4);
}

/* The packet of a message without memory is never acknowledged, but its other messages are
 * acknowledged, and later ones do not wait for it. */
static void one_without_memory_blocks_no_other(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    for (uint32_t i = 0; i < 8; i++) {
        if (i != 3) {
            post(net, i);
        }
        put(net, i, 16, 1, true);
    }
    net_run(net, WEFT_NS_PER_MS);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(box.sent[i], i != 3);
    }
    for (uint32_t i = 8; i < MESSAGES; i++) {
        post(net, i);
        put(net, i, 16, 1, true);
        net_run(net, 5 * WEFT_NS_PER_MS);
        assert_int_equal(box.sent[i], 1);
    }
    post(net, 3);
    net_run(net, 2 * WEFT_NS_PER_S);
    all_arrived(MESSAGES);
    quiet(net);
    net_free(net);
}

/* ---- numbers of messages --------------------------------------------------------------------- */

static struct net_datagram held;
static uint32_t hold_msg;

/* Keep the first packet with a short header of message hold_msg. */
static bool hold(struct net *net, struct net_datagram *d)
{
    (void)net;
    if (d->from_end == 0 && held.data == NULL && hold_msg != 0 && weft_wire_is_brief(d->data[1]) &&
        (d->data[1] & WEFT_FLAG_CONTROL) == 0 &&
        (weft_get_u32(d->data + WEFT_HEADER_BRIEF_BYTES) >> WEFT_BRIEF_CHUNK_BITS) ==
            (hold_msg & 0x3fff)) {
        held = *d;
        held.data = malloc(d->bytes);
        memcpy(held.data, d->data, d->bytes);
        return false;
    }
    return true;
}

enum { LONG = 100000, APART = 1 << 14 };

static void send_long(struct net *net, const float *values, float *memory, uint64_t *seq_p)
{
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                           .tag = 1000,
                                           .tag_mask = UINT64_MAX,
                                           .memory = memory,
                                           .memory_bytes = LONG * sizeof(float),
                                           .count = 1,
                                           .timeout_ns = WEFT_NEVER};
    const struct weft_msg_send send = {.peer = net->end[0].peer,
                                       .base = values,
                                       .total = LONG,
                                       .elem_bytes = sizeof(float),
                                       .tag = 1000,
                                       .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(net_msg_expect(net, 1, &expect, &id), WEFT_OK);
    assert_int_equal(net_msg_send(net, 0, &send, seq_p), WEFT_OK);
}

/* A short header has 14 bits of the message's number. The replay window of 4,096 packets may now
 * contain more messages than these bits can number. A packet that arrives that late must not be
 * assigned to a later message. */
static void a_late_packet_is_of_its_own_message(void **state)
{
    (void)state;
    static float before[LONG], after[LONG], memory[LONG];
    struct net *net = joined(WEFT_MODE_NONE);
    uint64_t first, second = 0;
    for (uint32_t i = 0; i < LONG; i++) {
        before[i] = -1;
        after[i] = 1;
    }
    net->tap = hold;
    hold_msg = (uint32_t)inspect_peer(net->end[0].ep, 0)->tx.next_seq;
    send_long(net, before, memory, &first);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_non_null(held.data); /* the chunk is retransmitted */
    assert_true(memory[0] == -1 && memory[LONG - 1] == -1);
    uint64_t pn = inspect_peer(net->end[0].ep, 0)->recovery.pn_next;
    while (inspect_peer(net->end[0].ep, 0)->tx.next_seq < first + APART) {
        for (uint32_t i = 0; i < 32 && inspect_peer(net->end[0].ep, 0)->tx.next_seq < first + APART;
             i++) {
            memset(box.received, 0, sizeof(box.received));
            post(net, i);
            put(net, i, 1, 1, true);
        }
        net_run(net, WEFT_NS_PER_MS);
    }
    pn = inspect_peer(net->end[0].ep, 0)->recovery.pn_next - pn;
    assert_true(pn < 3000); /* inside the window */
    send_long(net, after, memory, &second);
    assert_int_equal(second, first + APART);
    while (inspect_peer(net->end[1].ep, 0)->rx.live == 0) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
    }
    uint64_t old = net_counters(net, 1)->old_packets;
    net_deliver(net, &net->end[1], &net->end[0].addr, held.data, held.bytes);
    assert_int_equal(net_counters(net, 1)->old_packets, old + 1);
    net_run(net, WEFT_NS_PER_S);
    for (uint32_t i = 0; i < LONG; i++) {
        assert_true(memory[i] == 1);
    }
    free(held.data);
    held.data = NULL;
    hold_msg = 0;
    net_free(net);
}

/* A packet without a tag from end 0 to end 1, with this number and these frames. */
static void forge_at(struct net *net, uint64_t number, const struct weft_wire_frame *frames,
                     uint32_t count)
{
    uint8_t bytes[1472];
    const struct peer *p = inspect_peer(net->end[0].ep, 0);
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    const struct weft_wire_packet packet = {.klass = WEFT_CLASS_PLAIN,
                                            .flags = WEFT_FLAG_CONTROL,
                                            .data_count = (uint16_t)p->allowed.sent,
                                            .connection_id = p->conn.remote_id,
                                            .number = number};
    weft_wire_header_encode(&w, &packet);
    uint8_t *length = w.at;
    weft_write_u16(&w, 0);
    for (uint32_t i = 0; i < count; i++) {
        weft_wire_frame_encode(&w, &frames[i]);
    }
    assert_false(w.bad);
    weft_put_u16(length, (uint16_t)(w.at - length - 2));
    net_deliver(net, &net->end[1], &net->end[0].addr, bytes, (size_t)(w.at - bytes));
}

static uint64_t dropped_pn;

static bool drop_one(struct net *net, struct net_datagram *d)
{
    struct weft_wire_packet packet;
    (void)net;
    if (d->from_end == 0 && dropped_pn == 0) {
        assert_int_equal(weft_wire_header_decode(d->data, d->bytes, &packet), WEFT_OK);
        dropped_pn = packet.number;
        return false;
    }
    return true;
}

/* ACK_SHORT has 8 bits of open_from. While its packet is delayed, so many messages may be
 * acknowledged that the 8 bits match a later number. This end would then treat a newer message as
 * closed: it would acknowledge it, but neither deliver it nor send DONE. */
static void a_late_acknowledgement_confirms_nothing_new(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_NONE);
    const struct peer *p = inspect_peer(net->end[0].ep, 0);
    const struct peer *to = inspect_peer(net->end[1].ep, 0);
    struct weft_wire_frame f = {.type = WEFT_FRAME_ACK_SHORT};
    f.ack_short = (struct weft_wire_ack_short){.largest = (uint32_t)(to->recovery.pn_next - 1),
                                               .credit = (uint16_t)to->allowed.limit,
                                               .open_from = (uint8_t)p->tx.open_from,
                                               .ce = (uint8_t)to->recovery.ce_seen,
                                               .mask = UINT64_C(1) << 63};
    dropped_pn = 0;
    net->tap = drop_one;
    for (uint32_t round = 0; round < 5; round++) { /* 160 messages: more than 128, less than 256 */
        for (uint32_t i = 0; i < 32; i++) {
            post(net, i);
            put(net, i, 1, 1, true);
        }
        net_run(net, 100 * WEFT_NS_PER_MS);
    }
    assert_true(dropped_pn != 0 && to->sec.seen_largest < dropped_pn + 100);
    uint64_t from = to->rx.open_from;
    assert_in_range(from, 130, p->tx.open_from);
    forge_at(net, dropped_pn, &f, 1);
    assert_int_equal(net_counters(net, 1)->duplicate_packets + net_counters(net, 1)->bad_ack, 0);
    assert_int_equal(to->rx.open_from, from);
    memset(&box, 0, sizeof(box));
    post(net, 0);
    put(net, 0, 1, 1, true);
    net_run(net, 5 * WEFT_NS_PER_S);
    all_arrived(1);
    quiet(net);
    net_free(net);
}

/* ---- what nobody sends ----------------------------------------------------------------------- */

static void forge(struct net *net, const struct weft_wire_frame *frames, uint32_t count)
{
    forge_at(net, inspect_peer(net->end[1].ep, 0)->sec.seen_largest + 1, frames, count);
}

static struct weft_wire_frame message(uint32_t msg, uint32_t tag)
{
    static const float one = 1;
    struct weft_wire_frame f = {.type = WEFT_FRAME_MESSAGE};
    f.message = (struct weft_wire_message){.priority = 1,
                                           .chunk_elems = 352,
                                           .elem_bytes = sizeof(float),
                                           .msg = msg,
                                           .total = 1,
                                           .tag = tag,
                                           .payload = (const uint8_t *)&one};
    return f;
}

static void forged_messages_do_no_harm(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_NONE);
    const struct weft_ep_counters *c = net_counters(net, 1);
    uint32_t next = (uint32_t)inspect_peer(net->end[0].ep, 0)->tx.next_seq;
    for (uint32_t i = 0; i < 4; i++) {
        post(net, i);
    }
    /* The same message three times in a packet, once with another grid: each message is delivered
     * once. */
    struct weft_wire_frame twice[] = {message(next, 0), message(next, 0), message(next + 1, 1),
                                      message(next, 0)};
    twice[3].message.chunk_elems = 1;
    forge(net, twice, 4);
    assert_int_equal(box.received[0] + box.received[1], 2);
    assert_int_equal(c->late_chunks, 2);
    /* A message without memory, and a message that ended long ago. */
    uint64_t unacked = inspect_peer(net->end[1].ep, 0)->ack.largest;
    const struct weft_wire_frame none[] = {message(next + 2, 77)};
    forge(net, none, 1);
    assert_int_equal(c->no_memory, 1);
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->ack.largest, unacked);
    const struct weft_wire_frame old[] = {message(next - 1, 2)};
    forge(net, old, 1);
    assert_int_equal(box.received[2], 0);
    /* One packet with as many messages as fit; each raises three events. */
    struct weft_wire_frame many[WEFT_MSGS_MAX];
    const struct weft_msg_expect any = {.peer = WEFT_PEER_ANY,
                                        .sink = WEFT_SINK_EVENT,
                                        .memory_bytes = 4,
                                        .count = UINT32_MAX,
                                        .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(net_msg_expect(net, 1, &any, &id), WEFT_OK);
    for (uint32_t i = 0; i < 50; i++) {
        many[i] = message(next + 2 + i, 10000);
    }
    forge(net, many, 50);
    assert_int_equal(net->end[1].received, 2 + 50);
    /* A message beyond the window moves the window, as DATA does. */
    const struct weft_wire_frame far[] = {message(next + 4 * WEFT_MSGS_MAX, 2)};
    forge(net, far, 1);
    forge(net, many, 50);
    assert_int_equal(net->end[1].received, 2 + 50 + 1);
    assert_int_equal(c->bad_packet + c->bad_range, 0);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_messages_are_one_packet),
        cmocka_unit_test(what_does_not_fit_goes_alone),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(those_behind_a_long_message_share),
        cmocka_unit_test(an_old_backlog_is_not_ahead),
        cmocka_unit_test(an_answer_may_be_several),
        cmocka_unit_test(a_lost_packet_is_sent_again_as_one),
        cmocka_unit_test(each_arrives_once_on_any_network),
        cmocka_unit_test(one_without_memory_blocks_no_other),
        cmocka_unit_test(a_late_packet_is_of_its_own_message),
        cmocka_unit_test(a_late_acknowledgement_confirms_nothing_new),
        cmocka_unit_test(forged_messages_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
