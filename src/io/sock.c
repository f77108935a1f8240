#include "io/sock.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(sizeof(struct sockaddr_in6) <= sizeof(((struct weft_addr *)0)->bytes),
              "an IPv6 socket address fits");

static void addr_store(const void *sockaddr, size_t bytes, struct weft_addr *addr_p)
{
    memset(addr_p, 0, sizeof(*addr_p));
    memcpy(addr_p->bytes, sockaddr, bytes);
    addr_p->bytes_used = (uint32_t)bytes;
}

weft_status weft_sock_addr_parse(const char *host, uint16_t port, struct weft_addr *addr_p,
                                 struct weft_error *error)
{
    const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, numeric, &v4.sin_addr) == 1) {
        addr_store(&v4, sizeof(v4), addr_p);
        return WEFT_OK;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET6, numeric, &v6.sin6_addr) == 1) {
        addr_store(&v6, sizeof(v6), addr_p);
        return WEFT_OK;
    }
    return weft_fail(error, WEFT_INVALID,
                     "\"%.80s\" is not a numeric IPv4 or IPv6 address nor \"localhost\" "
                     "(names are not looked up)",
                     host);
}

bool weft_sock_addr_is_loopback(const struct weft_addr *addr)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, addr->bytes, sizeof(v4));
    memcpy(&v6, addr->bytes, sizeof(v6));
    return v4.sin_family == AF_INET ? (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET
                                    : IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

weft_status weft_sock_addr_usable(const char *host, uint16_t port, bool loopback_only,
                                  struct weft_addr *addr_p, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_parse(host, port, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (loopback_only && !weft_sock_addr_is_loopback(&addr)) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "%s is beyond loopback, and without security anybody on that network "
                         "can read and change what is sent: set security to auth or seal and "
                         "name a key file (`weft keygen`); the commands also have "
                         "--insecure-network, if that is meant",
                         host);
    }
    *addr_p = addr;
    return WEFT_OK;
}

weft_status weft_sock_addr_target(const char *host, uint16_t port, bool loopback_only, int family,
                                  struct weft_addr *addr_p, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_usable(host, port, loopback_only, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (port == 0) {
        return weft_fail(error, WEFT_INVALID, "port 0 is no port to connect to");
    }
    if (weft_sock_addr_family(&addr) != family) {
        return weft_fail(
            error, WEFT_INVALID,
            "%s: an IPv4 socket cannot reach IPv6 addresses nor the reverse; bind to an "
            "address of the same kind",
            host);
    }
    *addr_p = addr;
    return WEFT_OK;
}

void weft_sock_addr_canonical(const void *sockaddr, struct weft_addr *addr_p)
{
    struct sockaddr_in6 v6;
    memcpy(&v6, sockaddr, sizeof(v6)); /* the caller's buffer is a sockaddr_in6 at least */
    if (v6.sin6_family == AF_INET6) {
        v6.sin6_flowinfo = 0;
        v6.sin6_scope_id = 0;
        addr_store(&v6, sizeof(v6), addr_p);
        return;
    }
    struct sockaddr_in v4;
    memcpy(&v4, sockaddr, sizeof(v4));
    memset(v4.sin_zero, 0, sizeof(v4.sin_zero));
    addr_store(&v4, sizeof(v4), addr_p);
}

int weft_sock_addr_family(const struct weft_addr *addr)
{
    struct sockaddr_in v4; /* family and port lie at the same place in both kinds */
    memcpy(&v4, addr->bytes, sizeof(v4));
    return v4.sin_family;
}

uint16_t weft_sock_addr_port(const struct weft_addr *addr)
{
    struct sockaddr_in v4;
    memcpy(&v4, addr->bytes, sizeof(v4));
    return ntohs(v4.sin_port);
}

static bool set_int(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

static uint32_t get_int(int fd, int level, int name)
{
    int value = 0;
    socklen_t bytes = sizeof(value);
    return getsockopt(fd, level, name, &value, &bytes) == 0 ? (uint32_t)value : 0;
}

void weft_sock_set_fragment(int fd, int family, bool fragment)
{
    if (family == AF_INET) {
        (void)set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER,
                      fragment ? IP_PMTUDISC_DONT : IP_PMTUDISC_PROBE);
    } else {
        (void)set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER,
                      fragment ? IPV6_PMTUDISC_DONT : IPV6_PMTUDISC_PROBE);
    }
}

bool weft_sock_set_ecn(int fd, int family, enum weft_ecn ecn)
{
    return family == AF_INET ? set_int(fd, IPPROTO_IP, IP_TOS, (int)ecn)
                             : set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, (int)ecn);
}

static void set_options(int fd, int family, const struct weft_sock_request *request,
                        struct weft_sock_facts *facts_p)
{
    int buffer_bytes = (int)weft_min_u64(request->buffer_bytes, INT_MAX);
    (void)set_int(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
    (void)set_int(fd, SOL_SOCKET, SO_SNDBUF, buffer_bytes);
    facts_p->recv_buffer_bytes = get_int(fd, SOL_SOCKET, SO_RCVBUF);
    facts_p->send_buffer_bytes = get_int(fd, SOL_SOCKET, SO_SNDBUF);
    (void)set_int(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
    weft_sock_set_fragment(fd, family, false);
    facts_p->timestamps = set_int(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    facts_p->ecn = family == AF_INET ? set_int(fd, IPPROTO_IP, IP_RECVTOS, 1)
                                     : set_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    /* Size 0 leaves the socket as it is: only the kernel's knowledge of the option is asked. */
    facts_p->gso = set_int(fd, SOL_UDP, UDP_SEGMENT, 0);
    facts_p->gro = request->gro && set_int(fd, SOL_UDP, UDP_GRO, 1);
}

static weft_status bind_failed(const struct weft_addr *addr, struct weft_error *error)
{
    int number = errno;
    unsigned port = weft_sock_addr_port(addr);
    const char *kind = weft_sock_addr_family(addr) == AF_INET ? "IPv4" : "IPv6";
    if (number == EADDRINUSE) {
        return weft_fail(error, WEFT_EXISTS,
                         "UDP port %u (%s) is in use by another program; choose another, or 0 for "
                         "any free one",
                         port, kind);
    }
    return weft_fail(error, WEFT_IO, "bind to UDP port %u (%s): %s", port, kind, strerror(number));
}

weft_status weft_sock_open(const struct weft_addr *addr, const struct weft_sock_request *request,
                           int *fd_p, struct weft_sock_facts *facts_p, struct weft_error *error)
{
    int family = weft_sock_addr_family(addr);
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return weft_fail(error, WEFT_IO, "socket (%s, UDP): %s",
                         family == AF_INET ? "IPv4" : "IPv6", strerror(errno));
    }
    if (family == AF_INET6) {
        (void)set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    struct weft_sock_facts facts = {0};
    set_options(fd, family, request, &facts);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    if (bind(fd, (const struct sockaddr *)(const void *)addr->bytes, addr->bytes_used) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bytes) < 0) {
        weft_status status = bind_failed(addr, error);
        (void)close(fd);
        return status;
    }
    weft_sock_addr_canonical(&bound, &facts.bound);
    facts.port = weft_sock_addr_port(&facts.bound);
    *fd_p = fd;
    *facts_p = facts;
    return WEFT_OK;
}

/* The kernel counts the memory of its buffers, half as much again as what is in them: 2,304 bytes for a
 * datagram of 1,472 alone, 41,000 for 20 of them in a GSO burst. */
uint64_t weft_sock_queued(int fd)
{
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) < 0 || bytes < 0 ? 0 : (uint64_t)bytes * 2 / 3;
}
