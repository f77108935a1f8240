/* Order of sending, and the limit on this host's own queue (core/egress.c). */
#include "core_net.h"

enum { CHUNK_BYTES = 1408, SENT_MAX = 256 };

static uint8_t source[64 * CHUNK_BYTES];
static uint8_t memory[64 * CHUNK_BYTES];
static struct weft_tx tx;

/* End 0 is connected to 1 and 2, which let it begin with 64 packets. */
static struct net *rig_new(uint8_t host_queue)
{
    struct net *net = calloc(1, sizeof(*net));
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 3; end++) {
        struct weft_ep_config config;
        net_config(&config, WEFT_MODE_NONE);
        config.incarnation = 10 + end;
        config.host_queue = end == 0 ? host_queue : 0;
        net_open(net, end, &config);
    }
    for (uint32_t to = 1; to < 3; to++) {
        assert_int_equal(net_connect(net, 0, to), to - 1);
    }
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 2);
    return net;
}

static void message_of(struct net *net, uint32_t to, uint32_t chunks, uint8_t priority,
                       bool together)
{
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = sizeof(memory),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = to - 1,
                                 .base = source,
                                 .total = chunks * CHUNK_BYTES / 4,
                                 .elem_bytes = 4,
                                 .priority = priority,
                                 .together = together,
                                 .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(net->end[to].msgr.ops->expect(net->end[to].msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(net->end[0].msgr.ops->send(net->end[0].msgr.self, &send, net->now_ns, &seq),
                     WEFT_OK);
}

static void message(struct net *net, uint32_t to, uint32_t chunks, uint8_t priority)
{
    message_of(net, to, chunks, priority, false);
}

/* Send the packets of end 0 until it has no more or must query the queue. Records the destination
 * of each. */
static uint32_t hand_over(struct net *net, uint32_t *to_p, uint64_t *bytes_p)
{
    uint32_t count = 0;
    *bytes_p = 0;
    for (uint32_t packets; (packets = weft_ep_send(net->end[0].ep, net->now_ns, &tx)) > 0;) {
        uint32_t to = addr_equal(&tx.addr, &net->end[1].addr) ? 1 : 2;
        for (uint32_t i = 0; i < packets; i++) {
            assert_true(count < SENT_MAX);
            to_p[count++] = to;
        }
        *bytes_p += tx.bytes;
        net_burst(net, &net->end[0], &tx);
    }
    return count;
}

/* Number of changes of receiver in a sequence of packets. */
static uint32_t changes(const uint32_t *to, uint32_t count)
{
    uint32_t changed = 0;
    for (uint32_t i = 1; i < count; i++) {
        changed += to[i] != to[i - 1];
    }
    return changed;
}

static void equal_messages_go_one_after_another(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    message(net, 2, 12, 0);
    message(net, 1, 12, 0);
    assert_int_equal(hand_over(net, to, &bytes), 24);
    assert_int_equal(to[0], 2); /* the older message */
    assert_int_equal(changes(to, 24), 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 2);
    net_free(net);
}

/* Credit of peers 1 and 2 for so many more packets; that of peer 2 is older. */
static void credit_of_both(struct net *net, uint32_t packets)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct peer *p = inspect_peer(net->end[0].ep, i);
        p->allowed.limit = p->allowed.sent + packets;
        p->allowed.turn_ns = net->now_ns - 1000 * (i + 1);
        weft_core_peer_ready(net->end[0].ep, p);
    }
}

/* In an all-to-all, messages of which nothing was sent are begun in the order in which they were
 * opened, whatever the age of credit. Then the peer with the oldest credit is served first, and
 * after a burst the other follows. A more urgent message still precedes both. */
