/* Failures specific to TCP: broken connections, connections from strangers, bytes changed in
 * transit. Common behaviour with UDP is in test_io_driver.c. This test accesses internal state. */
#define _GNU_SOURCE /* accept4 */
#include "driver_pair.h"
#include "io/tcp/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VERSION = WEFT_WIRE_VERSION << 4 };

static const struct variant tcp_auth = {"tcp auth", WEFT_DRIVER_TCP, WEFT_MODE_AUTH};
static const struct variant tcp_none = {"tcp none", WEFT_DRIVER_TCP, WEFT_MODE_NONE};

struct ends {
    struct node a;
    struct node b;
    weft_peer peer;
};

static void ends_open(struct ends *ends, const struct variant *v)
{
    struct weft_driver_config config = node_config(v, 1);
    node_open(&ends->a, &config);
    config = node_config(v, 2);
    node_open(&ends->b, &config);
    ends->peer = node_connect(&ends->a, &ends->b);
    nodes_await(&ends->a, &ends->b, WEFT_EVENT_PEER_UP, 0);
    nodes_await(&ends->b, &ends->a, WEFT_EVENT_PEER_UP, 0);
}

static void ends_close(struct ends *ends)
{
    node_close(&ends->a);
    node_close(&ends->b);
}

/* The messenger inside a node: its message interface is bound to it. */
static struct weft_tcp *inside(const struct node *n)
{
    return n->msgr.self;
}

static uint32_t conns_of(const struct node *n)
{
    const struct weft_tcp *t = inside(n);
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        count += t->conns[i].state != TCP_CONN_FREE;
    }
    return count;
}

static struct weft_driver_counters counters_of(const struct node *n)
{
    struct weft_driver_counters counters;
    weft_driver_counters(n->driver, &counters);
    return counters;
}

/* ---- connections that break ------------------------------------------------------------------ */

/* A break in the middle of messages in both directions: both ends get an event, the senders with
 * outcome UNKNOWN, and a new connection works. */
static void test_torn(void **state)
{
    enum { COUNT = 4 << 20 };
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_auth);
    float *x = ramp(COUNT, 1.0F);
    float *y = calloc(COUNT, sizeof(float));
    struct weft_msg_expect expect = {.sink = WEFT_SINK_COPY, .tag = 1, .memory = y,
                                     .memory_bytes = COUNT * 4ull, .user = 1};
    struct weft_msg_send send = {.peer = ends.peer, .base = x, .total = COUNT, .tag = 1, .user = 1};
    node_expect(&ends.b, expect);
    node_send(&ends.a, send);
    while (node_find(&ends.b, WEFT_EVENT_OPEN, 1) == NULL) {
        nodes_turn(&ends.a, &ends.b);
    }
    struct weft_tcp *t = inside(&ends.a);
    assert_int_equal(shutdown(t->peers[ends.peer].conn->fd, SHUT_RDWR), 0);
    const struct node_event *s = nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, 1);
    const struct node_event *r = nodes_await(&ends.b, &ends.a, WEFT_EVENT_RECEIVED, 1);
    assert_int_equal(s->e.outcome, WEFT_MSG_UNKNOWN);
    assert_int_equal(s->e.received, 0);
    assert_int_equal(weft_bits_count(s->mask, s->e.chunks), 0);
    assert_int_equal(r->e.outcome, WEFT_MSG_SHORT);
    assert_int_equal(weft_bits_count(r->mask, r->e.chunks), r->e.received);
    for (uint32_t c = 0; c < r->e.chunks; c++) {
        bool there = y[(size_t)c * r->e.chunk_elems + 1] != 0.0F;
        assert_int_equal(there, weft_bits_test(r->mask, c));
    }
    assert_int_equal(nodes_await(&ends.a, &ends.b, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_RESTARTED);
    assert_int_equal(nodes_await(&ends.b, &ends.a, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_RESTARTED);
    assert_int_equal(conns_of(&ends.a) + conns_of(&ends.b), 0);

    ends.a.count = ends.b.count = 0;
    ends.peer = node_connect(&ends.a, &ends.b);
    send.peer = ends.peer;
    node_expect(&ends.b, expect);
    node_send(&ends.a, send);
    assert_int_equal(nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, 1)->e.outcome,
                     WEFT_MSG_COMPLETE);
    assert_memory_equal(x, y, COUNT * sizeof(float));
    free(x);
    free(y);
    ends_close(&ends);
}

/* A process that reconnects while its old connection seems alive replaces that connection. */
static void test_replaced(void **state)
{
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_auth);
    struct node again;
    struct weft_driver_config config = node_config(&tcp_auth, 1);
    config.udp.ep.incarnation = inside(&ends.a)->config.ep.incarnation;
    node_open(&again, &config);
    node_connect(&again, &ends.b);
    nodes_await(&again, &ends.b, WEFT_EVENT_PEER_UP, 0);
    assert_int_equal(nodes_await(&ends.b, &again, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                     WEFT_DOWN_RESTARTED);
    assert_int_equal(node_count(&ends.b, WEFT_EVENT_PEER_UP), 2);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_PEER_DOWN, 0);
    node_close(&again);
    ends_close(&ends);
}

/* An event outside of a step, or while its last bytes were written, is reported by the next step at
 * once: no later packet would wake it. */
static void test_told_at_once(void **state)
{
    enum { COUNT = 8 << 20 };
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_auth);
    float *x = ramp(COUNT, 1.0F);
    float *y = calloc(COUNT, sizeof(float));
    assert_non_null(y);
    /* The receiver's timeout closes the message while the sender's socket is full: the sender's
     * memory is returned when that batch is written. */
    node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 1, .memory = y,
                                                  .memory_bytes = COUNT * 4ull,
                                                  .timeout_ns = 1, .user = 1});
    node_send(&ends.a, (struct weft_msg_send){.peer = ends.peer, .base = x, .total = COUNT,
                                              .tag = 1, .user = 1});
    const struct weft_tcp *t = inside(&ends.a);
    bool left = false;
    while (node_find(&ends.a, WEFT_EVENT_SENT, 1) == NULL) {
        uint64_t sleeps = counters_of(&ends.a).socket.sleeps;
        left = left || t->event_count > 0;
        (void)weft_driver_step(ends.a.driver, t->event_count > 0 ? WEFT_NS_PER_S : 0, node_handle,
                               &ends.a);
        assert_int_equal(counters_of(&ends.a).socket.sleeps, sleeps);
        for (int i = 0; i < 8; i++) {
            (void)weft_driver_step(ends.b.driver, 0, node_handle, &ends.b);
        }
    }
    assert_true(left); /* a step has ended without reporting SENT */
    assert_int_equal(node_find(&ends.a, WEFT_EVENT_SENT, 1)->e.outcome, WEFT_MSG_SHORT);
    /* The end of a connection, requested between two steps. */
    weft_driver_disconnect(ends.a.driver, ends.peer);
    uint64_t sleeps = counters_of(&ends.a).socket.sleeps;
    (void)weft_driver_step(ends.a.driver, WEFT_NS_PER_S, node_handle, &ends.a);
    assert_int_equal(counters_of(&ends.a).socket.sleeps, sleeps);
    assert_int_equal(node_find(&ends.a, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_LOCAL);
    free(x);
    free(y);
    ends_close(&ends);
}

