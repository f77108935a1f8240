#include "io/udp/socket.h"

#include "base/assert.h"
#include "io/sock_addr.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUEUED_MAX = 1 << 20 }; /* datagrams in the largest receive buffer */

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
    /* Size 0 leaves the socket unchanged: this only tests whether the kernel has the option. */
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

weft_status weft_sock_limit(int fd, const uint32_t *indices, uint32_t count,
                            struct weft_error *error)
{
    WEFT_ASSERT(count > 0 && count <= WEFT_SOCK_INTERFACES_MAX);
    struct sock_filter code[WEFT_SOCK_INTERFACES_MAX + 3];
    const struct sock_fprog program = {.len = (uint16_t)(count + 3), .filter = code};
    uint8_t byte;
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                           (uint32_t)(SKF_AD_OFF + SKF_AD_IFINDEX));
    for (uint32_t i = 0; i < count; i++) { /* one of them: to the last statement */
        code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, indices[i],
                                                   (uint8_t)(count - i), 0);
    }
    code[1 + count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    code[2 + count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) {
        return weft_fail(error, WEFT_IO, "filter of a UDP socket: %s", strerror(errno));
    }
    /* More cannot have arrived before the filter; later ones passed it. */
    for (uint32_t i = 0; i < QUEUED_MAX && recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) >= 0; i++) {
    }
    return WEFT_OK;
}

/* The kernel counts the memory of its buffers, about 1.5 times their content: 2,304 bytes for a
 * single datagram of 1,472, 41,000 for 20 of them in a GSO burst. */
uint64_t weft_sock_queued(int fd)
{
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) < 0 || bytes < 0 ? 0 : (uint64_t)bytes * 2 / 3;
}
