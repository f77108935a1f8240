#include "cli/perf/report.h"

#include "cli/output.h"
#include "cli/perf/figures.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct summary {
    double median;
    double min;
    double max;
};

enum figure { GOODPUT, CPU };

static double figure_of(const struct weft_perf_sample *sample, enum figure figure)
{
    return figure == GOODPUT ? sample->goodput_gbps : sample->cpu_s;
}

/* Over a flow's rounds; with another flow, over the ratios within each round, because both were
 * measured at about the same time. */
static struct summary summarize(const struct weft_perf_report *r, const struct weft_perf_flow *of,
                                const struct weft_perf_flow *over, enum figure figure)
{
    static double values[WEFT_PERF_STREAM_ROUNDS_MAX];
    for (uint32_t i = 0; i < r->rounds; i++) {
        values[i] = figure_of(&of->samples[i], figure) /
                    (over != NULL ? figure_of(&over->samples[i], figure) : 1);
    }
    double median = weft_perf_median(values, r->rounds);
    return (struct summary){.median = median, .min = values[0], .max = values[r->rounds - 1]};
}

/* Sums over all rounds: these are counters, not measurements. */
static struct weft_perf_sample counts_of(const struct weft_perf_flow *flow, uint32_t rounds)
{
    struct weft_perf_sample sum = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        sum.retransmitted += flow->samples[i].retransmitted;
        sum.lost += flow->samples[i].lost;
    }
    return sum;
}

/* Only ratios with weft: udp-raw over tcp-raw is of no interest. */
static bool ratio_wanted(const struct weft_perf_flow *a, const struct weft_perf_flow *b)
{
    return strcmp(a->transport, "weft") == 0 && strcmp(b->transport, "weft") != 0;
}

void weft_perf_report_text(const struct weft_perf_report *r)
{
    struct utsname host = {0};
    (void)uname(&host);
    printf("%.1f MB per round in messages of %.3f MB, packets of %u bytes, n = %u, %ld CPUs, "
           "Linux %s\n",
           (double)r->bytes / 1e6, r->message_bytes / 1e6, r->packet_bytes, r->rounds,
           sysconf(_SC_NPROCESSORS_ONLN), host.release);
    printf("%-22s %8s %8s %8s %12s %14s %6s\n", "goodput, Gbit/s", "median", "min", "max",
           "CPU time, s", "retransmitted", "lost");
    for (uint32_t i = 0; i < r->flow_count; i++) {
        const struct weft_perf_flow *flow = &r->flows[i];
        struct summary s = summarize(r, flow, NULL, GOODPUT);
        struct weft_perf_sample counts = counts_of(flow, r->rounds);
        printf("%-22s %8.2f %8.2f %8.2f %12.3f %14llu %6llu\n", flow->name, s.median, s.min, s.max,
               summarize(r, flow, NULL, CPU).median, (unsigned long long)counts.retransmitted,
               (unsigned long long)counts.lost);
    }
    for (uint32_t i = 0; i < r->flow_count; i++) {
        for (uint32_t j = 0; j < r->flow_count; j++) {
            if (ratio_wanted(&r->flows[i], &r->flows[j])) {
                struct summary s = summarize(r, &r->flows[i], &r->flows[j], GOODPUT);
                printf("%-9s / %-10s %8.3f %8.3f %8.3f\n", r->flows[i].name, r->flows[j].name,
                       s.median, s.min, s.max);
            }
        }
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_summary(cJSON *object, const char *name, struct summary s)
{
    char key[64];
    cJSON_AddNumberToObject(object, name, s.median);
    (void)snprintf(key, sizeof(key), "%s_min", name);
    cJSON_AddNumberToObject(object, key, s.min);
    (void)snprintf(key, sizeof(key), "%s_max", name);
    cJSON_AddNumberToObject(object, key, s.max);
}

static void json_counts(cJSON *object, const struct weft_perf_sample *sample)
{
    cJSON_AddNumberToObject(object, "retransmitted", (double)sample->retransmitted);
    cJSON_AddNumberToObject(object, "lost", (double)sample->lost);
}

static void json_flow(cJSON *object, const struct weft_perf_report *r,
                      const struct weft_perf_flow *flow)
{
    cJSON_AddStringToObject(object, "transport", flow->transport);
    cJSON_AddStringToObject(object, "security", flow->security);
    json_summary(object, "goodput_gbps", summarize(r, flow, NULL, GOODPUT));
    json_summary(object, "cpu_s", summarize(r, flow, NULL, CPU));
    struct weft_perf_sample counts = counts_of(flow, r->rounds);
    json_counts(object, &counts);
    cJSON *each = cJSON_AddArrayToObject(object, "per_round");
    for (uint32_t i = 0; i < r->rounds; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "goodput_gbps", flow->samples[i].goodput_gbps);
        cJSON_AddNumberToObject(item, "cpu_s", flow->samples[i].cpu_s);
        json_counts(item, &flow->samples[i]);
        cJSON_AddItemToArray(each, item);
    }
}

static void json_ratios(cJSON *array, const struct weft_perf_report *r)
{
    for (uint32_t i = 0; i < r->flow_count; i++) {
        for (uint32_t j = 0; j < r->flow_count; j++) {
            if (ratio_wanted(&r->flows[i], &r->flows[j])) {
                cJSON *item = cJSON_CreateObject();
                cJSON_AddStringToObject(item, "of", r->flows[i].name);
                cJSON_AddStringToObject(item, "over", r->flows[j].name);
                json_summary(item, "ratio", summarize(r, &r->flows[i], &r->flows[j], GOODPUT));
                cJSON_AddItemToArray(array, item);
            }
        }
    }
}

static cJSON *json_build(const struct weft_perf_report *r)
{
    struct utsname host = {0};
    (void)uname(&host);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "pattern", "stream");
    cJSON_AddNumberToObject(object, "bytes", (double)r->bytes);
    cJSON_AddNumberToObject(object, "message_bytes", r->message_bytes);
    cJSON_AddNumberToObject(object, "packet_bytes", r->packet_bytes);
    cJSON_AddNumberToObject(object, "n", r->rounds);
    if (r->lab != NULL) {
        cJSON_AddStringToObject(object, "lab", r->lab);
    }
    cJSON_AddStringToObject(object, "kernel", host.release);
    cJSON_AddNumberToObject(object, "cpus", (double)sysconf(_SC_NPROCESSORS_ONLN));
    if (r->flow_count == 1) {
        json_flow(object, r, &r->flows[0]);
        return object;
    }
    cJSON *flows = cJSON_AddArrayToObject(object, "flows");
    for (uint32_t i = 0; i < r->flow_count; i++) {
        cJSON *item = cJSON_CreateObject();
        json_flow(item, r, &r->flows[i]);
        cJSON_AddItemToArray(flows, item);
    }
    json_ratios(cJSON_AddArrayToObject(object, "ratios"), r);
    return object;
}

bool weft_perf_report_json(const struct weft_perf_report *r)
{
    return weft_output_json("perf stream", json_build(r), false);
}
