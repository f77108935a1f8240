/* Credit is granted to senders that can use it: two senders to one receiver; one of them has ended
 * its message and announced another. */
#include "core_net.h"

enum { CHUNK_BYTES = 1408, BUDGET = 24, SHORT_CHUNKS = 62, LONG_CHUNKS = 400, WINDOW = 2 };

static uint8_t source[LONG_CHUNKS * CHUNK_BYTES];
static uint8_t memory[LONG_CHUNKS * CHUNK_BYTES];

/* Ends 0 and 2 are connected to 1. */
static struct net *rig_new(void)
{
    struct net *net = calloc(1, sizeof(*net));
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 3; end++) {
        struct weft_ep_config config;
        net_config(&config, WEFT_MODE_NONE);
        config.incarnation = 10 + end;
        config.rx_window = BUDGET;
        net_open(net, end, &config);
    }
    net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net_connect(net, 2, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].ups, 2);
    return net;
}

static void message(struct net *net, uint32_t from, uint32_t chunks, uint8_t priority)
{
    struct weft_msg_expect expect = {.peer = from == 0 ? 0 : 1,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = sizeof(memory),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = 0,
                                 .base = source,
                                 .total = chunks * CHUNK_BYTES / 4,
                                 .elem_bytes = 4,
                                 .priority = priority,
                                 .deadline_ns = WEFT_NEVER};
    struct weft_msgr *to = &net->end[1].msgr;
    struct weft_msgr *msgr = &net->end[from].msgr;
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(to->ops->expect(to->self, &expect, &id), WEFT_OK);
    assert_int_equal(msgr->ops->send(msgr->self, &send, net->now_ns, &seq), WEFT_OK);
}

/* Only credit limits the sender. */
static void window_open(struct net *net, uint32_t end)
{
    inspect_peer(net->end[end].ep, 0)->cc.cwnd_bytes = UINT64_C(1) << 26;
    inspect_peer(net->end[end].ep, 0)->cc.rate_bps = 0;
}

/* An urgent message has ended, and its busy sender has announced another. The announced message
 * gets its initial credit at the old priority. Then senders with a message in progress come first,
 * until a chunk of the announced message arrives. */
static void a_backlog_alone_does_not_keep_its_place(void **state)
{
    (void)state;
    struct net *net = rig_new();
    struct weft_ep *ep = net->end[1].ep;
    struct peer *p = inspect_peer(ep, 0);
    message(net, 2, LONG_CHUNKS, 3);
    message(net, 0, SHORT_CHUNKS, 0);
    while (net->end[1].received == 0) {
        window_open(net, 0);
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
    }
    assert_int_equal(weft_core_credit_outstanding(p), 0);
    weft_core_credit_backlog_told(ep, p, p->credit.data_count + LONG_CHUNKS, p->ack.largest,
                                  net->now_ns);
    weft_core_credit_count(ep);
    assert_int_equal(p->credit.priority, 0);
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, UINT64_MAX), p);
    weft_core_credit_run(ep, net->now_ns);
    assert_in_range(weft_core_credit_outstanding(p), 1, BUDGET / 2);
    assert_int_equal(p->credit.priority, 7);
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, UINT64_MAX),
                     inspect_peer(ep, 1));
    message(net, 0, SHORT_CHUNKS, 1);
    for (uint32_t i = 0; i < 100 && p->rx.live == 0; i++) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
    }
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.priority, 1); /* from its packet */
    net_free(net);
}

/* The first sender is limited to a window of two packets and has the shorter message, so it is
 * first in order. The second is limited only by credit. Credit of the first beyond its window is
 * available to the second. The second message needs at least 17 round trips; it took 54 when the
 * first sender had half of the credit. */
static void what_a_window_keeps_unused_is_for_others(void **state)
{
    (void)state;
    struct net *net = rig_new();
    message(net, 2, LONG_CHUNKS, 3);
    message(net, 0, LONG_CHUNKS / 2, 3);
    uint64_t from_ns = net->now_ns;
    while (net->end[1].received == 0) {
        window_open(net, 2);
        inspect_peer(net->end[0].ep, 0)->cc.cwnd_bytes = WINDOW * 1500;
        inspect_peer(net->end[0].ep, 0)->cc.rate_bps = 0;
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
    }
    uint64_t rounds = (net->now_ns - from_ns) / (2 * NET_DELAY_NS);
    assert_in_range(rounds, LONG_CHUNKS / BUDGET, 32);
    const struct peer *p = inspect_peer(net->end[1].ep, 0);
    assert_in_range(p->credit.use_most, WINDOW + 1, 4 * WINDOW + 2);
    net_free(net);
}

/* Two senders limited only by credit: a small credit is used up quickly, so low use does not show
 * another limit. */
static void who_uses_all_that_it_holds_has_no_limit(void **state)
{
    (void)state;
    struct net *net = rig_new();
    const struct weft_ep *ep = net->end[1].ep;
    message(net, 2, LONG_CHUNKS, 3);
    message(net, 0, LONG_CHUNKS / 2, 3);
    while (net->end[1].received < 2) {
        window_open(net, 0);
        window_open(net, 2);
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_MS));
        bool both = ep->credit.active == 2;
        assert_true(!both ||
                    inspect_peer(ep, 0)->credit.use_most + inspect_peer(ep, 1)->credit.use_most ==
                        0);
    }
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backlog_alone_does_not_keep_its_place),
        cmocka_unit_test(what_a_window_keeps_unused_is_for_others),
        cmocka_unit_test(who_uses_all_that_it_holds_has_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