/* A forked child also has the descriptors, so closing one does not remove it from epoll. The parent
 * must not be woken by a closed connection. */
static void test_forked(void **state)
{
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_auth);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(600); /* in case the test ends without killing it */
        (void)pause();
        _exit(0);
    }
    node_close(&ends.a);
    nodes_await(&ends.b, NULL, WEFT_EVENT_PEER_DOWN, 0);
    assert_int_equal(conns_of(&ends.b), 0);
    bool slept = false;
    for (int i = 0; i < 20 && !slept; i++) { /* SIGCONT would end a sleep, too */
        uint64_t before_ns = weft_clock_now_ns();
        (void)weft_driver_step(ends.b.driver, 20 * WEFT_NS_PER_MS, node_handle, &ends.b);
        slept = weft_clock_now_ns() - before_ns >= 20 * WEFT_NS_PER_MS;
    }
    assert_true(slept);
    node_close(&ends.b);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A child that closes inherited descriptors does not remove the parent's connections from epoll. */
static void test_forked_close(void **state)
{
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_auth);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        weft_driver_close(ends.b.driver); /* the keys are erased, so nothing is sent */
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    float x = 1.0F;
    float y = 0.0F;
    node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 1, .memory = &y,
                                                  .memory_bytes = sizeof(y), .user = 1});
    node_send(&ends.a, (struct weft_msg_send){.peer = ends.peer, .base = &x, .total = 1, .tag = 1,
                                              .user = 1});
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, 1);
    assert_true(y == x);
    ends_close(&ends);
}

/* A peer that sent IDLE and whose host has disappeared is detected after the sleep time. */
static void test_asleep(void **state)
{
    (void)state;
    struct node a;
    struct node b;
    struct weft_driver_config config = node_config(&tcp_none, 1);
    node_open(&a, &config);
    config = node_config(&tcp_none, 2);
    config.udp.ep.sleep_timeout_ns = 50 * WEFT_NS_PER_MS;
    node_open(&b, &config);
    node_connect(&a, &b);
    nodes_await(&a, &b, WEFT_EVENT_PEER_UP, 0);
    nodes_await(&b, &a, WEFT_EVENT_PEER_UP, 0);
    nodes_run(&a, &b, 2 * WEFT_NS_PER_MS);
    weft_driver_idle(a.driver);
    uint64_t before_ns = weft_clock_now_ns();
    assert_int_equal(nodes_await(&b, NULL, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_SILENT);
    assert_true(weft_clock_now_ns() - before_ns >= 40 * WEFT_NS_PER_MS);
    node_close(&a);
    node_close(&b);
}

/* An end that did not receive for most of the peer timeout probes first, regardless of the
 * clock. */
static void test_slept(void **state)
{
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_none);
    struct weft_tcp *t = inside(&ends.a);
    uint64_t timeout_ns = t->config.ep.peer_timeout_ns;
    float x = 1.0F;
    node_send(&ends.a, (struct weft_msg_send){.peer = ends.peer, .base = &x, .total = 1, .tag = 1,
                                              .user = 1});
    /* instead of suspending the process */
    t->peers[ends.peer].quiet_ns -= timeout_ns + timeout_ns / 10;
    weft_tcp_timers(t, weft_clock_now_ns());
    assert_int_equal(t->peers[ends.peer].state, TCP_PEER_OPEN);
    assert_true(t->peers[ends.peer].pinged);
    while (t->peers[ends.peer].pinged) {
        nodes_turn(&ends.a, &ends.b);
    }
    assert_int_equal(node_count(&ends.a, WEFT_EVENT_PEER_DOWN), 0);
    ends_close(&ends);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int stranger(const struct node *to)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                               .sin_port = htons(weft_driver_port(to->driver))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    int one = 1;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t count)
{
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

/* Wait until the stranger is accepted; then extend its 5 s to ten minutes. */
static void stranger_waits(struct node *n)
{
    struct weft_tcp *t = inside(n);
    uint32_t conns = 0;
    while (conns == 0) {
        nodes_turn(n, NULL);
        conns = conns_of(n);
    }
    for (uint32_t i = 0; i < t->conns_max; i++) {
        t->conns[i].since_ns += 600 * WEFT_NS_PER_S;
    }
}

/* Run the node until the other end closes; store its last bytes in answer. */
static size_t answer_of(struct node *n, int fd, uint8_t *answer, size_t room)
{
    uint64_t end_ns = weft_clock_now_ns() + node_limit_ns;
    size_t bytes = 0;
    while (weft_clock_now_ns() < end_ns) {
        nodes_turn(n, NULL);
        ssize_t got = recv(fd, answer + bytes, room - bytes, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            assert_int_equal(close(fd), 0);
            return bytes;
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    fail_msg("the connection stays open");
    return 0;
}

static void test_garbage(void **state)
{
    (void)state;
    struct ends ends;
    uint8_t answer[256];
    ends_open(&ends, &tcp_auth);
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = stranger(&ends.b);
    say(fd, http, sizeof(http) - 1);
    assert_int_equal(answer_of(&ends.b, fd, answer, sizeof(answer)), 0);
    assert_int_equal(counters_of(&ends.b).ep.bad_class, 1);
    /* A record of maximum length instead of a handshake. */
    static uint8_t record[WEFT_WIRE_RECORD_BYTES_MAX];
    weft_wire_record_head_encode(record, WEFT_CLASS_PLAIN, WEFT_FLAG_DATA, 65532);
    fd = stranger(&ends.b);
    (void)!send(fd, record, sizeof(record), MSG_NOSIGNAL);
    assert_int_equal(answer_of(&ends.b, fd, answer, sizeof(answer)), 0);
    /* A valid class; all other fields are invalid. */
    uint8_t hello[WEFT_HELLO_BYTES];
    memset(hello, 0xee, sizeof(hello));
    hello[0] = VERSION | WEFT_CLASS_HELLO;
    fd = stranger(&ends.b);
    say(fd, hello, sizeof(hello));
    assert_int_equal(answer_of(&ends.b, fd, answer, sizeof(answer)), 0);
    assert_int_equal(counters_of(&ends.b).ep.bad_packet, 1);
    /* A peer with another version is sent the supported one. */
    hello[0] = 0x10 | WEFT_CLASS_HELLO;
    fd = stranger(&ends.b);
    say(fd, hello, sizeof(hello));
    struct weft_wire_refused refused;
    assert_int_equal(answer_of(&ends.b, fd, answer, sizeof(answer)), WEFT_REFUSED_BYTES);
    assert_int_equal(weft_wire_refused_decode(answer, WEFT_REFUSED_BYTES, &refused), WEFT_OK);
    assert_int_equal(refused.reason, WEFT_REFUSED_VERSION);
    assert_int_equal(refused.version, WEFT_WIRE_VERSION);
    assert_int_equal(weft_driver_hint(ends.b.driver), WEFT_HINT_VERSION);
    assert_int_equal(node_count(&ends.b, WEFT_EVENT_PEER_UP), 1);
    assert_int_equal(conns_of(&ends.b), 1); /* the honest peer */
    ends_close(&ends);
}

/* ---- a recorded HELLO ------------------------------------------------------------------------ */

/* A provider that counts Diffie-Hellman operations: a stranger must not be able to cause any. */
static uint64_t dh_count;
static const struct weft_crypto_ops *counted_ops;

static weft_status counted_dh(void *self, const uint8_t secret[WEFT_DH_BYTES],
                              const uint8_t public[WEFT_DH_BYTES], uint8_t shared_p[WEFT_DH_BYTES])
{
    dh_count++;
    return counted_ops->dh(self, secret, public, shared_p);
}

static void count_dh(const struct node *n)
{
    static struct weft_crypto_ops ops;
    struct weft_crypto *crypto = &inside(n)->config.ep.crypto;
    counted_ops = crypto->ops;
    ops = *crypto->ops;
    ops.dh = counted_dh;
    crypto->ops = &ops;
    dh_count = 0;
}

/* Record the first bytes of an honest worker, which connects to a socket of this test. */
static void record_hello(uint8_t hello[WEFT_HELLO_BYTES])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    struct weft_error error = {.text = ""};
    struct node honest;
    weft_peer peer;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), fd = -1;
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &bytes), 0);
    struct weft_driver_config config = node_config(&tcp_auth, 9);
    node_open(&honest, &config);
    assert_int_equal(
        weft_driver_connect(honest.driver, "127.0.0.1", ntohs(addr.sin_port), &peer, &error),
        WEFT_OK);
    ssize_t got = 0;
    while (got < WEFT_HELLO_BYTES) {
        nodes_turn(&honest, NULL);
        fd = fd >= 0 ? fd : accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        got = fd >= 0 ? recv(fd, hello, WEFT_HELLO_BYTES, MSG_PEEK) : 0;
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(listener), 0);
    node_close(&honest);
}

