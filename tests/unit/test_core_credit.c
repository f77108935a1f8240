/* Receiver credit: bounded by the budget, reclaimed after loss, repeated if the grant was lost,
 * shared by the endpoints of a host. Many senders at once are tested in the simulator
 * (tests/sim/grid.sh). */
#include "core_pair.h"

enum { CHUNKS = 8000, BIG = 352 * CHUNKS };

static uint32_t outstanding_at(const struct weft_ep *ep, weft_peer peer)
{
    int32_t ahead = (int32_t)(inspect_peer(ep, peer)->credit.granted -
                              inspect_peer(ep, peer)->credit.data_count);
    return ahead > 0 ? (uint32_t)ahead : 0;
}

static struct weft_ep *ep_make(uint16_t senders_expected)
{
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.accept = 1;
    config.senders_expected = senders_expected;
    config.peers_max = 32;
    struct weft_ep *ep = NULL;
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_OK);
    return ep;
}

/* 36,000 bytes are 24 packets, divided among the senders of a known round. */
static void test_the_first_packets_are_shared_among_the_expected(void **state)
{
    (void)state;
    static const uint16_t expected[] = {1, 4, 8, 64, 1000};
    static const uint16_t packets[] = {8, 6, 3, 1, 1};
    for (size_t i = 0; i < 5; i++) {
        struct weft_ep *ep = ep_make(expected[i]);
        assert_int_equal(weft_core_credit_first(ep), packets[i]);
        weft_ep_free(ep);
    }
}

/* Messages that a peer waits for precede shorter ones; but every eighth grant is for the peer that
 * has waited longest, so that no peer starves. */
static void test_the_most_urgent_come_first(void **state)
{
    (void)state;
    static const uint8_t priority[] = {2, 1, 1};
    static const uint64_t left[] = {5, 50, 40}, class[] = {2, 4, 5}, turn[] = {1, 3, 2};
    struct weft_ep *ep = ep_make(3);
    ep->peers_used = 3;
    for (uint32_t i = 0; i < 3; i++) {
        struct peer *p = inspect_peer(ep, i);
        p->credit.priority = priority[i];
        p->credit.left = left[i];
        p->credit.class = class[i];
        p->credit.turn = turn[i];
        weft_bits_set(ep->credit_wants, i);
    }
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, UINT64_MAX),
                     inspect_peer(ep, 2));
    assert_ptr_equal(weft_core_credit_pick(ep, false, true, true, UINT64_MAX), inspect_peer(ep, 1));
    assert_ptr_equal(weft_core_credit_pick(ep, true, false, true, UINT64_MAX), inspect_peer(ep, 0));
    inspect_peer(ep, 1)->credit.granted = inspect_peer(ep, 2)->credit.granted =
        10; /* both have their maximum */
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, 10), inspect_peer(ep, 0));
    ep->peers_used = 0;
    weft_ep_free(ep);
}

/* The first packet of a message sets its priority, and its sender is granted credit by that
 * priority. */
static void test_a_message_says_how_urgent_it_is(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    const struct peer *receiver = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    for (uint8_t priority = 0; priority < 8; priority += 3) {
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, BIG);
        struct weft_msg_send send = {.peer = t->peer_of_0,
                                     .base = values,
                                     .total = BIG,
                                     .elem_bytes = sizeof(*values),
                                     .priority = priority,
                                     .tag = 42,
                                     .deadline_ns = WEFT_NEVER};
        uint64_t seq;
        assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
        bool seen = false;
        while (t->sent_count == before && net_step(&t->net, WEFT_NEVER - 1)) {
            bool counted = receiver->rx.live != 0 && !t->net.end[1].ep->credit.dirty;
            assert_true(!counted || receiver->credit.priority == priority);
            seen |= counted;
        }
        assert_true(seen);
        assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    }
    free(memory);
    free(values);
}

/* Outstanding credit counts against the budget only up to what the open message can use. */
static void assert_counted(const struct pair *t)
{
    const struct credit *c = &t->net.end[1].ep->credit;
    const struct peer *p = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    if (!c->dirty && c->active > 0 && !p->credit.silent) {
        uint64_t counted =
            weft_min_u64(weft_core_credit_outstanding(p), weft_core_credit_remaining(p));
        assert_int_equal(c->total, counted);
    }
}

