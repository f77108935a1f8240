/* Held messages and their rate (core/pace.c). */
#include "core_net.h"

enum { CHUNK_BYTES = 1408, CHUNKS = 800 };

static uint8_t source[CHUNKS * CHUNK_BYTES];
static uint8_t memory[3][CHUNKS * CHUNK_BYTES];
static struct weft_tx tx;

/* Ends 0 and 2 are connected to 1. */
static struct net *rig_new(void)
{
    struct net *net = calloc(1, sizeof(*net));
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 3; end++) {
        struct weft_ep_config config;
        net_config(&config, WEFT_MODE_NONE);
        config.chunks_max = CHUNKS;
        config.incarnation = 10 + end;
        net_open(net, end, &config);
    }
    assert_int_equal(net_connect(net, 0, 1), 0);
    net_run(net, 100 * WEFT_NS_PER_MS);
    return net;
}

static uint64_t message(struct net *net, uint32_t chunks, bool held, uint64_t deadline_ns,
                        uint8_t *into)
{
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = into,
                                     .memory_bytes = sizeof(memory[0]),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = 0,
                                 .base = source,
                                 .total = chunks * CHUNK_BYTES / 4,
                                 .elem_bytes = 4,
                                 .priority = 1,
                                 .held = held,
                                 .deadline_ns = deadline_ns};
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(net->end[1].msgr.ops->expect(net->end[1].msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(net->end[0].msgr.ops->send(net->end[0].msgr.self, &send, net->now_ns, &seq),
                     WEFT_OK);
    return seq;
}

static weft_status pace(struct net *net, uint64_t seq, uint64_t start_ns, uint64_t rate_bps,
                        uint8_t rank)
{
    const struct weft_msg_pace how = {.start_ns = start_ns, .rate_bps = rate_bps, .rank = rank};
    return net->end[0].msgr.ops->pace(net->end[0].msgr.self, 0, seq, &how, net->now_ns);
}

static weft_status pace_group(struct net *net, uint64_t seq, uint64_t rate_bps, uint8_t group)
{
    const struct weft_msg_pace how = {.rate_bps = rate_bps, .group = group};
    return net->end[0].msgr.ops->pace(net->end[0].msgr.self, 0, seq, &how, net->now_ns);
}

static weft_status withdraw(struct net *net, uint64_t seq)
{
    return net->end[0].msgr.ops->withdraw(net->end[0].msgr.self, 0, seq, net->now_ns);
}

static const struct weft_ep_counters *counters(struct net *net, uint32_t end)
{
    return weft_ep_counters(net->end[end].ep);
}

/* For a second no packet is sent: no chunk, no probe, and no frame that requests credit. */
static void nothing_of_a_held_message_is_sent(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t before = counters(net, 0)->datagrams_sent;
    uint64_t seq = message(net, 100, true, WEFT_NEVER, memory[0]);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(counters(net, 0)->datagrams_sent, before);
    assert_int_equal(counters(net, 0)->probes, 0);
    struct weft_ep_gauges gauges;
    weft_ep_gauges(net->end[1].ep, &gauges);
    assert_int_equal(gauges.senders, 0);
    assert_true(weft_ep_busy(net->end[0].ep));
    /* BACKLOG does not include a held message, even with another message that is not held. */
    (void)message(net, 2, false, WEFT_NEVER, memory[1]);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    assert_int_equal(counters(net, 0)->data_sent, 2);
    const struct peer *from = inspect_peer(net->end[1].ep, 0);
    assert_int_equal(weft_core_credit_backlog(from), 0);
    assert_int_equal(pace(net, seq, 0, 0, 0), WEFT_OK);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(counters(net, 0)->data_sent, 102);
    net_free(net);
}

static void it_begins_at_its_start(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t seq = message(net, 4, true, WEFT_NEVER, memory[0]);
    uint64_t start_ns = net->now_ns + 50 * WEFT_NS_PER_MS;
    assert_int_equal(pace(net, seq, start_ns + WEFT_NS_PER_S, 0, 0), WEFT_OK);
    assert_int_equal(pace(net, seq, start_ns, 0, 0), WEFT_OK); /* an earlier start */
    net_run(net, 50 * WEFT_NS_PER_MS - 1);
    assert_int_equal(counters(net, 0)->data_sent, 0);
    assert_int_equal(weft_ep_deadline(net->end[0].ep), start_ns);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(counters(net, 0)->data_sent, 4);
    net_free(net);
}

/* 800 packets of about 1,450 bytes at each of three rates: the duration is within 3 % of the
 * expected one. */
static void the_rate_is_kept(void **state)
{
    (void)state;
    static const uint64_t rates_bps[] = {1000 * 1000, 100 * 1000 * 1000,
                                         UINT64_C(1000) * 1000 * 1000};
    for (size_t i = 0; i < 3; i++) {
        struct net *net = rig_new();
        uint64_t seq = message(net, CHUNKS, true, WEFT_NEVER, memory[0]);
        uint64_t bytes = counters(net, 0)->bytes_sent;
        uint64_t begun_ns = net->now_ns;
        assert_int_equal(pace(net, seq, 0, rates_bps[i], 0), WEFT_OK);
        while (net->end[0].sent == 0) {
            net_run(net, 50 * WEFT_NS_PER_US);
            uint64_t most =
                rates_bps[i] / 8000 * ((net->now_ns - begun_ns) / WEFT_NS_PER_US) / 1000;
            /* Tolerance: acknowledgements, and the burst allowance of a millisecond. */
            assert_true(counters(net, 0)->data_sent * CHUNK_BYTES <=
                        most + rates_bps[i] / 8000 + 2 * 1500);
        }
        bytes = counters(net, 0)->bytes_sent - bytes;
        double ideal_ns = (double)bytes * 8e9 / (double)rates_bps[i];
        double took_ns = (double)(net->now_ns - begun_ns);
        assert_true(took_ns > 0.97 * ideal_ns && took_ns < 1.03 * ideal_ns + 200e3);
        assert_int_equal(counters(net, 0)->probes, 0);
        net_free(net);
    }
}

/* Messages of a group have its rate together, also one that joins late; another group has its
 * own. A pause of the group is one of all its messages. */
static void a_group_has_one_rate(void **state)
{
    (void)state;
    enum { RATE_BPS = 50000000, LENGTH = 200 };
    struct net *net = rig_new();
    uint64_t seq[3];
    for (uint32_t i = 0; i < 3; i++) {
        seq[i] = message(net, LENGTH, true, WEFT_NEVER, memory[i]);
    }
    const uint64_t before = counters(net, 0)->bytes_sent, begun_ns = net->now_ns;
    assert_int_equal(pace_group(net, seq[0], RATE_BPS, WEFT_MSG_PACE_GROUPS + 1), WEFT_INVALID);
    assert_int_equal(pace_group(net, seq[0], RATE_BPS, 2), WEFT_OK);
    assert_int_equal(pace_group(net, seq[1], RATE_BPS, 2), WEFT_OK);
    while (net->end[0].sent < 3) {
        net_run(net, 50 * WEFT_NS_PER_US);
        const uint64_t span_us = (net->now_ns - begun_ns) / WEFT_NS_PER_US;
        assert_true(counters(net, 0)->data_sent * CHUNK_BYTES <=
                    RATE_BPS / 8000 * span_us / 1000 + RATE_BPS / 8000 + 2 * 1500);
        if (span_us == 20000) {
            assert_int_equal(pace_group(net, seq[2], RATE_BPS, 2), WEFT_OK);
        }
    }
    const double ideal_ns = (double)(counters(net, 0)->bytes_sent - before) * 8e9 / RATE_BPS;
    const double took_ns = (double)(net->now_ns - begun_ns);
    assert_true(took_ns > 0.97 * ideal_ns && took_ns < 1.03 * ideal_ns + 200e3);
    /* Two groups, and a group at a new rate after a packet that takes a second at the old one. */
    seq[0] = message(net, 1, true, WEFT_NEVER, memory[0]);
    assert_int_equal(pace_group(net, seq[0], 10000, 2), WEFT_OK);
    net_run(net, WEFT_NS_PER_MS);
    for (uint32_t i = 0; i < 2; i++) {
        seq[i] = message(net, LENGTH, true, WEFT_NEVER, memory[i]);
        assert_int_equal(pace_group(net, seq[i], RATE_BPS, (uint8_t)(2 + i)), WEFT_OK);
    }
    const uint64_t sent = counters(net, 0)->data_sent;
    net_run(net, 20 * WEFT_NS_PER_MS);
    assert_in_range(counters(net, 0)->data_sent - sent, 165, 190); /* expected: 2 x 86.2 */
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 6);
    for (uint32_t i = 0; i < 3; i++) {
        seq[i] = message(net, LENGTH, true, WEFT_NEVER, memory[i]);
        assert_int_equal(pace_group(net, seq[i], 1000000, 4), WEFT_OK);
    }
    const uint64_t paused = counters(net, 0)->data_sent;
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(counters(net, 0)->data_sent - paused, 1); /* takes 11.6 ms */
    net_free(net);
}

