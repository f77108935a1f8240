/* The contract of a messenger (core/msg.h), tested with the same cases over weft's UDP and over
 * TCP; the first cases run in every security mode. */
#include "driver_pair.h"
#include "free_port.h"
#include "wire/tcp_record.h"

struct pair {
    struct node a; /* connects and sends */
    struct node b;
    weft_peer peer;
};

static void pair_open(struct pair *pair, void **state)
{
    const struct variant *v = *state;
    struct weft_driver_config config = node_config(v, 1);
    node_open(&pair->a, &config);
    config = node_config(v, 2);
    node_open(&pair->b, &config);
    pair->peer = node_connect(&pair->a, &pair->b);
    assert_int_equal(nodes_await(&pair->a, &pair->b, WEFT_EVENT_PEER_UP, 0)->e.name, 2);
    assert_int_equal(nodes_await(&pair->b, &pair->a, WEFT_EVENT_PEER_UP, 0)->e.name, 1);
}

static void pair_close(struct pair *pair)
{
    node_close(&pair->a);
    node_close(&pair->b);
}

static void whole(const struct node_event *ev)
{
    assert_int_equal(ev->e.outcome, WEFT_MSG_COMPLETE);
    assert_int_equal(ev->e.received, ev->e.chunks);
    assert_int_equal(weft_bits_count(ev->mask, ev->e.chunks), ev->e.chunks);
}

/* One message of `count` floats into COPY memory. */
static void copies(struct pair *pair, uint32_t count, uint64_t user)
{
    float *sent = ramp(count, 1.0F);
    float *got = calloc(count, sizeof(float));
    node_expect(&pair->b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = user,
                                                   .memory = got, .memory_bytes = count * 4,
                                                   .user = user + 1});
    node_send(&pair->a, (struct weft_msg_send){.peer = pair->peer, .base = sent, .total = count,
                                               .tag = user, .user = user});
    const struct node_event *s = nodes_await(&pair->a, &pair->b, WEFT_EVENT_SENT, user);
    const struct node_event *r = nodes_await(&pair->b, &pair->a, WEFT_EVENT_RECEIVED, user + 1);
    whole(s);
    whole(r);
    assert_int_equal(r->e.tag, user);
    assert_int_equal(r->e.total, count);
    assert_int_equal(r->e.elem_bytes, 4);
    assert_int_equal(r->e.seq, s->e.seq);
    assert_memory_equal(sent, got, count * sizeof(float));
    const struct node_event *open = node_find(&pair->b, WEFT_EVENT_OPEN, user + 1);
    assert_non_null(open);
    assert_true(open < r);
    free(sent);
    free(got);
}

static void test_copy(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    copies(&pair, 1, 10);
    copies(&pair, 16234, 20);   /* one TCP chunk and a bit */
    copies(&pair, 1000003, 30); /* 4 MB, a last chunk of odd length */
    pair_close(&pair);
}

static void test_both_ways(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    struct pair back = {.a = pair.b, .b = pair.a};
    back.peer = node_find(&pair.b, WEFT_EVENT_PEER_UP, 0)->e.peer;
    copies(&back, 50000, 10);
    pair.a = back.b;
    pair.b = back.a;
    copies(&pair, 50000, 20);
    pair_close(&pair);
}

static void count_call(void *arg)
{
    ++*(uint32_t *)arg;
}

/* The hook is called before its messages can reach the other end: each message of b has a call
 * after its send, and before the message arrives. */
static void test_before_send(void **state)
{
    const struct variant *v = *state;
    uint32_t calls = 0;
    struct pair pair, back;
    struct weft_driver_config config = node_config(v, 1);
    node_open(&pair.a, &config);
    config = node_config(v, 2);
    config.udp.before_send = (struct weft_before_send){.call = count_call, .arg = &calls};
    node_open(&pair.b, &config);
    pair.peer = node_connect(&pair.a, &pair.b);
    assert_int_equal(nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_UP, 0)->e.name, 2);
    assert_int_equal(nodes_await(&pair.b, &pair.a, WEFT_EVENT_PEER_UP, 0)->e.name, 1);
    back = (struct pair){.a = pair.b, .b = pair.a};
    back.peer = node_find(&pair.b, WEFT_EVENT_PEER_UP, 0)->e.peer;
    for (uint64_t i = 0; i < 20; i++) {
        uint32_t before = calls;
        copies(&back, 100, 10 + 2 * i);
        assert_true(calls > before);
    }
    pair_close(&back);
}

