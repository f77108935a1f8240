/* Goodput of one flow of float vectors over loopback, four ways, one after the other in each
 * repetition, so that a busy moment of the machine falls on all of them alike:
 *
 *   weft      the endpoint over weft_udp: reliable (bound 0), mode none, ADD sink
 *   raw       a bare GSO+GRO program with the same packets and the same add: what there is to gain
 *   tcp_add   kernel TCP, the receiver adds floats likewise
 *   tcp_read  kernel TCP, the receiver only reads
 *
 * Two threads each. Goodput counts floats added (or read) at the receiver, nothing else; formulas
 * are in METRICS.md. After each run the accumulator is compared with the sum it must hold.
 *
 *   stream [--smoke] [--json] [--repetitions N] [--rounds N] [--message-mb N] [--only NAME]
 */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { REPETITIONS_MAX = 101 };

static const struct flow {
    const char *name;
    stream_run *run;
} flows[] = {
    {"weft", stream_run_weft},
    {"raw", stream_run_raw},
    {"tcp_add", stream_run_tcp_add},
    {"tcp_read", stream_run_tcp_read},
};

enum { FLOWS = sizeof(flows) / sizeof(flows[0]) };

struct options {
    bool json;
    bool verbose;
    uint32_t repetitions;
    uint32_t rounds;
    uint32_t message_bytes;
    const char *only; /* NULL = all */
};

/* One flow's repetitions, in order. */
struct series {
    double gbps[REPETITIONS_MAX];
    double cpu_ns_per_kb[REPETITIONS_MAX];
    uint64_t lost;
};

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct stream_mark stream_mark(void)
{
    return (struct stream_mark){.at_ns = read_ns(CLOCK_MONOTONIC),
                                .cpu_ns = read_ns(CLOCK_PROCESS_CPUTIME_ID)};
}

/* Four floats wherever they lie; -O2 of gcc 12 does not vectorize a loop of unknown length. */
typedef float floats4 __attribute__((vector_size(16), aligned(4), may_alias));

void stream_add(float *acc, const void *values, size_t count)
{
    const float *from = values; /* both ends keep floats on multiples of 4 */
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        *(floats4 *)&acc[i] += *(const floats4 *)&from[i];
    }
    for (; i < count; i++) {
        acc[i] += from[i];
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static bool sum_is_right(const struct stream_job *job)
{
    float rounds = (float)(job->warmup_rounds + job->rounds);
    for (uint32_t i = 0; i < job->message_floats; i++) {
        if (job->accumulator[i] != rounds * job->vector[i]) {
            return false;
        }
    }
    return true;
}

static bool measure(const struct flow *flow, const struct options *options,
                    const struct stream_job *job, uint32_t repetition, struct series *series)
{
    char error[STREAM_ERROR_BYTES] = "";
    struct stream_result result = {0};
    memset(job->accumulator, 0, job->message_floats * sizeof(float));
    if (!flow->run(job, &result, error)) {
        (void)fprintf(stderr, "stream: %s: %s\n", flow->name, error);
        return false;
    }
    if (result.adds && !sum_is_right(job)) {
        (void)fprintf(stderr, "stream: %s: the accumulator holds a wrong sum\n", flow->name);
        return false;
    }
    double bytes = (double)job->rounds * (double)job->message_floats * sizeof(float);
    double cpu_ns = (double)(result.end.cpu_ns - result.start.cpu_ns);
    series->gbps[repetition] = 8.0 * bytes / (double)(result.end.at_ns - result.start.at_ns);
    series->cpu_ns_per_kb[repetition] = 1000.0 * cpu_ns / bytes;
    series->lost += result.lost;
    if (options->verbose) {
        (void)fprintf(stderr, "%-8s %6.2f Gbit/s  lost %llu  %s\n", flow->name,
                      series->gbps[repetition], (unsigned long long)result.lost, result.note);
    }
    return true;
}

static bool chosen(const struct options *options, const struct flow *flow)
{
    return options->only == NULL || strcmp(options->only, flow->name) == 0;
}

static bool measure_all(const struct options *options, struct series *series)
{
    struct stream_job job = {
        .message_floats = options->message_bytes / (uint32_t)sizeof(float),
        .rounds = options->rounds,
        .warmup_rounds = options->rounds / 8 + 1,
    };
    float *vector = calloc(job.message_floats, sizeof(float));
    job.accumulator = calloc(job.message_floats, sizeof(float));
    bool good = vector != NULL && job.accumulator != NULL;
    for (uint32_t i = 0; good && i < job.message_floats; i++) {
        vector[i] = (float)(i % 7) - 3.0f;
    }
    job.vector = vector;
    for (uint32_t repetition = 0; good && repetition < options->repetitions; repetition++) {
        for (int i = 0; good && i < FLOWS; i++) {
            good = !chosen(options, &flows[i]) ||
                   measure(&flows[i], options, &job, repetition, &series[i]);
        }
    }
    free(job.accumulator);
    free(vector);
    return good;
}

/* ---- reporting ------------------------------------------------------------------------------- */

struct summary {
    double median;
    double min;
    double max;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct summary summarize(const double *values, uint32_t count)
{
    double sorted[REPETITIONS_MAX];
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), compare);
    return (struct summary){.median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
                            .min = sorted[0],
                            .max = sorted[count - 1]};
}

/* Of the quotients within each repetition: both were measured in the same moment. */
static struct summary summarize_ratio(const double *a, const double *b, uint32_t count)
{
    double ratios[REPETITIONS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ratios[i] = a[i] / b[i];
    }
    return summarize(ratios, count);
}

