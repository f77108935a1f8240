#include "cli/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_metrics_parse(const char *text, void *value)
{
    struct weft_metrics_options *options = value;
    return weft_metrics_address(text, options->host, &options->port) ? NULL
                                                                     : WEFT_METRICS_ADDRESS_WORDS;
}

const char *weft_metrics_host_parse(const char *text, void *value)
{
    const char *before = getenv("WEFT_METRICS_HOST");
    char all[WEFT_METRICS_HOSTS_BYTES];
    (void)value;
    before = before != NULL ? before : "";
    int bytes = snprintf(all, sizeof(all), "%s%s%s", before, before[0] != '\0' ? "," : "", text);
    bool good = text[0] != '\0' && weft_metrics_hosts_valid(text) && bytes < (int)sizeof(all);
    return good && setenv("WEFT_METRICS_HOST", all, 1) == 0 ? NULL : WEFT_METRICS_HOSTS_WORDS;
}

int weft_metrics_check(const struct weft_command *command, const struct weft_metrics_options *given)
{
    struct weft_metrics_options options;
    const char *text = getenv("WEFT_METRICS");
    if ((given != NULL && given->host[0] != '\0') || text == NULL || text[0] == '\0' ||
        weft_metrics_parse(text, &options) == NULL) {
        return WEFT_OPTIONS_RUN;
    }
    return weft_options_usage(
        command, "WEFT_METRICS is \"%.80s\"; it must be " WEFT_METRICS_ADDRESS_WORDS, text);
}

bool weft_metrics_for_child(const struct weft_metrics_options *options,
                            char text_p[WEFT_METRICS_HOST_BYTES + 8])
{
    bool v6 = strchr(options->host, ':') != NULL;
    snprintf(text_p, WEFT_METRICS_HOST_BYTES + 8, "%s%s%s:0", v6 ? "[" : "", options->host,
             v6 ? "]" : "");
    return options->host[0] != '\0';
}

void weft_metrics_add(const struct weft_metrics_options *options, struct weft_args *args)
{
    char text[WEFT_METRICS_HOST_BYTES + 8];
    if (weft_metrics_for_child(options, text)) {
        weft_args_add(args, "--metrics=%s", text);
    }
}
