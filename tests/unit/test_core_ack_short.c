/* Acknowledgements beside full chunks: if both ends send, acknowledgements need no packets of their
 * own. The receiver of ACK_SHORT completes its numbers, and refuses those of packets never sent. */
#include "core_net.h"

enum { CHUNKS = 200, FLOATS = CHUNKS * 352 };

static float sent[FLOATS];
static float memory[2][FLOATS];

/* Packets of chunks and of frames since `count_new`. */
static struct {
    uint32_t rides;   /* a chunk with the short header, and frames */
    uint32_t alone;   /* frames without a chunk */
    uint32_t longest; /* length of the longest packet, in bytes */
} count;

static bool tally(struct net *net, struct net_datagram *d)
{
    (void)net;
    uint8_t flags = d->data[1];
    if (d->data[0] >> 4 == WEFT_WIRE_VERSION && (d->data[0] & 15) <= WEFT_CLASS_SEAL) {
        count.rides += weft_wire_is_brief(flags) && (flags & WEFT_FLAG_CONTROL) != 0;
        count.alone += !weft_wire_has_chunk(flags);
        count.longest = (uint32_t)weft_max_u64(count.longest, d->bytes);
    }
    return true;
}

static struct net *joined(uint8_t mode)
{
    struct net *net = net_new(mode, mode);
    for (uint32_t i = 0; i < FLOATS; i++) {
        sent[i] = (float)i;
    }
    (void)net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1);
    memset(memory, 0, sizeof(memory));
    memset(&count, 0, sizeof(count));
    net->tap = tally;
    return net;
}

/* A message each way at the same time, as in an all-to-all exchange if `turns`. Each end can
 * receive a packet in 100 us. */
static void exchange(struct net *net, bool turns)
{
    for (uint32_t end = 0; end < 2; end++) {
        net->end[end].gap_ns = 100 * WEFT_NS_PER_US;
        net->end[end].ep->credit.round_shared = turns;
        net->end[end].ep->credit.rounds_shared = turns;
        net_message(net, end, net->end[end].peer, 1 - end, sent, sizeof(sent), memory[1 - end]);
    }
    /* An end that is late finds chunks and credit at the same time. */
    for (uint32_t i = 0; i < 20; i++) {
        net->end[i % 2].frozen_until_ns = net->now_ns + WEFT_NS_PER_MS;
        net_run(net, WEFT_NS_PER_MS);
    }
    net_run(net, 20 * WEFT_NS_PER_S);
    for (uint32_t end = 0; end < 2; end++) {
        assert_int_equal(net->end[end].sent, 1);
        assert_int_equal(net->end[end].received, 1);
        assert_memory_equal(memory[end], sent, sizeof(sent));
        assert_int_equal(net_counters(net, end)->bad_ack, 0);
    }
}

static void acknowledgements_ride_with_chunks(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        struct net *net = joined(mode);
        exchange(net, true);
        assert_in_range(count.rides, 10, 2 * CHUNKS);
        assert_true(count.longest <= 1472);
        assert_int_equal(net_counters(net, 0)->data_sent, CHUNKS);
        assert_int_equal(net_counters(net, 0)->probes, 0);
        assert_int_equal(net_counters(net, 0)->spurious_losses, 0);
        net_free(net);
    }
}

/* Loss, duplicates and reordering of the packets that carry both. */
static void messages_stay_whole_on_a_bad_path(void **state)
{
    (void)state;
    uint32_t rides = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct net *net = joined(WEFT_MODE_AUTH);
        weft_prng_init(&net->prng, seed);
        net->loss_ppm = 50000;
        net->duplicate_ppm = 50000;
        net->late_ppm = 50000;
        net->late_ns = WEFT_NS_PER_MS;
        exchange(net, true);
        rides += count.rides;
        net_free(net);
    }
    assert_true(rides > 0);
}

/* Without turns chunks are sent in order. */
static void without_turns_acknowledgements_are_long(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    exchange(net, false);
    assert_int_equal(count.rides, 0);
    assert_true(count.alone > 0);
    net_free(net);
}

