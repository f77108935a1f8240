/* The option --metrics; what it asks for is in metrics/serve.h. */
#ifndef WEFT_CLI_METRICS_H
#define WEFT_CLI_METRICS_H

#include "cli/options.h"
#include "metrics/serve.h"

const char *weft_metrics_parse(const char *text, void *value);

/* A row of an option table. */
#define WEFT_METRICS_OPTIONS(metrics)                                                              \
    {                                                                                              \
        "metrics", "[HOST:]PORT",                                                                  \
            "serve /metrics over HTTP here, for Prometheus and `weft top`: on\n"                   \
            "127.0.0.1 unless HOST is given, without a password; port 0 = any free",               \
            WEFT_OPTION_CUSTOM, .value = (metrics), .parse = weft_metrics_parse, .fallback = "not" \
    }

#endif
