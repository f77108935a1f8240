/* Time of a pull of one row: closed loop, one worker without a progress thread, one shard,
 * authenticated packets; and a raw UDP ping-pong of the same sizes for comparison.
 *
 *   ps_pull [--dim N] [--trips N] [--rounds N] [--cpus two|one]
 *
 * A trip is one weft_pull and its weft_wait. The raw program has two threads that block in recv,
 * and datagrams of the same sizes as weft's, which are measured (bytes and datagrams of the worker
 * in a round). A round measures both in turn. --cpus pins the two threads to CPUs 0 and 1, or both
 * to CPU 0. Formulas: METRICS.md.
 */
#define _GNU_SOURCE // CPU_SET
#include "ps_bench.h"

#include <time.h>

enum { TRIPS_MAX = 1000000, WARMUP = 200, DATAGRAM_MAX = 65536, TABLE_ROWS = 1000 };

struct job {
    uint32_t dim;
    uint32_t trips;
    uint32_t rounds;
    int cpus;
    double *trip_us; /* (trips,) */
    double cpu_us;   /* per trip of the last round, both ends */
};

/* Bytes of the datagrams with a request and with its reply, and datagrams per trip. */
struct sizes {
    uint32_t request_bytes;
    uint32_t reply_bytes;
    double datagrams;
};

static double now_us(void)
{
    return (double)weft_clock_now_ns() / 1e3;
}

static double cpu_us(void)
{
    return (double)weft_clock_cpu_ns() / 1e3;
}

static void note(struct job *job, uint32_t trip, double began_us)
{
    if (trip == WARMUP) {
        job->cpu_us = cpu_us();
    }
    if (trip >= WARMUP) {
        job->trip_us[trip - WARMUP] = now_us() - began_us;
    }
    if (trip + 1 == WARMUP + job->trips) {
        job->cpu_us = (cpu_us() - job->cpu_us) / job->trips;
    }
}

static struct weft_ps_counters counters_of(struct weft_ps *ps)
{
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    return counters;
}

static struct sizes run_weft(struct job *job, struct weft_ps *ps, struct weft_ps_table *table)
{
    float row[WEFT_RPC_DIM_MAX];
    struct weft_ps_counters before = counters_of(ps);
    uint32_t trips = WARMUP + job->trips;
    for (uint32_t i = 0; i < trips; i++) {
        uint64_t op, id = i % TABLE_ROWS;
        double began_us = now_us();
        bench_must(ps, weft_pull(table, &id, row, 1, 0, &op));
        bench_must(ps, weft_wait(ps, op, WEFT_NEVER, NULL));
        note(job, i, began_us);
    }
    struct weft_ps_counters after = counters_of(ps);
    return (struct sizes){
        .request_bytes = (uint32_t)((after.bytes_sent - before.bytes_sent) / trips),
        .reply_bytes = (uint32_t)((after.bytes_received - before.bytes_received) / trips),
        .datagrams = (double)(after.datagrams_sent - before.datagrams_sent +
                              after.datagrams_received - before.datagrams_received) /
                     trips,
    };
}

struct echo {
    const struct job *job;
    struct sizes sizes;
    int fd;
};

static void *echo(void *arg)
{
    const struct echo *self = arg;
    static uint8_t bytes[DATAGRAM_MAX];
    bench_pin(self->job->cpus, 1);
    while (bench_recv(self->fd, bytes, sizeof(bytes)) > 1) {
        (void)!send(self->fd, bytes, self->sizes.reply_bytes, 0);
    }
    return NULL;
}

