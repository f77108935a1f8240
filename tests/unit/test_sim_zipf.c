/* The calibration of the load's keys: checked with the exact sum and by sampling; ids are a
 * bijection of ranks. */
#include "sim/zipf.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

/* Share of the first `top` ranks by direct summation, smallest terms first. */
static double share_summed(uint64_t top, uint64_t keys, double exponent)
{
    double rest = 0, first = 0;
    for (uint64_t k = keys; k > top; k--) {
        rest += pow((double)k, -exponent);
    }
    for (uint64_t k = top; k > 0; k--) {
        first += pow((double)k, -exponent);
    }
    return first / (first + rest);
}

static void shares_are_those_of_the_sum(void **state)
{
    (void)state;
    static const double exponents[] = {0, 0.3, 0.98336, 1, 1.0000001, 1.1, 2.5};
    static const uint64_t sizes[][2] = {{1, 2}, {3, 50}, {63, 64}, {64, 65}, {200, 1000000}};
    for (size_t e = 0; e < sizeof(exponents) / sizeof(exponents[0]); e++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            double share = weft_zipf_share(sizes[i][0], sizes[i][1], exponents[e]);
            double summed = share_summed(sizes[i][0], sizes[i][1], exponents[e]);
            assert_true(fabs(share / summed - 1) < 1e-10);
        }
    }
}

static void calibration_hits_the_share(void **state)
{
    (void)state;
    static const double shares[] = {0.5, 0.7, 0.01, 0.999};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        double exponent;
        assert_int_equal(weft_zipf_calibrate(20000, 150000000, shares[i], &exponent), WEFT_OK);
        assert_true(fabs(weft_zipf_share(20000, 150000000, exponent) - shares[i]) < 1e-9);
    }
    double exponent;
    assert_int_equal(weft_zipf_calibrate(10, 1000, 0.01, &exponent), WEFT_OK);
    assert_true(exponent < 1e-9); /* uniform */
    assert_int_equal(weft_zipf_calibrate(20000, 3000000, 0.5, &exponent), WEFT_OK);
    assert_true(fabs(share_summed(20000, 3000000, exponent) - 0.5) < 1e-9);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    double exponent = 7;
    assert_int_equal(weft_zipf_calibrate(0, 10, 0.5, &exponent), WEFT_INVALID);
    assert_int_equal(weft_zipf_calibrate(10, 10, 0.5, &exponent), WEFT_INVALID);
    assert_int_equal(weft_zipf_calibrate(5, 10, 0.4, &exponent), WEFT_INVALID);
    assert_int_equal(weft_zipf_calibrate(5, 10, 1, &exponent), WEFT_INVALID);
    assert_int_equal(weft_zipf_calibrate(5, 10, (double)NAN, &exponent), WEFT_INVALID);
    assert_true(exponent == 7);
    struct weft_zipf zipf;
    assert_int_equal(weft_zipf_init(&zipf, 0, 1, 64, 1), WEFT_INVALID);
    assert_int_equal(weft_zipf_init(&zipf, 10, -1, 64, 1), WEFT_INVALID);
    assert_int_equal(weft_zipf_init(&zipf, 10, 1, 48, 1), WEFT_INVALID);
    assert_int_equal(weft_zipf_init(&zipf, (UINT64_C(1) << 32) + 1, 1, 32, 1), WEFT_INVALID);
}

/* 400,000 draws: the standard deviation of a share is 0.08 points. */
static void sampling_hits_the_share(void **state)
{
    (void)state;
    enum { DRAWS = 400000 };
    static const double shares[] = {0.5, 0.7};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        struct weft_zipf zipf;
        struct weft_prng prng;
        double exponent;
        uint64_t top = 0, first = 0;
        assert_int_equal(weft_zipf_calibrate(20000, 150000000, shares[i], &exponent), WEFT_OK);
        assert_int_equal(weft_zipf_init(&zipf, 150000000, exponent, 64, 1), WEFT_OK);
        weft_prng_init(&prng, 42);
        for (int n = 0; n < DRAWS; n++) {
            uint64_t rank = weft_zipf_rank(&zipf, &prng);
            assert_in_range(rank, 1, 150000000);
            top += rank <= 20000;
            first += rank == 1;
        }
        assert_true(fabs((double)top / DRAWS - shares[i]) < 0.005);
        assert_true(fabs((double)first / DRAWS - weft_zipf_share(1, 150000000, exponent)) < 0.003);
    }
}

/* Every rank of a small distribution compared with its probability: 5 standard deviations. */
static void sampling_follows_the_law(void **state)
{
    (void)state;
    enum { DRAWS = 200000, KEYS = 10 };
    static const double exponents[] = {0, 0.5, 1, 3};
    for (size_t e = 0; e < sizeof(exponents) / sizeof(exponents[0]); e++) {
        uint64_t seen[KEYS + 1] = {0};
        struct weft_zipf zipf;
        struct weft_prng prng;
        assert_int_equal(weft_zipf_init(&zipf, KEYS, exponents[e], 64, 1), WEFT_OK);
        weft_prng_init(&prng, 7);
        for (int n = 0; n < DRAWS; n++) {
            seen[weft_zipf_rank(&zipf, &prng)]++;
        }
        for (uint64_t k = 1; k <= KEYS; k++) {
            double p = pow((double)k, -exponents[e]) * weft_zipf_share(1, KEYS, exponents[e]);
            double deviation = sqrt(p * (1 - p) / DRAWS);
            assert_true(fabs((double)seen[k] / DRAWS - p) < 5 * deviation);
        }
    }
}

static void the_same_seed_draws_the_same(void **state)
{
    (void)state;
    struct weft_zipf zipf;
    struct weft_prng a, b;
    assert_int_equal(weft_zipf_init(&zipf, 1000, 1, 64, 5), WEFT_OK);
    weft_prng_init(&a, 3);
    weft_prng_init(&b, 3);
    for (int n = 0; n < 1000; n++) {
        assert_int_equal(weft_zipf_rank(&zipf, &a), weft_zipf_rank(&zipf, &b));
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void ids_are_different_and_apart(void **state)
{
    (void)state;
    enum { KEYS = 20000 };
    static uint64_t ids[KEYS];
    static const uint8_t bits[] = {64, 32};
    for (size_t i = 0; i < 2; i++) {
        struct weft_zipf zipf;
        uint64_t neighbours = 0;
        assert_int_equal(weft_zipf_init(&zipf, KEYS, 1, bits[i], 9), WEFT_OK);
        for (uint64_t k = 0; k < KEYS; k++) {
            ids[k] = weft_zipf_id(&zipf, k + 1);
            assert_true(bits[i] == 64 || ids[k] <= UINT32_MAX);
        }
        qsort(ids, KEYS, sizeof(ids[0]), by_value);
        for (uint64_t k = 1; k < KEYS; k++) {
            assert_true(ids[k] != ids[k - 1]);
            neighbours += ids[k] == ids[k - 1] + 1;
        }
        assert_true(neighbours < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_sum),
        cmocka_unit_test(calibration_hits_the_share),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(sampling_hits_the_share),
        cmocka_unit_test(sampling_follows_the_law),
        cmocka_unit_test(the_same_seed_draws_the_same),
        cmocka_unit_test(ids_are_different_and_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