/* A later start of one that has begun is not changed by a pause of its group. A start before the
 * end of the pause does not shorten it. */
static void a_later_start_in_a_group_holds(void **state)
{
    (void)state;
    enum { RATE_BPS = 1000000, LENGTH = 40 }; /* 11.6 ms for each packet */
    struct net *net = rig_new();
    const struct tx_msg *msgs = inspect_peer(net->end[0].ep, 0)->tx.msgs;
    uint64_t seq[2];
    for (uint32_t i = 0; i < 2; i++) {
        seq[i] = message(net, LENGTH, true, WEFT_NEVER, memory[i]);
    }
    const struct weft_msg_pace first = {.rate_bps = RATE_BPS, .rank = 1, .group = 2};
    assert_int_equal(net->end[0].msgr.ops->pace(net->end[0].msgr.self, 0, seq[0], &first,
                                                net->now_ns),
                     WEFT_OK);
    assert_int_equal(pace_group(net, seq[1], RATE_BPS, 2), WEFT_OK); /* goes before the other */
    net_run(net, 50 * WEFT_NS_PER_MS);
    const uint32_t begun = msgs[seq[1] & MSG_MASK].pass_next;
    assert_in_range(begun, 4, 6);
    struct weft_msg_pace later = {
        .start_ns = net->now_ns + 105 * WEFT_NS_PER_MS, .rate_bps = RATE_BPS, .group = 2};
    assert_int_equal(net->end[0].msgr.ops->pace(net->end[0].msgr.self, 0, seq[1], &later,
                                                net->now_ns),
                     WEFT_OK);
    net_run(net, 104 * WEFT_NS_PER_MS);
    assert_int_equal(msgs[seq[1] & MSG_MASK].pass_next, begun);
    const uint64_t sent = counters(net, 0)->data_sent;
    assert_in_range(sent, 13, 15);
    later.start_ns = net->now_ns + WEFT_NS_PER_MS; /* earlier than the end of the pause */
    assert_int_equal(net->end[0].msgr.ops->pace(net->end[0].msgr.self, 0, seq[1], &later,
                                                net->now_ns),
                     WEFT_OK);
    net_run(net, 2 * WEFT_NS_PER_MS);
    assert_int_equal(counters(net, 0)->data_sent, sent);
    net_run(net, 48 * WEFT_NS_PER_MS);
    assert_in_range(msgs[seq[1] & MSG_MASK].pass_next, begun + 4, begun + 5);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 2);
    net_free(net);
}

