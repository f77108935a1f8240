/* Addresses of sockets: parsing, what may be used, comparing. Both drivers use them. Internal to
 * src/io.
 */
#ifndef WEFT_IO_SOCK_ADDR_H
#define WEFT_IO_SOCK_ADDR_H

#include "base/error.h"
#include "core/endpoint.h"

/* A sockaddr_in or sockaddr_in6 in a struct weft_addr: family, port and address; all else zero.
 * host is a numeric address or "localhost" (names are not looked up: a resolver may block).
 *
 * Errors:  WEFT_INVALID  not an address. */
weft_status weft_sock_addr_parse(const char *host, uint16_t port, struct weft_addr *addr_p,
                                 struct weft_error *error);

/* The same for an address to bind to or to connect to. loopback_only: mode none, and
 * the network is not allowed.
 * Errors:  also WEFT_UNSUPPORTED  loopback_only and the address is beyond. */
weft_status weft_sock_addr_usable(const char *host, uint16_t port, bool loopback_only,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* The same for an address that a socket of that family connects to.
 * Errors:  also WEFT_INVALID  port 0, or another family. */
weft_status weft_sock_addr_target(const char *host, uint16_t port, bool loopback_only, int family,
                                  struct weft_addr *addr_p, struct weft_error *error);

/* 127.0.0.0/8 or ::1: packets to it do not leave this machine. */
bool weft_sock_addr_is_loopback(const struct weft_addr *addr);

/* Convert a sender's address as written by the kernel; fields beyond address and port are cleared,
 * so that equal senders compare equal. */
void weft_sock_addr_canonical(const void *sockaddr, struct weft_addr *addr_p);

/* AF_INET or AF_INET6. */
int weft_sock_addr_family(const struct weft_addr *addr);

uint16_t weft_sock_addr_port(const struct weft_addr *addr);

#endif
