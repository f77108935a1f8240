/* A small HTTP server for the metrics of a process: GET and HEAD, short responses, one separate
 * thread. libmicrohttpd parses untrusted input; this file sets the limits.
 *
 * There is no authentication and no encryption. It binds to loopback by default, serves only reads
 * and changes nothing. Limits: 64 connections, an idle timeout of 10 s, 16 KiB per request. If
 * there are too many connections, the one that has kept the server waiting longest is closed
 * (obs/http_slots.h).
 *
 * A forked process closes its copy silently: the port belongs to the parent.
 *
 * Source: docs/METRICS.md.
 */
#ifndef WEFT_OBS_HTTP_H
#define WEFT_OBS_HTTP_H

#include "base/error.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct weft_http;
struct weft_http_request;

struct weft_http_reply {
    unsigned code;    /* 200, 404, ... */
    const char *type; /* content type, static */
    char *body;       /* from malloc; the server takes ownership. NULL = the server replies with
                       * 500 */
    size_t bytes;
};

/* Thread: the server's own; while it runs, other requests wait. */
typedef void weft_http_handler(void *arg, const struct weft_http_request *request,
                               struct weft_http_reply *reply_p);

struct weft_http_config {
    const char *host; /* numeric, or "localhost" */
    uint16_t port;    /* 0 = any free one */
    weft_http_handler *handler;
    void *arg; /* borrowed until stop */
};

/* Owns:    gives *http_p, to be ended with weft_http_stop.
 * Errors:  WEFT_INVALID  host is not an address.  WEFT_IO  the port cannot be bound, or
 *          libmicrohttpd, which is loaded here, is not installed.  error has the reason.
 * Thread:  any. The server's own thread blocks all signals. */
weft_status weft_http_start(const struct weft_http_config *config, struct weft_http **http_p,
                            struct weft_error *error);

/* Waits for the handler to return. NULL is allowed, and so is a copy in a forked process. */
void weft_http_stop(struct weft_http *http);

/* The bound port, in host byte order. */
uint16_t weft_http_port(const struct weft_http *http);

/* ---- in a handler ---------------------------------------------------------------------------- */

/* "/metrics", without the query. */
const char *weft_http_path(const struct weft_http_request *request);

/* The value of a header; NULL if it is missing. */
const char *weft_http_header(const struct weft_http_request *request, const char *name);

enum { WEFT_HTTP_ADDRESS_BYTES = 48 };

/* The local address of the connection, numeric; "" if it is unknown. */
void weft_http_local(const struct weft_http_request *request,
                     char address_p[WEFT_HTTP_ADDRESS_BYTES]);

/* The decoded value of ?name=value; NULL if it is missing. */
const char *weft_http_query(const struct weft_http_request *request, const char *name);

#endif
