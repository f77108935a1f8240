/* The HTTP interface of a running process: /metrics for Prometheus and `weft top`, /hot for its
 * hottest rows, /targets for the metrics addresses of the job's other processes.
 *
 * Off unless --metrics is given; on loopback unless that option names a host. Only requests whose
 * Host header names this process are accepted (metrics/hosts.h). docs/METRICS.md lists every name.
 */
#ifndef WEFT_METRICS_SERVE_H
#define WEFT_METRICS_SERVE_H

#include "metrics/hosts.h"
#include "obs/exposition.h"
#include "obs/http.h"

#include <stdbool.h>

enum { WEFT_METRICS_HOST_BYTES = 64, WEFT_METRICS_URL_BYTES = 96 };

struct weft_metrics_options {
    char host[WEFT_METRICS_HOST_BYTES]; /* "" = no --metrics was given */
    uint16_t port;                      /* 0 = any */
};

/* Parse "[HOST:]PORT" with an IPv6 host in brackets; false if it has another form.
 * WEFT_METRICS_ADDRESS_WORDS describes the allowed ones, for error messages. */
bool weft_metrics_address(const char *text, char host_p[WEFT_METRICS_HOST_BYTES], uint16_t *port_p);

#define WEFT_METRICS_ADDRESS_WORDS                                                                 \
    "PORT or HOST:PORT with a port from 0 to 65535, such as 9100 or 0.0.0.0:9100"

/* Parse WEFT_METRICS from the environment; false: not set, or not an address. */
bool weft_metrics_environment(struct weft_metrics_options *options_p);

struct weft_targets;

struct weft_metrics_source {
    const char *role; /* "server" */
    void *arg;        /* borrowed until stop; passed to the functions, which run in the HTTP
                       * server's thread */
    /* The families of this role. */
    void (*families)(void *arg, struct weft_exposition *text);
    /* The k hottest rows of a table as JSON, from malloc; a NULL function: not supported. */
    char *(*hot)(void *arg, uint16_t table, uint32_t k);
    struct weft_targets
        *targets; /* for /targets, Prometheus' HTTP service discovery; NULL = none */
};

struct weft_metrics {
    struct weft_metrics_source source;
    struct weft_http *http; /* NULL = off */
    uint64_t begun_ns;
    double begun_unix_s;
    char url[WEFT_METRICS_URL_BYTES];     /* "http://127.0.0.1:9100/metrics" */
    char bound[WEFT_METRICS_HOST_BYTES];  /* options.host */
    char hosts[WEFT_METRICS_HOSTS_BYTES]; /* WEFT_METRICS_HOST */
};

/* Does nothing without --metrics. Other names of this host are in the environment variable
 * WEFT_METRICS_HOST (--metrics-host sets it, so that child processes have it, too).
 * Errors:  as weft_http_start; WEFT_INVALID also: WEFT_METRICS_HOST is not a list of names. */
weft_status weft_metrics_start(struct weft_metrics *metrics,
                               const struct weft_metrics_options *options,
                               const struct weft_metrics_source *source, struct weft_error *error);

/* Call before the objects used by the source's functions are freed. A zeroed one is allowed. */
void weft_metrics_stop(struct weft_metrics *metrics);

#endif
