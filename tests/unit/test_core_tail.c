/* Loss of the last packets between two ends - DONE, FINISH, the acknowledgement of a pass that
 * misses a chunk. They are retransmitted after part of a round trip, long before a probe timeout
 * that allows for the full variation of a busy link; once only, and never without loss. */
#include "core_net.h"

enum { CHUNKS = 20, FLOATS = CHUNKS * 352 };

static const uint64_t way_ns = 2500 * WEFT_NS_PER_US; /* with NET_DELAY_NS */

static float sent[FLOATS];
static float memory[FLOATS];

/* Datagrams to lose: the next `count` of end `from` while `due`. */
static struct {
    uint32_t from;
    uint32_t count;
    bool (*due)(const struct net *net, const struct net_datagram *d);
} lose;

static uint64_t late_ns; /* end 1 answers late by this time */

static bool way(struct net *net, struct net_datagram *d)
{
    d->due_ns += way_ns - NET_DELAY_NS;
    d->due_ns += addr_equal(&d->from, &net->end[1].addr) ? late_ns : 0;
    if (lose.count > 0 && addr_equal(&d->from, &net->end[lose.from].addr) && lose.due(net, d)) {
        lose.count--;
        return false;
    }
    return true;
}

static bool any(const struct net *net, const struct net_datagram *d)
{
    (void)net;
    (void)d;
    return true;
}

static struct peer *peer_of(const struct net *net, uint32_t end)
{
    return inspect_peer(net->end[end].ep, 0);
}

static void message(struct net *net)
{
    net_message(net, 0, net->end[0].peer, 1, sent, sizeof(sent), memory);
}

/* Two ends that have measured a round trip of 5 ms. */
static struct net *joined(bool lossy)
{
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    lose.count = 0;
    net->tap = way;
    (void)net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1);
    for (uint32_t i = 0; i < 10; i++) {
        message(net);
        net_run(net, 200 * WEFT_NS_PER_MS);
    }
    assert_int_equal(net->end[0].sent, 10);
    for (uint32_t end = 0; end < 2; end++) {
        assert_in_range(peer_of(net, end)->recovery.srtt_ns, 2 * way_ns,
                        2 * way_ns + WEFT_NS_PER_MS);
        net->end[end].ep->lost_ns = lossy ? net->now_ns : 0;
        peer_of(net, end)->ack.gap_ns = lossy ? net->now_ns : 0;
    }
    return net;
}

/* Keep the measured variation of the round trip high at both ends. */
static void step(struct net *net)
{
    for (uint32_t end = 0; end < 2; end++) {
        peer_of(net, end)->recovery.rttvar_ns = 2 * way_ns;
    }
    assert_true(net_step(net, net->now_ns + WEFT_NS_PER_S));
}

static uint64_t until_sent(struct net *net, uint64_t from_ns)
{
    while (net->end[0].sent == 10) {
        step(net);
    }
    return net->now_ns - from_ns;
}

static void until_pass_over(struct net *net)
{
    while (net->end[0].sent == 10 && net->end[1].received == 10 &&
           (peer_of(net, 1)->rx.live == 0 || !peer_of(net, 1)->rx.msgs[11 & MSG_MASK].pass_over)) {
        step(net);
    }
}

static bool closed(const struct net *net, const struct net_datagram *d)
{
    (void)d;
    return net->end[1].received == 11;
}

static uint64_t with_done_lost(bool lossy, uint32_t times)
{
    struct net *net = joined(lossy);
    lose.from = 1;
    lose.due = closed;
    lose.count = times;
    message(net);
    until_pass_over(net);
    uint64_t from_ns = net->now_ns;
    uint64_t ns = until_sent(net, from_ns);
    net_run(net, WEFT_NS_PER_S);
    for (uint32_t end = 0; end < 2; end++) {
        assert_int_equal(peer_of(net, end)->rx.closed, 0);
        assert_int_equal(weft_ep_deadline(net->end[end].ep), WEFT_NEVER);
        assert_int_equal(net_drops(net, end), 0);
    }
    net_free(net);
    return ns;
}

static void a_lost_done_comes_again_soon(void **state)
{
    (void)state;
    uint64_t none = with_done_lost(true, 0);
    assert_in_range(none, way_ns, way_ns + WEFT_NS_PER_MS);
    uint64_t ns = with_done_lost(true, 1);
    assert_in_range(ns, way_ns + way_ns / 2, 2 * way_ns);
    /* Only one early retransmission is sent, and none without loss. */
    assert_true(with_done_lost(true, 2) > 3 * way_ns);
    assert_true(with_done_lost(false, 1) > 3 * way_ns);
}