/* Under loss in both directions: outstanding credit never exceeds the budget, packets sent never
 * exceed the grants except for probes, and at the end only an allowance remains. */
static void test_outstanding_stays_under_the_budget(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    struct peer *sender = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    uint64_t budget = 0;
    uint32_t most = 0;
    for (uint32_t loss_ppm = 0; loss_ppm <= 300000; loss_ppm += 100000) {
        t->net.loss_ppm = loss_ppm;
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, BIG);
        send_floats(t, values, BIG, 0);
        while (t->sent_count == before && net_step(&t->net, WEFT_NEVER - 1)) {
            uint32_t out = outstanding_at(t->net.end[1].ep, t->peer_of_1);
            most = out > most ? out : most;
            budget = weft_max_u64(budget, t->net.end[1].ep->credit.budget);
            assert_counted(t);
            assert_true(out <= budget);
            const struct peer *receiver = inspect_peer(t->net.end[1].ep, t->peer_of_1);
            assert_true((int32_t)(sender->allowed.limit - receiver->credit.granted) <= 0);
        }
        assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
        assert_int_equal(t->sent.received, CHUNKS);
    }
    assert_true(most >= 24); /* the credit was used */
    free(memory);
    free(values);
}

static void queue_clear(struct pair *t, uint32_t to)
{
    for (uint32_t i = 0; i < t->net.queued;) {
        if (t->net.queue[i].to_end == to) {
            free(net_dequeue(&t->net, i).data);
        } else {
            i++;
        }
    }
}

/* The packet with the grant is lost, and the sender has nothing to send: the grant is repeated long
 * before the sender's own probe. */
static void test_a_lost_grant_is_told_again(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    struct peer *sender = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    struct peer *receiver = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    run_for(t, WEFT_NS_PER_MS / 10);
    sender->cc.cwnd_bytes = UINT64_C(1) << 26; /* credit alone limits */
    sender->cc.rate_bps = 0;
    /* From now on nothing reaches the sender until it has used up all its credit. */
    for (int i = 0; i < 1000 && (int32_t)(sender->allowed.limit - sender->allowed.sent) > 0; i++) {
        net_step(&t->net, WEFT_NEVER - 1);
        queue_clear(t, 0);
    }
    assert_int_equal((int32_t)(sender->allowed.limit - sender->allowed.sent), 0);
    for (int i = 0; i < 1000 && receiver->credit.data_count != sender->allowed.sent; i++) {
        net_step(&t->net, WEFT_NEVER - 1);
        queue_clear(t, 0);
    }
    net_pump(&t->net);
    queue_clear(t, 0);
    assert_true((int32_t)(receiver->credit.granted - sender->allowed.limit) > 0);
    uint32_t sent = sender->allowed.sent;
    uint64_t probes = weft_ep_counters(t->net.end[0].ep)->probes;
    run_for(t, 2 * receiver->recovery.srtt_ns + 100 * WEFT_NS_PER_US);
    assert_true(sender->allowed.sent > sent);
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, probes);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    free(memory);
    free(values);
}

/* A peer that dies in the middle of a message does not block credit of other peers. */
static void test_a_silent_holder_is_passed_over(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    run_for(t, WEFT_NS_PER_MS / 10);
    pair_cut(t, true);
    run_for(t, 200 * WEFT_NS_PER_MS);
    assert_true(inspect_peer(t->net.end[1].ep, t->peer_of_1)->credit.silent);
    assert_int_equal(weft_ep_counters(t->net.end[1].ep)->credits_reclaimed, 1);
    pair_cut(t, false);
    run_for(t, 10 * WEFT_NS_PER_S);
    assert_false(inspect_peer(t->net.end[1].ep, t->peer_of_1)->credit.silent);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    free(memory);
    free(values);
}

/* A receiver whose peers sometimes answer 20 ms late, on a path without losses, gives the credit of
 * a silent one to others as early as on any path. */
static void test_late_answers_do_not_keep_a_silent_holders_credit(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    struct peer *receiver = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    run_for(t, WEFT_NS_PER_MS / 10);
    pair_cut(t, true);
    run_for(t, WEFT_NS_PER_MS / 10);
    assert_false(receiver->credit.silent);
    receiver->recovery.clean = true;
    receiver->recovery.answer_ns = receiver->recovery.answer_long_ns = 20 * WEFT_NS_PER_MS;
    run_for(t, 5 * WEFT_NS_PER_MS);
    assert_true(receiver->credit.silent);
    free(memory);
    free(values);
}

