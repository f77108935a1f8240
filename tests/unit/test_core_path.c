/* Effects of the path on two endpoints: packets that exceed its MTU, cleared marks and changed
 * addresses; also peers that become silent, close or restart. */
#include "../lib/datagram_net.h"
#include "base/bits.h"
#include "core_inspect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum bleach { BLEACH_NOT, BLEACH_CLEAR, BLEACH_DROP, BLEACH_HALF };

struct path_rig {
    struct net net; /* its third end is the restarted end 0, or NULL */
    struct weft_ep_config config[ENDS_MAX];
    weft_peer peer;      /* end 1, as seen by end 0 */
    uint32_t mtu;        /* longer datagrams are dropped, unless they may be fragmented */
    uint32_t device_mtu; /* longer ones are refused: EMSGSIZE */
    enum bleach bleach;
    bool cut;
    uint32_t cut_closes; /* lose as many packets from end 0 */
    uint32_t fragmented, sent[ENDS_MAX], largest;
    struct weft_msg_event down[ENDS_MAX];
    char log[1024];
};

static void log_add(struct path_rig *t, const char *word)
{
    if (strlen(t->log) + strlen(word) + 2 < sizeof(t->log)) {
        strcat(strcat(t->log, t->log[0] == '\0' ? "" : " "), word);
    }
}

static void on_event(struct net *net, uint32_t end, const struct weft_msg_event *ev)
{
    static const char *const names[ENDS_MAX][6] = {
        {"0:up", "0:down", "", "", "0:received", "0:sent"},
        {"1:up", "1:down", "", "", "1:received", "1:sent"},
        {"2:up", "2:down", "", "", "2:received", "2:sent"},
    };
    struct path_rig *t = (struct path_rig *)net;
    if (names[end][ev->type][0] != '\0') {
        log_add(t, names[end][ev->type]);
    }
    if (ev->type == WEFT_EVENT_PEER_DOWN) {
        t->down[end] = *ev;
    }
}

static bool path_tap(struct net *net, struct net_datagram *d)
{
    struct path_rig *t = (struct path_rig *)net;
    const uint32_t end = d->from_end;
    const bool marked = d->ecn != WEFT_ECN_NOT;
    t->sent[end]++;
    t->largest = d->bytes > t->largest ? d->bytes : t->largest;
    if (d->bytes > t->device_mtu && !d->fragment) {
        weft_ep_too_big(t->net.end[end].ep, &d->to, d->bytes, t->net.now_ns);
        return false;
    }
    if (end == 0 && t->cut_closes > 0) {
        t->cut_closes--;
        return false;
    }
    t->fragmented += d->fragment && d->bytes > t->mtu;
    if (t->bleach == BLEACH_CLEAR || (t->bleach == BLEACH_HALF && t->sent[end] % 2 == 0)) {
        d->ecn = WEFT_ECN_NOT;
    }
    return !t->cut && (d->bytes <= t->mtu || d->fragment) && !(t->bleach == BLEACH_DROP && marked);
}

static void run_for(struct path_rig *t, uint64_t ns)
{
    net_run(&t->net, ns);
}

static void end_open(struct path_rig *t, uint32_t end)
{
    assert_int_equal(weft_ep_new(&t->config[end], &t->net.end[end].ep), WEFT_OK);
    t->net.end[end].msgr = weft_ep_msgr(t->net.end[end].ep);
}

static weft_status connect_to_1(struct path_rig *t)
{
    return weft_ep_connect(t->net.end[0].ep, &t->net.end[1].addr, t->net.now_ns, &t->peer);
}

static void open_both(struct path_rig *t)
{
    end_open(t, 0);
    end_open(t, 1);
    assert_int_equal(connect_to_1(t), WEFT_OK);
    run_for(t, 50 * WEFT_NS_PER_MS);
    assert_int_equal(t->net.end[0].ups + t->net.end[1].ups, 2);
    t->log[0] = '\0';
}

static int setup(void **state)
{
    struct path_rig *t = calloc(1, sizeof(*t));
    net_init(&t->net, 1);
    t->net.tap = path_tap;
    t->net.on_event = on_event;
    t->mtu = 70000;
    t->device_mtu = 70000;
    for (uint32_t end = 0; end < ENDS_MAX; end++) {
        weft_ep_config_default(&t->config[end]);
        t->config[end].seed = 7 + end;
        t->config[end].incarnation = 10 + end;
        t->config[end].name = end;
        t->config[end].accept = end == 1;
        t->net.end[end].addr.bytes[0] = (uint8_t)(1 + end);
        t->net.end[end].addr.bytes_used = 1;
    }
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct path_rig *t = *state;
    net_fini(&t->net);
    for (uint32_t end = 0; end < ENDS_MAX; end++) {
        weft_ep_free(t->net.end[end].ep);
    }
    free(t);
    return 0;
}

