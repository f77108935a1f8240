/* The kernel's count of all bytes that a network interface has sent, for all programs.
 *
 * It is read with RTM_GETSTATS, not from /sys: in a network namespace /sys may still show the
 * interfaces of another one.
 *
 * Internal to src/io. Thread: all functions are the socket's owner's.
 * Source: rtnetlink(7); linux/if_link.h, IFLA_STATS_LINK_64. */
#ifndef WEFT_IO_UDP_LINK_COUNTER_H
#define WEFT_IO_UDP_LINK_COUNTER_H

#include "core/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct weft_link_counter {
    int fd;         /* netlink socket; -1 = none */
    bool tried;     /* the interface has been looked up */
    uint32_t index; /* interface index */
    uint32_t seq;   /* number of the last request */
};

void weft_link_counter_init(struct weft_link_counter *counter);
void weft_link_counter_close(struct weft_link_counter *counter);

/* Total of bytes that the interface towards `to` has sent; 0 = not known here. The interface is
 * looked up at the first call, and kept: packets to other addresses may use another one. */
uint64_t weft_link_counter_sent(struct weft_link_counter *counter, const struct weft_addr *to);

#endif
