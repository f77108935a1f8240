/* The arithmetic of reductions, compared with a plain loop. */
#include "coll/fold.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { ELEMS = 700, SOURCES = 5 };

/* All 65,536 halves: loaded by the formula, and unchanged when stored back. */
static void test_f16_all(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
        float sign = bits >> 15 ? -1 : 1, value = weft_coll_f16_load((uint16_t)bits);
        if (exponent == 31 && fraction != 0) {
            assert_true(isnan(value));
            assert_true(isnan(weft_coll_f16_load(weft_coll_f16_store(value))));
            continue;
        }
        float want = exponent == 31  ? sign * INFINITY
                     : exponent == 0 ? sign * ldexpf((float)fraction, -24)
                                     : sign * ldexpf((float)(fraction + 1024), (int)exponent - 25);
        assert_true(value == want && signbit(value) == signbit(want));
        assert_int_equal(weft_coll_f16_store(value), bits);
    }
}

/* Round to the nearest value; ties to even. */
static void test_f16_rounds(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = weft_coll_f16_load((uint16_t)bits);
        float high = weft_coll_f16_load((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2;
        uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        assert_int_equal(weft_coll_f16_store(middle), even);
        assert_int_equal(weft_coll_f16_store(nextafterf(middle, 0)), bits);
        assert_int_equal(weft_coll_f16_store(nextafterf(middle, INFINITY)), bits + 1);
    }
    assert_int_equal(weft_coll_f16_store(65519), 0x7bff);
    assert_int_equal(weft_coll_f16_store(65520), 0x7c00);
    assert_int_equal(weft_coll_f16_store(-1e9f), 0xfc00);
    assert_int_equal(weft_coll_f16_store(0x1p-25f), 0);
    assert_int_equal(weft_coll_f16_store(-0x1p-26f), 0x8000);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = weft_coll_bf16_load((uint16_t)bits);
        if (isnan(value)) {
            assert_true(isnan(weft_coll_bf16_load(weft_coll_bf16_store(value))));
        } else {
            assert_int_equal(weft_coll_bf16_store(value), bits);
        }
    }
    assert_int_equal(weft_coll_bf16_store(1.00390625f), 0x3f80); /* half a step: even */
    assert_int_equal(weft_coll_bf16_store(1.01171875f), 0x3f82);
    assert_int_equal(weft_coll_bf16_store(1.00390637f), 0x3f81);
    assert_int_equal(weft_coll_bf16_store(3.4e38f), 0x7f80);
    assert_int_equal(weft_coll_bf16_store(NAN) & 0x7fc0, 0x7fc0);
}

static float f32_in[SOURCES][ELEMS];

static void test_f32(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    const void *from[SOURCES];
    for (uint32_t k = 0; k < SOURCES; k++) {
        from[k] = f32_in[k];
        for (uint32_t i = 0; i < ELEMS; i++) {
            f32_in[k][i] = (float)weft_prng_below(&prng, 1000) / 7 - 60;
        }
    }
    for (uint32_t reduction = 0; reduction <= WEFT_COLL_PRODUCT; reduction++) {
        float out[ELEMS];
        weft_coll_fold(WEFT_COLL_F32, (enum weft_coll_reduction)reduction, out, from, SOURCES,
                       ELEMS, 3);
        for (uint32_t i = 0; i < ELEMS; i++) {
            float want = f32_in[0][i];
            for (uint32_t k = 1; k < SOURCES; k++) {
                float x = f32_in[k][i];
                want = reduction == WEFT_COLL_MIN       ? fminf(want, x)
                       : reduction == WEFT_COLL_MAX     ? fmaxf(want, x)
                       : reduction == WEFT_COLL_PRODUCT ? want * x
                                                        : want + x;
            }
            want = reduction == WEFT_COLL_MEAN ? want / 3 : want;
            assert_true(out[i] == want);
        }
    }
    weft_coll_fold(WEFT_COLL_F32, WEFT_COLL_SUM, f32_in[2], from, 3, ELEMS, 1); /* in place */
    assert_true(isfinite(f32_in[2][0]));
}