enum { FLOATS_MAX = 352 * 2000 };
static float source[FLOATS_MAX];
static float sink[64][FLOATS_MAX / 16];

static void post(struct path_rig *t, uint64_t tag)
{
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_COPY,
        .tag = tag,
        .tag_mask = UINT64_MAX,
        .memory = sink[tag % 64],
        .memory_bytes = sizeof(sink[0]),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
    };
    weft_expect_id id;
    assert_int_equal(net_msg_expect(&t->net, 1, &e, &id), WEFT_OK);
}

/* laid_out: weft_msg_send.chunk_elems. */
static void send_floats(struct path_rig *t, uint64_t tag, uint32_t floats, uint32_t laid_out)
{
    struct weft_msg_send send = {
        .peer = t->peer,
        .base = source,
        .total = floats,
        .elem_bytes = sizeof(float),
        .chunk_elems = (uint16_t)laid_out,
        .tag = tag,
        .deadline_ns = WEFT_NEVER,
    };
    assert_true(floats * sizeof(float) <= sizeof(sink[0]));
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
}

static void transfer(struct path_rig *t, uint32_t floats, uint32_t laid_out)
{
    static uint64_t tag = 100;
    tag++;
    post(t, tag);
    send_floats(t, tag, floats, laid_out);
}

static uint32_t size_now(const struct path_rig *t)
{
    return weft_ep_packet_bytes(t->net.end[0].ep, t->peer);
}

static const struct weft_ep_counters *counters(const struct path_rig *t, uint32_t end)
{
    return weft_ep_counters(t->net.end[end].ep);
}

/* ---- packet size ----------------------------------------------------------------------------- */

static void test_a_sure_size_is_not_asked_for(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    assert_int_equal(size_now(t), 1472);
    assert_int_equal(counters(t, 0)->mtu_probes, 0);
    assert_int_equal(weft_ep_deadline(t->net.end[0].ep), WEFT_NEVER);
}

static void test_one_round_trip_finds_the_usual_size(void **state)
{
    struct path_rig *t = *state;
    t->config[0].packet_bytes_sure = 1200;
    end_open(t, 0);
    end_open(t, 1);
    assert_int_equal(connect_to_1(t), WEFT_OK);
    assert_int_equal(size_now(t), 1200);
    run_for(t, 100 * WEFT_NS_PER_US); /* HELLO and ACCEPT: 40 us; the probe: 40 us */
    assert_int_equal(size_now(t), 1472);
    assert_int_equal(counters(t, 0)->mtu_raised, 1);
    assert_int_equal(counters(t, 0)->lost_packets, 0);
}

static void search(struct path_rig *t, uint16_t most, uint32_t mtu)
{
    t->config[0].packet_bytes = most;
    t->config[0].packet_bytes_sure = 1200;
    t->mtu = mtu;
    open_both(t);
    for (int i = 0; i < 40; i++) { /* probes on a quiet connection have their own timer */
        run_for(t, 50 * WEFT_NS_PER_MS);
    }
}

static void test_jumbo_asked_for_on_a_plain_network(void **state)
{
    struct path_rig *t = *state;
    search(t, 8972, 1472);
    assert_in_range(size_now(t), 1472, 1472 + 16); /* mode none does not use the space of the tag */
    assert_int_equal(counters(t, 0)->mtu_black_holes, 0);
    assert_int_equal(weft_ep_deadline(t->net.end[0].ep), WEFT_NEVER); /* the search has ended */
}

static void test_the_first_round_trip_brings_1472_already(void **state)
{
    struct path_rig *t = *state;
    t->config[0].packet_bytes = 8972;
    t->config[0].packet_bytes_sure = 1200;
    t->mtu = 1472;
    end_open(t, 0);
    end_open(t, 1);
    assert_int_equal(connect_to_1(t), WEFT_OK);
    run_for(t, 200 * WEFT_NS_PER_US);
    assert_int_equal(size_now(t), 1472);
}

static void test_an_odd_size_is_found_by_halving(void **state)
{
    struct path_rig *t = *state;
    search(t, 1472, 1380 - 16);
    assert_in_range(size_now(t), 1380 - 16, 1380);
}

static void test_loopback_takes_all(void **state)
{
    struct path_rig *t = *state;
    search(t, 65000, 65535);
    assert_int_equal(size_now(t), 65000);
    assert_int_equal(t->largest, 65000 - 16);
}

