/* TCP sockets: options, listening, connecting, what the kernel reports.
 *
 * TCP_NODELAY: records are complete when they are written, so Nagle's delay would gain nothing.
 * TCP_NOTSENT_LOWAT: the socket accepts no more than this beyond what is on the wire, so an urgent
 * message waits for that much and not for megabytes. Buffer sizes are left to the kernel, which
 * adapts them to the path.
 *
 * The minimum retransmission timeout: TCP_RTO_MIN_US (Linux 6.15). Before it there was only the
 * route attribute rto_min and, from 6.11 on, net.ipv4.tcp_rto_min_us of the network namespace; both
 * are settings of the host, which a program must not change. The kernel counts in ticks, requires
 * two at least and rounds up: with 250 ticks a second, 5 ms become 8 ms, and 4 ms are refused.
 */
#include "io/tcp/internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef TCP_RTO_MIN_US
#define TCP_RTO_MIN_US 45
#endif

enum {
    NOTSENT_BYTES = 128 << 10,
    BACKLOG = 128,
};

static bool set_int(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

static bool set_cc(int fd, const char *cc)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) == 0;
}

static bool set_rto_min(int fd, uint64_t rto_min_ns)
{
    uint64_t us = weft_min_u64(rto_min_ns / WEFT_NS_PER_US, INT32_MAX);
    return set_int(fd, IPPROTO_TCP, TCP_RTO_MIN_US, (int)us);
}

void weft_tcp_sock_options(const struct weft_tcp *t, int fd)
{
    (void)set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    (void)set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES);
    if (t->config.cc != NULL) {
        (void)set_cc(fd, t->config.cc); /* weft_tcp_sock_probe has verified that it can be set */
    }
    if (t->config.rto_min_ns != 0) {
        (void)set_rto_min(fd, t->config.rto_min_ns);
    }
}

static weft_status cc_refused(const char *cc, struct weft_error *error)
{
    int number = errno;
    return weft_fail(error, WEFT_UNSUPPORTED,
                     "TCP congestion control \"%.16s\" cannot be used: %s (this host's: sysctl "
                     "net.ipv4.tcp_available_congestion_control; `modprobe tcp_%.16s` may load "
                     "it, and only root may use what is not in tcp_allowed_congestion_control)",
                     cc, strerror(number), cc);
}

static weft_status rto_min_refused(uint64_t rto_min_ns, struct weft_error *error)
{
    if (errno == EINVAL) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "this kernel refuses a minimum retransmission timeout of %llu us: rounded "
                         "up to its clock ticks it must be at least two ticks (with 250 ticks a "
                         "second 8 ms, so more than 4 ms); set a larger one",
                         (unsigned long long)(rto_min_ns / WEFT_NS_PER_US));
    }
    return weft_fail(error, WEFT_UNSUPPORTED,
                     "this kernel cannot set a minimum retransmission timeout for a socket "
                     "(TCP_RTO_MIN_US, Linux 6.15): %s; set it for the host with `ip route "
                     "change ... rto_min 5ms` or sysctl net.ipv4.tcp_rto_min_us instead",
                     strerror(errno));
}

static weft_status probe(int fd, const struct weft_tcp_config *config,
                         struct weft_tcp_facts *facts_p, struct weft_error *error)
{
    if (config->cc != NULL && !set_cc(fd, config->cc)) {
        return cc_refused(config->cc, error);
    }
    if (config->rto_min_ns != 0) {
        int us = 0;
        socklen_t bytes = sizeof(us);
        if (!set_rto_min(fd, config->rto_min_ns) ||
            getsockopt(fd, IPPROTO_TCP, TCP_RTO_MIN_US, &us, &bytes) != 0) {
            return rto_min_refused(config->rto_min_ns, error);
        }
        facts_p->rto_min_ns = (uint64_t)us * WEFT_NS_PER_US;
    }
    socklen_t bytes = sizeof(facts_p->cc) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, facts_p->cc, &bytes) != 0) {
        facts_p->cc[0] = '\0';
    }
    return WEFT_OK;
}

weft_status weft_tcp_sock_probe(const struct weft_tcp_config *config,
                                struct weft_tcp_facts *facts_p, struct weft_error *error)
{
    struct weft_tcp_facts facts = {0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return weft_fail(error, WEFT_IO, "socket (TCP): %s", strerror(errno));
    }
    weft_status status = probe(fd, config, &facts, error);
    (void)close(fd);
    *facts_p = facts;
    return status;
}

static weft_status listen_failed(const struct weft_addr *addr, struct weft_error *error)
{
    int number = errno;
    unsigned port = weft_sock_addr_port(addr);
    if (number == EADDRINUSE) {
        return weft_fail(error, WEFT_EXISTS,
                         "TCP port %u is in use by another program; choose another, or 0 for "
                         "any free one",
                         port);
    }
    return weft_fail(error, WEFT_IO, "listen on TCP port %u: %s", port, strerror(number));
}

weft_status weft_tcp_sock_listen(struct weft_tcp *t, const struct weft_addr *addr,
                                 struct weft_error *error)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    t->listen_fd = socket(t->base.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->listen_fd < 0) {
        return weft_fail(error, WEFT_IO, "socket (TCP): %s", strerror(errno));
    }
    (void)set_int(t->listen_fd, SOL_SOCKET, SO_REUSEADDR, 1); /* despite connections in TIME_WAIT */
    if (t->base.family == AF_INET6) {
        (void)set_int(t->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    weft_tcp_sock_options(t, t->listen_fd); /* accepted connections inherit these options */
    if (bind(t->listen_fd, (const struct sockaddr *)(const void *)addr->bytes, addr->bytes_used) <
            0 ||
        listen(t->listen_fd, BACKLOG) < 0 ||
        getsockname(t->listen_fd, (struct sockaddr *)&bound, &bytes) < 0) {
        return listen_failed(addr, error);
    }
    struct weft_addr at;
    weft_sock_addr_canonical(&bound, &at);
    t->base.port = weft_sock_addr_port(&at);
    return WEFT_OK;
}

int weft_tcp_sock_connect(const struct weft_tcp *t, const struct weft_addr *to)
{
    int fd = socket(t->base.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    weft_tcp_sock_options(t, fd);
    const struct weft_addr *from = &t->from;
    bool bound =
        bind(fd, (const struct sockaddr *)(const void *)from->bytes, from->bytes_used) == 0;
    if (!bound ||
        (connect(fd, (const struct sockaddr *)(const void *)to->bytes, to->bytes_used) != 0 &&
         errno != EINPROGRESS)) {
        int number = errno;
        (void)close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

void weft_tcp_sock_info(int fd, uint64_t *resent_p, uint64_t *srtt_ns_p)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        info = (struct tcp_info){0};
    }
    *resent_p = info.tcpi_total_retrans;
    *srtt_ns_p = info.tcpi_rtt * WEFT_NS_PER_US;
}