/* An attacker with one recorded HELLO and some descriptors. It reuses the descriptors, oldest
 * first, and either keeps each connection open or closes it at once. */
enum { REPLAY_SOCKETS = 200 };

struct replayer {
    uint8_t hello[WEFT_HELLO_BYTES];
    bool leaves;  /* closes each connection after sending HELLO */
    bool insists; /* sends HELLO again after a reply */
    int fds[REPLAY_SOCKETS];
    uint32_t sent;
};

static void replay(struct replayer *r, const struct node *to, uint32_t count)
{
    uint8_t answer[WEFT_ACCEPT_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        int *fd = &r->fds[r->sent++ % REPLAY_SOCKETS];
        if (*fd >= 0) {
            assert_int_equal(close(*fd), 0);
        }
        *fd = stranger(to);
        say(*fd, r->hello, sizeof(r->hello));
        if (r->leaves) {
            assert_int_equal(close(*fd), 0);
            *fd = -1;
        }
    }
    for (uint32_t i = 0; r->insists && i < REPLAY_SOCKETS; i++) {
        if (r->fds[i] >= 0 && recv(r->fds[i], answer, sizeof(answer), 0) > 0) {
            (void)!send(r->fds[i], r->hello, sizeof(r->hello), MSG_NOSIGNAL);
        }
    }
}

/* Thousands of copies of a HELLO with the right MAC, before and while honest workers connect: these
 * connect at their first attempts, and the copies cause almost no Diffie-Hellman operations. */
static void replayed_hello(bool leaves, bool insists)
{
    enum { BEFORE = 2000, WORKERS = 5, A_TURN = 8 };
    struct replayer r = {.leaves = leaves, .insists = insists};
    struct node server, worker[WORKERS];
    memset(r.fds, -1, sizeof(r.fds));
    record_hello(r.hello);
    struct weft_driver_config config = node_config(&tcp_auth, 1);
    config.udp.ep.peers_max = 64;
    config.udp.ep.hello_rate_max =
        1; /* after the burst of 64, so that the speed of this machine matters little */
    node_open(&server, &config);
    count_dh(&server);
    while (r.sent < BEFORE) {
        replay(&r, &server, A_TURN);
        nodes_turn(&server, NULL);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        config = node_config(&tcp_auth, 2 + w);
        node_open(&worker[w], &config);
        node_connect(&worker[w], &server);
        uint64_t end_ns = weft_clock_now_ns() + node_limit_ns;
        while (node_count(&server, WEFT_EVENT_PEER_UP) <= w) {
            replay(&r, &server, A_TURN);
            nodes_turn(&server, &worker[w]);
            assert_true(weft_clock_now_ns() < end_ns);
        }
    }
    uint32_t again = 0;
    for (uint32_t w = 0; w < WORKERS; w++) { /* each failed attempt doubles the pause */
        again += inside(&worker[w])->peers[0].retry_interval_ns > 10 * WEFT_NS_PER_MS;
    }
    print_message("%u copies, %llu Diffie-Hellmans, %u of %u workers had to try again\n", r.sent,
                  (unsigned long long)dh_count, again, (unsigned)WORKERS);
    assert_int_equal(again, 0);
    assert_in_range(dh_count, WORKERS, WORKERS + 128);
    assert_true(conns_of(&server) <= WORKERS + inside(&server)->strangers_max);
    for (uint32_t i = 0; i < REPLAY_SOCKETS; i++) {
        (void)(r.fds[i] >= 0 && close(r.fds[i]));
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        node_close(&worker[w]);
    }
    node_close(&server);
}

