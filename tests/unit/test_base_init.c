/* Initial weights are a contract between servers, trainers and checkpoints: golden values, and
 * uniformity. */
#include "base/init.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>

static void the_values_have_not_changed(void **state)
{
    (void)state;
    assert_true(weft_init_value(1, 0, 0, 1) == 0x1.052fcp-1F);
    assert_true(weft_init_value(1, 0, 1, 1) == 0x1.54f308p-1F);
    assert_true(weft_init_value(1, UINT64_MAX, 63, 0.01F) == -0x1.fcca0ap-9F);
    assert_true(weft_init_value(2, 0, 0, 1) == -0x1.db58acp-1F);
}

static void a_scale_of_zero_is_zero(void **state)
{
    (void)state;
    assert_true(weft_init_value(7, 7, 7, 0) == 0);
}

/* Mean and variance of the uniform distribution, within five standard errors, along ids and along
 * columns; the third sum detects dependent neighbours. */
static void values_are_uniform_and_independent(void **state)
{
    (void)state;
    enum { N = 100000 };
    for (int along = 0; along < 2; along++) {
        double sum = 0;
        double squares = 0;
        double products = 0;
        double last = 0;
        for (uint32_t i = 0; i < N; i++) {
            double value = along == 0 ? weft_init_value(3, i, 5, 1) : weft_init_value(3, 5, i, 1);
            assert_true(value >= -1 && value < 1);
            sum += value;
            squares += value * value;
            products += value * last;
            last = value;
        }
        assert_true(fabs(sum / N) < 5 * sqrt(1.0 / 3 / N));
        assert_true(fabs(squares / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
        assert_true(fabs(products / N) < 5 * (1.0 / 3) / sqrt(N));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_have_not_changed),
        cmocka_unit_test(a_scale_of_zero_is_zero),
        cmocka_unit_test(values_are_uniform_and_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