static void where_all_send_to_all_the_oldest_credit_goes_first(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    struct weft_ep *ep = net->end[0].ep;
    ep->credit.round_shared = true;
    message_of(net, 1, 12, 0, true);
    message_of(net, 2, 12, 0, true);
    credit_of_both(net, 2);
    assert_int_equal(hand_over(net, to, &bytes), 4);
    assert_int_equal(to[0], 1);
    assert_int_equal(changes(to, 4), 1);
    credit_of_both(net, 64);
    assert_int_equal(hand_over(net, to, &bytes), 20);
    assert_int_equal(to[0], 2);
    assert_true(changes(to, 20) > 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    ep->credit.round_shared = true;
    message(net, 2, 12, 0); /* for example replies: each is useful as soon as it arrives */
    message(net, 1, 12, 0);
    assert_int_equal(hand_over(net, to, &bytes), 24);
    assert_int_equal(to[0], 2);
    assert_int_equal(changes(to, 24), 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    ep->credit.round_shared = true;
    message_of(net, 1, 12, 1, true);
    message_of(net, 2, 12, 0, true);
    assert_int_equal(hand_over(net, to, &bytes), 24);
    assert_int_equal(to[0], 2);
    assert_int_equal(changes(to, 24), 1);
    net_free(net);
}

/* An all-to-all may be detected when messages are already queued: they are reordered. */
static void waiting_messages_follow_the_order(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    struct weft_ep *ep = net->end[0].ep;
    message_of(net, 1, 12, 0, true);
    message_of(net, 2, 12, 0, true);
    credit_of_both(net, 2);
    assert_int_equal(hand_over(net, to, &bytes), 4);
    credit_of_both(net, 64);
    weft_core_egress_file(ep, inspect_peer(ep, 0));
    weft_core_egress_file(ep, inspect_peer(ep, 1));
    assert_ptr_equal(weft_core_egress_next(ep), inspect_peer(ep, 0)); /* the older message */
    ep->credit.round_shared = true;
    assert_ptr_equal(weft_core_egress_next(ep), inspect_peer(ep, 1)); /* the older credit */
    ep->credit.round_shared = false;
    assert_ptr_equal(weft_core_egress_next(ep), inspect_peer(ep, 0));
    assert_int_equal(hand_over(net, to, &bytes), 20);
    net_free(net);
}

/* After a round that was an all-to-all the next one begins as one, except with messages that the
 * host's queue holds whole. */
static void the_order_of_the_last_round_applies_to_the_next(void **state)
{
    (void)state;
    static const struct {
        uint32_t chunks;
        bool turns;
    } cases[] = {{12, true}, {8, false}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct net *net = rig_new(0);
        uint32_t to[SENT_MAX];
        uint64_t bytes;
        net->end[0].ep->credit.rounds_shared = true;
        message_of(net, 1, cases[i].chunks, 0, true);
        message_of(net, 2, cases[i].chunks, 0, true);
        assert_int_equal(hand_over(net, to, &bytes), 2 * cases[i].chunks);
        assert_int_equal(to[0], 1);
        if (cases[i].turns) {
            assert_true(changes(to, 2 * cases[i].chunks) > 1);
        } else {
            assert_int_equal(changes(to, 2 * cases[i].chunks), 1);
        }
        net_free(net);
    }
}

/* In an all-to-all a burst has at most a quarter of the limit on the host's queue, so that no
 * receiver gets the whole limit at the begin of a round. Short messages are sent in one burst. */
static void bursts_in_turn_are_a_quarter_of_the_limit(void **state)
{
    (void)state;
    static const struct {
        uint32_t chunks;
        bool together;
        uint32_t burst;
    } cases[] = {{24, true, 2}, {24, false, 4}, {4, true, 4}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct net *net = rig_new(1);
        struct weft_ep *ep = net->end[0].ep;
        assert_int_equal(ep->egress.limit_bytes, 12000);
        ep->credit.round_shared = true;
        message_of(net, 1, cases[i].chunks, 0, cases[i].together);
        message_of(net, 2, cases[i].chunks, 0, cases[i].together);
        while (weft_ep_send(ep, net->now_ns, &tx) > 0) {
            net_burst(net, &net->end[0], &tx); /* other due packets */
        }
        assert_true(weft_ep_queue_asked(ep));
        weft_ep_queued(ep, 0, net->now_ns);
        assert_int_equal(weft_ep_send(ep, net->now_ns, &tx), cases[i].burst);
        net_burst(net, &net->end[0], &tx);
        net_free(net);
    }
}

/* The age of credit begins when a peer without credit receives some; further credit does not change
 * it. */
static void credit_waits_from_its_first_packet(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    struct weft_ep *ep = net->end[0].ep;
    struct peer *p = inspect_peer(ep, 0);
    struct weft_wire_ack ack = {.largest = 0, .credit = p->allowed.limit + 4};
    p->allowed.sent = p->allowed.limit; /* no credit left */
    weft_core_ack_recv(ep, p, p->ack.largest + 1, &ack, net->now_ns, net->now_ns);
    uint64_t since_ns = net->now_ns;
    assert_int_equal(p->allowed.turn_ns, since_ns);
    ack.credit += 4;
    weft_core_ack_recv(ep, p, p->ack.largest + 2, &ack, net->now_ns + 1000, net->now_ns + 1000);
    assert_int_equal(p->allowed.turn_ns, since_ns);
    net_free(net);
}

static void urgent_and_short_messages_go_first(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    message(net, 1, 12, 4);
    message(net, 2, 12, 0);
    assert_int_equal(hand_over(net, to, &bytes), 24);
    assert_int_equal(to[0], 2);
    assert_int_equal(changes(to, 24), 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    message(net, 1, 15, 0);
    message(net, 2, 4, 0);
    assert_int_equal(hand_over(net, to, &bytes), 19);
    assert_int_equal(to[0], 2);
    assert_int_equal(changes(to, 19), 1);
    net_free(net);
}

/* FINISH, which reports the end of the pass if the packet with PASS_END is lost, is sent without
 * waiting for the next event of the peer. */
static void finish_follows_the_last_chunk_at_once(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    net->end[0].ep->lost_ns = net->now_ns;
    message(net, 1, 20, 0);
    assert_int_equal(hand_over(net, to, &bytes), 21);
    assert_int_equal(net_counters(net, 0)->data_sent, 20);
    assert_int_equal(inspect_peer(net->end[0].ep, 0)->tx.finish, 0);
    net_free(net);
}

static bool drop_one(struct net *net, struct net_datagram *d)
{
    (void)d;
    net->tap = NULL;
    return false;
}

/* Without loss a message needs only its chunks and one DONE. For ten seconds after a loss, FINISH
 * is sent to all peers. */
static void finish_is_sent_where_packets_were_lost(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    message(net, 1, 20, 0);
    assert_int_equal(hand_over(net, to, &bytes), 20);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 1);
    message(net, 1, 20, 0);
    net->tap = drop_one;
    assert_int_equal(hand_over(net, to, &bytes), 20);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 2);
    assert_true(net->end[0].ep->lost_ns > 0);
    message(net, 2, 20, 0);
    assert_int_equal(hand_over(net, to, &bytes), 21);
    net_run(net, 10 * WEFT_NS_PER_S);
    message(net, 1, 20, 0);
    assert_int_equal(hand_over(net, to, &bytes), 20);
    net_free(net);
}

/* Two messages to one peer: the second is announced at once, and the peer grants credit for
 * both. */
static void what_waits_behind_a_message_is_told_and_granted_for(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    const struct peer *receiver = inspect_peer(net->end[1].ep, 0);
    message(net, 1, 60, 0);
    message(net, 1, 50, 0);
    net_run(net, NET_DELAY_NS + 1000);
    assert_true(inspect_peer(net->end[0].ep, 0)->tx.unsent > 50);
    assert_int_equal(receiver->credit.backlog_end, 110);
    assert_true(weft_core_credit_remaining(receiver) > 60);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(weft_core_credit_backlog(receiver), 0);
    assert_int_equal(net->end[1].ep->credit.active, 0);
    net_free(net);
}

static bool drop_of_end_1(struct net *net, struct net_datagram *d)
{
    return !addr_equal(&d->from, &net->end[1].addr);
}

/* A message that is cancelled before it is sent is no longer in the backlog. Otherwise the receiver
 * would hold credit for it and consider the round unfinished. */
static void a_backlog_that_is_given_up_is_taken_back(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    struct peer *p = inspect_peer(net->end[0].ep, 0);
    const struct peer *receiver = inspect_peer(net->end[1].ep, 0);
    message(net, 1, 60, 0);
    message(net, 1, 60, 0);
    net->tap = drop_of_end_1; /* no more credit */
    p->tx.deadline_ns = net->now_ns + WEFT_NS_PER_MS;
    p->tx.msgs[(p->tx.next_seq - 1) & MSG_MASK].deadline_ns = p->tx.deadline_ns;
    net_run(net, WEFT_NS_PER_MS / 2);
    assert_true(p->tx.unsent > 60);
    assert_int_equal(weft_core_credit_backlog(receiver), p->tx.unsent);
    net_run(net, WEFT_NS_PER_MS);
    net->tap = NULL;
    net_run(net, 500 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 2);
    assert_int_equal(weft_core_credit_backlog(receiver), 0);
    assert_int_equal(net->end[1].ep->credit.active, 0);
    net_free(net);
}

/* The correction of a backlog was lost, or the backlog was false: if a peer has credit and sends no
 * DATA, its backlog counts as zero, whatever else it sends. */
static void a_backlog_that_never_comes_ends(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    struct weft_ep *ep = net->end[1].ep;
    struct peer *p = inspect_peer(ep, 0);
    weft_core_credit_backlog_told(ep, p, p->credit.data_count + 1000000, p->ack.largest,
                                  net->now_ns);
    assert_int_equal(weft_core_credit_backlog(p), 1000000);
    weft_core_peer_ready(ep, p);
    for (uint32_t i = 0; i < 100; i++) {
        inspect_ping(net->end[0].ep, 0);
        net_run(net, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(weft_core_credit_backlog(p), 0);
    assert_int_equal(ep->credit.active, 0);
    net_free(net);
}

/* The end of an old backlog does not become valid again when the packet count wraps. */
static void an_old_backlog_stays_over(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    struct peer *p = inspect_peer(net->end[1].ep, 0);
    p->credit.backlog_pn = 1;
    p->credit.backlog_end = p->credit.data_count - 10;
    message(net, 1, 4, 0);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 1);
    assert_int_equal(p->credit.backlog_end, p->credit.data_count);
    net_free(net);
}

static void every_eighth_burst_is_the_oldest_message_s(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    net->end[0].ep->egress.bursts = 7;
    message(net, 1, 12, 4);
    message(net, 2, 12, 0);
    assert_int_equal(hand_over(net, to, &bytes), 24);
    assert_int_equal(to[0], 1);
    assert_int_equal(changes(to, 24), 2); /* one burst, then the urgent message, then the rest */
    net_free(net);
}

static uint64_t limit_of(const struct net *net)
{
    struct weft_ep_gauges gauges;
    weft_ep_gauges(net->end[0].ep, &gauges);
    return gauges.queue_limit_bytes;
}

static void chunks_wait_for_the_host_s_queue_and_control_does_not(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct weft_ep *ep = net->end[0].ep;
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    message(net, 1, 30, 0);
    assert_int_equal(hand_over(net, to, &bytes), 0);
    assert_true(weft_ep_queue_asked(ep));
    weft_ep_queued(ep, 0, net->now_ns);
    uint32_t count = hand_over(net, to, &bytes);
    assert_true(count > 4 && bytes >= limit_of(net) - 2000 && bytes <= limit_of(net) + 2000);
    assert_true(weft_ep_queue_asked(ep));
    weft_ep_queued(ep, bytes, net->now_ns);
    assert_int_equal(hand_over(net, to, &bytes), 0);
    assert_false(weft_ep_queue_asked(ep));
    assert_int_equal(weft_ep_counters(ep)->queue_waits, 1);
    uint64_t deadline_ns = weft_ep_deadline(ep);
    assert_true(deadline_ns > net->now_ns && deadline_ns < net->now_ns + WEFT_NS_PER_MS);
    inspect_peer(ep, 0)->ack.at_once = true;
    weft_core_peer_ready(ep, inspect_peer(ep, 0));
    assert_int_equal(hand_over(net, to, &bytes), 1);
    assert_true(bytes < 100);
    net->now_ns = deadline_ns;
    weft_ep_on_deadline(ep, net->now_ns);
    assert_int_equal(hand_over(net, to, &bytes), 0);
    assert_true(weft_ep_queue_asked(ep));
    weft_ep_queued(ep, 0, net->now_ns);
    assert_true(hand_over(net, to, &bytes) > 0);
    net_free(net);
}

/* A short message in the packet of an acknowledgement is sent out of its turn, whatever the queue.
 * Its bytes are in the queue too. */
static void chunks_beside_acknowledgements_use_the_limit(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct weft_ep *ep = net->end[0].ep;
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    weft_ep_queued(ep, 0, net->now_ns);
    uint64_t room = ep->egress.room_bytes;
    assert_true(room > 2000);
    inspect_peer(ep, 0)->ack.at_once = true;
    weft_core_peer_ready(ep, inspect_peer(ep, 0));
    assert_int_equal(hand_over(net, to, &bytes), 1);
    assert_int_equal(ep->egress.room_bytes, room); /* an acknowledgement alone uses nothing */
    net_message(net, 0, 0, 1, source, 400, memory);
    inspect_peer(ep, 0)->ack.at_once = true;
    weft_core_peer_ready(ep, inspect_peer(ep, 0));
    assert_int_equal(hand_over(net, to, &bytes), 1);
    assert_in_range(bytes, 400, 600);
    assert_int_equal(ep->egress.room_bytes, room - bytes - 42); /* with Ethernet, IP and UDP */
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 1);
    net_free(net);
}

/* The queue drained by a link of 1 byte per 8 ns, read when end 0 requests it. */
struct queue {
    uint64_t bytes;
    uint64_t at_ns;
};

static void queue_drain(struct queue *q, uint64_t now_ns)
{
    uint64_t drained = (now_ns - q->at_ns) / 8;
    q->bytes = q->bytes > drained ? q->bytes - drained : 0;
    q->at_ns = now_ns;
}

/* Run for this time; end 0 is progressed `late_ns` after its deadline. */
static void run_queued(struct net *net, struct queue *q, uint64_t ns, uint64_t late_ns)
{
    struct weft_ep *ep = net->end[0].ep;
    uint64_t until_ns = net->now_ns + ns;
    while (net->now_ns < until_ns) {
        uint32_t to[SENT_MAX];
        uint64_t bytes;
        do {
            (void)hand_over(net, to, &bytes);
            queue_drain(q, net->now_ns);
            q->bytes += bytes;
            if (!weft_ep_queue_asked(ep)) {
                break;
            }
            weft_ep_queued(ep, q->bytes, net->now_ns);
        } while (true);
        uint64_t deadline_ns = weft_ep_deadline(ep);
        if (!net_step(net, weft_min_u64(until_ns, weft_max_u64(deadline_ns, net->now_ns)))) {
            net->now_ns =
                weft_min_u64(until_ns, weft_max_u64(net->now_ns + 1000, deadline_ns + late_ns));
            weft_ep_on_deadline(ep, net->now_ns);
        }
    }
}

static void late(struct net *net, uint64_t left)
{
    struct weft_ep *ep = net->end[0].ep;
    ep->egress.waiting = true;
    ep->egress.report_ns = net->now_ns;
    net->now_ns += 1000;
    weft_core_egress_turn(ep, net->now_ns);
    weft_ep_queued(ep, left, net->now_ns);
}

static void the_limit_follows_what_keeps_the_link_busy(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    uint64_t least = limit_of(net);
    late(net, 0); /* the queue became empty while chunks waited */
    assert_int_equal(limit_of(net), 2 * least);
    for (uint32_t i = 0; i < 64; i++) {
        late(net, 0);
    }
    uint64_t most = limit_of(net);
    assert_true(most > 2 * least && most <= 256000);
    for (uint32_t i = 0; i < 16; i++) {
        late(net, most / 8); /* little: the limit stays */
    }
    assert_int_equal(limit_of(net), most);
    for (uint32_t i = 0; i < 16; i++) {
        late(net, most / 2);
    }
    assert_int_equal(limit_of(net), most - most / 16);
    for (uint32_t i = 0; i < 2000; i++) {
        late(net, limit_of(net) / 2);
    }
    assert_int_equal(limit_of(net), least);
    net_free(net);
}

/* 12,000 bytes were sent; `left` of them are queued after this time. */
static void drain(struct net *net, uint64_t left, uint64_t ns)
{
    struct weft_ep *ep = net->end[0].ep;
    ep->egress.handed_over = true;
    weft_ep_queued(ep, 12000, net->now_ns);
    net->now_ns += ns;
    weft_core_egress_turn(ep, net->now_ns);
    weft_ep_queued(ep, left, net->now_ns);
}

/* A nearly empty queue may have been empty for a long time and contain a control packet. */
static void the_rate_is_that_of_a_queue_that_was_never_empty(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    const struct egress *e = &net->end[0].ep->egress;
    drain(net, 11900, 10000); /* less than a packet */
    assert_int_equal(e->share.rate_bps, 0);
    drain(net, 6000, 48000); /* 1 Gbit/s */
    assert_true(e->share.rate_bps > 990000000 && e->share.rate_bps < 1010000000);
    uint64_t rate_bps = e->share.rate_bps;
    drain(net, 100, 5 * WEFT_NS_PER_MS);
    drain(net, 0, 5 * WEFT_NS_PER_MS);
    assert_int_equal(e->share.rate_bps, rate_bps);
    assert_int_equal(e->early_shift, 2); /* but the queue is queried earlier */
    drain(net, 6000, 48000);
    assert_int_equal(e->early_shift, 0);
    net_free(net);
}

/* If 12,000 bytes take milliseconds, control packets for all peers would wait behind them. */
static void on_a_slow_link_four_packets_are_enough(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct weft_ep *ep = net->end[0].ep;
    message(net, 1, 12, 0);
    drain(net, 6000, 1920 * WEFT_NS_PER_US); /* 25 Mbit/s */
    assert_int_equal(limit_of(net), 12000);  /* limit with one peer */
    message(net, 2, 12, 0);
    drain(net, 6000, 1920 * WEFT_NS_PER_US);
    assert_int_equal(limit_of(net), 4 * ep->config.packet_bytes);
    late(net, 0);
    assert_int_equal(limit_of(net), 4 * ep->config.packet_bytes); /* unchanged by one late query */
    for (uint32_t i = 0; i < 64; i++) {
        drain(net, 6000, 480 * WEFT_NS_PER_US); /* 100 Mbit/s: equals a millisecond */
    }
    late(net, 0);
    late(net, 0);
    assert_in_range(limit_of(net), 12000, 12600);
    net_free(net);
}

/* A rate that is far from the real one, as after a change of the link, is measured again. */
static void a_rate_that_is_wrong_by_far_is_forgotten(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    const struct egress *e = &net->end[0].ep->egress;
    drain(net, 6000, 48 * WEFT_NS_PER_MS); /* 1 Mbit/s */
    assert_true(e->share.rate_bps < 2000000);
    for (uint32_t i = 0; i < 7; i++) {
        drain(net, 0, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(e->share.rate_bps, 0);
    drain(net, 6000, 4800); /* 10 Gbit/s */
    assert_true(e->share.rate_bps > 9000000000);
    net_free(net);
}

/* Datagrams to a host with unresolved Ethernet address stay in the kernel for seconds; those to
 * others continue. */
static void what_does_not_drain_keeps_nobody_back(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct weft_ep *ep = net->end[0].ep;
    const uint64_t stuck = 50000;
    weft_ep_queued(ep, stuck, net->now_ns);
    assert_int_equal(ep->egress.room_bytes, 0);
    for (uint32_t i = 0; i < 5; i++) {
        net->now_ns += 10 * WEFT_NS_PER_MS;
        weft_core_egress_turn(ep, net->now_ns);
        weft_ep_queued(ep, stuck, net->now_ns);
    }
    assert_int_equal(ep->egress.room_bytes, limit_of(net));
    ep->egress.handed_over = true;
    weft_ep_queued(ep, stuck + limit_of(net), net->now_ns); /* later datagrams count */
    assert_int_equal(ep->egress.room_bytes, 0);
    net->now_ns += WEFT_NS_PER_MS;
    weft_core_egress_turn(ep, net->now_ns);
    weft_ep_queued(ep, 0, net->now_ns); /* the kernel has dropped them */
    assert_int_equal(ep->egress.stuck_bytes, 0);
    net_free(net);
}

/* If the kernel transmits everything at once, there is no queue to limit. */
static void the_limit_goes_where_nothing_queues(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct weft_ep *ep = net->end[0].ep;
    uint64_t least = limit_of(net);
    uint32_t to[SENT_MAX];
    uint64_t bytes;
    message(net, 1, 60, 0);
    uint32_t count = hand_over(net, to, &bytes);
    while (weft_ep_queue_asked(ep)) {
        weft_ep_queued(ep, 0, net->now_ns);
        count += hand_over(net, to, &bytes);
    }
    assert_true(count >= 20); /* as many as credit allows */
    assert_true(limit_of(net) > least);
    assert_int_equal(weft_ep_counters(ep)->queue_waits, 0);
    net_free(net);
}

/* A peer without packets in flight has nothing to acknowledge, so no probes are sent, however long
 * the queue. */
static void no_probes_while_chunks_wait_for_their_turn(void **state)
{
    (void)state;
    struct net *net = rig_new(1);
    struct queue full = {.bytes = 100000000, .at_ns = net->now_ns}; /* 0.8 s */
    message(net, 1, 20, 0);
    message(net, 2, 20, 0);
    run_queued(net, &full, 500 * WEFT_NS_PER_MS, 0);
    assert_int_equal(net_counters(net, 0)->probes, 0);
    assert_int_equal(net_counters(net, 0)->data_sent, 0);
    run_queued(net, &full, 500 * WEFT_NS_PER_MS, 0);
    assert_int_equal(net->end[0].sent, 2);
    net_free(net);
}

static uint8_t flags_seen[2]; /* flags of short headers: OR and AND of all */

static bool note_flags(struct net *net, struct net_datagram *d)
{
    if (addr_equal(&d->from, &net->end[0].addr) && weft_wire_is_brief(d->data[1])) {
        flags_seen[0] |= d->data[1];
        flags_seen[1] &= d->data[1];
    }
    return true;
}

static void short_headers_say_whether_the_sender_has_other_receivers(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    net->tap = note_flags;
    flags_seen[0] = 0;
    flags_seen[1] = 0xff;
    message(net, 1, 60, 0);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_true(flags_seen[0] & WEFT_FLAG_BRIEF);
    assert_false(flags_seen[0] & WEFT_FLAG_SHARED);
    assert_false(inspect_peer(net->end[1].ep, 0)->credit.sender_shared);
    message(net, 1, 60, 0);
    message(net, 2, 60, 0);
    net_run(net, WEFT_NS_PER_MS / 2);
    assert_true(flags_seen[0] & WEFT_FLAG_SHARED);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 3);
    assert_int_equal(net->end[0].ep->egress.receivers, 0);
    net_free(net);
}

/* The first burst is short, because the link may be idle. The chunks of a grant in the middle of a
 * message are sent as one burst, although no packet is in flight any more. */
static void a_grant_in_the_middle_of_a_message_is_one_burst(void **state)
{
    (void)state;
    struct net *net = rig_new(0);
    struct peer *p = inspect_peer(net->end[0].ep, 0);
    p->allowed.limit = p->allowed.sent + 8;
    message(net, 1, 60, 0);
    assert_int_equal(weft_ep_send(net->end[0].ep, net->now_ns, &tx), 4);
    net_burst(net, &net->end[0], &tx);
    const struct tx_msg *m = &p->tx.msgs[p->tx.open_from & MSG_MASK];
    while (p->recovery.in_flight_count > 0 || m->acked_count == 0) {
        p->allowed.limit = p->allowed.sent; /* the grants arrive late */
        assert_true(net_step(net, net->now_ns + 100 * WEFT_NS_PER_MS));
    }
    p->allowed.limit = p->allowed.sent + 30;
    p->cc.cwnd_bytes = UINT64_C(1) << 26;
    p->cc.rate_bps = 0;
    weft_core_peer_ready(net->end[0].ep, p);
    uint32_t packets;
    while ((packets = weft_ep_send(net->end[0].ep, net->now_ns, &tx)) == 1) {
        net_burst(net, &net->end[0], &tx); /* other due packets */
    }
    assert_int_equal(packets, 30);
    net_burst(net, &net->end[0], &tx);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].sent, 1);
    net_free(net);
}

