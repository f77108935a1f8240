/* Two endpoints joined by a list of datagrams on a fake clock: one message, step by step. The
 * simulator covers rare interleavings (docs/SIMULATOR.md). */
#include "core_pair.h"

static void test_one_chunk_and_its_done(void **state)
{
    struct pair *t = *state;
    float value = 3;
    float got = 0;
    expect_floats(t, WEFT_SINK_COPY, &got, 1);
    send_floats(t, &value, 1, 0);
    t->log[0] = '\0';
    run_for(t, WEFT_NS_PER_S);
    assert_string_equal(t->log, "1:open 1:received 0:sent");
    assert_true(got == 3);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(t->received.user, 5);
    assert_false(weft_ep_busy(t->net.end[0].ep) || weft_ep_busy(t->net.end[1].ep));
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, 0);
    assert_int_equal(weft_ep_deadline(t->net.end[0].ep), WEFT_NEVER);
    assert_int_equal(weft_ep_deadline(t->net.end[1].ep), WEFT_NEVER);
}

static void test_bound_zero_survives_loss(void **state)
{
    struct pair *t = *state;
    uint32_t n = 352 * 700 + 11;
    float *values = floats_new(n);
    float *sum = calloc(n, sizeof(*sum));
    t->net.loss_ppm = 100000;
    for (int round = 1; round <= 2; round++) {
        expect_floats(t, WEFT_SINK_ADD, sum, n);
        send_floats(t, values, n, 0);
        run_for(t, 3 * WEFT_NS_PER_S);
        assert_int_equal(t->sent_count, round);
        assert_int_equal(t->received.received, t->received.chunks);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_true(sum[i] == 2 * values[i]);
    }
    assert_true(weft_ep_counters(t->net.end[0].ep)->retransmitted_packets > 100);
    free(values);
    free(sum);
}

static void test_masks_agree_and_bound_holds(void **state)
{
    struct pair *t = *state;
    uint32_t n = 352 * 640;
    float *values = floats_new(n);
    float *got = calloc(n, sizeof(*got));
    uint32_t missing = 0;
    t->net.loss_ppm = 50000;
    for (uint32_t round = 1; round <= 5; round++) {
        memset(got, 0, n * sizeof(*got));
        expect_floats(t, WEFT_SINK_COPY, got, n);
        send_floats(t, values, n, 100000);
        run_for(t, 2 * WEFT_NS_PER_S);
        assert_int_equal(t->sent_count, round);
        assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
        assert_int_equal(t->sent.received, t->received.received);
        assert_memory_equal(t->sent_mask, t->received_mask, WEFT_BITS_WORDS(640) * 8);
        missing += 640 - t->received.received;
        assert_true(640 - t->received.received <= 64);
        for (uint32_t i = 0; i < n; i++) {
            bool there = weft_bits_test(t->received_mask, i / 352);
            assert_true(got[i] == (there ? values[i] : 0));
        }
    }
    assert_true(missing > 0); /* 5 % of 3,200 chunks: some chunks are missing */
    free(values);
    free(got);
}

static void test_data_is_dropped_until_memory_is_posted(void **state)
{
    struct pair *t = *state;
    float value = 9;
    float got = 0;
    send_floats(t, &value, 1, 0);
    run_for(t, 20 * WEFT_NS_PER_S); /* longer than the peer timeout; the peer replies, so it is
                                     * alive */
    assert_int_equal(t->received_count, 0);
    assert_int_equal(t->down_count, 0);
    assert_true(weft_ep_counters(t->net.end[1].ep)->no_memory > 0);
    expect_floats(t, WEFT_SINK_COPY, &got, 1);
    run_for(t, 2 * WEFT_NS_PER_S);
    assert_int_equal(t->received_count, 1);
    assert_true(got == 9);
}

