/* Participants as a plain sockets program: `tcp-raw`, kernel TCP as an application uses it.
 *
 * One connection for each pair of participants, made before the first round and kept; a message has
 * no framing, because both ends know its length. The kernel sizes the socket buffers; TCP_NODELAY
 * is on. The receiver reads directly into the message's memory.
 *
 * drop-at-sender is the simple baseline of the bounded-loss papers: the sender omits a random
 * fraction of its chunks, as many as the bound allows, and TCP delivers the rest. Both ends draw
 * the same chunks, so no mask crosses the network.
 *
 * Where only some of a sender's messages may be in flight (shuffle), the receiver confirms each
 * with one byte: a message in the socket's buffer may not have arrived.
 *
 * rto_min is TCP_RTO_MIN_US (Linux 6.15), or the setting of the namespace or the route. The kernel
 * keeps timeouts in jiffies; the value in use is reported (tcpi_rto).
 */
#include "cli/perf/agent.h"

#include "base/bits.h"
#include "base/prng.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef TCP_RTO_MIN_US
#define TCP_RTO_MIN_US 45
#endif

enum {
    BACKLOG = 512,
    CONNECT_S = 60,
    CHUNK_BYTES = 1408,        /* of drop-at-sender: a full packet of weft's */
    HEAD_BYTES = 14 + 20 + 32, /* of a segment: Ethernet, IPv4, TCP with time stamps */
};

struct conn {
    int fd;
    uint32_t other;
    uint32_t in; /* WEFT_PERF_NONE: the other end does not send */
    uint32_t out;
    uint32_t in_bytes; /* of the incoming message */
    uint32_t got;
    uint32_t acks; /* confirmation bytes to write */
    bool sending;
    uint32_t out_bytes; /* of the outgoing message */
    uint32_t sent;
    const uint8_t *from; /* its bytes */
    uint8_t *thinned;    /* drop-at-sender: the message without the omitted chunks */
    uint64_t *kept;      /* its mask */
};

struct side {
    int listener;
    uint32_t conn_count;
    bool acked; /* messages are confirmed by a byte */
    struct conn conns[WEFT_PERF_PARTICIPANTS_MAX];
    struct pollfd polls[WEFT_PERF_PARTICIPANTS_MAX];
};

static struct side *of(const struct weft_perf_agent *agent)
{
    return agent->self;
}

static bool fail_errno(struct weft_perf_agent *agent, const char *what)
{
    return weft_perf_fail(agent->error, "%s: %s", what, strerror(errno));
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool tune_cc(struct weft_perf_agent *agent, int fd)
{
    const char *cc = agent->job->tcp_cc;
    if (cc == NULL || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) == 0) {
        return true;
    }
    if (errno == EPERM) {
        return weft_perf_fail(agent->error,
                              "--tcp-cc %s: only root may use it; `sysctl "
                              "net.ipv4.tcp_allowed_congestion_control` lists what "
                              "others may",
                              cc);
    }
    return weft_perf_fail(agent->error,
                          "--tcp-cc %s: %s; `sysctl "
                          "net.ipv4.tcp_available_congestion_control` lists what this "
                          "kernel has",
                          cc, errno == ENOENT ? "no such congestion control" : strerror(errno));
}

static bool tune(struct weft_perf_agent *agent, int fd)
{
    int on = 1;
    int rto_us = (int)agent->job->tcp_rto_min_ms * 1000;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (rto_us > 0 && setsockopt(fd, IPPROTO_TCP, TCP_RTO_MIN_US, &rto_us, sizeof(rto_us)) != 0) {
        return weft_perf_fail(agent->error,
                              "--tcp-rto-min: %s; this kernel has no TCP_RTO_MIN_US "
                              "(Linux 6.15): set it for the route, `ip route change "
                              "... rto_min 5ms`, and leave the option out",
                              strerror(errno));
    }
    return tune_cc(agent, fd);
}

static bool open_tcp(struct weft_perf_agent *agent)
{
    struct side *side = of(agent);
    side->acked = agent->job->plan->pattern == WEFT_PERF_SHUFFLE;
    side->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* Before listen(): a congestion control with ECN takes part in the handshake. */
    if (side->listener >= 0 && !tune(agent, side->listener)) {
        return false;
    }
    bool good = side->listener >= 0 && weft_perf_agent_bind(agent, side->listener) &&
                listen(side->listener, BACKLOG) == 0;
    return good || fail_errno(agent, "listening");
}

