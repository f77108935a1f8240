/* Endpoints with a thread of their own: transfers, a full ring of events, refusals, stop at any
 * time. Runs under TSan. */
#include "base/bits.h"
#include "io/clock.h"
#include "io/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static const uint64_t LIMIT_NS = 120 * WEFT_NS_PER_S;

enum { COUNT = 20000, BURST = 24 };

static enum weft_driver_kind kind; /* driver of the current tests */

static int over_udp(void **state)
{
    (void)state;
    kind = WEFT_DRIVER_UDP;
    return 0;
}

static int over_tcp(void **state)
{
    (void)state;
    kind = WEFT_DRIVER_TCP;
    return 0;
}

static struct weft_engine *start(uint32_t events_max)
{
    struct weft_engine_config config;
    struct weft_engine *engine = NULL;
    struct weft_error error = {.text = ""};
    weft_engine_config_default(&config);
    config.driver.kind = kind;
    config.driver.udp.ep.peers_max = 4;
    config.driver.udp.ep.accept = 1;
    config.events_max = events_max;
    weft_status status = weft_engine_start(&config, &engine, &error);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), error.text);
    }
    return engine;
}

static weft_peer connect_engines(struct weft_engine *from, struct weft_engine *to)
{
    weft_peer peer;
    assert_int_equal(weft_engine_connect(from, "127.0.0.1", weft_engine_port(to), &peer, NULL),
                     WEFT_OK);
    return peer;
}

/* Wait for the next event of a type; skip others. */
static struct weft_msg_event await(struct weft_engine *engine, enum weft_msg_event_type type)
{
    struct weft_msgr msgr = weft_engine_msgr(engine);
    uint64_t end_ns = weft_clock_now_ns() + LIMIT_NS;
    struct weft_msg_event event;
    while (weft_clock_now_ns() < end_ns) {
        if (!weft_engine_wait(engine, LIMIT_NS)) {
            break;
        }
        assert_true(msgr.ops->poll(msgr.self, &event));
        if (event.type == type) {
            return event;
        }
    }
    fail_msg("no event of type %d", (int)type);
    return event;
}

static void send_floats(struct weft_engine *engine, weft_peer peer, const float *values,
                        uint64_t tag)
{
    struct weft_msgr msgr = weft_engine_msgr(engine);
    struct weft_msg_send send = {.peer = peer,
                                 .base = values,
                                 .total = COUNT,
                                 .elem_bytes = sizeof(float),
                                 .tag = tag,
                                 .deadline_ns = WEFT_NEVER,
                                 .user = tag};
    uint64_t seq = 0;
    assert_int_equal(msgr.ops->send(msgr.self, &send, 0, &seq), WEFT_OK);
    assert_int_not_equal(seq, 0);
}

static void expect_floats(struct weft_engine *engine, float *memory, uint64_t tag)
{
    struct weft_msgr msgr = weft_engine_msgr(engine);
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .tag = tag,
                                     .tag_mask = UINT64_MAX,
                                     .memory = memory,
                                     .memory_bytes = COUNT * sizeof(float),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER,
                                     .user = tag};
    weft_expect_id id;
    assert_int_equal(msgr.ops->expect(msgr.self, &expect, &id), WEFT_OK);
}

static float *numbers(float first)
{
    float *values = calloc(COUNT, sizeof(*values));
    assert_non_null(values);
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = first + (float)i;
    }
    return values;
}

static void start_and_stop(void **state)
{
    (void)state;
    struct weft_engine *engine = start(2);
    assert_int_not_equal(weft_engine_port(engine), 0);
    assert_false(weft_engine_wait(engine, WEFT_NS_PER_MS));
    weft_engine_stop(engine);
    weft_engine_stop(NULL);
}

static void read_counters(struct weft_driver *driver, void *counters)
{
    weft_driver_counters(driver, counters);
}

static void a_message_and_its_mask(void **state)
{
    (void)state;
    struct weft_engine *a = start(16);
    struct weft_engine *b = start(16);
    float *values = numbers(1);
    float *memory = calloc(COUNT, sizeof(*memory));
    weft_peer peer = connect_engines(a, b);
    assert_int_equal(await(a, WEFT_EVENT_PEER_UP).peer, peer);
    struct weft_msgr msgr = weft_engine_msgr(a);
    assert_true(msgr.ops->chunk_elems(msgr.self, peer, sizeof(float)) > 0);
    for (uint64_t tag = 1; tag <= 5; tag++) {
        expect_floats(b, memory, tag);
        send_floats(a, peer, values, tag);
        struct weft_msg_event event = await(b, WEFT_EVENT_RECEIVED);
        assert_int_equal(event.user, tag);
        assert_int_equal(event.outcome, WEFT_MSG_COMPLETE);
        assert_int_equal(weft_bits_count(event.mask, event.chunks), event.chunks);
        assert_memory_equal(memory, values, COUNT * sizeof(*memory));
        event = await(a, WEFT_EVENT_SENT);
        assert_int_equal(event.user, tag);
        assert_int_equal(event.received, event.chunks);
    }
    struct weft_driver_counters counters;
    weft_engine_call(a, read_counters, &counters);
    assert_int_equal(counters.ep.messages_sent, 5);
    uint32_t chunk_elems = kind == WEFT_DRIVER_TCP ? 16224 : 352;
    assert_true(counters.socket.datagrams_sent >= 5 * (COUNT / chunk_elems));
    weft_engine_stop(a);
    assert_int_equal(await(b, WEFT_EVENT_PEER_DOWN).down, WEFT_DOWN_CLOSED);
    weft_engine_stop(b);
    free(memory);
    free(values);
}