static void test_add(void **state)
{
    enum { COUNT = 100001, TIMES = 3 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    float *sum = calloc(COUNT, sizeof(float));
    for (uint64_t i = 0; i < TIMES; i++) {
        node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_ADD, .tag = 1,
                                                      .memory = sum, .memory_bytes = COUNT * 4,
                                                      .user = i});
        node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                                  .tag = 1, .user = i});
    }
    for (uint64_t i = 0; i < TIMES; i++) {
        whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, i));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(sum[i] == TIMES * sent[i]);
    }
    free(sent);
    free(sum);
    pair_close(&pair);
}

static void test_hand(void **state)
{
    enum { COUNT = 200000 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    pair.b.by_event = calloc(COUNT, sizeof(float));
    pair.b.refuse_every = 3;
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_EVENT, .tag = 5,
                                                  .memory_bytes = UINT64_MAX, .count = 2,
                                                  .user = 7});
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .tag = 5, .user = 1, .critical = 1});
    const struct node_event *s = nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 1);
    whole(s);
    assert_int_equal(s->e.refused, s->e.chunks / 3);
    assert_int_equal(pair.b.chunks, s->e.chunks);
    assert_memory_equal(sent, pair.b.by_event, COUNT * sizeof(float));
    /* The expectation accepts a second message. */
    pair.b.refuse_every = 0;
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = 1,
                                              .tag = 5, .user = 2});
    whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 2));
    free(pair.b.by_event);
    free(sent);
    pair_close(&pair);
}

/* The caller chooses the chunk layout. */
static void test_own_grid(void **state)
{
    enum { COUNT = 10000 };
    struct pair pair;
    pair_open(&pair, state);
    uint32_t most = pair.a.msgr.ops->chunk_elems(pair.a.msgr.self, pair.peer, 12);
    assert_true(most >= 32 && most % 32 == 0);
    assert_true((uint64_t)most * 12 <= UINT16_MAX);
    assert_int_equal(pair.a.msgr.ops->chunk_elems(pair.a.msgr.self, pair.peer, UINT16_MAX), 0);
    uint8_t *sent = calloc(COUNT, 12);
    uint8_t *got = calloc(COUNT, 12);
    memset(sent, 0x5a, COUNT * 12);
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 1, .memory = got,
                                                  .memory_bytes = COUNT * 12, .user = 1});
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .elem_bytes = 12, .chunk_elems = 33, .tag = 1,
                                              .user = 1});
    const struct node_event *r = nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, 1);
    assert_int_equal(r->e.chunk_elems, 33);
    assert_int_equal(r->e.chunks, (COUNT + 32) / 33);
    assert_memory_equal(sent, got, COUNT * 12);
    free(sent);
    free(got);
    pair_close(&pair);
}

/* A message without memory blocks no other message, and arrives exactly once after memory is
 * posted. */
static void test_memory_comes_late(void **state)
{
    enum { COUNT = 300000 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    float *sum = calloc(COUNT, sizeof(float));
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .tag = 1, .user = 1});
    copies(&pair, 100, 50);
    copies(&pair, 100000, 60);
    assert_null(node_find(&pair.a, WEFT_EVENT_SENT, 1));
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_ADD, .tag = 1, .memory = sum,
                                                  .memory_bytes = COUNT * 4, .user = 1});
    whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 1));
    whole(nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, 1));
    nodes_run(&pair.a, &pair.b, 5 * WEFT_NS_PER_MS);
    assert_memory_equal(sum, sent, COUNT * sizeof(float));
    free(sent);
    free(sum);
    pair_close(&pair);
}

/* Memory is posted when a part of the message was dropped and more of it is in flight: chunks in
 * flight count, resent chunks do not count twice. */
static void test_memory_comes_in_between(void **state)
{
    enum { COUNT = 6 << 20 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    float *sum = calloc(COUNT, sizeof(float));
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .tag = 1, .user = 1});
    nodes_run(&pair.a, NULL, 10 * WEFT_NS_PER_MS);
    (void)weft_driver_step(pair.b.driver, WEFT_NS_PER_MS, node_handle, &pair.b);
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_ADD, .tag = 1, .memory = sum,
                                                  .memory_bytes = (uint64_t)COUNT * 4,
                                                  .user = 1});
    whole(nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, 1));
    whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 1));
    nodes_run(&pair.a, &pair.b, 5 * WEFT_NS_PER_MS);
    assert_memory_equal(sum, sent, COUNT * sizeof(float));
    free(sent);
    free(sum);
    pair_close(&pair);
}

