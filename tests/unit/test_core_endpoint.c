/* Two endpoints joined by a list of datagrams on a fake clock: the walk of one message, step by
 * step. Rare interleavings are the simulator's (docs/SIMULATOR.md). */
#include "base/bits.h"
#include "base/prng.h"
#include "core/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { QUEUE_MAX = 4096, LOG_MAX = 4096 };

struct datagram {
    uint64_t due_ns;
    uint32_t to;
    uint32_t bytes;
    uint8_t *data;
};

/* Both ends, the wire between them, and what their applications saw. */
struct pair {
    struct weft_ep *ep[2];
    struct weft_msgr msgr[2];
    struct weft_addr addr[2];
    weft_peer peer_of_0;
    weft_peer peer_of_1;
    uint64_t now_ns;
    struct datagram queue[QUEUE_MAX];
    uint32_t queued;
    struct weft_prng prng;
    uint32_t loss_ppm;
    bool cut; /* nothing gets through */
    struct weft_msg_event sent;
    struct weft_msg_event received;
    uint64_t sent_mask[256];
    uint64_t received_mask[256];
    uint32_t sent_count, short_count, received_count, chunk_count, up_count, down_count;
    void (*on_chunk)(struct pair *, const struct weft_msg_event *);
    char log[LOG_MAX];
};

static void log_add(struct pair *t, const char *word)
{
    size_t used = strlen(t->log);
    if (used + strlen(word) + 2 < LOG_MAX) {
        if (used > 0) {
            strcat(t->log, " ");
        }
        strcat(t->log, word);
    }
}

static void drain(struct pair *t, uint32_t end)
{
    static const char *const names[2][6] = {{"0:up", "0:down", "0:open", "0:chunk", "0:received", "0:sent"},
                                            {"1:up", "1:down", "1:open", "1:chunk", "1:received", "1:sent"}};
    struct weft_msg_event ev;
    while (t->msgr[end].ops->poll(t->msgr[end].self, &ev)) {
        if (ev.type != WEFT_EVENT_CHUNK) {
            log_add(t, names[end][ev.type]);
        }
        size_t words = WEFT_BITS_WORDS((size_t)ev.chunks);
        switch (ev.type) {
        case WEFT_EVENT_PEER_UP:
            t->up_count++;
            if (end == 1) {
                t->peer_of_1 = ev.peer;
            }
            break;
        case WEFT_EVENT_PEER_DOWN:
            t->down_count++;
            break;
        case WEFT_EVENT_OPEN:
            break;
        case WEFT_EVENT_CHUNK:
            t->chunk_count++;
            if (t->on_chunk != NULL) {
                t->on_chunk(t, &ev);
            }
            break;
        case WEFT_EVENT_RECEIVED:
            t->received = ev;
            t->received_count++;
            memcpy(t->received_mask, ev.mask, words * 8);
            break;
        case WEFT_EVENT_SENT:
            t->sent = ev;
            t->sent_count++;
            t->short_count += ev.outcome == WEFT_MSG_SHORT;
            memcpy(t->sent_mask, ev.mask, words * 8);
            break;
        }
    }
}

static void enqueue(struct pair *t, uint32_t to, const struct weft_tx *tx)
{
    uint8_t flat[70000];
    size_t used = 0;
    for (uint32_t i = 0; i < tx->iov_count; i++) {
        memcpy(flat + used, tx->iov[i].base, tx->iov[i].bytes);
        used += tx->iov[i].bytes;
    }
    assert_int_equal(used, tx->bytes);
    for (uint32_t i = 0; i < tx->packets; i++) {
        size_t from = (size_t)i * tx->seg_bytes;
        size_t bytes = used - from < tx->seg_bytes ? used - from : tx->seg_bytes;
        if (t->cut || weft_prng_chance(&t->prng, t->loss_ppm)) {
            continue;
        }
        assert_true(t->queued < QUEUE_MAX);
        struct datagram *d = &t->queue[t->queued++];
        *d = (struct datagram){t->now_ns + 20000, to, (uint32_t)bytes, malloc(bytes)};
        memcpy(d->data, flat + from, bytes);
    }
}

static void pump(struct pair *t)
{
    static struct weft_tx tx;
    for (uint32_t end = 0; end < 2; end++) {
        while (weft_ep_send(t->ep[end], t->now_ns, &tx) > 0) {
            enqueue(t, 1 - end, &tx);
        }
    }
}

