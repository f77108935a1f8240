/* DONE is acknowledged late by an end with done_later, on a path without recent losses. No message
 * may stay open longer, and no DONE may be unconfirmed forever. */
#include "core_net.h"

enum { TIMES = 20, LONG_BYTES = 8 << 20 };

static const uint64_t gap_ns = 10 * WEFT_NS_PER_MS;

static uint32_t values[LONG_BYTES / 4];
static uint32_t memory[LONG_BYTES / 4];

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

static void give(struct net *net, uint32_t from, uint32_t bytes)
{
    net_message(net, from, net->end[from].peer, 1 - from, values, bytes, memory);
}

/* End 0 sends messages; it acknowledges their DONE late if `later`. */
static struct net *joined(bool later)
{
    struct net *net = calloc(1, sizeof(*net));
    struct weft_ep_config config;
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 2; end++) {
        net_config(&config, WEFT_MODE_AUTH);
        config.incarnation = 10 + end;
        config.done_later = end == 0 && later;
        net_open(net, end, &config);
    }
    (void)net_connect(net, 0, 1);
    net_run(net, gap_ns);
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    lose.count = 0;
    net->tap = lose_some;
    return net;
}

static void quiet(struct net *net)
{
    for (uint32_t end = 0; end < 2; end++) {
        const struct peer *p = inspect_peer(net->end[end].ep, 0);
        assert_false(weft_ep_busy(net->end[end].ep));
        assert_int_equal(p->rx.closed, 0);
        assert_int_equal(p->recovery.in_flight_count, 0);
        assert_int_equal(p->recovery.late_count, 0);
        assert_int_equal(weft_ep_deadline(net->end[end].ep), WEFT_NEVER);
        assert_int_equal(net_drops(net, end), 0);
    }
}

static uint64_t probes(const struct net *net)
{
    return net_counters(net, 0)->probes + net_counters(net, 1)->probes;
}

static uint64_t sent_by(const struct net *net, uint32_t end)
{
    return net_counters(net, end)->datagrams_sent;
}

/* Datagrams of both ends for TIMES messages of one packet. */
static void count(bool later, uint64_t sent_p[2])
{
    struct net *net = joined(later);
    uint64_t before[2] = {sent_by(net, 0), sent_by(net, 1)};
    for (uint32_t i = 0; i < TIMES; i++) {
        give(net, 0, 4);
        net_run(net, gap_ns);
        assert_int_equal(net->end[0].sent, i + 2);
    }
    net_run(net, WEFT_NS_PER_S);
    for (uint32_t end = 0; end < 2; end++) {
        sent_p[end] = sent_by(net, end) - before[end];
    }
    assert_int_equal(probes(net), 0);
    quiet(net);
    net_free(net);
}

static void one_acknowledgement_is_for_several(void **state)
{
    (void)state;
    uint64_t sent[2];
    count(true, sent);
    assert_int_equal(sent[0], TIMES + TIMES / 5); /* one in 50 ms */
    assert_int_equal(sent[1], TIMES);
    count(false, sent);
    assert_int_equal(sent[0], 2 * TIMES);
    assert_int_equal(sent[1], TIMES);
}

/* A message of the other end is acknowledged anyway, and DONE with it. */
static void it_goes_with_the_next_acknowledgement(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t i = 0; i < TIMES; i++) {
        uint64_t before = sent_by(net, 0);
        give(net, 0, 4);
        net_run(net, WEFT_NS_PER_MS);
        assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 1);
        give(net, 1, 4);
        net_run(net, WEFT_NS_PER_MS);
        assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 0);
        assert_int_equal(inspect_peer(net->end[1].ep, 0)->rx.closed, 0);
        assert_int_equal(sent_by(net, 0) - before, 2); /* the message, and DONE of the other */
    }
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(probes(net), 0);
    quiet(net);
    net_free(net);
}

/* The time of a late acknowledgement is no round trip, and does not delay probes. */
static void the_round_trip_is_known_all_the_same(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t i = 0; i < TIMES; i++) {
        give(net, 0, 4);
        net_run(net, 6 * gap_ns);
        give(net, 1, 4);
        net_run(net, gap_ns);
    }
    const struct peer *p = inspect_peer(net->end[1].ep, 0);
    assert_in_range(p->recovery.srtt_ns, 2 * NET_DELAY_NS, 3 * NET_DELAY_NS);
    assert_true(p->recovery.answer_long_ns < WEFT_NS_PER_MS);
    net_free(net);
}

