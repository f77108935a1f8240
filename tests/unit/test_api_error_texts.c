/* Error texts: the status, the cause, and the remedy. */
#include "api_pair.h"
#include "free_port.h"

#include <stdio.h>

static weft_status open_status(const struct weft_transport_config *config)
{
    struct weft_transport *t = NULL;
    weft_status status = weft_transport_open(config, &t);
    assert_true((status == WEFT_OK) == (t != NULL));
    weft_transport_close(t);
    return status;
}

/* open fails with this status and a text that contains both words. */
#define ASSERT_OPEN_SAYS(config, status, word, action)                                             \
    do {                                                                                           \
        assert_int_equal(open_status(config), status);                                             \
        assert_non_null(strstr(weft_transport_error(NULL), word));                                 \
        assert_non_null(strstr(weft_transport_error(NULL), action));                               \
    } while (0)

#define ASSERT_SAYS(t, call, status, word, action)                                                 \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        assert_non_null(strstr(weft_transport_error(t), word));                                    \
        assert_non_null(strstr(weft_transport_error(t), action));                                  \
    } while (0)

static void a_bad_configuration(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.host = "no-such-host";
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "no-such-host", "numeric");
    c = api_config();
    c.host = NULL;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "host", "name the address");
    c = api_config();
    c.peers_max = 0;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "peers_max is 0", "from 1 to 4096");
    c = api_config();
    c.keepalive_ns = 10;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "keepalive_ns is 10", "from 1000000 to");
    c = api_config();
    c.idle_timeout_ns = 0;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "idle_timeout_ns is 0", "from 1000000 to");
    c = api_config();
    c.packet_bytes = 255;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "packet_bytes is 255", "from 256 to 65000");
    c = api_config();
    c.message_bytes_max = UINT64_C(1) << 30;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "message_bytes_max", "cut messages");
    c = api_config();
    c.congestion = "bbr";
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "bbr", "choose dctcp");
}

static void a_port_in_use(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    struct weft_transport *t = api_open(&c);
    c.port = weft_transport_port(t);
    ASSERT_OPEN_SAYS(&c, WEFT_EXISTS, "in use", "choose another");
    c.thread = 1;
    ASSERT_OPEN_SAYS(&c, WEFT_EXISTS, "in use", "choose another");
    weft_transport_close(t);
}

/* A shorter struct is accepted, with defaults for the remaining fields; a longer one only if the
 * unknown bytes are zero. */
static void structs_of_other_ages(void **state)
{
    (void)state;
    struct {
        struct weft_transport_config config;
        uint64_t later;
    } newer;
    weft_transport_config_init(&newer.config, sizeof(newer));
    assert_int_equal(newer.config.size, sizeof(newer));
    assert_int_equal(newer.later, 0);
    newer.config.security = WEFT_TRANSPORT_NONE;
    newer.config.peers_max = 1;
    assert_int_equal(open_status(&newer.config), WEFT_OK);
    newer.later = 1;
    ASSERT_OPEN_SAYS(&newer.config, WEFT_UNSUPPORTED, "does not know", "install");
    struct weft_transport_config c = api_config();
    c.size = 0;
    ASSERT_OPEN_SAYS(&c, WEFT_INVALID, "size of this config is 0", "weft_transport_config_init");

    c = api_config();
    struct weft_transport *t = api_open(&c);
    struct {
        struct weft_transport_counters counters;
        uint64_t later;
    } more = {.counters.size = sizeof(more), .later = 5};
    weft_transport_counters_get(t, &more.counters);
    assert_int_equal(more.later, 0);
    assert_int_equal(more.counters.size, sizeof(more));
    struct weft_transport_send send = {0};
    ASSERT_SAYS(t, weft_transport_send(t, &send), WEFT_INVALID, "this send is 0",
                "weft_transport_send_init");
    weft_transport_send_init(&send, sizeof(send));
    send.reserved = 1;
    ASSERT_SAYS(t, weft_transport_send(t, &send), WEFT_UNSUPPORTED, "this send uses", "install");
    struct weft_transport_receive receive = {0};
    uint64_t id;
    ASSERT_SAYS(t, weft_transport_receive(t, &receive, &id), WEFT_INVALID, "this receive is 0",
                "weft_transport_receive_init");
    weft_transport_close(t);
}