/* Advance to the next thing that happens; false when nothing will. */
static bool step(struct pair *t, uint64_t until_ns)
{
    pump(t);
    uint64_t next = weft_min_u64(weft_ep_deadline(t->ep[0]), weft_ep_deadline(t->ep[1]));
    if (t->queued > 0) {
        next = weft_min_u64(next, t->queue[0].due_ns);
    }
    if (next > until_ns) {
        return false;
    }
    t->now_ns = weft_max_u64(t->now_ns, next);
    while (t->queued > 0 && t->queue[0].due_ns <= t->now_ns) {
        struct datagram d = t->queue[0];
        memmove(t->queue, t->queue + 1, --t->queued * sizeof(d));
        weft_ep_recv(t->ep[d.to], &t->addr[1 - d.to], WEFT_ECN_ECT0, d.data, d.bytes, t->now_ns,
                     t->now_ns);
        drain(t, d.to);
        free(d.data);
    }
    for (uint32_t end = 0; end < 2; end++) {
        weft_ep_on_deadline(t->ep[end], t->now_ns);
        drain(t, end);
    }
    return true;
}

static void run_for(struct pair *t, uint64_t ns)
{
    uint64_t until = t->now_ns + ns;
    for (uint32_t i = 0; step(t, until); i++) {
        assert_true(i < 1000000);
    }
    t->now_ns = until;
}

static int setup(void **state)
{
    struct pair *t = calloc(1, sizeof(*t));
    t->now_ns = WEFT_NS_PER_S;
    weft_prng_init(&t->prng, 7);
    for (uint32_t end = 0; end < 2; end++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.name = 100 + end;
        config.incarnation = 10 + end;
        config.accept = end == 1;
        assert_int_equal(weft_ep_new(&config, &t->ep[end]), WEFT_OK);
        t->msgr[end] = weft_ep_msgr(t->ep[end]);
        t->addr[end].bytes[0] = (uint8_t)(1 + end);
        t->addr[end].bytes_used = 1;
    }
    assert_int_equal(weft_ep_connect(t->ep[0], &t->addr[1], t->now_ns, &t->peer_of_0), WEFT_OK);
    run_for(t, 5 * WEFT_NS_PER_MS);
    assert_int_equal(t->up_count, 2);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct pair *t = *state;
    for (uint32_t i = 0; i < t->queued; i++) {
        free(t->queue[i].data);
    }
    weft_ep_free(t->ep[0]);
    weft_ep_free(t->ep[1]);
    free(t);
    return 0;
}

static uint64_t send_floats(struct pair *t, const float *values, uint32_t n, uint32_t bound_ppm)
{
    struct weft_msg_send send = {
        .peer = t->peer_of_0,
        .base = values,
        .total = n,
        .elem_bytes = sizeof(float),
        .bound_ppm = bound_ppm,
        .tag = 42,
        .deadline_ns = WEFT_NEVER,
    };
    uint64_t seq = 0;
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_OK);
    return seq;
}

static void expect_floats(struct pair *t, enum weft_msg_sink sink, float *memory, uint32_t n)
{
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = sink,
        .tag = 42,
        .tag_mask = UINT64_MAX,
        .memory = memory,
        .memory_bytes = n * sizeof(float),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = 5,
    };
    weft_expect_id id;
    assert_int_equal(t->msgr[1].ops->expect(t->msgr[1].self, &e, &id), WEFT_OK);
}

static float *floats_new(uint32_t n)
{
    float *values = malloc(n * sizeof(*values));
    for (uint32_t i = 0; i < n; i++) {
        values[i] = (float)(i % 1000 + 1);
    }
    return values;
}

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
    assert_false(weft_ep_busy(t->ep[0]) || weft_ep_busy(t->ep[1]));
    assert_int_equal(weft_ep_counters(t->ep[0])->probes, 0);
    assert_int_equal(weft_ep_deadline(t->ep[0]), WEFT_NEVER);
    assert_int_equal(weft_ep_deadline(t->ep[1]), WEFT_NEVER);
}

static void test_bound_zero_survives_loss(void **state)
{
    struct pair *t = *state;
    uint32_t n = 352 * 700 + 11;
    float *values = floats_new(n);
    float *sum = calloc(n, sizeof(*sum));
    t->loss_ppm = 100000;
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
    assert_true(weft_ep_counters(t->ep[0])->retransmitted_packets > 100);
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
    t->loss_ppm = 50000;
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
    assert_true(missing > 0); /* 5 % of 3,200 chunks: the bound was made use of */
    free(values);
    free(got);
}

static void test_no_memory_posted_is_loss_until_it_is(void **state)
{
    struct pair *t = *state;
    float value = 9;
    float got = 0;
    send_floats(t, &value, 1, 0);
    run_for(t, 20 * WEFT_NS_PER_S); /* longer than the peer timeout: it answers, so it lives */
    assert_int_equal(t->received_count, 0);
    assert_int_equal(t->down_count, 0);
    assert_true(weft_ep_counters(t->ep[1])->no_memory > 0);
    expect_floats(t, WEFT_SINK_COPY, &got, 1);
    run_for(t, 2 * WEFT_NS_PER_S);
    assert_int_equal(t->received_count, 1);
    assert_true(got == 9);
}

