#include "lab/background_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SEND_BYTES = 65536,
    SEND_TURNS = 8, /* send calls for one flow before the next flow is served */
    RECEIVE_BYTES = 1 << 20,
    WAKE_BYTES = 32768, /* of the receiver; with more the kernel would change its window */
    ACCEPT_TURNS = 64,
    SMALL_BYTES = 100000,
    MEDIUM_BYTES = 10000000,
};

static uint32_t *owner_of(struct weft_background *b, uint32_t host, uint16_t port)
{
    return &b->owners[(size_t)host << 16 | port];
}

static uint32_t index_of(const struct weft_background *b, const struct weft_background_flow *flow)
{
    return (uint32_t)(flow - b->flows);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Close with a reset. Both ends belong to this process and the bytes are counted, so no orderly
 * close is needed, and a TIME_WAIT would hold the port for a minute. */
static void abort_socket(int fd)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    (void)close(fd);
}

void weft_background_flow_end(struct weft_background *b, struct weft_background_flow *flow)
{
    uint32_t *owner = owner_of(b, flow->source, flow->port);
    if (*owner == index_of(b, flow) + 1) {
        *owner = 0;
    }
    if (flow->out_fd >= 0) {
        abort_socket(flow->out_fd);
    }
    if (flow->in_fd >= 0) {
        abort_socket(flow->in_fd);
    }
    flow->out_fd = -1;
    flow->in_fd = -1;
    flow->generation++;
    flow->next_free = b->free_first;
    b->free_first = index_of(b, flow);
    b->under_way--;
}

static void fail(struct weft_background *b, struct weft_background_flow *flow, int code)
{
    b->report->failed_flows++;
    b->report->failed_errno = code;
    weft_background_flow_end(b, flow);
}

static void complete(struct weft_background *b, struct weft_background_flow *flow)
{
    uint64_t took_ns = weft_lab_now_ns() - flow->begun_ns;
    enum weft_background_class class = flow->bytes < SMALL_BYTES     ? WEFT_BACKGROUND_SMALL
                                       : flow->bytes <= MEDIUM_BYTES ? WEFT_BACKGROUND_MEDIUM
                                                                     : WEFT_BACKGROUND_LARGE;
    weft_hist_add(&b->report->completion_ns[class], took_ns);
    weft_hist_add(&b->report->completion_ns[WEFT_BACKGROUND_ALL], took_ns);
    weft_background_flow_end(b, flow);
}

/* ---- the sending side ------------------------------------------------------------------------ */

/* Returns 0 or an errno. */
static int send_some(struct weft_background *b, struct weft_background_flow *flow)
{
    static const char zeros[SEND_BYTES];
    for (int turn = 0; turn < SEND_TURNS && flow->sent < flow->bytes; turn++) {
        size_t want = (size_t)weft_min_u64(flow->bytes - flow->sent, SEND_BYTES);
        ssize_t n = send(flow->out_fd, zeros, want, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? 0 : errno;
        }
        flow->sent += (uint64_t)n;
    }
    if (flow->sent == flow->bytes) {
        /* From here on only errors matter, which epoll always reports. */
        struct epoll_event quiet = {
            .data.u64 =
                (uint64_t)flow->generation << 32 | index_of(b, flow) << 3 | WEFT_BACKGROUND_OUT,
        };
        if (epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, flow->out_fd, &quiet) != 0) {
            return errno;
        }
    }
    return 0;
}

/* Returns 0 or an errno; flow->out_fd is open, or -1. */
static int connect_out(struct weft_background *b, struct weft_background_flow *flow,
                       uint32_t destination)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons(b->config->port),
        .sin_addr = b->addresses[destination],
    };
    /* Bound before connecting: connect() alone may assign one port for two destinations. */
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = b->addresses[flow->source]};
    socklen_t own_bytes = sizeof(own);
    const char *cc = b->config->cc;
    int code = weft_background_go_to(b, flow->source);
    if (code != 0) {
        return code;
    }
    flow->out_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (flow->out_fd < 0) {
        return errno;
    }
    if (cc != NULL &&
        setsockopt(flow->out_fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) != 0) {
        return errno;
    }
    if (bind(flow->out_fd, (struct sockaddr *)&own, own_bytes) != 0 ||
        getsockname(flow->out_fd, (struct sockaddr *)&own, &own_bytes) != 0) {
        return errno;
    }
    flow->port = ntohs(own.sin_port);
    *owner_of(b, flow->source, flow->port) = index_of(b, flow) + 1;
    if (connect(flow->out_fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS) {
        return errno;
    }
    return weft_background_watch(b, flow->out_fd, EPOLLOUT, WEFT_BACKGROUND_OUT, index_of(b, flow),
                                 flow->generation);
}