static bool add(struct weft_perf_agent *agent, int fd, const struct weft_perf_peer *peer)
{
    struct side *side = of(agent);
    struct conn *conn = &side->conns[side->conn_count++];
    *conn = (struct conn){.fd = fd, .other = peer->other, .in = peer->in, .out = peer->out};
    if (agent->job->drop_ppm > 0) {
        conn->thinned = malloc(agent->job->bytes);
        conn->kept = calloc(WEFT_BITS_WORDS(agent->job->bytes / CHUNK_BYTES + 1), 8);
        if (conn->thinned == NULL || conn->kept == NULL) {
            return weft_perf_fail(agent->error, "no memory");
        }
    }
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 || fail_errno(agent, "O_NONBLOCK");
}

static bool connect_to(struct weft_perf_agent *agent, const struct weft_perf_peer *peer)
{
    struct sockaddr_in addr;
    uint32_t me = agent->me;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail_errno(agent, "a socket");
    }
    weft_perf_agent_sockaddr(agent, peer->other, &addr);
    if (!tune(agent, fd)) {
        (void)close(fd);
        return false;
    }
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        send(fd, &me, sizeof(me), MSG_NOSIGNAL) != sizeof(me)) {
        (void)close(fd);
        return weft_perf_fail(agent->error, "connecting to participant %u: %s", peer->other,
                              strerror(errno));
    }
    return add(agent, fd, peer);
}

/* With a receive timeout, SIGCONT interrupts accept(). */
static bool receive_number(int fd, uint32_t *number_p)
{
    ssize_t got;
    do {
        got = recv(fd, number_p, sizeof(*number_p), MSG_WAITALL);
    } while (got < 0 && errno == EINTR);
    return got == sizeof(*number_p);
}

static bool accept_one(struct weft_perf_agent *agent)
{
    struct pollfd wait = {.fd = of(agent)->listener, .events = POLLIN};
    const struct timeval patience = {.tv_sec = CONNECT_S};
    uint32_t other = 0;
    if (poll(&wait, 1, CONNECT_S * 1000) != 1) {
        return weft_perf_fail(agent->error, "only %u connections were established within %u s",
                              of(agent)->conn_count, (unsigned)CONNECT_S);
    }
    int fd = accept(of(agent)->listener, NULL, NULL);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    bool good = fd >= 0 && receive_number(fd, &other);
    const struct weft_perf_peer *peer = agent->peers;
    while (good && peer->other != other) {
        good = ++peer < agent->peers + agent->peer_count;
    }
    if (!good) {
        (void)close(fd);
        return fail_errno(agent, "accepting a connection");
    }
    return tune(agent, fd) && add(agent, fd, peer);
}

static bool connect_all(struct weft_perf_agent *agent)
{
    uint32_t awaited = 0;
    for (uint32_t i = 0; i < agent->peer_count; i++) {
        if (!agent->peers[i].connects) {
            awaited++;
        } else if (!connect_to(agent, &agent->peers[i])) {
            return false;
        }
    }
    for (; awaited > 0; awaited--) {
        if (!accept_one(agent)) {
            return false;
        }
    }
    return true;
}

/* ---- drop-at-sender -------------------------------------------------------------------------- */

/* Omit the fraction of the chunks, rounded down, at random; the same at both ends. */
static void draw_kept(const struct weft_perf_agent *agent, uint32_t flow, uint64_t *kept)
{
    uint32_t chunks = (uint32_t)weft_div_ceil_u64(agent->job->bytes, CHUNK_BYTES);
    uint64_t drops = (uint64_t)chunks * agent->job->drop_ppm / WEFT_PPM;
    struct weft_prng prng;
    weft_prng_split(&prng, agent->job->seed, (uint64_t)(flow + 1) << 32 | agent->round);
    weft_bits_fill(kept, chunks);
    for (uint64_t left = chunks; drops > 0; drops--, left--) {
        weft_bits_clear(kept, weft_bits_nth_one(kept, (size_t)weft_prng_below(&prng, left)));
    }
}