static void where_nothing_was_lost_nothing_is_said_again(void **state)
{
    (void)state;
    struct net *net = joined(false);
    uint64_t before = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    message(net);
    net_run(net, 200 * WEFT_NS_PER_MS);
    uint64_t first = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    message(net);
    while (net->end[0].sent < 12) {
        step(net);
        assert_int_equal(peer_of(net, 0)->recovery.tail_ns, WEFT_NEVER);
        assert_int_equal(peer_of(net, 1)->recovery.tail_ns, WEFT_NEVER);
    }
    net_run(net, 200 * WEFT_NS_PER_MS);
    uint64_t second = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    assert_int_equal(second - first, first - before);
    net_free(net);
}

static bool in_the_middle(const struct net *net, const struct net_datagram *d)
{
    return d->bytes > 1400 &&
           inspect_peer(net->end[0].ep, 0)->tx.msgs[11 & MSG_MASK].pass_next == CHUNKS;
}

static bool over(const struct net *net, const struct net_datagram *d)
{
    (void)d;
    return peer_of(net, 1)->rx.msgs[11 & MSG_MASK].pass_over;
}

/* A chunk of the last burst is lost, and the ACKs that report it are lost, too. */
static uint64_t with_acks_lost(uint32_t count)
{
    struct net *net = joined(true);
    lose.from = 0;
    lose.due = in_the_middle;
    lose.count = 1;
    message(net);
    while (lose.count > 0) {
        step(net);
    }
    lose.from = 1;
    lose.due = over;
    lose.count = count;
    until_pass_over(net);
    uint64_t ns = until_sent(net, net->now_ns);
    net_run(net, WEFT_NS_PER_S);
    net_free(net);
    return ns;
}

static void the_ack_of_a_pass_that_misses_a_chunk_comes_again_soon(void **state)
{
    (void)state;
    uint64_t none = with_acks_lost(0);
    assert_in_range(none, 3 * way_ns, 3 * way_ns + WEFT_NS_PER_MS);
    uint64_t ns = with_acks_lost(1);
    assert_in_range(ns, none + way_ns / 2, none + way_ns);
}

static bool last(const struct net *net, const struct net_datagram *d)
{
    const struct tx_msg *m = &inspect_peer(net->end[0].ep, 0)->tx.msgs[11 & MSG_MASK];
    bool control = d->bytes < 200;
    return m->active && m->pass_next == CHUNKS && control;
}

/* If all chunks arrived and DONE is lost, only FINISH can request DONE. */
static void finish_comes_again_before_the_probe_timeout(void **state)
{
    (void)state;
    struct net *net = joined(true);
    lose.from = 0;
    lose.due = last;
    lose.count = 1;
    message(net);
    while (lose.count > 0) {
        step(net);
    }
    peer_of(net, 1)->recovery.tail_said |= TAIL_LAST | TAIL_ACK;
    net->end[1].ep->lost_ns = 0; /* the other end does not retransmit early */
    lose.from = 1;
    lose.due = over;
    lose.count = 1;
    until_pass_over(net);
    uint64_t ns = until_sent(net, net->now_ns);
    assert_true(ns < 4 * way_ns);
    net_free(net);
}

/* Time until a message of one chunk is confirmed, of which the first `times` packets are lost. */
static uint64_t with_short_lost(bool lossy, uint32_t times, uint64_t answer_ns, uint32_t total)
{
    struct net *net = joined(lossy);
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = sizeof(memory),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = net->end[0].peer,
                                 .base = sent,
                                 .total = total,
                                 .elem_bytes = sizeof(float),
                                 .together = true,
                                 .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    peer_of(net, 0)->recovery.answer_ns = answer_ns;
    lose.from = 0;
    lose.due = any;
    lose.count = times;
    assert_int_equal(net_msg_expect(net, 1, &expect, &id), WEFT_OK);
    assert_int_equal(net_msg_send(net, 0, &send, &seq), WEFT_OK);
    uint64_t ns = until_sent(net, net->now_ns);
    net_free(net);
    return ns;
}

/* Where packets were lost, a message of a few bytes is sent again after 9/8 of a round trip, once,
 * and not to a peer that answers late. */
static void a_lost_short_message_comes_again_soon(void **state)
{
    (void)state;
    const uint64_t rtt_ns = 2 * way_ns;
    assert_in_range(with_short_lost(true, 0, 0, 25), rtt_ns, rtt_ns + WEFT_NS_PER_MS);
    uint64_t soon_ns = 2 * rtt_ns + rtt_ns / 8;
    assert_in_range(with_short_lost(true, 1, 0, 25), soon_ns, soon_ns + WEFT_NS_PER_MS);
    assert_true(with_short_lost(true, 2, 0, 25) > 5 * rtt_ns);
    assert_true(with_short_lost(false, 1, 0, 25) > 5 * rtt_ns);
    assert_true(with_short_lost(true, 1, 5 * rtt_ns, 25) > 5 * rtt_ns);
    assert_true(with_short_lost(true, 1, 0, 352) > 5 * rtt_ns);
}