void weft_background_flow_begin(struct weft_background *b, const struct weft_flow_arrival *arrival)
{
    struct weft_background_report *report = b->report;
    report->offered_flows++;
    report->offered_bytes += arrival->bytes;
    if (b->free_first == WEFT_BACKGROUND_NONE) {
        report->refused_flows++;
        report->refused_bytes += arrival->bytes;
        return;
    }
    struct weft_background_flow *flow = &b->flows[b->free_first];
    b->free_first = flow->next_free;
    b->under_way++;
    report->under_way_max = weft_max_u64(report->under_way_max, b->under_way);
    flow->begun_ns = b->begun_ns + arrival->at_ns;
    flow->bytes = arrival->bytes;
    flow->sent = 0;
    flow->received = 0;
    flow->source = (uint16_t)arrival->source;
    flow->port = 0;
    int code = connect_out(b, flow, arrival->destination);
    if (code != 0) {
        fail(b, flow, code);
    }
}

/* ---- the receiving side ---------------------------------------------------------------------- */

/* Set SO_RCVLOWAT, so that the kernel wakes the receiver after this many bytes, and in any case
 * at the last byte. */
static void wake_at(const struct weft_background_flow *flow)
{
    int bytes = (int)weft_min_u64(flow->bytes - flow->received, WAKE_BYTES);
    (void)setsockopt(flow->in_fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

static void receive_some(struct weft_background *b, struct weft_background_flow *flow)
{
    /* With MSG_TRUNC TCP discards the bytes without a copy. */
    ssize_t n = recv(flow->in_fd, NULL, RECEIVE_BYTES, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        fail(b, flow, n < 0 ? errno : ECONNRESET);
        return;
    }
    flow->received += (uint64_t)n;
    b->received += (uint64_t)n;
    if (flow->received >= flow->bytes) {
        complete(b, flow);
    } else if (flow->bytes - flow->received < WAKE_BYTES) {
        wake_at(flow);
    }
}

static uint32_t host_of(const struct weft_background *b, struct in_addr address)
{
    for (uint32_t host = 0; host < b->config->hosts; host++) {
        if (b->addresses[host].s_addr == address.s_addr) {
            return host;
        }
    }
    return WEFT_BACKGROUND_NONE;
}

static void take_in(struct weft_background *b, int fd, const struct sockaddr_in *peer)
{
    uint32_t host = host_of(b, peer->sin_addr);
    uint32_t owner = host == WEFT_BACKGROUND_NONE ? 0 : *owner_of(b, host, ntohs(peer->sin_port));
    if (owner == 0 || b->flows[owner - 1].in_fd >= 0) {
        /* An unknown connection, or one whose sending side has failed. */
        abort_socket(fd);
        return;
    }
    struct weft_background_flow *flow = &b->flows[owner - 1];
    flow->in_fd = fd;
    wake_at(flow);
    int code =
        weft_background_watch(b, fd, EPOLLIN, WEFT_BACKGROUND_IN, owner - 1, flow->generation);
    if (code != 0) {
        fail(b, flow, code);
    }
}

void weft_background_flow_accept(struct weft_background *b, uint32_t host)
{
    for (int turn = 0; turn < ACCEPT_TURNS; turn++) {
        struct sockaddr_in peer;
        socklen_t peer_bytes = sizeof(peer);
        int fd = accept4(b->listeners[host], (struct sockaddr *)&peer, &peer_bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        take_in(b, fd, &peer);
    }
}

void weft_background_flow_event(struct weft_background *b, enum weft_background_kind kind,
                                uint32_t index, uint32_t generation, uint32_t events)
{
    struct weft_background_flow *flow = &b->flows[index];
    if (flow->generation != generation) {
        return;
    }
    if (kind == WEFT_BACKGROUND_IN) {
        receive_some(b, flow);
        return;
    }
    int code = 0;
    socklen_t code_bytes = sizeof(code);
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        (void)getsockopt(flow->out_fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes);
        fail(b, flow, code != 0 ? code : ECONNRESET);
        return;
    }
    code = send_some(b, flow);
    if (code != 0) {
        fail(b, flow, code);
    }
}
