/* The cost of adding a packet in an aggregator, by K, the number of 32-bit values in it: the XDP
 * program under BPF_PROG_TEST_RUN (no interface, no network stack), and the host code for
 * comparison.
 *
 *   aggregate [--smoke] [--repetitions N]
 *
 *   dense  a packet for a slot whose round has begun: added, no reply
 *   rows   a packet of K / 8 blocks of hot rows: added, marked, and answered with an ACK
 *
 * Each measured packet is new, because a repeated packet would be a duplicate. So each run of the
 * XDP program is one system call with one packet. Its time is the kernel's report for that run, in
 * ns, including one clock reading. The host's time is that of 60 packets divided by 60. A
 * repetition measures every variant. The output is the median over repetitions of the repetition's
 * median. Formulas: METRICS.md. Without root or BPF the kernel's columns are empty.
 */
#include "lab/aggregate.h"
#include "agg/box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HEADS = 42,
    FRAME_MAX = 2048,
    PORT = 7701,
    MEMBERS = 62, /* of 64, so that no round completes before all are measured */
    BATCHES = 50,
    REPETITIONS_MAX = 101,
    SIZES = 6,
};

enum way { KERNEL, HOST_INT32, HOST_FLOAT32, WAYS };
enum mode { DENSE, ROWS, MODES };

static const char *const mode_names[] = {"dense", "rows"};
static const uint32_t sizes[MODES][SIZES] = {{8, 32, 64, 128, 256, 352},
                                             {8, 16, 64, 128, 256, 312}};

struct bench {
    struct weft_aggregate *kernel; /* NULL: not measured */
    struct weft_agg_box host;
    uint32_t batches;
    uint32_t round;
    uint32_t number;
    uint8_t frames[MEMBERS][FRAME_MAX];
    uint32_t bytes;
};

static void must(weft_status status, const struct weft_error *error)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "aggregate: %s\n", error->text);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(values[0]), compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The packet of one member: K values of 1, int32 or float. */
static void frame_make(struct bench *b, uint32_t member, enum mode mode, uint32_t k, uint8_t form)
{
    uint8_t *frame = b->frames[member];
    struct weft_wire_agg head = {
        .kind = mode == DENSE ? WEFT_AGG_DENSE : WEFT_AGG_ROWS,
        .flags = form,
        .member = (uint16_t)member,
        .count = (uint16_t)(mode == DENSE ? k : k / WEFT_AGG_BLOCK),
        .number = mode == DENSE ? b->round : b->number,
        .from = mode == DENSE ? 0 : b->number,
    };
    uint32_t one = form == WEFT_AGG_FLOAT32 ? weft_agg_bits(1) : 1;
    uint8_t *at = frame + HEADS + WEFT_AGG_HEADER_BYTES;
    memset(frame, 0, HEADS);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[23] = 17;
    weft_wire_agg_encode(frame + HEADS, &head);
    for (uint32_t i = 0; i < k; i++, at += 4) {
        if (mode == ROWS && i % WEFT_AGG_BLOCK == 0) {
            weft_wire_agg_row_encode(at, (uint16_t)(i / WEFT_AGG_BLOCK), 0);
            at += WEFT_AGG_ROW_HEAD_BYTES;
        }
        weft_wire_store_u32(at, one);
    }
    b->bytes = (uint32_t)(at - frame) - HEADS;
    weft_wire_put_u16(frame + 16, (uint16_t)(28 + b->bytes));
    weft_wire_put_u16(frame + 36, PORT);
    weft_wire_put_u16(frame + 38, (uint16_t)(8 + b->bytes));
}

static void clear(struct bench *b, uint8_t form)
{
    static struct weft_aggregate_command begin = {
        .what = WEFT_AGGREGATE_BEGIN,
        .epoch = {.blocks = WEFT_AGG_BANK_BLOCKS, .policy = WEFT_AGG_ON_APPLY}};
    struct weft_error error;
    begin.epoch.form = form;
    b->round = 0;
    b->number = 0;
    b->host.config.form = form;
    memset(b->host.slots, 0, sizeof(b->host.slots[0]));
    memset(b->host.banks, 0, sizeof(b->host.banks[0]));
    bool done = weft_agg_bank_begin(&b->host.banks[0], &begin.epoch);
    if (done && b->kernel != NULL && form == 0) {
        must(weft_aggregate_reset(b->kernel, &error), &error);
        must(weft_aggregate_command(b->kernel, &begin, &done, &error), &error);
    }
    if (!done) {
        fprintf(stderr, "aggregate: cannot open the bank\n");
        exit(1);
    }
}

/* One packet of each member. The first packet of a slot begins the round, so it is not measured. */
static uint32_t batch_kernel(struct bench *b, double *ns)
{
    uint8_t answer[FRAME_MAX];
    struct weft_error error;
    for (uint32_t m = 0; m < MEMBERS; m++) {
        uint32_t count = sizeof(answer);
        struct weft_aggregate_run run = {.is_tc = false};
        must(weft_aggregate_run(b->kernel, b->frames[m], HEADS + b->bytes, 1, answer, &count, &run,
                                &error),
             &error);
        if (m >= 2) {
            ns[m - 2] = run.ns;
        }
    }
    return MEMBERS - 2;
}

static uint32_t batch_host(struct bench *b, double *ns)
{
    uint64_t start_ns = 0;
    uint32_t answer_count;
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (m == 2) {
            start_ns = now_ns();
        }
        (void)weft_agg_box_receive(&b->host, b->frames[m] + HEADS, b->bytes, &answer_count);
    }
    ns[0] = (double)(now_ns() - start_ns) / (MEMBERS - 2);
    return 1;
}

