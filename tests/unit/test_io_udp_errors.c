/* A port without a listener: the ICMP error produces a hint and has no other effect. */
#include "free_port.h"
#include "io/clock.h"
#include "io/driver.h"
#include "io/udp/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t STEP_NS = 2 * WEFT_NS_PER_MS;
static const uint64_t LIMIT_NS = 120 * WEFT_NS_PER_S;

struct node {
    struct weft_driver *driver;
    struct weft_msgr msgr;
    uint32_t up;
    uint32_t down;
    uint64_t down_ns[4]; /* time of PEER_DOWN per peer; 0 = not down */
    enum weft_msg_down why[4];
};

static void drain(void *arg, uint64_t now_ns)
{
    struct node *node = arg;
    struct weft_msg_event event;
    while (node->msgr.ops->poll(node->msgr.self, &event)) {
        node->up += event.type == WEFT_EVENT_PEER_UP;
        if (event.type == WEFT_EVENT_PEER_DOWN) {
            node->down++;
            node->down_ns[event.peer] = now_ns;
            node->why[event.peer] = event.down;
        }
    }
}

static struct node open_at(const char *host, uint16_t port, bool accept, uint64_t timeout_ns)
{
    struct weft_udp_config config;
    struct weft_error error = {.text = ""};
    struct node node = {0};
    weft_udp_config_default(&config);
    config.host = host;
    config.port = port;
    config.ep.accept = accept;
    config.ep.peer_timeout_ns = timeout_ns;
    config.ep.peers_max = 4;
    if (weft_udp_open(&config, &node.driver, &error) != WEFT_OK) {
        if (strcmp(host, "::1") == 0) {
            print_message("no IPv6 here: %s\n", error.text);
            return node;
        }
        fail_msg("%s", error.text);
    }
    node.msgr = weft_driver_msgr(node.driver);
    return node;
}

static weft_peer connect_to(struct node *node, const char *host, uint16_t port)
{
    weft_peer peer;
    struct weft_error error = {.text = ""};
    assert_int_equal(weft_driver_connect(node->driver, host, port, &peer, &error), WEFT_OK);
    return peer;
}

static uint64_t unreached(const struct node *node)
{
    return weft_udp_counters(weft_driver_udp(node->driver))->unreached;
}

static const char *words(const struct node *node)
{
    static char text[WEFT_UNREACHED_BYTES];
    weft_driver_unreached(node->driver, text);
    return text;
}

/* The error is reported at once, the attempt continues, and it succeeds when a server starts
 * later. */