static void test_lost_probes_are_no_congestion(void **state)
{
    struct path_rig *t = *state;
    t->config[0].packet_bytes = 8972;
    t->config[0].packet_bytes_sure = 1200;
    t->mtu = 1300;
    open_both(t);
    uint64_t window = inspect_peer(t->net.end[0].ep, t->peer)->cc.cwnd_bytes;
    for (int i = 0; i < 60; i++) {
        transfer(t, 200, 0);
        run_for(t, 20 * WEFT_NS_PER_MS);
        assert_int_equal(inspect_peer(t->net.end[0].ep, t->peer)->cc.loss.span_lost, 0);
    }
    assert_true(counters(t, 0)->lost_packets > 5);
    assert_true(counters(t, 0)->mtu_probes > 5);
    assert_true(inspect_peer(t->net.end[0].ep, t->peer)->cc.cwnd_bytes >= window);
    assert_int_equal(counters(t, 0)->retransmitted_packets, 0);
}

static void test_black_hole_in_the_middle_of_a_message(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352 * 100, 0);
    run_for(t, 30 * WEFT_NS_PER_US); /* the first packets are in flight */
    t->mtu = 1300;
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1); /* with its grid, in fragments */
    assert_int_equal(t->net.end[0].outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(counters(t, 0)->mtu_black_holes, 1);
    assert_true(t->fragmented > 0);
    assert_true(size_now(t) <= 1300 + 16);
    assert_int_equal(t->net.end[0].downs, 0);
    /* New messages fit. */
    uint32_t before = t->fragmented;
    transfer(t, 352 * 100, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 2);
    assert_int_equal(t->fragmented, before);
    /* Chunks laid out before the change exceed the size, and are sent nevertheless. */
    transfer(t, 352 * 10, 352);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 3);
    assert_true(t->fragmented > before);
}

/* A message of the maximum length must stay possible after the path shrinks. */
static void test_the_longest_message_on_a_short_path(void **state)
{
    struct path_rig *t = *state;
    t->config[0].chunks_max = 64;
    t->config[1].chunks_max = 64;
    t->config[0].packet_bytes_sure = 1200;
    t->mtu = 1300;
    open_both(t);
    transfer(t, 352 * 64, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1);
    assert_true(t->fragmented > 0);
}

/* The size that passes is above the base size, and says nothing about longer sizes. */
static void test_black_hole_above_what_passes(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    t->mtu = 1400;
    for (uint32_t i = 0; i < 200; i++) {
        transfer(t, 352, 0);
        transfer(t, 320, 0); /* 1,328 bytes */
        run_for(t, 100 * WEFT_NS_PER_US);
        if (counters(t, 0)->mtu_black_holes > 0) {
            break;
        }
    }
    assert_int_equal(counters(t, 0)->mtu_black_holes, 1);
    run_for(t, WEFT_NS_PER_S);
    assert_false(weft_ep_busy(t->net.end[0].ep));
}

/* A size probe is in flight, and will not pass. A chunk laid out for a longer path is larger than
 * the window, and does not wait for the outcome of the probe. */
static void test_a_size_in_question_holds_no_chunk_back(void **state)
{
    enum { LONG_CHUNK = 2208 };
    struct path_rig *t = *state;
    t->config[0].packet_bytes = 8972;
    t->config[0].packet_bytes_sure = 1200;
    t->config[1].packet_bytes = 8972;
    t->mtu = 1300;
    open_both(t); /* 50 ms: the third attempt is abandoned after 70 */
    struct peer *p = inspect_peer(t->net.end[0].ep, t->peer);
    assert_true(p->path.probe_pn != 0);
    p->cc.cwnd_bytes = WEFT_CC_PACKETS_MIN * p->path.packet_bytes;
    assert_true(p->cc.cwnd_bytes < LONG_CHUNK * sizeof(float));
    transfer(t, LONG_CHUNK, LONG_CHUNK);
    run_for(t, 100 * WEFT_NS_PER_US); /* two trips of 20; a probe would take 200 */
    assert_int_equal(t->net.end[0].sent, 1);
}

/* One chunk, and no other packet that could be acknowledged: the probes must detect the MTU. */
static void test_black_hole_under_a_single_chunk(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    t->mtu = 1300;
    transfer(t, 352, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1);
    assert_int_equal(t->net.end[0].downs, 0);
    assert_int_equal(counters(t, 0)->mtu_black_holes, 1);
}

/* Acknowledgements only: the packet with all DONEs exceeds the current MTU, and the sender of the
 * messages sends nothing more. Its first message blocks the others. */