static bool nothing_arrives(struct net *net, struct net_datagram *d)
{
    (void)net;
    return d->from_end == 0;
}

static bool first_is_lost(struct net *net, struct net_datagram *d)
{
    const bool lost = d->from_end == 0 && d->bytes > CHUNK_BYTES;
    net->tap = lost ? NULL : net->tap;
    return !lost;
}

/* A chunk that is declared lost during a pause of the group is sent after it. */
static void a_lost_chunk_waits_for_its_group(void **state)
{
    (void)state;
    enum { RATE_BPS = 60000000, LENGTH = 20 }; /* 193 us for each packet */
    struct net *net = rig_new();
    const struct peer *p = inspect_peer(net->end[0].ep, 0);
    const uint64_t one = message(net, 1, true, WEFT_NEVER, memory[0]);
    const uint64_t other = message(net, LENGTH, true, WEFT_NEVER, memory[1]);
    net->tap = first_is_lost;
    assert_int_equal(pace_group(net, one, RATE_BPS, 2), WEFT_OK);
    assert_int_equal(pace_group(net, other, RATE_BPS, 2), WEFT_OK);
    for (uint32_t i = 0; counters(net, 0)->lost_packets == 0 && i < 200; i++) {
        net_run(net, 10 * WEFT_NS_PER_US);
    }
    assert_int_equal(p->tx.msgs[one & MSG_MASK].lost_count, 1);
    assert_int_equal(counters(net, 0)->probes, 0);
    const uint64_t sent = counters(net, 0)->data_sent;
    net_run(net, 50 * WEFT_NS_PER_US);
    assert_int_equal(counters(net, 0)->data_sent, sent);
    net_run(net, 200 * WEFT_NS_PER_US);
    assert_in_range(counters(net, 0)->data_sent, sent + 1, sent + 2);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(counters(net, 0)->data_sent, LENGTH + 2);
    net_free(net);
}

