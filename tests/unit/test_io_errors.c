/* Errors of the kernel when it rejects a datagram: each from a fake kernel and, in a network
 * namespace with a short MTU (skipped if none can be created), from the real kernel. */
#define _GNU_SOURCE /* sendmmsg, unshare */

#include "io/driver.h"
#include "io/sock_addr.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"
#include "io/udp/tx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The simulated kernel: fails `times` times with `number`, then succeeds; datagrams longer than
 * `mtu` always fail. */
static struct {
    int number;
    int times;
    uint32_t mtu;
    uint32_t taken;
    uint32_t calls;
} kernel;

static uint32_t message_bytes(const struct msghdr *hdr)
{
    uint32_t bytes = 0;
    for (size_t i = 0; i < hdr->msg_iovlen; i++) {
        bytes += (uint32_t)hdr->msg_iov[i].iov_len;
    }
    return bytes;
}

static int kernel_send(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    (void)fd;
    assert_true((flags & MSG_DONTWAIT) != 0);
    kernel.calls++;
    if (kernel.times > 0) {
        kernel.times--;
        errno = kernel.number;
        return -1;
    }
    int sent = 0;
    for (unsigned int i = 0; i < count; i++) {
        bool segmented = messages[i].msg_hdr.msg_controllen > 0;
        uint32_t bytes = message_bytes(&messages[i].msg_hdr);
        if (bytes > kernel.mtu) {
            errno = segmented ? EINVAL : EMSGSIZE; /* as Linux reports it */
            return sent > 0 ? sent : -1;
        }
        messages[i].msg_len = bytes;
        kernel.taken++;
        sent++;
    }
    return sent;
}

static uint8_t data[65536];
static struct weft_tx bursts[WEFT_TX_BATCH];
static struct weft_socket_counters counters;
static struct weft_sender sender;
static int fd = -1;

static void fill(struct weft_tx *burst, uint32_t packets, uint32_t seg_bytes, uint32_t last_bytes)
{
    memset(burst, 0, sizeof(*burst));
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 9, &burst->addr, NULL), WEFT_OK);
    burst->packets = packets;
    burst->seg_bytes = seg_bytes;
    burst->bytes = (packets - 1) * seg_bytes + last_bytes;
    burst->iov_count = 1;
    burst->iov[0] = (struct weft_ep_iov){.base = data, .bytes = burst->bytes};
}

static int setup(void **state)
{
    (void)state;
    struct weft_sock_request request = {.buffer_bytes = 1 << 18};
    struct weft_sock_facts facts;
    struct weft_addr any;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 0, &any, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&any, &request, &fd, &facts, NULL), WEFT_OK);
    memset(&kernel, 0, sizeof(kernel));
    memset(&counters, 0, sizeof(counters));
    kernel.mtu = 65535;
    weft_sender_init(&sender, fd, AF_INET, true);
    sender.send = kernel_send;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)close(fd);
    return 0;
}

static void say(int number, int times)
{
    kernel.number = number;
    kernel.times = times;
    fill(&bursts[0], 3, 1000, 500);
    fill(&bursts[1], 1, 200, 200);
    weft_sender_send(&sender, bursts, 2, &counters);
}

static void a_full_socket_is_waited_for_once(void **state)
{
    (void)state;
    say(EAGAIN, 1);
    assert_int_equal(kernel.taken, 2);
    assert_int_equal(counters.send_blocked, 1);
    assert_int_equal(counters.send_dropped, 0);
    assert_int_equal(counters.datagrams_sent, 4);
}

static void a_socket_that_stays_full_loses_packets(void **state)
{
    (void)state;
    say(EAGAIN, 1000);
    assert_int_equal(kernel.taken, 0);
    assert_int_equal(counters.send_dropped, 4);
    assert_int_equal(counters.datagrams_sent, 0);
    assert_true(kernel.calls <= 4); /* no busy loop */
    assert_true(sender.gso);
}

static void a_full_device_is_the_same(void **state)
{
    (void)state;
    say(ENOBUFS, 1);
    assert_int_equal(kernel.taken, 2);
    assert_int_equal(counters.send_blocked, 1);
    say(ENOBUFS, 1000);
    assert_int_equal(counters.send_dropped, 4);
    assert_true(sender.gso);
}

