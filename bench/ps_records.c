/* The cost of records per RPC: pushes and pulls with records on both sides, compared with the same
 * operations without; one worker, one shard, authenticated packets.
 *
 *   ps_records [--rows N] [--dim N] [--slice N] [--blocks N] [--cpus any] [--seed N]
 *   ps_records --only on|off [--rows N] [--dim N] [--slice N] [--blocks N]
 *
 * The expected cost is below 1 %, while two equal seconds on this machine differ by 3 %. Therefore:
 *
 * - One server, one worker, one connection, one table: only records are switched on and off, and
 *   nothing else differs, including memory and placement. Operations immediately after a switch are
 *   not measured.
 * - Operations are issued in flights of eight, half of them pushes. The duration of a flight
 *   depends mostly on the number of switches between the two threads and on other load: from 95 to
 *   200 us. Records do the same work in every flight, so they cause none of this variation.
 *   Therefore a slice (100 flights, about 10 ms) is summarized by the 10 % quantile of its flight
 *   durations, which is least affected by chance: between two equal slices it differs a fifth as
 *   much as the mean does. The mean of the middle half is also printed, for comparison.
 * - A block has two slices with records and two without, in random order; its ratio is with /
 *   without. The result is the median over blocks, with a 95 % interval from order statistics,
 *   which assumes no distribution. The ratio of the two slices without records, from the same
 *   blocks, is the control.
 * - The recorders' threads process thousands of RPCs at a time, in an arbitrary slice. So their
 *   cost is measured separately and added: the CPU time of these threads, which the kernel counts
 *   exactly, per recorded operation; and the increase of the flights after a poll (means of middle
 *   halves), because the poll evicts cache lines. The flight that contains the poll is not used:
 *   longer flights contain more polls. Recorders poll the rings of a process every 200 ms; here
 *   records are on half of the time, and they poll every 400 ms, so that they find the same number
 *   of records.
 *
 * All threads share CPU 0, so that throughput includes all work; with --cpus any the kernel places
 * them. Not included: writing the database, which is done after the job, and writing the spool to
 * disk by the kernel.
 *
 * --only runs the same number of operations without measuring, for callgrind (bench/METRICS.md).
 */
#define _GNU_SOURCE // CPU_SET
#include "ps_bench.h"

#include "api/ps_internal.h"
#include "base/prng.h"
#include "obs/recorder.h"
#include "ps/client_internal.h"
#include "ps/shard_internal.h"

#include <math.h>

enum {
    FLIGHT = 8,
    ROWS_MAX = 4096,
    TABLE_ROWS = 100000,
    SLICES = 4,
    BLOCKS_MAX = 10000,
    FLIGHTS_MAX = 10000,
    AFTER = 4, /* the flight with a poll, and three that may be slower because of it */
};

enum only { MEASURE, ONLY_ON, ONLY_OFF };

struct job {
    uint32_t rows;
    uint32_t dim;
    uint32_t flights; /* of a slice */
    uint32_t blocks;
    uint64_t seed;
    int cpus;
    enum only only;
};

struct rig {
    struct job job;
    struct bench_server server;
    struct weft_ps *ps;
    struct weft_ps_table *table;
    uint64_t *ids;
    float *values;
    double *sorted; /* (flights,) */
    double *times;  /* of all measured flights, in order */
    uint8_t *looks; /* polls in each flight */
    uint64_t timed;
    char folder[32];
    char path[2][64];
    struct weft_recorder *recorders[2]; /* of the server, of the worker */
    struct weft_rpc_record_ring *rings[2];
    atomic_bool wanted; /* requested: the server records */
    atomic_bool has;    /* the server records */
    uint64_t done;      /* operations */
    uint64_t recorded;  /* of these */
};

struct block {
    double off_ns; /* per operation, mean of two slices */
    double ratio;
    double null;
    double middle_ratio;
    double middle_null;
};

/* ns per operation, two estimates. */
struct slice {
    double tenth;
    double middle;
};

/* ---- on and off ------------------------------------------------------------------------------ */

static void switch_server(void *arg, struct weft_shard *shard)
{
    struct rig *rig = arg;
    bool on = atomic_load_explicit(&rig->wanted, memory_order_relaxed);
    shard->config.records = on ? rig->rings[0] : NULL;
    atomic_store_explicit(&rig->has, on, memory_order_relaxed);
}

