/* `weft scheduler`: the transfer scheduler of a job. */
#define _GNU_SOURCE
#include "metrics/scheduler.h"
#include "cli/child.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train/job.h"
#include "cli/verbs.h"
#include "job/channel.h"
#include "metrics/coordinator.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 7691 };

struct verb {
    const char *host;
    uint32_t port;
    uint32_t workers;
    uint32_t shards;
    uint32_t link_mbps;
    uint32_t ahead;
    uint32_t read_credits;    /* 0 = off */
    uint32_t cut_through;     /* 0 = off */
    uint32_t coordinate_port; /* UINT32_MAX = do not run a coordinator */
    bool json;
    uint32_t control_fd; /* 0 = none */
    struct weft_transport_options transport;
    struct weft_security security;
    struct weft_metrics_options metrics_options;
    struct weft_channel channel;
    struct weft_scheduler scheduler;
    struct weft_scheduler_metrics metrics;
    struct weft_coordinator coordinator;
};

static void tell_ready(struct verb *verb)
{
    const char *metrics = verb->metrics.metrics.http != NULL ? verb->metrics.metrics.url : "";
    uint16_t port = weft_scheduler_port(&verb->scheduler);
    if (verb->channel.fd >= 0) {
        (void)weft_channel_send(&verb->channel, weft_child_ready(&port, 1, metrics));
        return;
    }
    FILE *out = verb->json ? stderr : stdout; /* standard output has the JSON report */
    fprintf(out, "scheduler: %s:%u\n", verb->host, port);
    if (verb->coordinator.is_running) {
        fprintf(out, "coordinator: %s:%u\n", verb->host, weft_coordinator_port(&verb->coordinator));
    }
    if (metrics[0] != '\0') {
        fprintf(out, "metrics: %s\n", metrics);
    }
    fflush(out);
}

/* Wait for a signal or the end of the parent. */
static void wait_for_end(const struct verb *verb, int signal_fd)
{
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = verb->channel.fd, .events = POLLIN}, /* -1 is skipped */
    };
    while (poll(fds, WEFT_ARRAY_COUNT(fds), -1) <= 0) {
    }
}

/* ---- the report ------------------------------------------------------------------------------ */

static cJSON *report(const struct weft_scheduler_stats *stats)
{
    const struct weft_sched_service_counters *c = &stats->service;
    const struct weft_planner_counters *p = &stats->planner;
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"updates", c->updates},
        {"granted", p->granted},
        {"dropped",
         p->dropped_late + p->dropped_crowded + p->dropped_blocking + p->dropped_divergence},
        {"direct", c->direct},
        {"unplanned", c->unplanned},
        {"committed", p->commits},
        {"delay_max", p->delay_max},
        {"reads", p->reads},
        {"reads_admitted", p->reads_granted},
        {"reads_expired", c->reads_expired},
        {"expired", c->expired},
        {"replica_transfers", p->replications},
        {"overdue", p->overdue},
        {"reports", c->reports},
        {"reports_refused", c->refused_malformed + c->refused_identity + c->refused_job +
                                c->refused_version + c->refused_events},
        {"capacity_lowered", c->capacity_lowered},
        {"capacity_raised", c->capacity_raised},
    };
    cJSON *object = cJSON_CreateObject();
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(figures); i++) {
        cJSON_AddNumberToObject(object, figures[i].name, (double)figures[i].value);
    }
    cJSON_AddNumberToObject(object, "delay_mean",
                            p->commits > 0 ? (double)p->delay_sum / (double)p->commits : 0);
    return object;
}

static weft_status tell_report(struct verb *verb, struct weft_error *error)
{
    static struct weft_scheduler_stats stats;
    weft_scheduler_stats_ask(&verb->scheduler, &stats);
    if (verb->channel.fd >= 0) {
        cJSON *event = weft_channel_event("done");
        cJSON_AddItemToObject(event, "scheduler", report(&stats));
        (void)weft_channel_send(&verb->channel, event);
    } else if (verb->json && !weft_output_json("scheduler", report(&stats), true)) {
        return weft_fail(error, WEFT_IO, "cannot write the report");
    }
    return WEFT_OK;
}

