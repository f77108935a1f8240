/* The cost of a journal per push: three shards in one process, one plain, one with checkpoints, one
 * with checkpoints and a journal (ps/shard_journal.h); one worker per shard pushes in turn.
 *
 *   ps_journal [--dir DIR] [--mib N] [--rows N] [--keys N] [--ops N] [--rounds N]
 *
 * Uses the loads of ps_rows. The journal is a file of --mib MiB in --dir, used as a ring: a cut (in
 * memory) frees it when it is half full. It is filled once before the first round, so that its
 * pages are allocated. Output: the median over the rounds of (rows / median time of an operation in
 * the round), and of the ratio to the shard with only checkpoints in the same round.
 */
#define _GNU_SOURCE // CPU_SET
#include "ps_bench.h"

#include "ps/shard_journal.h"
#include "sim/saved.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { KINDS = 3, TABLE_ROWS = 100000, ROWS_MAX = 1 << 20 };
static const char *const kind_names[KINDS] = {"plain", "checkpoints", "journal"};

struct job {
    const char *dir;
    uint32_t mib;
    uint32_t rows;
    uint32_t keys;
    uint32_t ops;
    uint32_t rounds;
};

struct side {
    struct bench_server server;
    void *journal;
    uint64_t journal_bytes;
    struct weft_saved saved;
    struct weft_ps *ps;
    struct weft_ps_table *tables[2];
};

static void *map_file(const struct job *job)
{
    char path[512];
    uint64_t bytes = (uint64_t)job->mib << 20;
    (void)snprintf(path, sizeof(path), "%s/ps_journal.XXXXXX", job->dir);
    int fd = mkstemp(path);
    int why = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    void *memory =
        why == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        (void)fprintf(stderr, "ps_journal: %s: %s\n", path, strerror(why));
        exit(1);
    }
    (void)unlink(path);
    (void)close(fd);
    return memory;
}

static void open_journal(void *arg, struct weft_shard *shard)
{
    struct side *side = arg;
    const struct weft_shard_journal_config config = {
        .memory = side->journal, .bytes = side->journal_bytes, .bytes_max = side->journal_bytes};
    WEFT_ASSERT(weft_shard_journal_init(shard, &config) == WEFT_OK);
}

/* Runs on the shard's thread between two batches, like src/node/checkpoint.c, but writes to
 * memory. */
static void keep(void *arg, struct weft_shard *shard)
{
    struct side *side = arg;
    uint32_t clock;
    if (weft_shard_cut_wanted(shard, &clock)) {
        weft_saved_begin(&side->saved, shard);
    }
    if (weft_saved_poll(&side->saved, shard)) {
        weft_shard_durable(shard);
    }
}

static void push(struct side *side, int table, const uint64_t *ids, const float *values, uint32_t n)
{
    uint64_t op;
    bench_must(side->ps, weft_push(side->tables[table], ids, values, n, 0, &op));
    bench_must(side->ps, weft_wait(side->ps, op, WEFT_NEVER, NULL));
}

/* Touch all pages of the journal, because page faults would be counted as its cost. */
static void fill(struct side *side, const struct job *job, int table, const uint64_t *ids,
                 const float *values, uint32_t n)
{
    uint64_t bytes = 0;
    while (bytes < (uint64_t)job->mib << 21) {
        push(side, table, ids, values, n);
        bytes += (uint64_t)n * (table == 0 ? 68 : 8);
    }
}