static void flight(struct rig *rig)
{
    const struct job *job = &rig->job;
    uint64_t ops[FLIGHT];
    size_t floats = (size_t)job->rows * job->dim;
    for (uint32_t i = 0; i < FLIGHT; i++) {
        float *values = rig->values + i * floats;
        bench_must(rig->ps, i % 2 == 0
                                ? weft_push(rig->table, rig->ids, values, job->rows, 0, &ops[i])
                                : weft_pull(rig->table, rig->ids, values, job->rows, 0, &ops[i]));
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        bench_must(rig->ps, weft_wait(rig->ps, ops[i], WEFT_NEVER, NULL));
    }
    rig->done += FLIGHT;
    rig->recorded += rig->ps->worker.client->config.records != NULL ? FLIGHT : 0;
}

/* The server's thread switches after the next batch. */
static void switch_to(struct rig *rig, bool on)
{
    atomic_store(&rig->wanted, on);
    rig->ps->worker.client->config.records = on ? rig->rings[1] : NULL;
    do {
        flight(rig);
    } while (atomic_load(&rig->has) != on);
    flight(rig);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Sorts values. */
static double middle_mean(double *values, uint64_t count)
{
    double sum = 0;
    qsort(values, count, sizeof(*values), bench_compare);
    for (uint64_t i = count / 4; i < count - count / 4; i++) {
        sum += values[i];
    }
    return sum / (double)(count - 2 * (count / 4));
}

/* Of a ring: changes when its recorder has removed records. */
static uint64_t taken(const struct rig *rig, int i)
{
    return atomic_load_explicit(&rig->rings[i]->head, memory_order_relaxed);
}

static struct slice slice(struct rig *rig, bool on)
{
    uint32_t count = rig->job.flights;
    double *times = &rig->times[rig->timed];
    switch_to(rig, on);
    uint64_t before[2] = {taken(rig, 0), taken(rig, 1)};
    uint64_t before_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        flight(rig);
        uint64_t now_ns = weft_clock_now_ns();
        times[i] = (double)(now_ns - before_ns) / FLIGHT;
        before_ns = now_ns;
        for (int r = 0; r < 2; r++) {
            uint64_t now = taken(rig, r);
            rig->looks[rig->timed + i] += now != before[r];
            before[r] = now;
        }
    }
    rig->timed += count;
    memcpy(rig->sorted, times, count * sizeof(*times));
    double middle = middle_mean(rig->sorted, count);
    return (struct slice){.tenth = rig->sorted[count / 10], .middle = middle};
}

static struct block one_block(struct rig *rig, struct weft_prng *prng)
{
    uint32_t order[SLICES] = {0, 1, 2, 3}; /* the first two are on */
    struct slice s[SLICES];
    for (uint32_t i = SLICES; i > 1; i--) {
        uint32_t with = (uint32_t)weft_prng_below(prng, i), was = order[i - 1];
        order[i - 1] = order[with];
        order[with] = was;
    }
    for (uint32_t i = 0; i < SLICES; i++) {
        s[order[i]] = slice(rig, order[i] < 2);
    }
    return (struct block){
        .off_ns = (s[2].tenth + s[3].tenth) / 2,
        .ratio = (s[0].tenth + s[1].tenth) / (s[2].tenth + s[3].tenth),
        .null = s[2].tenth / s[3].tenth,
        .middle_ratio = (s[0].middle + s[1].middle) / (s[2].middle + s[3].middle),
        .middle_null = s[2].middle / s[3].middle,
    };
}

struct median {
    double at, low, high; /* low .. high: 95 % interval */
    double quarter, three_quarters;
};

static struct median median(const struct block *blocks, uint32_t count, size_t member)
{
    double *values = malloc(count * sizeof(*values));
    WEFT_ASSERT(values != NULL);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&values[i], (const uint8_t *)&blocks[i] + member, sizeof(*values));
    }
    qsort(values, count, sizeof(*values), bench_compare);
    double below = floor((count - 1.96 * sqrt(count)) / 2);
    uint32_t low = below > 0 ? (uint32_t)below : 0;
    struct median m = {values[count / 2], values[low], values[count - 1 - low], values[count / 4],
                       values[count * 3 / 4]};
    free(values);
    return m;
}

/* ---- the recorders' threads ------------------------------------------------------------------ */

struct looks {
    uint64_t count;
    double cpu_ns;   /* per recorded operation */
    double after_ns; /* per operation: increase of the flights after polls */
};

static double recorders_cpu_ns(const struct rig *rig)
{
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        struct weft_recorder_counts counts;
        weft_recorder_counts(rig->recorders[i], &counts);
        sum += (double)counts.cpu_ns;
    }
    return sum;
}

/* Mean of the middle half of the flights that are `after` flights after a poll, with no other poll
 * in between; after = AFTER: of all later flights. */