static void late_server(const char *host, const char *shown)
{
    struct node client = open_at(host, 0, false, LIMIT_NS);
    if (client.driver == NULL) {
        return;
    }
    uint16_t port = free_port();
    char want[100];
    snprintf(want, sizeof(want), "nothing listens at %s:%u", shown, (unsigned)port);
    assert_string_equal(words(&client), "");
    uint64_t from_ns = weft_clock_now_ns();
    (void)connect_to(&client, host, port);
    while (unreached(&client) < 3) { /* HELLO is retried */
        assert_true(weft_clock_now_ns() < from_ns + LIMIT_NS);
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    }
    assert_int_equal(client.up + client.down, 0);
    assert_non_null(strstr(words(&client), want));
    uint64_t steps_ns = weft_clock_now_ns();
    for (int i = 0; i < 100; i++) { /* the error was read, so the socket does not wake it */
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    }
    assert_true(weft_clock_now_ns() - steps_ns > 80 * STEP_NS);
    struct node server = open_at(host, port, true, LIMIT_NS);
    while (client.up == 0) {
        assert_true(weft_clock_now_ns() < from_ns + LIMIT_NS);
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
        (void)weft_driver_step(server.driver, 0, drain, &server);
    }
    (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    assert_string_equal(words(&client), "");
    weft_driver_close(server.driver);
    weft_driver_close(client.driver);
}

static void a_server_that_comes_late_v4(void **state)
{
    (void)state;
    late_server("127.0.0.1", "127.0.0.1");
}

static void a_server_that_comes_late_v6(void **state)
{
    (void)state;
    late_server("::1", "[::1]");
}

static void nobody_ever_comes(void **state)
{
    (void)state;
    struct node client = open_at("127.0.0.1", 0, false, 300 * WEFT_NS_PER_MS);
    uint16_t port = free_port();
    uint64_t from_ns = weft_clock_now_ns();
    weft_peer peer = connect_to(&client, "127.0.0.1", port);
    while (client.down == 0) {
        assert_true(weft_clock_now_ns() < from_ns + LIMIT_NS);
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    }
    /* not at the time of the report */
    assert_true(client.down_ns[peer] - from_ns >= 290 * WEFT_NS_PER_MS);
    assert_int_equal(client.why[peer], WEFT_DOWN_SILENT);
    assert_non_null(strstr(words(&client), "nothing listens"));
    weft_driver_close(client.driver);
}

/* A server in a separate process, so that it can be killed. Returns its port. */
static pid_t server_fork(uint16_t *port_p)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct node server = open_at("127.0.0.1", 0, true, LIMIT_NS);
        uint16_t port = weft_driver_port(server.driver);
        ssize_t wrote = write(pipes[1], &port, sizeof(port));
        for (uint64_t end_ns = weft_clock_now_ns() + LIMIT_NS; weft_clock_now_ns() < end_ns;) {
            (void)weft_driver_step(server.driver, STEP_NS, drain, &server);
        }
        _exit(wrote > 0 ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(read(pipes[0], port_p, sizeof(*port_p)), sizeof(*port_p));
    close(pipes[0]);
    close(pipes[1]);
    return pid;
}

/* Its server is killed, so each packet is answered by ICMP; meanwhile another connection is being
 * established, so the socket receives these errors. The established connection ends by its own
 * timeout, not earlier. */
static void a_connection_that_is_up_is_never_torn(void **state)
{
    (void)state;
    uint64_t timeout_ns = 2 * WEFT_NS_PER_S;
    uint16_t port = 0;
    pid_t pid = server_fork(&port);
    struct node client = open_at("127.0.0.1", 0, false, timeout_ns);
    uint64_t from_ns = weft_clock_now_ns();
    weft_peer up = connect_to(&client, "127.0.0.1", port);
    while (client.up == 0) {
        assert_true(weft_clock_now_ns() < from_ns + LIMIT_NS);
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    static const float values[1000];
    struct weft_msg_send send = {.peer = up,
                                 .base = values,
                                 .total = 1000,
                                 .elem_bytes = 4,
                                 .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    uint64_t killed_ns = weft_clock_now_ns();
    assert_int_equal(client.msgr.ops->send(client.msgr.self, &send, killed_ns, &seq), WEFT_OK);
    (void)connect_to(&client, "127.0.0.1", free_port());
    while (client.down_ns[up] == 0) {
        assert_true(weft_clock_now_ns() < killed_ns + LIMIT_NS);
        (void)weft_driver_step(client.driver, STEP_NS, drain, &client);
    }
    assert_true(client.down_ns[up] - killed_ns >= timeout_ns);
    assert_int_equal(client.why[up], WEFT_DOWN_SILENT);
    assert_in_range(unreached(&client), 1, 14); /* HELLOs only; probes of the other connection are
                                                 * not counted */
    char dead[32];
    snprintf(dead, sizeof(dead), ":%u:", (unsigned)port);
    assert_null(strstr(words(&client), dead)); /* no error is reported for that connection */
    assert_int_equal(weft_udp_counters(weft_driver_udp(client.driver))->send_dropped, 0);
    weft_driver_close(client.driver);
}

/* The socket requests errors only while a connection is being established. */
static void it_asks_for_a_while(void **state)
{
    (void)state;
    struct weft_ep_config config;
    struct weft_ep *ep = NULL;
    weft_ep_config_default(&config);
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_OK);
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < 2; i++) {
        bool v6 = families[i] == AF_INET6;
        struct weft_udp_errors errors;
        struct weft_unreached unreached = {0};
        struct weft_socket_counters counters = {0};
        int value = 0;
        socklen_t bytes = sizeof(value);
        int fd = socket(families[i], SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (fd < 0 && v6) {
            break; /* no IPv6 here */
        }
        weft_udp_errors_init(&errors, fd, families[i]);
        assert_false(weft_udp_errors_read(&errors, ep, &unreached, &counters));
        weft_udp_errors_watch(&errors);
        assert_true(errors.on);
        assert_true(weft_udp_errors_read(&errors, ep, &unreached, &counters));
        assert_false(errors.on);
        assert_int_equal(getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                    v6 ? IPV6_RECVERR : IP_RECVERR, &value, &bytes),
                         0);
        assert_int_equal(value, 0);
        close(fd);
    }
    weft_ep_free(ep);
}

static void the_sentences(void **state)
{
    (void)state;
    struct weft_unreached unreached = {0};
    char text[WEFT_UNREACHED_BYTES] = "x";
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7700)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7701)};
    weft_unreached_text(&unreached, text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr), 1);
    memcpy(unreached.addr.bytes, &v4, sizeof(v4));
    unreached.number = EHOSTUNREACH;
    weft_unreached_text(&unreached, text, sizeof(text));
    assert_string_equal(text,
                        "10.1.2.3:7700 cannot be reached; the network says: No route to host");
    assert_int_equal(inet_pton(AF_INET6, "2001:db8:1111:2222:3333:4444:5555:6666", &v6.sin6_addr),
                     1);
    memcpy(unreached.addr.bytes, &v6, sizeof(v6));
    unreached.number = ECONNREFUSED;
    weft_unreached_text(&unreached, text, sizeof(text));
    assert_string_equal(text, "nothing listens at [2001:db8:1111:2222:3333:4444:5555:6666]:7701: "
                              "start the program there first, or check address and port");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_comes_late_v4),
        cmocka_unit_test(a_server_that_comes_late_v6),
        cmocka_unit_test(nobody_ever_comes),
        cmocka_unit_test(a_connection_that_is_up_is_never_torn),
        cmocka_unit_test(it_asks_for_a_while),
        cmocka_unit_test(the_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