/* The end that waits for DONE probes, as early as without done_later. */
static void a_lost_done_is_asked_for(void **state)
{
    (void)state;
    uint64_t took_ns[2];
    for (uint32_t later = 0; later < 2; later++) {
        struct net *net = joined(later == 1);
        lose.from = 1;
        lose.count = 1;
        give(net, 0, 4);
        uint64_t begun_ns = net->now_ns;
        while (net->end[0].sent < 2 && net_step(net, WEFT_NEVER - 1)) {
            continue;
        }
        assert_int_equal(lose.count, 0);
        took_ns[later] = net->now_ns - begun_ns;
        net_run(net, WEFT_NS_PER_S);
        quiet(net);
        net_free(net);
    }
    assert_true(took_ns[1] <= took_ns[0]);
}

static void a_lost_acknowledgement_comes_again(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t lost = 1; lost <= 4; lost++) {
        give(net, 0, 4);
        net_run(net, WEFT_NS_PER_MS);
        assert_int_equal(net->end[0].sent, lost + 1);
        lose.from = 0;
        lose.count = lost; /* the separate acknowledgement, and those of the probes */
        net_run(net, 20 * WEFT_NS_PER_S);
        assert_int_equal(lose.count, 0);
        quiet(net);
    }
    net_free(net);
}

/* After a loss each DONE is acknowledged at once. */
static void not_where_packets_were_lost(void **state)
{
    (void)state;
    struct net *net = joined(true);
    lose.from = 0;
    lose.skip = 1;
    lose.count = 1;
    give(net, 0, LONG_BYTES);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(lose.count, 0);
    assert_int_equal(net->end[0].sent, 2);
    uint64_t before[2] = {sent_by(net, 0), sent_by(net, 1)};
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 3);
    assert_int_equal(sent_by(net, 0) - before[0], 2);
    assert_int_equal(sent_by(net, 1) - before[1], 1); /* DONE is not repeated */
    quiet(net);
    net_free(net);
}

/* While DONE is unconfirmed, a new message has its own probe timeout: it is not probed for too
 * early, although it must wait for credit, nor too late. */
static void it_does_not_move_the_probes_of_others(void **state)
{
    (void)state;
    struct net *net = joined(true);
    give(net, 0, 4);
    net_run(net, 2 * gap_ns);
    struct peer *p = inspect_peer(net->end[1].ep, 0);
    assert_int_equal(p->recovery.late_count, 1);
    p->allowed.limit = p->allowed.sent;
    give(net, 1, 4);
    net_run(net, weft_core_pto_base(p));
    assert_int_equal(probes(net), 0);
    net_run(net, gap_ns);
    assert_int_equal(net->end[1].sent, 1);
    assert_int_equal(net_counters(net, 1)->probes, 1);
    net_run(net, WEFT_NS_PER_S);
    quiet(net);
    net_free(net);
}

/* Acknowledgements alone use packet numbers, too: DONE is confirmed before the ring is full. */
static void the_ring_does_not_fill_up(void **state)
{
    (void)state;
    struct net *net = joined(true);
    const struct recovery *r = &inspect_peer(net->end[1].ep, 0)->recovery;
    uint64_t first = r->pn_next, most = 0;
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(r->late_count, 1);
    for (uint32_t i = 0; i < 8; i++) { /* too few to be acknowledged for their number */
        give(net, 0, LONG_BYTES);
        while (net->end[0].sent < i + 3 && net_step(net, WEFT_NEVER - 1)) {
            most = weft_max_u64(most, r->pn_next - r->pn_oldest);
        }
    }
    assert_true(r->pn_next - first > LATE_NUMBERS_MAX + 32);
    assert_in_range(most, LATE_NUMBERS_MAX, LATE_NUMBERS_MAX + 8);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net_counters(net, 1)->lost_packets, 0);
    assert_int_equal(probes(net), 0);
    quiet(net);
    net_free(net);
}

static void who_goes_to_sleep_confirms_first(void **state)
{
    (void)state;
    struct net *net = joined(true);
    for (uint32_t open = 0; open < 2; open++) {
        give(net, 0, 4);
        net_run(net, WEFT_NS_PER_MS);
        assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 1);
        if (open == 1) { /* not quiet, so it does not announce that it sleeps */
            lose.from = 0;
            lose.count = 1;
            give(net, 0, 4);
            net_pump(net);
        }
        weft_ep_idle(net->end[0].ep, net->now_ns);
        net_run(net, WEFT_NS_PER_MS / 10);
        assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 0);
    }
    net_free(net);
}

/* An end that makes no progress for a short time sends what it delays, and no IDLE. */
static void it_is_sent_when_asked_for(void **state)
{
    (void)state;
    struct net *net = joined(true);
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 1);
    weft_ep_acknowledge(net->end[0].ep);
    net_run(net, WEFT_NS_PER_MS / 10);
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->recovery.late_count, 0);
    assert_false(inspect_peer(net->end[1].ep, 0)->conn.idle);
    net_run(net, WEFT_NS_PER_S);
    quiet(net);
    net_free(net);
}