static double flights_after(const struct rig *rig, uint32_t after)
{
    double *values = malloc(rig->timed * sizeof(*values));
    uint64_t count = 0;
    uint32_t since = AFTER;
    WEFT_ASSERT(values != NULL);
    for (uint64_t i = 0; i < rig->timed; i++) {
        since = rig->looks[i] > 0 ? 0 : since + (since < AFTER);
        if (since == after) {
            values[count++] = rig->times[i] * FLIGHT;
        }
    }
    double mean = count > 0 ? middle_mean(values, count) : 0;
    free(values);
    return mean;
}

static struct looks looks(const struct rig *rig, double cpu_ns, uint64_t recorded)
{
    struct looks l = {.cpu_ns = cpu_ns / (double)recorded};
    double others = flights_after(rig, AFTER);
    for (uint64_t i = 0; i < rig->timed; i++) {
        l.count += rig->looks[i] > 0;
    }
    for (uint32_t after = 1; l.count > 0 && after < AFTER; after++) {
        l.after_ns += flights_after(rig, after) - others;
    }
    /* Some polls were between slices. */
    double timed = (double)recorded * (double)rig->timed * FLIGHT / (double)rig->done;
    l.after_ns *= (double)l.count / timed;
    return l;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_ratio(const char *what, struct median m, double more)
{
    printf("%-34s %.4f (95 %%: %.4f to %.4f; quartiles %.4f to %.4f)\n", what, m.at + more,
           m.low + more, m.high + more, m.quarter + more, m.three_quarters + more);
}

#define MEDIAN(blocks, job, member) median(blocks, (job)->blocks, offsetof(struct block, member))

static void print_all(const struct job *job, const struct block *blocks, struct looks l)
{
    struct median off = MEDIAN(blocks, job, off_ns), ratio = MEDIAN(blocks, job, ratio);
    double looks_ns = l.cpu_ns + (l.after_ns > 0 ? l.after_ns : 0);
    printf("%u rows of %u floats, n = %u blocks of %u slices of %u operations, seed %llu\n",
           job->rows, job->dim, job->blocks, SLICES, job->flights * FLIGHT,
           (unsigned long long)job->seed);
    printf("an operation without               %.0f ns (quartiles %.0f to %.0f)\n", off.at,
           off.quarter, off.three_quarters);
    print_ratio("off / off", MEDIAN(blocks, job, null), 0);
    print_ratio("on / off, without the emptying", ratio, 0);
    print_ratio("  off / off, middle half", MEDIAN(blocks, job, middle_null), 0);
    print_ratio("  on / off, middle half", MEDIAN(blocks, job, middle_ratio), 0);
    printf("emptying the rings                 %.0f ns of CPU an operation, and %.0f after them (n "
           "= %llu)\n",
           l.cpu_ns, l.after_ns, (unsigned long long)l.count);
    print_ratio("all on / off", ratio, looks_ns / off.at);
    printf("all, ns an operation               %.0f (95 %%: %.0f to %.0f)\n",
           (ratio.at - 1) * off.at + looks_ns, (ratio.low - 1) * off.at + looks_ns,
           (ratio.high - 1) * off.at + looks_ns);
}

static void measure(struct rig *rig)
{
    const struct job *job = &rig->job;
    struct weft_prng prng;
    struct block *blocks = calloc(job->blocks, sizeof(*blocks));
    WEFT_ASSERT(blocks != NULL);
    weft_prng_init(&prng, job->seed);
    double cpu_ns = recorders_cpu_ns(rig);
    uint64_t recorded = rig->recorded;
    rig->done = 0;
    for (uint32_t i = 0; i < job->blocks; i++) {
        blocks[i] = one_block(rig, &prng);
    }
    print_all(job, blocks, looks(rig, recorders_cpu_ns(rig) - cpu_ns, rig->recorded - recorded));
    free(blocks);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void recorder_start(struct rig *rig, int i)
{
    struct weft_recorder_config config;
    struct weft_error error;
    (void)snprintf(rig->path[i], sizeof(rig->path[i]), "%s/%d.db", rig->folder, i);
    weft_recorder_config_default(&config);
    config.path = rig->path[i];
    config.role = i == 0 ? "server" : "worker";
    config.window_ns = i == 0 ? WEFT_NS_PER_MS : 0;
    config.period_us *= 2; /* records are on half of the time */
    WEFT_ASSERT(weft_recorder_open(&config, &rig->recorders[i], &error) == WEFT_OK);
    rig->rings[i] = weft_recorder_ring(rig->recorders[i]);
    WEFT_ASSERT(rig->rings[i] != NULL);
}

static void start(struct rig *rig)
{
    const struct job *job = &rig->job;
    bench_pin(job->cpus, 0); /* threads inherit the affinity */
    rig->ids = calloc(job->rows, sizeof(*rig->ids));
    rig->values = calloc((size_t)job->rows * job->dim * FLIGHT, sizeof(*rig->values));
    uint64_t flights = (uint64_t)job->blocks * SLICES * job->flights;
    rig->sorted = calloc(job->flights, sizeof(*rig->sorted));
    rig->times = calloc(flights, sizeof(*rig->times));
    rig->looks = calloc(flights, sizeof(*rig->looks));
    (void)snprintf(rig->folder, sizeof(rig->folder), "/tmp/weft-bench-XXXXXX");
    WEFT_ASSERT(rig->ids != NULL && rig->values != NULL && rig->sorted != NULL &&
                rig->times != NULL && rig->looks != NULL && mkdtemp(rig->folder) != NULL);
    for (uint32_t i = 0; i < job->rows; i++) {
        rig->ids[i] = i * 7 + 1;
    }
    recorder_start(rig, 0);
    recorder_start(rig, 1);
    struct weft_shard_thread_config config;
    bench_server_config(&config, TABLE_ROWS);
    config.hooks = (struct weft_shard_hooks){.turn = switch_server, .arg = rig};
    bench_server_start(&rig->server, job->cpus, &config);
    (void)unsetenv("WEFT_RECORDS");
    rig->ps = bench_connect(&rig->server, job->rows);
    rig->table = bench_table(rig->ps, 0, job->dim);
}

static void stop(struct rig *rig)
{
    weft_ps_close(rig->ps);
    bench_server_stop(&rig->server);
    for (int i = 0; i < 2; i++) {
        struct weft_recorder_counts counts;
        weft_recorder_finish(rig->recorders[i]);
        weft_recorder_counts(rig->recorders[i], &counts);
        printf("the %s's records: %llu written, %llu dropped\n", i == 0 ? "server" : "worker",
               (unsigned long long)counts.records, (unsigned long long)counts.dropped);
        (void)unlink(weft_recorder_spool(rig->recorders[i]));
        weft_recorder_free(rig->recorders[i]);
    }
    (void)rmdir(rig->folder);
    free(rig->ids);
    free(rig->values);
    free(rig->sorted);
    free(rig->times);
    free(rig->looks);
}

static void run_only(struct rig *rig)
{
    switch_to(rig, rig->job.only == ONLY_ON);
    for (uint32_t i = 0; i < rig->job.blocks * SLICES * rig->job.flights; i++) {
        flight(rig);
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static _Noreturn void usage(void)
{
    (void)fprintf(
        stderr,
        "usage: ps_records [--rows 1-%d] [--dim 1-64] [--slice OPERATIONS] [--blocks 1-%d] "
        "[--cpus any] [--seed N] [--only on|off]\n",
        ROWS_MAX, BLOCKS_MAX);
    exit(2);
}

static uint32_t number(const char *text, uint32_t max)
{
    long value = strtol(text, NULL, 10);
    if (value < 1 || value > (long)max) {
        usage();
    }
    return (uint32_t)value;
}

static void option(struct job *job, const char *name, const char *value)
{
    if (strcmp(name, "--rows") == 0) {
        job->rows = number(value, ROWS_MAX);
    } else if (strcmp(name, "--dim") == 0) {
        job->dim = number(value, 64);
    } else if (strcmp(name, "--slice") == 0) {
        job->flights = (number(value, FLIGHTS_MAX * FLIGHT) + FLIGHT - 1) / FLIGHT;
    } else if (strcmp(name, "--blocks") == 0) {
        job->blocks = number(value, BLOCKS_MAX);
    } else if (strcmp(name, "--seed") == 0) {
        job->seed = number(value, UINT32_MAX);
    } else if (strcmp(name, "--cpus") == 0 && strcmp(value, "any") == 0) {
        job->cpus = 0;
    } else if (strcmp(name, "--only") == 0 && strcmp(value, "on") == 0) {
        job->only = ONLY_ON;
    } else if (strcmp(name, "--only") == 0 && strcmp(value, "off") == 0) {
        job->only = ONLY_OFF;
    } else {
        usage();
    }
}

int main(int argc, char **argv)
{
    static struct rig rig = {
        .job = {.rows = 1, .dim = 1, .flights = 100, .blocks = 100, .seed = 1, .cpus = 1}};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) {
            usage();
        }
        option(&rig.job, argv[i], argv[i + 1]);
    }
    start(&rig);
    (rig.job.only == MEASURE ? measure : run_only)(&rig);
    stop(&rig);
    return 0;
}
