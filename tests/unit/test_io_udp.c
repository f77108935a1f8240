/* Endpoints on real sockets: messages in both directions, injected loss, no GSO, garbage, wake,
 * close. One thread steps both ends and waits for conditions, with a generous timeout. */
#define _GNU_SOURCE /* unshare */
#include "base/bits.h"
#include "io/clock.h"
#include "io/driver.h"
#include "io/udp/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t STEP_NS = 200 * WEFT_NS_PER_US;
static const uint64_t LIMIT_NS = 120 * WEFT_NS_PER_S;

/* One end, and counts of its events. */
struct node {
    struct weft_driver *driver;
    struct weft_msgr msgr;
    uint32_t up;
    uint32_t down;
    uint32_t sent;
    uint32_t received;
    uint32_t incomplete; /* SENT or RECEIVED other than COMPLETE */
    uint32_t holes;      /* chunks missing in masks of RECEIVED */
    weft_peer peer;      /* of the last event */
    enum weft_msg_down why;
    uint8_t *by_event; /* sink EVENT: destination of chunks */
};

static void on_event(struct node *node, const struct weft_msg_event *event)
{
    node->peer = event->peer;
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        node->up++;
        break;
    case WEFT_EVENT_PEER_DOWN:
        node->down++;
        node->why = event->down;
        break;
    case WEFT_EVENT_SENT:
        node->sent++;
        node->incomplete += event->outcome != WEFT_MSG_COMPLETE;
        break;
    case WEFT_EVENT_RECEIVED:
        node->received++;
        node->incomplete += event->outcome != WEFT_MSG_COMPLETE;
        node->holes += event->chunks - (uint32_t)weft_bits_count(event->mask, event->chunks);
        break;
    case WEFT_EVENT_CHUNK:
        memcpy(node->by_event + (size_t)event->chunk * event->chunk_elems * event->elem_bytes,
               event->data, (size_t)event->elems * event->elem_bytes);
        break;
    case WEFT_EVENT_OPEN:
        break;
    }
}

static void drain(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct node *node = arg;
    struct weft_msg_event event;
    while (node->msgr.ops->poll(node->msgr.self, &event)) {
        on_event(node, &event);
    }
}

static void small(struct weft_udp_config *config_p)
{
    weft_udp_config_default(config_p);
    config_p->ep.peers_max = 4;
    config_p->ep.accept = 1;
}

static void open_node(const struct weft_udp_config *config, struct node *node)
{
    struct weft_error error = {.text = ""};
    *node = (struct node){0};
    weft_status status = weft_udp_open(config, &node->driver, &error);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), error.text);
    }
    node->msgr = weft_driver_msgr(node->driver);
}

/* Step both ends until *count reaches target. */
static void run_until(struct node *a, struct node *b, const uint32_t *count, uint32_t target)
{
    uint64_t end_ns = weft_clock_now_ns() + LIMIT_NS;
    while (*count < target && weft_clock_now_ns() < end_ns) {
        (void)weft_driver_step(a->driver, STEP_NS, drain, a);
        if (b != NULL) {
            (void)weft_driver_step(b->driver, STEP_NS, drain, b);
        }
    }
    assert_int_equal(*count, target);
}

static weft_peer connect_nodes(struct node *from, struct node *to, const char *host)
{
    weft_peer peer;
    assert_int_equal(
        weft_driver_connect(from->driver, host, weft_driver_port(to->driver), &peer, NULL),
        WEFT_OK);
    return peer;
}

static void send_floats(struct node *node, weft_peer peer, const float *values, uint32_t count)
{
    struct weft_msg_send send = {.peer = peer,
                                 .base = values,
                                 .total = count,
                                 .elem_bytes = sizeof(float),
                                 .tag = 5,
                                 .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    assert_int_equal(node->msgr.ops->send(node->msgr.self, &send, weft_clock_now_ns(), &seq),
                     WEFT_OK);
}

static void expect_floats(struct node *node, enum weft_msg_sink sink, float *memory, uint32_t count)
{
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = sink,
                                     .tag = 5,
                                     .tag_mask = UINT64_MAX,
                                     .memory = sink == WEFT_SINK_EVENT ? NULL : memory,
                                     .memory_bytes = count * sizeof(float),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    assert_int_equal(node->msgr.ops->expect(node->msgr.self, &expect, &id), WEFT_OK);
}

/* Whole numbers, so that sums are exact. */
static float *numbers(uint32_t count)
{
    float *values = calloc(count, sizeof(*values));
    assert_non_null(values);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = (float)(i % 1000);
    }
    return values;
}

