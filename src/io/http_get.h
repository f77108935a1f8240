/* GET of one short document over HTTP, for `weft top`: one connection, one response, with limits on
 * time and size. Not supported: TLS, redirects, chunked responses (a server sends none to
 * HTTP/1.0).
 */
#ifndef WEFT_IO_HTTP_GET_H
#define WEFT_IO_HTTP_GET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_HTTP_GET_BYTES_MAX = 16 << 20 };

/* Shape:   host numeric; path "/metrics".
 * Owns:    gives *body_p from malloc; a zero byte follows it.
 * Errors:  WEFT_TIMEOUT  not received completely within timeout_ns.  WEFT_PEER  nothing listens, or
 *          the answer is not 200.  WEFT_DATA  not HTTP, or too long.  WEFT_INVALID  host, or a path
 *          that is too long.  WEFT_IO  no socket.  WEFT_NOMEM.
 * Thread:  any; blocks for timeout_ns at most. */
weft_status weft_http_get(const char *host, uint16_t port, const char *path, uint64_t timeout_ns,
                          char **body_p, struct weft_error *error);

/* The same, with an end before timeout_ns: stop is called at the beginning of each wait, every 100
 * ms of it, and after a signal.
 * Errors:  also WEFT_STATE  stop returned true. */
weft_status weft_http_get_unless(const char *host, uint16_t port, const char *path,
                                 uint64_t timeout_ns, bool (*stop)(void), char **body_p,
                                 struct weft_error *error);

#endif