/* All messages of the window, none with memory; one more is refused. Then all arrive. */
static void test_window(void **state)
{
    enum { COUNT = 500 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    float *got = calloc((size_t)COUNT * WEFT_MSGS_MAX, sizeof(float));
    for (uint64_t i = 0; i < WEFT_MSGS_MAX; i++) {
        node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                                  .tag = i, .user = i});
    }
    struct weft_msg_send more = {.peer = pair.peer, .base = sent, .total = 1, .tag = 99};
    assert_int_equal(node_try_send(&pair.a, more), WEFT_AGAIN);
    nodes_run(&pair.a, &pair.b, 10 * WEFT_NS_PER_MS);
    for (uint64_t i = WEFT_MSGS_MAX; i > 0; i--) { /* newest first */
        node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = i - 1,
                                                      .memory = got + COUNT * (i - 1),
                                                      .memory_bytes = COUNT * 4, .user = i - 1});
        whole(nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, i - 1));
    }
    for (uint64_t i = 0; i < WEFT_MSGS_MAX; i++) {
        whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, i));
        assert_memory_equal(got + COUNT * i, sent, COUNT * 4);
    }
    copies(&pair, 10, 100);
    free(sent);
    free(got);
    pair_close(&pair);
}

/* More messages than sequence numbers of a window, many times over. */
static void test_many(void **state)
{
    enum { MESSAGES = 500 };
    struct pair pair;
    pair_open(&pair, state);
    float value = 3.0F;
    float sum = 0.0F;
    uint32_t begun = 0;
    uint64_t end_ns = weft_clock_now_ns() + node_limit_ns;
    while (node_count(&pair.a, WEFT_EVENT_SENT) < MESSAGES && weft_clock_now_ns() < end_ns) {
        while (begun < MESSAGES && begun - node_count(&pair.a, WEFT_EVENT_SENT) < WEFT_MSGS_MAX) {
            node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_ADD, .tag = 1,
                                                          .memory = &sum, .memory_bytes = 4});
            node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = &value,
                                                      .total = 1, .tag = 1});
            begun++;
        }
        nodes_turn(&pair.a, &pair.b);
    }
    assert_int_equal(node_count(&pair.a, WEFT_EVENT_SENT), MESSAGES);
    assert_int_equal(node_count(&pair.b, WEFT_EVENT_RECEIVED), MESSAGES);
    assert_true(sum == MESSAGES * value);
    pair_close(&pair);
}

/* Without posted memory the sender's deadline ends the message, and both ends report that nothing
 * arrived. */
static void test_deadline_without_memory(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(5000, 1.0F);
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = 5000,
                                              .tag = 1, .user = 1,
                                              .deadline_ns =
                                                  weft_clock_now_ns() + 20 * WEFT_NS_PER_MS});
    const struct node_event *s = nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 1);
    assert_int_equal(s->e.outcome, WEFT_MSG_SHORT);
    assert_int_equal(s->e.received, 0);
    assert_int_equal(weft_bits_count(s->mask, s->e.chunks), 0);
    assert_int_equal(node_count(&pair.b, WEFT_EVENT_RECEIVED), 0);
    copies(&pair, 1000, 10); /* the connection continues */
    free(sent);
    pair_close(&pair);
}

struct cut {
    bool sender;   /* the sender's deadline ends the message */
    bool receiver; /* the receiver's timeout ends it */
    uint32_t bound_ppm;
    const uint64_t *critical_mask;
    enum weft_msg_outcome outcome;
};

static void check_cut(struct pair *pair, const struct cut *cut, const float *sum, uint32_t count)
{
    const struct node_event *r = nodes_await(&pair->b, &pair->a, WEFT_EVENT_RECEIVED, 1);
    const struct node_event *s = nodes_await(&pair->a, &pair->b, WEFT_EVENT_SENT, 1);
    assert_int_equal(s->e.outcome, cut->outcome);
    assert_int_equal(r->e.outcome, cut->outcome);
    assert_true(r->e.received > 0);
    assert_true(r->e.received < r->e.chunks);
    assert_int_equal(s->e.received, r->e.received);
    assert_int_equal(weft_bits_count(r->mask, r->e.chunks), r->e.received);
    assert_memory_equal(s->mask, r->mask, WEFT_BITS_WORDS((size_t)r->e.chunks) * 8);
    nodes_run(&pair->a, &pair->b, 20 * WEFT_NS_PER_MS); /* late chunks, if any */
    for (uint32_t i = 0; i < count; i++) {
        bool there = weft_bits_test(r->mask, i / r->e.chunk_elems);
        assert_true(sum[i] == (there ? 1.0F + (float)(i % 4096) : 0.0F));
    }
}

/* The receiver stops reading for a while. A deadline of one end after `span_ns` ends the message,
 * and both ends have the same mask. False: the deadline passed before any chunk arrived. */