static void news_of_other_datagrams_are_read_off(void **state)
{
    (void)state;
    static const int numbers[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(numbers); i++) {
        uint32_t before = kernel.taken;
        say(numbers[i], 3);
        assert_int_equal(kernel.taken, before + 2);
        assert_int_equal(counters.socket_errors, 3 * (i + 1));
    }
    assert_int_equal(counters.send_dropped, 0);
    say(ECONNREFUSED, 1000); /* permanently: dropped, without waiting */
    assert_int_equal(counters.send_dropped, 4);
    assert_true(kernel.calls < 60);
}

static void an_interrupted_call_is_repeated(void **state)
{
    (void)state;
    say(EINTR, 5);
    assert_int_equal(kernel.taken, 2);
    assert_int_equal(counters.send_dropped, 0);
}

static void too_long_is_told_and_gso_stays(void **state)
{
    (void)state;
    kernel.mtu = 1400;
    fill(&bursts[0], 1, 1456, 1456);
    fill(&bursts[1], 1, 1300, 1300);
    weft_sender_send(&sender, bursts, 2, &counters);
    assert_int_equal(kernel.taken, 1);
    assert_int_equal(counters.send_dropped, 1);
    assert_int_equal(sender.too_big_bytes, 1456);
    assert_memory_equal(&sender.too_big_addr, &bursts[0].addr, sizeof(bursts[0].addr));
    sender.too_big_bytes = 0;
    fill(&bursts[0], 3, 1456, 100);
    weft_sender_send(&sender, bursts, 1, &counters);
    assert_int_equal(sender.too_big_bytes, 1456);
    assert_int_equal(counters.gso_refused, 1);
    assert_int_equal(kernel.taken, 2); /* the short last one */
    assert_true(sender.gso);
}

static void refused_gso_without_a_long_datagram_is_off(void **state)
{
    (void)state;
    kernel.mtu = 1400; /* limit of a whole message: this kernel does not split GSO bursts */
    fill(&bursts[0], 3, 1000, 500);
    weft_sender_send(&sender, bursts, 1, &counters);
    assert_int_equal(kernel.taken, 3);
    assert_false(sender.gso);
    assert_int_equal(sender.too_big_bytes, 0);
}

static int mtu_discover(void)
{
    int value = -1;
    socklen_t bytes = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_IP, 10 /* IP_MTU_DISCOVER */, &value, &bytes), 0);
    return value;
}

static void fragments_are_a_matter_of_the_burst(void **state)
{
    (void)state;
    assert_int_equal(mtu_discover(), 3); /* PROBE */
    fill(&bursts[0], 1, 1456, 1456);
    bursts[0].fragment = true;
    weft_sender_send(&sender, bursts, 1, &counters);
    assert_int_equal(mtu_discover(), 0); /* DONT */
    fill(&bursts[0], 1, 1456, 1456);
    fill(&bursts[1], 1, 1456, 1456);
    bursts[0].fragment = true;
    weft_sender_send(&sender, bursts, 2, &counters);
    assert_int_equal(mtu_discover(), 3);
    assert_int_equal(kernel.taken, 3);
}

/* ---- the real kernel, in a namespace of its own ---------------------------------------------- */

static bool loopback_mtu(int mtu)
{
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof(request.ifr_name), "lo");
    request.ifr_mtu = mtu;
    int control = socket(AF_INET, SOCK_DGRAM, 0);
    bool ok = ioctl(control, SIOCSIFMTU, &request) == 0;
    request.ifr_flags = IFF_UP;
    ok = ok && ioctl(control, SIOCSIFFLAGS, &request) == 0;
    (void)close(control);
    return ok;
}

struct events {
    struct weft_msgr msgr;
    uint32_t ups, sents;
    enum weft_msg_outcome outcome;
};

static void on_step(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct events *e = arg;
    struct weft_msg_event event;
    while (e->msgr.ops->poll(e->msgr.self, &event)) {
        e->ups += event.type == WEFT_EVENT_PEER_UP;
        e->sents += event.type == WEFT_EVENT_SENT;
        e->outcome = event.type == WEFT_EVENT_SENT ? event.outcome : e->outcome;
    }
}

struct ends {
    struct weft_driver *driver[2];
    struct events events[2];
    weft_peer peer;
};

