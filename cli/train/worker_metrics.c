#include "cli/train/worker_metrics.h"

#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For the training thread to come to the question. */
#define PATIENCE_NS WEFT_NS_PER_S

static void add_worker(void *arg, struct weft_exposition *text)
{
    struct weft_worker_metrics *worker = arg;
    if (weft_stats_query_ask(&worker->ask, worker->copy, &worker->stats, NULL, NULL, PATIENCE_NS)) {
        worker->taken_ns = weft_clock_now_ns();
    }
    if (worker->taken_ns != 0) {
        weft_metrics_text_worker(text, &worker->stats);
        weft_metrics_text_ages(text);
        weft_metrics_text_age(text, NULL, weft_clock_now_ns() - worker->taken_ns);
    }
}

static weft_status start(struct weft_worker_metrics *worker,
                         const struct weft_metrics_options *options, uint32_t rank,
                         weft_stats_query_fn *copy, char error_p[WEFT_HTTP_ERROR_BYTES])
{
    const struct weft_metrics_source source = {
        .role = "worker", .arg = worker, .families = add_worker};
    worker->copy = copy;
    weft_stats_query_init(&worker->ask);
    weft_stats_query_open(&worker->ask);
    weft_status status = weft_metrics_start(&worker->metrics, options, &source, error_p);
    if (status != WEFT_OK) {
        weft_stats_query_fini(&worker->ask);
        return status;
    }
    weft_target_file_write(&worker->file, "worker", rank, worker->metrics.url);
    return status;
}

/* `weft run --metrics` asks all its workers in this way, whatever programs they are. */
static void start_by_environment(struct weft_worker_metrics *worker, uint32_t rank,
                                 weft_stats_query_fn *copy)
{
    struct weft_metrics_options options;
    char words[WEFT_HTTP_ERROR_BYTES];
    const char *text = getenv("WEFT_METRICS");
    if (text == NULL || !weft_metrics_address(text, options.host, &options.port)) {
        return; /* one that is no address was refused before */
    }
    if (start(worker, &options, rank, copy, words) != WEFT_OK) {
        fprintf(stderr, "weft worker %u: %s; all else goes on without\n", rank, words);
    }
}

weft_status weft_worker_metrics_start(struct weft_worker_metrics *worker,
                                      const struct weft_metrics_options *options, uint32_t rank,
                                      weft_stats_query_fn *copy, char error_p[WEFT_HTTP_ERROR_BYTES])
{
    memset(worker, 0, sizeof(*worker));
    if (options->host[0] != '\0') {
        return start(worker, options, rank, copy, error_p);
    }
    start_by_environment(worker, rank, copy);
    return WEFT_OK;
}

void weft_worker_metrics_stop(struct weft_worker_metrics *worker)
{
    if (worker->metrics.http != NULL) {
        weft_target_file_remove(&worker->file);
        weft_stats_query_close(&worker->ask);
        weft_metrics_stop(&worker->metrics);
        weft_stats_query_fini(&worker->ask);
    }
}