static void test_replayed_hello(void **state)
{
    (void)state;
    replayed_hello(false, false);
    replayed_hello(false, true);
    replayed_hello(true, false);
}

/* A COOKIE from a peer without the job key is only a failed attempt. */
static void test_false_cookie(void **state)
{
    (void)state;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    struct weft_error error = {.text = ""};
    uint8_t hello[WEFT_HELLO_BYTES], answer[WEFT_COOKIE_BYTES];
    struct node n;
    weft_peer peer;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &bytes), 0);
    struct weft_driver_config config = node_config(&tcp_auth, 9);
    node_open(&n, &config);
    assert_int_equal(
        weft_driver_connect(n.driver, "127.0.0.1", ntohs(addr.sin_port), &peer, &error), WEFT_OK);
    for (uint64_t turn = 1; turn <= 2; turn++) {
        int fd = -1;
        ssize_t got = 0;
        while (got < WEFT_HELLO_BYTES) {
            nodes_turn(&n, NULL);
            fd = fd >= 0 ? fd : accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            got = fd >= 0 ? recv(fd, hello, sizeof(hello), MSG_PEEK) : 0;
        }
        struct weft_wire_cookie cookie = {.connection_id = weft_get_u32(hello + 4)};
        struct weft_writer w = weft_writer_make(answer, sizeof(answer));
        memset(cookie.cookie, 3, sizeof(cookie.cookie));
        weft_wire_cookie_encode(&w, &cookie);
        say(fd, answer, sizeof(answer));
        while (counters_of(&n).ep.bad_tag < turn) {
            nodes_turn(&n, NULL);
        }
        assert_int_equal(close(fd), 0);
    }
    assert_int_equal(node_count(&n, WEFT_EVENT_PEER_UP), 0);
    assert_int_equal(close(listener), 0);
    node_close(&n);
}

/* The test implements the other end of a handshake in mode none, up to a first record. */
static int shaken(struct node *n)
{
    struct weft_wire_hello hello = {.mode = WEFT_MODE_NONE, .connection_id = 5, .incarnation = 6,
                                    .name = 77, .open_from = 1, .packet_bytes_max = 65000};
    uint8_t bytes[WEFT_HELLO_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_hello_encode(&w, &hello);
    int fd = stranger(n);
    say(fd, bytes, 60); /* in two pieces, then together with the first record */
    stranger_waits(n);
    nodes_run(n, NULL, 2 * WEFT_NS_PER_MS);
    say(fd, bytes + 60, sizeof(bytes) - 60);
    uint8_t accept[WEFT_ACCEPT_BYTES];
    size_t got = 0;
    while (got < sizeof(accept)) {
        nodes_turn(n, NULL);
        ssize_t more = recv(fd, accept + got, sizeof(accept) - got, 0);
        assert_true(more > 0 || (more < 0 && errno == EAGAIN));
        got += more > 0 ? (size_t)more : 0;
    }
    struct weft_wire_accept a;
    assert_int_equal(weft_wire_accept_decode(accept, sizeof(accept), &a), WEFT_OK);
    assert_int_equal(a.connection_id, 5);
    return fd;
}

static void test_first_record(void **state)
{
    (void)state;
    struct node n;
    uint8_t answer[256];
    struct weft_driver_config config = node_config(&tcp_none, 2);
    node_open(&n, &config);
    static const uint8_t ping[] = {VERSION, 0x02, 0, 3, 0, 1, WEFT_FRAME_PING};
    /* A record too long for an unauthenticated peer, and one with DATA: no connection is
     * established. */
    int fd = shaken(&n);
    uint8_t record[WEFT_WIRE_RECORD_FIRST_MAX + 8];
    memset(record, WEFT_FRAME_PING, sizeof(record));
    weft_wire_record_head_encode(record, WEFT_CLASS_PLAIN, WEFT_FLAG_CONTROL,
                                 WEFT_WIRE_RECORD_FIRST_MAX);
    say(fd, record, 10);
    assert_int_equal(answer_of(&n, fd, answer, sizeof(answer)), 0);
    fd = shaken(&n);
    weft_wire_record_head_encode(record, WEFT_CLASS_PLAIN, WEFT_FLAG_DATA, 40);
    say(fd, record, 44);
    assert_int_equal(answer_of(&n, fd, answer, sizeof(answer)), 0);
    assert_int_equal(node_count(&n, WEFT_EVENT_PEER_UP), 0);
    /* A valid handshake succeeds, also one byte at a time. */
    fd = shaken(&n);
    for (size_t i = 0; i < sizeof(ping); i++) {
        say(fd, ping + i, 1);
        nodes_run(&n, NULL, WEFT_NS_PER_MS);
    }
    assert_int_equal(node_count(&n, WEFT_EVENT_PEER_UP), 1);
    assert_int_equal(node_find(&n, WEFT_EVENT_PEER_UP, 0)->e.name, 77);
    assert_int_equal(recv(fd, answer, sizeof(answer), 0), 4 + 2 + WEFT_ACK_BYTES);
    /* A protocol violation ends the connection; CLOSE contains the reason. */
    static const uint8_t bad[] = {VERSION, 0x02, 0, 3, 0, 1, 18};
    say(fd, bad, sizeof(bad));
    assert_int_equal(answer_of(&n, fd, answer, sizeof(answer)), 4 + 2 + WEFT_CLOSE_BYTES);
    assert_int_equal(answer[6], WEFT_FRAME_CLOSE);
    assert_int_equal(answer[8], WEFT_CLOSE_PROTOCOL);
    assert_int_equal(node_find(&n, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_PROTOCOL);
    node_close(&n);
}

/* DATA that no honest sender would send. */
static void test_bad_data(void **state)
{
    static const struct weft_wire_data good = {.msg = 1, .total = 10, .chunk_elems = 5,
                                               .elem_bytes = 4, .tag = 9};
    struct weft_wire_data bad[5];
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        bad[i] = good;
    }
    bad[0].tag = 8;    /* another tag in the second chunk */
    bad[1].msg = 65;   /* its place is not free */
    bad[2].msg = 0;    /* before the first */
    bad[3].chunk = 2;  /* beyond the grid */
    bad[4].total = 11; /* another grid */
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        struct node n;
        uint8_t bytes[WEFT_WIRE_RECORD_HEAD_BYTES + WEFT_DATA_BYTES + 20] = {0};
        uint8_t answer[256];
        struct weft_driver_config config = node_config(&tcp_none, 2);
        node_open(&n, &config);
        float memory[10];
        node_expect(&n, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 9, .memory = memory,
                                                 .memory_bytes = sizeof(memory), .user = 1});
        int fd = shaken(&n);
        static const uint8_t ping[] = {VERSION, 0x02, 0, 3, 0, 1, WEFT_FRAME_PING};
        say(fd, ping, sizeof(ping));
        for (int second = 0; second < 2; second++) {
            weft_wire_record_head_encode(bytes, WEFT_CLASS_PLAIN, WEFT_FLAG_DATA,
                                         sizeof(bytes) - WEFT_WIRE_RECORD_HEAD_BYTES);
            struct weft_writer w =
                weft_writer_make(bytes + WEFT_WIRE_RECORD_HEAD_BYTES, WEFT_DATA_BYTES);
            weft_wire_data_encode(&w, second ? &bad[i] : &good);
            say(fd, bytes, sizeof(bytes));
        }
        (void)answer_of(&n, fd, answer, sizeof(answer));
        assert_int_equal(node_find(&n, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_PROTOCOL);
        const struct node_event *r = node_find(&n, WEFT_EVENT_RECEIVED, 1);
        assert_non_null(r);
        assert_int_equal(r->e.outcome, WEFT_MSG_SHORT);
        assert_int_equal(r->e.received, 1);
        node_close(&n);
    }
}

