/* Bursts over real sockets: udp_rx delivers every datagram sent by udp_tx unchanged, with and
 * without GSO and GRO. */
#include "io/sock_addr.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"
#include "io/udp/tx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, WAIT_MS = 120000, DATAGRAMS_MAX = 256 };

struct pair {
    int from_fd;
    int to_fd;
    struct weft_addr to;
    struct weft_sender sender;
    struct weft_rx *rx;
    struct weft_socket_counters counters;
    struct weft_tx *bursts;
    /* Received datagrams, in order. */
    uint32_t count;
    uint32_t bytes[DATAGRAMS_MAX];
    uint8_t first[DATAGRAMS_MAX]; /* first byte of each */
    enum weft_ecn ecn[DATAGRAMS_MAX];
    uint64_t sum; /* sum of all bytes, weighted by position, so that it depends on the order */
};

static int open_socket(const char *host, bool gro, struct weft_addr *addr_p)
{
    struct weft_sock_request request = {.buffer_bytes = BUFFER_BYTES, .gro = gro};
    struct weft_sock_facts facts;
    struct weft_addr any;
    int fd;
    assert_int_equal(weft_sock_addr_parse(host, 0, &any, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&any, &request, &fd, &facts, NULL), WEFT_OK);
    assert_int_equal(weft_sock_addr_parse(host, facts.port, addr_p, NULL), WEFT_OK);
    return fd;
}

static struct pair *pair_new(bool gso, bool gro)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    struct weft_addr from;
    pair->from_fd = open_socket("127.0.0.1", false, &from);
    pair->to_fd = open_socket("127.0.0.1", gro, &pair->to);
    weft_sender_init(&pair->sender, pair->from_fd, AF_INET, gso);
    assert_int_equal(weft_rx_new(pair->to_fd, &pair->rx), WEFT_OK);
    pair->bursts = calloc(WEFT_TX_BATCH, sizeof(*pair->bursts));
    assert_non_null(pair->bursts);
    return pair;
}

static void pair_free(struct pair *pair)
{
    weft_rx_free(pair->rx);
    (void)close(pair->from_fd);
    (void)close(pair->to_fd);
    free(pair->bursts);
    free(pair);
}

static void take(struct pair *pair, const struct weft_rx_buffer *buffer)
{
    for (uint32_t at = 0; at < buffer->count; at += buffer->segment_bytes) {
        uint32_t left = buffer->count - at;
        uint32_t bytes = left < buffer->segment_bytes ? left : buffer->segment_bytes;
        assert_true(pair->count < DATAGRAMS_MAX);
        pair->bytes[pair->count] = bytes;
        pair->first[pair->count] = buffer->bytes[at];
        pair->ecn[pair->count] = buffer->ecn;
        for (uint32_t i = 0; i < bytes; i++) {
            pair->sum = pair->sum * 31 + buffer->bytes[at + i];
        }
        pair->count++;
    }
}

/* Receive until `count` datagrams have arrived. */
static void receive(struct pair *pair, uint32_t count)
{
    struct pollfd wait = {.fd = pair->to_fd, .events = POLLIN};
    while (pair->count < count && poll(&wait, 1, WAIT_MS) == 1) {
        const struct weft_rx_buffer *buffers;
        uint32_t buffer_count;
        uint64_t now_ns;
        (void)weft_rx_batch(pair->rx, false, &pair->counters, &now_ns, &buffers, &buffer_count);
        for (uint32_t i = 0; i < buffer_count; i++) {
            assert_true(buffers[i].at_ns <= now_ns);
            take(pair, &buffers[i]);
        }
    }
    assert_int_equal(pair->count, count);
}

/* A burst of `packets` datagrams with arbitrary buffer boundaries, so that a datagram spans several
 * buffers, and a buffer several datagrams. */
static void fill(struct pair *pair, struct weft_tx *burst, uint32_t packets, uint32_t seg_bytes,
                 uint32_t last_bytes)
{
    static uint8_t data[65536];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    burst->addr = pair->to;
    burst->packets = packets;
    burst->seg_bytes = seg_bytes;
    burst->bytes = (packets - 1) * seg_bytes + last_bytes;
    burst->iov_count = 0;
    uint32_t at = 0;
    for (uint32_t piece = 700; at < burst->bytes; piece = piece * 5 % 1999 + 1) {
        uint32_t left = burst->bytes - at;
        bool final = burst->iov_count + 1 == WEFT_ARRAY_COUNT(burst->iov);
        uint32_t bytes = final || piece > left ? left : piece;
        burst->iov[burst->iov_count++] = (struct weft_ep_iov){.base = data + at, .bytes = bytes};
        at += bytes;
    }
}