/* One that awaits only DONE is not paused with its group, so that it is probed. */
static void one_that_is_sent_is_not_paused_with_its_group(void **state)
{
    (void)state;
    enum { RATE_BPS = 1000000, LENGTH = 10 };
    struct net *net = rig_new();
    const struct peer *p = inspect_peer(net->end[0].ep, 0);
    const uint64_t one = message(net, 1, true, WEFT_NEVER, memory[0]);
    const uint64_t other = message(net, LENGTH, true, WEFT_NEVER, memory[1]);
    assert_int_equal(pace_group(net, one, RATE_BPS, 2), WEFT_OK);
    assert_int_equal(pace_group(net, other, RATE_BPS, 2), WEFT_OK);
    net->tap = nothing_arrives;
    while (p->tx.msgs[other & MSG_MASK].pass_next < 2) {
        net_run(net, 100 * WEFT_NS_PER_US);
    }
    assert_true(p->tx.msgs[one & MSG_MASK].active);
    assert_int_equal(p->tx.paced, tx_bit(other));
    assert_true(peer_waiting(p));
    net->tap = NULL;
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 2);
    net_free(net);
}

static void a_rate_may_change_on_the_way(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t seq = message(net, CHUNKS, true, WEFT_NEVER, memory[0]);
    assert_int_equal(pace(net, seq, 0, 10 * 1000 * 1000, 3), WEFT_OK);
    net_run(net, 100 * WEFT_NS_PER_MS);
    uint64_t slow = counters(net, 0)->data_sent;
    assert_in_range(slow, 82, 92); /* expected: 86.2 */
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->rx.msgs[seq & MSG_MASK].priority, 4);
    /* A later start stops the message, and the receiver is sent the new rank. */
    assert_int_equal(pace(net, seq, net->now_ns + 10 * WEFT_NS_PER_MS, 100 * 1000 * 1000, 0),
                     WEFT_OK);
    net_run(net, 9 * WEFT_NS_PER_MS);
    assert_int_equal(counters(net, 0)->data_sent, slow);
    net_run(net, 11 * WEFT_NS_PER_MS);
    assert_in_range(counters(net, 0)->data_sent - slow, 82, 100); /* expected: 86.2 in 10 ms */
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->rx.msgs[seq & MSG_MASK].priority, 1);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    net_free(net);
}

/* Rank decides the order, not length or age; small messages without a pace precede them. */
static void lower_rank_goes_first(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t older = message(net, 4, true, WEFT_NEVER, memory[0]);
    uint64_t later = message(net, 40, true, WEFT_NEVER, memory[1]);
    assert_int_equal(pace(net, older, 0, 0, 2), WEFT_OK);
    assert_int_equal(pace(net, later, 0, 0, 1), WEFT_OK);
    uint64_t plain = message(net, 1, false, WEFT_NEVER, memory[2]);
    const struct peer *p = inspect_peer(net->end[0].ep, 0);
    while (p->tx.msgs[plain & MSG_MASK].pass_next == 0) {
        assert_true(weft_ep_send(net->end[0].ep, net->now_ns, &tx) > 0);
        assert_true(p->tx.msgs[plain & MSG_MASK].pass_next == 1 ||
                    tx.packets == 1); /* before the others in its burst */
        net_burst(net, &net->end[0], &tx);
    }
    while (p->tx.msgs[later & MSG_MASK].pass_next < 40 &&
           weft_ep_send(net->end[0].ep, net->now_ns, &tx) > 0) {
        assert_int_equal(p->tx.msgs[older & MSG_MASK].pass_next, 0);
        net_burst(net, &net->end[0], &tx);
    }
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 3);
    net_free(net);
}