static bool cut_after(void **state, const struct cut *cut, uint64_t span_ns)
{
    enum { COUNT = 6 << 20 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = ramp(COUNT, 1.0F);
    pair.a.scribble = sent;
    pair.a.scribble_bytes = COUNT * sizeof(float);
    float *sum = calloc(COUNT, sizeof(float));
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_ADD, .tag = 1, .memory = sum,
                                                  .memory_bytes = (uint64_t)COUNT * 4, .user = 1,
                                                  .timeout_ns = cut->receiver ? span_ns : 0});
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), span_ns);
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .tag = 1, .user = 1, .bound_ppm = cut->bound_ppm,
                                              .critical_mask = cut->critical_mask,
                                              .deadline_ns = cut->sender ? end_ns : 0});
    while (node_find(&pair.b, WEFT_EVENT_OPEN, 1) == NULL &&
           node_find(&pair.a, WEFT_EVENT_SENT, 1) == NULL) {
        nodes_turn(&pair.a, &pair.b);
    }
    bool opened = node_find(&pair.b, WEFT_EVENT_OPEN, 1) != NULL;
    if (opened) {
        nodes_run(&pair.a, NULL, 2 * span_ns); /* fills the buffers in between */
        check_cut(&pair, cut, sum, COUNT);
        pair.a.scribble = NULL;
        copies(&pair, 1000, 10);
    }
    free(sent);
    free(sum);
    pair_close(&pair);
    return opened;
}

/* If the machine is suspended, repeat with more time. */
static void cut(void **state, struct cut cut)
{
    uint64_t span_ns = 20 * WEFT_NS_PER_MS;
    while (!cut_after(state, &cut, span_ns)) {
        span_ns = weft_min_u64(2 * span_ns, 10 * WEFT_NS_PER_S);
    }
}

static void test_cut_by_sender(void **state)
{
    cut(state, (struct cut){.sender = true, .outcome = WEFT_MSG_SHORT});
}

static void test_cut_by_receiver(void **state)
{
    cut(state, (struct cut){.receiver = true, .bound_ppm = 1, .outcome = WEFT_MSG_SHORT});
}

/* Less than all, but within the bound. */
static void test_cut_within_bound(void **state)
{
    cut(state, (struct cut){.sender = true, .receiver = true, .bound_ppm = 999999,
                            .outcome = WEFT_MSG_COMPLETE});
}

/* The number of missing chunks is within the bound, but a critical chunk is missing (over TCP the
 * last chunk is sent last). */
static void test_cut_critical(void **state)
{
    static uint64_t last[NODE_MASK_WORDS];
    uint32_t chunks =
        (uint32_t)weft_div_ceil_u64(6 << 20, WEFT_WIRE_RECORD_CHUNK_MAX / 4 / 32 * 32);
    weft_bits_set(last, chunks - 1);
    cut(state, (struct cut){.receiver = true, .bound_ppm = 999999, .critical_mask = last,
                            .outcome = WEFT_MSG_SHORT});
}

/* An urgent message overtakes a big one that was queued before it. */
static void test_priority(void **state)
{
    enum { COUNT = 8 << 20 };
    struct pair pair;
    pair_open(&pair, state);
    float *sent = calloc(COUNT, sizeof(float));
    float *got = calloc(COUNT, sizeof(float));
    float small = 0.0F;
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 1, .memory = got,
                                                  .memory_bytes = (uint64_t)COUNT * 4, .user = 1});
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 2,
                                                  .memory = &small, .memory_bytes = 4,
                                                  .user = 2});
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = COUNT,
                                              .tag = 1, .user = 1, .priority = 7});
    while (node_find(&pair.b, WEFT_EVENT_OPEN, 1) == NULL) {
        nodes_turn(&pair.a, &pair.b);
    }
    assert_null(node_find(&pair.a, WEFT_EVENT_SENT, 1));
    float value = 9.0F;
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = &value, .total = 1,
                                              .tag = 2, .user = 2, .priority = 0});
    const struct node_event *r = nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, 2);
    assert_null(node_find(&pair.b, WEFT_EVENT_RECEIVED, 1));
    assert_true(small == 9.0F);
    assert_int_equal(r->e.outcome, WEFT_MSG_COMPLETE);
    whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 1));
    free(sent);
    free(got);
    pair_close(&pair);
}