/* Copy the kept chunks of the source without gaps; `to` NULL = only count them. */
static uint32_t thin(const struct weft_perf_agent *agent, const uint64_t *kept, uint8_t *to)
{
    uint32_t put = 0;
    for (uint32_t at = 0; at < agent->job->bytes; at += CHUNK_BYTES) {
        uint32_t count = (uint32_t)weft_min_u64(CHUNK_BYTES, agent->job->bytes - at);
        if (weft_bits_test(kept, at / CHUNK_BYTES)) {
            if (to != NULL) {
                memcpy(to + put, (const uint8_t *)agent->source + at, count);
            }
            put += count;
        }
    }
    return put;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void prepare_in(struct weft_perf_agent *agent, struct conn *conn)
{
    struct weft_perf_end *in = &agent->ins[conn->in];
    conn->got = 0;
    conn->in_bytes = agent->job->bytes;
    if (agent->job->drop_ppm > 0) {
        draw_kept(agent, in->flow, in->mask);
        in->chunk_bytes = CHUNK_BYTES;
        in->compact = true;
        conn->in_bytes = thin(agent, in->mask, NULL);
    }
}

static void prepare_out(struct weft_perf_agent *agent, struct conn *conn)
{
    conn->sending = false;
    conn->from = (const uint8_t *)agent->source;
    conn->out_bytes = agent->job->bytes;
    if (agent->job->drop_ppm > 0) {
        draw_kept(agent, agent->outs[conn->out].flow, conn->kept);
        conn->from = conn->thinned;
        conn->out_bytes = thin(agent, conn->kept, conn->thinned);
    }
}

static bool prepare(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < of(agent)->conn_count; i++) {
        struct conn *conn = &of(agent)->conns[i];
        if (conn->in != WEFT_PERF_NONE) {
            prepare_in(agent, conn);
        }
        if (conn->out != WEFT_PERF_NONE) {
            prepare_out(agent, conn);
        }
    }
    return true;
}

static bool lost(struct weft_perf_agent *agent, const struct conn *conn, ssize_t got)
{
    if (weft_perf_agent_is_through(agent) || atomic_load(&agent->shared->stopping)) {
        return true; /* at the end all participants close, not at the same time */
    }
    return weft_perf_fail(agent->error, "lost participant %u: %s", conn->other,
                          got == 0 ? "it closed" : strerror(errno));
}

static bool answer(struct conn *conn)
{
    while (conn->acks > 0 && send(conn->fd, "", 1, MSG_NOSIGNAL) == 1) {
        conn->acks--;
    }
    return true; /* a closed connection is detected by reading */
}

static void whole(struct weft_perf_agent *agent, struct conn *conn)
{
    uint32_t chunks = (uint32_t)weft_div_ceil_u64(agent->job->bytes, CHUNK_BYTES);
    uint32_t received = agent->job->drop_ppm > 0
                            ? (uint32_t)weft_bits_count(agent->ins[conn->in].mask, chunks)
                            : chunks;
    weft_perf_agent_received(agent, conn->in, received, chunks, conn->got, weft_clock_now_ns());
    conn->got = 0;
    conn->acks += of(agent)->acked;
}

/* Read bytes of a message, or the byte that confirms ours. */
static bool take(struct weft_perf_agent *agent, struct conn *conn)
{
    uint8_t spare;
    bool messages = conn->in != WEFT_PERF_NONE && agent->ins[conn->in].trips < agent->trips;
    for (;;) {
        void *to = messages ? agent->ins[conn->in].memory + conn->got : &spare;
        size_t room = messages ? conn->in_bytes - conn->got : 1;
        ssize_t got = recv(conn->fd, to, room, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return answer(conn);
        }
        if (got <= 0) {
            return lost(agent, conn, got);
        }
        if (!messages) {
            if (!of(agent)->acked || conn->out == WEFT_PERF_NONE) {
                return weft_perf_fail(agent->error, "participant %u sent more than its message",
                                      conn->other);
            }
            weft_perf_agent_finished(agent, conn->out);
        } else {
            conn->got += (uint32_t)got;
            if (conn->got == conn->in_bytes) {
                whole(agent, conn);
                return answer(conn);
            }
        }
    }
}