/* While nothing is acknowledged, a burst has at most four times the packets in flight: the link
 * transmits these while the burst is built. In round-robin order it is twice as many, and at most a
 * quarter of the limit. */
static void bursts_grow_with_the_packets_in_flight(void **state)
{
    (void)state;
    static const uint32_t bursts[2][4] = {{4, 16, 40}, {4, 8, 13, 13}};
    for (uint32_t turns = 0; turns < 2; turns++) {
        struct net *net = rig_new(turns);
        struct weft_ep *ep = net->end[0].ep;
        struct peer *p = inspect_peer(ep, 0);
        ep->credit.round_shared = turns == 1;
        p->allowed.limit = p->allowed.sent + 64;
        p->cc.cwnd_bytes = UINT64_C(1) << 26;
        p->cc.rate_bps = 0;
        message_of(net, 1, 60, 0, turns == 1);
        while (turns == 1 && weft_ep_send(ep, net->now_ns, &tx) > 0) {
            net_burst(net, &net->end[0], &tx); /* other due packets */
        }
        if (turns == 1) {
            ep->egress.limit_bytes = 80000; /* of which a quarter is 13 packets */
            weft_ep_queued(ep, 0, net->now_ns);
        }
        for (size_t i = 0; i < WEFT_ARRAY_COUNT(bursts[turns]); i++) {
            assert_int_equal(weft_ep_send(ep, net->now_ns, &tx), bursts[turns][i]);
            net_burst(net, &net->end[0], &tx);
        }
        net_free(net);
    }
}

