#include "cli/box_process.h"

#include "cli/box_metrics.h"
#include "cli/box_report.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "io/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- counters -------------------------------------------------------------------------------- */

static struct weft_aggregate_counts counts_of(const struct weft_dense_box_stats *stats)
{
    return (struct weft_aggregate_counts){.box = stats->counts, .moved = stats->moved};
}

static void add_families(void *arg, struct weft_exposition *text)
{
    const struct weft_box_process *process = arg;
    struct weft_dense_box_stats stats;
    weft_dense_box_read(process->box, &stats);
    const struct weft_box_figures figures = {
        .counts = counts_of(&stats), .members = stats.members, .epoch = stats.epoch};
    weft_box_families(text, &figures);
    weft_exposition_one(text, "weft_box_sums_unsent_total", "counter",
                        "Sums not sent to a member, because its address is not known yet.",
                        stats.unsent);
    weft_exposition_one(text, "weft_box_datagrams_received_total", "counter",
                        "Datagrams received.", stats.socket.datagrams_received);
    weft_exposition_one(text, "weft_box_datagrams_sent_total", "counter", "Datagrams sent.",
                        stats.socket.datagrams_sent);
    weft_exposition_one(text, "weft_box_send_dropped_total", "counter",
                        "Datagrams that the kernel refused to send.", stats.socket.send_dropped);
    weft_exposition_one(text, "weft_box_kernel_drops_total", "counter",
                        "Datagrams dropped by the kernel because the receive buffer was full.",
                        stats.socket.kernel_drops);
}

/* False: an error was printed. */
static bool report_counters(const struct weft_box_process *process)
{
    struct weft_dense_box_stats stats;
    weft_dense_box_read(process->box, &stats);
    const struct weft_aggregate_counts counts = counts_of(&stats);
    if (!process->json) {
        return weft_box_report_print("aggregate", &counts);
    }
    struct weft_aggregate_facts facts = {.config = process->config.agg,
                                         .port = weft_dense_box_port(process->box)};
    facts.config.dense_epoch = stats.epoch;
    cJSON *report = cJSON_CreateObject();
    cJSON_AddStringToObject(report, "mode", "process");
    weft_box_report_json(report, &facts, &counts);
    cJSON_DeleteItemFromObject(report, "program"); /* of the kernel; also the next one */
    cJSON_DeleteItemFromObject(report, "replies_unnoted");
    cJSON_AddBoolToObject(report, "float32", process->config.agg.form == WEFT_AGG_FLOAT32);
    cJSON_AddNumberToObject(report, "members_known", stats.members);
    cJSON_AddNumberToObject(report, "sums_unsent", (double)stats.unsent);
    cJSON_AddNumberToObject(report, "datagrams_received", (double)stats.socket.datagrams_received);
    cJSON_AddNumberToObject(report, "datagrams_sent", (double)stats.socket.datagrams_sent);
    cJSON_AddNumberToObject(report, "send_dropped", (double)stats.socket.send_dropped);
    cJSON_AddNumberToObject(report, "kernel_drops", (double)stats.socket.kernel_drops);
    cJSON_AddNumberToObject(report, "injected_drops", (double)stats.socket.injected_drops);
    cJSON_AddNumberToObject(report, "cpu_s", (double)weft_clock_cpu_ns() / WEFT_NS_PER_S);
    return weft_output_json("aggregate", report, true);
}

/* ---- serving --------------------------------------------------------------------------------- */

static weft_status start(struct weft_box_process *process, struct weft_error *error)
{
    process->config.agg.members = weft_box_members(process->members);
    weft_status status = weft_dense_box_open(&process->config, &process->box, error);
    const struct weft_metrics_source source = {
        .role = "box", .arg = process, .families = add_families};
    return status == WEFT_OK ? weft_metrics_start(&process->metrics, &process->metrics_options,
                                                  &source, error)
                             : status;
}

static void tell_ready(const struct weft_box_process *process)
{
    const struct weft_dense_box_config *config = &process->config;
    bool v6 = strchr(config->host, ':') != NULL;
    printf("box: %s%s%s:%u, members 0 .. %u, job %u, epoch %u, ", v6 ? "[" : "", config->host,
           v6 ? "]" : "", weft_dense_box_port(process->box), process->members - 1, config->agg.job,
           config->agg.dense_epoch);
    if (config->agg.form == WEFT_AGG_FLOAT32) {
        printf("float32, ");
    } else {
        printf("exponent %d, ", config->agg.exponent);
    }
    printf("%u slots\n", config->agg.slots);
    if (process->metrics.http != NULL) {
        printf("metrics: %s\n", process->metrics.url);
    }
    fflush(stdout);
}

int weft_box_process_run(struct weft_box_process *process)
{
    struct weft_error error = {.text = ""};
    int stop_fd = weft_stop_fd(0); /* before the thread of /metrics, which inherits the mask */
    weft_status status = stop_fd < 0 ? weft_fail(&error, WEFT_IO, "cannot create a signalfd")
                                     : start(process, &error);
    bool told = true;
    if (status == WEFT_OK) {
        tell_ready(process);
        weft_dense_box_run(process->box, stop_fd);
        told = report_counters(process);
    }
    weft_metrics_stop(&process->metrics);
    weft_dense_box_close(process->box);
    close(stop_fd);
    if (status != WEFT_OK) {
        return weft_cli_fail("aggregate", "%s", error.text);
    }
    return told ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
