/* Quantiles against a sorted array of the same values: never below the true nearest-rank quantile,
 * never more than 1/32 above it, exact below 64; merging equals adding to one. */
#include "base/hist.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 2000 };

static const uint32_t QUANTILES_PPM[] = {0,      1,      10000,  250000, 500000,
                                         750000, 900000, 990000, 999000, 1000000};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value with at least that share of all values at or below it. */
static uint64_t slow_quantile(const uint64_t *sorted, size_t count, uint32_t ppm)
{
    for (size_t i = 0; i < count; i++) {
        if ((uint64_t)(i + 1) * WEFT_PPM >= (uint64_t)count * ppm) {
            return sorted[i];
        }
    }
    return sorted[count - 1];
}

static void check_against(const struct weft_hist *hist, uint64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    assert_int_equal(hist->count, count);
    assert_int_equal(hist->sum, sum);
    assert_int_equal(hist->max, values[count - 1]);
    for (size_t q = 0; q < WEFT_ARRAY_COUNT(QUANTILES_PPM); q++) {
        uint64_t truth = slow_quantile(values, count, QUANTILES_PPM[q]);
        uint64_t answer = weft_hist_quantile(hist, QUANTILES_PPM[q]);
        assert_true(answer >= truth);
        assert_true(answer - truth <= truth / 32);
        assert_true(answer <= hist->max);
    }
}

static void empty_answers_zero(void **state)
{
    (void)state;
    struct weft_hist hist = {0};
    assert_int_equal(weft_hist_quantile(&hist, 0), 0);
    assert_int_equal(weft_hist_quantile(&hist, 500000), 0);
    assert_int_equal(weft_hist_quantile(&hist, WEFT_PPM), 0);
}

static void one_value_is_every_quantile(void **state)
{
    (void)state;
    static const uint64_t values[] = {
        0, 1, 31, 32, 33, 63, 64, 65, 1000, UINT64_C(1) << 40, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(values); i++) {
        struct weft_hist hist = {0};
        weft_hist_add(&hist, values[i]);
        assert_int_equal(weft_hist_quantile(&hist, 0), values[i]);
        assert_int_equal(weft_hist_quantile(&hist, 500000), values[i]);
        assert_int_equal(weft_hist_quantile(&hist, WEFT_PPM), values[i]);
    }
}

static void small_values_are_exact(void **state)
{
    (void)state;
    struct weft_hist hist = {0};
    for (uint64_t v = 1; v <= 50; v++) {
        weft_hist_add(&hist, v);
    }
    assert_int_equal(weft_hist_quantile(&hist, 20000), 1);
    assert_int_equal(weft_hist_quantile(&hist, 20001), 2);
    assert_int_equal(weft_hist_quantile(&hist, 500000), 25);
    assert_int_equal(weft_hist_quantile(&hist, 980000), 49);
    assert_int_equal(weft_hist_quantile(&hist, WEFT_PPM), 50);
}

/* At every power of two and its neighbours the bucket changes; each must hold its value. */
static void edges_of_all_octaves(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int delta = -1; delta <= 1; delta++) {
            uint64_t value = (UINT64_C(1) << shift) + (uint64_t)(int64_t)delta;
            struct weft_hist hist = {0};
            weft_hist_add(&hist, value);
            /* A second, larger value, so that `max` does not limit the quantile to the first
             * one. */
            weft_hist_add(&hist, UINT64_MAX);
            uint64_t answer = weft_hist_quantile(&hist, 500000);
            assert_true(answer >= value && answer - value <= value / 32);
        }
    }
}

/* Values of all magnitudes: uniform exponent, uniform mantissa. */
static size_t draw(struct weft_prng *prng, uint64_t *values)
{
    size_t count = weft_prng_range(prng, 1, VALUES_MAX);
    uint64_t shift_max = weft_prng_below(prng, 64);
    for (size_t i = 0; i < count; i++) {
        values[i] = weft_prng_u64(prng) >> (63 - weft_prng_range(prng, 0, shift_max));
    }
    return count;
}

static void random_values_agree_with_the_sorted_array(void **state)
{
    (void)state;
    enum { SEED = 11, ROUNDS = 100 };
    print_message("seed %d\n", SEED);
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    static uint64_t values[VALUES_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        struct weft_hist hist = {0};
        size_t count = draw(&prng, values);
        for (size_t i = 0; i < count; i++) {
            weft_hist_add(&hist, values[i]);
        }
        check_against(&hist, values, count);
    }
}

static void merged_equals_added_to_one(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 12);
    static uint64_t values[VALUES_MAX];
    static struct weft_hist parts[3];
    static struct weft_hist whole;
    memset(parts, 0, sizeof(parts));
    memset(&whole, 0, sizeof(whole));
    size_t count = draw(&prng, values);
    for (size_t i = 0; i < count; i++) {
        weft_hist_add(&parts[weft_prng_below(&prng, 3)], values[i]);
        weft_hist_add(&whole, values[i]);
    }
    static struct weft_hist merged;
    memset(&merged, 0, sizeof(merged));
    for (int i = 0; i < 3; i++) {
        weft_hist_merge(&merged, &parts[i]);
    }
    assert_memory_equal(&merged, &whole, sizeof(whole));
    check_against(&merged, values, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_answers_zero),
        cmocka_unit_test(one_value_is_every_quantile),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(edges_of_all_octaves),
        cmocka_unit_test(random_values_agree_with_the_sorted_array),
        cmocka_unit_test(merged_equals_added_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
