#include "metrics/scheduler.h"

#include "metrics/text.h"

#define PATIENCE_NS WEFT_NS_PER_S

static void copy_stats(void *arg, void *object)
{
    struct weft_scheduler_stats *stats = arg;
    const struct weft_scheduler *scheduler = object;
    weft_driver_counters(scheduler->driver, &stats->transport);
    stats->service = *weft_sched_service_counters(scheduler->service);
    weft_sched_service_planned(scheduler->service, &stats->planner);
}

void weft_scheduler_stats_ask(struct weft_scheduler *scheduler, struct weft_scheduler_stats *stats)
{
    (void)weft_stats_query_ask(&scheduler->query, copy_stats, stats, PATIENCE_NS);
}

static void add_updates(const struct weft_scheduler_stats *stats, struct weft_exposition *text)
{
    const struct weft_planner_counters *planner = &stats->planner;
    weft_exposition_one(text, "weft_sched_workers", "gauge", "Workers that send reports.",
                        stats->service.workers_here);
    weft_exposition_one(text, "weft_sched_shards", "gauge", "Shards that send reports.",
                        stats->service.shards_here);
    weft_exposition_one(text, "weft_sched_updates_total", "counter", "Updates reported by workers.",
                        stats->service.updates);
    weft_exposition_one(text, "weft_sched_granted_total", "counter", "Of these, granted.",
                        planner->granted);
    weft_exposition_one(text, "weft_sched_dropped_total", "counter", "Of these, dropped.",
                        planner->dropped_late + planner->dropped_crowded +
                            planner->dropped_blocking + planner->dropped_divergence);
    weft_exposition_one(text, "weft_sched_direct_total", "counter",
                        "Of these, sent before the scheduler replied.", stats->service.direct);
    weft_exposition_one(text, "weft_sched_unplanned_total", "counter",
                        "Of these, to which the scheduler replied that they are sent without a "
                        "grant (UNPLANNED).",
                        stats->service.unplanned);
    weft_exposition_one(text, "weft_sched_committed_total", "counter",
                        "Granted updates that every shard has closed.", planner->commits);
    weft_exposition_one(text, "weft_sched_delay_updates_total", "counter",
                        "Sum of the delays of these, in updates.", planner->delay_sum);
    weft_exposition_one(text, "weft_sched_reads_total", "counter",
                        "Reads of the model requested by workers (--read-credits).",
                        planner->reads);
    weft_exposition_one(text, "weft_sched_reads_admitted_total", "counter", "Of these, admitted.",
                        planner->reads_granted);
    weft_exposition_one(text, "weft_sched_reads_expired_total", "counter",
                        "Of these, those whose credit was returned because no update followed in "
                        "time.",
                        stats->service.reads_expired);
    weft_exposition_one(text, "weft_sched_expired_total", "counter",
                        "Workers that timed out, with an update in progress, because they sent no "
                        "reports.",
                        stats->service.expired);
}

static void add_reports(const struct weft_scheduler_stats *stats, struct weft_exposition *text)
{
    const struct weft_sched_service_counters *c = &stats->service;
    weft_exposition_one(text, "weft_sched_reports_total", "counter", "Reports accepted.",
                        c->reports);
    weft_exposition_one(text, "weft_sched_reports_refused_total", "counter",
                        "Inconsistent reports and events.",
                        c->refused_malformed + c->refused_identity + c->refused_job +
                            c->refused_version + c->refused_events);
    weft_exposition_one(text, "weft_sched_overdue_total", "counter",
                        "Times that a transfer was extended because no report arrived.",
                        stats->planner.overdue);
    weft_exposition_one(text, "weft_sched_capacity_lowered_total", "counter",
                        "Times that a link's estimated capacity was lowered.", c->capacity_lowered);
    weft_exposition_one(text, "weft_sched_capacity_raised_total", "counter",
                        "Times that it was raised again.", c->capacity_raised);
}

static void add_scheduler(void *arg, struct weft_exposition *text)
{
    struct weft_scheduler_metrics *metrics = arg;
    weft_scheduler_stats_ask(metrics->scheduler, &metrics->stats);
    weft_metrics_text_transport(text, &metrics->stats.transport);
    add_updates(&metrics->stats, text);
    add_reports(&metrics->stats, text);
}

weft_status weft_scheduler_metrics_start(struct weft_scheduler_metrics *metrics,
                                         const struct weft_metrics_options *options,
                                         struct weft_scheduler *scheduler, struct weft_error *error)
{
    *metrics = (struct weft_scheduler_metrics){.scheduler = scheduler};
    const struct weft_metrics_source source = {
        .role = "scheduler", .arg = metrics, .families = add_scheduler};
    return weft_metrics_start(&metrics->metrics, options, &source, error);
}

void weft_scheduler_metrics_stop(struct weft_scheduler_metrics *metrics)
{
    weft_metrics_stop(&metrics->metrics);
}
