#include "cli/load/internal.h"

#include "metrics/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[WEFT_LOAD_KINDS] = {"push", "pull"};

static_assert(sizeof(struct weft_driver_counters) % sizeof(uint64_t) == 0, "counters only");
static_assert(sizeof(struct weft_ps_client_counters) % sizeof(uint64_t) == 0, "counters only");

static void add_times(void *into, const void *from, size_t bytes, uint64_t times)
{
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t a, b;
        memcpy(&a, (char *)into + at, sizeof(a));
        memcpy(&b, (const char *)from + at, sizeof(b));
        a += b * times;
        memcpy((char *)into + at, &a, sizeof(a));
    }
}

void weft_load_counters_add(void *into, const void *from, size_t bytes)
{
    add_times(into, from, bytes, 1);
}

void weft_load_counters_sub(void *into, const void *from, size_t bytes)
{
    add_times(into, from, bytes, UINT64_MAX); /* -1, as these numbers wrap */
}

static void sum(const struct weft_load_figures *parts, uint32_t count,
                struct weft_load_figures *sum_p)
{
    memset(sum_p, 0, sizeof(*sum_p));
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_load_figures *part = &parts[i];
        weft_load_counters_add(&sum_p->transport, &part->transport, sizeof(part->transport));
        weft_load_counters_add(&sum_p->client, &part->client, sizeof(part->client));
        for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
            weft_hist_merge(&sum_p->seen.latency[kind], &part->seen.latency[kind]);
        }
        sum_p->seen.refused += part->seen.refused;
        sum_p->connected += part->connected;
        sum_p->measuring |= part->measuring;
    }
}

static void add_text(const struct weft_load_figures *figures, uint32_t workers,
                     struct weft_exposition *text)
{
    static const char latency[] = "weft_load_request_latency_seconds";
    weft_metrics_text_transport(text, &figures->transport);
    weft_metrics_text_client(text, &figures->client);
    weft_exposition_family(text, "weft_load_workers", "gauge", "Logical workers.");
    weft_exposition_u64(text, "weft_load_workers", "state=\"connected\"", figures->connected);
    weft_exposition_u64(text, "weft_load_workers", "state=\"connecting\"",
                        workers - figures->connected);
    weft_exposition_one(text, "weft_load_measuring", "gauge",
                        "1 = the measurement interval has begun.", figures->measuring);
    weft_exposition_one(text, "weft_load_requests_refused_total", "counter",
                        "Requests that a server rejected.", figures->seen.refused);
    weft_exposition_family(text, latency, "histogram",
                           "Requests, from their scheduled time to their last reply.");
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        char labels[32];
        snprintf(labels, sizeof(labels), "kind=\"%s\"", kinds[kind]);
        weft_exposition_hist(text, latency, labels, &figures->seen.latency[kind]);
    }
}

static void write_load(void *arg, const void *stats, struct weft_exposition *text)
{
    const struct weft_load_live *live = arg;
    struct weft_load_figures *figures = malloc(sizeof(*figures));
    if (figures != NULL) {
        sum(stats, live->threads, figures);
        add_text(figures, live->workers, text);
    }
    free(figures);
}

weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 struct weft_error *error)
{
    const struct weft_metrics_live_config config = {.role = "load",
                                                    .threads = threads,
                                                    .stats_bytes = sizeof(struct weft_load_figures),
                                                    .copy = copy,
                                                    .write = write_load,
                                                    .arg = live,
                                                    .timeout_ns = WEFT_NS_PER_S};
    *live = (struct weft_load_live){.threads = threads, .workers = workers};
    return weft_metrics_live_start(&config, options, &live->served, error);
}