static void test_cancel_and_fit(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    float small[10];
    float large[100];
    struct weft_msg_expect expect = {.sink = WEFT_SINK_COPY, .tag = 1, .memory = small,
                                     .memory_bytes = sizeof(small), .user = 1};
    node_expect(&pair.b, expect);
    weft_expect_id id = node_expect(&pair.b, expect);
    assert_int_equal(pair.b.msgr.ops->cancel(pair.b.msgr.self, id), WEFT_OK);
    assert_int_equal(pair.b.msgr.ops->cancel(pair.b.msgr.self, id), WEFT_NOTFOUND);
    float *sent = ramp(100, 1.0F);
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = sent, .total = 100,
                                              .tag = 1, .user = 3});
    nodes_run(&pair.a, &pair.b, 10 * WEFT_NS_PER_MS);
    assert_int_equal(node_count(&pair.b, WEFT_EVENT_OPEN), 0); /* does not fit */
    expect.memory = large;
    expect.memory_bytes = sizeof(large);
    expect.user = 2;
    node_expect(&pair.b, expect);
    whole(nodes_await(&pair.b, &pair.a, WEFT_EVENT_RECEIVED, 2));
    assert_memory_equal(large, sent, sizeof(large));
    free(sent);
    pair_close(&pair);
}

static void test_refused_arguments(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    float x[2] = {0};
    uint64_t seq;
    weft_expect_id id;
    struct weft_msg_send good = {.peer = pair.peer, .base = x, .total = 1, .elem_bytes = 4,
                                 .deadline_ns = WEFT_NEVER};
    struct weft_msg_send s = good;
    const struct weft_msg_ops *ops = pair.a.msgr.ops;
    void *self = pair.a.msgr.self;
#define REFUSED(field, value)                                                                     \
    s = good;                                                                                     \
    s.field = value;                                                                              \
    assert_int_equal(ops->send(self, &s, 1, &seq), WEFT_INVALID)
    REFUSED(total, 0);
    REFUSED(base, NULL);
    REFUSED(elem_bytes, 0);
    REFUSED(elem_bytes, UINT16_MAX);
    REFUSED(priority, 8);
    REFUSED(bound_ppm, WEFT_PPM);
    REFUSED(critical, 255);
    REFUSED(chunk_elems, UINT16_MAX);
    REFUSED(total, UINT32_MAX);
    s = good;
    s.peer = 3;
    assert_int_equal(ops->send(self, &s, 1, &seq), WEFT_PEER);
    s.peer = WEFT_PEER_ANY;
    assert_int_equal(ops->send(self, &s, 1, &seq), WEFT_PEER);
    struct weft_msg_expect e = {.sink = WEFT_SINK_COPY, .count = 1};
    assert_int_equal(ops->expect(self, &e, &id), WEFT_INVALID); /* no memory */
    e = (struct weft_msg_expect){.sink = WEFT_SINK_EVENT, .count = 1, .tag = 2, .tag_mask = 1};
    assert_int_equal(ops->expect(self, &e, &id), WEFT_INVALID);
    pair_close(&pair);
}

/* The other end closes: unconfirmed messages are UNKNOWN, partly received ones SHORT. */
static void test_closed(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    float x[4] = {1, 2, 3, 4};
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = x, .total = 4,
                                              .tag = 77, .user = 5});
    nodes_run(&pair.a, &pair.b, 5 * WEFT_NS_PER_MS);
    weft_driver_close(pair.b.driver); /* sends CLOSE, and waits at most 50 ms for an answer */
    pair.b.driver = NULL;
    const struct node_event *s = nodes_await(&pair.a, NULL, WEFT_EVENT_SENT, 5);
    const struct node_event *down = nodes_await(&pair.a, NULL, WEFT_EVENT_PEER_DOWN, 0);
    assert_int_equal(s->e.outcome, WEFT_MSG_UNKNOWN);
    assert_int_equal(s->e.received, 0);
    assert_true(s < down);
    assert_int_equal(down->e.down, WEFT_DOWN_CLOSED);
    assert_int_equal(down->e.peer, pair.peer);
    assert_int_equal(down->e.name, 2);
    struct weft_msg_send again = {.peer = pair.peer, .base = x, .total = 4};
    assert_int_equal(node_try_send(&pair.a, again), WEFT_PEER);
    pair_close(&pair);
}

/* It restarts at the same port: a new connection works as the first one did. */
static void test_restarted(void **state)
{
    struct pair pair;
    uint16_t port = free_port();
    struct weft_driver_config config = node_config(*state, 1);
    node_open(&pair.a, &config);
    for (int life = 0; life < 2; life++) {
        config = node_config(*state, 2);
        config.udp.port = port;
        node_open(&pair.b, &config);
        assert_int_equal(weft_driver_port(pair.b.driver), port);
        pair.a.count = 0;
        pair.peer = node_connect(&pair.a, &pair.b);
        nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_UP, 0);
        copies(&pair, 5000, 10);
        node_close(&pair.b);
        nodes_await(&pair.a, NULL, WEFT_EVENT_PEER_DOWN, 0);
    }
    node_close(&pair.a);
}

