/* Every kind of collective operation, over a transport that reorders chunks: the result at each
 * rank equals that of a plain loop, for vectors of many lengths, in place and not. */
#include "coll/shape.h"
#include "coll_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>

enum { RANKS = 5 };

/* 80,000 elements: two segments of 80 KB with two ranks, one with more. */
static const uint32_t counts[] = {1, 2, 31, 33, 352, 353, 1000, 5000, 80000};

static int32_t value_of(uint32_t rank, uint64_t i)
{
    return (int32_t)(weft_mix64(rank * UINT64_C(1000003) + i) % 2001) - 1000;
}

struct buffers {
    int32_t *in[RANKS];
    int32_t *out[RANKS];
};

static void buffers_make(struct buffers *b, uint32_t n, uint64_t in_count, uint64_t out_count)
{
    for (uint32_t r = 0; r < n; r++) {
        b->in[r] = malloc(in_count * sizeof(int32_t));
        b->out[r] = malloc(out_count * sizeof(int32_t));
        assert_non_null(b->in[r]);
        assert_non_null(b->out[r]);
        memset(b->out[r], 0x77, out_count * sizeof(int32_t));
        for (uint64_t i = 0; i < in_count; i++) {
            b->in[r][i] = value_of(r, i);
        }
    }
}

static void buffers_free(struct buffers *b, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        free(b->in[r]);
        free(b->out[r]);
    }
}

/* Expected element i of rank r's out; false: the rank has no out. */
static bool expected(enum weft_coll_kind kind, uint32_t n, uint32_t root, uint64_t count,
                     uint32_t r, uint64_t i, int32_t *value_p)
{
    int64_t sum = 0;
    switch (kind) {
    case WEFT_COLL_ALL_REDUCE:
    case WEFT_COLL_REDUCE:
    case WEFT_COLL_REDUCE_SCATTER:
        for (uint32_t k = 0; k < n; k++) {
            sum += value_of(k, kind == WEFT_COLL_REDUCE_SCATTER ? r * count + i : i);
        }
        *value_p = (int32_t)sum;
        return kind != WEFT_COLL_REDUCE || r == root;
    case WEFT_COLL_ALL_GATHER:
    case WEFT_COLL_GATHER:
        *value_p = value_of((uint32_t)(i / count), i % count);
        return kind == WEFT_COLL_ALL_GATHER || r == root;
    case WEFT_COLL_BROADCAST:
        *value_p = value_of(root, i);
        return true;
    case WEFT_COLL_SCATTER:
        *value_p = value_of(root, r * count + i);
        return true;
    case WEFT_COLL_ALL_TO_ALL:
        *value_p = value_of((uint32_t)(i / count), r * count + i % count);
        return true;
    default:
        return false;
    }
}

static bool in_has_blocks(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_REDUCE_SCATTER || kind == WEFT_COLL_SCATTER ||
           kind == WEFT_COLL_ALL_TO_ALL;
}

static bool out_has_blocks(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_ALL_GATHER || kind == WEFT_COLL_GATHER || kind == WEFT_COLL_ALL_TO_ALL;
}