static void test_dead_peer_is_reported(void **state)
{
    struct pair *t = *state;
    float value = 1;
    pair_cut(t, true);
    send_floats(t, &value, 1, 0);
    t->log[0] = '\0';
    run_for(t, 4 * WEFT_NS_PER_S);
    assert_string_equal(t->log, "");
    run_for(t, 3 * WEFT_NS_PER_S);
    assert_string_equal(t->log, "0:sent 0:down");
    assert_int_equal(t->sent.outcome, WEFT_MSG_UNKNOWN);
}

static void test_close_reaches_the_other_end(void **state)
{
    struct pair *t = *state;
    t->log[0] = '\0';
    weft_ep_close(t->net.end[0].ep, t->peer_of_0, t->net.now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "0:down 1:down");
    assert_false(weft_ep_busy(t->net.end[0].ep) || weft_ep_busy(t->net.end[1].ep));
}

static void test_sender_deadline_is_short(void **state)
{
    struct pair *t = *state;
    uint32_t n = 352 * 2000;
    float *values = floats_new(n);
    float *got = calloc(n, sizeof(*got));
    expect_floats(t, WEFT_SINK_COPY, got, n);
    struct weft_msg_send send = {
        .peer = t->peer_of_0,
        .base = values,
        .total = n,
        .elem_bytes = sizeof(float),
        .tag = 42,
        .deadline_ns = t->net.now_ns + 100000,
    };
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent_count, 1);
    assert_int_equal(t->sent.outcome, WEFT_MSG_SHORT);
    assert_true(t->sent.received < t->sent.chunks);
    assert_memory_equal(t->sent_mask, t->received_mask, WEFT_BITS_WORDS(2000) * 8);
    free(values);
    free(got);
}

/* A DONE with more chunks than were sent, of a message of which nothing, or a part, was sent. */
static void test_done_for_chunks_never_sent(void **state)
{
    struct pair *t = *state;
    enum { FLOATS = 352 * 2000 };
    float *values = floats_new(FLOATS);
    struct weft_ep *ep = t->net.end[0].ep;
    struct peer *p = inspect_peer(ep, t->peer_of_0);
    for (uint32_t begun = 0; begun < 2; begun++) {
        uint64_t seq = send_floats(t, values, FLOATS, 0);
        struct tx_msg *m = &p->tx.msgs[seq & MSG_MASK];
        if (begun) {
            net_pump(&t->net);
        }
        assert_true(begun ? m->pass_next > 0 && m->pass_next < m->chunks : m->pass_next == 0);
        struct weft_wire_done done = {.status = WEFT_DONE_COMPLETE,
                                      .msg = (uint32_t)seq,
                                      .chunks = m->chunks,
                                      .received = m->chunks};
        weft_core_done_recv(ep, p, &done, t->net.now_ns);
        assert_int_equal(weft_ep_counters(ep)->bad_ack, 1 + begun);
        assert_false(m->active);
        run_for(t, WEFT_NS_PER_MS);
        assert_int_equal(t->sent_count, 1 + begun);
        assert_int_equal(t->sent.outcome, WEFT_MSG_UNKNOWN);
    }
    free(values);
}

static void refuse_chunk(struct pair *t, const struct weft_msg_event *ev)
{
    if (ev->chunk % 2 == 0) {
        t->net.end[1].msgr.ops->refuse(t->net.end[1].msgr.self, ev->peer, ev->seq);
    }
}

static void test_hand_and_refuse(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(352 * 10);
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_EVENT,
        .tag = 42,
        .tag_mask = UINT64_MAX,
        .memory_bytes = 1 << 20,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
    };
    weft_expect_id id;
    t->on_chunk = refuse_chunk;
    assert_int_equal(net_msg_expect(&t->net, 1, &e, &id), WEFT_OK);
    send_floats(t, values, 352 * 10, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->chunk_count, 10);
    assert_int_equal(t->sent.refused, 5);
    assert_int_equal(t->net.end[1].msgr.ops->cancel(t->net.end[1].msgr.self, id), WEFT_NOTFOUND);
    free(values);
}