/* No peer: retried until the peer timeout. A peer that starts late is found. */
static void test_nobody_there(void **state)
{
    struct node a;
    struct node b;
    uint16_t port = free_port();
    struct weft_driver_config config = node_config(*state, 1);
    config.udp.ep.peer_timeout_ns = 400 * WEFT_NS_PER_MS;
    node_open(&a, &config);
    weft_peer peer;
    assert_int_equal(weft_driver_connect(a.driver, "127.0.0.1", port, &peer, NULL), WEFT_OK);
    float x = 1.0F; /* messages may be sent at once */
    node_send(&a, (struct weft_msg_send){.peer = peer, .base = &x, .total = 1, .user = 3});
    assert_int_equal(nodes_await(&a, NULL, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_SILENT);
    assert_int_equal(node_find(&a, WEFT_EVENT_SENT, 3)->e.outcome, WEFT_MSG_UNKNOWN);
    char why[WEFT_UNREACHED_BYTES];
    weft_driver_unreached(a.driver, why);
    assert_non_null(strstr(why, "nothing listens at 127.0.0.1:"));
    node_close(&a);
    config = node_config(*state, 1); /* with the longest timeout */
    node_open(&a, &config);
    assert_int_equal(weft_driver_connect(a.driver, "127.0.0.1", port, &peer, NULL), WEFT_OK);
    node_send(&a, (struct weft_msg_send){.peer = peer, .base = &x, .total = 1, .user = 4});
    nodes_run(&a, NULL, 50 * WEFT_NS_PER_MS);
    config = node_config(*state, 2);
    config.udp.port = port;
    node_open(&b, &config);
    float y = 0.0F;
    node_expect(&b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .memory = &y,
                                             .memory_bytes = 4});
    whole(nodes_await(&a, &b, WEFT_EVENT_SENT, 4));
    weft_driver_unreached(a.driver, why);
    assert_string_equal(why, "");
    assert_true(y == 1.0F);
    node_close(&a);
    node_close(&b);
}

/* Both ends connect to each other at the same time: both connections work. */
static void test_call_each_other(void **state)
{
    struct pair pair;
    struct weft_driver_config config = node_config(*state, 1);
    node_open(&pair.a, &config);
    config = node_config(*state, 2);
    node_open(&pair.b, &config);
    pair.peer = node_connect(&pair.a, &pair.b);
    weft_peer back = node_connect(&pair.b, &pair.a);
    nodes_run(&pair.a, &pair.b, 50 * WEFT_NS_PER_MS);
    assert_int_equal(node_count(&pair.a, WEFT_EVENT_PEER_DOWN), 0);
    assert_int_equal(node_count(&pair.b, WEFT_EVENT_PEER_DOWN), 0);
    copies(&pair, 3000, 10);
    struct pair other = {.a = pair.b, .b = pair.a, .peer = back};
    copies(&other, 3000, 20);
    pair.a = other.b;
    pair.b = other.a;
    pair_close(&pair);
}

/* A peer that stops progressing with something outstanding is declared dead after the peer timeout.
 * A peer that sent IDLE may be silent without limit. */
static void test_silence_and_idle(void **state)
{
    struct pair pair;
    struct weft_driver_config config = node_config(*state, 1);
    config.udp.ep.peer_timeout_ns = WEFT_NS_PER_S;
    node_open(&pair.a, &config);
    config = node_config(*state, 2);
    node_open(&pair.b, &config);
    pair.peer = node_connect(&pair.a, &pair.b);
    nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_UP, 0);
    copies(&pair, 100, 10);
    nodes_run(&pair.a, &pair.b, 10 * WEFT_NS_PER_MS);
    weft_driver_idle(pair.b.driver);
    nodes_run(&pair.a, NULL, 20 * WEFT_NS_PER_MS);
    float x = 1.0F;
    float y = 0.0F;
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = &x, .total = 1,
                                              .tag = 3, .user = 3});
    nodes_run(&pair.a, NULL, 1500 * WEFT_NS_PER_MS);
    assert_int_equal(node_count(&pair.a, WEFT_EVENT_PEER_DOWN), 0);
    node_expect(&pair.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 3, .memory = &y,
                                                  .memory_bytes = 4});
    float z = 2.0F; /* sending ends its idle state */
    node_send(&pair.b, (struct weft_msg_send){.peer = node_find(&pair.b, WEFT_EVENT_PEER_UP, 0)
                                                          ->e.peer,
                                              .base = &z, .total = 1, .tag = 99});
    whole(nodes_await(&pair.a, &pair.b, WEFT_EVENT_SENT, 3));
    node_send(&pair.a, (struct weft_msg_send){.peer = pair.peer, .base = &x, .total = 1,
                                              .tag = 4, .user = 4});
    const struct node_event *down = nodes_await(&pair.a, NULL, WEFT_EVENT_PEER_DOWN, 0);
    assert_int_equal(down->e.down, WEFT_DOWN_SILENT);
    assert_int_equal(node_find(&pair.a, WEFT_EVENT_SENT, 4)->e.outcome, WEFT_MSG_UNKNOWN);
    pair_close(&pair);
}