static void test_black_hole_under_confirmations(void **state)
{
    enum { MESSAGES = 52, FIRST_TAG = 1 };
    struct path_rig *t = *state;
    open_both(t);
    send_floats(t, FIRST_TAG, 10, 0);
    for (uint32_t i = 1; i < MESSAGES; i++) {
        transfer(t, 10, 0);
    }
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, MESSAGES - 1);
    t->mtu = 1250;
    post(t, FIRST_TAG);
    while (t->net.end[0].sent < MESSAGES) {
        assert_true(net_step(&t->net, t->net.now_ns + 10 * WEFT_NS_PER_S));
    }
    t->cut_closes = 1; /* the acknowledgement of the last DONE */
    run_for(t, 30 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].downs + t->net.end[1].downs, 0);
    assert_false(weft_ep_busy(t->net.end[1].ep));
}

static void test_random_loss_is_no_black_hole(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    for (int i = 0; i < 20; i++) {
        transfer(t, 352 * 40, 0);
        t->cut = true; /* all of a burst is lost, short packets too */
        run_for(t, (uint64_t)i * 100 * WEFT_NS_PER_US);
        t->cut = false;
        run_for(t, 50 * WEFT_NS_PER_MS);
    }
    assert_int_equal(t->net.end[0].sent, 20);
    assert_true(counters(t, 0)->lost_packets > 100);
    assert_int_equal(counters(t, 0)->mtu_black_holes, 0);
    assert_int_equal(size_now(t), 1472);
}

