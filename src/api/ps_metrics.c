/* /metrics of a worker in a user's program, with the names of `weft worker`, so that the same
 * dashboards work for both. */
#include "api/ps_internal.h"

#include "io/clock.h"
#include "metrics/text.h"

#include <stdlib.h>

/* Polling interval for scrapes, while a progress thread runs and a scrape cannot end the caller's
 * sleep. */
static const uint64_t scrape_poll_ns = 100 * WEFT_NS_PER_MS;

struct ps_metrics {
    struct weft_metrics_live *served;
    const struct weft_ps_table *table; /* its clocks count as steps: the first table that ended
                                        * one */
    uint64_t step_began_ns;
    struct weft_hist step_ns;
};

static void copy_stats(void *arg, void *object)
{
    struct weft_worker_stats *stats = arg;
    struct weft_ps *ps = object;
    stats->has_gauges =
        weft_endpoint_stats(&ps->worker.endpoint, &stats->transport, &stats->gauges);
    stats->client = *weft_ps_client_counters(ps->worker.client);
    stats->push = *weft_ps_client_push_latencies(ps->worker.client);
    stats->pull = *weft_ps_client_pull_latencies(ps->worker.client);
    stats->step_ns = ps->metrics->step_ns;
    stats->rank = ps->worker.rank;
}

static void write_stats(void *arg, const void *stats, struct weft_exposition *text)
{
    (void)arg;
    weft_metrics_text_worker(text, stats);
}

static void wake(void *object)
{
    struct weft_ps *ps = object;
    weft_endpoint_wake(&ps->worker.endpoint);
}

void weft_api_ps_metrics_open(struct weft_ps *ps, const char *address)
{
    struct weft_metrics_live_config config = {
        .role = "worker",
        .rank = ps->worker.rank,
        .stats_bytes = sizeof(struct weft_worker_stats),
        .copy = copy_stats,
        .write = write_stats,
        .wake = wake,
        .arg = ps,
    };
    ps->metrics = calloc(1, sizeof(*ps->metrics));
    if (ps->metrics == NULL) {
        return;
    }
    weft_api_metrics_open(address, &config, &ps->metrics->served, &ps->worker.error);
    if (ps->metrics->served == NULL) {
        free(ps->metrics);
        ps->metrics = NULL;
    }
}

void weft_api_ps_metrics_close(struct weft_ps *ps)
{
    if (ps->metrics != NULL) {
        weft_metrics_live_stop(ps->metrics->served);
        free(ps->metrics);
        ps->metrics = NULL;
    }
}

void weft_api_ps_metrics_look(struct weft_ps *ps)
{
    if (ps->metrics != NULL) {
        weft_metrics_live_poll(ps->metrics->served, 0, ps);
    }
}

void weft_api_ps_metrics_step(struct weft_ps *ps, const struct weft_ps_table *table)
{
    struct ps_metrics *metrics = ps->metrics;
    if (metrics == NULL || (metrics->table != NULL && metrics->table != table)) {
        return;
    }
    uint64_t now_ns = weft_clock_now_ns();
    if (metrics->table != NULL) {
        weft_hist_add(&metrics->step_ns, now_ns - metrics->step_began_ns);
    }
    metrics->table = table;
    metrics->step_began_ns = now_ns;
}

uint64_t weft_api_ps_metrics_sleep(const struct weft_ps *ps, uint64_t timeout_ns)
{
    return ps->metrics != NULL ? weft_min_u64(timeout_ns, scrape_poll_ns) : timeout_ns;
}

const char *weft_ps_metrics(const struct weft_ps *ps)
{
    return ps->metrics != NULL ? weft_metrics_live_url(ps->metrics->served) : "";
}
