/* Opening a UDP socket with everything weft wants from the kernel, and what of it was granted; and
 * addresses. Internal to this folder.
 */
#ifndef WEFT_IO_SOCK_H
#define WEFT_IO_SOCK_H

#include "base/error.h"
#include "core/endpoint.h"

/* A sockaddr_in or sockaddr_in6 in a struct weft_addr: family, port and address; all else zero.
 * host is a numeric address or "localhost" (names are not looked up: a resolver may block).
 *
 * Errors:  WEFT_INVALID  not an address. */
weft_status weft_sock_addr_parse(const char *host, uint16_t port, struct weft_addr *addr_p,
                                 struct weft_error *error);

/* The same for an address to bind to or to connect to. loopback_only: mode none, and nobody said that
 * the network is meant.
 * Errors:  also WEFT_UNSUPPORTED  loopback_only and the address is beyond. */
weft_status weft_sock_addr_usable(const char *host, uint16_t port, bool loopback_only,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* The same for an address that a socket of that family connects to.
 * Errors:  also WEFT_INVALID  port 0, or another family. */
weft_status weft_sock_addr_target(const char *host, uint16_t port, bool loopback_only, int family,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* 127.0.0.0/8 or ::1: what is sent there does not leave this machine. */
bool weft_sock_addr_is_loopback(const struct weft_addr *addr);

/* From what the kernel wrote as a sender's address; fields beyond address and port are cleared, so
 * that equal senders compare equal. */
void weft_sock_addr_canonical(const void *sockaddr, struct weft_addr *addr_p);

/* AF_INET or AF_INET6. */
int weft_sock_addr_family(const struct weft_addr *addr);

uint16_t weft_sock_addr_port(const struct weft_addr *addr);

/* Datagrams sent from now on may be fragmented, or (as a new socket has it) have DF set and are as
 * long as the device takes, whatever the kernel believes to know of the path. */
void weft_sock_set_fragment(int fd, int family, bool fragment);

/* What datagrams are marked with that do not say it themselves. */
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

/* Bytes of datagrams sent that still wait in this host, for the device before which they queue: those
 * on the wire, as near as the kernel's count of its memory tells. 0 where it does not tell. */
uint64_t weft_sock_queued(int fd);

#endif