static void test_dead_peer_is_told(void **state)
{
    struct pair *t = *state;
    float value = 1;
    t->cut = true;
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
    weft_ep_close(t->ep[0], t->peer_of_0, t->now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    assert_string_equal(t->log, "0:down 1:down");
    assert_false(weft_ep_busy(t->ep[0]) || weft_ep_busy(t->ep[1]));
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
        .deadline_ns = t->now_ns + 100000,
    };
    uint64_t seq;
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_OK);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent_count, 1);
    assert_int_equal(t->sent.outcome, WEFT_MSG_SHORT);
    assert_true(t->sent.received < t->sent.chunks);
    assert_memory_equal(t->sent_mask, t->received_mask, WEFT_BITS_WORDS(2000) * 8);
    free(values);
    free(got);
}

static void refuse_chunk(struct pair *t, const struct weft_msg_event *ev)
{
    if (ev->chunk % 2 == 0) {
        t->msgr[1].ops->refuse(t->msgr[1].self, ev->peer, ev->seq);
    }
}

static void test_hand_and_refuse(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(352 * 10);
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_HAND,
        .tag = 42,
        .tag_mask = UINT64_MAX,
        .memory_bytes = 1 << 20,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
    };
    weft_expect_id id;
    t->on_chunk = refuse_chunk;
    assert_int_equal(t->msgr[1].ops->expect(t->msgr[1].self, &e, &id), WEFT_OK);
    send_floats(t, values, 352 * 10, 0);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->chunk_count, 10);
    assert_int_equal(t->sent.refused, 5);
    assert_int_equal(t->msgr[1].ops->cancel(t->msgr[1].self, id), WEFT_NOTFOUND);
    free(values);
}

static void test_64_messages_then_again(void **state)
{
    struct pair *t = *state;
    float value = 1;
    float got[WEFT_MSGS_MAX];
    t->cut = true;
    for (int i = 0; i < WEFT_MSGS_MAX; i++) {
        expect_floats(t, WEFT_SINK_COPY, &got[i], 1);
        send_floats(t, &value, 1, 0);
    }
    struct weft_msg_send send = {.peer = t->peer_of_0, .base = &value, .total = 1, .elem_bytes = 4,
                                 .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_AGAIN);
    send.bound_ppm = WEFT_PPM;
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_INVALID);
    t->cut = false;
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent_count, WEFT_MSGS_MAX);
}

static void test_idle_silences_the_other_end(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    weft_ep_idle(t->ep[0], t->now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    float value = 1;
    struct weft_msg_send send = {.peer = t->peer_of_1, .base = &value, .total = 1, .elem_bytes = 4,
                                 .tag = 1, .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    uint64_t before = weft_ep_counters(t->ep[1])->datagrams_sent;
    assert_int_equal(t->msgr[1].ops->send(t->msgr[1].self, &send, t->now_ns, &seq), WEFT_OK);
    run_for(t, 30 * WEFT_NS_PER_S);
    assert_int_equal(weft_ep_counters(t->ep[1])->datagrams_sent, before);
    assert_int_equal(t->down_count, 0);
}

/* A deadline passes although the other end does not look: it is told, and if it is dead we find out. */
static void test_deadline_towards_an_idle_peer(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    weft_ep_idle(t->ep[0], t->now_ns);
    run_for(t, 10 * WEFT_NS_PER_MS);
    float value = 1;
    struct weft_msg_send send = {.peer = t->peer_of_1, .base = &value, .total = 1, .elem_bytes = 4,
                                 .tag = 1, .deadline_ns = t->now_ns + WEFT_NS_PER_MS};
    uint64_t seq;
    assert_int_equal(t->msgr[1].ops->send(t->msgr[1].self, &send, t->now_ns, &seq), WEFT_OK);
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
                                 .tag = 1, .deadline_ns = t->now_ns + WEFT_NS_PER_MS};
    uint64_t seq;
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_OK);
    t->cut = true; /* the message, its probes and its first FINISH are lost */
    run_for(t, 2 * WEFT_NS_PER_MS);
    t->cut = false;
    float got[64];
    uint64_t from_ns = t->now_ns;
    for (int i = 0; i < 60 && t->short_count == 0; i++) {
        expect_floats(t, WEFT_SINK_COPY, &got[i], 1);
        send_floats(t, &value, 1, 0);
        run_for(t, 50 * WEFT_NS_PER_US);
    }
    assert_int_equal(t->short_count, 1);
    assert_true(t->now_ns - from_ns < 2 * WEFT_NS_PER_MS);
}

