#include "io/udp/link_counter.h"

#include "io/sock_addr.h"

#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
    struct nlmsghdr head;
    struct if_stats_msg stats;
};

void weft_link_counter_init(struct weft_link_counter *counter)
{
    *counter = (struct weft_link_counter){.fd = -1};
}

void weft_link_counter_close(struct weft_link_counter *counter)
{
    if (counter->fd >= 0) {
        (void)close(counter->fd);
        counter->fd = -1;
    }
}

static bool same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a == NULL || a->sa_family != b->ss_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                      &((const struct sockaddr_in *)(const void *)b)->sin_addr, 4) == 0;
    }
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16) == 0;
}

/* Index of the interface with this local address; 0 = none. */
static uint32_t index_of(const struct sockaddr_storage *local)
{
    uint32_t index = 0;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *next = all; next != NULL && index == 0; next = next->ifa_next) {
        if (same_host(next->ifa_addr, local)) {
            index = if_nametoindex(next->ifa_name);
        }
    }
    freeifaddrs(all);
    return index;
}

/* connect on a UDP socket looks up the route and sends nothing. */
static uint32_t index_towards(const struct weft_addr *to)
{
    struct sockaddr_storage local = {0};
    socklen_t bytes = sizeof(local);
    int fd = socket(weft_sock_addr_family(to), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    bool known = connect(fd, (const struct sockaddr *)(const void *)to->bytes, to->bytes_used) == 0 &&
                 getsockname(fd, (struct sockaddr *)&local, &bytes) == 0;
    (void)close(fd);
    return known ? index_of(&local) : 0;
}

static void look_up(struct weft_link_counter *counter, const struct weft_addr *to)
{
    counter->tried = true;
    counter->index = index_towards(to);
    if (counter->index != 0) {
        counter->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    }
}

/* The sent bytes in the reply; 0 = it is not the reply to request `seq`, or has none. */
static uint64_t sent_of(const uint8_t *bytes, size_t count, uint32_t seq)
{
    struct nlmsghdr head;
    size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct if_stats_msg));
    if (count < at) {
        return 0;
    }
    memcpy(&head, bytes, sizeof(head));
    if (head.nlmsg_type != RTM_NEWSTATS || head.nlmsg_seq != seq || head.nlmsg_len > count) {
        return 0;
    }
    while (at + NLA_HDRLEN <= head.nlmsg_len) {
        struct nlattr attr;
        struct rtnl_link_stats64 stats;
        memcpy(&attr, bytes + at, sizeof(attr));
        if (attr.nla_len < NLA_HDRLEN || at + attr.nla_len > head.nlmsg_len) {
            return 0;
        }
        size_t least = offsetof(struct rtnl_link_stats64, tx_bytes) + sizeof(stats.tx_bytes);
        if (attr.nla_type == IFLA_STATS_LINK_64 && attr.nla_len >= NLA_HDRLEN + least) {
            memcpy(&stats.tx_bytes,
                   bytes + at + NLA_HDRLEN + offsetof(struct rtnl_link_stats64, tx_bytes),
                   sizeof(stats.tx_bytes));
            return stats.tx_bytes;
        }
        at += NLA_ALIGN(attr.nla_len);
    }
    return 0;
}

uint64_t weft_link_counter_sent(struct weft_link_counter *counter, const struct weft_addr *to)
{
    uint8_t reply[512];
    if (!counter->tried) {
        look_up(counter, to);
    }
    if (counter->fd < 0) {
        return 0;
    }
    struct request request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = RTM_GETSTATS,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++counter->seq},
        .stats = {.ifindex = counter->index,
                  .filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)},
    };
    ssize_t count = -1;
    if (send(counter->fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request)) {
        count = recv(counter->fd, reply, sizeof(reply), 0);
    }
    uint64_t sent = count > 0 ? sent_of(reply, (size_t)count, counter->seq) : 0;
    if (sent == 0) {
        weft_link_counter_close(counter); /* the interface is gone, or the kernel has no counts */
    }
    return sent;
}
