/* ICMP errors about a connection that is being made: nothing listens at the port, or the host
 * cannot be reached.
 *
 * An unconnected UDP socket does not report ICMP unless IP_RECVERR is set. This one sets it only
 * while a connection is being made, and reads the error queue in each step meanwhile. An error is
 * counted and kept as a sentence, and has no other effect: ICMP can be forged, so the attempt goes
 * on until its timeout, and errors about a connection that is up are not read. While the option is
 * set, the next send may fail with such an error; the sender tries again, and EMSGSIZE is not
 * passed to the endpoint.
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
    bool on; /* the option is set */
};

void weft_udp_errors_init(struct weft_udp_errors *errors, int fd, int family);

/* A connection is being made: set the option. */
void weft_udp_errors_watch(struct weft_udp_errors *errors);

/* Read the error queue if the option is set; true when the option is cleared, because no connection
 * is being made. An error about a peer that is up by now is discarded. */
bool weft_udp_errors_read(struct weft_udp_errors *errors, const struct weft_ep *ep,
                          struct weft_unreached *unreached, struct weft_socket_counters *counters);

#endif
