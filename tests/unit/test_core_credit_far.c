/* Far senders: by how many packets a sender is far, and what follows for its allowance and for the
 * credit that it may hold. The figures are computed by hand. */
#include "core_pair.h"

enum {
    PEERS = 4,
    PACKET_BYTES = 1458, /* 1,500 on the wire */
    OWN_PACKETS = 40,    /* 60,000 bytes: 2.4 ms at 200 Mbit/s */
};

static const uint64_t near = WEFT_NS_PER_MS;

static void rtt_set(const struct weft_ep *ep, uint32_t peer, uint64_t rtt_ns)
{
    inspect_peer(ep, peer)->recovery.srtt_ns = rtt_ns;
    inspect_peer(ep, peer)->recovery.rtt_latest_ns = rtt_ns;
}

/* An endpoint with four senders at 200 Mbit/s, all with a round trip of 1 ms, least 1 ms. */
static struct weft_ep *ep_make(void)
{
    struct weft_ep_config config;
    struct weft_ep *ep = NULL;
    weft_ep_config_default(&config);
    config.peers_max = PEERS;
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_OK);
    ep->peers_used = PEERS;
    ep->credit.senders = PEERS;
    ep->credit.rate_bps = 200000000;
    ep->credit.packet_bytes = PACKET_BYTES;
    ep->credit.at_once_host = OWN_PACKETS;
    ep->credit.near_ns[0] = near;
    for (uint32_t i = 0; i < PEERS; i++) {
        inspect_peer(ep, i)->recovery.rtt_ns_min = near;
        rtt_set(ep, i, near);
    }
    return ep;
}

static void ep_end(struct weft_ep *ep)
{
    ep->peers_used = 0;
    weft_ep_free(ep);
}

/* The link transmits 25,000 bytes in a millisecond. */
static void a_sender_is_far_by_the_excess_of_its_round_trip(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    rtt_set(ep, 1, near + 2 * WEFT_NS_PER_MS); /* the queue that credit allows explains it */
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    rtt_set(ep, 1, near + 6 * WEFT_NS_PER_MS); /* 150,000 bytes - 60,000 */
    assert_int_equal(weft_core_credit_far(ep, p), 60);
    ep->credit.near_ns[0] = WEFT_NEVER;
    ep->credit.near_ns[1] = near; /* the window has just begun */
    assert_int_equal(weft_core_credit_far(ep, p), 60);
    p->recovery.rtt_latest_ns = near; /* the queue has gone; the mean follows later */
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    assert_int_equal(weft_core_credit_far(ep, inspect_peer(ep, 0)), 0);
    ep->credit.far_ceiling = 15000; /* after losses */
    p->recovery.rtt_latest_ns = p->recovery.srtt_ns;
    assert_int_equal(weft_core_credit_far(ep, p), 10);
    ep_end(ep);
}

/* 7 ms of 25,000 bytes, less 60,000, are 115,000 bytes: of half, 9 packets for each of four. */
static void what_all_have_in_common_is_shared(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    ep->credit.near_ns[0] = 8 * WEFT_NS_PER_MS;
    for (uint32_t i = 0; i < PEERS; i++) {
        rtt_set(ep, i, 8 * WEFT_NS_PER_MS);
        assert_int_equal(weft_core_credit_far(ep, inspect_peer(ep, i)), 9);
    }
    rtt_set(ep, 2, 14 * WEFT_NS_PER_MS);
    assert_int_equal(weft_core_credit_far(ep, inspect_peer(ep, 2)), 60 + 9);
    ep->credit.senders = 1; /* and one sender has all of it */
    assert_int_equal(weft_core_credit_far(ep, inspect_peer(ep, 1)), 38);
    ep_end(ep);
}

static void nobody_is_far_where_the_round_trip_says_nothing(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    rtt_set(ep, 1, near + 6 * WEFT_NS_PER_MS);
    ep->credit.turns = true; /* the senders have other receivers */
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    ep->credit.senders = 1; /* its own queue does not matter; half of it counts */
    assert_int_equal(weft_core_credit_far(ep, p), 30);
    ep->config.same_host = 1;
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    ep->config.same_host = 0;
    ep->credit.rate_bps = 0; /* not measured yet */
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    ep->credit.rate_bps = 200000000;
    p->recovery.rtt_ns_min = WEFT_NEVER; /* no sample yet */
    p->recovery.srtt_ns = 0;
    assert_int_equal(weft_core_credit_far(ep, p), 0);
    ep_end(ep);
}