/* Our own pause is not the other end's death. */
static void test_a_long_pause_of_ours_kills_nobody(void **state)
{
    struct pair *t = *state;
    float value = 1;
    float got = 0;
    expect_floats(t, WEFT_SINK_COPY, &got, 1);
    send_floats(t, &value, 1, 0);
    t->cut = true;
    pump(t); /* sent, and lost */
    t->cut = false;
    t->now_ns += 30 * WEFT_NS_PER_S; /* the caller computes */
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->down_count, 0);
    assert_true(got == 1);
}

/* A client crashes without CLOSE; the table is full; its successor gets in after the timeout. */
static void test_a_full_table_forgets_the_silent(void **state)
{
    struct pair *t = *state;
    weft_ep_free(t->ep[1]);
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.accept = 1;
    config.peers_max = 1;
    assert_int_equal(weft_ep_new(&config, &t->ep[1]), WEFT_OK);
    t->msgr[1] = weft_ep_msgr(t->ep[1]);
    for (uint64_t life = 1; life <= 2; life++) {
        weft_ep_free(t->ep[0]); /* the crash */
        t->queued = 0;
        weft_ep_config_default(&config);
        config.incarnation = 100 + life;
        config.peer_timeout_ns = 60 * WEFT_NS_PER_S;
        assert_int_equal(weft_ep_new(&config, &t->ep[0]), WEFT_OK);
        t->msgr[0] = weft_ep_msgr(t->ep[0]);
        t->up_count = 0;
        assert_int_equal(weft_ep_connect(t->ep[0], &t->addr[1], t->now_ns, &t->peer_of_0), WEFT_OK);
        run_for(t, 2 * WEFT_NS_PER_S);
        assert_int_equal(t->up_count, life == 1 ? 2 : 0); /* the silent one may still be alive */
    }
    run_for(t, 6 * WEFT_NS_PER_S);
    assert_int_equal(t->up_count, 2);
}

/* One packet hangs while the whole ring goes by in acknowledgements; what is sent next must still
 * be tracked. */
static void test_ring_goes_by_in_acknowledgements(void **state)
{
    struct pair *t = *state;
    struct peer *p = &t->ep[0]->peers[t->peer_of_0];
    run_for(t, 10 * WEFT_NS_PER_MS);
    assert_int_equal(p->in_flight_count, 0);
    weft_core_packet_sent(t->ep[0], p, t->now_ns, TX_PACKET_PROBE, 0, 0, 100);
    for (uint32_t i = 1; i < t->ep[0]->config.tx_window_max; i++) {
        weft_core_packet_sent(t->ep[0], p, t->now_ns, 0, 0, 0, 60);
    }
    uint64_t pn = p->pn_next;
    weft_core_packet_sent(t->ep[0], p, t->now_ns, TX_PACKET_PROBE, 0, 0, 100);
    assert_int_equal(p->in_flight_count, 1);
    assert_int_equal(p->pn_oldest, pn);
    assert_int_equal(p->in_flight_bytes, 100);
}

/* A PING that nobody answers is no reason for another: nothing waits for it. */
static void test_a_ping_in_flight_arms_nothing(void **state)
{
    struct pair *t = *state;
    run_for(t, 10 * WEFT_NS_PER_MS);
    uint64_t before = weft_ep_counters(t->ep[0])->datagrams_sent;
    t->ep[0]->peers[t->peer_of_0].need_ping = true;
    weft_core_peer_ready(t->ep[0], &t->ep[0]->peers[t->peer_of_0]);
    t->cut = true;
    run_for(t, 60 * WEFT_NS_PER_S);
    assert_int_equal(weft_ep_counters(t->ep[0])->datagrams_sent, before + 1);
    assert_int_equal(weft_ep_counters(t->ep[0])->probes, 0);
    assert_int_equal(t->down_count, 0);
    assert_false(weft_ep_busy(t->ep[0]));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_chunk_and_its_done),
        TEST(test_bound_zero_survives_loss),
        TEST(test_masks_agree_and_bound_holds),
        TEST(test_no_memory_posted_is_loss_until_it_is),
        TEST(test_dead_peer_is_told),
        TEST(test_close_reaches_the_other_end),
        TEST(test_sender_deadline_is_short),
        TEST(test_hand_and_refuse),
        TEST(test_64_messages_then_again),
        TEST(test_idle_silences_the_other_end),
        TEST(test_deadline_towards_an_idle_peer),
        TEST(test_lost_finish_is_repeated_on_a_busy_connection),
        TEST(test_a_long_pause_of_ours_kills_nobody),
        TEST(test_a_full_table_forgets_the_silent),
        TEST(test_ring_goes_by_in_acknowledgements),
        TEST(test_a_ping_in_flight_arms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