static void run_one(enum weft_coll_kind kind, uint32_t n, uint32_t root, uint64_t count,
                    uint64_t seed)
{
    struct rig *r = rig_new(n, seed);
    struct buffers b;
    uint64_t in_count = in_has_blocks(kind) ? n * count : count;
    uint64_t out_count = out_has_blocks(kind) ? n * count : count;
    buffers_make(&b, n, in_count, out_count);
    for (uint32_t k = 0; k < n; k++) {
        struct weft_coll_call call = {.kind = kind,
                                      .type = WEFT_COLL_I32,
                                      .count = count,
                                      .root = root,
                                      .in = b.in[k],
                                      .out = b.out[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        for (uint32_t steps = 0; steps < 20 * seed; steps++) { /* the next rank calls late */
            fake_step(r->net);
            rig_poll_all(r);
        }
    }
    rig_run(r);
    for (uint32_t k = 0; k < n; k++) {
        assert_int_equal(r->done_count[k], 1);
        if (r->done[k][0].status != WEFT_OK) {
            char text[256];
            weft_coll_failure_text(weft_coll_failure(r->coll[k]), text, sizeof(text));
            fail_msg("%s of %u x %llu, root %u: %s", weft_coll_kind_name(kind), n,
                     (unsigned long long)count, root, text);
        }
        for (uint64_t i = 0; i < in_count; i++) {
            assert_int_equal(b.in[k][i], value_of(k, i)); /* not written to */
        }
        for (uint64_t i = 0; i < out_count; i++) {
            int32_t value = 0x77777777;
            if (!expected(kind, n, root, count, k, i, &value)) {
                value = 0x77777777;
            }
            if (b.out[k][i] != value) {
                fail_msg("%s of %u x %llu, root %u: rank %u has %d at %llu, not %d",
                         weft_coll_kind_name(kind), n, (unsigned long long)count, root, k,
                         b.out[k][i], (unsigned long long)i, value);
            }
        }
    }
    assert_int_equal(r->net->unmatched, 0);
    buffers_free(&b, n);
    rig_free(r);
}

static void run_kind(enum weft_coll_kind kind)
{
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint32_t n = 1; n <= RANKS; n++) {
            run_one(kind, n, (uint32_t)i % n, counts[i], 0);
            run_one(kind, n, n - 1, counts[i], i);
        }
    }
}

static void test_all_reduce(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_ALL_REDUCE);
}

static void test_reduce(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_REDUCE);
}

static void test_reduce_scatter(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_REDUCE_SCATTER);
}

static void test_all_gather(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_ALL_GATHER);
}

static void test_gather(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_GATHER);
}

static void test_broadcast(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_BROADCAST);
}

static void test_scatter(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_SCATTER);
}

static void test_all_to_all(void **state)
{
    (void)state;
    run_kind(WEFT_COLL_ALL_TO_ALL);
}

/* No rank leaves a barrier before the last one has entered. */
static void test_barrier(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= RANKS; n++) {
        struct weft_coll_config config = rig_config(n);
        config.small_ranks = n % 2 == 0 ? 16 : 1; /* both algorithms */
        struct rig *r = rig_new_with(&config, n);
        for (uint32_t k = 0; k + 1 < n; k++) {
            assert_int_equal(rig_begin(r, k, (struct weft_coll_call){.kind = WEFT_COLL_BARRIER}),
                             WEFT_OK);
        }
        rig_run(r);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(r->done_count[k], 0);
        }
        assert_int_equal(rig_begin(r, n - 1, (struct weft_coll_call){.kind = WEFT_COLL_BARRIER}),
                         WEFT_OK);
        rig_run(r);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(r->done_count[k], 1);
            assert_int_equal(r->done[k][0].status, WEFT_OK);
        }
        rig_free(r);
    }
}

/* In place: the buffer is written while the transport may still read it. */
static void test_in_place(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        uint64_t count = counts[c];
        uint32_t n = 4;
        struct rig *r = rig_new(n, c);
        struct buffers b;
        buffers_make(&b, n, n * count, n * count);
        for (uint32_t k = 0; k < n; k++) {
            struct weft_coll_call call = {.kind = WEFT_COLL_ALL_REDUCE,
                                          .type = WEFT_COLL_I32,
                                          .count = count,
                                          .in = b.in[k],
                                          .out = b.in[k]};
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
            int32_t *own = b.out[k] + k * count;
            for (uint64_t i = 0; i < count; i++) {
                own[i] = value_of(k, i);
            }
            call = (struct weft_coll_call){.kind = WEFT_COLL_ALL_GATHER,
                                           .type = WEFT_COLL_I32,
                                           .count = count,
                                           .in = own,
                                           .out = b.out[k],
                                           .user = 1};
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
        rig_run(r);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(r->done_count[k], 2);
            for (uint64_t i = 0; i < n * count; i++) {
                int32_t value;
                assert_true(expected(WEFT_COLL_ALL_GATHER, n, 0, count, k, i, &value));
                assert_int_equal(b.out[k][i], value);
                value = value_of(k, i);
                if (i < count) {
                    assert_true(expected(WEFT_COLL_ALL_REDUCE, n, 0, count, k, i, &value));
                }
                assert_int_equal(b.in[k][i], value);
            }
        }
        buffers_free(&b, n);
        rig_free(r);
    }
}

