/* What the network says about a connection that is being made: that nothing listens at the port, or
 * that there is no way to the host.
 *
 * An unconnected UDP socket is not told of ICMP unless it asks (IP_RECVERR). This one asks only
 * while a connection is being made, and reads the queue of errors in each step meanwhile. What is
 * read is counted and kept as a sentence, and nothing else: anybody can forge ICMP, so the attempt
 * goes on until its time is over, and of a connection that is up nothing is heard, let alone
 * believed. While the socket asks, an error may also come from the next send; the sender tries
 * again, and its news of datagrams that are too long are not passed on.
 *
 * Source: ip(7), "IP_RECVERR"; ipv6(7); RFC 8085 section 5.2.
 */
#ifndef WEFT_IO_UDP_ERRORS_H
#define WEFT_IO_UDP_ERRORS_H

#include "io/driver_types.h"
#include "io/unreached.h"

struct weft_udp_errors {
    int fd;
    int family;
    bool on; /* the socket asks */
};

void weft_udp_errors_init(struct weft_udp_errors *errors, int fd, int family);

/* A connection is being made: ask. */
void weft_udp_errors_watch(struct weft_udp_errors *errors);

/* Read what there is, if the socket asks; true when it asks no more because no connection is being
 * made. News of a peer that is up by now are forgotten. */
bool weft_udp_errors_read(struct weft_udp_errors *errors, const struct weft_ep *ep,
                          struct weft_unreached *unreached,
                          struct weft_socket_counters *counters);

#endif
