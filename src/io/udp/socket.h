/* Opening a UDP socket with all kernel features that weft uses, and reporting which were granted.
 * Internal to src/io.
 */
#ifndef WEFT_IO_UDP_SOCKET_H
#define WEFT_IO_UDP_SOCKET_H

#include "base/error.h"
#include "core/endpoint.h"

/* Datagrams sent from now on may be fragmented, or (the setting of weft_sock_open) have DF set and
 * may be as long as the device's MTU, whatever path MTU the kernel has cached. */
void weft_sock_set_fragment(int fd, int family, bool fragment);

/* The ECN mark of datagrams without one of their own. */
bool weft_sock_set_ecn(int fd, int family, enum weft_ecn ecn);

struct weft_sock_facts {
    uint32_t recv_buffer_bytes; /* as the kernel counts: twice what was granted */
    uint32_t send_buffer_bytes;
    bool gso; /* the kernel supports UDP_SEGMENT; a route may still refuse it */
    bool gro;
    bool timestamps;
    bool ecn;
    uint16_t port;
    struct weft_addr bound; /* with the port */
};

struct weft_sock_request {
    uint32_t buffer_bytes; /* for each direction */
    bool gro;
};

/* A non-blocking socket bound to addr. A feature that the kernel does not offer is false in facts,
 * never an error.
 * Errors:  WEFT_EXISTS  the port is in use. WEFT_IO. */
weft_status weft_sock_open(const struct weft_addr *addr, const struct weft_sock_request *request,
                           int *fd_p, struct weft_sock_facts *facts_p, struct weft_error *error);

/* Drop datagrams that arrive at other interfaces than these, also those that have arrived already:
 * a filter of the socket, which needs no privilege.
 *
 * Shape:   indices (count,), 1 to WEFT_SOCK_INTERFACES_MAX.
 * Errors:  WEFT_IO. */
enum { WEFT_SOCK_INTERFACES_MAX = 64 };
weft_status weft_sock_limit(int fd, const uint32_t *indices, uint32_t count,
                            struct weft_error *error);

/* Bytes of sent datagrams that are still queued in this host, as they will be on the wire,
 * estimated from the kernel's count of buffer memory. 0 where the kernel has no such count. */
uint64_t weft_sock_queued(int fd);

#endif