static void print_text(const struct options *options, const struct series *series)
{
    struct utsname host;
    (void)uname(&host);
    printf("stream: %u messages of %.1f MB a repetition, n = %u, %ld cores, Linux %s\n",
           options->rounds, options->message_bytes / 1e6, options->repetitions,
           sysconf(_SC_NPROCESSORS_ONLN), host.release);
    printf("%-14s %8s %8s %8s  %s\n", "goodput", "median", "min", "max", "Gbit/s");
    for (int i = 0; i < FLOWS; i++) {
        if (chosen(options, &flows[i])) {
            struct summary s = summarize(series[i].gbps, options->repetitions);
            printf("%-14s %8.2f %8.2f %8.2f  packets lost: %llu\n", flows[i].name, s.median, s.min,
                   s.max, (unsigned long long)series[i].lost);
        }
    }
    printf("%-14s\n", "CPU time of both ends, ns per 1,000 bytes of floats");
    for (int i = 0; i < FLOWS; i++) {
        if (chosen(options, &flows[i])) {
            struct summary s = summarize(series[i].cpu_ns_per_kb, options->repetitions);
            printf("%-14s %8.1f %8.1f %8.1f\n", flows[i].name, s.median, s.min, s.max);
        }
    }
    printf("%s", options->only == NULL ? "ratio of goodputs, repetition by repetition\n" : "");
    for (int i = 1; i < FLOWS && options->only == NULL; i++) {
        struct summary s = summarize_ratio(series[0].gbps, series[i].gbps, options->repetitions);
        printf("weft/%-9s %8.3f %8.3f %8.3f\n", flows[i].name, s.median, s.min, s.max);
    }
}

static void print_json_summary(const char *name, struct summary s, const char *end)
{
    printf("\"%s\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f}%s", name, s.median, s.min,
           s.max, end);
}

static void print_json_flows(const struct options *options, const struct series *series, bool cpu)
{
    const char *comma = "";
    for (int i = 0; i < FLOWS; i++) {
        if (chosen(options, &flows[i])) {
            const double *values = cpu ? series[i].cpu_ns_per_kb : series[i].gbps;
            printf("%s", comma);
            print_json_summary(flows[i].name, summarize(values, options->repetitions), "");
            comma = ", ";
        }
    }
}

static void print_json(const struct options *options, const struct series *series)
{
    struct utsname host;
    (void)uname(&host);
    printf("{\"bench\": \"stream\", \"kernel\": \"%s\", \"cores\": %ld, \"n\": %u, \"rounds\": %u, "
           "\"message_bytes\": %u, \"goodput_gbps\": {",
           host.release, sysconf(_SC_NPROCESSORS_ONLN), options->repetitions, options->rounds,
           options->message_bytes);
    print_json_flows(options, series, false);
    printf("}, \"cpu_ns_per_kb\": {");
    print_json_flows(options, series, true);
    printf("}, \"weft_over\": {");
    for (int i = 1; i < FLOWS && options->only == NULL; i++) {
        print_json_summary(flows[i].name,
                           summarize_ratio(series[0].gbps, series[i].gbps, options->repetitions),
                           i + 1 < FLOWS ? ", " : "");
    }
    printf("}}\n");
}

/* ---- options --------------------------------------------------------------------------------- */

static bool parse_number(const char *text, uint32_t min, uint32_t max, uint32_t *value_p)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < min || value > max) {
        (void)fprintf(stderr, "stream: \"%s\" is not a number from %u to %u\n", text, min, max);
        return false;
    }
    *value_p = (uint32_t)value;
    return true;
}

static bool parse_name(const char *text, const char **name_p)
{
    for (int i = 0; i < FLOWS; i++) {
        if (strcmp(text, flows[i].name) == 0) {
            *name_p = text;
            return true;
        }
    }
    (void)fprintf(stderr, "stream: no flow is named \"%s\"\n", text);
    return false;
}

static bool parse_option(struct options *options, const char *name, const char *value)
{
    if (value != NULL && strcmp(name, "--repetitions") == 0) {
        return parse_number(value, 1, REPETITIONS_MAX, &options->repetitions);
    }
    if (value != NULL && strcmp(name, "--rounds") == 0) {
        return parse_number(value, 1, 100000, &options->rounds);
    }
    if (value != NULL && strcmp(name, "--message-mb") == 0) {
        bool good = parse_number(value, 1, 64, &options->message_bytes);
        options->message_bytes *= 1000000;
        return good;
    }
    if (value != NULL && strcmp(name, "--only") == 0) {
        return parse_name(value, &options->only);
    }
    (void)fprintf(stderr, "usage: stream [--smoke] [--json] [--verbose] [--repetitions N] "
                          "[--rounds N] [--message-mb N] [--only NAME]\n");
    return false;
}

static bool parse(int argc, char **argv, struct options *options_p)
{
    *options_p = (struct options){.repetitions = 11, .rounds = 256, .message_bytes = 4000000};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            options_p->json = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            options_p->verbose = true;
        } else if (strcmp(argv[i], "--smoke") == 0) {
            options_p->repetitions = 1;
            options_p->rounds = 4;
            options_p->message_bytes = 1000000;
        } else if (!parse_option(options_p, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            return false;
        } else {
            i++;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct series series[FLOWS];
    struct options options;
    if (!parse(argc, argv, &options)) {
        return 2;
    }
    if (!measure_all(&options, series)) {
        return 1;
    }
    if (options.json) {
        print_json(&options, series);
    } else {
        print_text(&options, series);
    }
    return 0;
}