/* Two ranks, whose contributions are reduced as they arrive: the second rank calls after any number
 * of the first one's chunks, which then are in its pool, in messages that are open or closed. Each
 * contribution is added once, in place. */
static void test_pair_in_place(void **state)
{
    (void)state;
    enum { COUNT = 20000, STEPS = 40, SEGMENTS = 3 };
    struct weft_coll_config config = rig_config(2);
    config.segment_bytes = COUNT / 2 * sizeof(int32_t) / SEGMENTS;
    for (uint32_t steps = 0; steps < STEPS; steps++) {
        struct rig *r = rig_new_with(&config, steps);
        struct buffers b;
        buffers_make(&b, 2, COUNT, 1);
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t rank = (k + steps) % 2;
            struct weft_coll_call call = {
                .type = WEFT_COLL_I32, .count = COUNT, .in = b.in[rank], .out = b.in[rank]};
            assert_int_equal(rig_begin(r, rank, call), WEFT_OK);
            for (uint32_t i = 0; i < steps; i++) {
                fake_step(r->net);
                rig_poll_all(r);
            }
        }
        rig_run(r);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(r->done_count[k], 1);
            assert_int_equal(r->done[k][0].status, WEFT_OK);
            for (uint64_t i = 0; i < COUNT; i++) {
                assert_int_equal(b.in[k][i], value_of(0, i) + value_of(1, i));
            }
        }
        buffers_free(&b, 2);
        rig_free(r);
    }
}

/* Segments end with packets of 63 KiB: those of a slice need few more than the slice. */
static void test_segments(void **state)
{
    (void)state;
    enum { PACKET = 63 << 10, LENGTHS = 70 };
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    for (uint32_t type = 0; type < WEFT_COLL_TYPES; type++) {
        uint32_t elem_bytes = weft_coll_type_bytes(type);
        for (uint32_t i = 0; i < LENGTHS; i++) {
            uint64_t bytes = (uint64_t)(1024 + 256 * (i % 4)) << i / 4; /* whole grains */
            struct weft_coll_call call = {.type = type, .count = 2 * bytes / elem_bytes};
            struct shape shape;
            assert_true(weft_coll_shape_make(&config, &call, 2, i % 2, &shape));
            uint64_t least = weft_div_ceil_u64(bytes, PACKET), packets = 0;
            uint64_t each = weft_max_u64(weft_div_ceil_u64(least, WEFT_COLL_SEGMENTS_MAX), 2);
            assert_in_range(shape.segments, 1, WEFT_COLL_SEGMENTS_MAX);
            for (uint32_t g = 0; g < shape.segments; g++) {
                uint64_t part = (uint64_t)weft_coll_part(&shape, 0, g).elems * elem_bytes;
                assert_in_range(part, 1, each * PACKET);
                packets += weft_div_ceil_u64(part, PACKET);
            }
            assert_in_range(packets, least, least + each - 1);
        }
    }
}

/* A broadcast of up to 64 KiB takes one step, a longer one two. */
static void test_short_broadcast(void **state)
{
    (void)state;
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    for (uint32_t n = 3; n <= 64; n++) {
        struct weft_coll_call call = {.kind = WEFT_COLL_BROADCAST, .type = WEFT_COLL_I8};
        struct shape shape;
        call.count = 64 << 10;
        assert_true(weft_coll_shape_make(&config, &call, n, n - 1, &shape));
        assert_int_equal(shape.slices, SLICES_ROOT);
        assert_int_equal(shape.senders, PARTY_NONE);
        call.count++;
        assert_true(weft_coll_shape_make(&config, &call, n, n - 1, &shape));
        assert_int_equal(shape.slices, SLICES_VECTOR);
        assert_int_equal(shape.senders, PARTY_ROOT);
    }
}

