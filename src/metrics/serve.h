/* What a process says of itself over HTTP while it runs: /metrics for Prometheus and `weft top`,
 * /hot for its hottest rows, /targets for where the other processes of the job say it.
 *
 * Off unless --metrics asks for it; on loopback unless that names a host. Requests are answered whose
 * Host header names this process (metrics/hosts.h). docs/METRICS.md has every name.
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

/* "[HOST:]PORT" with an IPv6 host in brackets; false when it is not WEFT_METRICS_ADDRESS_WORDS. */
bool weft_metrics_address(const char *text, char host_p[WEFT_METRICS_HOST_BYTES], uint16_t *port_p);

#define WEFT_METRICS_ADDRESS_WORDS                                                                 \
    "PORT or HOST:PORT with a port from 0 to 65535, such as 9100 or 0.0.0.0:9100"

/* What WEFT_METRICS of the environment says; false: nothing, or no address. */
bool weft_metrics_environment(struct weft_metrics_options *options_p);

struct weft_targets;

struct weft_metrics_source {
    const char *role; /* "server" */
    void *arg;        /* borrowed until stop; of the functions, which the server's thread calls */
    /* The role's own families. */
    void (*families)(void *arg, struct weft_exposition *text);
    /* The k hottest rows of a table as JSON, from malloc; NULL function: there are none here. */
    char *(*hot)(void *arg, uint16_t table, uint32_t k);
    struct weft_targets *targets; /* for /targets, Prometheus' HTTP service discovery; NULL = none */
};

struct weft_metrics {
    struct weft_metrics_source source;
    struct weft_http *http; /* NULL = off */
    uint64_t begun_ns;
    double begun_unix_s;
    char url[WEFT_METRICS_URL_BYTES]; /* "http://127.0.0.1:9100/metrics" */
    char bound[WEFT_METRICS_HOST_BYTES];  /* options.host */
    char hosts[WEFT_METRICS_HOSTS_BYTES]; /* WEFT_METRICS_HOST */
};

/* Nothing happens without --metrics. Other names of this host are in WEFT_METRICS_HOST of the
 * environment (--metrics-host sets it, so that processes started by this one have it too).
 * Errors:  as weft_http_start; WEFT_INVALID also: WEFT_METRICS_HOST is no list of names. */
weft_status weft_metrics_start(struct weft_metrics *metrics,
                               const struct weft_metrics_options *options,
                               const struct weft_metrics_source *source, struct weft_error *error);

/* Before anything that the source's functions look at goes away. A zeroed one is fine. */
void weft_metrics_stop(struct weft_metrics *metrics);

#endif
