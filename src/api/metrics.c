#include "api/metrics.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program may compute for a long time between two polls (node/stats_query.h). */
static const uint64_t timeout_ns = 500 * WEFT_NS_PER_MS;
static const uint64_t period_ns = 100 * WEFT_NS_PER_MS;

/* ---- where ----------------------------------------------------------------------------------- */

static const char *wanted(const char *address)
{
    const char *text = address != NULL ? address : getenv("WEFT_METRICS");
    return text != NULL ? text : "";
}

weft_status weft_api_metrics_check(const char *address, struct weft_error *error)
{
    struct weft_metrics_options options;
    const char *text = wanted(address);
    if (text[0] == '\0' || weft_metrics_address(text, options.host, &options.port)) {
        return WEFT_OK;
    }
    return weft_fail(error, address != NULL ? WEFT_INVALID : WEFT_DATA,
                     "%s is \"%.80s\"; it must be " WEFT_METRICS_ADDRESS_WORDS,
                     address != NULL ? "metrics" : "WEFT_METRICS", text);
}

/* ---- serving --------------------------------------------------------------------------------- */

/* "weft: worker 3: metrics: ..." */
static void print_line(const struct weft_metrics_live_config *config, const char *words)
{
    if (config->rank != WEFT_TARGET_NO_RANK) {
        fprintf(stderr, "weft: %s %u: %s\n", config->role, config->rank, words);
    } else {
        fprintf(stderr, "weft: %s: %s\n", config->role, words);
    }
}

void weft_api_metrics_open(const char *address, struct weft_metrics_live_config *config,
                           struct weft_metrics_live **live_p, struct weft_error *error)
{
    struct weft_metrics_options options = {.host = ""};
    struct weft_error words;
    const char *text = wanted(address);
    *live_p = NULL;
    if (text[0] == '\0' || !weft_metrics_address(text, options.host, &options.port)) {
        return; /* an invalid setting was refused before */
    }
    config->has_target = true;
    config->threads = 1;
    config->object = config->arg;
    config->timeout_ns = timeout_ns;
    config->period_ns = period_ns;
    if (weft_metrics_live_start(config, &options, live_p, &words) == WEFT_OK) {
        (void)weft_fail(&words, WEFT_OK, "metrics: %s", weft_metrics_live_url(*live_p));
    } else {
        size_t used = strlen(words.text);
        snprintf(words.text + used, sizeof(words.text) - used, "; continuing without metrics");
        (void)weft_fail(error, WEFT_IO, "%s", words.text);
    }
    print_line(config, words.text);
}