static uint64_t sum_through(bool gso, bool gro)
{
    struct pair *pair = pair_new(gso, gro);
    fill(pair, &pair->bursts[0], 40, 1456, 1456);
    fill(pair, &pair->bursts[1], 1, 1456, 90);
    fill(pair, &pair->bursts[2], 64, 600, 17);
    fill(pair, &pair->bursts[3], 2, 1456, 1455);
    weft_sender_send(&pair->sender, pair->bursts, 4, &pair->counters);
    receive(pair, 107);
    assert_int_equal(pair->bytes[39], 1456);
    assert_int_equal(pair->bytes[40], 90);
    assert_int_equal(pair->bytes[104], 17);
    assert_int_equal(pair->bytes[106], 1455);
    assert_int_equal(pair->counters.datagrams_sent, 107);
    assert_int_equal(pair->counters.bytes_sent, 40 * 1456 + 90 + 63 * 600 + 17 + 1456 + 1455);
    assert_int_equal(pair->counters.send_dropped, 0);
    assert_int_equal(pair->counters.gso_refused, gso ? 0 : 3);
    assert_int_equal(pair->counters.bursts_sent, gso ? 4 : 107);
    if (gso && gro) {
        assert_true(pair->counters.buffers_received < 107);
    }
    uint64_t sum = pair->sum;
    pair_free(pair);
    return sum;
}

static void same_bytes_with_and_without_offloads(void **state)
{
    (void)state;
    uint64_t sum = sum_through(true, true);
    assert_true(sum != 0);
    assert_true(sum_through(true, false) == sum);
    assert_true(sum_through(false, true) == sum);
    assert_true(sum_through(false, false) == sum);
}

/* A kernel refuses GSO on a socket without UDP checksums (EINVAL), as on a route that cannot
 * compute them; it accepts single datagrams. */