/* ---- start and stop -------------------------------------------------------------------------- */

/* Start the coordinator, if --coordinate is given: a small job needs no separate process for it. */
static weft_status coordinate(struct verb *verb, struct weft_error *error)
{
    if (verb->coordinate_port == UINT32_MAX) {
        return WEFT_OK;
    }
    struct weft_coordinator_config config = {
        .host = verb->host,
        .port = (uint16_t)verb->coordinate_port,
        .transport = verb->transport,
        .security = &verb->security,
        .log = weft_output_log("scheduler", verb->channel.fd >= 0)};
    weft_roster_config_default(&config.roster);
    config.roster.workers = verb->workers;
    config.roster.shards = verb->shards;
    return weft_coordinator_start(&verb->coordinator, &config, error);
}

static weft_status start(struct verb *verb, struct weft_error *error)
{
    struct weft_scheduler_config config = {.host = verb->host,
                                           .port = (uint16_t)verb->port,
                                           .transport = verb->transport,
                                           .security = &verb->security,
                                           .log =
                                               weft_output_log("scheduler", verb->channel.fd >= 0)};
    weft_sched_service_config_default(&config.service);
    config.service.workers = verb->workers;
    config.service.shards = verb->shards;
    config.service.ahead = verb->ahead;
    config.service.read_credits = verb->read_credits;
    config.service.pieces = verb->cut_through;
    config.service.link_bps = (uint64_t)verb->link_mbps * 1000000;
    weft_status status = weft_scheduler_start(&verb->scheduler, &config, error);
    if (status == WEFT_OK) {
        status = coordinate(verb, error);
    }
    if (status == WEFT_OK) {
        status = weft_scheduler_metrics_start(&verb->metrics, &verb->metrics_options,
                                              &verb->scheduler, error);
    }
    return status;
}

static weft_status serve(struct verb *verb, struct weft_error *error)
{
    int signal_fd = weft_stop_fd(0);
    if (signal_fd < 0) {
        return weft_fail(error, WEFT_IO, "cannot create a signalfd");
    }
    weft_status status = start(verb, error);
    if (status == WEFT_OK) {
        tell_ready(verb);
        wait_for_end(verb, signal_fd);
        status = tell_report(verb, error);
    }
    weft_scheduler_metrics_stop(&verb->metrics);
    weft_coordinator_stop(&verb->coordinator);
    weft_scheduler_stop(&verb->scheduler);
    close(signal_fd);
    return status;
}

static int load_and_serve(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    weft_status status = weft_security_load(&verb->security, false, &error);
    status = status == WEFT_OK ? serve(verb, &error) : status;
    weft_security_fini(&verb->security);
    return weft_child_exit(&verb->channel, "scheduler", status, &error);
}

