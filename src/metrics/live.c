#include "metrics/live.h"

#include "base/units.h"
#include "metrics/text.h"

#include <stdio.h>
#include <stdlib.h>

struct weft_metrics_live {
    struct weft_metrics_live_config config;
    struct weft_metrics serving;
    struct weft_target_file file;
    struct weft_stats_query *queries; /* (threads,) */
    char *stats;                      /* (threads, stats_bytes) */
};

/* Runs in the server's thread. */
static void add_families(void *arg, struct weft_exposition *text)
{
    struct weft_metrics_live *live = arg;
    uint64_t age_ns = 0;
    for (uint32_t i = 0; i < live->config.threads; i++) {
        age_ns = weft_max_u64(age_ns,
                              weft_stats_query_acquire(&live->queries[i], live->config.timeout_ns));
    }
    live->config.write(live->config.arg, live->stats, text);
    for (uint32_t i = 0; i < live->config.threads; i++) {
        weft_stats_query_release(&live->queries[i]);
    }
    weft_metrics_text_ages(text);
    weft_metrics_text_age(text, NULL, age_ns);
}

static struct weft_metrics_live *live_new(const struct weft_metrics_live_config *config)
{
    struct weft_metrics_live *live = calloc(1, sizeof(*live));
    if (live == NULL) {
        return NULL;
    }
    live->config = *config;
    live->queries = calloc(config->threads, sizeof(*live->queries));
    live->stats = calloc(config->threads, config->stats_bytes);
    if (live->queries == NULL || live->stats == NULL) {
        free(live->queries);
        free(live->stats);
        free(live);
        return NULL;
    }
    for (uint32_t i = 0; i < config->threads; i++) {
        const struct weft_stats_query_config query = {.wake = i == 0 ? config->wake : NULL,
                                                      .wake_arg = config->arg,
                                                      .copy = config->copy,
                                                      .stats = live->stats + i * config->stats_bytes,
                                                      .period_ns = config->period_ns};
        weft_stats_query_init(&live->queries[i], &query);
        weft_stats_query_open(&live->queries[i]);
    }
    if (config->object != NULL) {
        config->copy(live->stats, config->object);
    }
    return live;
}

weft_status weft_metrics_live_start(const struct weft_metrics_live_config *config,
                                    const struct weft_metrics_options *options,
                                    struct weft_metrics_live **live_p, struct weft_error *error)
{
    *live_p = NULL;
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    struct weft_metrics_live *live = live_new(config);
    if (live == NULL) {
        return weft_fail(error, WEFT_NOMEM, "metrics: no memory");
    }
    const struct weft_metrics_source source = {
        .role = config->role, .arg = live, .families = add_families};
    weft_status status = weft_metrics_start(&live->serving, options, &source, error);
    if (status != WEFT_OK) {
        weft_metrics_live_stop(live);
        return status;
    }
    if (config->has_target) {
        weft_target_file_write(&live->file, config->role, config->rank, live->serving.url);
    }
    *live_p = live;
    return WEFT_OK;
}

void weft_metrics_live_poll(struct weft_metrics_live *live, uint32_t thread, void *object)
{
    if (live != NULL) {
        weft_stats_query_poll(&live->queries[thread], object);
    }
}

void weft_metrics_live_leave(struct weft_metrics_live *live, uint32_t thread)
{
    if (live != NULL) {
        weft_stats_query_close(&live->queries[thread]);
    }
}

const char *weft_metrics_live_url(const struct weft_metrics_live *live)
{
    return live != NULL ? live->serving.url : "";
}

void weft_metrics_live_stop(struct weft_metrics_live *live)
{
    if (live == NULL) {
        return;
    }
    weft_target_file_remove(&live->file);
    for (uint32_t i = 0; i < live->config.threads; i++) {
        weft_stats_query_close(&live->queries[i]); /* wakes a request that is waiting */
    }
    weft_metrics_stop(&live->serving);
    for (uint32_t i = 0; i < live->config.threads; i++) {
        weft_stats_query_fini(&live->queries[i]);
    }
    free(live->queries);
    free(live->stats);
    free(live);
}