static void test_a_path_that_grew_is_found_after_ten_minutes(void **state)
{
    struct path_rig *t = *state;
    search(t, 1472, 1300);
    assert_true(size_now(t) <= 1316);
    t->mtu = 70000;
    transfer(t, 352, 0);
    run_for(t, 590 * WEFT_NS_PER_S);
    transfer(t, 352, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_true(size_now(t) <= 1316);
    run_for(t, 20 * WEFT_NS_PER_S);
    transfer(t, 352, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(size_now(t), 1472);
}

static void test_a_device_that_refuses_is_believed(void **state)
{
    struct path_rig *t = *state;
    t->config[0].packet_bytes = 8972;
    t->config[0].packet_bytes_sure = 1200;
    t->device_mtu = 1452;
    open_both(t);
    run_for(t, WEFT_NS_PER_S);
    assert_in_range(size_now(t), 1436, 1452 + 16);
    assert_true(counters(t, 0)->mtu_too_big >= 2);
    /* The route changes to a tunnel, and then to one below the base. */
    t->device_mtu = 1280;
    transfer(t, 352 * 20, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1);
    assert_in_range(size_now(t), 1200, 1296);
    t->device_mtu = 1000;
    transfer(t, 352 * 20, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 2);
    assert_true(inspect_peer(t->net.end[0].ep, t->peer)->path.fragment);
}

/* ---- ECN ------------------------------------------------------------------------------------- */

static void test_marks_that_arrive_are_kept(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352 * 100, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_true(inspect_peer(t->net.end[0].ep, t->peer)->path.ecn_capable);
    assert_int_equal(counters(t, 0)->ecn_failed + counters(t, 1)->ecn_failed, 0);
}

static void check_ecn_fails(struct path_rig *t, enum bleach bleach)
{
    t->bleach = bleach;
    end_open(t, 0);
    end_open(t, 1);
    assert_int_equal(connect_to_1(t), WEFT_OK);
    transfer(t, 352 * 100, 0);
    run_for(t, 4 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1);
    assert_int_equal(counters(t, 0)->ecn_failed, 1);
    assert_false(inspect_peer(t->net.end[0].ep, t->peer)->path.ecn_capable);
    assert_false(weft_core_ecn_marks(t->net.end[0].ep, inspect_peer(t->net.end[0].ep, t->peer)));
    assert_int_equal(t->net.end[0].downs + t->net.end[1].downs, 0);
}

static void test_bleaching_ends_ecn(void **state)
{
    check_ecn_fails(*state, BLEACH_CLEAR);
}

static void test_bleaching_of_some_packets_ends_ecn(void **state)
{
    check_ecn_fails(*state, BLEACH_HALF);
}

static void test_a_path_that_drops_marked_packets(void **state)
{
    check_ecn_fails(*state, BLEACH_DROP);
}

static void test_counts_that_go_backwards_end_ecn(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352 * 10, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_true(inspect_peer(t->net.end[0].ep, t->peer)->path.ecn_capable);
    inspect_peer(t->net.end[1].ep, 0)->ack.ect_received -= 5; /* five ECT counts disappear, */
    inspect_peer(t->net.end[1].ep, 0)->ack.ce_received +=
        500; /* and more CE counts appear than packets */
    transfer(t, 352, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(counters(t, 0)->ecn_failed, 1);
    assert_int_equal(t->net.end[0].sent, 2);
}

/* ---- another address ------------------------------------------------------------------------- */

static void test_a_peer_that_moves_is_followed(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352 * 100, 0);
    run_for(t, 100 * WEFT_NS_PER_US);
    struct recovery *r = &inspect_peer(t->net.end[1].ep, 0)->recovery;
    r->answer_ns = r->answer_long_ns = WEFT_NS_PER_S;
    t->net.end[0].addr.bytes[0] = 77;
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 1);
    assert_int_equal(counters(t, 1)->path_changes, 1);
    assert_int_equal(inspect_peer(t->net.end[1].ep, 0)->conn.addr.bytes[0], 77);
    assert_int_equal(t->net.end[0].downs + t->net.end[1].downs, 0);
    /* Measured again. */
    assert_true(r->srtt_ns < WEFT_NS_PER_MS);
    assert_true(r->answer_ns < 10 * WEFT_NS_PER_MS && r->answer_long_ns < 10 * WEFT_NS_PER_MS);
}

/* A size probe arrives over the old path, its acknowledgement over the new one. */
static bool move_with_the_probe(struct net *net, struct net_datagram *d)
{
    struct path_rig *t = (struct path_rig *)net;
    if (d->bytes > 8000 && d->to.bytes[0] == 1) {
        t->net.end[0].addr.bytes[0] = 77;
        d->to = t->net.end[0].addr;
        t->mtu = 1300;
    }
    return true;
}

static void test_a_size_of_the_old_way_is_not_taken_along(void **state)
{
    struct path_rig *t = *state;
    t->config[1].packet_bytes = 8972;
    t->config[1].packet_bytes_sure = 1200;
    t->net.on_arrival = move_with_the_probe;
    open_both(t);
    for (int i = 0; i < 40; i++) {
        transfer(t, 352, 0);
        run_for(t, 5 * WEFT_NS_PER_MS);
        assert_true(weft_ep_packet_bytes(t->net.end[1].ep, 0) <= 1316);
    }
    assert_int_equal(t->net.end[0].addr.bytes[0], 77);
    assert_int_equal(counters(t, 1)->path_changes, 1);
    assert_true(inspect_peer(t->net.end[1].ep, 0)->recovery.rtt_ns_min < 100 * WEFT_NS_PER_US);
    assert_true(inspect_peer(t->net.end[1].ep, 0)->recovery.srtt_ns < 300 * WEFT_NS_PER_US);
}

/* An attacker sends copies from elsewhere, before the originals arrive, and answers nothing. */
static bool copy_first(struct net *net, struct net_datagram *d)
{
    struct net_datagram copy = *d;
    copy.from.bytes[0] = 66;
    if (d->to.bytes[0] == net->end[1].addr.bytes[0]) {
        net_arrive(net, &copy);
    }
    return true;
}

/* As copy_first, from another address each time. */
static bool copy_first_from_many(struct net *net, struct net_datagram *d)
{
    static uint8_t last;
    struct net_datagram copy = *d;
    last = (uint8_t)(last % 50 + 1);
    copy.from.bytes[0] = (uint8_t)(100 + last);
    if (d->to.bytes[0] == net->end[1].addr.bytes[0]) {
        net_arrive(net, &copy);
    }
    return true;
}

static void test_copies_from_elsewhere_move_nobody(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    for (int i = 0; i < 10; i++) {
        t->net.on_arrival = i % 2 == 0 ? copy_first : copy_first_from_many;
        transfer(t, 352 * 100, 0);
        run_for(t, 100 * WEFT_NS_PER_MS);
    }
    assert_int_equal(t->net.end[0].sent, 10);
    assert_int_equal(counters(t, 1)->path_changes, 0);
    assert_int_equal(inspect_peer(t->net.end[1].ep, 0)->conn.addr.bytes[0], 1);
    assert_int_equal(counters(t, 0)->retransmitted_packets, 0); /* the originals count */
    /* Ten a second at most, for a thousand packets. */
    assert_in_range(counters(t, 1)->path_challenges, 1, 11);
}

/* A copy of every packet overtakes it; nevertheless the address of the original is sent a challenge
 * when the first original arrives. */
static void test_copies_that_come_first_do_not_delay_a_move(void **state)
{
    bool (*const copy[])(struct net *, struct net_datagram *) = {copy_first, copy_first_from_many};
    struct path_rig *t = *state;
    open_both(t);
    for (uint8_t i = 0; i < WEFT_ARRAY_COUNT(copy); i++) {
        t->net.on_arrival = copy[i];
        transfer(t, 352 * 20, 0);
        run_for(t, 200 * WEFT_NS_PER_MS);
        assert_int_equal(t->net.end[0].sent, 2 * i + 1);
        t->net.end[0].addr.bytes[0] = (uint8_t)(77 + i);
        transfer(t, 352, 0);
        run_for(t, 5 * WEFT_NS_PER_MS);
        assert_int_equal(counters(t, 1)->path_changes, i + 1);
        assert_int_equal(inspect_peer(t->net.end[1].ep, 0)->conn.addr.bytes[0], 77 + i);
        assert_int_equal(t->net.end[0].sent, 2 * i + 2);
    }
    /* At most one reply per packet from another address: no amplification. */
    assert_true(counters(t, 1)->path_challenges <= counters(t, 1)->bad_peer);
}

/* A peer moved twice, and the response that it sent from the first address arrives late. */
static void test_an_answer_from_before_a_move_moves_nobody(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    struct peer *p = inspect_peer(t->net.end[1].ep, 0);
    struct weft_wire_packet stray = {.klass = WEFT_CLASS_PLAIN, .data_bytes = 100};
    const struct weft_addr first = {.bytes = {66}, .bytes_used = 1};
    const struct weft_addr second = {.bytes = {67}, .bytes_used = 1};
    assert_false(weft_core_path_stray(t->net.end[1].ep, p, &first, &stray, t->net.now_ns));
    assert_false(weft_core_path_stray(t->net.end[1].ep, p, &second, &stray, t->net.now_ns));
    assert_int_equal(p->path.challenges_due, 3);
    uint8_t bytes[2][WEFT_PATH_BYTES];
    for (int i = 0; i < 2; i++) {
        struct weft_wire_frame frame = {.type = WEFT_FRAME_PATH_RESPONSE,
                                        .token = p->path.challenge[i].token};
        struct weft_writer w = weft_writer_make(bytes[i], sizeof(bytes[i]));
        weft_wire_frame_encode(&w, &frame);
    }
    stray.control_bytes = WEFT_PATH_BYTES;
    stray.control = bytes[1];
    assert_true(weft_core_path_stray(t->net.end[1].ep, p, &second, &stray, t->net.now_ns));
    stray.control = bytes[0];
    assert_false(weft_core_path_stray(t->net.end[1].ep, p, &first, &stray, t->net.now_ns));
    assert_int_equal(p->conn.addr.bytes[0], 67);
}

/* An attacker knows of a challenge and guesses its token, or sends the correct token from a third
 * address. */
static void test_a_wrong_answer_moves_nobody(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    struct peer *p = inspect_peer(t->net.end[1].ep, 0);
    for (int right = 0; right < 2; right++) {
        p->path.challenge[0] = (struct challenge){.addr = {.bytes = {66}, .bytes_used = 1},
                                                  .token = 0x1234,
                                                  .at_ns = t->net.now_ns};
        /* A third address has a token of its own, different from this one. */
        p->path.challenge[1] = (struct challenge){.addr = {.bytes = {67}, .bytes_used = 1},
                                                  .token = 0x1236,
                                                  .at_ns = t->net.now_ns};
        uint8_t bytes[64];
        struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
        struct weft_wire_packet packet = {
            .flags = WEFT_FLAG_CONTROL, .connection_id = p->conn.id, .number = 5000};
        struct weft_wire_frame frame = {.type = WEFT_FRAME_PATH_RESPONSE,
                                        .token = right ? 0x1234 : 0x1235};
        weft_wire_header_encode(&w, &packet);
        weft_write_u16(&w, WEFT_PATH_BYTES);
        weft_wire_frame_encode(&w, &frame);
        struct weft_addr from = {.bytes = {right ? 67 : 66}, .bytes_used = 1};
        weft_ep_recv(t->net.end[1].ep, &from, WEFT_ECN_NOT, bytes, (size_t)(w.at - bytes),
                     t->net.now_ns, t->net.now_ns);
        assert_int_equal(p->conn.addr.bytes[0], 1);
        assert_int_equal(counters(t, 1)->path_changes, 0);
    }
}

/* ---- silence, close, restart ----------------------------------------------------------------- */

static void test_an_idle_connection_is_closed(void **state)
{
    struct path_rig *t = *state;
    t->config[0].idle_timeout_ns = 2 * WEFT_NS_PER_S;
    open_both(t);
    run_for(t, 1900 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "");
    transfer(t, 1, 0);
    run_for(t, 1900 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "1:received 0:sent");
    run_for(t, WEFT_NS_PER_S);
    assert_string_equal(t->log, "1:received 0:sent 0:down 1:down");
    assert_int_equal(t->down[0].down, WEFT_DOWN_IDLE);
    assert_int_equal(t->down[1].down, WEFT_DOWN_CLOSED);
    assert_int_equal(t->down[1].close_code, WEFT_CLOSE_IDLE);
}

static void test_a_keepalive_keeps_it(void **state)
{
    struct path_rig *t = *state;
    t->config[0].keepalive_ns = WEFT_NS_PER_S;
    t->config[0].idle_timeout_ns = 2 * WEFT_NS_PER_S;
    t->config[1].idle_timeout_ns = 2 * WEFT_NS_PER_S;
    open_both(t);
    uint32_t before = t->sent[0];
    run_for(t, 60 * WEFT_NS_PER_S);
    assert_string_equal(t->log, "");
    assert_in_range(t->sent[0] - before, 59, 130); /* one PING per second, and the replies */
    t->cut = true;
    run_for(t, 5 * WEFT_NS_PER_S);
    assert_int_equal(t->down[0].down, WEFT_DOWN_IDLE);
    assert_int_equal(t->down[1].down, WEFT_DOWN_IDLE);
}

static void test_close_is_repeated_until_answered(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    uint32_t before = t->sent[0];
    weft_ep_close(t->net.end[0].ep, t->peer, t->net.now_ns);
    assert_true(weft_ep_busy(t->net.end[0].ep));
    t->cut_closes = 2;
    run_for(t, 20 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "0:down 1:down");
    assert_int_equal(t->down[0].down, WEFT_DOWN_LOCAL);
    assert_int_equal(t->down[1].down, WEFT_DOWN_CLOSED);
    assert_int_equal(t->down[1].close_code, WEFT_CLOSE_FINISHED);
    assert_int_equal(t->sent[0] - before, 3);
    assert_false(weft_ep_busy(t->net.end[0].ep) || weft_ep_busy(t->net.end[1].ep));
    assert_int_equal(inspect_peer(t->net.end[0].ep, t->peer)->conn.state,
                     PEER_FREE); /* the drain is over */
    assert_int_equal(inspect_peer(t->net.end[1].ep, 0)->conn.state, PEER_FREE);
}

static void test_close_to_the_dead_ends(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    t->cut = true;
    uint32_t before = t->sent[0];
    weft_ep_close(t->net.end[0].ep, t->peer, t->net.now_ns);
    run_for(t, 20 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "0:down");
    assert_int_equal(t->sent[0] - before, 3);
    assert_false(weft_ep_busy(t->net.end[0].ep));
    assert_int_equal(weft_ep_deadline(t->net.end[0].ep), WEFT_NEVER);
}

/* DONE was lost, and its receiver closes at once: the sender must learn that all arrived. */
static void test_close_brings_the_last_done(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352, 0);
    while (strstr(t->log, "1:received") == NULL) {
        assert_true(net_step(&t->net, WEFT_NEVER - 1));
    }
    static struct weft_tx tx;
    while (weft_ep_send(t->net.end[1].ep, t->net.now_ns, &tx) > 0) {
        continue; /* lost */
    }
    weft_ep_close(t->net.end[1].ep, 0, t->net.now_ns);
    run_for(t, 20 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "1:received 1:down 0:sent 0:down");
    assert_int_equal(t->net.end[0].outcome, WEFT_MSG_COMPLETE);
}

