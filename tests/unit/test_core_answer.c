/* A reply that is complete while the DONE of its request is still due: a peer that sends LATER
 * confirms the reply with its next request. No part of it may be lost, requested early, or block a
 * peer forever. */
#include "core_net.h"

enum { ASKS = 20 };

static const uint64_t gap_ns = 100 * WEFT_NS_PER_MS;

static float request = 1;
static float answer = 2;
static float request_memory;
static float answer_memory;

/* The next datagrams to lose: those sent by `from`, after `skip` more. */
static struct {
    uint32_t from;
    uint32_t skip;
    uint32_t count;
} lose;

static bool lose_some(struct net *net, struct net_datagram *d)
{
    if (lose.count == 0 || !addr_equal(&d->from, &net->end[lose.from].addr)) {
        return true;
    }
    if (lose.skip > 0) {
        lose.skip--;
        return true;
    }
    lose.count--;
    return false;
}

static void answer_it(struct net *net, uint32_t end, weft_peer peer)
{
    net_message(net, end, peer, 1 - end, &answer, sizeof(answer), &answer_memory);
}

static void ask(struct net *net)
{
    net_message(net, 0, net->end[0].peer, 1, &request, sizeof(request), &request_memory);
}

/* End 0 sends requests, end 1 replies at once. */
static struct net *joined(bool later)
{
    struct net *net = calloc(1, sizeof(*net));
    struct weft_ep_config config;
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 2; end++) {
        net_config(&config, WEFT_MODE_AUTH);
        config.incarnation = 10 + end;
        config.confirm_later = end == 0 && later;
        net_open(net, end, &config);
    }
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1);
    net->end[1].answer = answer_it;
    ask(net); /* the other end learns of LATER with the acknowledgement of this reply */
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].received, 1);
    lose.count = 0;
    net->tap = lose_some;
    return net;
}

static void quiet(struct net *net)
{
    for (uint32_t end = 0; end < 2; end++) {
        assert_false(weft_ep_busy(net->end[end].ep));
        assert_int_equal(inspect_peer(net->end[end].ep, 0)->rx.closed, 0);
        assert_int_equal(weft_ep_deadline(net->end[end].ep), WEFT_NEVER);
        assert_int_equal(net_drops(net, end), 0);
    }
}

static uint64_t sent_by(const struct net *net, uint32_t end)
{
    return net_counters(net, end)->datagrams_sent;
}

/* Datagrams of each end for ASKS requests and their replies, and after the last. */
static void count(bool later, uint64_t asker_p[2], uint64_t answerer_p[2])
{
    struct net *net = joined(later);
    uint64_t asker = sent_by(net, 0);
    uint64_t answerer = sent_by(net, 1);
    for (uint32_t i = 0; i < ASKS; i++) {
        ask(net);
        net_run(net, gap_ns);
        assert_int_equal(net->end[0].received, i + 2);
    }
    asker_p[0] = sent_by(net, 0) - asker;
    answerer_p[0] = sent_by(net, 1) - answerer;
    net_run(net, WEFT_NS_PER_S);
    asker_p[1] = sent_by(net, 0) - asker - asker_p[0];
    answerer_p[1] = sent_by(net, 1) - answerer - answerer_p[0];
    assert_int_equal(net->end[1].sent, ASKS + 1);
    assert_int_equal(net_counters(net, 0)->probes + net_counters(net, 1)->probes, 0);
    quiet(net);
    net_free(net);
}

static void it_takes_a_datagram_each_way(void **state)
{
    (void)state;
    uint64_t asker[2];
    uint64_t answerer[2];
    count(true, asker, answerer);
    assert_int_equal(asker[0], ASKS);
    assert_int_equal(answerer[0], ASKS);
    assert_int_equal(asker[1], 1); /* the last acknowledgement, because no request follows */
    assert_int_equal(answerer[1], 1);
    count(false, asker, answerer);
    assert_int_equal(asker[0], 2 * ASKS);
    assert_int_equal(answerer[0], 2 * ASKS);
    assert_int_equal(asker[1] + answerer[1], 0);
}

/* The delay of an acknowledgement is not part of the round trip, and must not lengthen the probe
 * timeout. */
static void the_round_trip_is_known_all_the_same(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t i = 0; i < ASKS; i++) {
        ask(net);
        net_run(net, gap_ns);
    }
    const struct peer *p = inspect_peer(net->end[1].ep, 0);
    assert_in_range(p->recovery.srtt_ns, 2 * NET_DELAY_NS, 3 * NET_DELAY_NS);
    assert_true(weft_core_pto_base(p) < WEFT_NS_PER_MS);
    net_free(net);
}

static void a_lost_answer_is_asked_for(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t i = 0; i < ASKS; i++) {
        lose.from = 1;
        lose.count = 1;
        ask(net);
        net_run(net, 2 * WEFT_NS_PER_MS);
        assert_int_equal(lose.count, 0);
        assert_int_equal(net->end[0].received, i + 2);
        assert_int_equal(net->end[1].received, i + 2);
        net_run(net, gap_ns);
    }
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[1].sent, ASKS + 1);
    assert_int_equal(net->end[1].outcome, WEFT_MSG_COMPLETE);
    quiet(net);
    net_free(net);
}