static void measure(const struct job *job, struct side *sides, int table, const uint64_t *ids,
                    uint32_t ids_count, uint32_t n)
{
    static double rate[KINDS][BENCH_ROUNDS_MAX], ratio[KINDS][BENCH_ROUNDS_MAX];
    double *op_us = calloc(job->ops, sizeof(*op_us));
    float *values = calloc((size_t)n * 16, sizeof(*values));
    WEFT_ASSERT(op_us != NULL && values != NULL);
    for (uint32_t at = 0; at + n <= ids_count; at += n) {
        for (int k = 0; k < KINDS; k++) {
            push(&sides[k], table, ids + at, values, n);
        }
    }
    fill(&sides[2], job, table, ids, values, n);
    for (uint32_t round = 0; round < job->rounds; round++) {
        for (int k = 0; k < KINDS; k++) {
            uint32_t at = 0;
            for (uint32_t i = 0; i < job->ops; i++) {
                uint64_t began_ns = weft_clock_now_ns();
                push(&sides[k], table, ids + at, values, n);
                op_us[i] = (double)(weft_clock_now_ns() - began_ns) / 1e3;
                at = at + 2 * n <= ids_count ? at + n : 0;
            }
            rate[k][round] = n / bench_spread(op_us, job->ops).median;
        }
        for (int k = 0; k < KINDS; k++) {
            ratio[k][round] = rate[k][round] / rate[1][round];
        }
    }
    printf("%u rows x %d floats an operation, %u operations a round, n = %u\n", n,
           table == 0 ? 16 : 1, job->ops, job->rounds);
    for (int k = 0; k < KINDS; k++) {
        struct bench_spread r = bench_spread(rate[k], job->rounds);
        struct bench_spread q = bench_spread(ratio[k], job->rounds);
        printf("  %-12s %8.2f M rows/s (%.2f-%.2f)  %.3f of checkpoints alone (%.3f-%.3f)\n",
               kind_names[k], r.median, r.least, r.most, q.median, q.least, q.most);
    }
    free(op_us);
    free(values);
}

static bool number(const char *text, uint32_t most, uint32_t *value_p)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *value_p = (uint32_t)value;
    return end != text && *end == '\0' && value >= 1 && value <= most;
}

static bool parse(int argc, char **argv, struct job *job)
{
    bool good = argc % 2 == 1;
    for (int i = 1; good && i + 1 < argc; i += 2) {
        const char *name = argv[i], *text = argv[i + 1];
        if (strcmp(name, "--dir") == 0) {
            job->dir = text;
            continue;
        }
        good = strcmp(name, "--mib") == 0      ? number(text, 65536, &job->mib)
               : strcmp(name, "--rows") == 0   ? number(text, ROWS_MAX, &job->rows)
               : strcmp(name, "--keys") == 0   ? number(text, ROWS_MAX, &job->keys)
               : strcmp(name, "--ops") == 0    ? number(text, 100000, &job->ops)
               : strcmp(name, "--rounds") == 0 ? number(text, BENCH_ROUNDS_MAX, &job->rounds)
                                               : false;
    }
    return good;
}

static void side_start(struct side *side, const struct job *job, int kind, uint32_t rows_max)
{
    struct weft_shard_thread_config config;
    bench_server_config(&config, 2 * ROWS_MAX);
    config.shard.checkpoints = kind > 0;
    if (kind == 2) {
        weft_saved_init(&side->saved, 2, 1);
        side->journal = map_file(job);
        side->journal_bytes = (uint64_t)job->mib << 20;
        config.hooks =
            (struct weft_shard_hooks){.prepare = open_journal, .turn = keep, .arg = side};
    }
    bench_server_start(&side->server, 0, &config);
    side->ps = bench_connect(&side->server, rows_max);
    side->tables[0] = bench_table(side->ps, 0, 16);
    side->tables[1] = bench_table(side->ps, 1, 1);
}

int main(int argc, char **argv)
{
    static struct side sides[KINDS];
    struct job job = {
        .dir = "/dev/shm", .mib = 64, .rows = 1373, .keys = 100000, .ops = 200, .rounds = 15};
    if (!parse(argc, argv, &job)) {
        (void)fprintf(stderr, "usage: ps_journal [--dir DIR] [--mib N] [--rows N] [--keys N] "
                              "[--ops N] [--rounds N]\n");
        return 2;
    }
    uint32_t count = (uint32_t)weft_max_u64(TABLE_ROWS, weft_max_u64(job.rows, job.keys));
    uint64_t *mixed = calloc(count, sizeof(*mixed)), *order = calloc(count, sizeof(*order));
    WEFT_ASSERT(mixed != NULL && order != NULL);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)(weft_mix64(i) % (i + 1));
        order[i] = i;
        mixed[i] = mixed[other];
        mixed[other] = i;
    }
    for (int k = 0; k < KINDS; k++) {
        side_start(&sides[k], &job, k, count);
    }
    measure(&job, sides, 0, mixed, TABLE_ROWS > job.rows ? TABLE_ROWS : job.rows, job.rows);
    measure(&job, sides, 1, order, job.keys, job.keys);
    for (int k = 0; k < KINDS; k++) {
        weft_ps_close(sides[k].ps);
        bench_server_stop(&sides[k].server);
    }
    weft_saved_fini(&sides[2].saved);
    free(mixed);
    free(order);
    return 0;
}