/* Long chunks of a message are equally long, but for the grains; short ones fill their packets. */
static void test_even_chunks(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {5000, 20000, 33000, 70000, 131072};
    static const uint32_t rooms[] = {1408, 64936};
    for (uint32_t t = 0; t < 2 * sizeof(lengths) / sizeof(lengths[0]); t++) {
        uint32_t count = lengths[t / 2], room = rooms[t % 2];
        struct rig *r = rig_new(2, t);
        r->net->packet_bytes = room;
        struct buffers b;
        buffers_make(&b, 2, count, count);
        for (uint32_t k = 0; k < 2; k++) {
            struct weft_coll_call call = {
                .type = WEFT_COLL_I32, .count = count, .in = b.in[k], .out = b.out[k]};
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
        uint32_t seen = 0;
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            const struct fake_message *m = &r->net->messages[i];
            uint32_t full = room / sizeof(int32_t) / WEFT_COLL_GRAIN * WEFT_COLL_GRAIN;
            if (!m->live || m->send.elem_bytes != sizeof(int32_t)) {
                continue;
            }
            seen++;
            uint32_t last = m->send.total - (m->chunks - 1) * m->chunk_elems;
            assert_int_equal(m->chunks, weft_div_ceil_u64(m->send.total, full));
            assert_int_equal(m->chunk_elems % WEFT_COLL_GRAIN, 0);
            if (room < 16384) {
                assert_int_equal(m->chunk_elems, full);
            } else {
                assert_in_range(last, m->chunk_elems - m->chunks * WEFT_COLL_GRAIN, m->chunk_elems);
            }
        }
        assert_true(seen >= 2);
        rig_run(r);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(r->done[k][0].status, WEFT_OK);
            for (uint64_t i = 0; i < count; i++) {
                assert_int_equal(b.out[k][i], value_of(0, i) + value_of(1, i));
            }
        }
        buffers_free(&b, 2);
        rig_free(r);
    }
}