int weft_cli_scheduler(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){.host = "127.0.0.1",
                         .port = DEFAULT_PORT,
                         .link_mbps = 10000,
                         .ahead = 3,
                         .coordinate_port = UINT32_MAX,
                         .transport = WEFT_TRANSPORT_DEFAULTS,
                         .security = WEFT_SECURITY_DEFAULTS,
                         .channel = {.fd = -1}};
    const struct weft_option options[] = {
        {"host", "ADDRESS", "numeric address to bind; 0.0.0.0 = every address of this host",
         WEFT_OPTION_STRING, .value = &verb.host},
        {"port", "P", "port to listen on (UDP, or TCP with --transport tcp); 0 = any free",
         WEFT_OPTION_U32, .value = &verb.port, .max = UINT16_MAX},
        {"workers", "N", "number of workers in the job, the same for all processes",
         WEFT_OPTION_U32, .value = &verb.workers, .min = 1, .max = WEFT_SCHED_WORKERS_MAX,
         .fallback = "from the first process"},
        {"shards", "N", "number of shards in the job, the same for all processes", WEFT_OPTION_U32,
         .value = &verb.shards,
         .min = 1, .max = WEFT_SCHED_SHARDS_MAX, .fallback = "from the first process"},
        {"link-mbps", "MBPS",
         "assumed rate of the links of hosts that do not report it, in Mbit/s; the\n"
         "plan uses the measured rate of a link that is slower",
         WEFT_OPTION_U32, .value = &verb.link_mbps, .min = 1, .max = 10000000},
        {"ahead", "N",
         "grant at most N pushes to each shard in advance: a larger N keeps\n"
         "links busy despite slow replies, a smaller N lets a later, shorter\n"
         "push go first",
         WEFT_OPTION_U32, .value = &verb.ahead, .min = 1, .max = WEFT_PLANNER_AHEAD_MAX},
        {"read-credits", "N",
         "at most N workers are between reading the model and the end of their\n"
         "update; the others wait before they read, so that updates are computed\n"
         "from newer models. No effect in bsp; in ssp a worker that is behind all\n"
         "these N does not wait. 0 = workers do not wait",
         WEFT_OPTION_U32, .value = &verb.read_credits, .max = WEFT_SCHED_WORKERS_MAX},
        {"cut-through", "N",
         "workers cut updates for aggregators into up to N pieces, and have the\n"
         "same option (docs/SCHEDULER.md). 0 and 1 = they do not",
         WEFT_OPTION_U32, .value = &verb.cut_through, .max = WEFT_PLANNER_PIECES_MAX},
        {"coordinate", "P", "also run the job's coordinator, on this port; 0 = any free",
         WEFT_OPTION_U32, .value = &verb.coordinate_port, .max = UINT16_MAX, .fallback = "none"},
        {"json", NULL, "at the end, print the scheduling statistics as one JSON object",
         WEFT_OPTION_FLAG,
         .value = &verb.json},
        WEFT_TRANSPORT_ROWS(&verb.transport),
        WEFT_SECURITY_NETWORK_ROWS(&verb.security),
        WEFT_METRICS_OPTIONS(&verb.metrics_options),
        {"control-fd", "FD", "channel to `weft train` or `weft run`", WEFT_OPTION_U32,
         .value = &verb.control_fd, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "scheduler",
        .summary = "run the transfer scheduler of a job: order and rate of pushes",
        .description =
        "`weft train --scheduler on` starts a scheduler. Workers and servers that are started\n"
        "separately get its address with --scheduler.\n"
        "\n"
        "Workers request a grant before they push an update of 64 KiB or more. The scheduler\n"
        "grants updates one after the other, shortest first, instead of letting them share a\n"
        "link. Most updates then arrive earlier and are computed from a newer model. With a delay\n"
        "bound it drops an update that would exceed the bound, and its worker pulls the model\n"
        "again. In bsp, where every update must arrive anyway, it grants each immediately.\n"
        "\n"
        "If it does not reply for a second, workers push without grants until it replies again,\n"
        "so it can be killed and restarted at any time. It stores nothing on disk. Prints one\n"
        "line when it is ready; Ctrl-C or SIGTERM stops it. docs/SCHEDULER.md describes the\n"
        "algorithm.",
        .example = "  weft keygen job.key\n"
                   "  weft scheduler --key-file job.key --workers 4 --shards 2 --metrics 9104",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN && verb.workers != 0 && verb.read_credits > verb.workers) {
        status = weft_options_usage(&command,
                                    "--read-credits %u is more than --workers %u, and would have "
                                    "no effect",
                                    verb.read_credits, verb.workers);
    }
    if (status == WEFT_OPTIONS_RUN && verb.coordinate_port != UINT32_MAX &&
        (verb.workers > WEFT_JOB_WORKERS_MAX || verb.shards > WEFT_JOB_SHARDS_MAX)) {
        status = weft_options_usage(&command,
                                    "--coordinate coordinates at most %d workers and %d shards; "
                                    "without it, give the processes the servers' addresses",
                                    (int)WEFT_JOB_WORKERS_MAX, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &verb.transport);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_security_check(&command, &verb.security);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (verb.control_fd != 0) {
        verb.channel.fd = (int)verb.control_fd;
    }
    status = load_and_serve(&verb);
    weft_channel_fini(&verb.channel);
    return status;
}