/* Before the first measurement the budget is 24 packets, of which each sender has a quarter. A far
 * sender may send more, but not more than `unscheduled`. */
static void a_far_sender_has_a_larger_allowance(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    uint32_t allowance = weft_core_credit_allowance(ep);
    assert_true(allowance > 0 && allowance <= 24 / PEERS);
    assert_int_equal(weft_core_credit_allowance_of(ep, p), allowance);
    rtt_set(ep, 1, near + 4 * WEFT_NS_PER_MS); /* 100,000 bytes - 60,000 */
    assert_int_equal(weft_core_credit_allowance_of(ep, p), allowance + 26);
    rtt_set(ep, 1, near + 60 * WEFT_NS_PER_MS);
    assert_int_equal(weft_core_credit_allowance_of(ep, p), ep->config.unscheduled);
    p->credit.data_count = 1000;
    assert_int_equal(weft_core_credit_told(ep, p), 1000 + ep->config.unscheduled);
    ep_end(ep);
}

/* Both senders hold ten packets, which is the most for one of them only. */
static void a_far_sender_holds_more(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    for (uint32_t i = 1; i < 3; i++) {
        inspect_peer(ep, i)->credit.left = 100 * i;
        inspect_peer(ep, i)->credit.granted = 10;
        weft_bits_set(ep->credit_wants, i);
    }
    assert_null(weft_core_credit_pick(ep, false, false, true, 10));
    inspect_peer(ep, 2)->credit.far = 60;
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, 10), inspect_peer(ep, 2));
    inspect_peer(ep, 2)->credit.granted = 70;
    assert_null(weft_core_credit_pick(ep, false, false, true, 10));
    ep_end(ep);
}

/* Of 70 packets that it holds, 60 are not at this end's link. */
static void that_credit_is_not_in_the_budget(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    p->credit.granted = 70;
    p->credit.backlog_pn = 1;
    p->credit.backlog_end = 200;
    weft_core_credit_look(ep, p);
    assert_int_equal(ep->credit.total, 70);
    assert_int_equal(ep->credit.out, 70);
    rtt_set(ep, 1, near + 6 * WEFT_NS_PER_MS);
    weft_core_credit_look(ep, p);
    assert_int_equal(ep->credit.total, 10);
    assert_int_equal(ep->credit.out, 10); /* so it does not stop grants to near senders */
    assert_int_equal(ep->credit.far, 60);
    p->credit.data_count = 30;
    weft_core_credit_look(ep, p);
    assert_int_equal(ep->credit.total, 0);
    ep_end(ep);
}

/* A job of 200 workers of which one sends at a time: all may begin at once. */
static void expected_senders_share_the_common_part(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    ep->credit.senders = 1;
    ep->config.senders_expected = 200;
    ep->credit.near_ns[0] = 8 * WEFT_NS_PER_MS;
    rtt_set(ep, 1, 8 * WEFT_NS_PER_MS);
    assert_int_equal(weft_core_credit_far(ep, inspect_peer(ep, 1)), 0);
    ep_end(ep);
}

/* Also of those that hold it for their next message, and after the queue has gone. */
static void the_sum_over_all_peers_is_limited(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    uint64_t most = 2 * (uint64_t)ep->config.unscheduled;
    uint32_t allowance = weft_core_credit_allowance(ep);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PEERS; i++) {
        rtt_set(ep, i, near + 60 * WEFT_NS_PER_MS);
        inspect_peer(ep, i)->credit.granted = 0;
        sum += weft_core_credit_told(ep, inspect_peer(ep, i)) - allowance;
    }
    assert_int_equal(sum, most);
    assert_int_equal(ep->credit.far, most);
    rtt_set(ep, 0, near);
    (void)weft_core_credit_told(ep, inspect_peer(ep, 0));
    assert_int_equal(ep->credit.far, most);
    weft_core_peer_clear(ep, inspect_peer(ep, 0));
    assert_int_equal(ep->credit.far, most - (ep->config.unscheduled - allowance));
    ep_end(ep);
}

