/* Opening a UDP socket with everything weft wants from the kernel, and what of it was granted.
 * Internal to src/io.
 */
#ifndef WEFT_IO_UDP_SOCKET_H
#define WEFT_IO_UDP_SOCKET_H

#include "base/error.h"
#include "core/endpoint.h"

/* Datagrams sent from now on may be fragmented, or (as a new socket has it) have DF set and are as
 * long as the device takes, whatever the kernel believes to know of the path. */
void weft_sock_set_fragment(int fd, int family, bool fragment);

/* The mark of datagrams without one of their own. */
bool weft_sock_set_ecn(int fd, int family, enum weft_ecn ecn);

struct weft_sock_facts {
    uint32_t recv_buffer_bytes; /* as the kernel counts: twice what was granted */
    uint32_t send_buffer_bytes;
    bool gso; /* the kernel knows UDP_SEGMENT; a route may refuse it yet */
    bool gro;
    bool timestamps;
    bool ecn;
    uint16_t port;
    struct weft_addr bound; /* with the port */
};

struct weft_sock_request {
    uint32_t buffer_bytes; /* each way */
    bool gro;
};

/* A non-blocking socket bound to addr. What the kernel does not offer is missing in facts, never an
 * error.
 * Errors:  WEFT_EXISTS  the port is in use. WEFT_IO. */
weft_status weft_sock_open(const struct weft_addr *addr, const struct weft_sock_request *request,
                           int *fd_p, struct weft_sock_facts *facts_p, struct weft_error *error);

/* Bytes of datagrams sent that still wait in this host, for the device before which they queue:
 * those on the wire, estimated from the kernel's count of its memory. 0 where there is no such
 * count. */
uint64_t weft_sock_queued(int fd);

#endif
