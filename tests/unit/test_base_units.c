/* Arithmetic that must not wrap. */
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void never_absorbs(void **state)
{
    (void)state;
    assert_int_equal(weft_time_add(2, 3), 5);
    assert_int_equal(weft_time_add(WEFT_NEVER, 0), WEFT_NEVER);
    assert_int_equal(weft_time_add(WEFT_NEVER, 1), WEFT_NEVER);
    assert_int_equal(weft_time_add(1, WEFT_NEVER), WEFT_NEVER);
    assert_int_equal(weft_time_add(WEFT_NEVER, WEFT_NEVER), WEFT_NEVER);
    assert_int_equal(weft_time_add(WEFT_NEVER - 1, 1), WEFT_NEVER);
    assert_int_equal(weft_time_add(WEFT_NEVER - 5, 4), WEFT_NEVER - 1);
}

static void division_rounds_up(void **state)
{
    (void)state;
    assert_int_equal(weft_div_ceil_u64(0, 7), 0);
    assert_int_equal(weft_div_ceil_u64(1, 7), 1);
    assert_int_equal(weft_div_ceil_u64(7, 7), 1);
    assert_int_equal(weft_div_ceil_u64(8, 7), 2);
    assert_int_equal(weft_div_ceil_u64(UINT64_MAX, 1), UINT64_MAX);
    assert_int_equal(weft_div_ceil_u64(UINT64_MAX, 2), UINT64_C(1) << 63);
}

static void smaller_and_larger(void **state)
{
    (void)state;
    assert_int_equal(weft_min_u64(1, UINT64_MAX), 1);
    assert_int_equal(weft_max_u64(1, UINT64_MAX), UINT64_MAX);
    assert_int_equal(weft_min_u64(4, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_absorbs),
        cmocka_unit_test(division_rounds_up),
        cmocka_unit_test(smaller_and_larger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