static uint64_t probe_interval(const struct weft_ep *ep, struct peer *p, uint32_t count)
{
    p->recovery.pto_count = count;
    weft_core_pto_arm(ep, p);
    assert_true(p->recovery.pto_ns != WEFT_NEVER);
    return p->recovery.pto_ns - p->recovery.pto_base_ns;
}

/* On a path without losses a sender with packets in flight allows for late answers. One that only
 * waits for credit does not: the grant may be lost. */
static void test_a_wait_for_credit_allows_for_no_late_answers(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    const struct weft_ep *ep = t->net.end[0].ep;
    struct peer *p = inspect_peer(ep, t->peer_of_0);
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    run_for(t, WEFT_NS_PER_MS / 10);
    p->recovery.clean = true;
    p->recovery.answer_ns = p->recovery.answer_long_ns = 20 * WEFT_NS_PER_MS;
    uint64_t pto_ns = weft_core_pto_base(p);
    assert_in_range(pto_ns, WEFT_NS_PER_MS / 10, 4 * WEFT_NS_PER_MS);
    assert_true(p->recovery.in_flight_count > 0);
    uint64_t first = probe_interval(ep, p, 0);
    assert_in_range(first, 20 * WEFT_NS_PER_MS, 24 * WEFT_NS_PER_MS);
    assert_int_equal(probe_interval(ep, p, 1), 2 * first);
    p->recovery.in_flight_count = 0;
    p->allowed.limit = p->allowed.sent;
    weft_bits_clear(t->net.end[0].ep->egress.waits, peer_idx(ep, p));
    assert_int_equal(probe_interval(ep, p, 0), 4 * pto_ns);
    assert_int_equal(probe_interval(ep, p, 1), 4 * pto_ns);
    assert_int_equal(probe_interval(ep, p, 2), 8 * pto_ns);
    free(memory);
    free(values);
}

/* A single endpoint on the link has the whole budget; two have half each. */
static void test_endpoints_of_a_host_share(void **state)
{
    struct pair *t = *state;
    struct weft_credit_share share = {0};
    t->net.end[1].ep->config.credit_share = &share;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    run_for(t, WEFT_NS_PER_MS / 10);
    assert_int_equal(atomic_load(&share.active), 1);
    assert_true(atomic_load(&share.bytes) > 0);
    uint64_t alone = t->net.end[1].ep->credit.budget;
    atomic_fetch_add(&share.active, 1); /* another one begins */
    run_for(t, WEFT_NS_PER_MS / 20);
    assert_in_range(t->net.end[1].ep->credit.budget, alone * 4 / 10, alone * 6 / 10);
    atomic_fetch_sub(&share.active, 1);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(atomic_load(&share.active), 0);
    t->net.end[1].ep->config.credit_share = NULL;
    free(memory);
    free(values);
}

/* Without a link in front of the receiver the budget is a constant number of bytes at any rate, and
 * at most the receive buffer. */
static void test_on_one_host_the_budget_is_a_constant(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    struct weft_ep *ep = t->net.end[1].ep;
    ep->config.same_host = 1;
    static const uint32_t windows[] = {2048, 100};
    for (int i = 0; i < 2; i++) {
        ep->config.rx_window = windows[i];
        uint64_t packets = 0;
        uint32_t most = 0;
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, BIG);
        send_floats(t, values, BIG, 0);
        while (t->sent_count == before && net_step(&t->net, WEFT_NEVER - 1)) {
            uint32_t out = outstanding_at(ep, t->peer_of_1);
            most = out > most ? out : most;
            packets = ep->credit.budget;
        }
        assert_int_equal(t->sent.received, CHUNKS);
        uint64_t whole = 2000000 / (ep->credit.packet_bytes + 42);
        assert_int_equal(packets, weft_min_u64(whole, windows[i]));
        assert_true(most <= packets && most > packets / 2);
    }
    free(memory);
    free(values);
}

