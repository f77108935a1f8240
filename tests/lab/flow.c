/* One flow between two hosts for a while, over weft or over kernel TCP. tests/lab/share.sh runs
 * several on one link to measure their shares.
 *
 *   flow recv weft|tcp ADDRESS PORT                 prints "bytes N" at SIGTERM
 *   flow send weft|tcp ADDRESS PORT SECONDS CC      CC: of core/cc.h, or of the kernel
 *
 * weft sends messages of 1 MB, two at a time, reliably, without authentication: the lab's
 * namespaces contain no other host. It is not a benchmark of either.
 */
#include "base/units.h"
#include "io/clock.h"
#include "io/driver.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 1000000, MESSAGES = 2 };

static volatile sig_atomic_t stop;
static uint8_t memory[MESSAGES][MESSAGE_BYTES];
static uint64_t bytes_received;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static int fail(const char *what)
{
    fprintf(stderr, "flow: %s\n", what);
    return 1;
}

/* ---- weft ------------------------------------------------------------------------------------ */

struct flow {
    struct weft_msgr msgr;
    weft_peer peer;
    bool down;
    uint32_t open;
};

static void expect(struct flow *flow, uint64_t slot)
{
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_COPY,
        .memory = memory[slot],
        .memory_bytes = MESSAGE_BYTES,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = slot,
    };
    weft_expect_id id;
    if (flow->msgr.ops->expect(flow->msgr.self, &e, &id) != WEFT_OK) {
        flow->down = true;
    }
}

static void on_events(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct flow *flow = arg;
    struct weft_msg_event event;
    while (flow->msgr.ops->poll(flow->msgr.self, &event)) {
        if (event.type == WEFT_EVENT_RECEIVED) {
            bytes_received += (uint64_t)event.received * event.chunk_elems * event.elem_bytes;
            expect(flow, event.user);
        } else if (event.type == WEFT_EVENT_SENT) {
            flow->open--;
        } else if (event.type == WEFT_EVENT_PEER_DOWN) {
            flow->down = true;
        }
    }
}

static struct weft_driver *udp_open(const char *host, uint16_t port, const char *cc_name,
                                    bool accept)
{
    struct weft_udp_config config;
    struct weft_error error = {.text = ""};
    struct weft_driver *driver = NULL;
    weft_udp_config_default(&config);
    config.host = host;
    config.port = port;
    config.gso = 0; /* with bursts of 64 KB this would test the token bucket, not congestion
                     * control */
    config.insecure_network = 1;
    config.ep.accept = accept;
    config.ep.cc_name = cc_name;
    if (weft_udp_open(&config, &driver, &error) != WEFT_OK) {
        fprintf(stderr, "flow: %s\n", error.text);
        return NULL;
    }
    return driver;
}

static int recv_weft(const char *host, uint16_t port)
{
    struct weft_driver *driver = udp_open(host, port, NULL, true);
    if (driver == NULL) {
        return 1;
    }
    struct flow flow = {.msgr = weft_driver_msgr(driver)};
    for (uint64_t slot = 0; slot < MESSAGES; slot++) {
        expect(&flow, slot);
    }
    while (!stop) {
        (void)weft_driver_step(driver, 100 * WEFT_NS_PER_MS, on_events, &flow);
    }
    weft_driver_close(driver);
    return 0;
}

static int send_weft(const char *host, uint16_t port, unsigned seconds, const char *cc_name)
{
    struct weft_driver *driver = udp_open("0.0.0.0", 0, cc_name, false);
    if (driver == NULL) {
        return 1;
    }
    struct weft_error error = {.text = ""};
    struct flow flow = {.msgr = weft_driver_msgr(driver)};
    if (weft_driver_connect(driver, host, port, &flow.peer, &error) != WEFT_OK) {
        return fail(error.text);
    }
    uint64_t end_ns = weft_clock_now_ns() + seconds * WEFT_NS_PER_S;
    while (!stop && !flow.down && weft_clock_now_ns() < end_ns) {
        struct weft_msg_send send = {
            .peer = flow.peer,
            .base = memory[0],
            .total = MESSAGE_BYTES / 4,
            .elem_bytes = 4,
            .deadline_ns = WEFT_NEVER,
        };
        uint64_t seq;
        if (flow.open < MESSAGES &&
            flow.msgr.ops->send(flow.msgr.self, &send, weft_clock_now_ns(), &seq) == WEFT_OK) {
            flow.open++;
            continue;
        }
        (void)weft_driver_step(driver, 10 * WEFT_NS_PER_MS, on_events, &flow);
    }
    const struct weft_ep_counters *c = weft_ep_counters(weft_udp_ep(weft_driver_udp(driver)));
    printf("sent %llu retransmitted %llu lost %llu\n", (unsigned long long)c->data_sent,
           (unsigned long long)c->retransmitted_packets, (unsigned long long)c->lost_packets);
    weft_driver_close(driver);
    return flow.down ? fail("the connection ended") : 0;
}

/* ---- TCP ------------------------------------------------------------------------------------- */

static struct sockaddr_in address(const char *host, uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    (void)inet_pton(AF_INET, host, &addr.sin_addr);
    return addr;
}

static int recv_tcp(const char *host, uint16_t port)
{
    struct sockaddr_in addr = address(host, port);
    int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 1) != 0) {
        return fail("cannot listen");
    }
    int flow = accept(fd, NULL, NULL);
    while (!stop && flow >= 0) {
        ssize_t count = recv(flow, memory[0], MESSAGE_BYTES, 0);
        if (count <= 0) {
            break;
        }
        bytes_received += (uint64_t)count;
    }
    return 0;
}

static int send_tcp(const char *host, uint16_t port, unsigned seconds, const char *cc_name)
{
    struct sockaddr_in addr = address(host, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc_name, (socklen_t)strlen(cc_name)) != 0) {
        return fail("the kernel does not let this namespace use that congestion control");
    }
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        return fail("cannot connect");
    }
    struct timeval tick = {.tv_usec = 100000};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tick, sizeof(tick));
    uint64_t end_ns = weft_clock_now_ns() + seconds * WEFT_NS_PER_S;
    while (!stop && weft_clock_now_ns() < end_ns) {
        (void)send(fd, memory[0], 65536, MSG_NOSIGNAL);
    }
    (void)close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        return fail("usage: flow recv|send weft|tcp ADDRESS PORT [SECONDS CC]") + 1;
    }
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART: accept must end */
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    uint16_t port = (uint16_t)strtoul(argv[4], NULL, 10);
    bool tcp = strcmp(argv[2], "tcp") == 0;
    if (strcmp(argv[1], "send") == 0 && argc == 7) {
        unsigned seconds = (unsigned)strtoul(argv[5], NULL, 10);
        return tcp ? send_tcp(argv[3], port, seconds, argv[6])
                   : send_weft(argv[3], port, seconds, argv[6]);
    }
    int status = tcp ? recv_tcp(argv[3], port) : recv_weft(argv[3], port);
    printf("bytes %llu\n", (unsigned long long)bytes_received);
    return status;
}
