/* Socket addresses: parsing, checking, comparing. Used by both drivers. Internal to src/io.
 */
#ifndef WEFT_IO_SOCK_ADDR_H
#define WEFT_IO_SOCK_ADDR_H

#include "base/error.h"
#include "core/endpoint.h"

/* Parse host and port into a struct weft_addr: a sockaddr_in or sockaddr_in6 with family, port and
 * address set and all other fields zero. host is a numeric address or "localhost" (names are not
 * looked up: a resolver may block).
 *
 * Errors:  WEFT_INVALID  not an address. */
weft_status weft_sock_addr_parse(const char *host, uint16_t port, struct weft_addr *addr_p,
                                 struct weft_error *error);

/* The same for an address to bind or connect to. loopback_only: security mode is none and
 * insecure_network is not set.
 * Errors:  also WEFT_UNSUPPORTED  loopback_only, and the address is not a loopback address. */
weft_status weft_sock_addr_usable(const char *host, uint16_t port, bool loopback_only,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* The same for an address to connect to from a socket of that family.
 * Errors:  also WEFT_INVALID  port 0, or another family. */
weft_status weft_sock_addr_target(const char *host, uint16_t port, bool loopback_only, int family,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* 127.0.0.0/8 or ::1: packets to it do not leave this machine. */
bool weft_sock_addr_is_loopback(const struct weft_addr *addr);

/* Convert a sender's address as written by the kernel. Fields other than family, address and port
 * are zeroed, so equal senders compare equal. */
void weft_sock_addr_canonical(const void *sockaddr, struct weft_addr *addr_p);

/* AF_INET or AF_INET6. */
int weft_sock_addr_family(const struct weft_addr *addr);

uint16_t weft_sock_addr_port(const struct weft_addr *addr);

#endif
