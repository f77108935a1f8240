/* Names to addresses, and addresses of members to text and back. The transports take numeric
 * addresses only (a resolver may block); a thread that may wait resolves names here.
 */
#ifndef WEFT_IO_RESOLVE_H
#define WEFT_IO_RESOLVE_H

#include "base/error.h"
#include "member/format.h"

enum { WEFT_RESOLVE_TEXT_BYTES = 64 };

/* Resolve host, a name or an address, to a numeric address; "localhost" is 127.0.0.1 as everywhere
 * in weft.
 * Thread:  any; may block for as long as the system's resolver does.
 * Errors:  WEFT_NOTFOUND  the name has no address (at present). */
weft_status weft_resolve(const char *host, char text_p[WEFT_RESOLVE_TEXT_BYTES],
                         struct weft_error *error);

/* The source address of packets from this machine to host (numeric).
 * Errors:  WEFT_IO  there is no route.   WEFT_INVALID  not numeric. */
weft_status weft_resolve_local(const char *host, char text_p[WEFT_RESOLVE_TEXT_BYTES],
                               struct weft_error *error);

/* 0.0.0.0 or ::, to which no connection can be made. */
bool weft_resolve_is_wildcard(const char *host);

/* Errors:  WEFT_INVALID  host is not numeric. */
weft_status weft_resolve_member_address(const char *host, uint16_t port,
                                        struct weft_member_address *address_p,
                                        struct weft_error *error);

/* The host of an address, without brackets. */
void weft_resolve_member_host(const struct weft_member_address *address,
                              char text_p[WEFT_RESOLVE_TEXT_BYTES]);

#endif