/* An end without data sends separate acknowledgements. */
static void one_direction_has_long_acknowledgements(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    net_message(net, 0, net->end[0].peer, 1, sent, sizeof(sent), memory[1]);
    net_run(net, 5 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    assert_int_equal(count.rides, 0);
    assert_true(count.alone > 0);
    net_free(net);
}

static struct weft_wire_ack_short ack_of(const struct peer *p, uint64_t largest, uint64_t mask)
{
    return (struct weft_wire_ack_short){
        .largest = (uint32_t)largest,
        .credit = (uint16_t)p->allowed.limit,
        .open_from = (uint8_t)p->rx.open_from,
        .ce = (uint8_t)p->recovery.ce_seen,
        .mask = UINT64_C(1) << 63 | mask,
    };
}

static void take(struct net *net, const struct weft_wire_ack_short *ack)
{
    struct weft_ep *ep = net->end[0].ep;
    weft_core_ack_short_recv(ep, inspect_peer(ep, 0), 1000, ack, net->now_ns, net->now_ns);
}

static void numbers_that_were_never_sent_are_refused(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    struct peer *p = inspect_peer(net->end[0].ep, 0);
    uint64_t newest = p->recovery.pn_next - 1;
    assert_in_range(newest, 1, 60);
    struct weft_wire_ack_short ack = ack_of(p, newest + 1, 0);
    take(net, &ack);
    assert_int_equal(net_counters(net, 0)->bad_ack, 1);
    ack = ack_of(p, 0, 0); /* no packet has number 0 */
    take(net, &ack);
    assert_int_equal(net_counters(net, 0)->bad_ack, 2);
    ack = ack_of(p, newest, UINT64_C(1) << (62 - newest)); /* number -1 */
    take(net, &ack);
    assert_int_equal(net_counters(net, 0)->bad_ack, 3);
    ack = ack_of(p, newest, 0);
    take(net, &ack);
    assert_int_equal(net_counters(net, 0)->bad_ack, 3);
    net_free(net);
}

/* Each number is the nearest one with these low bits: older ones change nothing. */
static void numbers_are_completed_by_what_is_known(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    struct peer *p = inspect_peer(net->end[0].ep, 0);
    uint64_t newest = p->recovery.pn_next - 1;
    p->allowed.limit = 0x1fffe;
    p->allowed.sent = 0x1fff0;
    struct weft_wire_ack_short ack = ack_of(p, newest, 0);
    ack.credit = 5;
    take(net, &ack);
    assert_int_equal(p->allowed.limit, 0x20005);
    ack.credit = 0xfffe; /* an older ACK arrives late */
    take(net, &ack);
    assert_int_equal(p->allowed.limit, 0x20005);
    p->recovery.ce_seen = 0x1fe;
    ack.ce = 0xf0;
    take(net, &ack);
    assert_int_equal(p->recovery.ce_seen, 0x1fe);
    assert_int_equal(p->ack.echo_ns, 0); /* ACK_SHORT has no timestamp to echo */
    net_free(net);
}

static bool drop_from_1(struct net *net, struct net_datagram *d)
{
    (void)net;
    return d->from_end != 1;
}

/* An ACK that arrives after a later ACK_SHORT counts fewer marked packets than are acknowledged by
 * then. That does not mean that the path erases marks. */
static void an_overtaken_acknowledgement_does_not_disable_ecn(void **state)
{
    (void)state;
    struct net *net = joined(WEFT_MODE_AUTH);
    struct weft_ep *ep = net->end[0].ep;
    struct peer *p = inspect_peer(ep, 0);
    net->tap = drop_from_1;
    uint64_t first = p->recovery.pn_next;
    net_message(net, 0, net->end[0].peer, 1, sent, 4 * 352 * sizeof(float), memory[1]);
    net_run(net, 100 * WEFT_NS_PER_US);
    uint64_t last = p->recovery.pn_next - 1;
    assert_in_range(last, first + 3, 60);
    assert_true(weft_core_ecn_marks(ep, p));
    struct weft_wire_ack_short newer = ack_of(p, last, UINT64_MAX << (64 - last));
    struct weft_wire_ack older = {.largest = first,
                                  .credit = p->allowed.limit,
                                  .open_from = (uint32_t)p->rx.open_from,
                                  .ect = p->path.ecn_ect + 1,
                                  .ce = p->path.ecn_ce,
                                  .word_count = 1,
                                  .words = {UINT64_MAX >> (63 - first) & ~UINT64_C(1)}};
    weft_core_ack_short_recv(ep, p, 1001, &newer, net->now_ns, net->now_ns);
    weft_core_ack_recv(ep, p, 1000, &older, net->now_ns, net->now_ns);
    assert_int_equal(net_counters(net, 0)->ecn_failed, 0);
    /* The next ACK has all counts; marks missing there were erased. */
    older.largest = last;
    older.words[0] = UINT64_MAX >> (63 - last) & ~UINT64_C(1);
    weft_core_ack_recv(ep, p, 1002, &older, net->now_ns, net->now_ns);
    assert_int_equal(net_counters(net, 0)->ecn_failed, 1);
    net_free(net);
}

/* Short messages that share packets beside long ones, both ways: both kinds of frames; packets are
 * lost, duplicated and delayed by up to 20 ms. */
enum { SHORTS = 120, SHORT_FLOATS = 8 };

static struct {
    float memory[2][SHORTS + 1][SHORT_FLOATS];
    uint32_t received[2][SHORTS + 1];
    uint32_t sent[2][SHORTS + 1];
} few;

static void few_event(struct net *net, uint32_t end, const struct weft_msg_event *event)
{
    (void)net;
    if (event->type == WEFT_EVENT_RECEIVED && event->tag <= SHORTS) {
        assert_int_equal(event->outcome, WEFT_MSG_COMPLETE);
        few.received[end][event->tag]++;
    } else if (event->type == WEFT_EVENT_SENT && event->tag <= SHORTS) {
        assert_int_equal(event->outcome, WEFT_MSG_COMPLETE);
        few.sent[end][event->tag]++;
    }
}

static bool few_put(struct net *net, uint32_t from, uint64_t tag, const float *values,
                    uint32_t floats, float *to)
{
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                           .sink = WEFT_SINK_COPY,
                                           .tag = tag,
                                           .tag_mask = UINT64_MAX,
                                           .memory = to,
                                           .memory_bytes = floats * sizeof(float),
                                           .count = 1,
                                           .timeout_ns = WEFT_NEVER};
    const struct weft_msg_send send = {.peer = net->end[from].peer,
                                       .base = values,
                                       .total = floats,
                                       .elem_bytes = sizeof(float),
                                       .shares = floats <= SHORT_FLOATS,
                                       .tag = tag,
                                       .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    weft_status status = net_msg_send(net, from, &send, &seq);
    assert_true(status == WEFT_OK || status == WEFT_AGAIN);
    if (status == WEFT_OK) {
        assert_int_equal(net_msg_expect(net, 1 - from, &expect, &id), WEFT_OK);
    }
    return status == WEFT_OK;
}

static void few_run(struct net *net)
{
    uint32_t put[2] = {0, 0};
    memset(&few, 0, sizeof(few));
    for (uint32_t end = 0; end < 2; end++) {
        assert_true(few_put(net, end, 0, sent, FLOATS, memory[1 - end]));
    }
    while (put[0] < SHORTS || put[1] < SHORTS) {
        for (uint32_t end = 0; end < 2; end++) {
            net->end[end].ep->credit.round_shared = true;
            net->end[end].ep->credit.rounds_shared = true;
            uint64_t burst = weft_prng_below(&net->prng, 12);
            for (uint64_t i = 0; i < burst && put[end] < SHORTS; i++) {
                uint32_t tag = put[end] + 1;
                if (!few_put(net, end, tag, sent + tag, SHORT_FLOATS, few.memory[1 - end][tag])) {
                    break;
                }
                put[end]++;
            }
        }
        net_run(net, weft_prng_below(&net->prng, 2000) * WEFT_NS_PER_US);
    }
    net_run(net, 60 * WEFT_NS_PER_S);
    for (uint32_t end = 0; end < 2; end++) {
        assert_memory_equal(memory[end], sent, sizeof(sent));
        for (uint32_t tag = 0; tag <= SHORTS; tag++) {
            assert_int_equal(few.received[end][tag], 1);
            assert_int_equal(few.sent[end][tag], 1);
        }
        for (uint32_t tag = 1; tag <= SHORTS; tag++) {
            assert_memory_equal(few.memory[end][tag], sent + tag, SHORT_FLOATS * sizeof(float));
        }
        assert_false(weft_ep_busy(net->end[end].ep));
        assert_int_equal(net_counters(net, end)->bad_ack, 0);
        assert_int_equal(net_counters(net, end)->bad_range, 0);
    }
}

static void both_frames_on_a_bad_path(void **state)
{
    (void)state;
    uint64_t rides = 0, shared = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct net *net = joined((uint8_t)(seed % 3));
        weft_prng_init(&net->prng, seed);
        net->loss_ppm = seed % 4 == 0 ? 0 : 50000;
        net->duplicate_ppm = 50000;
        net->late_ppm = 50000;
        net->late_ns = 20 * WEFT_NS_PER_MS;
        net->on_event = few_event;
        for (uint32_t end = 0; end < 2; end++) {
            net->end[end].gap_ns = 20 * WEFT_NS_PER_US;
        }
        few_run(net);
        rides += count.rides;
        shared += net_counters(net, 0)->messages_shared + net_counters(net, 1)->messages_shared;
        net_free(net);
    }
    print_message("%llu rides, %llu shared\n", (unsigned long long)rides,
                  (unsigned long long)shared);
    assert_true(rides > 0 && shared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledgements_ride_with_chunks),
        cmocka_unit_test(messages_stay_whole_on_a_bad_path),
        cmocka_unit_test(without_turns_acknowledgements_are_long),
        cmocka_unit_test(one_direction_has_long_acknowledgements),
        cmocka_unit_test(numbers_that_were_never_sent_are_refused),
        cmocka_unit_test(numbers_are_completed_by_what_is_known),
        cmocka_unit_test(an_overtaken_acknowledgement_does_not_disable_ecn),
        cmocka_unit_test(both_frames_on_a_bad_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