/* The first packets of a connection, of a message of `chunks` chunks, arrive before the responder
 * has posted memory for this peer. */
static void first_packets_refused(uint32_t chunks)
{
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_msg_send send = {
        .base = sent, .total = chunks * 352, .elem_bytes = 4, .deadline_ns = WEFT_NEVER};
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = sizeof(memory),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    lose.count = 0;
    net->tap = way;
    send.peer = net_connect(net, 0, 1);
    assert_int_equal(net_msg_send(net, 0, &send, &seq), WEFT_OK);
    while (net_counters(net, 1)->no_memory < chunks) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_S));
    }
    assert_int_equal(net_msg_expect(net, 1, &expect, &id), WEFT_OK);
    net_run(net, 200 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].received, 1);
    assert_int_equal(net_counters(net, 1)->no_memory, chunks);
    assert_int_equal(net_counters(net, 0)->lost_packets, chunks);
    assert_false(losses_likely(net->end[0].ep, net->now_ns));
    assert_int_equal(peer_of(net, 1)->ack.gap_ns, 0);
    net_free(net);
}

static void refused_first_packets_are_no_losses_of_the_path(void **state)
{
    (void)state;
    first_packets_refused(1);
    first_packets_refused(8);
}

static bool chunk(const struct net *net, const struct net_datagram *d)
{
    (void)net;
    return d->bytes > 1400;
}

/* After the first acknowledgement the loss of a packet counts, also of an early one. */
static void a_loss_after_the_first_acknowledgement_counts(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    lose.count = 0;
    net->tap = way;
    (void)net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    message(net);
    net_run(net, 200 * WEFT_NS_PER_MS);
    assert_false(losses_likely(net->end[0].ep, net->now_ns));
    lose.from = 0;
    lose.due = chunk;
    lose.count = 1;
    message(net);
    net_run(net, 200 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(lose.count, 0);
    assert_true(losses_likely(net->end[0].ep, net->now_ns));
    net_free(net);
}

/* The first packet of the responder is lost: the second one, with the first acknowledgement, ends a
 * gap. */
static void a_gap_before_the_first_packet_counts(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    lose.count = 0;
    net->tap = way;
    (void)net_connect(net, 0, 1);
    message(net);
    while (net->end[0].ups == 0) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_S));
    }
    struct peer *p = peer_of(net, 0);
    assert_int_equal(p->ack.largest, 0);
    lose.from = 1;
    lose.due = any;
    lose.count = 1;
    while (p->ack.largest == 0) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_S));
    }
    assert_int_equal(lose.count, 0);
    assert_int_equal(p->ack.largest, 2);
    assert_true(p->ack.gap_ns != 0);
    assert_false(p->recovery.clean);
    net_free(net);
}

/* Probes of 120 messages, to one in 16 of which the other end answers 15 ms late. */
static uint64_t probes_of_a_late_peer(bool lossy)
{
    struct net *net = joined(lossy);
    for (uint32_t i = 0; i < 120; i++) {
        late_ns = i % 16 == 0 ? 15 * WEFT_NS_PER_MS : 0;
        net->end[0].ep->lost_ns = lossy ? net->now_ns : 0;
        message(net);
        net_run(net, 200 * WEFT_NS_PER_MS);
    }
    late_ns = 0;
    assert_int_equal(net->end[0].sent, 130);
    uint64_t probes = net_counters(net, 0)->probes;
    net_free(net);
    return probes;
}

static void a_peer_that_is_late_now_and_then_is_not_probed_each_time(void **state)
{
    (void)state;
    assert_in_range(probes_of_a_late_peer(false), 0, 2);
    assert_true(probes_of_a_late_peer(true) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_done_comes_again_soon),
        cmocka_unit_test(where_nothing_was_lost_nothing_is_said_again),
        cmocka_unit_test(the_ack_of_a_pass_that_misses_a_chunk_comes_again_soon),
        cmocka_unit_test(finish_comes_again_before_the_probe_timeout),
        cmocka_unit_test(a_lost_short_message_comes_again_soon),
        cmocka_unit_test(refused_first_packets_are_no_losses_of_the_path),
        cmocka_unit_test(a_loss_after_the_first_acknowledgement_counts),
        cmocka_unit_test(a_gap_before_the_first_packet_counts),
        cmocka_unit_test(a_peer_that_is_late_now_and_then_is_not_probed_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