/* The remaining members' packets, so that the round completes and the next may begin. */
static void finish_round(struct bench *b, enum way way, uint32_t k, uint8_t form)
{
    struct weft_error error;
    for (uint32_t m = MEMBERS; m < WEFT_AGG_MEMBERS_MAX; m++) {
        uint8_t answer[FRAME_MAX];
        uint32_t count = sizeof(answer);
        struct weft_aggregate_run run = {.is_tc = false};
        frame_make(b, 0, DENSE, k, form);
        weft_wire_put_u16(b->frames[0] + HEADS + 6, (uint16_t)m);
        if (way == KERNEL) {
            must(weft_aggregate_run(b->kernel, b->frames[0], HEADS + b->bytes, 1, answer, &count,
                                    &run, &error),
                 &error);
        } else {
            (void)weft_agg_box_receive(&b->host, b->frames[0] + HEADS, b->bytes, &count);
        }
    }
}

static void check_added(struct bench *b, enum way way, enum mode mode, uint64_t packets)
{
    struct weft_agg_counts counts = b->host.counts;
    struct weft_error error;
    if (way == KERNEL) {
        struct weft_aggregate_counts all;
        must(weft_aggregate_read_counts(b->kernel, &all, &error), &error);
        counts = all.box;
    }
    uint64_t added = counts.packets[WEFT_AGG_SUMMED] + counts.packets[WEFT_AGG_ADDED];
    uint64_t wanted = packets + (mode == DENSE ? packets / MEMBERS : 0);
    if (added != wanted) {
        fprintf(stderr, "aggregate: %llu packets added, not %llu\n", (unsigned long long)added,
                (unsigned long long)wanted);
        exit(1);
    }
}

static double measure(struct bench *b, enum way way, enum mode mode, uint32_t k)
{
    static double ns[MEMBERS * BATCHES];
    uint32_t count = 0;
    uint8_t form = way == HOST_FLOAT32 ? WEFT_AGG_FLOAT32 : 0;
    clear(b, form);
    b->host.counts = (struct weft_agg_counts){.values = 0};
    for (uint32_t i = 0; i < b->batches; i++) {
        for (uint32_t m = 0; m < MEMBERS; m++) {
            frame_make(b, m, mode, k, form);
        }
        count += way == KERNEL ? batch_kernel(b, ns + count) : batch_host(b, ns + count);
        if (mode == DENSE) {
            finish_round(b, way, k, form);
        }
        b->round++;
        b->number++;
    }
    check_added(b, way, mode, (uint64_t)b->batches * MEMBERS);
    return median(ns, count);
}

static void print_cell(double *values, uint32_t count, uint32_t k)
{
    if (values[0] == 0) {
        printf("  %27s", "-");
        return;
    }
    double middle = median(values, count);
    printf("  %6.0f (%5.0f-%5.0f) %7.0f", middle, values[0], values[count - 1], k * 1e3 / middle);
}

static void run(struct bench *b, uint32_t repetitions)
{
    static double ns[MODES][SIZES][WAYS][REPETITIONS_MAX];
    for (uint32_t r = 0; r < repetitions; r++) {
        for (int mode = 0; mode < MODES; mode++) {
            for (int s = 0; s < SIZES; s++) {
                for (int way = b->kernel != NULL ? KERNEL : HOST_INT32; way < WAYS; way++) {
                    ns[mode][s][way][r] =
                        measure(b, (enum way)way, (enum mode)mode, sizes[mode][s]);
                }
            }
        }
    }
    printf("n = %u; ns a packet (least-most), M adds/s of one core\n", repetitions);
    printf("%-6s %4s  %27s  %27s  %27s\n", "mode", "K", "kernel int32", "host int32",
           "host float32");
    for (int mode = 0; mode < MODES; mode++) {
        for (int s = 0; s < SIZES; s++) {
            printf("%-6s %4u", mode_names[mode], sizes[mode][s]);
            for (int way = 0; way < WAYS; way++) {
                print_cell(ns[mode][s][way], repetitions, sizes[mode][s]);
            }
            printf("\n");
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench b = {.batches = BATCHES};
    const struct weft_agg_config config = {.members = UINT64_MAX, .slots = 1, .banks = 1};
    struct weft_error error = {.text = ""};
    uint32_t repetitions = 11;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            b.batches = 2;
            repetitions = 1;
        } else if (strcmp(argv[i], "--repetitions") == 0 && i + 1 < argc) {
            repetitions = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else {
            repetitions = 0;
        }
    }
    if (repetitions == 0 || repetitions > REPETITIONS_MAX) {
        fprintf(stderr, "usage: aggregate [--smoke] [--repetitions N], N from 1 to %d\n",
                REPETITIONS_MAX);
        return 2;
    }
    if (weft_aggregate_open(&config, PORT, &b.kernel, &error) != WEFT_OK) {
        printf("the kernel's program is not measured: %s\n", error.text);
    } else {
        const uint32_t address = 0; /* of the frames; their MAC address, 0, is that of lo */
        must(weft_aggregate_accept(b.kernel, "lo", &error), &error);
        must(weft_aggregate_set_addresses(b.kernel, &address, 1, &error), &error);
    }
    if (weft_agg_box_init(&b.host, &config) != WEFT_OK) {
        fprintf(stderr, "aggregate: no memory\n");
        return 1;
    }
    run(&b, repetitions);
    weft_agg_box_fini(&b.host);
    weft_aggregate_close(b.kernel);
    return 0;
}