static bool give(struct weft_perf_agent *agent, struct conn *conn)
{
    while (conn->sending) {
        ssize_t sent =
            send(conn->fd, conn->from + conn->sent, conn->out_bytes - conn->sent, MSG_NOSIGNAL);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR || lost(agent, conn, sent);
        }
        conn->sent += (uint32_t)sent;
        conn->sending = conn->sent < conn->out_bytes;
        if (!conn->sending && !of(agent)->acked) {
            weft_perf_agent_finished(agent, conn->out);
        }
    }
    return true;
}

static struct conn *conn_of(struct weft_perf_agent *agent, uint32_t out)
{
    struct conn *conn = of(agent)->conns;
    while (conn->out != out) {
        conn++;
    }
    return conn;
}

static bool start(struct weft_perf_agent *agent)
{
    for (uint32_t out = weft_perf_agent_next(agent); out != WEFT_PERF_NONE;
         out = weft_perf_agent_next(agent)) {
        struct conn *conn = conn_of(agent, out);
        conn->sending = true;
        conn->sent = 0;
        if (!give(agent, conn)) {
            return false;
        }
    }
    return true;
}

static bool turn(struct weft_perf_agent *agent, uint64_t timeout_ns)
{
    struct side *side = of(agent);
    bool was_through = weft_perf_agent_is_through(agent);
    if (!start(agent)) {
        return false;
    }
    for (uint32_t i = 0; i < side->conn_count; i++) {
        short out = side->conns[i].sending || side->conns[i].acks > 0 ? POLLOUT : 0;
        side->polls[i] = (struct pollfd){.fd = side->conns[i].fd, .events = (short)(POLLIN | out)};
    }
    /* The message just sent may have completed the round. */
    bool sleeps = was_through || !weft_perf_agent_is_through(agent);
    if (poll(side->polls, side->conn_count, sleeps ? (int)(timeout_ns / WEFT_NS_PER_MS) : 0) <= 0) {
        return true;
    }
    bool good = true;
    for (uint32_t i = 0; good && i < side->conn_count; i++) {
        if ((side->polls[i].revents & ~POLLOUT) != 0) {
            good = take(agent, &side->conns[i]);
        }
        if (good && (side->polls[i].revents & POLLOUT) != 0) {
            good = give(agent, &side->conns[i]) && answer(&side->conns[i]);
        }
    }
    return good;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Report a connection without the requested one (its handshake had no ECN), if there is any. */
static void note_cc(struct weft_perf_agent *agent, uint32_t i)
{
    char cc[sizeof(agent->note->cc)] = "";
    socklen_t bytes = sizeof(cc) - 1;
    (void)getsockopt(of(agent)->conns[i].fd, IPPROTO_TCP, TCP_CONGESTION, cc, &bytes);
    if (i == 0 || (agent->job->tcp_cc != NULL && strcmp(cc, agent->job->tcp_cc) != 0)) {
        memcpy(agent->note->cc, cc, sizeof(cc));
    }
}

static void account(struct weft_perf_agent *agent)
{
    agent->note->retransmitted = 0;
    agent->note->rto_us = 0;
    for (uint32_t i = 0; i < of(agent)->conn_count; i++) {
        struct tcp_info info = {0};
        socklen_t bytes = sizeof(info);
        if (getsockopt(of(agent)->conns[i].fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
            continue;
        }
        agent->note->retransmitted += info.tcpi_total_retrans;
        agent->note->rto_us = (uint32_t)weft_max_u64(agent->note->rto_us, info.tcpi_rto);
        agent->note->packet_bytes = info.tcpi_snd_mss;
        note_cc(agent, i);
    }
    if (agent->out_count > 0 && agent->note->packet_bytes > 0) {
        uint64_t bytes = agent->job->bytes;
        agent->note->wire_bytes =
            bytes + weft_div_ceil_u64(bytes, agent->note->packet_bytes) * HEAD_BYTES;
    }
}

static void close_all(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < of(agent)->conn_count; i++) {
        (void)close(of(agent)->conns[i].fd);
        free(of(agent)->conns[i].thinned);
        free(of(agent)->conns[i].kept);
    }
    (void)close(of(agent)->listener);
}

const struct weft_perf_agent_ops weft_perf_agent_tcp_raw = {
    .name = "tcp-raw",
    .kernel_tcp = true,
    .self_bytes = sizeof(struct side),
    .open = open_tcp,
    .connect = connect_all,
    .prepare = prepare,
    .turn = turn,
    .account = account,
    .close = close_all,
};
