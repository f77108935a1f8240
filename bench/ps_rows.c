/* Rows per second that one worker pushes to and pulls from one shard: closed loop, authenticated
 * packets; for comparison a plain UDP program that moves the same bytes, and a memcpy of them.
 *
 *   ps_rows [--rows N] [--dim N] [--keys N] [--ops N] [--rounds N] [--packet-bytes N] [--cpus
 *   two|one]
 *           [--only push|pull] [--order made|mixed]
 *
 * Two loads: `rows` rows of `dim` floats per operation, drawn from a table of 100,000 rows in
 * random order; and `keys` keys of 1 float, the same keys each time, ascending, as ps-lite
 * requires. Rows are created in the order of later requests; with --order mixed in another order,
 * so that lookups are not sequential in memory. One operation at a time, timed from the call of
 * weft_push or weft_pull until weft_wait returns. A round measures weft's push, weft's pull, the
 * plain program and memcpy in turn, each `ops` times. Output: the median over the rounds of (rows /
 * median time of a round).
 *
 * The plain program has two threads, and socket buffers of 4 MB. One sends the bytes of the ids and
 * rows (push) or of the ids (pull) in datagrams of --udp-bytes. The other replies with 56 bytes
 * (push) or with the rows (pull). No security, no retransmission; an acknowledgement per 512 KB. */
#define _GNU_SOURCE // CPU_SET
#include "ps_bench.h"

#include "base/units.h"

enum {
    OPS_MAX = 100000,
    ROWS_MAX = 1 << 20,
    TABLE_ROWS = 100000,
    WARMUP = 5,
    HEAD_BYTES = 56,
    CREDIT_BYTES = 512 << 10,
    DATAGRAM_MAX = 65000,
};

struct job {
    uint32_t rows;
    uint32_t dim;
    uint32_t keys;
    uint32_t ops;
    uint32_t rounds;
    uint32_t udp_bytes;
    uint16_t packet_bytes;
    int cpus;
    bool pushes;
    bool pulls;
    bool mixed;
};

/* One of the two loads. */
struct load {
    const char *name;
    uint32_t rows; /* of an operation */
    uint32_t dim;
    uint32_t ids_count; /* number of ids to draw from */
    uint64_t *ids;
    float *values; /* (rows, dim) */
    double *op_us; /* (ops,) */
    struct weft_ps_table *table;
};

enum { PUSH, PULL, UDP_PUSH, UDP_PULL, MEMCPY, FLOWS };
static const char *const flow_names[FLOWS] = {"weft push", "weft pull", "udp push", "udp pull",
                                              "memcpy"};

static double now_us(void)
{
    return (double)weft_clock_now_ns() / 1e3;
}

/* ---- weft ------------------------------------------------------------------------------------ */

static void weft_ops(struct weft_ps *ps, struct load *load, bool is_push, uint32_t ops)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < ops; i++) {
        uint64_t op;
        double began_us = now_us();
        bench_must(
            ps, is_push ? weft_push(load->table, load->ids + at, load->values, load->rows, 0, &op)
                        : weft_pull(load->table, load->ids + at, load->values, load->rows, 0, &op));
        bench_must(ps, weft_wait(ps, op, WEFT_NEVER, NULL));
        load->op_us[i] = now_us() - began_us;
        at = at + 2 * load->rows <= load->ids_count ? at + load->rows : 0;
    }
}

/* ---- plain UDP ------------------------------------------------------------------------------- */

struct plain {
    const struct job *job;
    int fds[2];
    size_t request_bytes;
    size_t reply_bytes;
    uint32_t ops;
    uint8_t *memory[2];
};

static bool move_out(int fd, uint32_t datagram, const uint8_t *bytes, size_t count)
{
    size_t credit = CREDIT_BYTES;
    uint8_t ack;
    for (size_t at = 0; at < count;) {
        size_t take = weft_min_u64(datagram, count - at);
        if (send(fd, bytes + at, take, 0) != (ssize_t)take) {
            return false;
        }
        at += take;
        if (at >= credit && at < count) {
            credit += CREDIT_BYTES;
            if (bench_recv(fd, &ack, 1) != 1) {
                return false;
            }
        }
    }
    return true;
}

static bool move_in(int fd, uint8_t *bytes, size_t count)
{
    size_t credit = CREDIT_BYTES;
    for (size_t at = 0; at < count;) {
        ssize_t got = bench_recv(fd, bytes + at, count - at);
        if (got <= 0) {
            return false;
        }
        at += (size_t)got;
        if (at >= credit && at < count) {
            credit += CREDIT_BYTES;
            (void)!send(fd, "", 1, 0);
        }
    }
    return true;
}

static void *plain_serve(void *arg)
{
    const struct plain *plain = arg;
    bool good = true;
    bench_pin(plain->job->cpus, 1);
    for (uint32_t i = 0; good && i < plain->ops; i++) {
        good = move_in(plain->fds[1], plain->memory[1], plain->request_bytes) &&
               move_out(plain->fds[1], plain->job->udp_bytes, plain->memory[1], plain->reply_bytes);
    }
    return NULL;
}

