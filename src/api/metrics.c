#include "api/metrics.h"

#include "base/units.h"
#include "metrics/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For a program that computes. Who asks next does not wait again (metrics/figures.h). */
static const uint64_t patience_ns = 500 * WEFT_NS_PER_MS;

struct weft_api_metrics {
    struct weft_api_metrics_config config;
    struct weft_figures figures;
    struct weft_metrics serving;
    struct weft_target_file file;
    uint64_t stats[]; /* config.stats_bytes */
};

/* ---- where ----------------------------------------------------------------------------------- */

static const char *wanted(const char *address)
{
    const char *text = address != NULL ? address : getenv("WEFT_METRICS");
    return text != NULL ? text : "";
}

weft_status weft_api_metrics_check(const char *address, struct weft_io_error *error)
{
    struct weft_metrics_options options;
    const char *text = wanted(address);
    if (text[0] == '\0' || weft_metrics_address(text, options.host, &options.port)) {
        return WEFT_OK;
    }
    return weft_io_fail(error, address != NULL ? WEFT_INVALID : WEFT_DATA,
                        "%s is \"%.80s\"; it must be " WEFT_METRICS_ADDRESS_WORDS,
                        address != NULL ? "metrics" : "WEFT_METRICS", text);
}

/* ---- serving --------------------------------------------------------------------------------- */

/* On the server's thread. */
static void add_families(void *arg, struct weft_exposition *text)
{
    struct weft_api_metrics *metrics = arg;
    uint64_t age_ns = weft_figures_acquire(&metrics->figures);
    metrics->config.write(metrics->stats, text);
    weft_figures_release(&metrics->figures);
    weft_metrics_text_ages(text);
    weft_metrics_text_age(text, NULL, age_ns);
}

static struct weft_api_metrics *metrics_new(const struct weft_api_metrics_config *config)
{
    struct weft_api_metrics *metrics = calloc(1, sizeof(*metrics) + config->stats_bytes);
    if (metrics != NULL) {
        const struct weft_figures_config figures = {.stats = metrics->stats,
                                                    .copy = config->copy,
                                                    .object = config->object,
                                                    .wake = config->wake,
                                                    .patience_ns = patience_ns};
        metrics->config = *config;
        weft_figures_init(&metrics->figures, &figures);
    }
    return metrics;
}

static void metrics_free(struct weft_api_metrics *metrics)
{
    weft_figures_fini(&metrics->figures);
    free(metrics);
}

/* "weft: worker 3: metrics: ..." */
static void tell(const struct weft_api_metrics_config *config, const char *words)
{
    if (config->rank != WEFT_TARGET_NO_RANK) {
        fprintf(stderr, "weft: %s %u: %s\n", config->role, config->rank, words);
    } else {
        fprintf(stderr, "weft: %s: %s\n", config->role, words);
    }
}

void weft_api_metrics_open(const struct weft_api_metrics_config *config,
                           struct weft_api_metrics **metrics_p, struct weft_io_error *error)
{
    struct weft_metrics_options options;
    char words[WEFT_HTTP_ERROR_BYTES + 64] = "metrics: no memory; all else goes on without";
    const char *text = wanted(config->address);
    *metrics_p = NULL;
    if (text[0] == '\0' || !weft_metrics_address(text, options.host, &options.port)) {
        return; /* the latter was refused before */
    }
    struct weft_api_metrics *metrics = metrics_new(config);
    if (metrics == NULL) {
        tell(config, words);
        return;
    }
    const struct weft_metrics_source source = {
        .role = config->role, .arg = metrics, .families = add_families};
    if (weft_metrics_start(&metrics->serving, &options, &source, words) == WEFT_OK) {
        weft_target_file_write(&metrics->file, config->role, config->rank, metrics->serving.url);
        snprintf(words, sizeof(words), "metrics: %s", metrics->serving.url);
        *metrics_p = metrics;
    } else {
        size_t used = strlen(words);
        snprintf(words + used, sizeof(words) - used, "; all else goes on without");
        (void)weft_io_fail(error, WEFT_IO, "%s", words);
        metrics_free(metrics);
    }
    tell(config, words);
}

void weft_api_metrics_close(struct weft_api_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    weft_target_file_remove(&metrics->file);
    weft_metrics_stop(&metrics->serving);
    metrics_free(metrics);
}

const char *weft_api_metrics_url(const struct weft_api_metrics *metrics)
{
    return metrics != NULL ? metrics->serving.url : "";
}

void weft_api_metrics_look(struct weft_api_metrics *metrics)
{
    if (metrics != NULL) {
        weft_figures_look(&metrics->figures);
    }
}
