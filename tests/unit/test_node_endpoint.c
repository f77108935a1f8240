/* One endpoint, over UDP and TCP, progressed by the caller and by a thread: the same calls have the
 * same effects. */
#include "free_port.h"
#include "io/clock.h"
#include "node/endpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

static const uint64_t limit_ns = 60 * WEFT_NS_PER_S;
static const uint8_t key_a[WEFT_PSK_BYTES] = {1};
static const uint8_t key_b[WEFT_PSK_BYTES] = {2};

struct seen {
    struct weft_endpoint *endpoint;
    uint32_t up;
    uint32_t down;
    uint32_t sent;
    uint32_t received;
};

static void handle(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct seen *seen = arg;
    struct weft_msgr msgr = seen->endpoint->msgr;
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        seen->up += event.type == WEFT_EVENT_PEER_UP;
        seen->down += event.type == WEFT_EVENT_PEER_DOWN;
        seen->sent += event.type == WEFT_EVENT_SENT;
        seen->received += event.type == WEFT_EVENT_RECEIVED;
    }
}

/* Step both until *count is wanted. */
static void step_until(struct seen *a, struct seen *b, const uint32_t *count, uint32_t wanted)
{
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (*count != wanted) {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_endpoint_step(a->endpoint, WEFT_NS_PER_MS, handle, a);
        weft_endpoint_step(b->endpoint, WEFT_NS_PER_MS, handle, b);
    }
}

static struct weft_security security_of(const uint8_t *key)
{
    struct weft_security security = {.mode = WEFT_MODE_AUTH, .key_bytes = key,
                                     .keep_variable = true};
    struct weft_error error;
    assert_int_equal(weft_security_load(&security, false, &error), WEFT_OK);
    return security;
}