static void test_64_messages_twice(void **state)
{
    struct pair *t = *state;
    float value = 1;
    float got[WEFT_MSGS_MAX];
    pair_cut(t, true);
    for (int i = 0; i < WEFT_MSGS_MAX; i++) {
        expect_floats(t, WEFT_SINK_COPY, &got[i], 1);
        send_floats(t, &value, 1, 0);
    }
    struct weft_msg_send send = {.peer = t->peer_of_0, .base = &value, .total = 1, .elem_bytes = 4,
                                 .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_AGAIN);
    send.bound_ppm = WEFT_PPM;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_INVALID);
    pair_cut(t, false);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent_count, WEFT_MSGS_MAX);
}

static void test_idle_silences_the_other_end(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    weft_ep_idle(t->net.end[0].ep, t->net.now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    float value = 1;
    struct weft_msg_send send = {.peer = t->peer_of_1, .base = &value, .total = 1, .elem_bytes = 4,
                                 .tag = 1, .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    uint64_t before = weft_ep_counters(t->net.end[1].ep)->datagrams_sent;
    assert_int_equal(net_msg_send(&t->net, 1, &send, &seq), WEFT_OK);
    run_for(t, 30 * WEFT_NS_PER_S);
    assert_int_equal(weft_ep_counters(t->net.end[1].ep)->datagrams_sent, before);
    assert_int_equal(t->down_count, 0);
}

/* A deadline passes although the other end does not respond: FINISH is sent, and a dead peer is
 * detected. */
static void test_deadline_towards_an_idle_peer(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    weft_ep_idle(t->net.end[0].ep, t->net.now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    float value = 1;
    struct weft_msg_send send = {.peer = t->peer_of_1, .base = &value, .total = 1, .elem_bytes = 4,
                                 .tag = 1, .deadline_ns = t->net.now_ns + WEFT_NS_PER_MS};
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 1, &send, &seq), WEFT_OK);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent_count, 1);
    assert_int_equal(t->sent.outcome, WEFT_MSG_SHORT);
    assert_int_equal(t->sent.received, 0);
}

/* FINISH(SHORT) is lost once while other messages keep the connection busy. */
static void test_lost_finish_is_repeated_on_a_busy_connection(void **state)
{
    struct pair *t = *state;
    float value = 1;
    struct weft_msg_send send = {.peer = t->peer_of_0, .base = &value, .total = 1, .elem_bytes = 4,
                                 .tag = 1, .deadline_ns = t->net.now_ns + WEFT_NS_PER_MS};
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
    pair_cut(t, true); /* the message, its probes and its first FINISH are lost */
    run_for(t, 2 * WEFT_NS_PER_MS);
    pair_cut(t, false);
    float got[64];
    uint64_t from_ns = t->net.now_ns;
    for (int i = 0; i < 60 && t->short_count == 0; i++) {
        expect_floats(t, WEFT_SINK_COPY, &got[i], 1);
        send_floats(t, &value, 1, 0);
        run_for(t, 50 * WEFT_NS_PER_US);
    }
    assert_int_equal(t->short_count, 1);
    assert_true(t->net.now_ns - from_ns < 2 * WEFT_NS_PER_MS);
}

/* A pause of this end does not mean that the other end is dead. */
static void test_a_long_pause_of_this_end_closes_no_connection(void **state)
{
    struct pair *t = *state;
    float value = 1;
    float got = 0;
    expect_floats(t, WEFT_SINK_COPY, &got, 1);
    send_floats(t, &value, 1, 0);
    pair_cut(t, true);
    net_pump(&t->net); /* sent, and lost */
    pair_cut(t, false);
    t->net.now_ns += 30 * WEFT_NS_PER_S; /* the caller computes */
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->down_count, 0);
    assert_true(got == 1);
}

/* The same for a shorter pause that exceeds this end's timeout for a reply. */
static void test_a_pause_longer_than_the_peer_timeout(void **state)
{
    struct pair *t = *state;
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.accept = 1;
    config.peer_timeout_ns = 300 * WEFT_NS_PER_MS;
    for (uint32_t i = 0; i < 2; i++) {
        weft_ep_free(t->net.end[i].ep);
        end_open(t, i, &config);
    }
    net_clear(&t->net);
    t->up_count = t->down_count = 0;
    assert_int_equal(pair_connect(t), WEFT_OK);
    pair_cut(t, true);
    net_pump(&t->net); /* sent, and lost */
    pair_cut(t, false);
    t->net.now_ns += 500 * WEFT_NS_PER_MS;
    run_for(t, 200 * WEFT_NS_PER_MS);
    assert_int_equal(t->down_count, 0);
    assert_true(t->up_count > 0);
}