/* A refused peer is notified that the refusal is permanent. */
static void test_refused_for_good(void **state)
{
    struct pair pair;
    pair_open(&pair, state);
    weft_driver_refuse(pair.b.driver, node_find(&pair.b, WEFT_EVENT_PEER_UP, 0)->e.peer);
    assert_int_equal(nodes_await(&pair.b, &pair.a, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_LOCAL);
    const struct node_event *other = nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_DOWN, 0);
    assert_int_equal(other->e.down, WEFT_DOWN_REPLACED);
    assert_int_equal(other->e.close_code, WEFT_CLOSE_REPLACED);
    pair_close(&pair);
}

static void test_idle_timeout(void **state)
{
    struct pair pair;
    struct weft_driver_config config = node_config(*state, 1);
    config.udp.ep.idle_timeout_ns = 100 * WEFT_NS_PER_MS;
    node_open(&pair.a, &config);
    config = node_config(*state, 2);
    node_open(&pair.b, &config);
    pair.peer = node_connect(&pair.a, &pair.b);
    assert_int_equal(nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_IDLE);
    const struct node_event *other = nodes_await(&pair.b, &pair.a, WEFT_EVENT_PEER_DOWN, 0);
    assert_int_equal(other->e.down, WEFT_DOWN_CLOSED);
    assert_int_equal(other->e.close_code, WEFT_CLOSE_IDLE);
    pair_close(&pair);
}

static void refused(const struct variant *v, uint8_t other_key, uint8_t other_mode,
                    enum weft_ep_hint told, enum weft_ep_hint seen)
{
    struct pair pair;
    struct weft_driver_config config = node_config(v, 1);
    config.udp.ep.peer_timeout_ns = WEFT_NS_PER_S;
    memset(config.udp.ep.psk, other_key, sizeof(config.udp.ep.psk));
    config.udp.ep.mode = other_mode;
    node_open(&pair.a, &config);
    config = node_config(v, 2);
    node_open(&pair.b, &config);
    node_connect(&pair.a, &pair.b);
    assert_int_equal(nodes_await(&pair.a, &pair.b, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_SILENT);
    assert_int_equal(weft_driver_hint(pair.a.driver), told);
    assert_int_equal(weft_driver_hint(pair.b.driver), seen);
    assert_int_equal(node_count(&pair.a, WEFT_EVENT_PEER_UP), 0);
    assert_int_equal(node_count(&pair.b, WEFT_EVENT_PEER_UP), 0);
    pair_close(&pair);
}

static void test_wrong_key_and_mode(void **state)
{
    const struct variant *v = *state;
    refused(v, 8, v->mode, WEFT_HINT_TOLD_KEY, WEFT_HINT_KEY);
    refused(v, 7, WEFT_MODE_NONE, WEFT_HINT_TOLD_MODE, WEFT_HINT_MODE);
}

/* A higher mode than configured is accepted. */
static void test_higher_mode(void **state)
{
    struct pair pair;
    struct weft_driver_config config = node_config(*state, 1);
    config.udp.ep.mode = WEFT_MODE_SEAL;
    node_open(&pair.a, &config);
    config = node_config(*state, 2);
    node_open(&pair.b, &config);
    pair.peer = node_connect(&pair.a, &pair.b);
    copies(&pair, 20000, 10);
    pair_close(&pair);
}

static void test_table_full(void **state)
{
    struct node b;
    struct node callers[3];
    struct weft_driver_config config = node_config(*state, 2);
    config.udp.ep.peers_max = 2;
    node_open(&b, &config);
    for (uint32_t i = 0; i < 3; i++) {
        config = node_config(*state, 10 + i);
        if (i == 2) { /* the one that is refused */
            config.udp.ep.peer_timeout_ns = WEFT_NS_PER_S;
        }
        node_open(&callers[i], &config);
        node_connect(&callers[i], &b);
        enum weft_msg_event_type type = i < 2 ? WEFT_EVENT_PEER_UP : WEFT_EVENT_PEER_DOWN;
        nodes_await(&callers[i], &b, type, 0);
    }
    assert_int_equal(weft_driver_hint(callers[2].driver), WEFT_HINT_TOLD_FULL);
    assert_int_equal(node_count(&b, WEFT_EVENT_PEER_UP), 2);
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&callers[i]);
    }
    node_close(&b);
}

