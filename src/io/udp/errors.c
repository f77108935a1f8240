#include "io/udp/errors.h"

#include "io/sock_addr.h"

#include <time.h> /* for errqueue.h */

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READS_MAX = 64, /* for each step; the rest is read in the next */
    /* The error and the address of its reporter, or other control data of the socket. */
    CONTROL_BYTES = 256,
};

void weft_udp_errors_init(struct weft_udp_errors *errors, int fd, int family)
{
    *errors = (struct weft_udp_errors){.fd = fd, .family = family};
}

/* Clearing the option also empties the queue. */
static void set_option(struct weft_udp_errors *errors, bool on)
{
    int value = on;
    bool v6 = errors->family == AF_INET6;
    int rc = setsockopt(errors->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVERR : IP_RECVERR,
                        &value, sizeof(value));
    errors->on = on && rc == 0; /* without it there are no hints, nothing else */
}

void weft_udp_errors_watch(struct weft_udp_errors *errors)
{
    if (!errors->on) {
        set_option(errors, true);
    }
}

/* The errno of a message of the error queue when it came from the network; else 0. */
static int network_error(struct msghdr *message)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg != NULL;
         cmsg = CMSG_NXTHDR(message, cmsg)) {
        bool mine = (cmsg->cmsg_level == IPPROTO_IP && cmsg->cmsg_type == IP_RECVERR) ||
                    (cmsg->cmsg_level == IPPROTO_IPV6 && cmsg->cmsg_type == IPV6_RECVERR);
        struct sock_extended_err error;
        if (mine && cmsg->cmsg_len >= CMSG_LEN(sizeof(error))) {
            memcpy(&error, CMSG_DATA(cmsg), sizeof(error));
            bool icmp =
                error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6;
            return icmp ? (int)error.ee_errno : 0;
        }
    }
    return 0;
}

/* Some ICMP messages do not mean unreachable: packet too big, time exceeded. */
static bool says_unreachable(int number)
{
    return number == ECONNREFUSED || number == EHOSTUNREACH || number == ENETUNREACH ||
           number == EACCES || number == EHOSTDOWN || number == ENOPROTOOPT;
}

/* One message of the queue; false when there is none. */
static bool read_one(const struct weft_udp_errors *errors, const struct weft_ep *ep,
                     struct weft_unreached *unreached, struct weft_socket_counters *counters)
{
    uint8_t quoted[8]; /* of our own datagram: not read */
    struct sockaddr_storage to = {0};
    alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
    struct iovec iov = {.iov_base = quoted, .iov_len = sizeof(quoted)};
    struct msghdr message = {
        .msg_name = &to,
        .msg_namelen = sizeof(to),
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    if (recvmsg(errors->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        return false;
    }
    int number = network_error(&message);
    struct weft_addr addr;
    weft_sock_addr_canonical(&to, &addr);
    if (says_unreachable(number) && weft_ep_connecting(ep, &addr)) {
        counters->unreached++;
        unreached->number = number;
        unreached->addr = addr;
    }
    return true;
}

bool weft_udp_errors_read(struct weft_udp_errors *errors, const struct weft_ep *ep,
                          struct weft_unreached *unreached, struct weft_socket_counters *counters)
{
    if (!errors->on) {
        return false;
    }
    for (int i = 0; i < READS_MAX && read_one(errors, ep, unreached, counters); i++) {
        continue;
    }
    if (unreached->number != 0 && weft_ep_connected(ep, &unreached->addr)) {
        unreached->number = 0; /* it was started later, or the report was forged */
    }
    if (!weft_ep_connecting(ep, NULL)) {
        set_option(errors, false);
        return true;
    }
    return false;
}
