#include "cli/worker_metrics.h"

#include "io/clock.h"

#include <string.h>

/* For the training thread to come to the question. */
#define PATIENCE_NS WEFT_NS_PER_S

static void add_worker(void *arg, struct weft_exposition *text)
{
    struct weft_worker_metrics *worker = arg;
    if (weft_ask(&worker->ask, worker->copy, &worker->stats, NULL, NULL, PATIENCE_NS)) {
        worker->taken_ns = weft_clock_now_ns();
    }
    if (worker->taken_ns != 0) {
        weft_metrics_text_worker(text, &worker->stats);
        weft_metrics_text_ages(text);
        weft_metrics_text_age(text, NULL, weft_clock_now_ns() - worker->taken_ns);
    }
}

weft_status weft_worker_metrics_start(struct weft_worker_metrics *worker,
                                      const struct weft_metrics_options *options,
                                      weft_ask_question *copy, char error_p[WEFT_HTTP_ERROR_BYTES])
{
    memset(worker, 0, sizeof(*worker));
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    const struct weft_metrics_source source = {
        .role = "worker", .arg = worker, .families = add_worker};
    worker->copy = copy;
    weft_ask_init(&worker->ask);
    weft_ask_open(&worker->ask);
    weft_status status = weft_metrics_start(&worker->metrics, options, &source, error_p);
    if (status != WEFT_OK) {
        weft_ask_fini(&worker->ask);
    }
    return status;
}

void weft_worker_metrics_stop(struct weft_worker_metrics *worker)
{
    if (worker->metrics.http != NULL) {
        weft_ask_close(&worker->ask);
        weft_metrics_stop(&worker->metrics);
        weft_ask_fini(&worker->ask);
    }
}