/* A packet of end 0 that claims this many more DATA packets. */
static void claim(struct pair *t, uint64_t number, uint16_t data_count)
{
    uint8_t bytes[64];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet packet = {
        .flags = WEFT_FLAG_CONTROL,
        .data_count = data_count,
        .connection_id = inspect_peer(t->net.end[1].ep, t->peer_of_1)->conn.id,
        .number = number,
    };
    struct weft_wire_frame ping = {.type = WEFT_FRAME_PING};
    weft_wire_header_encode(&w, &packet);
    weft_write_u16(&w, WEFT_PING_BYTES);
    weft_wire_frame_encode(&w, &ping);
    weft_ep_recv(t->net.end[1].ep, &t->net.end[0].addr, WEFT_ECN_NOT, bytes, (size_t)(w.at - bytes),
                 t->net.now_ns, t->net.now_ns);
    net_drain(&t->net, 1);
}

/* A peer with the key can claim to have sent, and lost, any number of packets. It had no credit for
 * them, so they do not count as loss, and the peer gains no credit. */
static void test_a_liar_loses_no_more_than_its_credit(void **state)
{
    struct pair *t = *state;
    struct peer *p = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    run_for(t, WEFT_NS_PER_MS);
    t->net.end[1].ep->credit.span_lost = 0;
    uint32_t granted = p->credit.granted - p->credit.data_count;
    uint32_t before = p->credit.data_count;
    for (uint64_t i = 0; i < 100000; i++) { /* no reply is sent, so no more credit is granted */
        claim(t, 1000 + i, (uint16_t)(p->credit.data_count + 30000));
        assert_true(outstanding_at(t->net.end[1].ep, t->peer_of_1) <= granted);
    }
    assert_in_range(t->net.end[1].ep->credit.span_lost, 0, granted);
    assert_true(p->credit.data_count != before);
}

/* Probes need no credit: probes lost on a dead path do not delay a live sender. */
static void test_lost_probes_are_caught_up_with(void **state)
{
    struct pair *t = *state;
    struct peer *p = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    run_for(t, WEFT_NS_PER_MS);
    t->net.end[1].ep->credit.span_lost = 0;
    uint32_t sent = p->credit.granted + 1000;
    claim(t, 1000, (uint16_t)sent);
    assert_int_equal(p->credit.data_count, sent);
}

/* A sender that has announced a backlog closes its connection: the rest of the budget is for
 * others. */
static void test_a_closed_sender_holds_no_credit(void **state)
{
    struct pair *t = *state;
    struct weft_ep *ep = t->net.end[1].ep;
    struct peer *p = inspect_peer(ep, t->peer_of_1);
    run_for(t, WEFT_NS_PER_MS);
    weft_core_credit_backlog_told(ep, p, p->credit.data_count + 100, 1000, t->net.now_ns);
    weft_core_credit_run(ep, t->net.now_ns);
    assert_int_equal(ep->credit.active, 1);
    assert_true(ep->credit.total > 0);
    weft_core_credit_far_out(ep, p, 3);
    weft_ep_close(t->net.end[0].ep, t->peer_of_0, t->net.now_ns);
    while (p->conn.state == PEER_OPEN) {
        run_for(t, 10 * WEFT_NS_PER_US);
    }
    assert_int_equal(p->conn.state, PEER_CLOSING);
    assert_int_equal(ep->credit.active, 0);
    assert_int_equal(ep->credit.total, 0);
    assert_int_equal(ep->credit.far, 0);
    /* Nor does it when an ACK is sent with the last DONE. It holds more than the allowance, as a
     * far sender does. */
    const uint32_t granted = p->credit.granted += 100;
    assert_int_equal(weft_core_credit_told(ep, p), granted);
    assert_int_equal(ep->credit.far, 0);
}

/* Peer i requests credit and has the given amount. */
static void wants(struct weft_ep *ep, uint32_t i, uint32_t holds, uint64_t class, uint64_t turn)
{
    struct peer *p = inspect_peer(ep, i);
    weft_bits_set(ep->credit_wants, i);
    p->credit.granted = p->credit.data_count + holds;
    p->credit.left = 100 - i;
    p->credit.class = class;
    p->credit.turn = turn;
}