static bool plain_ops(const struct job *job, struct load *load, size_t request_bytes,
                      size_t reply_bytes)
{
    struct plain plain = {
        .job = job, .request_bytes = request_bytes, .reply_bytes = reply_bytes, .ops = job->ops};
    pthread_t thread;
    size_t most = weft_max_u64(request_bytes, reply_bytes);
    plain.memory[0] = malloc(most);
    plain.memory[1] = malloc(most);
    WEFT_ASSERT(plain.memory[0] != NULL && plain.memory[1] != NULL);
    memset(plain.memory[0], 1, most);
    memset(plain.memory[1], 2, most);
    bool good = bench_pair(plain.fds) && pthread_create(&thread, NULL, plain_serve, &plain) == 0;
    if (good) {
        for (uint32_t i = 0; good && i < job->ops; i++) {
            double began_us = now_us();
            good = move_out(plain.fds[0], job->udp_bytes, plain.memory[0], request_bytes) &&
                   move_in(plain.fds[0], plain.memory[0], reply_bytes);
            load->op_us[i] = now_us() - began_us;
        }
        (void)pthread_join(thread, NULL);
        (void)close(plain.fds[0]);
        (void)close(plain.fds[1]);
    }
    free(plain.memory[0]);
    free(plain.memory[1]);
    return good;
}

static void copy_ops(const struct job *job, struct load *load, size_t bytes)
{
    uint8_t *from = malloc(bytes);
    uint8_t *to = malloc(bytes);
    WEFT_ASSERT(from != NULL && to != NULL);
    memset(from, 1, bytes); /* untouched memory would be one page of zeros */
    memset(to, 2, bytes);
    for (uint32_t i = 0; i < job->ops; i++) {
        double began_us = now_us();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the compiler must assume a reader */
        load->op_us[i] = now_us() - began_us;
    }
    free(from);
    free(to);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Fisher-Yates: swap each id with a random earlier one. */
static void mix(uint64_t *ids, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)(weft_mix64(seed + i) % (i + 1));
        uint64_t id = ids[i];
        ids[i] = ids[other];
        ids[other] = id;
    }
}

/* Ids 0 .. count - 1, mixed up or in order. */
static void load_init(struct load *load, const struct job *job, bool mixed)
{
    load->ids = calloc(load->ids_count, sizeof(*load->ids));
    load->values = calloc((size_t)load->rows * load->dim, sizeof(*load->values));
    load->op_us =
        calloc(weft_max_u64(job->ops, load->ids_count / load->rows + 1), sizeof(*load->op_us));
    WEFT_ASSERT(load->ids != NULL && load->values != NULL && load->op_us != NULL);
    for (uint32_t i = 0; i < load->ids_count; i++) {
        load->ids[i] = i;
    }
    if (mixed) {
        mix(load->ids, load->ids_count, 0);
    }
}

static bool flow_wanted(const struct job *job, int flow)
{
    return flow == MEMCPY || (flow == PUSH || flow == UDP_PUSH ? job->pushes : job->pulls);
}

static void run_flow(const struct job *job, struct weft_ps *ps, struct load *load, int flow)
{
    size_t ids_bytes = (size_t)load->rows * sizeof(uint32_t);
    size_t rows_bytes = (size_t)load->rows * load->dim * sizeof(float);
    bool good = true;
    switch (flow) {
    case PUSH:
    case PULL:
        weft_ops(ps, load, flow == PUSH, job->ops);
        break;
    case UDP_PUSH:
        good = plain_ops(job, load, ids_bytes + rows_bytes, HEAD_BYTES);
        break;
    case UDP_PULL:
        good = plain_ops(job, load, ids_bytes, rows_bytes);
        break;
    default:
        copy_ops(job, load, ids_bytes + rows_bytes);
    }
    if (!good) {
        (void)fprintf(stderr, "ps_rows: a datagram of the plain program was lost\n");
        exit(1);
    }
}