static void open_one(struct weft_endpoint *endpoint_p, const struct weft_security *security,
                     enum weft_driver_kind kind, bool thread, bool accept)
{
    struct weft_endpoint_config config;
    struct weft_error error = {.text = ""};
    weft_endpoint_config_default(&config);
    config.security = security;
    config.thread = thread;
    config.events_max = 100;
    config.driver.kind = kind;
    config.driver.udp.ep.accept = accept;
    config.driver.udp.ep.peers_max = 4;
    config.driver.udp.ep.expects_max = 4;
    if (weft_endpoint_open(&config, endpoint_p, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_true(weft_endpoint_has_thread(endpoint_p) == thread);
}

static void transfer(enum weft_driver_kind kind, bool thread)
{
    struct weft_security security = security_of(key_a);
    struct weft_endpoint a, b;
    struct weft_error error = {.text = ""};
    struct weft_driver_counters counters;
    struct weft_ep_gauges gauges;
    weft_peer peer;
    uint64_t seq;
    weft_expect_id id;
    open_one(&a, &security, kind, thread, false);
    open_one(&b, &security, kind, thread, true);
    weft_security_fini(&security); /* an open endpoint no longer needs it */
    struct seen at_a = {.endpoint = &a}, at_b = {.endpoint = &b};
    assert_int_equal(weft_endpoint_connect(&a, "127.0.0.1", weft_endpoint_port(&b), &peer, &error),
                     WEFT_OK);
    step_until(&at_a, &at_b, &at_a.up, 1);

    static float sent[1000], memory[1000];
    sent[999] = 4.5F;
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY, .sink = WEFT_SINK_COPY, .tag = 3,
                                           .tag_mask = UINT64_MAX, .memory = memory,
                                           .memory_bytes = sizeof(memory), .count = 1,
                                           .timeout_ns = WEFT_NEVER};
    const struct weft_msg_send send = {.peer = peer, .base = sent, .total = 1000, .elem_bytes = 4,
                                       .tag = 3, .deadline_ns = WEFT_NEVER};
    memory[999] = 0;
    assert_int_equal(b.msgr.ops->expect(b.msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(a.msgr.ops->send(a.msgr.self, &send, weft_clock_now_ns(), &seq), WEFT_OK);
    weft_endpoint_flush(&a);
    step_until(&at_a, &at_b, &at_b.received, 1);
    step_until(&at_a, &at_b, &at_a.sent, 1);
    assert_true(memory[999] == 4.5F);

    weft_endpoint_counters(&a, &counters);
    assert_int_equal(counters.ep.messages_sent, 1);
    assert_true(weft_endpoint_stats(&b, &counters, &gauges) == (kind == WEFT_DRIVER_UDP));
    assert_int_equal(counters.ep.messages_received, 1);
    weft_endpoint_idle(&a);
    weft_endpoint_disconnect(&a, peer);
    step_until(&at_a, &at_b, &at_b.down, 1);
    weft_endpoint_close(&a);
    weft_endpoint_close(&b);
    weft_endpoint_close(&b); /* closing again is allowed */
}

static void a_transfer_in_every_form(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        transfer(WEFT_DRIVER_UDP, thread == 1);
        transfer(WEFT_DRIVER_TCP, thread == 1);
    }
}

static void why_nobody_answers(bool thread)
{
    struct weft_security one = security_of(key_a), other = security_of(key_b);
    struct weft_endpoint a, b;
    struct weft_error error = {.text = ""};
    char text[WEFT_UNREACHED_BYTES];
    weft_peer peer;
    open_one(&a, &one, WEFT_DRIVER_UDP, thread, false);
    open_one(&b, &other, WEFT_DRIVER_UDP, thread, true);
    struct seen at_a = {.endpoint = &a}, at_b = {.endpoint = &b};
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    uint16_t nobody = free_port();
    assert_int_equal(weft_endpoint_connect(&a, "127.0.0.1", nobody, &peer, &error), WEFT_OK);
    do {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_endpoint_step(&a, WEFT_NS_PER_MS, handle, &at_a);
        weft_endpoint_unreached(&a, text);
    } while (strstr(text, "nothing listens at 127.0.0.1:") == NULL);
    assert_int_equal(weft_endpoint_connect(&a, "127.0.0.1", weft_endpoint_port(&b), &peer, &error),
                     WEFT_OK);
    while (weft_endpoint_hint(&a) != WEFT_HINT_TOLD_KEY) {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_endpoint_step(&a, WEFT_NS_PER_MS, handle, &at_a);
        weft_endpoint_step(&b, WEFT_NS_PER_MS, handle, &at_b);
    }
    weft_endpoint_close(&a);
    weft_endpoint_close(&b);
    weft_security_fini(&one);
    weft_security_fini(&other);
}

static void it_says_why_nobody_answers(void **state)
{
    (void)state;
    why_nobody_answers(false);
    why_nobody_answers(true);
}

static void an_open_that_fails_leaves_nothing(void **state)
{
    (void)state;
    const struct weft_security none = {.mode = WEFT_MODE_NONE};
    for (int thread = 0; thread < 2; thread++) {
        struct weft_endpoint_config config;
        struct weft_endpoint endpoint;
        struct weft_error error = {.text = ""};
        weft_endpoint_config_default(&config);
        config.security = &none;
        config.thread = thread == 1;
        config.driver.udp.host = "0.0.0.0";
        assert_int_equal(weft_endpoint_open(&config, &endpoint, &error), WEFT_UNSUPPORTED);
        assert_non_null(strstr(error.text, "0.0.0.0 is beyond loopback"));
        assert_true(endpoint.driver == NULL && endpoint.engine == NULL &&
                    endpoint.provider == NULL);
    }
}

static void *wake(void *arg)
{
    weft_endpoint_wake(arg);
    return NULL;
}

/* Without the wake this would never return. */
static void another_thread_ends_a_sleep(void **state)
{
    (void)state;
    const struct weft_security none = {.mode = WEFT_MODE_NONE};
    struct weft_endpoint endpoint;
    pthread_t thread;
    open_one(&endpoint, &none, WEFT_DRIVER_UDP, false, true);
    struct seen seen = {.endpoint = &endpoint};
    assert_int_equal(pthread_create(&thread, NULL, wake, &endpoint), 0);
    weft_endpoint_step(&endpoint, WEFT_NEVER, handle, &seen);
    (void)pthread_join(thread, NULL);
    weft_endpoint_close(&endpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_in_every_form),
        cmocka_unit_test(it_says_why_nobody_answers),
        cmocka_unit_test(an_open_that_fails_leaves_nothing),
        cmocka_unit_test(another_thread_ends_a_sleep),
    };
    return cmocka_run_group_tests_name("node_endpoint", tests, NULL, NULL);
}