/* Without elements: done at once, but counted in the order of operations. */
static void test_nothing(void **state)
{
    (void)state;
    struct rig *r = rig_new(3, 1);
    int32_t in = 5, out[3] = {0};
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t kind = 0; kind < WEFT_COLL_BARRIER; kind++) {
            assert_int_equal(
                rig_begin(r, k, (struct weft_coll_call){.kind = (enum weft_coll_kind)kind}),
                WEFT_OK);
        }
        assert_int_equal(r->done_count[k], WEFT_COLL_BARRIER);
    }
    assert_int_equal(r->net->seq, 0);
    for (uint32_t k = 0; k < 3; k++) {
        struct weft_coll_call call = {.type = WEFT_COLL_I32, .count = 1, .in = &in, .out = &out[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(r->done_count[k], WEFT_COLL_BARRIER + 1);
        assert_int_equal(out[k], 15);
    }
    rig_free(r);
}

/* A refused begin changes nothing. */
static void test_refused(void **state)
{
    (void)state;
    struct rig *r = rig_new(3, 1);
    float in[8] = {0}, out[8], residual[8] = {0};
    const struct weft_coll_call good = {.count = 2, .in = in, .out = out};
    const struct {
        const char *what;
        struct weft_coll_call call;
    } bad[] = {
        {"a kind that is not valid", {.kind = WEFT_COLL_KINDS, .count = 2, .in = in, .out = out}},
        {"a type that is not valid", {.type = WEFT_COLL_TYPES, .count = 2, .in = in, .out = out}},
        {"a group that is not valid", {.group = 1, .count = 2, .in = in, .out = out}},
        {"a root outside", {.kind = WEFT_COLL_REDUCE, .root = 3, .count = 2, .in = in, .out = out}},
        {"no in", {.count = 2, .out = out}},
        {"no out", {.count = 2, .in = in}},
        {"a mean of integers",
         {.type = WEFT_COLL_I32, .reduction = WEFT_COLL_MEAN, .count = 2, .in = in, .out = out}},
        {"a bitwise and of floats", {.reduction = WEFT_COLL_AND, .count = 2, .in = in, .out = out}},
        {"a bound of one", {.bound_ppm = 1000000, .count = 2, .in = in, .out = out}},
        {"a bound for a kind that loses nothing",
         {.kind = WEFT_COLL_BROADCAST, .bound_ppm = 1, .count = 2, .in = in, .out = out}},
        {"feedback of a maximum",
         {.reduction = WEFT_COLL_MAX, .residual = residual, .count = 2, .in = in, .out = out}},
        {"feedback of integers",
         {.type = WEFT_COLL_I32, .residual = residual, .count = 2, .in = in, .out = out}},
        {"a send to itself", {.kind = WEFT_COLL_SEND, .count = 2, .in = in}},
        {"a send to nobody", {.kind = WEFT_COLL_SEND, .peer = 4, .count = 2, .in = in}},
        {"a recv without an out", {.kind = WEFT_COLL_RECV, .peer = 1, .count = 2, .in = in}},
        {"a send with a bound",
         {.kind = WEFT_COLL_SEND, .peer = 1, .count = 2, .in = in, .bound_ppm = 5}},
        {"all_to_all in place", {.kind = WEFT_COLL_ALL_TO_ALL, .count = 2, .in = in, .out = in}},
        {"a slice longer than its messages", {.count = UINT64_C(1) << 28, .in = in, .out = out}},
        {"an address inside an element", {.count = 1, .in = (const uint8_t *)in + 2, .out = out}},
        {"more than there is memory", {.count = UINT64_MAX, .in = in, .out = out}},
        {"more than there is memory, in blocks",
         {.kind = WEFT_COLL_ALL_GATHER, .count = UINT64_C(1) << 45, .in = in, .out = out}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(weft_coll_work_bytes(r->coll[0], &bad[i].call), 0);
        if (rig_begin(r, 0, bad[i].call) != WEFT_INVALID) {
            fail_msg("begin took %s", bad[i].what);
        }
    }
    struct weft_coll_call no_work = good;
    assert_int_equal(weft_coll_begin(r->coll[0], &no_work, r->net->now_ns), WEFT_INVALID);
    assert_int_equal(weft_coll_counters(r->coll[0])->begun, 0);
    for (uint32_t i = 0; i < 8; i++) {
        struct weft_coll_call call = good;
        call.user = i;
        assert_int_equal(rig_begin(r, 0, call), WEFT_OK);
    }
    struct weft_coll_call ninth = good;
    _Alignas(WEFT_COLL_ALIGN) uint8_t work[8192];
    ninth.work = work + 8;
    assert_int_equal(weft_coll_begin(r->coll[0], &ninth, r->net->now_ns), WEFT_INVALID);
    ninth.work = work;
    assert_int_equal(weft_coll_begin(r->coll[0], &ninth, r->net->now_ns), WEFT_AGAIN);
    rig_free(r);
}

/* Between each two ranks, in both directions, long and short, with tags received in another order
 * than sent, and some sent twice: those match in the order of the calls. */
static void test_send_recv(void **state)
{
    (void)state;
    enum { N = 3, EACH = 3, COUNT = 5000 };
    static const uint32_t tags[2][EACH] = {{7, 9, 7}, {9, 7, 7}};
    static const uint32_t lengths[2][EACH] = {{COUNT, 10, 2000}, {10, COUNT, 2000}};
    static int32_t in[N][N][EACH][COUNT], out[N][N][EACH][COUNT];
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct weft_coll_config config = rig_config(N);
        config.segment_bytes = 1024;
        config.small_bytes = 512;
        struct rig *r = rig_new_with(&config, seed);
        r->net->msgs_max = 7;
        memset(out, 0, sizeof(out));
        for (uint32_t turn = 0; turn < 2 * N; turn++) {
            uint32_t k = (turn + (uint32_t)seed) % N;
            bool sends = (turn < N) == (seed % 2 == 0);
            uint32_t to = sends ? (k + 1) % N : (k + N - 1) % N;
            for (uint32_t i = 0; i < EACH; i++) {
                struct weft_coll_call call = {.kind = sends ? WEFT_COLL_SEND : WEFT_COLL_RECV,
                                              .type = WEFT_COLL_I32,
                                              .peer = to,
                                              .tag = tags[!sends][i],
                                              .count = lengths[!sends][i],
                                              .in = sends ? in[k][to][i] : NULL,
                                              .out = sends ? NULL : out[to][k][i],
                                              .user = i + (sends ? 0 : EACH)};
                for (uint32_t j = 0; j < COUNT && sends; j++) {
                    in[k][to][i][j] = value_of(k, i * COUNT + j);
                }
                assert_int_equal(rig_begin(r, k, call), WEFT_OK);
                for (uint64_t steps = seed % 5; steps > 0; steps--) {
                    fake_step(r->net);
                    rig_poll_all(r);
                }
            }
        }
        rig_run(r);
        static const uint32_t sent_as[EACH] = {1, 0, 2}; /* the send that each recv must match */
        for (uint32_t k = 0; k < N; k++) {
            uint32_t to = (k + 1) % N;
            assert_int_equal(r->done_count[k], 2 * EACH);
            for (uint32_t i = 0; i < EACH; i++) {
                assert_int_equal(r->done[k][i].status, WEFT_OK);
                assert_int_equal(r->done[k][EACH + i].status, WEFT_OK);
                assert_memory_equal(out[k][to][i], in[k][to][sent_as[i]], lengths[1][i] * 4);
                assert_int_equal(lengths[1][i] < COUNT ? out[k][to][i][lengths[1][i]] : 0, 0);
            }
        }
        rig_free(r);
    }
}

/* An empty send keeps its place among the others of its tag. Of many recvs that are called before
 * any send, the n-th gets the data of the n-th send, up to the last slot. */
static void test_send_recv_many(void **state)
{
    (void)state;
    enum { MANY = 8, COUNT = 3000 };
    static int32_t in[MANY][COUNT], out[MANY][COUNT];
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rig *r = rig_new(2, seed);
        for (uint32_t round = 0; round < 3; round++) {
            memset(out, 0, sizeof(out));
            for (uint32_t i = 0; i < 2 * MANY; i++) {
                bool sends = i >= MANY;
                uint32_t turn = i % MANY;
                struct weft_coll_call call = {.kind = sends ? WEFT_COLL_SEND : WEFT_COLL_RECV,
                                              .type = WEFT_COLL_I32,
                                              .peer = sends ? 0 : 1,
                                              .count = turn % 3 == 1 ? 0 : COUNT,
                                              .user = turn};
                if (call.count > 0) {
                    call.in = sends ? in[turn] : NULL;
                    call.out = sends ? NULL : out[turn];
                }
                for (uint32_t j = 0; j < COUNT; j++) {
                    in[turn][j] = value_of(turn + round, j);
                }
                assert_int_equal(rig_begin(r, sends ? 1 : 0, call), WEFT_OK);
                if (i == MANY - 1) {
                    rig_run(r);
                    /* a recv is not done either */
                    assert_int_equal(r->done_count[0], round * MANY);
                }
            }
            rig_run(r);
            for (uint32_t turn = 0; turn < MANY; turn++) {
                assert_int_equal(r->done[0][turn].status, WEFT_OK);
                assert_int_equal(r->done[1][turn].status, WEFT_OK);
                assert_memory_equal(out[turn], turn % 3 == 1 ? out[1] : in[turn], sizeof(in[turn]));
            }
            assert_int_equal(r->done_count[0], (round + 1) * MANY);
            assert_int_equal(r->done_count[1], (round + 1) * MANY);
            assert_true(out[1][0] == 0 && out[1][COUNT - 1] == 0);
        }
        assert_int_equal(weft_coll_counters(r->coll[0])->early_messages, 0);
        rig_free(r);
    }
}