static void nobody_there(bool thread)
{
    struct weft_transport_config c = api_config();
    uint16_t port = free_port();
    c.peer_timeout_ns = 300 * WEFT_NS_PER_MS;
    c.thread = thread;
    struct weft_transport *t = api_open(&c);
    uint32_t peer;
    float value = 1;
    assert_int_equal(weft_transport_connect(t, "127.0.0.1", port, &peer), WEFT_OK);
    api_send(t, peer, &value, 1, 0, 0);
    struct weft_transport_event event = api_await(t, NULL, WEFT_TRANSPORT_SENT);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_UNKNOWN);
    event = api_await(t, NULL, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_NO_ANSWER);
    assert_non_null(strstr(weft_transport_error(t), weft_down_text(event.down)));
    assert_non_null(strstr(weft_transport_error(t), "firewall"));
    assert_non_null(strstr(weft_transport_error(t), "nothing listens at 127.0.0.1:"));
    struct weft_transport_send send;
    weft_transport_send_init(&send, sizeof(send));
    send.peer = peer;
    send.data = &value;
    send.elements = 1;
    ASSERT_SAYS(t, weft_transport_send(t, &send), WEFT_PEER, "not connected", "connect again");
    weft_transport_close(t);
}

static void nobody_there_caller_driven(void **state)
{
    (void)state;
    nobody_there(false);
}

static void nobody_there_with_a_thread(void **state)
{
    (void)state;
    nobody_there(true);
}

/* The peer was up once, so the reason differs from that of an absent peer. */
static void a_peer_falls_silent(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.peer_timeout_ns = WEFT_NS_PER_S;
    c.accept = 1;
    struct weft_transport *b = api_open(&c);
    struct weft_transport *a = api_open(&c);
    uint32_t peer = api_connect(a, b);
    (void)api_await(a, b, WEFT_TRANSPORT_UP);
    float value = 1;
    api_send(a, peer, &value, 1, 0, 0);
    struct weft_transport_event event = api_await(a, NULL, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_SILENT);
    assert_non_null(strstr(weft_transport_error(a), weft_down_text(event.down)));
    assert_non_null(strstr(weft_transport_error(a), "peer_timeout_ns"));
    weft_transport_close(a);
    weft_transport_close(b);
}

static void bad_addresses(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.peers_max = 1;
    struct weft_transport *t = api_open(&c);
    uint32_t peer = 77;
    ASSERT_SAYS(t, weft_transport_connect(t, "127.0.0", 9, &peer), WEFT_INVALID, "127.0.0",
                "numeric");
    ASSERT_SAYS(t, weft_transport_connect(t, NULL, 9, &peer), WEFT_INVALID, "host", "name");
    ASSERT_SAYS(t, weft_transport_connect(t, "::1", 9, &peer), WEFT_INVALID, "IPv6", "same family");
    ASSERT_SAYS(t, weft_transport_connect(t, "127.0.0.1", 0, &peer), WEFT_INVALID, "port 0",
                "give the port");
    assert_int_equal(peer, 77);
    assert_int_equal(weft_transport_connect(t, "127.0.0.1", 9, &peer), WEFT_OK);
    ASSERT_SAYS(t, weft_transport_connect(t, "127.0.0.1", 9, &peer), WEFT_NOMEM, "1 connections",
                "raise peers_max");
    weft_transport_close(t);
}

static void bad_sends(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    struct weft_transport *t = api_open(&c);
    static float values[8];
    struct weft_range range = {.first = 4, .count = 4};
    struct weft_transport_send good;
    weft_transport_send_init(&good, sizeof(good));
    assert_int_equal(weft_transport_connect(t, "127.0.0.1", 9, &good.peer), WEFT_OK);
    good.data = values;
    good.elements = 8;
    good.critical = &range;
    good.critical_count = 1;
    struct weft_transport_send s = good;
    s.data = NULL;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "nothing to send", "data");
    s = good;
    s.elements = 0;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "nothing to send", "elements");
    s = good;
    s.elem_bytes = 1409;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "elem_bytes is 1409", "1 to 1408");
    s = good;
    s.elements = (1 << 18) + 1;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "1048580 bytes", "raise that");
    s = good;
    s.bound_ppm = 1000000;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "bound_ppm is 1000000", "below");
    s = good;
    s.priority = 8;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "priority is 8", "0 to 7");
    s = good;
    s.peer = 1000;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_PEER, "peer 1000", "connect");
    s = good;
    s.critical = NULL;
    ASSERT_SAYS(t, weft_transport_send(t, &s), WEFT_INVALID, "critical is NULL", "pass the");
    range.count = 5;
    ASSERT_SAYS(t, weft_transport_send(t, &good), WEFT_INVALID, "range 0", "the message has 8");
    range = (struct weft_range){.first = UINT32_MAX, .count = UINT32_MAX};
    ASSERT_SAYS(t, weft_transport_send(t, &good), WEFT_INVALID, "range 0", "the message has 8");
    range = (struct weft_range){.first = 8, .count = 0};
    assert_int_equal(weft_transport_send(t, &good), WEFT_OK);
    weft_transport_close(t);
}

