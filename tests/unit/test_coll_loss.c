/* Bounded loss in all_reduce: equal bits at all ranks, sums that match the masks, division by the
 * contributors of each grain or by n with feedback, and no loss with feedback. Values are small
 * whole numbers, so that sums are exact in any order. */
#include "coll_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

enum { N = 4, COUNT = 50000, STEPS = 6 };

static float in[N][COUNT], out[N][COUNT], residual[N][COUNT], before[N][COUNT];
static uint8_t missed[N][COUNT];

static float value_of(uint32_t rank, uint32_t step, uint32_t i)
{
    return (float)(weft_mix64(rank * UINT64_C(1000003) + step * UINT64_C(7919) + i) % 64) + 1;
}

static void fill(uint32_t step)
{
    for (uint32_t r = 0; r < N; r++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            in[r][i] = value_of(r, step, i);
        }
    }
}

static void begin_all(struct rig *r, struct weft_coll_call call, bool feedback)
{
    for (uint32_t k = 0; k < N; k++) {
        call.in = in[k];
        call.out = out[k];
        call.residual = feedback ? residual[k] : NULL;
        call.missed = feedback ? missed[k] : NULL;
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done[k][0].status, WEFT_OK);
        assert_memory_equal(out[k], out[0], sizeof(out[0]));
    }
}

static struct weft_coll_call reduce_call(enum weft_coll_reduction reduction, uint32_t bound_ppm)
{
    return (struct weft_coll_call){.kind = WEFT_COLL_ALL_REDUCE,
                                   .reduction = reduction,
                                   .count = COUNT,
                                   .bound_ppm = bound_ppm};
}

/* Each element is the sum of a set of contributions that includes its owner's; the missing ones
 * match the senders' reports. */
static void test_sum(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 3);
    r->net->loss_ppm = 200000;
    uint64_t missing = 0;
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            in[k][i] = (float)(1 << k);
        }
    }
    begin_all(r, reduce_call(WEFT_COLL_SUM, 100000), false);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t set = (uint32_t)out[0][i];
        assert_true((float)set == out[0][i] && set > 0 && set < 1 << N);
        missing += N - (uint32_t)__builtin_popcount(set);
    }
    uint64_t told = 0, seen = 0;
    uint32_t least = N;
    for (uint32_t k = 0; k < N; k++) {
        told += r->done[k][0].own_missing;
        seen += weft_coll_counters(r->coll[k])->elements_missing;
        least = (uint32_t)weft_min_u64(least, r->done[k][0].contributors_min);
    }
    assert_true(missing > 0 && missing < COUNT * N / 10);
    assert_int_equal(told, missing);
    assert_int_equal(seen, missing);
    assert_true(least < N);
    rig_free(r);
}

/* All contribute the same values, so every mean equals these, whichever contribution is missing. */
static void test_mean_by_contributors(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 5);
    r->net->loss_ppm = 300000;
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            in[k][i] = (float)(i % 1000);
        }
    }
    begin_all(r, reduce_call(WEFT_COLL_MEAN, 200000), false);
    assert_true(r->done[0][0].own_missing > 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(out[0][i] == (float)(i % 1000));
    }
    rig_free(r);
}

/* In each step, for each element: n x (output) + the increase of the residuals = the sum of the
 * inputs. */
static void test_feedback_conserves(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 7);
    r->net->loss_ppm = 300000;
    memset(residual, 0, sizeof(residual));
    memset(missed, 0, sizeof(missed));
    uint64_t missing = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        fill(step);
        memcpy(before, residual, sizeof(before));
        begin_all(r, reduce_call(WEFT_COLL_MEAN, 200000), true);
        for (uint32_t i = 0; i < COUNT; i++) {
            float put = 0, kept = 0;
            for (uint32_t k = 0; k < N; k++) {
                put += in[k][i] + before[k][i];
                kept += residual[k][i];
            }
            assert_true(put == N * out[0][i] + kept);
        }
        for (uint32_t k = 0; k < N; k++) {
            missing += r->done[k][0].own_missing;
            assert_int_equal(r->done[k][0].nonfinite, 0);
        }
    }
    assert_true(missing > 0);
    rig_free(r);
}

/* Half a chunk of each of two segments may be missing, so one chunk of an operation: over many
 * operations about as many of the one segment as of the other. */
static void test_segments_share_the_bound(void **state)
{
    (void)state;
    enum { OPS = 64, CHUNK = 352, SEGMENT = 16 * CHUNK, ALL = N * 2 * SEGMENT };
    struct weft_coll_config config = rig_config(N);
    config.segment_bytes = 32768;
    struct rig *r = rig_new_with(&config, 19);
    r->net->packet_bytes = CHUNK * sizeof(float);
    r->net->loss_ppm = WEFT_PPM; /* all that the bound allows */
    r->net->carries = true;
    uint64_t missing[2] = {0, 0};
    for (uint32_t step = 0; step < OPS; step++) {
        for (uint32_t k = 0; k < N; k++) {
            for (uint32_t i = 0; i < ALL; i++) {
                in[k][i] = (float)(1 << k);
            }
        }
        struct weft_coll_call call = reduce_call(WEFT_COLL_SUM, WEFT_PPM / 32);
        call.count = ALL;
        begin_all(r, call, false);
        for (uint32_t i = 0; i < ALL; i++) {
            missing[i / SEGMENT % 2] += N - (uint32_t)__builtin_popcount((uint32_t)out[0][i]);
        }
    }
    uint64_t most = (uint64_t)OPS * N * (N - 1) * CHUNK;
    assert_int_equal(missing[0] + missing[1], most);
    assert_in_range(missing[0], most / 4, most / 4 * 3);
    rig_free(r);
}

