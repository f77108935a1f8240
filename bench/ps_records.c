/* What the instrument costs: pushes and pulls with records on both sides, against the same without,
 * in slices that alternate, one worker and one shard, packets authenticated.
 *
 *   ps_records [--rows N] [--dim N] [--ops N] [--pairs N] [--null] [--cpus any]
 *
 * A slice is N operations, half of them pushes, eight under way at a time. A pair is a slice without
 * records and one with, in turn first; its ratio is time (and CPU time of the process: both sides and
 * the recorder's thread) with / without. --null compares without records against without: what the
 * machine does to such ratios by itself. All threads share CPU 0, so that throughput is the sum of all
 * that is done; --cpus any lets the kernel place them. Making the database comes after the job and is
 * not in it.
 */
#define _GNU_SOURCE // CPU_SET
#include "ps_bench.h"

#include "obs/recorder.h"

#include <time.h>

enum { FLIGHT = 8, ROWS_MAX = 4096, TABLE_ROWS = 100000 };

struct side {
    struct bench_server server;
    struct weft_ps *ps;
    struct weft_ps_table *table;
};

struct job {
    uint32_t rows;
    uint32_t dim;
    uint32_t ops;
    uint32_t pairs;
    bool null;
    int cpus;
    uint64_t *ids;
    float *values;
};

struct cost {
    double wall;
    double cpu;
};

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void flight(const struct job *job, struct side *side)
{
    uint64_t ops[FLIGHT];
    size_t floats = (size_t)job->rows * job->dim;
    for (uint32_t i = 0; i < FLIGHT; i++) {
        float *values = job->values + i * floats;
        bench_must(side->ps, i % 2 == 0
                                 ? weft_push(side->table, job->ids, values, job->rows, 0, &ops[i])
                                 : weft_pull(side->table, job->ids, values, job->rows, 0, &ops[i]));
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        bench_must(side->ps, weft_wait(side->ps, ops[i], WEFT_NEVER, NULL));
    }
}

static struct cost slice(const struct job *job, struct side *side)
{
    struct cost cost = {(double)weft_clock_now_ns() / 1e9, cpu_s()};
    for (uint32_t i = 0; i < job->ops; i += FLIGHT) {
        flight(job, side);
    }
    return (struct cost){(double)weft_clock_now_ns() / 1e9 - cost.wall, cpu_s() - cost.cpu};
}

static void side_start(struct side *side, const struct job *job, struct weft_record_ring *records,
                       const char *path)
{
    side->server =
        (struct bench_server){.cpus = job->cpus, .rows_max = TABLE_ROWS, .records = records};
    bench_server_start(&side->server);
    if (path != NULL) {
        (void)setenv("WEFT_RECORDS", path, 1);
    } else {
        (void)unsetenv("WEFT_RECORDS");
    }
    side->ps = bench_connect(&side->server, job->rows);
    side->table = bench_table(side->ps, 0, job->dim);
    flight(job, side);
}

static void side_stop(struct side *side)
{
    weft_ps_close(side->ps);
    bench_server_stop(&side->server);
}

static void print_ratio(const char *what, double *ratios, uint32_t count)
{
    struct bench_spread spread = bench_spread(ratios, count);
    printf("%s with / without: median %.4f (quartiles %.4f to %.4f, all %.4f to %.4f), n = %u\n",
           what, spread.median, ratios[count / 4], ratios[count * 3 / 4], spread.least, spread.most,
           count);
}

static void compare(const struct job *job, struct side *off, struct side *on)
{
    double wall[BENCH_ROUNDS_MAX], cpu[BENCH_ROUNDS_MAX], rate[BENCH_ROUNDS_MAX],
        each[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < job->pairs; i++) {
        bool on_first = i % 2 == 1;
        struct cost first = slice(job, on_first ? on : off);
        struct cost second = slice(job, on_first ? off : on);
        struct cost with = on_first ? first : second, without = on_first ? second : first;
        wall[i] = with.wall / without.wall;
        cpu[i] = with.cpu / without.cpu;
        rate[i] = job->ops / without.wall;
        each[i] = without.cpu / job->ops * 1e6;
    }
    printf("%u rows of %u floats: %.0f operations/s, %.2f us of CPU each, both sides\n", job->rows,
           job->dim, bench_spread(rate, job->pairs).median, bench_spread(each, job->pairs).median);
    print_ratio("time", wall, job->pairs);
    print_ratio("CPU ", cpu, job->pairs);
}

static void run(struct job *job)
{
    char folder[] = "/tmp/weft-bench-XXXXXX", path[64], spool[96];
    struct side off = {0}, on = {0};
    struct weft_recorder *recorder = NULL;
    struct weft_recorder_config config;
    struct weft_records_error error;
    bench_pin(job->cpus, 0); /* threads inherit it */
    job->ids = calloc(job->rows, sizeof(*job->ids));
    job->values = calloc((size_t)job->rows * job->dim * FLIGHT, sizeof(*job->values));
    WEFT_ASSERT(job->ids != NULL && job->values != NULL && mkdtemp(folder) != NULL);
    for (uint32_t i = 0; i < job->rows; i++) {
        job->ids[i] = i * 7 + 1;
    }
    (void)snprintf(path, sizeof(path), "%s/r.db", folder);
    weft_recorder_config_default(&config);
    config.path = path;
    config.role = "server";
    config.window_ns = WEFT_NS_PER_MS;
    if (!job->null) {
        WEFT_ASSERT(weft_recorder_open(&config, &recorder, &error) == WEFT_OK);
    }
    side_start(&off, job, NULL, NULL);
    side_start(&on, job, job->null ? NULL : weft_recorder_ring(recorder), job->null ? NULL : path);
    compare(job, &off, &on);
    side_stop(&off);
    side_stop(&on);
    if (!job->null) {
        struct weft_recorder_counts counts;
        weft_recorder_finish(recorder);
        weft_recorder_counts(recorder, &counts);
        printf("the server's records: %llu written, %llu dropped\n",
               (unsigned long long)counts.records, (unsigned long long)counts.dropped);
        (void)unlink(weft_recorder_spool(recorder));
        weft_recorder_free(recorder);
        (void)snprintf(spool, sizeof(spool), "%s.spool-worker-0", path);
        (void)unlink(spool);
    }
    (void)rmdir(folder);
    free(job->ids);
    free(job->values);
}

static uint32_t number(const char *text, uint32_t max)
{
    long value = text != NULL ? strtol(text, NULL, 10) : 0;
    if (value < 1 || value > (long)max) {
        (void)fprintf(stderr, "a number from 1 to %u is wanted\n", max);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    struct job job = {.rows = 1, .dim = 1, .ops = 4000, .pairs = 31, .cpus = 1};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--null") == 0) {
            job.null = true;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--rows") == 0) {
            job.rows = number(next, ROWS_MAX);
        } else if (strcmp(argv[i - 1], "--dim") == 0) {
            job.dim = number(next, 64);
        } else if (strcmp(argv[i - 1], "--cpus") == 0 && next != NULL && strcmp(next, "any") == 0) {
            job.cpus = 0;
        } else if (strcmp(argv[i - 1], "--ops") == 0) {
            job.ops = (number(next, 10000000) + FLIGHT - 1) / FLIGHT * FLIGHT;
        } else if (strcmp(argv[i - 1], "--pairs") == 0) {
            job.pairs = number(next, BENCH_ROUNDS_MAX);
        } else {
            (void)fprintf(stderr, "usage: ps_records [--rows N] [--dim N] [--ops N] [--pairs N] "
                                  "[--null] [--cpus any]\n");
            return 2;
        }
    }
    run(&job);
    return 0;
}