/* A client crashes without CLOSE; the table is full; its successor can connect after the
 * timeout. */
static void test_a_full_table_drops_a_silent_peer(void **state)
{
    struct pair *t = *state;
    weft_ep_free(t->net.end[1].ep);
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.accept = 1;
    config.peers_max = 1;
    end_open(t, 1, &config);
    for (uint64_t life = 1; life <= 2; life++) {
        weft_ep_free(t->net.end[0].ep); /* the crash */
        net_clear(&t->net);
        weft_ep_config_default(&config);
        config.incarnation = 100 + life;
        config.peer_timeout_ns = 60 * WEFT_NS_PER_S;
        end_open(t, 0, &config);
        t->up_count = 0;
        assert_int_equal(pair_connect(t), WEFT_OK);
        run_for(t, 2 * WEFT_NS_PER_S);
        assert_int_equal(t->up_count, life == 1 ? 2 : 0); /* the silent peer may still be alive */
    }
    run_for(t, 6 * WEFT_NS_PER_S);
    assert_int_equal(t->up_count, 2);
}

/* One packet stays unacknowledged while acknowledgements pass the whole ring; later packets must
 * still be tracked. */
static void test_ring_goes_by_in_acknowledgements(void **state)
{
    struct pair *t = *state;
    struct peer *p = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    run_for(t, 10 * WEFT_NS_PER_MS);
    assert_int_equal(p->recovery.in_flight_count, 0);
    weft_core_packet_sent(t->net.end[0].ep, p, t->net.now_ns, TX_PACKET_PROBE, 0, 0, 100);
    for (uint32_t i = 1; i < t->net.end[0].ep->config.tx_window_max; i++) {
        weft_core_packet_sent(t->net.end[0].ep, p, t->net.now_ns, 0, 0, 0, 60);
    }
    uint64_t pn = p->recovery.pn_next;
    weft_core_packet_sent(t->net.end[0].ep, p, t->net.now_ns, TX_PACKET_PROBE, 0, 0, 100);
    assert_int_equal(p->recovery.in_flight_count, 1);
    assert_int_equal(p->recovery.pn_oldest, pn);
    assert_int_equal(p->recovery.in_flight_bytes, 100);
}

/* An unanswered PING does not cause another one, because nothing is outstanding. */
static void test_a_ping_in_flight_arms_nothing(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    uint64_t before = weft_ep_counters(t->net.end[0].ep)->datagrams_sent;
    inspect_ping(t->net.end[0].ep, t->peer_of_0);
    pair_cut(t, true);
    run_for(t, 60 * WEFT_NS_PER_S);
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->datagrams_sent, before + 1);
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, 0);
    assert_int_equal(t->down_count, 0);
    assert_false(weft_ep_busy(t->net.end[0].ep));
}

/* A process that slept past its timer finds the acknowledgement in its socket and sends new data
 * before its timers run: it sends no probe. */
