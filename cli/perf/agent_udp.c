/* Participants as a plain sockets program over UDP: `udp-raw`. No recovery, no congestion control,
 * no pacing: a whole message is written to the socket at once: bounded loss without a transport.
 *
 * A datagram has a header of 16 bytes (flow, round, chunk, unused) and its part of the message. A
 * message ends when it is complete, or after --idle-ms without a datagram; its time is that of the
 * last datagram. A lost datagram ends a run of pingpong, which cannot continue without it.
 */
#define _GNU_SOURCE // sendmmsg, recvmmsg
#include "cli/perf/agent.h"

#include "base/bits.h"
#include "io/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    NET_BYTES = 14 + 20 + 8, /* Ethernet, IPv4, UDP */
    BATCH = 32,
    SLOT_BYTES = 65536,
    BUFFER_BYTES = 4 << 20,
};

struct header {
    uint32_t flow;
    uint32_t round;
    uint32_t chunk;
    uint32_t zero;
};

struct incoming {
    uint32_t received; /* chunks of this trip */
    uint64_t bytes;
    uint64_t last_ns;
};

struct side {
    int fd;
    uint32_t chunk_bytes;
    uint32_t chunks;
    uint32_t out;  /* the message being written; WEFT_PERF_NONE */
    uint32_t next; /* its next chunk */
    uint32_t trip; /* of that message */
    uint64_t kernel_drops;
    struct incoming *ins;
    struct sockaddr_in addrs[WEFT_PERF_PARTICIPANTS_MAX];
    struct mmsghdr messages[BATCH];
    struct iovec iov[BATCH][2];
    struct header headers[BATCH];
    uint8_t slots[BATCH][SLOT_BYTES];
};