/* `rounds` vectors from a to b through `sink`, then one back; all must be bit-identical. */
static void transfer(struct node *a, struct node *b, const char *host, enum weft_msg_sink sink,
                     uint32_t rounds)
{
    enum { COUNT = 50001 };
    float *values = numbers(COUNT);
    float *memory = calloc(COUNT, sizeof(*memory));
    assert_non_null(memory);
    b->by_event = (uint8_t *)memory;
    weft_peer to_b = connect_nodes(a, b, host);
    for (uint32_t round = 1; round <= rounds; round++) {
        expect_floats(b, sink, memory, COUNT);
        send_floats(a, to_b, values, COUNT);
        run_until(a, b, &b->received, round);
        run_until(a, b, &a->sent, round);
        float times = sink == WEFT_SINK_ADD ? (float)round : 1.0f;
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(memory[i] == times * values[i]);
        }
    }
    weft_peer to_a = b->peer;
    memset(memory, 0, COUNT * sizeof(*memory));
    expect_floats(a, WEFT_SINK_COPY, memory, COUNT);
    send_floats(b, to_a, values, COUNT);
    run_until(a, b, &a->received, 1);
    run_until(a, b, &b->sent, 1);
    assert_memory_equal(memory, values, COUNT * sizeof(*memory));
    assert_int_equal(a->up, 1);
    assert_int_equal(b->up, 1);
    assert_int_equal(a->incomplete + b->incomplete + a->holes + b->holes, 0);
    free(memory);
    free(values);
}

static void messages_go_both_ways(void **state)
{
    (void)state;
    static const enum weft_msg_sink sinks[] = {WEFT_SINK_COPY, WEFT_SINK_ADD, WEFT_SINK_EVENT};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(sinks); i++) {
        struct weft_udp_config config;
        struct node a;
        struct node b;
        small(&config);
        open_node(&config, &a);
        open_node(&config, &b);
        transfer(&a, &b, "localhost", sinks[i], 3);
        const struct weft_socket_counters *sent = weft_udp_counters(weft_driver_udp(a.driver));
        assert_int_equal(sent->datagrams_sent,
                         weft_ep_counters(weft_udp_ep(weft_driver_udp(a.driver)))->datagrams_sent);
        assert_int_equal(sent->injected_drops, 0);
        weft_driver_close(a.driver);
        weft_driver_close(b.driver);
    }
}