/* 70 messages, all but the first withdrawn: their numbers, more than a window of them, leave no
 * gap. */
static void one_that_was_taken_back_leaves_no_hole(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t before = counters(net, 0)->datagrams_sent;
    uint64_t first = message(net, 2, true, WEFT_NEVER, memory[0]);
    for (int i = 0; i < 60; i++) {
        uint64_t seq = message(net, 2, true, WEFT_NEVER, memory[1]);
        assert_int_equal(withdraw(net, seq), WEFT_OK);
        assert_int_equal(withdraw(net, seq), WEFT_NOTFOUND);
        assert_int_equal(pace(net, seq, 0, 0, 0), WEFT_NOTFOUND);
        net_drain(net, 0);
        net_run(net, WEFT_NS_PER_MS);
        assert_int_equal(net->end[0].sent, i + 1);
    }
    assert_int_equal(counters(net, 0)->datagrams_sent, before);
    assert_int_equal(counters(net, 0)->messages_sent, 0);
    assert_int_equal(pace(net, first, 0, 0, 0), WEFT_OK);
    for (int i = 0; i < 80; i++) {
        (void)message(net, 2, false, WEFT_NEVER, memory[1]);
        net_run(net, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(net->end[0].sent, 60 + 1 + 80);
    assert_int_equal(net->end[1].received, 1 + 80);
    assert_int_equal(withdraw(net, first), WEFT_NOTFOUND);
    uint64_t plain = message(net, 2, false, WEFT_NEVER, memory[1]);
    assert_int_equal(withdraw(net, plain), WEFT_STATE);
    assert_int_equal(pace(net, plain, 0, 0, 0), WEFT_INVALID);
    net_free(net);
}

static void one_that_has_begun_is_not_taken_back(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t seq = message(net, 40, true, WEFT_NEVER, memory[0]);
    assert_int_equal(pace(net, seq, 0, 1000 * 1000, 0), WEFT_OK);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(withdraw(net, seq), WEFT_STATE);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    net_free(net);
}

/* Without a grant its deadline ends it, and the receiver has received none of it. */
static void the_deadline_of_a_held_message_holds(void **state)
{
    (void)state;
    struct net *net = rig_new();
    uint64_t deadline_ns = net->now_ns + 20 * WEFT_NS_PER_MS;
    uint64_t seq = message(net, 40, true, deadline_ns, memory[0]);
    assert_int_equal(pace(net, seq, deadline_ns + WEFT_NS_PER_S, 0, 0), WEFT_OK);
    net_run(net, 19 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 0);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 1);
    assert_int_equal(counters(net, 0)->data_sent, 0);
    assert_int_equal(inspect_peer(net->end[0].ep, 0)->tx.unsent, 0);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_a_held_message_is_sent),
        cmocka_unit_test(it_begins_at_its_start),
        cmocka_unit_test(the_rate_is_kept),
        cmocka_unit_test(a_group_has_one_rate),
        cmocka_unit_test(a_later_start_in_a_group_holds),
        cmocka_unit_test(a_lost_chunk_waits_for_its_group),
        cmocka_unit_test(one_that_is_sent_is_not_paused_with_its_group),
        cmocka_unit_test(a_rate_may_change_on_the_way),
        cmocka_unit_test(lower_rank_goes_first),
        cmocka_unit_test(one_that_was_taken_back_leaves_no_hole),
        cmocka_unit_test(one_that_has_begun_is_not_taken_back),
        cmocka_unit_test(the_deadline_of_a_held_message_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