/* Peer 0 has waited longest and has not used its credit: it is busy with another receiver. */
static void test_by_turns_who_holds_least_goes_first(void **state)
{
    (void)state;
    struct weft_ep *ep = ep_make(0);
    ep->peers_used = 4;
    wants(ep, 0, 8, 5, 1);
    wants(ep, 1, 4, 5, 3);
    wants(ep, 2, 4, 5, 2);
    wants(ep, 3, 0, 6, 4); /* longer messages wait */
    assert_ptr_equal(weft_core_credit_pick(ep, false, true, true, UINT64_MAX), inspect_peer(ep, 2));
    inspect_peer(ep, 2)->credit.granted += 4;
    assert_ptr_equal(weft_core_credit_pick(ep, false, true, true, UINT64_MAX), inspect_peer(ep, 1));
    assert_ptr_equal(weft_core_credit_pick(ep, false, true, true, 4), inspect_peer(ep, 3));
    assert_ptr_equal(weft_core_credit_pick(ep, true, true, true, UINT64_MAX), inspect_peer(ep, 0));
    assert_ptr_equal(weft_core_credit_pick(ep, false, false, true, UINT64_MAX),
                     inspect_peer(ep, 3));
    ep->peers_used = 0;
    weft_ep_free(ep);
}

/* This number of peers has announced a hundred packets each. */
static void backlogs(struct weft_ep *ep, uint32_t peers, uint64_t now_ns)
{
    for (uint32_t i = 0; i < peers; i++) {
        struct peer *p = inspect_peer(ep, i);
        p->recovery.rtt_ns_min = 50 * WEFT_NS_PER_US;
        weft_core_credit_backlog_told(ep, p, p->credit.data_count + 100, 1, now_ns);
    }
}

/* The last round had four senders, which also had other receivers. The first message of the next
 * round arrives slightly early: the shares of the other senders are reserved for one round trip
 * only. */
static void test_the_first_of_a_round_waits_for_the_others(void **state)
{
    (void)state;
    uint64_t now_ns = WEFT_NS_PER_MS;
    struct weft_ep *ep = ep_make(0);
    ep->peers_used = 4;
    ep->credit.senders = 4;
    ep->credit.rounds_shared = true;
    backlogs(ep, 1, now_ns);
    weft_core_credit_run(ep, now_ns);
    uint32_t few = weft_core_credit_outstanding(inspect_peer(ep, 0));
    assert_in_range(few, 1, ep->credit.budget / 4 + 4);
    weft_core_credit_run(ep, now_ns + 49 * WEFT_NS_PER_US);
    assert_int_equal(weft_core_credit_outstanding(inspect_peer(ep, 0)), few);
    weft_core_credit_run(ep, now_ns + 51 * WEFT_NS_PER_US);
    assert_in_range(weft_core_credit_outstanding(inspect_peer(ep, 0)), ep->credit.budget - 8,
                    ep->credit.budget);
    ep->peers_used = 0;
    weft_ep_free(ep);
}

/* A BACKLOG of nothing, as of a packet that was lost and sent again, arrives between two rounds:
 * the next one still begins in round-robin mode. */
static void test_a_late_backlog_is_no_round(void **state)
{
    (void)state;
    uint64_t now_ns = WEFT_NS_PER_MS;
    struct weft_ep *ep = ep_make(0);
    struct peer *p = inspect_peer(ep, 0);
    ep->peers_used = 4;
    backlogs(ep, 4, now_ns);
    ep->credit.round_shared = true;
    weft_core_credit_run(ep, now_ns);
    for (uint32_t i = 0; i < 4; i++) {
        weft_core_credit_idle(ep, inspect_peer(ep, i));
    }
    for (uint64_t pn = 2; pn < 4; pn++) {
        weft_core_credit_run(ep, ++now_ns);
        assert_true(ep->credit.rounds_shared);
        weft_core_credit_backlog_told(ep, p, p->credit.data_count, pn, now_ns);
    }
    ep->peers_used = 0;
    weft_ep_free(ep);
}

/* Other senders begin with other receivers: where the shares are no smaller than a grant, they are
 * reserved for the time of half a budget on the link, too. */