static void test_a_waiting_ack_prevents_a_probe(void **state)
{
    struct pair *t = *state;
    float values[2] = {1, 2}, memory[2];
    run_for(t, 10 * WEFT_NS_PER_MS);
    expect_floats(t, WEFT_SINK_COPY, memory, 1);
    expect_floats(t, WEFT_SINK_COPY, memory + 1, 1);
    uint64_t until_ns = t->net.now_ns + 10 * WEFT_NS_PER_MS;
    (void)send_floats(t, values, 1, 0);
    net_pump(&t->net);
    while (t->net.queued == 0 || t->net.queue[0].to_end != 0) {
        assert_true(net_step(&t->net, until_ns)); /* the other end receives it */
        net_pump(&t->net);
    }
    struct net_datagram answer = net_dequeue(&t->net, 0);
    t->net.now_ns += 50 * WEFT_NS_PER_MS;
    assert_true(weft_ep_deadline(t->net.end[0].ep) <= t->net.now_ns);
    weft_ep_recv(t->net.end[0].ep, &answer.from, WEFT_ECN_ECT0, answer.data, answer.bytes,
                 answer.due_ns, t->net.now_ns);
    free(answer.data);
    net_drain(&t->net, 0);
    (void)send_floats(t, values + 1, 1, 0);
    weft_ep_on_deadline(t->net.end[0].ep, t->net.now_ns);
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, 0);
    run_for(t, 10 * WEFT_NS_PER_MS);
    assert_int_equal(t->sent_count, 2);
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, 0);
}

/* A large send begins with a few packets, and each burst is at most four times the data in flight,
 * so that an idle link is used while the next packets are built. */
static void test_a_burst_begins_small(void **state)
{
    enum { ELEMS = 352 * 40 };
    static struct weft_tx tx;
    struct pair *t = *state;
    float *values = floats_new(ELEMS);
    float *memory = malloc(ELEMS * sizeof(*memory));
    expect_floats(t, WEFT_SINK_COPY, memory, ELEMS);
    struct peer *p = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    run_for(t, WEFT_NS_PER_MS);
    p->allowed.limit = p->allowed.sent + 40;
    p->cc.cwnd_bytes = UINT64_C(1) << 26; /* only the burst limit applies */
    p->cc.rate_bps = 0;
    send_floats(t, values, ELEMS, 0);
    uint32_t bursts = 0;
    uint32_t under_way = p->recovery.in_flight_count;
    assert_int_equal(under_way, 0);
    for (uint32_t packets; (packets = weft_ep_send(t->net.end[0].ep, t->net.now_ns, &tx)) > 0;
         bursts++) {
        assert_true(packets <= weft_max_u64(4, 4 * (uint64_t)under_way));
        under_way = p->recovery.in_flight_count;
        net_burst(&t->net, &t->net.end[0], &tx);
    }
    assert_in_range(bursts, 3, 4); /* 4, 16, the rest; the end of the pass may be separate */
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    free(memory);
    free(values);
}

/* A chunk longer than the pacer's bucket, as after the path MTU has shrunk, is sent when the bucket
 * is full: it does not wait for a probe. */
static void test_a_full_bucket_lets_a_longer_chunk_go(void **state)
{
    enum { ELEMS = 352 * 2, BUCKET_BYTES = 1280 };
    static struct weft_tx tx;
    struct pair *t = *state;
    float *values = floats_new(ELEMS);
    struct peer *p = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    run_for(t, WEFT_NS_PER_MS);
    send_floats(t, values, ELEMS, 0);
    p->path.packet_bytes = BUCKET_BYTES / 10;
    p->cc.cwnd_bytes = BUCKET_BYTES;
    p->cc.rate_bps = 10000000;
    p->pacer.tokens_bytes = 0;
    p->pacer.tokens_ns = t->net.now_ns;
    p->recovery.srtt_ns = WEFT_NS_PER_S; /* no probe soon */
    uint64_t full_ns = t->net.now_ns + BUCKET_BYTES * 8 * WEFT_NS_PER_S / p->cc.rate_bps;
    assert_int_equal(weft_ep_send(t->net.end[0].ep, t->net.now_ns, &tx), 0);
    assert_in_range(weft_ep_deadline(t->net.end[0].ep), full_ns, full_ns + 1000);
    t->net.now_ns = weft_ep_deadline(t->net.end[0].ep);
    weft_ep_on_deadline(t->net.end[0].ep, t->net.now_ns);
    assert_int_equal(weft_ep_send(t->net.end[0].ep, t->net.now_ns, &tx), 1);
    assert_true(tx.bytes > BUCKET_BYTES);
    assert_true(p->pacer.tokens_bytes < 0); /* a debt, so that the mean rate is right */
    assert_int_equal(weft_ep_counters(t->net.end[0].ep)->probes, 0);
    free(values);
}