/* An end that waits only for late acknowledgements of its DONEs announces that it is idle. The
 * other end then waits for it, and the DONEs are confirmed when it makes progress again. */
static void who_waits_for_them_may_go_to_sleep(void **state)
{
    (void)state;
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct net *net = joined(true);
        struct peer *sleeper = inspect_peer(net->end[1].ep, 0);
        lose.from = 1;
        lose.count = lost; /* DONE */
        give(net, 0, 4);
        net_run(net, WEFT_NS_PER_MS / 10);
        assert_int_equal(lose.count, 0);
        assert_int_equal(sleeper->recovery.late_count, 1);
        weft_ep_idle(net->end[1].ep, net->now_ns);
        net_pump(net);
        net->end[1].frozen_until_ns = net->now_ns + 60 * WEFT_NS_PER_S;
        net_run(net, 59 * WEFT_NS_PER_S);
        assert_int_equal(net->end[0].downs, 0);
        assert_true(inspect_peer(net->end[0].ep, 0)->conn.idle);
        net_run(net, 3 * WEFT_NS_PER_S);
        assert_int_equal(net->end[0].downs + net->end[1].downs, 0);
        assert_int_equal(net->end[0].sent, 2);
        quiet(net);
        net_free(net);
    }
}

/* A DONE in flight does not prevent the measurement of how late the peer replies. */
static void the_wait_for_the_others_is_measured(void **state)
{
    (void)state;
    struct net *net = joined(true);
    const struct recovery *r = &inspect_peer(net->end[1].ep, 0)->recovery;
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(r->late_count, 1);
    assert_true(r->answer_long_ns < WEFT_NS_PER_MS);
    net->end[0].frozen_until_ns = net->now_ns + 5 * WEFT_NS_PER_MS + NET_DELAY_NS;
    give(net, 1, 3 * 1000);
    net_run(net, gap_ns);
    assert_int_equal(net->end[1].sent, 1);
    assert_true(r->answer_long_ns >= 5 * WEFT_NS_PER_MS);
    net_run(net, WEFT_NS_PER_S);
    quiet(net);
    net_free(net);
}

/* The first probe of a message to a late peer repeats no DONE; the second does. */
static void a_first_probe_does_not_repeat_it(void **state)
{
    (void)state;
    struct net *net = joined(true);
    struct peer *p = inspect_peer(net->end[1].ep, 0);
    give(net, 1, 4);
    net_run(net, 6 * gap_ns);
    assert_true(p->recovery.clean);
    give(net, 0, 4);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(p->recovery.late_count, 1);
    net->end[0].frozen_until_ns = net->now_ns + 20 * gap_ns;
    uint64_t before = sent_by(net, 1);
    give(net, 1, 4);
    for (uint32_t probe = 1; probe <= 2; probe++) {
        while (p->recovery.pto_count < probe) {
            assert_true(net_step(net, net->now_ns + gap_ns));
        }
        net_pump(net);
        assert_int_equal(sent_by(net, 1) - before, probe == 1 ? 2 : 4);
    }
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[1].sent, 2);
    quiet(net);
    net_free(net);
}

/* DONE and a message of the same end are lost: the other end probes for DONE. */
static void a_lost_done_is_asked_for_although_its_sender_probes(void **state)
{
    (void)state;
    struct net *net = joined(true);
    give(net, 1, 4);
    net_run(net, 6 * gap_ns);
    lose.from = 1;
    lose.count = 2;
    give(net, 0, 4);
    net_run(net, NET_DELAY_NS + 1);
    give(net, 1, 4);
    net_run(net, 3 * gap_ns);
    assert_int_equal(lose.count, 0);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(net->end[1].sent, 2);
    net_run(net, WEFT_NS_PER_S);
    quiet(net);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_acknowledgement_is_for_several),
        cmocka_unit_test(it_goes_with_the_next_acknowledgement),
        cmocka_unit_test(the_round_trip_is_known_all_the_same),
        cmocka_unit_test(a_lost_done_is_asked_for),
        cmocka_unit_test(a_lost_acknowledgement_comes_again),
        cmocka_unit_test(not_where_packets_were_lost),
        cmocka_unit_test(it_does_not_move_the_probes_of_others),
        cmocka_unit_test(the_ring_does_not_fill_up),
        cmocka_unit_test(who_goes_to_sleep_confirms_first),
        cmocka_unit_test(it_is_sent_when_asked_for),
        cmocka_unit_test(who_waits_for_them_may_go_to_sleep),
        cmocka_unit_test(the_wait_for_the_others_is_measured),
        cmocka_unit_test(a_first_probe_does_not_repeat_it),
        cmocka_unit_test(a_lost_done_is_asked_for_although_its_sender_probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