static void test_late_packets_of_a_closed_connection(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    transfer(t, 352 * 20, 0);
    /* The message is in flight when the other end closes. */
    assert_true(net_step(&t->net, WEFT_NEVER - 1));
    weft_ep_close(t->net.end[1].ep, 0, t->net.now_ns);
    run_for(t, 200 * WEFT_NS_PER_US);
    assert_true(counters(t, 1)->closed_packets > 0);
    assert_int_equal(counters(t, 1)->bad_peer, 0);
    assert_int_equal(t->net.end[0].downs, 1);
}

static void test_a_restarted_peer_replaces_its_former_life(void **state)
{
    struct path_rig *t = *state;
    open_both(t);
    weft_ep_free(t->net.end[0].ep); /* the crash */
    t->net.end[0].ep = NULL;
    t->net.end[2].addr = t->net.end[0].addr;
    end_open(t, 2);
    weft_peer peer;
    assert_int_equal(weft_ep_connect(t->net.end[2].ep, &t->net.end[1].addr, t->net.now_ns, &peer),
                     WEFT_OK);
    run_for(t, 30 * WEFT_NS_PER_US); /* HELLO alone changes nothing */
    assert_string_equal(t->log, "");
    run_for(t, WEFT_NS_PER_MS);
    assert_string_equal(t->log, "2:up 1:down 1:up");
    assert_int_equal(t->down[1].down, WEFT_DOWN_RESTARTED);
    assert_int_equal(t->down[1].incarnation, 10);
}