/* 200 packets of one window, of which these have an ECN mark and these are lost. */
static void window(struct weft_ep *ep, uint32_t marked, uint32_t lost)
{
    enum { PACKETS = 200 };
    struct peer *p = inspect_peer(ep, 1);
    p->credit.backlog_pn = 1;
    p->credit.backlog_end = p->credit.data_count + 10 * PACKETS;
    weft_core_credit_open(ep, p, WEFT_NS_PER_MS);
    weft_core_credit_run(ep, WEFT_NS_PER_MS);
    for (uint32_t i = 0; i < PACKETS; i++) {
        weft_core_credit_packet(ep, p, i < lost ? 2 : 1, PACKET_BYTES, true, i < marked,
                                2 * WEFT_NS_PER_MS, 2 * WEFT_NS_PER_MS);
    }
    weft_core_credit_run(ep, 50 * WEFT_NS_PER_MS);
}

/* Marks reduce the slack in proportion and set no ceiling for it; a far sender has one. */
static void marks_and_losses_limit_far_senders(void **state)
{
    (void)state;
    static const struct {
        uint32_t marked, lost;
        bool slack_limited, far_limited;
    } cases[] = {{0, 0, false, false},
                 {2, 0, false, false}, /* one percent */
                 {3, 0, false, true},
                 {0, 60, true, true}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct weft_ep *ep = ep_make();
        ep->credit.slack_bytes = 20000;
        ep->credit.floor_since_ns = WEFT_NS_PER_MS;
        ep->credit.loss_floor[0] = 0;
        window(ep, cases[i].marked, cases[i].lost);
        assert_int_equal(ep->credit.span_packets, 0); /* measured */
        assert_int_equal(ep->credit.far_ceiling, cases[i].far_limited ? 15000 : UINT64_MAX);
        assert_int_equal(ep->credit.slack_ceiling, cases[i].slack_limited ? 15000 : UINT64_MAX);
        rtt_set(ep, 2, near + 60 * WEFT_NS_PER_MS);
        bool few = weft_core_credit_far(ep, inspect_peer(ep, 2)) <= 10;
        assert_int_equal(few, cases[i].far_limited);
        ep_end(ep);
    }
}

/* The packet that shows a long round trip counts with that one, not with the last short one. */
static void the_nearest_round_trip_is_that_of_the_packet(void **state)
{
    struct pair *t = *state;
    static float memory[4 * 352];
    float *values = floats_new(4 * 352);
    struct weft_ep *ep = t->net.end[1].ep;
    struct peer *p = inspect_peer(ep, t->peer_of_1);
    expect_floats(t, WEFT_SINK_COPY, memory, 4 * 352);
    send_floats(t, values, 4 * 352, 0);
    p->recovery.rtt_latest_ns = 1000;
    ep->credit.near_ns[0] = WEFT_NEVER;
    ep->credit.near_ns[1] = WEFT_NEVER;
    run_for(t, 20 * WEFT_NS_PER_MS);
    assert_int_equal(t->received_count, 1);
    uint64_t nearest = weft_min_u64(ep->credit.near_ns[0], ep->credit.near_ns[1]);
    assert_in_range(nearest, 1001, 20 * WEFT_NS_PER_MS);
    free(values);
}

/* Peer 1 has 70 packets of credit, 60 of them as a far sender, when the senders turn out to have
 * other receivers. Peer 2 is granted credit at once, and the 60 packets do not return. */
static void credit_from_before_round_robin_mode_stops_no_grants(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    uint64_t now_ns = WEFT_NS_PER_MS;
    rtt_set(ep, 1, near + 6 * WEFT_NS_PER_MS);
    p->credit.granted = 70;
    weft_core_credit_backlog_told(ep, p, 500, 1, now_ns);
    weft_core_credit_count(ep);
    assert_int_equal(p->credit.far_out, 60);
    ep->credit.rounds_shared = true;
    ep->credit.turns = true;
    weft_core_credit_backlog_told(ep, inspect_peer(ep, 2), 500, 1, now_ns);
    weft_core_credit_touch(ep, p);
    weft_core_credit_run(ep, now_ns);
    assert_int_equal(p->credit.far, 0);
    assert_true(ep->credit.budget < 70);
    assert_true(weft_core_credit_outstanding(inspect_peer(ep, 2)) > 0);
    p->credit.data_count = 30; /* 40 packets of that credit are left, whatever is granted now */
    p->credit.granted = 100;
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.far_out, 40);
    p->credit.data_count = 70;
    weft_core_credit_look(ep, p);
    assert_int_equal(ep->credit.far, 0);
    ep_end(ep);
}

