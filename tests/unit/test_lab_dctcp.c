/* The arithmetic of DCTCP, as the kernel's program computes it, compared with the formulas of RFC
 * 8257. */
#include "lab/dctcp_bpf.h"

#include "base/prng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double unit = 1.0 / WEFT_DCTCP_ONE;

static void test_alpha_is_the_moving_average(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (int i = 0; i < 100000; i++) {
        uint32_t alpha = (uint32_t)weft_prng_range(&prng, 0, WEFT_DCTCP_ONE);
        uint32_t delivered = (uint32_t)weft_prng_range(&prng, 1, i % 2 != 0 ? 20 : 1u << 31);
        uint32_t marked = (uint32_t)weft_prng_range(&prng, 0, delivered);
        double want = alpha * unit * (1 - 1.0 / 16) + (double)marked / delivered / 16;
        double got = weft_dctcp_alpha_next(alpha, delivered, marked) * unit;
        assert_true(fabs(got - want) <= 2 * unit);
    }
}

static void test_alpha_reaches_both_ends(void **state)
{
    (void)state;
    uint32_t alpha = WEFT_DCTCP_ONE;
    assert_int_equal(weft_dctcp_alpha_next(alpha, 7, 7), WEFT_DCTCP_ONE);
    int windows = 0;
    while (alpha > 0) {
        uint32_t next = weft_dctcp_alpha_next(alpha, 10, 0);
        assert_true(next < alpha);
        alpha = next;
        windows++;
    }
    /* From one to the last bit: ln(2^20) / -ln(15/16) = 215 windows without rounding. */
    assert_in_range(windows, 150, 215);
    assert_int_equal(weft_dctcp_alpha_next(0, 10, 0), 0);
    for (int i = 0; i < 400; i++) {
        alpha = weft_dctcp_alpha_next(alpha, 10, 10);
    }
    assert_in_range(alpha, WEFT_DCTCP_ONE - 16, WEFT_DCTCP_ONE);
}

static void test_alpha_of_windows_without_packets_or_with_more_marks(void **state)
{
    (void)state;
    /* With no packet delivered there is no division by zero. More marks than packets are possible,
     * because the kernel's two counters start at different times; F is then limited to 1. */
    assert_int_equal(weft_dctcp_alpha_next(1600, 0, 0), 1500);
    assert_int_equal(weft_dctcp_alpha_next(1600, 0, 3), 1500);
    assert_int_equal(weft_dctcp_alpha_next(WEFT_DCTCP_ONE, 3, 9), WEFT_DCTCP_ONE);
}

static void test_cut(void **state)
{
    (void)state;
    assert_int_equal(weft_dctcp_cut(100, WEFT_DCTCP_ONE), 50);
    assert_int_equal(weft_dctcp_cut(100, WEFT_DCTCP_ONE / 5), 91); /* 100 - 9.99..., rounded up */
    assert_int_equal(weft_dctcp_cut(100, 0), 100);
    assert_int_equal(weft_dctcp_cut(3, WEFT_DCTCP_ONE), 2);
    assert_int_equal(weft_dctcp_cut(1, WEFT_DCTCP_ONE), 2);
    assert_int_equal(weft_dctcp_cut(UINT32_MAX, WEFT_DCTCP_ONE), UINT32_C(1) << 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alpha_is_the_moving_average),
        cmocka_unit_test(test_alpha_reaches_both_ends),
        cmocka_unit_test(test_alpha_of_windows_without_packets_or_with_more_marks),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