static void test_shares_are_reserved_for_half_a_budget(void **state)
{
    (void)state;
    static const struct {
        uint32_t senders;
        uint64_t budgets_half; /* reserved, beyond the round trip */
    } cases[] = {{4, 1}, {16, 0}};
    const uint64_t packet_ns = 10 * WEFT_NS_PER_US;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        uint64_t now_ns = WEFT_NS_PER_MS;
        struct weft_ep *ep = ep_make(0);
        ep->peers_used = 4;
        ep->credit.senders = cases[i].senders;
        ep->credit.rounds_shared = true;
        ep->credit.pause_ns = PAUSE_PACKETS * packet_ns;
        backlogs(ep, 1, now_ns);
        weft_core_credit_run(ep, now_ns);
        uint64_t end_ns = now_ns + 50 * WEFT_NS_PER_US +
                          cases[i].budgets_half * (ep->credit.budget / 2) * packet_ns;
        uint32_t few = weft_core_credit_outstanding(inspect_peer(ep, 0));
        assert_in_range(few, 1, ep->credit.budget / cases[i].senders + 4);
        weft_core_credit_run(ep, end_ns - WEFT_NS_PER_US);
        assert_int_equal(weft_core_credit_outstanding(inspect_peer(ep, 0)), few);
        weft_core_credit_run(ep, end_ns + WEFT_NS_PER_US);
        assert_in_range(weft_core_credit_outstanding(inspect_peer(ep, 0)), ep->credit.budget - 8,
                        ep->credit.budget);
        ep->peers_used = 0;
        weft_ep_free(ep);
    }
}

/* One of several senders gets a third of the queue at once; a single sender gets a quarter of the
 * budget. A sender also gets a quarter if most of the budget covers the round trip. */
static void test_grants_to_several_senders_are_few(void **state)
{
    (void)state;
    static const struct {
        uint32_t senders;
        uint64_t rate_bps;
        uint64_t grants;
        uint32_t each;
    } cases[] = {{1, 0, 4, 20}, {3, 0, 3, 7}, {8, 0, 3, 7}, {4, UINT64_C(10000000000), 4, 16}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        uint64_t now_ns = WEFT_NS_PER_MS;
        struct weft_ep *ep = ep_make(0);
        ep->peers_used = cases[i].senders;
        ep->credit.rate_bps = cases[i].rate_bps;
        backlogs(ep, cases[i].senders, now_ns);
        weft_core_credit_run(ep, now_ns);
        assert_int_equal(ep->credit.turn, cases[i].grants);
        assert_int_equal(weft_core_credit_outstanding(inspect_peer(ep, 0)), cases[i].each);
        ep->peers_used = 0;
        weft_ep_free(ep);
    }
}

/* Senders that used little credit recently, because they had little to send: credit beyond their
 * use does not count against the budget, but it is limited to one additional budget, whatever they
 * request. */
static void test_credit_that_is_not_used_has_a_limit(void **state)
{
    (void)state;
    static const struct {
        uint32_t senders;
        uint32_t used;
    } cases[] = {{2, 3}, {3, 3}, {8, 1}, {8, 3}, {8, 12}, {32, 1}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        uint32_t senders = cases[i].senders;
        uint64_t now_ns = WEFT_NS_PER_MS;
        struct weft_ep *ep = ep_make(0);
        uint64_t out = 0;
        ep->peers_used = senders;
        backlogs(ep, senders, now_ns);
        for (uint32_t j = 0; j < senders; j++) {
            inspect_peer(ep, j)->credit.use_most = cases[i].used;
        }
        weft_core_credit_run(ep, now_ns);
        for (uint32_t j = 0; j < senders; j++) {
            out += weft_core_credit_outstanding(inspect_peer(ep, j));
        }
        assert_true(ep->credit.wanting > 0);
        assert_in_range(out, ep->credit.budget / 2, 2 * ep->credit.budget);
        assert_int_equal(ep->credit.out, out);
        for (uint32_t j = 0; j < senders; j++) {
            weft_core_credit_idle(ep, inspect_peer(ep, j));
        }
        assert_int_equal(ep->credit.out, 0);
        assert_int_equal(ep->credit.total, 0);
        ep->peers_used = 0;
        weft_ep_free(ep);
    }
}

/* Many senders with round-robin credit share a larger budget, because busy senders leave most of it
 * unused; in an incast all of it is used at once. */