/* The first burst to a peer may be longer when the host's queue holds packets for another peer,
 * which keep the link busy meanwhile. In round-robin order it is a quarter of the limit as ever. */
static void a_first_burst_behind_a_queue_is_longer(void **state)
{
    (void)state;
    static const struct {
        uint64_t queued_bytes; /* reported before the first burst */
        bool turns;
        uint32_t burst;
    } cases[] = {{0, false, 4}, {4500, false, 12}, {4500, true, 4}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct net *net = rig_new(1);
        struct weft_ep *ep = net->end[0].ep;
        ep->credit.round_shared = cases[i].turns;
        message_of(net, 1, 24, 0, cases[i].turns);
        while (weft_ep_send(ep, net->now_ns, &tx) > 0) {
            net_burst(net, &net->end[0], &tx); /* other due packets */
        }
        ep->egress.limit_bytes = cases[i].turns ? 24000 : 60000;
        weft_ep_queued(ep, cases[i].queued_bytes, net->now_ns);
        assert_int_equal(weft_ep_send(ep, net->now_ns, &tx), cases[i].burst);
        net_burst(net, &net->end[0], &tx);
        net_free(net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_messages_go_one_after_another),
        cmocka_unit_test(where_all_send_to_all_the_oldest_credit_goes_first),
        cmocka_unit_test(waiting_messages_follow_the_order),
        cmocka_unit_test(the_order_of_the_last_round_applies_to_the_next),
        cmocka_unit_test(bursts_in_turn_are_a_quarter_of_the_limit),
        cmocka_unit_test(credit_waits_from_its_first_packet),
        cmocka_unit_test(urgent_and_short_messages_go_first),
        cmocka_unit_test(finish_follows_the_last_chunk_at_once),
        cmocka_unit_test(finish_is_sent_where_packets_were_lost),
        cmocka_unit_test(what_waits_behind_a_message_is_told_and_granted_for),
        cmocka_unit_test(a_backlog_that_is_given_up_is_taken_back),
        cmocka_unit_test(a_backlog_that_never_comes_ends),
        cmocka_unit_test(an_old_backlog_stays_over),
        cmocka_unit_test(every_eighth_burst_is_the_oldest_message_s),
        cmocka_unit_test(chunks_wait_for_the_host_s_queue_and_control_does_not),
        cmocka_unit_test(chunks_beside_acknowledgements_use_the_limit),
        cmocka_unit_test(the_limit_follows_what_keeps_the_link_busy),
        cmocka_unit_test(the_rate_is_that_of_a_queue_that_was_never_empty),
        cmocka_unit_test(on_a_slow_link_four_packets_are_enough),
        cmocka_unit_test(a_rate_that_is_wrong_by_far_is_forgotten),
        cmocka_unit_test(what_does_not_drain_keeps_nobody_back),
        cmocka_unit_test(the_limit_goes_where_nothing_queues),
        cmocka_unit_test(no_probes_while_chunks_wait_for_their_turn),
        cmocka_unit_test(short_headers_say_whether_the_sender_has_other_receivers),
        cmocka_unit_test(a_grant_in_the_middle_of_a_message_is_one_burst),
        cmocka_unit_test(bursts_grow_with_the_packets_in_flight),
        cmocka_unit_test(a_first_burst_behind_a_queue_is_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