/* The same, where the peer had no message open when the mode began. */
static void nor_does_that_of_a_peer_that_was_idle(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    uint32_t allowance = weft_core_credit_allowance(ep);
    rtt_set(ep, 1, near + 4 * WEFT_NS_PER_MS); /* 100,000 bytes - 60,000: 26 packets */
    p->credit.data_count = 1000;
    assert_int_equal(weft_core_credit_told(ep, p), 1000 + allowance + 26);
    assert_int_equal(p->credit.far_out, 26);
    ep->credit.rounds_shared = true;
    ep->credit.turns = true;
    assert_int_equal(weft_core_credit_told(ep, p), 1000 + allowance + 26);
    weft_core_credit_backlog_told(ep, p, 1500, 1, WEFT_NS_PER_MS);
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.far, 0);
    assert_int_equal(p->credit.far_out, 26);
    assert_int_equal(p->credit.out, allowance);
    ep_end(ep);
}

/* In round-robin mode that lasts for more than 2^31 packets of a peer. */
/* A near peer is idle, and its allowance becomes smaller than what it holds. */
static void near_credit_is_not_far_in_round_robin_mode(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    uint32_t allowance = weft_core_credit_allowance(ep);
    rtt_set(ep, 1, near);
    p->credit.data_count = 1000;
    assert_int_equal(weft_core_credit_told(ep, p), 1000 + allowance);
    assert_int_equal(p->credit.far_out, 0);
    ep->credit.rounds_shared = true;
    ep->credit.turns = true;
    p->credit.granted += 20;
    weft_core_credit_idle_far(ep, p);
    assert_int_equal(p->credit.far_out, 0);
    weft_core_credit_backlog_told(ep, p, 1500, 1, WEFT_NS_PER_MS);
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.far_out, 0);
    assert_int_equal(p->credit.out, allowance + 20);
    ep_end(ep);
}

static void used_credit_does_not_return_when_the_count_wraps(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make();
    struct peer *p = inspect_peer(ep, 1);
    rtt_set(ep, 1, near + 6 * WEFT_NS_PER_MS);
    p->credit.granted = 70;
    weft_core_credit_backlog_told(ep, p, 500, 1, WEFT_NS_PER_MS);
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.far_end, 70);
    ep->credit.turns = true;
    while (p->credit.data_count < (UINT32_C(1) << 31) + 1000) {
        p->credit.granted = p->credit.data_count + 30000;
        (void)credit_data_count(&p->credit, (uint16_t)(p->credit.data_count + 30000), true);
    }
    p->credit.granted = p->credit.data_count + 70;
    p->credit.backlog_end = p->credit.data_count + 500;
    weft_core_credit_idle_far(ep, p); /* the allowance has become smaller while it was idle */
    assert_true(p->credit.far_out > 0);
    weft_core_credit_look(ep, p);
    assert_int_equal(p->credit.far_out, 0);
    ep_end(ep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sender_is_far_by_the_excess_of_its_round_trip),
        cmocka_unit_test(what_all_have_in_common_is_shared),
        cmocka_unit_test(nobody_is_far_where_the_round_trip_says_nothing),
        cmocka_unit_test(a_far_sender_has_a_larger_allowance),
        cmocka_unit_test(a_far_sender_holds_more),
        cmocka_unit_test(that_credit_is_not_in_the_budget),
        cmocka_unit_test(expected_senders_share_the_common_part),
        cmocka_unit_test(the_sum_over_all_peers_is_limited),
        cmocka_unit_test(marks_and_losses_limit_far_senders),
        cmocka_unit_test_setup_teardown(the_nearest_round_trip_is_that_of_the_packet, setup,
                                        teardown),
        cmocka_unit_test(credit_from_before_round_robin_mode_stops_no_grants),
        cmocka_unit_test(nor_does_that_of_a_peer_that_was_idle),
        cmocka_unit_test(near_credit_is_not_far_in_round_robin_mode),
        cmocka_unit_test(used_credit_does_not_return_when_the_count_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