static void refused_gso_falls_back_for_good(void **state)
{
    (void)state;
    struct pair *pair = pair_new(true, true);
    int on = 1;
    assert_int_equal(setsockopt(pair->from_fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
    fill(pair, &pair->bursts[0], 1, 300, 300);
    fill(pair, &pair->bursts[1], 5, 900, 450);
    fill(pair, &pair->bursts[2], 1, 200, 200);
    fill(pair, &pair->bursts[3], 3, 800, 800);
    weft_sender_send(&pair->sender, pair->bursts, 4, &pair->counters);
    receive(pair, 10);
    assert_false(pair->sender.gso);
    assert_int_equal(pair->bytes[5], 450);
    assert_int_equal(pair->counters.gso_refused, 2);
    assert_int_equal(pair->counters.datagrams_sent, 10);
    assert_int_equal(pair->counters.send_dropped, 0);
    pair_free(pair);
}

static void marks_arrive(void **state)
{
    (void)state;
    struct pair *pair = pair_new(true, true);
    static const enum weft_ecn marks[] = {WEFT_ECN_ECT0, WEFT_ECN_NOT, WEFT_ECN_CE, WEFT_ECN_ECT1};
    for (uint32_t i = 0; i < 4; i++) {
        fill(pair, &pair->bursts[i], 2, 500, 500);
        pair->bursts[i].ecn = marks[i];
    }
    weft_sender_send(&pair->sender, pair->bursts, 4, &pair->counters);
    receive(pair, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(pair->ecn[i], marks[i / 2]);
    }
    pair_free(pair);
}

/* Short bursts use a separate call, which leaves the ECN mark to the socket: each has the bytes and
 * the mark of its burst nevertheless, whatever was sent before. */
static void short_ones_arrive_as_they_are(void **state)
{
    (void)state;
    enum { ROUND = 40 };
    static const enum weft_ecn marks[] = {WEFT_ECN_ECT0, WEFT_ECN_NOT, WEFT_ECN_ECT0};
    struct pair *pair = pair_new(true, false);
    uint64_t sum = 0, bytes_sent = 0;
    for (uint32_t i = 0; i < 3 * ROUND; i++) {
        struct weft_tx *burst = &pair->bursts[0];
        enum weft_ecn mark = i % 11 == 0 ? WEFT_ECN_ECT1 : marks[i / ROUND];
        fill(pair, burst, 1, 1 + i * 12, 1 + i * 12);
        burst->ecn = mark;
        weft_sender_send(&pair->sender, pair->bursts, 1, &pair->counters);
        receive(pair, i + 1);
        for (uint32_t piece = 0; piece < burst->iov_count; piece++) {
            const uint8_t *from = burst->iov[piece].base;
            for (size_t k = 0; k < burst->iov[piece].bytes; k++) {
                sum = sum * 31 + from[k];
            }
        }
        bytes_sent += burst->bytes;
        assert_int_equal(pair->bytes[i], burst->bytes);
        assert_int_equal(pair->ecn[i], mark);
        assert_true(pair->sum == sum);
    }
    assert_int_equal(pair->counters.datagrams_sent, 3 * ROUND);
    assert_int_equal(pair->counters.bursts_sent, 3 * ROUND);
    assert_int_equal(pair->counters.bytes_sent, bytes_sent);
    pair_free(pair);
}

/* Too long for UDP: dropped and counted, and the next burst is still sent. */
static void impossible_packet_is_a_loss(void **state)
{
    (void)state;
    struct pair *pair = pair_new(true, true);
    fill(pair, &pair->bursts[0], 1, 65536, 65536);
    fill(pair, &pair->bursts[1], 2, 100, 100);
    weft_sender_send(&pair->sender, pair->bursts, 2, &pair->counters);
    receive(pair, 2);
    assert_int_equal(pair->counters.send_dropped, 1);
    assert_int_equal(pair->counters.datagrams_sent, 2);
    assert_true(pair->sender.gso);
    pair_free(pair);
}

static void on_signal(int number)
{
    (void)number;
}

struct caller {
    pthread_t whom;
    atomic_bool done;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load(&caller->done)) {
        (void)pthread_kill(caller->whom, SIGUSR1);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

static void a_signal_ends_a_sleep(void **state)
{
    (void)state;
    struct pair *pair = pair_new(true, true);
    struct caller caller = {.whom = pthread_self()};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const struct timeval limit = {.tv_sec = 100};
    pthread_t thread;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    int flags = fcntl(pair->to_fd, F_GETFL);
    assert_int_equal(fcntl(pair->to_fd, F_SETFL, flags & ~O_NONBLOCK), 0);
    assert_int_equal(setsockopt(pair->to_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    for (int i = 0; i < 20; i++) { /* by both calls */
        const struct weft_rx_buffer *buffers;
        uint32_t count;
        uint64_t now_ns;
        assert_int_equal(weft_rx_batch(pair->rx, true, &pair->counters, &now_ns, &buffers, &count),
                         0);
        assert_true(weft_rx_interrupted(pair->rx));
    }
    atomic_store(&caller.done, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pair_free(pair);
}

static void full_receiver_is_counted(void **state)
{
    (void)state;
    struct pair *pair = pair_new(true, true);
    /* 200 bursts of 58 KB against a buffer of 1 MB (2 MB in the kernel's count). */
    fill(pair, &pair->bursts[0], 40, 1456, 1456);
    for (int i = 0; i < 200; i++) {
        weft_sender_send(&pair->sender, pair->bursts, 1, &pair->counters);
    }
    struct pollfd wait = {.fd = pair->to_fd, .events = POLLIN};
    while (poll(&wait, 1, 0) == 1) {
        const struct weft_rx_buffer *buffers;
        uint32_t count;
        uint64_t now_ns;
        (void)weft_rx_batch(pair->rx, false, &pair->counters, &now_ns, &buffers, &count);
    }
    /* The count is reported with the next datagram that fits. */
    weft_sender_send(&pair->sender, pair->bursts, 1, &pair->counters);
    receive(pair, 40);
    assert_true(pair->counters.kernel_drops > 0);
    pair_free(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_with_and_without_offloads),
        cmocka_unit_test(refused_gso_falls_back_for_good),
        cmocka_unit_test(marks_arrive),
        cmocka_unit_test(short_ones_arrive_as_they_are),
        cmocka_unit_test(impossible_packet_is_a_loss),
        cmocka_unit_test(full_receiver_is_counted),
        cmocka_unit_test(a_signal_ends_a_sleep),
    };
    return cmocka_run_group_tests_name("io burst", tests, NULL, NULL);
}
