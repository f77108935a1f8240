/* A small HTTP server for what a process says of itself: GET and HEAD, short answers, one thread of
 * its own. libmicrohttpd parses what strangers send; here are the limits.
 *
 * There is no authentication and no encryption: it binds loopback unless told otherwise, answers
 * reads alone, and changes nothing. At most 64 connections, each 10 s idle, 16 KiB of request; when
 * there are many the one that has kept the server waiting longest goes (obs/http_slots.h).
 *
 * In a process that is forked it is gone, without a trace in that one: the port is the parent's.
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
    const char *type; /* of the content, static */
    char *body;       /* from malloc; taken over. NULL = the server says 500 */
    size_t bytes;
};

/* Thread: the server's own; it may take a while, and others wait then. */
typedef void weft_http_handler(void *arg, const struct weft_http_request *request,
                               struct weft_http_reply *reply_p);

struct weft_http_config {
    const char *host; /* numeric, or "localhost" */
    uint16_t port;    /* 0 = any free one */
    weft_http_handler *handler;
    void *arg; /* borrowed until stop */
};

/* Owns:    gives *http_p, to be ended with weft_http_stop.
 * Errors:  WEFT_INVALID  host is no address.  WEFT_IO  the port cannot be had, or libmicrohttpd, which
 *          is loaded here, is not installed.  error says it.
 * Thread:  any. The server's own takes no signals. */
weft_status weft_http_start(const struct weft_http_config *config, struct weft_http **http_p,
                            struct weft_error *error);

/* Waits for the handler to return. NULL is fine, and so is a copy in a forked process. */
void weft_http_stop(struct weft_http *http);

/* The port bound, host byte order. */
uint16_t weft_http_port(const struct weft_http *http);

/* ---- in a handler ---------------------------------------------------------------------------- */

/* "/metrics"; without the query. */
const char *weft_http_path(const struct weft_http_request *request);

/* The value of a header, NULL when it is not there. */
const char *weft_http_header(const struct weft_http_request *request, const char *name);

enum { WEFT_HTTP_ADDRESS_BYTES = 48 };

/* The address of this end of the connection, numeric; "" when it cannot be had. */
void weft_http_local(const struct weft_http_request *request,
                     char address_p[WEFT_HTTP_ADDRESS_BYTES]);

/* The value of ?name=value, decoded; NULL when it is not there. */
const char *weft_http_query(const struct weft_http_request *request, const char *name);

#endif
