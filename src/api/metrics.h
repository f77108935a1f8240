/* /metrics of a program that uses the library: enabled in a configuration or by WEFT_METRICS. Its
 * address is logged, and a failure never stops the program. Internal to src/api.
 *
 * Source: docs/METRICS.md, "Your own programs".
 */
#ifndef WEFT_API_METRICS_H
#define WEFT_API_METRICS_H

#include "base/error.h"
#include "metrics/live.h"

/* Check the address before anything is opened; NULL and "" as in weft_api_metrics_open.
 * Errors:  WEFT_INVALID  the configuration's is malformed.   WEFT_DATA  that of WEFT_METRICS is. */
weft_status weft_api_metrics_check(const char *address, struct weft_error *error);

/* Serve /metrics, if enabled: address is from the configuration, NULL = WEFT_METRICS, "" =
 * disabled. An error is reported in *error and on standard error, and is not a failure: *live_p is
 * NULL then, as when disabled. config: the caller sets role, rank, stats_bytes, copy, write, wake
 * and arg; this function sets the rest, and object to arg.
 * Owns:    gives *live_p, to be ended with weft_metrics_live_stop before the object. */
void weft_api_metrics_open(const char *address, struct weft_metrics_live_config *config,
                           struct weft_metrics_live **live_p, struct weft_error *error);

#endif