static struct side *of(const struct weft_perf_agent *agent)
{
    return agent->self;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool open_udp(struct weft_perf_agent *agent)
{
    struct side *side = of(agent);
    int bytes = BUFFER_BYTES;
    side->out = WEFT_PERF_NONE;
    side->chunk_bytes = (agent->job->packet_bytes - (uint32_t)sizeof(struct header)) / 4 * 4;
    side->chunks = (uint32_t)weft_div_ceil_u64(agent->job->bytes, side->chunk_bytes);
    side->ins = calloc(agent->job->plan->participants, sizeof(*side->ins));
    side->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (side->ins == NULL || side->fd < 0 || !weft_perf_agent_bind(agent, side->fd)) {
        return weft_perf_fail(agent->error, "a UDP socket: %s", strerror(errno));
    }
    if (setsockopt(side->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0) {
        (void)setsockopt(side->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    }
    return true;
}

static bool connect_all(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < agent->peer_count; i++) {
        uint32_t other = agent->peers[i].other;
        weft_perf_agent_sockaddr(agent, other, &of(agent)->addrs[other]);
    }
    return true;
}

static void begin_in(struct weft_perf_agent *agent, uint32_t in, uint64_t now_ns)
{
    agent->ins[in].chunk_bytes = of(agent)->chunk_bytes;
    memset(agent->ins[in].mask, 0, WEFT_BITS_WORDS((size_t)of(agent)->chunks) * 8);
    of(agent)->ins[in] = (struct incoming){.last_ns = now_ns};
}

static bool prepare(struct weft_perf_agent *agent)
{
    of(agent)->out = WEFT_PERF_NONE;
    of(agent)->trip = 0;
    for (uint32_t i = 0; i < agent->in_count; i++) {
        begin_in(agent, i, 0);
    }
    return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static uint32_t chunk_size(const struct weft_perf_agent *agent, uint32_t chunk)
{
    uint32_t at = chunk * of(agent)->chunk_bytes;
    return (uint32_t)weft_min_u64(of(agent)->chunk_bytes, agent->job->bytes - at);
}

static unsigned load(struct weft_perf_agent *agent)
{
    struct side *side = of(agent);
    const struct weft_perf_end *end = &agent->outs[side->out];
    unsigned count = 0;
    for (; count < BATCH && side->next + count < side->chunks; count++) {
        uint32_t chunk = side->next + count;
        side->headers[count] = (struct header){
            .flow = end->flow, .round = agent->round + side->trip, .chunk = chunk};
        side->iov[count][0] = (struct iovec){&side->headers[count], sizeof(struct header)};
        side->iov[count][1] = (struct iovec){
            (uint8_t *)agent->source + (size_t)chunk * side->chunk_bytes, chunk_size(agent, chunk)};
        side->messages[count].msg_hdr = (struct msghdr){.msg_name = &side->addrs[end->other],
                                                        .msg_namelen = sizeof(struct sockaddr_in),
                                                        .msg_iov = side->iov[count],
                                                        .msg_iovlen = 2};
    }
    return count;
}

/* Write until the socket is full. */
static bool give(struct weft_perf_agent *agent)
{
    struct side *side = of(agent);
    for (;;) {
        if (side->out == WEFT_PERF_NONE) {
            side->out = weft_perf_agent_next(agent);
            side->next = 0;
            if (side->out == WEFT_PERF_NONE) {
                return true;
            }
            side->trip = (agent->started - 1) / agent->out_count;
        }
        int sent = sendmmsg(side->fd, side->messages, load(agent), MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            return true;
        }
        if (sent < 0 && errno != ENOBUFS && errno != ECONNREFUSED) {
            return weft_perf_fail(agent->error, "sending: %s", strerror(errno));
        }
        side->next += sent > 0 ? (uint32_t)sent : 1; /* packets that the queue refused are lost */
        if (side->next >= side->chunks) {
            weft_perf_agent_finished(agent, side->out);
            side->out = WEFT_PERF_NONE;
        }
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void end_in(struct weft_perf_agent *agent, uint32_t in, uint64_t at_ns)
{
    struct incoming *incoming = &of(agent)->ins[in];
    weft_perf_agent_received(agent, in, incoming->received, of(agent)->chunks, incoming->bytes,
                             at_ns);
    if (agent->ins[in].trips < agent->trips) {
        begin_in(agent, in, at_ns);
    }
}

/* Ignore late datagrams of another round, and duplicates. */
static void take_one(struct weft_perf_agent *agent, const uint8_t *bytes, size_t count,
                     uint64_t now_ns)
{
    struct header header;
    if (count < sizeof(header)) {
        return;
    }
    memcpy(&header, bytes, sizeof(header));
    uint32_t in = weft_perf_agent_in(agent, header.flow);
    if (in == WEFT_PERF_NONE || agent->ins[in].trips == agent->trips ||
        header.round != agent->round + agent->ins[in].trips || header.chunk >= of(agent)->chunks ||
        weft_bits_test(agent->ins[in].mask, header.chunk) ||
        count - sizeof(header) != chunk_size(agent, header.chunk)) {
        return;
    }
    struct incoming *incoming = &of(agent)->ins[in];
    memcpy(agent->ins[in].memory + (size_t)header.chunk * of(agent)->chunk_bytes,
           bytes + sizeof(header), count - sizeof(header));
    weft_bits_set(agent->ins[in].mask, header.chunk);
    incoming->received++;
    incoming->bytes += count - sizeof(header);
    incoming->last_ns = now_ns;
    if (incoming->received == of(agent)->chunks) {
        end_in(agent, in, now_ns);
    }
}

static bool take(struct weft_perf_agent *agent)
{
    struct side *side = of(agent);
    for (unsigned i = 0; i < BATCH; i++) {
        side->iov[i][0] = (struct iovec){side->slots[i], SLOT_BYTES};
        side->messages[i].msg_hdr = (struct msghdr){.msg_iov = side->iov[i], .msg_iovlen = 1};
    }
    int count = recvmmsg(side->fd, side->messages, BATCH, MSG_DONTWAIT, NULL);
    uint64_t now_ns = weft_clock_now_ns();
    for (int i = 0; i < count; i++) {
        take_one(agent, side->slots[i], side->messages[i].msg_len, now_ns);
    }
    return count == BATCH;
}

/* End messages that were quiet for long enough. The quiet time begins with the first check in a
 * round. */
static bool end_quiet(struct weft_perf_agent *agent)
{
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < agent->in_count; i++) {
        struct incoming *incoming = &of(agent)->ins[i];
        if (agent->ins[i].trips == agent->trips) {
            continue;
        }
        if (incoming->last_ns == 0) {
            incoming->last_ns = now_ns;
        }
        if (now_ns - incoming->last_ns < agent->job->idle_ms * WEFT_NS_PER_MS) {
            continue;
        }
        if (weft_perf_is_pingpong(agent->job->plan)) {
            return agent->me != 0 ||
                   weft_perf_fail(agent->error, "a datagram was lost, and udp-raw does not send it "
                                                "again");
        }
        end_in(agent, i, incoming->last_ns);
    }
    return true;
}

static bool turn(struct weft_perf_agent *agent, uint64_t timeout_ns)
{
    struct side *side = of(agent);
    bool was_through = weft_perf_agent_is_through(agent);
    if (!give(agent)) {
        return false;
    }
    uint64_t least_ns = weft_min_u64(timeout_ns, agent->job->idle_ms * WEFT_NS_PER_MS);
    bool sleeps = was_through || !weft_perf_agent_is_through(agent);
    struct pollfd wait = {.fd = side->fd,
                          .events = (short)(POLLIN | (side->out != WEFT_PERF_NONE ? POLLOUT : 0))};
    if (poll(&wait, 1, sleeps ? (int)weft_div_ceil_u64(least_ns, WEFT_NS_PER_MS) : 0) > 0 &&
        (wait.revents & ~POLLOUT) != 0) {
        while (take(agent)) {
        }
    }
    return was_through || end_quiet(agent);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void account(struct weft_perf_agent *agent)
{
    uint64_t bytes = agent->job->bytes;
    agent->note->packet_bytes = of(agent)->chunk_bytes;
    agent->note->wire_bytes =
        bytes + of(agent)->chunks * (uint64_t)(NET_BYTES + sizeof(struct header));
}

static void close_all(struct weft_perf_agent *agent)
{
    (void)close(of(agent)->fd);
    free(of(agent)->ins);
}

const struct weft_perf_agent_ops weft_perf_agent_udp_raw = {
    .name = "udp-raw",
    .self_bytes = sizeof(struct side),
    .open = open_udp,
    .connect = connect_all,
    .prepare = prepare,
    .turn = turn,
    .account = account,
    .close = close_all,
};