/* Keys are replaced many times in both directions, in the middle of messages. */
static void test_rekey(void **state)
{
    struct pair pair;
    for (uint64_t i = 0; i < 2; i++) {
        struct weft_driver_config config = node_config(*state, 1 + i);
        config.udp.ep.rekey_packets = 10;
        node_open(i == 0 ? &pair.a : &pair.b, &config);
    }
    pair.peer = node_connect(&pair.a, &pair.b);
    copies(&pair, 1000000, 10);
    struct weft_driver_counters counters;
    weft_driver_counters(pair.a.driver, &counters);
    assert_true(counters.ep.rekeys >= 5);
    assert_int_equal(counters.ep.bad_tag, 0);
    pair_close(&pair);
}

static void test_words(void **state)
{
    const struct variant *v = *state;
    struct weft_error error;
    struct weft_driver *driver = NULL;
    struct weft_driver_config config = node_config(v, 1);
    config.udp.ep.mode = WEFT_MODE_NONE;
    config.udp.host = "0.0.0.0";
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--insecure-network"));
    config.udp.host = "server";
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_INVALID);
    assert_non_null(strstr(error.text, "not a numeric"));
    struct pair pair;
    pair_open(&pair, state);
    config = node_config(v, 1);
    config.udp.ep.mode = WEFT_MODE_NONE;
    config.udp.port = weft_driver_port(pair.b.driver);
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_EXISTS);
    assert_non_null(strstr(error.text, "in use"));
    weft_peer peer;
    assert_int_equal(weft_driver_connect(pair.a.driver, "::1", 1, &peer, &error), WEFT_INVALID);
    assert_int_equal(weft_driver_connect(pair.a.driver, "127.0.0.1", 0, &peer, &error),
                     WEFT_INVALID);
    assert_true(weft_driver_srtt_ns(pair.a.driver, pair.peer) > 0);
    assert_int_equal(weft_driver_srtt_ns(pair.a.driver, 3), 0);
    assert_int_equal(weft_driver_kind(pair.a.driver), v->kind);
    pair_close(&pair);
}

#define VARIANT(id, word, k, m) static struct variant id = {word, k, m}
VARIANT(udp_none, "udp none", WEFT_DRIVER_UDP, WEFT_MODE_NONE);
VARIANT(udp_auth, "udp auth", WEFT_DRIVER_UDP, WEFT_MODE_AUTH);
VARIANT(udp_seal, "udp seal", WEFT_DRIVER_UDP, WEFT_MODE_SEAL);
VARIANT(tcp_none, "tcp none", WEFT_DRIVER_TCP, WEFT_MODE_NONE);
VARIANT(tcp_auth, "tcp auth", WEFT_DRIVER_TCP, WEFT_MODE_AUTH);
VARIANT(tcp_seal, "tcp seal", WEFT_DRIVER_TCP, WEFT_MODE_SEAL);

#define CASE(f, id) {.name = #f " " #id, .test_func = f, .initial_state = &id}
#define BOTH(f) CASE(f, udp_auth), CASE(f, tcp_auth)
#define ALL(f)                                                                                    \
    CASE(f, udp_none), CASE(f, udp_auth), CASE(f, udp_seal), CASE(f, tcp_none), CASE(f, tcp_auth), \
        CASE(f, tcp_seal)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(test_copy),
        ALL(test_hand),
        ALL(test_memory_comes_late),
        BOTH(test_both_ways),
        BOTH(test_before_send),
        BOTH(test_add),
        BOTH(test_own_grid),
        BOTH(test_window),
        BOTH(test_many),
        BOTH(test_deadline_without_memory),
        BOTH(test_cut_by_sender),
        BOTH(test_cut_by_receiver),
        CASE(test_cut_by_receiver, tcp_seal),
        BOTH(test_cut_within_bound),
        CASE(test_cut_critical, tcp_auth),
        BOTH(test_memory_comes_in_between),
        BOTH(test_priority),
        BOTH(test_cancel_and_fit),
        BOTH(test_refused_arguments),
        BOTH(test_closed),
        BOTH(test_restarted),
        BOTH(test_nobody_there),
        BOTH(test_call_each_other),
        BOTH(test_silence_and_idle),
        BOTH(test_refused_for_good),
        BOTH(test_idle_timeout),
        BOTH(test_wrong_key_and_mode),
        BOTH(test_higher_mode),
        BOTH(test_table_full),
        CASE(test_rekey, tcp_auth),
        CASE(test_rekey, tcp_seal),
        BOTH(test_words),
    };
    return cmocka_run_group_tests_name("io_driver", tests, NULL, NULL);
}