static void a_lost_confirmation_comes_again(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t lost = 1; lost <= 4; lost++) {
        ask(net);
        net_run(net, gap_ns);
        lose.from = 0;
        lose.count = lost; /* the separate acknowledgement, and the probes for it */
        net_run(net, 5 * WEFT_NS_PER_S);
        assert_int_equal(lose.count, 0);
        assert_int_equal(net->end[1].sent, lost + 1);
        quiet(net);
    }
    assert_int_equal(net->end[0].received, 5);
    net_free(net);
}

/* Requests that carry the acknowledgement of the previous reply; one of them is lost. */
static void a_lost_request_takes_a_confirmation_along(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t i = 0; i < ASKS; i++) {
        lose.from = 0;
        lose.count = i % 3;
        ask(net);
        net_run(net, gap_ns);
        assert_int_equal(net->end[0].received, i + 2);
    }
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].sent, ASKS + 1);
    assert_int_equal(net->end[1].received, ASKS + 1);
    quiet(net);
    net_free(net);
}

static void who_dies_with_an_answer_is_found_out(void **state)
{
    (void)state;
    struct net *net = joined(true);
    ask(net);
    net_run(net, gap_ns);
    lose.from = 0;
    lose.count = UINT32_MAX;
    net_run(net, 5 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].downs, 0);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[1].downs, 1);
    assert_int_equal(net->end[1].why, WEFT_DOWN_SILENT);
    net_free(net);
}

static void who_goes_to_sleep_confirms_first(void **state)
{
    (void)state;
    struct net *net = joined(true);
    ask(net);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].sent, 1);
    weft_ep_idle(net->end[0].ep, net->now_ns);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].sent, 2);
    weft_ep_idle(net->end[0].ep, net->now_ns);
    net_run(net, WEFT_NS_PER_MS);
    assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
    assert_false(weft_ep_busy(net->end[1].ep));
    net_free(net);
}

static void who_closes_confirms_first(void **state)
{
    (void)state;
    struct net *net = joined(true);
    ask(net);
    net_run(net, WEFT_NS_PER_MS);
    weft_ep_close(net->end[0].ep, net->end[0].peer, net->now_ns);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].sent, 2);
    assert_int_equal(net->end[1].outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(net->end[1].why, WEFT_DOWN_CLOSED);
    net_free(net);
}

/* Several requests at a time: all replies are acknowledged, whichever packet carried the
 * acknowledgement. */
static void many_at_a_time(void **state)
{
    (void)state;
    struct net *net = joined(true);
    lose.from = 1;
    for (uint32_t i = 0; i < ASKS; i++) {
        for (uint32_t k = 0; k <= i % 4; k++) {
            ask(net);
        }
        lose.skip = i % 2;
        lose.count = i % 3;
        net_run(net, gap_ns);
        assert_int_equal(net->end[0].received, net->end[1].received);
    }
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].received, 1 + ASKS / 4 * 10);
    assert_int_equal(net->end[1].sent, net->end[0].received);
    quiet(net);
    net_free(net);
}

/* Two chunks; the first is sent with the DONE. */
static void answer_in_two(struct net *net, uint32_t end, weft_peer peer)
{
    static const float values[2] = {1, 2};
    static float memory[2];
    const struct net_end *e = &net->end[end], *to = &net->end[1 - end];
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                           .sink = WEFT_SINK_COPY,
                                           .memory = memory,
                                           .memory_bytes = sizeof(memory),
                                           .count = 1,
                                           .timeout_ns = WEFT_NEVER};
    const struct weft_msg_send send = {.peer = peer,
                                       .base = values,
                                       .total = 2,
                                       .elem_bytes = sizeof(*values),
                                       .chunk_elems = 1,
                                       .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(to->msgr.ops->expect(to->msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(e->msgr.ops->send(e->msgr.self, &send, net->now_ns, &seq), WEFT_OK);
}

/* Its sender expects an undelayed acknowledgement, and gets one, also if a retransmission of the
 * chunk with the DONE closes the message. */
static void of_two_chunks_it_is_none(void **state)
{
    (void)state;
    struct net *net = joined(true);
    net->end[1].answer = answer_in_two;
    for (uint32_t i = 0; i < ASKS; i++) {
        lose.from = 1;
        lose.count = 1;
        ask(net);
        net_run(net, gap_ns);
        assert_int_equal(lose.count, 0);
        assert_int_equal(net->end[1].sent, i + 2);
    }
    assert_int_equal(net_counters(net, 1)->probes, 0);
    quiet(net);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_a_datagram_each_way),
        cmocka_unit_test(the_round_trip_is_known_all_the_same),
        cmocka_unit_test(a_lost_answer_is_asked_for),
        cmocka_unit_test(a_lost_confirmation_comes_again),
        cmocka_unit_test(a_lost_request_takes_a_confirmation_along),
        cmocka_unit_test(who_dies_with_an_answer_is_found_out),
        cmocka_unit_test(who_goes_to_sleep_confirms_first),
        cmocka_unit_test(who_closes_confirms_first),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(of_two_chunks_it_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