/* Number of packets sent at once after the pacer was idle for a long time. */
static uint32_t idle_burst(struct pair *t, bool marks, uint64_t srtt_ns, uint64_t path_rtt_ns,
                           uint64_t rtt_ns_min)
{
    static struct weft_tx tx;
    struct peer *p = inspect_peer(t->net.end[0].ep, t->peer_of_0);
    p->cc.marks = marks;
    p->cc.cwnd_bytes = (uint64_t)30 * p->path.packet_bytes;
    p->cc.rate_bps = 30000000; /* a packet takes four times the 100 us */
    p->recovery.srtt_ns = srtt_ns;
    p->recovery.path_rtt_ns = path_rtt_ns;
    p->recovery.rtt_ns_min = rtt_ns_min;
    p->pacer.tokens_bytes = INT32_MAX;
    p->pacer.tokens_ns = t->net.now_ns;
    uint32_t before = p->allowed.sent;
    while (weft_ep_send(t->net.end[0].ep, t->net.now_ns, &tx) > 0) {
        net_burst(&t->net, &t->net.end[0], &tx);
    }
    return p->allowed.sent - before;
}

/* A long path that marks gets no bursts; hosts that reply late still get bursts. Where most of the
 * round trip is a queue, the whole window is one; the delay of a late peer is no queue. */
static void test_a_long_path_that_marks_gets_no_bursts(void **state)
{
    enum { ELEMS = 352 * 40 };
    static const uint64_t long_ns = 13 * WEFT_NS_PER_MS;
    static const struct {
        bool marks;
        uint64_t path_rtt_ns;
        uint64_t rtt_ns_min;
        uint32_t packets;
    } cases[] = {
        {false, long_ns, long_ns, 15}, /* half a window */
        {true, long_ns, long_ns, 2},
        {true, long_ns, long_ns / 2, 15},
        {true, long_ns, long_ns / 2 + 1, 2},
        {false, long_ns, long_ns / 4, 15},
        {false, long_ns, long_ns / 4 - 1, 30},
        {false, long_ns / 16, long_ns / 16, 15}, /* the rest is a late peer */
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        void *fresh;
        setup(&fresh);
        struct pair *t = fresh;
        float *values = floats_new(ELEMS);
        run_for(t, WEFT_NS_PER_MS);
        send_floats(t, values, ELEMS, 0);
        inspect_peer(t->net.end[0].ep, t->peer_of_0)->allowed.limit += 40;
        uint32_t packets = idle_burst(t, cases[i].marks, long_ns, cases[i].path_rtt_ns,
                                      cases[i].rtt_ns_min);
        assert_int_equal(packets, cases[i].packets);
        teardown(&fresh);
        free(values);
    }
    (void)state;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_burst_begins_small),
        TEST(test_a_full_bucket_lets_a_longer_chunk_go),
        cmocka_unit_test(test_a_long_path_that_marks_gets_no_bursts),
        TEST(test_one_chunk_and_its_done),
        TEST(test_a_waiting_ack_prevents_a_probe),
        TEST(test_bound_zero_survives_loss),
        TEST(test_masks_agree_and_bound_holds),
        TEST(test_data_is_dropped_until_memory_is_posted),
        TEST(test_dead_peer_is_reported),
        TEST(test_close_reaches_the_other_end),
        TEST(test_sender_deadline_is_short),
        TEST(test_done_for_chunks_never_sent),
        TEST(test_hand_and_refuse),
        TEST(test_64_messages_twice),
        TEST(test_idle_silences_the_other_end),
        TEST(test_deadline_towards_an_idle_peer),
        TEST(test_lost_finish_is_repeated_on_a_busy_connection),
        TEST(test_a_long_pause_of_this_end_closes_no_connection),
        TEST(test_a_pause_longer_than_the_peer_timeout),
        TEST(test_a_full_table_drops_a_silent_peer),
        TEST(test_ring_goes_by_in_acknowledgements),
        TEST(test_a_ping_in_flight_arms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
