/* A peer that has completed the handshake over TCP and then sends arbitrary bytes: the reader,
 * records, frames, chunks and the ends of messages of the production messenger, in mode none: a
 * holder of the job key could send the same bytes with valid tags. The bytes arrive over a socket
 * pair, in pieces whose lengths the input chooses.
 *
 * Invariants: no write outside posted memory (ASan); each message sent ends exactly once, and so
 * does each message opened; the number of ones in a mask equals its count; each chunk of a message
 * is delivered at most once. */
#include "base/assert.h"
#include "io/driver.h"
#include "io/tcp/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SENDS = 4, SEND_FLOATS = 40000, COPY_BYTES = 4096, CHUNKS_MAX = 256 };

struct run {
    struct weft_tcp *tcp;
    struct tcp_peer *peer;
    float *sent;
    uint8_t *copied;
    float *added;
    uint32_t sent_events;
    uint32_t opened;
    uint32_t closed;
    uint32_t ups;
    uint32_t downs;
    uint64_t event_seq;
    uint64_t event_seen[CHUNKS_MAX / 64];
};

static void chunk(struct run *run, const struct weft_msg_event *ev)
{
    if (run->event_seq != ev->seq) { /* one message is examined at a time */
        run->event_seq = ev->seq;
        memset(run->event_seen, 0, sizeof(run->event_seen));
    } else {
        WEFT_ASSERT(!weft_bits_test(run->event_seen, ev->chunk));
    }
    weft_bits_set(run->event_seen, ev->chunk);
    uint8_t sum = 0; /* read every byte */
    for (size_t i = 0; i < (size_t)ev->elems * ev->elem_bytes; i++) {
        sum ^= ((const uint8_t *)ev->data)[i];
    }
    if (sum % 2 == 0) {
        weft_tcp_msg_ops.refuse(run->tcp, ev->peer, ev->seq);
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    struct run *run = arg;
    struct weft_msg_event ev;
    (void)now_ns;
    while (weft_tcp_msg_ops.poll(run->tcp, &ev)) {
        run->sent_events += ev.type == WEFT_EVENT_SENT;
        run->opened += ev.type == WEFT_EVENT_OPEN;
        run->closed += ev.type == WEFT_EVENT_RECEIVED;
        run->ups += ev.type == WEFT_EVENT_PEER_UP;
        run->downs += ev.type == WEFT_EVENT_PEER_DOWN;
        if (ev.type == WEFT_EVENT_SENT || ev.type == WEFT_EVENT_RECEIVED) {
            WEFT_ASSERT(weft_bits_count(ev.mask, ev.chunks) == ev.received);
            WEFT_ASSERT(ev.refused <= ev.received);
        }
        if (ev.type == WEFT_EVENT_CHUNK) {
            chunk(run, &ev);
        }
    }
}

static void post(struct run *run)
{
    weft_expect_id id;
    struct weft_msg_expect copy = {.peer = WEFT_PEER_ANY, .sink = WEFT_SINK_COPY, .tag = 1,
                                   .tag_mask = 3, .memory = run->copied,
                                   .memory_bytes = COPY_BYTES, .count = 1,
                                   .timeout_ns = WEFT_NEVER};
    struct weft_msg_expect add = copy;
    add.sink = WEFT_SINK_ADD;
    add.tag = 2;
    add.memory = run->added;
    struct weft_msg_expect by_event = copy;
    by_event.sink = WEFT_SINK_EVENT;
    by_event.tag = 3;
    by_event.memory = NULL;
    by_event.memory_bytes = UINT64_MAX;
    by_event.count = 3;
    const struct weft_msg_expect *all[] = {&copy, &add, &by_event};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(all); i++) {
        weft_status status = weft_tcp_msg_ops.expect(run->tcp, all[i], &id);
        WEFT_ASSERT(status == WEFT_OK || status == WEFT_NOMEM);
    }
}

/* Create a connected peer on one end of a socket pair. Returns the other end. */
static int begin(struct run *run)
{
    struct weft_tcp_config config = {.host = "127.0.0.1"};
    int fds[2];
    weft_ep_config_default(&config.ep);
    config.ep.peers_max = 1;
    config.ep.chunks_max = CHUNKS_MAX;
    config.ep.peer_timeout_ns = WEFT_NEVER;
    struct weft_driver *driver = NULL;
    weft_status status = weft_tcp_open(&config, &driver, NULL);
    WEFT_ASSERT(status == WEFT_OK);
    run->tcp = tcp_of(driver);
    int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
    WEFT_ASSERT(rc == 0);
    struct weft_tcp *t = run->tcp;
    run->peer = weft_tcp_peer_take(t);
    t->conns[0] = (struct tcp_conn){.state = TCP_CONN_OPEN, .fd = fds[0], .peer = run->peer};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0};
    rc = epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fds[0], &event);
    WEFT_ASSERT(rc == 0);
    run->peer->conn = &t->conns[0];
    run->peer->accepted = true;
    weft_tcp_peer_up(t, run->peer, 1);
    return fds[1];
}

static void queue_sends(struct run *run)
{
    for (uint64_t i = 0; i < SENDS; i++) {
        struct weft_msg_send send = {.peer = 0, .base = run->sent, .total = SEND_FLOATS,
                                     .elem_bytes = sizeof(float), .bound_ppm = 100000,
                                     .deadline_ns = WEFT_NEVER};
        uint64_t seq;
        weft_status status = weft_tcp_msg_ops.send(run->tcp, &send, 1, &seq);
        WEFT_ASSERT(status == WEFT_OK);
    }
}

static void turn(struct run *run, int fd)
{
    static uint8_t sink[1 << 17];
    (void)weft_driver_step(&run->tcp->base, 0, handle, run);
    while (recv(fd, sink, sizeof(sink), 0) > 0) {
        continue;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run run = {.sent = calloc(SEND_FLOATS, sizeof(float)),
                      .copied = malloc(COPY_BYTES),
                      .added = calloc(COPY_BYTES, 1)};
    WEFT_ASSERT(run.sent != NULL && run.copied != NULL && run.added != NULL);
    int fd = begin(&run);
    queue_sends(&run);
    turn(&run, fd);
    size_t piece = size > 0 ? 1 + data[0] * 17u : 1;
    for (size_t at = size > 0; at < size;) {
        size_t n = piece < size - at ? piece : size - at;
        ssize_t put = send(fd, data + at, n, MSG_NOSIGNAL);
        if (put <= 0) {
            break; /* the connection is closed */
        }
        at += (size_t)put;
        turn(&run, fd);
        if (at > size / 2) {
            post(&run); /* for messages that were held */
        }
    }
    turn(&run, fd);
    turn(&run, fd);
    close(fd);
    turn(&run, fd);
    WEFT_ASSERT(run.ups == 1 && run.downs == 1);
    WEFT_ASSERT(run.sent_events == SENDS);
    WEFT_ASSERT(run.opened == run.closed);
    weft_driver_close(&run.tcp->base);
    free(run.sent);
    free(run.copied);
    free(run.added);
    return 0;
}