/* BURST messages close while a ring of two is not polled: the engine waits, still executes
 * commands, and afterwards delivers every event. */
static void full_ring_holds_the_engine_up(void **state)
{
    (void)state;
    struct weft_engine *a = start(64);
    struct weft_engine *b = start(2);
    float *values = numbers(7);
    float *memory = calloc((size_t)BURST * COUNT, sizeof(*memory));
    assert_non_null(memory);
    weft_peer peer = connect_engines(a, b);
    for (uint64_t tag = 0; tag < BURST; tag++) {
        expect_floats(b, memory + tag * COUNT, tag);
        send_floats(a, peer, values, tag);
    }
    uint64_t seen = 0;
    for (uint32_t i = 0; i < BURST; i++) {
        struct weft_msg_event event = await(b, WEFT_EVENT_RECEIVED);
        assert_int_equal(event.outcome, WEFT_MSG_COMPLETE);
        seen |= UINT64_C(1) << event.user;
    }
    assert_int_equal(seen, (UINT64_C(1) << BURST) - 1);
    for (uint32_t i = 0; i < BURST; i++) {
        assert_int_equal(await(a, WEFT_EVENT_SENT).outcome, WEFT_MSG_COMPLETE);
        assert_memory_equal(memory + (size_t)i * COUNT, values, COUNT * sizeof(*memory));
    }
    weft_engine_stop(a);
    weft_engine_stop(b);
    free(memory);
    free(values);
}

static void stop_in_the_middle(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct weft_engine *a = start(2);
        struct weft_engine *b = start(2);
        float *values = numbers(7);
        float *memory = calloc((size_t)BURST * COUNT, sizeof(*memory));
        assert_non_null(memory);
        weft_peer peer = connect_engines(a, b);
        for (uint64_t tag = 0; tag < BURST; tag++) {
            expect_floats(b, memory + tag * COUNT, tag);
            send_floats(a, peer, values, tag);
        }
        if (i % 2 == 0) {
            assert_true(weft_engine_wait(b, LIMIT_NS));
        }
        weft_engine_stop(i < 3 ? a : b);
        weft_engine_stop(i < 3 ? b : a);
        free(memory);
        free(values);
    }
}

static void refusals_come_through(void **state)
{
    (void)state;
    struct weft_engine *a = start(4);
    struct weft_msgr msgr = weft_engine_msgr(a);
    struct weft_error error;
    weft_peer peer;
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(weft_engine_connect(a, "192.0.2.1", 9, &peer, &error), WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "192.0.2.1"));
    struct weft_msg_expect by_event = {.peer = WEFT_PEER_ANY,
                                   .sink = WEFT_SINK_EVENT,
                                   .memory_bytes = 4,
                                   .count = 1,
                                   .timeout_ns = WEFT_NEVER};
    assert_int_equal(msgr.ops->expect(msgr.self, &by_event, &id), WEFT_UNSUPPORTED);
    float value = 1;
    struct weft_msg_send send = {
        .peer = 3, .base = &value, .total = 1, .elem_bytes = 4, .deadline_ns = WEFT_NEVER};
    assert_int_equal(msgr.ops->send(msgr.self, &send, 0, &seq), WEFT_PEER);
    assert_int_equal(msgr.ops->cancel(msgr.self, 12345), WEFT_NOTFOUND);
    weft_engine_stop(a);

    struct weft_engine_config config;
    struct weft_engine *none = NULL;
    weft_engine_config_default(&config);
    config.driver.kind = kind;
    config.events_max = 3;
    assert_int_equal(weft_engine_start(&config, &none, &error), WEFT_INVALID);
    config.events_max = 4;
    config.driver.udp.host = "10.0.0.1";
    assert_int_equal(weft_engine_start(&config, &none, &error), WEFT_UNSUPPORTED);
    assert_null(none);
}

#define BOTH(f)                                                                                   \
    {.name = #f, .test_func = f, .setup_func = over_udp},                                         \
    {                                                                                             \
        .name = #f " over TCP", .test_func = f, .setup_func = over_tcp                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(start_and_stop),     BOTH(a_message_and_its_mask), BOTH(full_ring_holds_the_engine_up),
        BOTH(stop_in_the_middle), BOTH(refusals_come_through),
    };
    return cmocka_run_group_tests_name("io engine", tests, NULL, NULL);
}