static void without_gso_the_same(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    config.gso = 0;
    open_node(&config, &a);
    config.gro = 0;
    open_node(&config, &b);
    struct weft_udp_facts facts;
    weft_udp_facts(weft_driver_udp(a.driver), &facts);
    assert_false(facts.gso);
    transfer(&a, &b, "127.0.0.1", WEFT_SINK_ADD, 2);
    const struct weft_socket_counters *sent = weft_udp_counters(weft_driver_udp(a.driver));
    const struct weft_socket_counters *got = weft_udp_counters(weft_driver_udp(b.driver));
    assert_int_equal(sent->bursts_sent, sent->datagrams_sent);
    assert_true(sent->gso_refused > 0);
    assert_int_equal(got->buffers_received, got->datagrams_received);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

/* 5 % of all datagrams dropped at each end, and the sums are right. The number dropped is
 * determined by the random stream of this seed, role and rank, and is within 4 sigma. */
static void injected_loss_is_made_good(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    config.ep.seed = 11;
    config.loss =
        (struct weft_inject_loss_config){.loss_ppm = 50000, .seed = 3, .role = 1, .rank = 0};
    open_node(&config, &a);
    config.loss.role = 2;
    open_node(&config, &b);
    transfer(&a, &b, "127.0.0.1", WEFT_SINK_ADD, 20);
    const struct weft_socket_counters *counters = weft_udp_counters(weft_driver_udp(b.driver));
    struct weft_inject_loss replay;
    weft_inject_loss_init(&replay, &config.loss);
    uint64_t drops = 0;
    for (uint64_t i = 0; i < counters->datagrams_received; i++) {
        drops += weft_inject_loss_next(&replay);
    }
    assert_int_equal(counters->injected_drops, drops);
    assert_true(counters->datagrams_received > 20 * 142);
    double expected = (double)counters->datagrams_received * 0.05;
    double off = (double)drops - expected;
    assert_true(off * off <= 16.0 * expected * 0.95);
    assert_int_equal(weft_ep_counters(weft_udp_ep(weft_driver_udp(b.driver)))->datagrams_received,
                     counters->datagrams_received - drops);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

static uint64_t refused_by(const struct weft_ep_counters *c)
{
    return c->bad_short + c->bad_version + c->bad_class + c->bad_peer + c->bad_packet +
           c->bad_range + c->bad_ack + c->hello_refused;
}

static void garbage_is_counted(void **state)
{
    (void)state;
    enum { GARBAGE = 500 };
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    open_node(&config, &a);
    open_node(&config, &b);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(weft_driver_port(b.driver)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (uint32_t i = 0; i < GARBAGE; i++) {
        uint64_t bytes[200];
        for (size_t word = 0; word < WEFT_ARRAY_COUNT(bytes); word++) {
            bytes[word] = weft_prng_u64(&prng);
        }
        size_t count = weft_prng_below(&prng, sizeof(bytes)); /* including empty ones */
        assert_int_equal(sendto(fd, bytes, count, 0, (struct sockaddr *)&to, sizeof(to)), count);
        if (i % 50 == 0) {
            (void)weft_driver_step(b.driver, 0, drain, &b);
        }
    }
    (void)close(fd);
    uint64_t end_ns = weft_clock_now_ns() + LIMIT_NS;
    const struct weft_socket_counters *counters = weft_udp_counters(weft_driver_udp(b.driver));
    while (counters->datagrams_received < GARBAGE && weft_clock_now_ns() < end_ns) {
        (void)weft_driver_step(b.driver, STEP_NS, drain, &b);
    }
    assert_int_equal(weft_udp_counters(weft_driver_udp(b.driver))->datagrams_received, GARBAGE);
    assert_int_equal(refused_by(weft_ep_counters(weft_udp_ep(weft_driver_udp(b.driver)))), GARBAGE);
    assert_int_equal(b.up, 0);
    transfer(&a, &b, "127.0.0.1", WEFT_SINK_COPY, 1);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

static void bound_towards_the_peers(void **state)
{
    (void)state;
    static const struct {
        const char *hosts[2];
        const char *wanted;
    } rows[] = {
        {{"127.0.0.1", "127.0.0.2"}, "127.0.0.1"}, {{"localhost", "192.0.2.1"}, "0.0.0.0"},
        {{"192.0.2.1", "127.0.0.1"}, "0.0.0.0"},   {{"::1", "::1"}, "::1"},
        {{"2001:db8::1", "::1"}, "::"},            {{"nonsense", "nonsense"}, "127.0.0.1"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        assert_string_equal(weft_udp_bind_towards(rows[i].hosts, 2), rows[i].wanted);
    }
    assert_string_equal(weft_udp_bind_towards(NULL, 0), "127.0.0.1");
}

static void beyond_loopback_is_refused(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct weft_error error;
    struct weft_driver *driver = NULL;
    struct node a;
    weft_peer peer;
    small(&config);
    config.host = "0.0.0.0";
    assert_int_equal(weft_udp_open(&config, &driver, &error), WEFT_UNSUPPORTED);
    assert_null(driver);
    assert_non_null(strstr(error.text, "0.0.0.0"));
    config.insecure_network = 1;
    assert_int_equal(weft_udp_open(&config, &driver, &error), WEFT_OK);
    weft_driver_close(driver);
    config.insecure_network = 0;
    config.host = "127.0.0.1";
    open_node(&config, &a);
    assert_int_equal(weft_driver_connect(a.driver, "192.0.2.1", 9, &peer, &error),
                     WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--insecure-network"));
    assert_int_equal(weft_driver_connect(a.driver, "::1", 9, &peer, &error), WEFT_INVALID);
    assert_int_equal(weft_driver_connect(a.driver, "127.0.0.1", 0, &peer, &error), WEFT_INVALID);
    config.port = weft_driver_port(a.driver);
    assert_int_equal(weft_udp_open(&config, &driver, &error), WEFT_EXISTS);
    assert_non_null(strstr(error.text, "in use"));
    weft_driver_close(a.driver);
}

static void open_on_link(struct node *node)
{
    struct weft_udp_config config;
    small(&config);
    config.host = "0.0.0.0";
    config.insecure_network = 1;
    open_node(&config, node);
}

static int status_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Endpoints of one process share the host's queue. Those of its parent are another program's: a
 * process that took them for its own would not look for other traffic at all. */
static void endpoints_of_the_parent_are_no_siblings(void **state)
{
    (void)state;
    struct node a, b, c;
    open_on_link(&a);
    assert_false(weft_udp_has_siblings());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        open_on_link(&b);
        bool wrong = weft_udp_has_siblings();
        open_on_link(&c);
        wrong |= !weft_udp_has_siblings();
        weft_driver_close(c.driver);
        wrong |= weft_udp_has_siblings();
        open_on_link(&c);
        weft_driver_close(a.driver); /* not counted here */
        wrong |= !weft_udp_has_siblings();
        _exit(wrong);
    }
    assert_int_equal(status_of(child), 0);
    open_on_link(&b);
    assert_true(weft_udp_has_siblings());
    weft_driver_close(b.driver);
    assert_false(weft_udp_has_siblings());
    weft_driver_close(a.driver);
}

/* What is sent over loopback does not tell how busy the link to other hosts is. */
static void a_peer_on_loopback_does_not_choose_the_interface(void **state)
{
    (void)state;
    struct node a, b;
    open_on_link(&a);
    open_on_link(&b);
    (void)connect_nodes(&a, &b, "127.0.0.1");
    run_until(&a, &b, &a.up, 1);
    assert_int_equal(weft_udp_of(a.driver)->link_to.bytes_used, 0);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* in a namespace without a network, so that nothing leaves this host */
        weft_peer peer;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
            _exit(77);
        }
        open_on_link(&a);
        bool made = weft_driver_connect(a.driver, "192.0.2.1", 9, &peer, NULL) == WEFT_OK;
        (void)weft_driver_step(a.driver, 0, drain, &a);
        _exit(!made || weft_udp_of(a.driver)->link_to.bytes_used != sizeof(struct sockaddr_in));
    }
    int status = status_of(child);
    if (status == 77) {
        print_message("no network namespace here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void *wake(void *arg)
{
    weft_driver_wake(arg);
    return NULL;
}

static void wake_ends_a_sleep(void **state)
{
    (void)state;
    static const uint16_t busy_poll_us[] = {0, 1000};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(busy_poll_us); i++) {
        struct weft_udp_config config;
        struct node a;
        pthread_t thread;
        small(&config);
        config.busy_poll_us = busy_poll_us[i];
        open_node(&config, &a);
        assert_int_equal(pthread_create(&thread, NULL, wake, a.driver), 0);
        /* Without the wake this would sleep until the test's time limit. A stopped process that
         * continues also wakes. */
        while (weft_udp_counters(weft_driver_udp(a.driver))->wakes == 0) {
            assert_int_equal(weft_driver_step(a.driver, WEFT_NEVER, drain, &a), 0);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(weft_udp_counters(weft_driver_udp(a.driver))->wakes, 1);
        weft_driver_close(a.driver);
    }
}

static void sleep_ends_at_its_time(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct node a;
    small(&config);
    open_node(&config, &a);
    bool whole = false;
    for (uint64_t try = 1; try <= 20 && !whole; try++) { /* SIGCONT ends a sleep, too */
        uint64_t start_ns = weft_clock_now_ns();
        (void)weft_driver_step(a.driver, 3 * WEFT_NS_PER_MS, drain, &a);
        whole = weft_clock_now_ns() - start_ns >= 3 * WEFT_NS_PER_MS;
        assert_int_equal(weft_udp_counters(weft_driver_udp(a.driver))->sleeps, try);
    }
    assert_true(whole);
    uint64_t sleeps = weft_udp_counters(weft_driver_udp(a.driver))->sleeps;
    (void)weft_driver_step(a.driver, 0, drain, &a);
    assert_int_equal(weft_udp_counters(weft_driver_udp(a.driver))->sleeps, sleeps);
    weft_driver_close(a.driver);
}

/* Send one vector from `from` to the other node. The receiver is not stepped after it has
 * arrived. */
static void send_one(struct node *from, struct node *to, weft_peer peer, const float *values,
                     float *memory, uint32_t count)
{
    uint32_t received = to->received + 1;
    expect_floats(to, WEFT_SINK_COPY, memory, count);
    send_floats(from, peer, values, count);
    run_until(from, to, &to->received, received);
}

/* The receiver is not stepped after the message has arrived, and the sender is still notified. */
static void what_is_held_is_said_without_its_owner(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    const float values[COUNT] = {1, 2, 3, 4};
    float memory[COUNT];
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    config.ep.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* the machine may be suspended */
    open_node(&config, &a);
    config.delayed_ack_ns = WEFT_NEVER;
    open_node(&config, &b);
    weft_peer peer = connect_nodes(&a, &b, "127.0.0.1");
    run_until(&a, &b, &a.up, 1);
    /* After a suspension of the machine there may be more to send, which does not wait. */
    for (uint32_t round = 1;
         round <= 3 || weft_udp_counters(weft_driver_udp(b.driver))->acks_delayed_sent == 0;
         round++) {
        send_one(&a, &b, peer, values, memory, COUNT);
        run_until(&a, NULL, &a.sent, round);
        assert_memory_equal(memory, values, sizeof(values));
    }
    assert_int_equal(a.incomplete + b.incomplete, 0);
    assert_true(weft_udp_counters(weft_driver_udp(b.driver))->acks_delayed > 0);
    assert_int_equal(weft_udp_counters(weft_driver_udp(a.driver))->acks_delayed, 0);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

static void called_by_nobody(void *arg)
{
    (void)arg;
}

/* The thread that sends delayed acknowledgements would call the hook. */
static void delayed_acks_do_not_go_with_before_send(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct weft_driver *driver = NULL;
    struct weft_error error = {.text = ""};
    small(&config);
    config.delayed_ack_ns = WEFT_NEVER;
    config.before_send.call = called_by_nobody;
    assert_int_equal(weft_udp_open(&config, &driver, &error), WEFT_INVALID);
    assert_non_null(strstr(error.text, "delayed_ack_ns"));
    assert_null(driver);
}

/* Concurrent use by the thread and the owner. */
static void delayed_acks_lose_nothing(void **state)
{
    (void)state;
    enum { COUNT = 4, ROUNDS = 300 };
    float values[COUNT] = {0};
    float memory[2][COUNT];
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    config.ep.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* the machine may be suspended */
    config.delayed_ack_ns = WEFT_NEVER;
    open_node(&config, &a);
    open_node(&config, &b);
    weft_peer peer = connect_nodes(&a, &b, "127.0.0.1");
    run_until(&a, &b, &b.up, 1);
    weft_peer back = b.peer;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        values[round % COUNT] = (float)round;
        send_one(&a, &b, peer, values, memory[0], COUNT);
        send_one(&b, &a, back, values, memory[1], COUNT);
        assert_memory_equal(memory[0], values, sizeof(values));
        assert_memory_equal(memory[1], values, sizeof(values));
    }
    run_until(&a, &b, &a.sent, ROUNDS);
    run_until(&a, &b, &b.sent, ROUNDS);
    assert_int_equal(a.incomplete + b.incomplete, 0);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

static void serve_blocking(void *arg, uint64_t now_ns)
{
    struct node *node = arg;
    uint32_t before = node->received;
    drain(node, now_ns);
    if (node->received > before) { /* return it to its sender; then the next may arrive */
        float *memory = (float *)(void *)node->by_event;
        expect_floats(node, WEFT_SINK_COPY, memory, 4);
        send_floats(node, node->peer, memory, 4);
    }
}

struct server {
    struct node node;
    atomic_bool stop;
};

static void *serve(void *arg)
{
    struct server *server = arg;
    while (!atomic_load(&server->stop)) {
        (void)weft_driver_step(server->node.driver, WEFT_NEVER, serve_blocking, &server->node);
    }
    return NULL;
}

/* Both ends sleep inside the receive call, and a wake ends the last sleep. */
static void blocking_receive_loses_nothing(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct server server = {.stop = false};
    struct node a;
    pthread_t thread;
    float there[4] = {0}, here[4], back[4];
    small(&config);
    config.ep.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* the machine may be suspended */
    config.blocking_receive = 1;
    open_node(&config, &server.node);
    config.delayed_ack_ns = WEFT_NEVER;
    open_node(&config, &a);
    server.node.by_event = (uint8_t *)here;
    expect_floats(&server.node, WEFT_SINK_COPY, here, 4);
    weft_peer peer = connect_nodes(&a, &server.node, "127.0.0.1");
    assert_int_equal(pthread_create(&thread, NULL, serve, &server), 0);
    uint32_t rounds = 0;
    while (rounds < 300 || weft_udp_counters(weft_driver_udp(a.driver))->sleeps_receiving == 0) {
        rounds++;
        there[rounds % 4] = (float)rounds;
        expect_floats(&a, WEFT_SINK_COPY, back, 4);
        send_floats(&a, peer, there, 4);
        while (a.received < rounds) { /* the test's own limit ends it */
            (void)weft_driver_step(a.driver, WEFT_NEVER, drain, &a);
        }
        assert_memory_equal(back, there, sizeof(back));
    }
    atomic_store(&server.stop, true);
    weft_driver_wake(server.node.driver);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(a.incomplete + server.node.incomplete, 0);
    assert_int_equal(server.node.received, rounds);
    weft_driver_close(a.driver);
    weft_driver_close(server.node.driver);
}

static void close_tells_the_peer(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    open_node(&config, &a);
    open_node(&config, &b);
    transfer(&a, &b, "127.0.0.1", WEFT_SINK_COPY, 1);
    weft_driver_idle(a.driver);
    weft_driver_close(a.driver);
    run_until(&b, NULL, &b.down, 1);
    assert_int_equal(b.why, WEFT_DOWN_CLOSED);
    weft_driver_close(b.driver);
}

static void nobody_there_is_silence(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct node a;
    struct node b;
    small(&config);
    config.ep.peer_timeout_ns = 100 * WEFT_NS_PER_MS;
    open_node(&config, &a);
    open_node(&config, &b);
    uint16_t port = weft_driver_port(b.driver);
    weft_driver_close(b.driver);
    weft_peer peer;
    assert_int_equal(weft_driver_connect(a.driver, "127.0.0.1", port, &peer, NULL), WEFT_OK);
    run_until(&a, NULL, &a.down, 1);
    assert_int_equal(a.why, WEFT_DOWN_SILENT);
    weft_driver_close(a.driver);
}

static void ipv6_works_too(void **state)
{
    (void)state;
    struct weft_udp_config config;
    struct weft_driver *probe;
    struct node a;
    struct node b;
    small(&config);
    config.host = "::1";
    if (weft_udp_open(&config, &probe, NULL) != WEFT_OK) {
        print_message("no IPv6 loopback on this host\n");
        skip();
    }
    weft_driver_close(probe);
    open_node(&config, &a);
    open_node(&config, &b);
    transfer(&a, &b, "::1", WEFT_SINK_ADD, 2);
    weft_driver_close(a.driver);
    weft_driver_close(b.driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_both_ways),      cmocka_unit_test(without_gso_the_same),
        cmocka_unit_test(injected_loss_is_made_good), cmocka_unit_test(garbage_is_counted),
        cmocka_unit_test(beyond_loopback_is_refused),
        cmocka_unit_test(endpoints_of_the_parent_are_no_siblings),
        cmocka_unit_test(a_peer_on_loopback_does_not_choose_the_interface),
        cmocka_unit_test(bound_towards_the_peers), cmocka_unit_test(wake_ends_a_sleep),
        cmocka_unit_test(sleep_ends_at_its_time),     cmocka_unit_test(close_tells_the_peer),
        cmocka_unit_test(what_is_held_is_said_without_its_owner),
        cmocka_unit_test(delayed_acks_do_not_go_with_before_send),
        cmocka_unit_test(delayed_acks_lose_nothing),
        cmocka_unit_test(blocking_receive_loses_nothing),
        cmocka_unit_test(nobody_there_is_silence),    cmocka_unit_test(ipv6_works_too),
    };
    return cmocka_run_group_tests_name("io udp", tests, NULL, NULL);
}
