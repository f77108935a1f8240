/* /metrics of a program that uses the library: asked for in a configuration or by WEFT_METRICS, its
 * address told, and never a reason for the program to stop. Not for anyone outside src/api.
 *
 * Source: docs/METRICS.md, "Programs of yours".
 */
#ifndef WEFT_API_METRICS_H
#define WEFT_API_METRICS_H

#include "io/error.h"
#include "metrics/figures.h"
#include "metrics/serve.h"
#include "metrics/target_file.h"

struct weft_api_metrics_config {
    const char *address; /* of the configuration: NULL = WEFT_METRICS; "" = none */
    const char *role;    /* "worker", "transport" */
    uint32_t rank;       /* or WEFT_TARGET_NO_RANK */
    size_t stats_bytes;
    void (*copy)(void *stats, void *object); /* run by the object's owner, in _open and _look */
    void (*write)(const void *stats, struct weft_exposition *text);
    void (*wake)(void *object); /* as in struct weft_figures_config */
    void *object;
};

struct weft_api_metrics;

/* Is this an address? Before anything is opened.
 * Errors:  WEFT_INVALID  the configuration's is not.   WEFT_DATA  that of WEFT_METRICS. */
weft_status weft_api_metrics_check(const char *address, struct weft_io_error *error);

/* Serve, if anybody wants it. That it cannot be is said in *error and on standard error, and not a
 * failure: *metrics_p is NULL then, as where nobody asks.
 * Owns:    gives *metrics_p, to be ended with weft_api_metrics_close before the object. */
void weft_api_metrics_open(const struct weft_api_metrics_config *config,
                           struct weft_api_metrics **metrics_p, struct weft_io_error *error);
/* NULL is fine. */
void weft_api_metrics_close(struct weft_api_metrics *metrics);

/* "" for NULL. */
const char *weft_api_metrics_url(const struct weft_api_metrics *metrics);

/* The owner is here, and the object may be copied.   Cost: one look at a flag. NULL is fine. */
void weft_api_metrics_look(struct weft_api_metrics *metrics);

#endif