static void load_run(const struct job *job, struct weft_ps *ps, struct load *load)
{
    static double rate[FLOWS][BENCH_ROUNDS_MAX];
    static double ratio[FLOWS][BENCH_ROUNDS_MAX];
    weft_ops(ps, load, true, (load->ids_count + load->rows - 1) / load->rows); /* creates the
                                                                                * rows */
    if (job->mixed) {
        mix(load->ids, load->ids_count, load->ids_count);
    }
    for (uint32_t round = 0; round < job->rounds; round++) {
        for (int flow = 0; flow < FLOWS; flow++) {
            if (flow_wanted(job, flow)) {
                run_flow(job, ps, load, flow);
                rate[flow][round] = load->rows / bench_spread(load->op_us, job->ops).median;
            }
        }
        ratio[PUSH][round] = rate[PUSH][round] / rate[UDP_PUSH][round];
        ratio[PULL][round] = rate[PULL][round] / rate[UDP_PULL][round];
    }
    printf("%s: %u rows x %u floats an operation, %u operations a round, n = %u\n", load->name,
           load->rows, load->dim, job->ops, job->rounds);
    for (int flow = 0; flow < FLOWS; flow++) {
        if (flow_wanted(job, flow)) {
            struct bench_spread s = bench_spread(rate[flow], job->rounds);
            printf("  %-10s %8.2f M rows/s (%.2f-%.2f)", flow_names[flow], s.median, s.least,
                   s.most);
            if (flow <= PULL) {
                s = bench_spread(ratio[flow], job->rounds);
                printf("  %.2f of udp (%.2f-%.2f)", s.median, s.least, s.most);
            }
            printf("\n");
        }
    }
}

static void load_fini(struct load *load)
{
    free(load->ids);
    free(load->values);
    free(load->op_us);
}

static bool number(const char *text, uint32_t least, uint32_t most, uint32_t *value_p)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *value_p = (uint32_t)value;
    return end != text && *end == '\0' && value >= least && value <= most;
}

static bool either(const char *text, const char *a, const char *b)
{
    return strcmp(text, a) == 0 || strcmp(text, b) == 0;
}

static bool parse(int argc, char **argv, struct job *job)
{
    uint32_t packet_bytes = 0;
    bool good = argc % 2 == 1;
    for (int i = 1; good && i + 1 < argc; i += 2) {
        const char *name = argv[i], *text = argv[i + 1];
        good = strcmp(name, "--rows") == 0     ? number(text, 1, ROWS_MAX, &job->rows)
               : strcmp(name, "--dim") == 0    ? number(text, 1, 64, &job->dim)
               : strcmp(name, "--keys") == 0   ? number(text, 1, ROWS_MAX, &job->keys)
               : strcmp(name, "--ops") == 0    ? number(text, 1, OPS_MAX, &job->ops)
               : strcmp(name, "--rounds") == 0 ? number(text, 1, BENCH_ROUNDS_MAX, &job->rounds)
               : strcmp(name, "--packet-bytes") == 0 ? number(text, 256, 65000, &packet_bytes)
               : strcmp(name, "--udp-bytes") == 0 ? number(text, 256, DATAGRAM_MAX, &job->udp_bytes)
               : strcmp(name, "--cpus") == 0      ? either(text, "one", "two")
               : strcmp(name, "--order") == 0
                   ? either(text, "made", "mixed")
                   : strcmp(name, "--only") == 0 && either(text, "push", "pull");
        job->cpus = strcmp(name, "--cpus") != 0 ? job->cpus : text[0] == 'o' ? 1 : 2;
        job->mixed = strcmp(name, "--order") != 0 ? job->mixed : strcmp(text, "mixed") == 0;
        if (strcmp(name, "--only") == 0) {
            job->pushes = strcmp(text, "push") == 0;
            job->pulls = !job->pushes;
        }
    }
    job->packet_bytes = (uint16_t)packet_bytes;
    return good;
}

int main(int argc, char **argv)
{
    struct job job = {.rows = 1373,
                      .dim = 16,
                      .keys = 100000,
                      .ops = 400,
                      .rounds = 5,
                      .udp_bytes = 32768,
                      .pushes = true,
                      .pulls = true};
    if (!parse(argc, argv, &job)) {
        (void)fprintf(stderr,
                      "usage: ps_rows [--rows N] [--dim N] [--keys N] [--ops N] [--rounds N] "
                      "[--packet-bytes N]\n               [--udp-bytes N] [--cpus one|two] "
                      "[--only push|pull] [--order made|mixed]\n");
        return 2;
    }
    bench_pin(job.cpus, 0);
    struct load rows = {.name = "rows",
                        .rows = job.rows,
                        .dim = job.dim,
                        .ids_count = (uint32_t)weft_max_u64(TABLE_ROWS, job.rows)};
    struct load keys = {.name = "keys", .rows = job.keys, .dim = 1, .ids_count = job.keys};
    static struct bench_server server;
    struct weft_shard_thread_config config;
    bench_server_config(&config, 2 * ROWS_MAX);
    if (job.packet_bytes > 0) {
        config.driver.udp.loopback_packet_bytes = job.packet_bytes;
    }
    load_init(&rows, &job, true);
    load_init(&keys, &job, false);
    bench_server_start(&server, job.cpus, &config);
    struct weft_ps *ps = bench_connect(&server, (uint32_t)weft_max_u64(job.keys, rows.ids_count));
    rows.table = bench_table(ps, 0, rows.dim);
    keys.table = bench_table(ps, 1, 1);
    load_run(&job, ps, &rows);
    load_run(&job, ps, &keys);
    weft_ps_close(ps);
    bench_server_stop(&server);
    load_fini(&rows);
    load_fini(&keys);
    return 0;
}
