/* The options --metrics and --metrics-host, and WEFT_METRICS of the environment, which `weft worker`
 * heeds without them, as programs of the C API do; what they ask for is in metrics/serve.h. */
#ifndef WEFT_CLI_METRICS_H
#define WEFT_CLI_METRICS_H

#include "cli/options.h"
#include "job/args.h"
#include "metrics/serve.h"

const char *weft_metrics_parse(const char *text, void *value);

/* Adds to WEFT_METRICS_HOST, where weft_metrics_start reads it and children find it; value is not
 * looked at. */
const char *weft_metrics_host_parse(const char *text, void *value);

/* WEFT_METRICS, for workers and for who starts them; it counts where --metrics was not given, or is
 * not handed on (NULL). No such variable, and an empty one, are fine.
 * WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_metrics_check(const struct weft_command *command,
                       const struct weft_metrics_options *given);

/* --metrics of a child, and WEFT_METRICS of a program: a free port of the same host. False: there is no
 * --metrics here. */
bool weft_metrics_for_child(const struct weft_metrics_options *options,
                            char text_p[WEFT_METRICS_HOST_BYTES + 8]);
/* The same as an argument of a child; nothing without --metrics. */
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
            "accept HTTP requests whose Host header is NAME, besides those for\n"                 \
     "localhost and for the address of --metrics; others are refused, as a\n"                  \
     "protection against DNS rebinding",       \
            WEFT_OPTION_CUSTOM, .value = (metrics), .parse = weft_metrics_host_parse,              \
            .fallback = ""                                                                     \
    }

#endif