/* In one record: the end of a message, and a later message in its slot, whose sender cannot know
 * yet that the slot is free. */
static void test_too_early(void **state)
{
    (void)state;
    for (int with_data = 0; with_data < 2; with_data++) {
        struct node n;
        uint8_t answer[256];
        uint8_t bytes[256];
        struct weft_driver_config config = node_config(&tcp_none, 2);
        node_open(&n, &config);
        float memory[10];
        node_expect(&n, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 9, .memory = memory,
                                                 .memory_bytes = sizeof(memory), .user = 1});
        int fd = shaken(&n);
        static const uint8_t ping[] = {VERSION, 0x02, 0, 3, 0, 1, WEFT_FRAME_PING};
        say(fd, ping, sizeof(ping));
        struct weft_wire_data data = {.msg = 1, .total = 10, .chunk_elems = 5, .elem_bytes = 4,
                                      .tag = 9};
        struct weft_writer w = weft_writer_make(bytes + 4, sizeof(bytes) - 4);
        weft_wire_data_encode(&w, &data);
        weft_write_zeros(&w, 20);
        weft_wire_record_head_encode(bytes, WEFT_CLASS_PLAIN, WEFT_FLAG_DATA,
                                     (uint32_t)(w.at - bytes - 4));
        say(fd, bytes, (size_t)(w.at - bytes));
        uint16_t control = (uint16_t)(with_data ? WEFT_FINISH_BYTES : 2 * WEFT_FINISH_BYTES);
        uint8_t flags = with_data ? WEFT_FLAG_CONTROL | WEFT_FLAG_DATA : WEFT_FLAG_CONTROL;
        w = weft_writer_make(bytes + 4, sizeof(bytes) - 4);
        weft_write_u16(&w, control);
        for (uint32_t msg = 1; msg <= (with_data ? 1u : 65u); msg += 64) {
            struct weft_wire_frame f = {.type = WEFT_FRAME_FINISH,
                                        .finish = {.flags = WEFT_FINISH_SHORT, .msg = msg}};
            weft_wire_frame_encode(&w, &f);
        }
        if (with_data) {
            data.msg = 65;
            weft_wire_data_encode(&w, &data);
            weft_write_zeros(&w, 20);
        }
        weft_wire_record_head_encode(bytes, WEFT_CLASS_PLAIN, flags, (uint32_t)(w.at - bytes - 4));
        say(fd, bytes, (size_t)(w.at - bytes));
        (void)answer_of(&n, fd, answer, sizeof(answer));
        assert_int_equal(node_find(&n, WEFT_EVENT_PEER_DOWN, 0)->e.down, WEFT_DOWN_PROTOCOL);
        assert_int_equal(node_find(&n, WEFT_EVENT_RECEIVED, 1)->e.outcome, WEFT_MSG_SHORT);
        node_close(&n);
    }
}

/* With many silent connections the oldest are evicted, memory does not grow, and an honest peer can
 * connect. */
static void test_silent_strangers(void **state)
{
    enum { STRANGERS = 40 };
    (void)state;
    struct node n;
    struct node honest;
    struct weft_driver_config config = node_config(&tcp_auth, 2);
    node_open(&n, &config); /* 4 peers, so 4 strangers */
    int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = stranger(&n);
        nodes_turn(&n, NULL);
        assert_true(conns_of(&n) <= 4);
    }
    while (counters_of(&n).ep.hello_refused < STRANGERS - 4) {
        nodes_turn(&n, NULL);
    }
    config = node_config(&tcp_auth, 1);
    node_open(&honest, &config);
    node_connect(&honest, &n);
    nodes_await(&honest, &n, WEFT_EVENT_PEER_UP, 0);
    for (int i = 0; i < STRANGERS; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
    while (conns_of(&n) > 1) {
        nodes_turn(&n, &honest);
    }
    assert_int_equal(conns_of(&n), 1);
    node_close(&honest);
    node_close(&n);
}

/* A connection with half a HELLO is closed after 5 s. */
static void test_slow_stranger(void **state)
{
    (void)state;
    struct node n;
    struct weft_driver_config config = node_config(&tcp_auth, 2);
    node_open(&n, &config);
    int fd = stranger(&n);
    uint8_t first = VERSION | WEFT_CLASS_HELLO;
    say(fd, &first, 1);
    stranger_waits(&n);
    nodes_run(&n, NULL, 5 * WEFT_NS_PER_MS);
    assert_int_equal(conns_of(&n), 1);
    struct weft_tcp *t = inside(&n);
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < t->conns_max; i++) {
        t->conns[i].since_ns = now_ns - 4990 * WEFT_NS_PER_MS; /* instead of waiting */
    }
    /* The step sleeps until then, not for the allowed minute. */
    assert_int_equal(weft_tcp_deadline(t), now_ns + 10 * WEFT_NS_PER_MS);
    while (conns_of(&n) > 0) {
        (void)weft_driver_step(n.driver, 60 * WEFT_NS_PER_S, node_handle, &n);
    }
    uint8_t byte;
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    assert_int_equal(close(fd), 0);
    node_close(&n);
}