static void test_by_turns_the_budget_grows_with_the_senders(void **state)
{
    (void)state;
    static const struct {
        uint32_t senders;
        bool turns;
        uint64_t bytes;
    } cases[] = {{31, false, 36000}, {7, true, 36000}, {31, true, 57000}};
    for (size_t i = 0; i < 3; i++) {
        struct weft_ep *ep = ep_make(0);
        ep->peers_used = cases[i].senders;
        ep->credit.rounds_shared = cases[i].turns;
        backlogs(ep, cases[i].senders, WEFT_NS_PER_MS);
        weft_core_credit_run(ep, WEFT_NS_PER_MS);
        assert_int_equal(ep->credit.budget, cases[i].bytes / (ep->credit.packet_bytes + 42));
        assert_in_range(ep->credit.total, ep->credit.budget - 4, ep->credit.budget);
        ep->peers_used = 0;
        weft_ep_free(ep);
    }
}

struct pause_case {
    uint64_t packet_ns;
    uint64_t on_their_way;
    uint64_t want_ns;
};

/* A quarter of the data in flight, if that is long enough for a timer. */
static void test_a_receiver_may_pause_while_packets_gather(void **state)
{
    (void)state;
    static const struct pause_case cases[] = {
        {12000, 100, 100000},               /* 1 Gbit/s: never longer */
        {12000, 20, 60000},                 /* a quarter */
        {12000, 16, 0},                     /* too short */
        {12000, 0, 0},                      /* no arrivals */
        {1200, 300, 90000},                 /* 10 Gbit/s */
        {400, 1300, 100000},                /* loopback: never longer */
        {400, 600, 60000},    {400, 90, 0}, /* a small receive buffer */
        {60000, 100, 0},                    /* 200 Mbit/s: each arrives separately */
    };
    struct weft_ep *ep = ep_make(1);
    struct credit *c = &ep->credit;
    c->active = 1;
    c->total = 100;
    assert_int_equal(weft_ep_batch_ns(ep), 0); /* the rate is unknown */
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        c->pause_ns = PAUSE_PACKETS * cases[i].packet_ns;
        c->total = cases[i].on_their_way;
        assert_int_equal(weft_ep_batch_ns(ep), cases[i].want_ns);
    }
    c->pause_ns = PAUSE_PACKETS * 12000;
    c->total = 100;
    ep->egress.receivers = 1; /* its own chunks wait for arrivals */
    assert_int_equal(weft_ep_batch_ns(ep), 0);
    ep->egress.receivers = 0;
    c->active = 0; /* no sender is active */
    assert_int_equal(weft_ep_batch_ns(ep), 0);
    c->total = 0;
    weft_ep_free(ep);
}

/* A link of 200 Mbit/s with a buffer in front of a busy host: this end's process does not run in
 * the first `asleep_ns` of every 10 ms. */
struct busy_host {
    uint64_t asleep_ns;
    uint64_t buffer_ns; /* capacity of the buffer, as link time */
    uint64_t link_ns;   /* when its contents have left */
    uint32_t dropped;
};

static const uint64_t busy_packet_ns = 57600;
static const uint64_t busy_period_ns = 10 * WEFT_NS_PER_MS;

static uint64_t busy_awake(const struct busy_host *h, uint64_t ns)
{
    return ns != WEFT_NEVER && ns % busy_period_ns < h->asleep_ns
               ? ns - ns % busy_period_ns + h->asleep_ns
               : ns;
}

static bool busy_link(struct net *net, struct net_datagram *d)
{
    struct busy_host *h = net->tap_arg;
    if (d->to_end != 1) {
        return true;
    }
    uint64_t from_ns = weft_max_u64(h->link_ns, net->now_ns);
    if (from_ns - net->now_ns > h->buffer_ns) {
        h->dropped++;
        return false;
    }
    if (d->bytes > 1000) {
        h->link_ns = from_ns + busy_packet_ns;
    }
    d->due_ns += h->link_ns - weft_min_u64(h->link_ns, net->now_ns);
    return true;
}