/* A grain missing twice in a row must arrive the third time. */
static void test_missed_twice(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 9);
    r->net->loss_ppm = 900000; /* nearly all losses that the bound allows */
    memset(residual, 0, sizeof(residual));
    memset(missed, 0, sizeof(missed));
    uint32_t most = 0, twice = 0;
    for (uint32_t step = 0; step < 12; step++) {
        fill(step);
        begin_all(r, reduce_call(WEFT_COLL_SUM, 400000), true);
        for (uint32_t k = 0; k < N; k++) {
            for (uint32_t i = 0; i < sizeof(missed[0]); i++) {
                most = missed[k][i] > most ? missed[k][i] : most;
                twice += missed[k][i] == 2;
            }
        }
    }
    assert_int_equal(most, 2);
    assert_true(twice > 100);
    rig_free(r);
}

/* NaN and infinity reach all ranks; in a residual they become zero and are counted. */
static void test_nonfinite(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 11);
    r->net->loss_ppm = 500000;
    memset(residual, 0, sizeof(residual));
    memset(missed, 0, sizeof(missed));
    fill(0);
    for (uint32_t i = 0; i < COUNT; i++) {
        in[1][i] = i % 2 == 0 ? NAN : INFINITY;
    }
    begin_all(r, reduce_call(WEFT_COLL_SUM, 300000), true);
    uint64_t infinite = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        infinite += isfinite(out[0][i]) ? 1 : 0;
        for (uint32_t k = 0; k < N; k++) {
            assert_true(isfinite(residual[k][i]));
        }
    }
    assert_true(r->done[1][0].own_missing > 0);
    assert_int_equal(infinite, r->done[1][0].own_missing);
    assert_int_equal(r->done[1][0].nonfinite, r->done[1][0].own_missing);
    assert_int_equal(r->done[0][0].nonfinite, 0);
    assert_int_equal(weft_coll_counters(r->coll[1])->nonfinite, r->done[1][0].nonfinite);
    rig_free(r);
}

/* reduce_scatter with feedback: the same, block by block, of a length that ends inside a grain. */
static void test_reduce_scatter_conserves(void **state)
{
    (void)state;
    enum { BLOCK = COUNT / N - 5 };
    struct rig *r = rig_new(N, 13);
    r->net->loss_ppm = 300000;
    memset(residual, 0, sizeof(residual));
    memset(missed, 0, sizeof(missed));
    for (uint32_t step = 0; step < STEPS; step++) {
        fill(step);
        memcpy(before, residual, sizeof(before));
        uint64_t missing = 0;
        for (uint32_t k = 0; k < N; k++) {
            struct weft_coll_call call = {.kind = WEFT_COLL_REDUCE_SCATTER,
                                          .count = BLOCK,
                                          .bound_ppm = 150000,
                                          .in = in[k],
                                          .out = out[k],
                                          .residual = residual[k],
                                          .missed = missed[k]};
            assert_true(weft_coll_missed_bytes(r->coll[k], &call) <= sizeof(missed[k]));
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
        rig_run(r);
        for (uint32_t i = 0; i < N * BLOCK; i++) {
            float put = 0, kept = 0;
            for (uint32_t k = 0; k < N; k++) {
                put += in[k][i] + before[k][i];
                kept += residual[k][i];
            }
            assert_true(put == out[i / BLOCK][i % BLOCK] + kept);
        }
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(r->done[k][0].status, WEFT_OK);
            missing += r->done[k][0].own_missing;
        }
        assert_true(missing > 0);
    }
    rig_free(r);
}

/* A small vector: nothing may be missing, whatever the bound, and the residuals end at zero. */
static void test_small(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 15);
    r->net->loss_ppm = 500000;
    memset(residual, 0, sizeof(residual));
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < 100; i++) {
            in[k][i] = (float)(k + i);
            residual[k][i] = 1;
        }
        struct weft_coll_call call = {
            .count = 100, .bound_ppm = 500000, .in = in[k], .out = in[k], .residual = residual[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done[k][0].own_missing, 0);
        for (uint32_t i = 0; i < 100; i++) {
            assert_true(in[k][i] == (float)(4 * i + 10));
            assert_true(residual[k][i] == 0);
        }
    }
    rig_free(r);
}

/* A transport whose chunks are shorter than a grain: such a message must be complete. */
static void test_short_packets(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 17);
    r->net->loss_ppm = 500000;
    r->net->packet_bytes = 80;
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < 3000; i++) {
            in[k][i] = (float)(k + 1);
        }
        struct weft_coll_call call = {
            .count = 3000, .bound_ppm = 500000, .in = in[k], .out = out[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done[k][0].status, WEFT_OK);
        for (uint32_t i = 0; i < 3000; i++) {
            assert_true(out[k][i] == 10);
        }
    }
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_mean_by_contributors),
        cmocka_unit_test(test_feedback_conserves),
        cmocka_unit_test(test_segments_share_the_bound),
        cmocka_unit_test(test_missed_twice),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_reduce_scatter_conserves),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_short_packets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