/* Returns whether a connection that began `ago_ns` ago still exists after a step. */
static bool stays(struct node *n, uint64_t ago_ns)
{
    struct weft_tcp *t = inside(n);
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < t->conns_max; i++) {
        t->conns[i].since_ns = now_ns - ago_ns;
    }
    (void)weft_driver_step(n->driver, 0, node_handle, n);
    return conns_of(n) == 1;
}

/* A peer may be suspended after ACCEPT and before its first packet. */
static void test_slow_friend(void **state)
{
    (void)state;
    struct node n;
    struct weft_driver_config config = node_config(&tcp_none, 2);
    node_open(&n, &config);
    int fd = shaken(&n);
    assert_true(stays(&n, 10 * WEFT_NS_PER_S));
    assert_false(stays(&n, 60 * WEFT_NS_PER_S));
    assert_int_equal(close(fd), 0);
    node_close(&n);
}

/* Without free descriptors the node stops watching its listener instead of spinning, and resumes
 * later. */
static void test_no_descriptors(void **state)
{
    (void)state;
    struct node n;
    struct node honest;
    struct weft_driver_config config = node_config(&tcp_auth, 2);
    node_open(&n, &config);
    config = node_config(&tcp_auth, 1);
    node_open(&honest, &config);
    node_connect(&honest, &n);
    struct rlimit before;
    struct rlimit none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (counters_of(&n).socket.socket_errors == 0) {
        (void)weft_driver_step(n.driver, 5 * WEFT_NS_PER_MS, node_handle, &n);
    }
    uint64_t sleeps = counters_of(&n).socket.sleeps;
    nodes_run(&n, NULL, 20 * WEFT_NS_PER_MS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(counters_of(&n).socket.sleeps - sleeps <= 120); /* 200 us each, none shorter */
    nodes_await(&honest, &n, WEFT_EVENT_PEER_UP, 0);
    node_close(&honest);
    node_close(&n);
}

/* ---- bytes changed in transit ---------------------------------------------------------------- */

/* A relay between two nodes that flips one bit of byte `at` sent by a, counted from the first byte
 * after HELLO. */
struct relay {
    int listener;
    int near;
    int far;
    uint64_t passed;
    uint64_t at;
};

static void relay_copy(struct relay *relay, int from, int to, bool change)
{
    static uint8_t bytes[65536];
    ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    if (got <= 0) {
        if (got == 0) {
            (void)shutdown(to, SHUT_WR);
        }
        return;
    }
    if (change && relay->passed <= relay->at && relay->at < relay->passed + (uint64_t)got) {
        bytes[relay->at - relay->passed] ^= 0x10;
    }
    relay->passed += change ? (uint64_t)got : 0;
    for (ssize_t done = 0; done < got;) {
        ssize_t sent = send(to, bytes + done, (size_t)(got - done), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) {
            return;
        }
        done += sent > 0 ? sent : 0;
    }
}

static void flipped(uint8_t mode, uint64_t at)
{
    struct variant v = {"", WEFT_DRIVER_TCP, mode};
    struct ends ends;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    struct weft_driver_config config = node_config(&v, 1);
    config.udp.ep.peer_timeout_ns = 2 * WEFT_NS_PER_S;
    node_open(&ends.a, &config);
    config = node_config(&v, 2);
    node_open(&ends.b, &config);
    struct relay relay = {.near = -1, .at = at};
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(relay.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(relay.listener, 4), 0);
    assert_int_equal(getsockname(relay.listener, (struct sockaddr *)&addr, &bytes), 0);
    assert_int_equal(
        weft_driver_connect(ends.a.driver, "127.0.0.1", ntohs(addr.sin_port), &ends.peer, NULL),
        WEFT_OK);
    relay.near = accept4(relay.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    relay.far = stranger(&ends.b);
    float *x = ramp(20000, 1.0F);
    float *y = calloc(20000, sizeof(float));
    node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY, .tag = 1, .memory = y,
                                                  .memory_bytes = 80000, .user = 1});
    node_send(&ends.a, (struct weft_msg_send){.peer = ends.peer, .base = x, .total = 20000,
                                              .tag = 1, .user = 1});
    uint64_t end_ns = weft_clock_now_ns() + node_limit_ns;
    while (node_find(&ends.a, WEFT_EVENT_PEER_DOWN, 0) == NULL && weft_clock_now_ns() < end_ns) {
        nodes_turn(&ends.a, &ends.b);
        relay_copy(&relay, relay.near, relay.far, true);
        relay_copy(&relay, relay.far, relay.near, false);
    }
    assert_non_null(node_find(&ends.a, WEFT_EVENT_PEER_DOWN, 0));
    assert_int_not_equal(node_find(&ends.a, WEFT_EVENT_SENT, 1)->e.outcome, WEFT_MSG_COMPLETE);
    struct weft_ep_counters ep = counters_of(&ends.b).ep;
    assert_int_equal(ep.bad_tag + ep.bad_packet + ep.bad_mode + ep.bad_key + ep.bad_class > 0, 1);
    if (node_find(&ends.b, WEFT_EVENT_PEER_UP, 0) != NULL) {
        assert_int_equal(nodes_await(&ends.b, NULL, WEFT_EVENT_PEER_DOWN, 0)->e.down,
                         WEFT_DOWN_PROTOCOL);
        const struct node_event *r = node_find(&ends.b, WEFT_EVENT_RECEIVED, 1);
        if (r != NULL) { /* messages received earlier are unchanged */
            for (uint32_t i = 0; i < 20000; i++) {
                bool there = weft_bits_test(r->mask, i / r->e.chunk_elems);
                assert_true(y[i] == (there ? x[i] : 0.0F));
            }
        }
    }
    free(x);
    free(y);
    assert_int_equal(close(relay.listener) + close(relay.near) + close(relay.far), 0);
    ends_close(&ends);
}

static void test_flipped_bits(void **state)
{
    static const uint64_t places[] = {
        1,   40,  60,    100,   119,         /* HELLO: mode, cookie, key, tag, MAC */
        120, 121, 126,   130,                /* the first record */
        200, 240, 30000, 65000, 70000, 80100 /* chunks, tags, the second record */
    };
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(places); i++) {
        flipped(i % 2 == 0 ? WEFT_MODE_AUTH : WEFT_MODE_SEAL, places[i]);
    }
}

/* ---- kernel settings ------------------------------------------------------------------------- */

