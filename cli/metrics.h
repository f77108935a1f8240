/* The options --metrics and --metrics-host. `weft worker` also reads the environment variable
 * WEFT_METRICS if they are absent, as programs of the C API do. See metrics/serve.h. */
#ifndef WEFT_CLI_METRICS_H
#define WEFT_CLI_METRICS_H

#include "cli/options.h"
#include "job/args.h"
#include "metrics/serve.h"

const char *weft_metrics_parse(const char *text, void *value);

/* Append to WEFT_METRICS_HOST, which weft_metrics_start reads and child processes inherit; value is
 * unused. */
const char *weft_metrics_host_parse(const char *text, void *value);

/* Check WEFT_METRICS, for workers and for the verbs that start them. It applies if --metrics was
 * not given, or is not passed on (NULL). An unset or empty variable is valid.
 * Returns WEFT_OPTIONS_RUN, or the status of a usage error that was printed. */
int weft_metrics_check(const struct weft_command *command,
                       const struct weft_metrics_options *given);

/* The value of --metrics for a child, or of WEFT_METRICS for a program: any free port on the same
 * host. False: this process has no --metrics. */
bool weft_metrics_for_child(const struct weft_metrics_options *options,
                            char text_p[WEFT_METRICS_HOST_BYTES + 8]);
/* Add --metrics to the arguments of a child, if this process has it. */
void weft_metrics_add(const struct weft_metrics_options *options, struct weft_args *args);

/* Rows of an option table. */
#define WEFT_METRICS_OPTIONS(metrics)                                                              \
    {                                                                                              \
        "metrics", "[HOST:]PORT",                                                                  \
            "serve /metrics over HTTP without authentication, for Prometheus and\n"                \
     "`weft top`, on 127.0.0.1 or on HOST; port 0 = any free port",                             \
            WEFT_OPTION_CUSTOM, .value = (metrics), .parse = weft_metrics_parse, .fallback = "" \
    },                                                                                             \
    {                                                                                              \
        "metrics-host", "NAME[,NAME...]",                                                          \
        "accept HTTP requests with Host header NAME, in addition to localhost and\n"               \
        "the address of --metrics; others are rejected, as a protection against\n"                 \
        "DNS rebinding",                                                                           \
            WEFT_OPTION_CUSTOM, .value = (metrics), .parse = weft_metrics_host_parse,              \
            .fallback = ""                                                                     \
    }

#endif