static void test_nan(void **state)
{
    (void)state;
    const float ones[3] = {1, NAN, 2}, twos[3] = {NAN, 5, 3}, threes[3] = {0, 0, 0};
    const void *from[3] = {ones, twos, threes};
    for (uint32_t reduction = 0; reduction <= WEFT_COLL_PRODUCT; reduction++) {
        float out[3];
        weft_coll_fold(WEFT_COLL_F32, (enum weft_coll_reduction)reduction, out, from, 3, 3, 3);
        assert_true(isnan(out[0]) && isnan(out[1]) && !isnan(out[2]));
    }
}

/* 2,048 + 1 + 1 is 2,048 if every sum is rounded to a half, and 2,050 if only the last sum is. */
static void test_halves_rounded_once(void **state)
{
    (void)state;
    const uint16_t big = weft_coll_f16_store(2048), one = weft_coll_f16_store(1);
    const void *from[3] = {&big, &one, &one};
    uint16_t out;
    weft_coll_fold(WEFT_COLL_F16, WEFT_COLL_SUM, &out, from, 3, 1, 1);
    assert_true(weft_coll_f16_load(out) == 2050);
    const uint16_t wide = weft_coll_bf16_store(256), unit = weft_coll_bf16_store(1);
    const void *brain[3] = {&wide, &unit, &unit};
    weft_coll_fold(WEFT_COLL_BF16, WEFT_COLL_SUM, &out, brain, 3, 1, 1);
    assert_true(weft_coll_bf16_load(out) == 258);
    weft_coll_fold(WEFT_COLL_F16, WEFT_COLL_MEAN, &out, from, 3, 1, 4);
    assert_true(weft_coll_f16_load(out) == 512.5f);
}

static void test_f64(void **state)
{
    (void)state;
    const double a[2] = {0.1, -3}, b[2] = {0.2, 8};
    const void *from[2] = {a, b};
    double out[2];
    weft_coll_fold(WEFT_COLL_F64, WEFT_COLL_SUM, out, from, 2, 2, 1);
    assert_true(out[0] == 0.1 + 0.2 && out[1] == 5);
    weft_coll_fold(WEFT_COLL_F64, WEFT_COLL_MEAN, out, from, 2, 2, 2);
    assert_true(out[1] == 2.5);
}

#define INT_CASE(TYPE, T, A, B, SUM, MIN, MAX, PRODUCT, AND, OR, XOR)                              \
    do {                                                                                           \
        const T a = (T)(A), b = (T)(B);                                                            \
        const T want[] = {(T)(SUM),     0,        (T)(MIN), (T)(MAX),                              \
                          (T)(PRODUCT), (T)(AND), (T)(OR),  (T)(XOR)};                             \
        const void *from[2] = {&a, &b};                                                            \
        for (uint32_t r = 0; r < WEFT_COLL_REDUCTIONS; r++) {                                      \
            T out = 0;                                                                             \
            if (weft_coll_fold_has(TYPE, (enum weft_coll_reduction)r)) {                           \
                weft_coll_fold(TYPE, (enum weft_coll_reduction)r, &out, from, 2, 1, 1);            \
                assert_true(out == want[r]);                                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void test_integers(void **state)
{
    (void)state;
    INT_CASE(WEFT_COLL_I8, int8_t, 100, -100, 0, -100, 100, -10000 + 39 * 256 + 256 - 256, 4, -4,
             -8);
    INT_CASE(WEFT_COLL_I8, int8_t, 100, 100, -56, 100, 100, 16, 100, 100, 0);
    INT_CASE(WEFT_COLL_U8, uint8_t, 200, 100, 44, 100, 200, 32, 64, 236, 172);
    INT_CASE(WEFT_COLL_I32, int32_t, INT32_MAX, 1, INT32_MIN, 1, INT32_MAX, INT32_MAX, 1, INT32_MAX,
             INT32_MAX - 1);
    INT_CASE(WEFT_COLL_I64, int64_t, INT64_MIN, -1, INT64_MAX, INT64_MIN, -1, INT64_MIN, INT64_MIN,
             -1, INT64_MAX);
    assert_false(weft_coll_fold_has(WEFT_COLL_I32, WEFT_COLL_MEAN));
    assert_false(weft_coll_fold_has(WEFT_COLL_F32, WEFT_COLL_XOR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_all), cmocka_unit_test(test_f16_rounds),
        cmocka_unit_test(test_bf16),    cmocka_unit_test(test_f32),
        cmocka_unit_test(test_nan),     cmocka_unit_test(test_halves_rounded_once),
        cmocka_unit_test(test_f64),     cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