static void test_tuning(void **state)
{
    (void)state;
    struct weft_driver_config config = node_config(&tcp_none, 1);
    struct weft_error error;
    struct weft_driver *driver = NULL;
    config.tcp_cc = "nonesuch";
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "nonesuch"));
    assert_non_null(strstr(error.text, "tcp_available_congestion_control"));
    config.tcp_cc = NULL;
    config.udp.loss.loss_ppm = 1;
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_UNSUPPORTED);
    config.udp.loss.loss_ppm = 0;

    struct ends ends;
    config.tcp_cc = "reno"; /* every kernel has it */
    node_open(&ends.a, &config);
    struct weft_driver_config other = node_config(&tcp_none, 2);
    other.tcp_cc = "reno";
    node_open(&ends.b, &other);
    ends.peer = node_connect(&ends.a, &ends.b);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_PEER_UP, 0);
    const struct node *nodes[] = {&ends.a, &ends.b};
    nodes_await(&ends.b, &ends.a, WEFT_EVENT_PEER_UP, 0);
    for (int i = 0; i < 2; i++) {
        char cc[16] = "";
        socklen_t bytes = sizeof(cc);
        int fd = inside(nodes[i])->peers[0].conn->fd;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, &bytes), 0);
        assert_string_equal(cc, "reno");
        struct weft_tcp_facts facts;
        weft_tcp_facts(inside(nodes[i]), &facts);
        assert_string_equal(facts.cc, "reno");
        assert_int_equal(facts.rto_min_ns, 0);
    }
    ends_close(&ends);
}

/* The option is new: if the kernel has it, test its effect, otherwise the error text. */
static void test_rto_min(void **state)
{
    (void)state;
    struct weft_driver_config config = node_config(&tcp_none, 1);
    struct weft_error error;
    struct weft_driver *driver = NULL;
    config.tcp_rto_min_ns = 20 * WEFT_NS_PER_MS;
    if (weft_driver_open(&config, &driver, &error) != WEFT_OK) {
        assert_non_null(strstr(error.text, "TCP_RTO_MIN_US"));
        assert_non_null(strstr(error.text, "ip route"));
        skip();
    }
    weft_driver_close(driver);
    config.tcp_rto_min_ns = WEFT_NS_PER_US;
    assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "its clock ticks"));
    config.tcp_rto_min_ns = 20 * WEFT_NS_PER_MS;
    struct ends ends;
    node_open(&ends.a, &config);
    config.udp.ep.name = 2;
    node_open(&ends.b, &config);
    ends.peer = node_connect(&ends.a, &ends.b);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_PEER_UP, 0);
    nodes_await(&ends.b, &ends.a, WEFT_EVENT_PEER_UP, 0);
    const struct node *nodes[] = {&ends.a, &ends.b};
    for (int i = 0; i < 2; i++) {
        struct weft_tcp_facts facts;
        weft_tcp_facts(inside(nodes[i]), &facts);
        assert_in_range(facts.rto_min_ns, 20 * WEFT_NS_PER_MS, 30 * WEFT_NS_PER_MS);
        struct tcp_info info = {0};
        socklen_t bytes = sizeof(info);
        int fd = inside(nodes[i])->peers[0].conn->fd;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
        assert_in_range(info.tcpi_rto, 1, 150000); /* us; the default is 200,000 and more */
    }
    ends_close(&ends);
}

static void test_ipv6(void **state)
{
    (void)state;
    struct ends ends;
    struct weft_error error = {.text = ""};
    struct weft_driver_config config = node_config(&tcp_auth, 1);
    config.udp.host = "::1";
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0;
    (void)close(fd);
    if (!has) {
        skip();
    }
    node_open(&ends.a, &config);
    config = node_config(&tcp_auth, 2);
    config.udp.host = "::1";
    node_open(&ends.b, &config);
    assert_int_equal(weft_driver_connect(ends.a.driver, "::1", weft_driver_port(ends.b.driver),
                                         &ends.peer, &error),
                     WEFT_OK);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_PEER_UP, 0);
    ends_close(&ends);
}

/* Held, then released at once, or at a later time and then at once: all its chunks are sent, at the
 * granted rate. */
static void test_paced(void **state)
{
    enum { COUNT = 1 << 18, BYTES = COUNT * 4 };
    static const uint64_t rate_bps = 100000000; /* 84 ms for all chunks */
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_none);
    float *x = ramp(COUNT, 1.0F);
    float *y = calloc(COUNT, sizeof(float));
    const struct weft_msgr msgr = ends.a.msgr;
    for (uint64_t again = 0; again < 2; again++) {
        uint64_t user = 1 + again, seq;
        node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY,
                                                      .tag = user,
                                                      .memory = y,
                                                      .memory_bytes = BYTES,
                                                      .user = user,
                                                      .timeout_ns = WEFT_NEVER});
        const struct weft_msg_send send = {.peer = ends.peer,
                                           .base = x,
                                           .total = COUNT,
                                           .elem_bytes = 4,
                                           .tag = user,
                                           .user = user,
                                           .held = true,
                                           .deadline_ns = WEFT_NEVER};
        uint64_t now_ns = weft_clock_now_ns();
        assert_int_equal(msgr.ops->send(msgr.self, &send, now_ns, &seq), WEFT_OK);
        struct weft_msg_pace pace = {.start_ns = now_ns + 3600 * WEFT_NS_PER_S,
                                     .rate_bps = rate_bps};
        if (again == 1) {
            assert_int_equal(msgr.ops->pace(msgr.self, ends.peer, seq, &pace, now_ns), WEFT_OK);
        }
        pace.start_ns = 0;
        assert_int_equal(msgr.ops->pace(msgr.self, ends.peer, seq, &pace, now_ns), WEFT_OK);
        nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, user);
        /* The last chunk, of 64 KB, may be sent at most 1 ms before the previous ones are due to be
         * finished. */
        uint64_t least_ns = (BYTES - 65536) * UINT64_C(8) * WEFT_NS_PER_S / rate_bps;
        assert_true(weft_clock_now_ns() - now_ns >= least_ns - 2 * WEFT_NS_PER_MS);
        assert_memory_equal(x, y, BYTES);
        memset(y, 0, BYTES);
    }
    ends_close(&ends);
    free(x);
    free(y);
}

static struct tcp_tx *tx_of(const struct ends *ends, uint64_t seq)
{
    return &inside(&ends->a)->peers[ends->peer].tx[seq & TCP_MSG_MASK];
}

