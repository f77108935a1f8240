#include "metrics/coordinator.h"

#include "metrics/text.h"

#define PATIENCE_NS WEFT_NS_PER_S

static void copy_stats(void *arg, void *object)
{
    struct weft_coordinator_stats *stats = arg;
    const struct weft_coordinator *coordinator = object;
    weft_driver_counters(coordinator->driver, &stats->transport);
    stats->roster = *weft_roster_counters(coordinator->roster);
    stats->members = weft_roster_members(coordinator->roster);
    stats->workers = weft_roster_workers(coordinator->roster);
}

static void add_members(const struct weft_coordinator_stats *stats, struct weft_exposition *text)
{
    weft_exposition_one(text, "weft_members", "gauge", "Members that hold a lease.",
                        stats->members);
    weft_exposition_one(text, "weft_job_workers", "gauge", "Workers of the job; 0 = not known yet.",
                        stats->workers);
    weft_exposition_one(text, "weft_leases_granted_total", "counter", "Leases granted.",
                        stats->roster.granted);
    weft_exposition_one(text, "weft_leases_taken_over_total", "counter",
                        "Of these, from an earlier process of the same member.",
                        stats->roster.taken_over);
    weft_exposition_one(text, "weft_leases_expired_total", "counter",
                        "Leases that expired without a heartbeat.", stats->roster.expired);
    weft_exposition_one(text, "weft_leases_reclaimed_total", "counter",
                        "Of these, returned to their holder.", stats->roster.reclaimed);
    weft_exposition_one(text, "weft_member_requests_refused_total", "counter",
                        "Requests of members that were rejected.", stats->roster.refused);
    weft_exposition_one(text, "weft_members_left_total", "counter", "Members that left.",
                        stats->roster.left);
}

void weft_coordinator_metrics_members(struct weft_coordinator *coordinator,
                                      struct weft_coordinator_stats *stats,
                                      struct weft_exposition *text)
{
    (void)weft_stats_query_ask(&coordinator->query, copy_stats, stats, PATIENCE_NS);
    add_members(stats, text);
}

static void add_coordinator(void *arg, struct weft_exposition *text)
{
    struct weft_coordinator_metrics *metrics = arg;
    (void)weft_stats_query_ask(&metrics->coordinator->query, copy_stats, &metrics->stats,
                               PATIENCE_NS);
    weft_metrics_text_transport(text, &metrics->stats.transport);
    add_members(&metrics->stats, text);
}

weft_status weft_coordinator_metrics_start(struct weft_coordinator_metrics *metrics,
                                           const struct weft_metrics_options *options,
                                           struct weft_coordinator *coordinator,
                                           struct weft_error *error)
{
    *metrics = (struct weft_coordinator_metrics){.coordinator = coordinator};
    const struct weft_metrics_source source = {
        .role = "coordinator", .arg = metrics, .families = add_coordinator};
    return weft_metrics_start(&metrics->metrics, options, &source, error);
}

void weft_coordinator_metrics_stop(struct weft_coordinator_metrics *metrics)
{
    weft_metrics_stop(&metrics->metrics);
}