/* ---- jumps of the clock ---------------------------------------------------------------------- */

static void test_an_hour_of_sleep_kills_nobody(void **state)
{
    struct path_rig *t = *state;
    t->config[0].idle_timeout_ns = 60 * WEFT_NS_PER_S;
    open_both(t);
    transfer(t, 352 * 100, 0);
    t->cut = true;
    run_for(t, 2 * WEFT_NS_PER_S); /* probing since two of five seconds */
    assert_true(counters(t, 0)->probes > 0);
    t->net.now_ns += 3600 * WEFT_NS_PER_S;
    t->cut = false;
    run_for(t, 5 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].downs + t->net.end[1].downs, 0);
    assert_int_equal(t->net.end[0].sent, 1);
    /* The same with packets in flight during the jump: their round trip is not a valid
     * measurement. */
    transfer(t, 352 * 100, 0);
    (void)net_step(&t->net, WEFT_NEVER - 1);
    t->net.now_ns += 3600 * WEFT_NS_PER_S;
    run_for(t, 5 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].sent, 2);
    assert_true(inspect_peer(t->net.end[0].ep, t->peer)->recovery.srtt_ns < WEFT_NS_PER_S);
    /* Dead peers are detected nevertheless. */
    transfer(t, 352, 0);
    t->cut = true;
    run_for(t, 7 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].downs, 1);
}