static bool run_raw(struct job *job, struct sizes sizes)
{
    static uint8_t bytes[DATAGRAM_MAX];
    int fds[2] = {-1, -1};
    pthread_t thread;
    bool good = bench_pair(fds);
    struct echo other = {.job = job, .sizes = sizes, .fd = fds[1]};
    good = good && pthread_create(&thread, NULL, echo, &other) == 0;
    if (good) {
        for (uint32_t i = 0; good && i < WARMUP + job->trips; i++) {
            double began_us = now_us();
            good = send(fds[0], bytes, sizes.request_bytes, 0) > 0 &&
                   bench_recv(fds[0], bytes, sizeof(bytes)) > 0;
            note(job, i, began_us);
        }
        (void)send(fds[0], bytes, 1, 0); /* the end, for echo */
        (void)pthread_join(thread, NULL);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    return good;
}

struct figures {
    double p50[BENCH_ROUNDS_MAX];
    double p99[BENCH_ROUNDS_MAX];
    double cpu[BENCH_ROUNDS_MAX];
};

static void take(struct job *job, struct figures *figures, uint32_t round)
{
    figures->p50[round] = bench_spread(job->trip_us, job->trips).median;
    figures->p99[round] = job->trip_us[(uint64_t)job->trips * 99 / 100];
    figures->cpu[round] = job->cpu_us;
}

static void print_flow(const char *name, struct figures *figures, uint32_t rounds)
{
    struct bench_spread p50 = bench_spread(figures->p50, rounds);
    struct bench_spread p99 = bench_spread(figures->p99, rounds);
    struct bench_spread cpu = bench_spread(figures->cpu, rounds);
    printf("%-10s p50 %6.2f us (%.2f-%.2f)  p99 %7.2f us (%.2f-%.2f)  CPU %6.2f us a trip "
           "(%.2f-%.2f)\n",
           name, p50.median, p50.least, p50.most, p99.median, p99.least, p99.most, cpu.median,
           cpu.least, cpu.most);
}

static void measure(struct job *job, struct weft_ps *ps, struct weft_ps_table *table)
{
    static struct figures weft, raw;
    static double ratio[BENCH_ROUNDS_MAX];
    struct sizes sizes = {0};
    for (uint32_t round = 0; round < job->rounds; round++) {
        sizes = run_weft(job, ps, table);
        take(job, &weft, round);
        if (!run_raw(job, sizes)) {
            (void)fprintf(stderr, "ps_pull: a datagram was lost\n");
            exit(1);
        }
        take(job, &raw, round);
        ratio[round] = weft.p50[round] / raw.p50[round];
    }
    struct bench_spread r = bench_spread(ratio, job->rounds);
    printf("pull of one row of %u floats, %u trips a round, n = %u; %u bytes there, %u back, "
           "%.2f datagrams a trip\n",
           job->dim, job->trips, job->rounds, sizes.request_bytes, sizes.reply_bytes,
           sizes.datagrams);
    print_flow("weft pull", &weft, job->rounds);
    print_flow("raw udp", &raw, job->rounds);
    printf("weft / raw %.2f (%.2f-%.2f)\n", r.median, r.least, r.most);
}

static bool parse(int argc, char **argv, struct job *job)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--trips") == 0 && value >= 1 && value <= TRIPS_MAX) {
            job->trips = value;
        } else if (strcmp(argv[i], "--rounds") == 0 && value >= 1 && value <= BENCH_ROUNDS_MAX) {
            job->rounds = value;
        } else if (strcmp(argv[i], "--dim") == 0 && value >= 1 && value <= 64) {
            job->dim = value;
        } else if (strcmp(argv[i], "--cpus") == 0 && strcmp(argv[i + 1], "one") == 0) {
            job->cpus = 1;
        } else if (strcmp(argv[i], "--cpus") == 0 && strcmp(argv[i + 1], "two") == 0) {
            job->cpus = 2;
        } else {
            return false;
        }
    }
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    struct job job = {.dim = 16, .trips = 20000, .rounds = 7};
    if (!parse(argc, argv, &job)) {
        (void)fprintf(stderr, "usage: ps_pull [--dim 1..64] [--trips N] [--rounds N] "
                              "[--cpus one|two]\n");
        return 2;
    }
    bench_pin(job.cpus, 0);
    job.trip_us = calloc(job.trips, sizeof(*job.trip_us));
    WEFT_ASSERT(job.trip_us != NULL);
    static struct bench_server server;
    struct weft_shard_thread_config config;
    bench_server_config(&config, TABLE_ROWS);
    bench_server_start(&server, job.cpus, &config);
    struct weft_ps *ps = bench_connect(&server, TABLE_ROWS);
    struct weft_ps_table *table = bench_table(ps, 0, job.dim);
    measure(&job, ps, table);
    weft_ps_close(ps);
    bench_server_stop(&server);
    free(job.trip_us);
    return 0;
}