static void bad_receives(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.receives_max = 1;
    struct weft_transport *t = api_open(&c);
    float memory;
    uint64_t id = 0;
    struct weft_transport_receive good;
    weft_transport_receive_init(&good, sizeof(good));
    good.memory = &memory;
    good.memory_bytes = sizeof(memory);
    struct weft_transport_receive r = good;
    r.memory = NULL;
    ASSERT_SAYS(t, weft_transport_receive(t, &r, &id), WEFT_INVALID, "no memory", "memory is");
    r = good;
    r.tag_mask = 1;
    r.tag = 2;
    ASSERT_SAYS(t, weft_transport_receive(t, &r, &id), WEFT_INVALID, "tag_mask", "clear");
    r = good;
    r.sink = 2;
    ASSERT_SAYS(t, weft_transport_receive(t, &r, &id), WEFT_INVALID, "sink is 2", "must be");
    assert_int_equal(id, 0);
    assert_int_equal(weft_transport_receive(t, &good, &id), WEFT_OK);
    ASSERT_SAYS(t, weft_transport_receive(t, &good, &id), WEFT_NOMEM, "receives_max", "raise");
    weft_transport_close(t);
}

/* Wait at b until it reports the reason for the missing message, while a makes progress in a
 * thread. */
static void wait_says(struct weft_transport *b, const char *word, const char *action)
{
    struct weft_transport_event event = {.size = sizeof(event)};
    uint64_t end_ns = weft_clock_now_ns() + api_limit_ns;
    weft_status status;
    do { /* skip UP */
        status = weft_transport_wait(b, 400 * WEFT_NS_PER_MS, &event);
        assert_true(status != WEFT_OK || event.type == WEFT_TRANSPORT_UP);
    } while ((status == WEFT_OK || strstr(weft_transport_error(b), word) == NULL) &&
             weft_clock_now_ns() < end_ns);
    ASSERT_SAYS(b, status, WEFT_TIMEOUT, word, action);
}

static void why_nothing_comes(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.peer_timeout_ns = 60 * WEFT_NS_PER_S;
    struct weft_transport *b = api_open(&c);
    char port[16];
    snprintf(port, sizeof(port), "port %u", weft_transport_port(b));
    wait_says(b, "nothing arrived", port);
    c.thread = 1;
    struct weft_transport *a = api_open(&c);
    uint32_t peer = api_connect(a, b);
    wait_says(b, "connection were refused", "set accept");
    weft_transport_close(b);

    c.thread = 0;
    c.accept = 1;
    b = api_open(&c);
    peer = api_connect(a, b);
    static float values[1000];
    static float memory[999];
    api_receive(b, memory, 999, WEFT_TRANSPORT_COPY, 3);
    api_send(a, peer, values, 1000, 0, 3); /* the memory is too small */
    wait_says(b, "no posted receive", "tag");
    struct weft_transport_event event = {.size = sizeof(event)};
    assert_int_equal(weft_transport_wait(b, WEFT_NS_PER_MS, &event), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_transport_error(b), "wait longer"));
    assert_int_equal(weft_transport_flush(b, 0), WEFT_OK); /* no message was accepted */
    assert_int_equal(weft_transport_flush(a, WEFT_NS_PER_MS), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_transport_error(a), "wait for their events"));
    weft_transport_close(a);
    weft_transport_close(b);
}

static void every_reason_has_a_sentence(void **state)
{
    (void)state;
    for (int down = WEFT_TRANSPORT_DOWN_CLOSED; down <= WEFT_TRANSPORT_DOWN_IDLE; down++) {
        const char *text = weft_down_text((enum weft_transport_down)down);
        assert_true(strlen(text) > 20);
        for (int other = WEFT_TRANSPORT_DOWN_CLOSED; other < down; other++) {
            assert_string_not_equal(text, weft_down_text((enum weft_transport_down)other));
        }
    }
    assert_non_null(weft_down_text((enum weft_transport_down)99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_configuration),
        cmocka_unit_test(a_port_in_use),
        cmocka_unit_test(structs_of_other_ages),
        cmocka_unit_test(nobody_there_caller_driven),
        cmocka_unit_test(nobody_there_with_a_thread),
        cmocka_unit_test(a_peer_falls_silent),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(bad_sends),
        cmocka_unit_test(bad_receives),
        cmocka_unit_test(why_nothing_comes),
        cmocka_unit_test(every_reason_has_a_sentence),
    };
    return cmocka_run_group_tests_name("api_words", tests, NULL, NULL);
}