/* Packets that arrive while the process does not run are queued in its socket. */
static void busy_step(struct pair *t, struct busy_host *h)
{
    net_pump(&t->net);
    uint64_t next = weft_min_u64(weft_ep_deadline(t->net.end[0].ep),
                                 busy_awake(h, weft_ep_deadline(t->net.end[1].ep)));
    for (uint32_t i = 0; i < t->net.queued; i++) {
        uint64_t due_ns = t->net.queue[i].due_ns;
        next = weft_min_u64(next, t->net.queue[i].to_end == 1 ? busy_awake(h, due_ns) : due_ns);
    }
    t->net.now_ns = weft_max_u64(t->net.now_ns, next);
    bool runs = busy_awake(h, t->net.now_ns) == t->net.now_ns;
    for (uint32_t i = 0; i < t->net.queued;) {
        struct net_datagram d = t->net.queue[i];
        if (d.due_ns > t->net.now_ns || (d.to_end == 1 && !runs)) {
            i++;
            continue;
        }
        (void)net_dequeue(&t->net, i);
        weft_ep_recv(t->net.end[d.to_end].ep, &d.from, WEFT_ECN_ECT0, d.data, d.bytes, d.due_ns,
                     t->net.now_ns);
        net_drain(&t->net, d.to_end);
        free(d.data);
    }
    for (uint32_t end = 0; end < 1U + runs; end++) {
        weft_ep_on_deadline(t->net.end[end].ep, t->net.now_ns);
        net_drain(&t->net, end);
    }
}

/* One long message; returns its duration beyond the link's transmission time. */
static double busy_message(struct pair *t, struct busy_host *h, const float *values, float *memory)
{
    uint32_t before = t->sent_count;
    uint64_t from_ns = t->net.now_ns;
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    send_floats(t, values, BIG, 0);
    for (uint32_t i = 0; t->sent_count == before; i++) {
        assert_true(i < 1000000);
        busy_step(t, h);
    }
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(t->sent.received, CHUNKS);
    return (double)(t->net.now_ns - from_ns) / (double)(CHUNKS * busy_packet_ns);
}

/* A process that does not run for 5 of 10 ms keeps credit outstanding for that time, so its link is
 * not idle. When it runs promptly again, its credit shrinks to the previous amount. If the buffer
 * is too small for that credit, probing for it loses few packets. */
static void test_who_is_kept_from_running_has_more_credit_out(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    struct busy_host h = {.buffer_ns = 18 * WEFT_NS_PER_MS};
    t->net.tap = busy_link;
    t->net.tap_arg = &h;
    assert_true(busy_message(t, &h, values, memory) < 1.03);
    uint64_t prompt = t->net.end[1].ep->credit.budget;
    h.asleep_ns = 5 * WEFT_NS_PER_MS;
    assert_true(busy_message(t, &h, values, memory) < 1.08);
    assert_true(t->net.end[1].ep->credit.budget > 5 * WEFT_NS_PER_MS / busy_packet_ns);
    assert_int_equal(h.dropped, 0);
    h.asleep_ns = 0;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(busy_message(t, &h, values, memory) < 1.03);
    }
    assert_in_range(t->net.end[1].ep->credit.budget, 1, prompt + 4);
    h.asleep_ns = 5 * WEFT_NS_PER_MS;
    h.buffer_ns = 64000 * UINT64_C(8) * 5; /* 64,000 bytes at 200 Mbit/s */
    assert_true(busy_message(t, &h, values, memory) < 1.4);
    assert_in_range(h.dropped, 1, CHUNKS / 25);
    free(memory);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_packets_are_shared_among_the_expected),
        cmocka_unit_test(test_by_turns_who_holds_least_goes_first),
        cmocka_unit_test(test_a_late_backlog_is_no_round),
        cmocka_unit_test(test_shares_are_reserved_for_half_a_budget),
        cmocka_unit_test(test_by_turns_the_budget_grows_with_the_senders),
        cmocka_unit_test(test_the_first_of_a_round_waits_for_the_others),
        cmocka_unit_test(test_grants_to_several_senders_are_few),
        cmocka_unit_test(test_credit_that_is_not_used_has_a_limit),
        cmocka_unit_test(test_the_most_urgent_come_first),
        cmocka_unit_test_setup_teardown(test_a_message_says_how_urgent_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outstanding_stays_under_the_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_grant_is_told_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_silent_holder_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_answers_do_not_keep_a_silent_holders_credit,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_wait_for_credit_allows_for_no_late_answers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_endpoints_of_a_host_share, setup, teardown),
        cmocka_unit_test_setup_teardown(test_on_one_host_the_budget_is_a_constant, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_liar_loses_no_more_than_its_credit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_probes_are_caught_up_with, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_closed_sender_holds_no_credit, setup, teardown),
        cmocka_unit_test(test_a_receiver_may_pause_while_packets_gather),
        cmocka_unit_test_setup_teardown(test_who_is_kept_from_running_has_more_credit_out, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