static bool transfer(struct ends *ends, uint64_t tag)
{
    static float from[100000];
    static float to[100000];
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY, .sink = WEFT_SINK_COPY, .tag = tag,
                                     .tag_mask = UINT64_MAX, .memory = to,
                                     .memory_bytes = sizeof(to), .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = ends->peer, .base = from, .total = 100000,
                                 .elem_bytes = 4, .tag = tag, .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    uint32_t before = ends->events[0].sents;
    for (uint32_t i = 0; i < 100000; i++) {
        from[i] = (float)(i % 1000 + tag);
    }
    struct weft_msgr msgr = weft_driver_msgr(ends->driver[1]);
    if (msgr.ops->expect(msgr.self, &expect, &id) != WEFT_OK) {
        return false;
    }
    msgr = weft_driver_msgr(ends->driver[0]);
    if (msgr.ops->send(msgr.self, &send, 0, &seq) != WEFT_OK) {
        return false;
    }
    for (int i = 0; i < 5000 && ends->events[0].sents == before; i++) {
        (void)weft_driver_step(ends->driver[i % 2], WEFT_NS_PER_MS, on_step, &ends->events[i % 2]);
    }
    return ends->events[0].sents == before + 1 && memcmp(from, to, sizeof(from)) == 0;
}

static bool ends_open(struct ends *ends, const char *host, uint16_t sure)
{
    for (int i = 0; i < 2; i++) {
        struct weft_udp_config config;
        weft_udp_config_default(&config);
        config.host = host;
        config.ep.packet_bytes = 8972;
        config.ep.packet_bytes_sure = sure;
        config.ep.accept = i == 1;
        if (weft_udp_open(&config, &ends->driver[i], NULL) != WEFT_OK) {
            return false;
        }
        ends->events[i].msgr = weft_driver_msgr(ends->driver[i]);
    }
    return weft_driver_connect(ends->driver[0], host, weft_driver_port(ends->driver[1]),
                               &ends->peer, NULL) == WEFT_OK;
}

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Begins on a device of 9,000 bytes that becomes one of 1,400 between two messages. */
static void namespace_child(const char *host, int header_bytes)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !loopback_mtu(9000)) {
        _exit(77);
    }
    struct ends ends = {0};
    if (!ends_open(&ends, host, 1200)) {
        _exit(77);
    }
    struct weft_ep *ep = weft_udp_ep(weft_driver_udp(ends.driver[0]));
    MUST(transfer(&ends, 1));
    for (int i = 0; i < 200; i++) { /* the search ends */
        (void)weft_driver_step(ends.driver[i % 2], WEFT_NS_PER_MS, on_step, &ends.events[i % 2]);
    }
    uint32_t most = 9000 - (uint32_t)header_bytes;
    MUST(weft_ep_packet_bytes(ep, ends.peer) >= most - 32);
    MUST(weft_ep_packet_bytes(ep, ends.peer) <= most + 16);
    uint64_t dropped = weft_udp_counters(weft_driver_udp(ends.driver[0]))->send_dropped;
    MUST(loopback_mtu(1400));
    MUST(transfer(&ends, 2)); /* its grid is too long: reported, then sent in fragments */
    MUST(weft_udp_counters(weft_driver_udp(ends.driver[0]))->send_dropped > dropped);
    MUST(weft_ep_counters(ep)->mtu_too_big > 0);
    MUST(weft_ep_packet_bytes(ep, ends.peer) <= 1400);
    MUST(transfer(&ends, 3));
    struct weft_udp_facts facts;
    weft_udp_facts(weft_driver_udp(ends.driver[0]), &facts);
    MUST(facts.gso);
    _exit(0);
}

static void real_kernel(const char *host, int header_bytes)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        namespace_child(host, header_bytes);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no network namespace with %s here: skipped\n", host);
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_real_device_that_shrinks(void **state)
{
    (void)state;
    real_kernel("127.0.0.1", 28);
}

static void a_real_device_that_shrinks_ipv6(void **state)
{
    (void)state;
    real_kernel("::1", 48);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_full_socket_is_waited_for_once),
        TEST(a_socket_that_stays_full_loses_packets),
        TEST(a_full_device_is_the_same),
        TEST(news_of_other_datagrams_are_read_off),
        TEST(an_interrupted_call_is_repeated),
        TEST(too_long_is_told_and_gso_stays),
        TEST(refused_gso_without_a_long_datagram_is_off),
        TEST(fragments_are_a_matter_of_the_burst),
        cmocka_unit_test(a_real_device_that_shrinks),
        cmocka_unit_test(a_real_device_that_shrinks_ipv6),
    };
    return cmocka_run_group_tests_name("io errors", tests, NULL, NULL);
}
