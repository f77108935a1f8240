#include "cli/metrics.h"

const char *weft_metrics_parse(const char *text, void *value)
{
    struct weft_metrics_options *options = value;
    return weft_metrics_address(text, options->host, &options->port) ? NULL
                                                                     : WEFT_METRICS_ADDRESS_WORDS;
}