/* 2^31 elements are one operation if slices fit their messages, and are refused otherwise; the
 * buffers are not accessed before the operation begins. */
static void test_very_long(void **state)
{
    (void)state;
    uint64_t elems = UINT64_C(1) << 31;
    uint8_t some = 0;
    double number = 0;
    for (uint32_t n = 1; n <= 8; n++) {
        struct weft_coll_config config = rig_config(n);
        config.chunks_max = 65536;
        struct rig *r = rig_new_with(&config, 1);
        for (int kind = 0; kind < WEFT_COLL_KINDS; kind++) {
            bool whole = kind <= WEFT_COLL_REDUCE || kind == WEFT_COLL_BROADCAST;
            if (!whole) {
                continue;
            }
            struct weft_coll_call call = {.kind = (enum weft_coll_kind)kind,
                                          .type = WEFT_COLL_I8,
                                          .count = elems,
                                          .in = &some,
                                          .out = &some};
            assert_true(weft_coll_work_bytes(r->coll[0], &call) > 0);
            call.type = WEFT_COLL_F64;
            call.in = call.out = &number;
            assert_int_equal(weft_coll_work_bytes(r->coll[0], &call) > 0, n == 1);
        }
        rig_free(r);
    }
}

/* More concurrent operations than the transport has message slots, in two groups, begun in any
 * order of the ranks: each has the correct result. */