static void pace_group(const struct ends *ends, uint64_t seq, uint64_t start_ns, uint64_t rate_bps)
{
    const struct weft_msgr msgr = ends->a.msgr;
    const uint64_t now_ns = weft_clock_now_ns();
    const struct weft_msg_pace pace = {.start_ns = start_ns, .rate_bps = rate_bps, .group = 2};
    assert_int_equal(msgr.ops->pace(msgr.self, ends->peer, seq, &pace, now_ns), WEFT_OK);
}

/* Messages of a group have its rate together: a chunk of one takes 524 s at 1 kbit/s, in which none
 * of the others is sent, nor one whose start passes meanwhile. A later start remains. */
static void test_paced_group(void **state)
{
    enum { MESSAGES = 5, COUNT = 1 << 15, BYTES = COUNT * 4 };
    static const uint64_t rate_bps = 100000000;
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_none);
    const struct weft_msgr msgr = ends.a.msgr;
    float *x = ramp(COUNT, 1.0F);
    float *y = calloc((size_t)MESSAGES * COUNT, sizeof(float));
    uint64_t seq[MESSAGES], now_ns = weft_clock_now_ns();
    for (uint64_t i = 0; i < MESSAGES; i++) {
        node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY,
                                                      .tag = i,
                                                      .memory = y + i * COUNT,
                                                      .memory_bytes = BYTES,
                                                      .user = i,
                                                      .timeout_ns = WEFT_NEVER});
        const struct weft_msg_send send = {.peer = ends.peer,
                                           .base = x,
                                           .total = i == 0 ? COUNT / 4 : COUNT,
                                           .elem_bytes = 4,
                                           .tag = i,
                                           .user = i,
                                           .held = true,
                                           .deadline_ns = WEFT_NEVER};
        assert_int_equal(msgr.ops->send(msgr.self, &send, now_ns, &seq[i]), WEFT_OK);
    }
    const struct weft_msg_pace none = {.group = WEFT_MSG_PACE_GROUPS + 1};
    assert_int_equal(msgr.ops->pace(msgr.self, ends.peer, seq[0], &none, now_ns), WEFT_INVALID);
    for (uint64_t i = 0; i < 3; i++) {
        pace_group(&ends, seq[i], 0, 1000);
    }
    pace_group(&ends, seq[4], now_ns + 3600 * WEFT_NS_PER_S, 1000);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, 0); /* its only chunk */
    pace_group(&ends, seq[3], weft_clock_now_ns() + WEFT_NS_PER_MS, 1000);
    nodes_run(&ends.a, &ends.b, 2 * WEFT_NS_PER_MS);
    pace_group(&ends, seq[2], 0, 1000);
    nodes_run(&ends.a, &ends.b, WEFT_NS_PER_MS);
    for (uint64_t i = 1; i < MESSAGES; i++) {
        assert_int_equal(tx_of(&ends, seq[i])->sent_most, 0);
    }
    now_ns = weft_clock_now_ns();
    for (uint64_t i = 1; i < 4; i++) {
        pace_group(&ends, seq[i], 0, rate_bps);
    }
    for (uint64_t i = 1; i < 4; i++) {
        nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, i);
        assert_memory_equal(x, y + i * COUNT, BYTES);
    }
    const uint64_t least_ns = (3 * BYTES - 65536) * UINT64_C(8) * WEFT_NS_PER_S / rate_bps;
    assert_true(weft_clock_now_ns() - now_ns >= least_ns - 2 * WEFT_NS_PER_MS);
    assert_int_equal(msgr.ops->withdraw(msgr.self, ends.peer, seq[4], now_ns), WEFT_OK);
    nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, 4);
    ends_close(&ends);
    free(x);
    free(y);
}

/* Messages that the sender withdrew are never seen by the receiver: the next one may be more than a
 * window ahead of the newest. */
static void test_withdrawn(void **state)
{
    enum { WITHDRAWN = 70, ROUNDS = 2 };
    (void)state;
    struct ends ends;
    ends_open(&ends, &tcp_none);
    const struct weft_msgr msgr = ends.a.msgr;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct weft_msg_send send = {.peer = ends.peer,
                                     .base = x,
                                     .total = 8,
                                     .elem_bytes = 4,
                                     .tag = 1,
                                     .user = 1000 * (1 + round),
                                     .held = true,
                                     .deadline_ns = WEFT_NEVER};
        for (int i = 0; i < WITHDRAWN; i++) {
            uint64_t seq, now_ns = weft_clock_now_ns();
            send.user++;
            assert_int_equal(msgr.ops->send(msgr.self, &send, now_ns, &seq), WEFT_OK);
            assert_int_equal(msgr.ops->withdraw(msgr.self, ends.peer, seq, now_ns), WEFT_OK);
            nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, send.user);
        }
        memset(y, 0, sizeof(y));
        node_expect(&ends.b, (struct weft_msg_expect){.sink = WEFT_SINK_COPY,
                                                      .tag = 1,
                                                      .memory = (uint8_t *)y,
                                                      .memory_bytes = sizeof(y),
                                                      .user = round,
                                                      .timeout_ns = WEFT_NEVER});
        send.user = round;
        send.held = false;
        uint64_t seq;
        assert_int_equal(msgr.ops->send(msgr.self, &send, weft_clock_now_ns(), &seq), WEFT_OK);
        assert_int_equal(seq, (1 + round) * (WITHDRAWN + 1));
        nodes_await(&ends.a, &ends.b, WEFT_EVENT_SENT, round);
        assert_memory_equal(x, y, sizeof(y));
    }
    assert_int_equal(node_count(&ends.a, WEFT_EVENT_PEER_DOWN), 0);
    assert_int_equal(node_count(&ends.b, WEFT_EVENT_PEER_DOWN), 0);
    ends_close(&ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn),           cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_told_at_once),   cmocka_unit_test(test_forked),
        cmocka_unit_test(test_forked_close),   cmocka_unit_test(test_asleep),
        cmocka_unit_test(test_slept),          cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_replayed_hello), cmocka_unit_test(test_false_cookie),
        cmocka_unit_test(test_first_record),   cmocka_unit_test(test_bad_data),
        cmocka_unit_test(test_too_early),      cmocka_unit_test(test_silent_strangers),
        cmocka_unit_test(test_slow_stranger),  cmocka_unit_test(test_slow_friend),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_tuning),         cmocka_unit_test(test_rto_min),
        cmocka_unit_test(test_ipv6),           cmocka_unit_test(test_paced),
        cmocka_unit_test(test_paced_group),
        cmocka_unit_test(test_withdrawn),
    };
    return cmocka_run_group_tests_name("io_tcp", tests, NULL, NULL);
}