static void test_sleep_while_connecting(void **state)
{
    struct path_rig *t = *state;
    end_open(t, 0);
    end_open(t, 1);
    t->cut = true;
    assert_int_equal(connect_to_1(t), WEFT_OK);
    run_for(t, 2 * WEFT_NS_PER_S);
    t->net.now_ns += 3600 * WEFT_NS_PER_S;
    t->cut = false;
    run_for(t, 3 * WEFT_NS_PER_S);
    assert_int_equal(t->net.end[0].ups, 1);
    assert_int_equal(t->net.end[0].downs, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_sure_size_is_not_asked_for),
        TEST(test_one_round_trip_finds_the_usual_size),
        TEST(test_jumbo_asked_for_on_a_plain_network),
        TEST(test_the_first_round_trip_brings_1472_already),
        TEST(test_an_odd_size_is_found_by_halving),
        TEST(test_loopback_takes_all),
        TEST(test_lost_probes_are_no_congestion),
        TEST(test_black_hole_in_the_middle_of_a_message),
        TEST(test_the_longest_message_on_a_short_path),
        TEST(test_black_hole_above_what_passes),
        TEST(test_a_size_in_question_holds_no_chunk_back),
        TEST(test_black_hole_under_a_single_chunk),
        TEST(test_black_hole_under_confirmations),
        TEST(test_random_loss_is_no_black_hole),
        TEST(test_a_path_that_grew_is_found_after_ten_minutes),
        TEST(test_a_device_that_refuses_is_believed),
        TEST(test_marks_that_arrive_are_kept),
        TEST(test_bleaching_ends_ecn),
        TEST(test_bleaching_of_some_packets_ends_ecn),
        TEST(test_a_path_that_drops_marked_packets),
        TEST(test_counts_that_go_backwards_end_ecn),
        TEST(test_a_peer_that_moves_is_followed),
        TEST(test_a_size_of_the_old_way_is_not_taken_along),
        TEST(test_copies_from_elsewhere_move_nobody),
        TEST(test_copies_that_come_first_do_not_delay_a_move),
        TEST(test_an_answer_from_before_a_move_moves_nobody),
        TEST(test_a_wrong_answer_moves_nobody),
        TEST(test_an_idle_connection_is_closed),
        TEST(test_a_keepalive_keeps_it),
        TEST(test_close_is_repeated_until_answered),
        TEST(test_close_to_the_dead_ends),
        TEST(test_close_brings_the_last_done),
        TEST(test_late_packets_of_a_closed_connection),
        TEST(test_a_restarted_peer_replaces_its_former_life),
        TEST(test_an_hour_of_sleep_kills_nobody),
        TEST(test_sleep_while_connecting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