static void test_many_at_once(void **state)
{
    (void)state;
    enum { N = 4, OPS = 8, COUNT = 3000 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct weft_coll_config config = rig_config(N);
        config.segment_bytes = 1024;
        config.small_bytes = 512;
        struct rig *r = rig_new_with(&config, seed);
        r->net->msgs_max = 6;
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        const uint32_t odd[2] = {3, 1};
        uint32_t group;
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(weft_coll_group(r->coll[k], odd, 2, &group), WEFT_OK);
            assert_int_equal(group, 1);
        }
        static int32_t in[N][OPS][COUNT], out[N][OPS][COUNT];
        uint32_t begun[N] = {0};
        for (uint32_t left = N * OPS; left > 0;) {
            uint32_t k = (uint32_t)weft_prng_below(&prng, N);
            if (begun[k] == OPS) {
                continue;
            }
            uint32_t op = begun[k]++;
            bool member = op % 2 == 0 || k % 2 == 1;
            for (uint32_t i = 0; i < COUNT; i++) {
                in[k][op][i] = value_of(k, i + op);
            }
            struct weft_coll_call call = {.type = WEFT_COLL_I32,
                                          .count = COUNT,
                                          .group = op % 2,
                                          .in = in[k][op],
                                          .out = out[k][op],
                                          .user = op};
            assert_int_equal(rig_begin(r, k, call), member ? WEFT_OK : WEFT_INVALID);
            left--;
            for (uint64_t steps = weft_prng_below(&prng, 60); steps > 0; steps--) {
                fake_step(r->net);
                rig_poll_all(r);
            }
        }
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(r->done_count[k], k % 2 == 1 ? OPS : OPS / 2);
            for (uint32_t op = 0; op < OPS; op += 1 + (k % 2 == 0)) {
                assert_int_equal(r->done[k][op].status, WEFT_OK);
                for (uint32_t i = 0; i < COUNT; i++) {
                    int32_t sum = value_of(1, i + op) + value_of(3, i + op);
                    sum += op % 2 == 0 ? value_of(0, i + op) + value_of(2, i + op) : 0;
                    assert_int_equal(out[k][op][i], sum);
                }
            }
        }
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),     cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_gather),         cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_scatter),        cmocka_unit_test(test_all_to_all),
        cmocka_unit_test(test_barrier),        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_nothing),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_send_recv),      cmocka_unit_test(test_send_recv_many),
        cmocka_unit_test(test_very_long),      cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_pair_in_place),  cmocka_unit_test(test_even_chunks),
        cmocka_unit_test(test_segments),       cmocka_unit_test(test_short_broadcast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
