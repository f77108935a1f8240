#include "cli/load/live.h"

#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For a thread to come to the question. */
#define PATIENCE_NS WEFT_NS_PER_S

static const char *const kinds[WEFT_LOAD_KINDS] = {"push", "pull"};

static void add_u64(void *into, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t a, b;
        memcpy(&a, (char *)into + at, sizeof(a));
        memcpy(&b, (const char *)from + at, sizeof(b));
        a += b;
        memcpy((char *)into + at, &a, sizeof(a));
    }
}

void weft_load_figures_add(struct weft_load_figures *into,
                           const struct weft_driver_counters *transport,
                           const struct weft_ps_client_counters *client)
{
    static_assert(sizeof(*transport) % sizeof(uint64_t) == 0, "counters only");
    static_assert(sizeof(*client) % sizeof(uint64_t) == 0, "counters only");
    add_u64(&into->transport, transport, sizeof(*transport));
    if (client != NULL) {
        add_u64(&into->client, client, sizeof(*client));
    }
}

static void sum(const struct weft_load_live *live, struct weft_load_figures *sum_p)
{
    memset(sum_p, 0, sizeof(*sum_p));
    for (uint32_t i = 0; i < live->count; i++) {
        const struct weft_load_figures *part = &live->parts[i].figures;
        weft_load_figures_add(sum_p, &part->transport, &part->client);
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
                        "1 = what happens now is in the result.", figures->measuring);
    weft_exposition_one(text, "weft_load_requests_refused_total", "counter",
                        "Requests that a server refused.", figures->seen.refused);
    weft_exposition_family(text, latency, "histogram",
                           "Requests, from when they were due until their last answer.");
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        char labels[32];
        snprintf(labels, sizeof(labels), "kind=\"%s\"", kinds[kind]);
        weft_exposition_hist(text, latency, labels, &figures->seen.latency[kind]);
    }
}

static void add_load(void *arg, struct weft_exposition *text)
{
    struct weft_load_live *live = arg;
    uint64_t oldest_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < live->count; i++) {
        struct weft_load_part *part = &live->parts[i];
        if (weft_stats_query_ask(&part->ask, live->copy, &part->figures, NULL, NULL, PATIENCE_NS)) {
            part->taken_ns = weft_clock_now_ns();
        }
        oldest_ns = weft_min_u64(oldest_ns, part->taken_ns);
    }
    struct weft_load_figures *figures = malloc(sizeof(*figures));
    if (figures != NULL) {
        sum(live, figures);
        add_text(figures, live->workers, text);
        weft_metrics_text_ages(text);
        weft_metrics_text_age(text, NULL, weft_clock_now_ns() - oldest_ns);
    }
    free(figures);
}

weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 char error_p[WEFT_HTTP_ERROR_BYTES])
{
    *live = (struct weft_load_live){.copy = copy, .workers = workers};
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    live->parts = calloc(threads, sizeof(*live->parts));
    if (live->parts == NULL) {
        snprintf(error_p, WEFT_HTTP_ERROR_BYTES, "no memory for --metrics");
        return WEFT_NOMEM;
    }
    for (; live->count < threads; live->count++) {
        live->parts[live->count].taken_ns = weft_clock_now_ns();
        weft_stats_query_init(&live->parts[live->count].ask);
        weft_stats_query_open(&live->parts[live->count].ask);
    }
    const struct weft_metrics_source source = {.role = "load", .arg = live, .families = add_load};
    weft_status status = weft_metrics_start(&live->metrics, options, &source, error_p);
    if (status != WEFT_OK) {
        weft_load_live_stop(live);
    }
    return status;
}

void weft_load_live_leave(struct weft_load_live *live, uint32_t thread)
{
    if (live->parts != NULL) {
        weft_stats_query_close(&live->parts[thread].ask);
    }
}

void weft_load_live_stop(struct weft_load_live *live)
{
    weft_metrics_stop(&live->metrics);
    for (uint32_t i = 0; i < live->count; i++) {
        weft_stats_query_fini(&live->parts[i].ask);
    }
    free(live->parts);
    *live = (struct weft_load_live){0};
}
