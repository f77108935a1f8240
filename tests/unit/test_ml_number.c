/* Strict numbers: accepted and refused text; a refusal writes nothing. */
#include "ml/number.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static void whole_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},
        {"7", 7},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"18446744073709551615", UINT64_MAX},
        {"000000000000000000000000000000000000001", 1},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(good); i++) {
        uint64_t value = 99;
        assert_true(weft_ml_number_u64(good[i].text, strlen(good[i].text), &value));
        assert_int_equal(value, good[i].value);
    }
    static const char *const bad[] = {"",   " 1",  "1 ",  "+1", "-1",
                                      "1.", "0x1", "1e3", "a",  "18446744073709551616"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        uint64_t value = 99;
        assert_false(weft_ml_number_u64(bad[i], strlen(bad[i]), &value));
        assert_int_equal(value, 99);
    }
}

static void decimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float value;
    } good[] = {
        {"0", 0.0F},           {"1", 1.0F},
        {"-1", -1.0F},         {"+1", 1.0F},
        {"1.", 1.0F},          {".5", 0.5F},
        {"-2.5e-3", -2.5e-3F}, {"1E4", 1e4F},
        {"0.1", 0.1F},         {"3.4028234e38", 3.4028234e38F},
        {"1e-60", 0.0F},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(good); i++) {
        float value = 99;
        assert_true(weft_ml_number_f32(good[i].text, strlen(good[i].text), &value));
        assert_true(value == good[i].value);
    }
    static const char *const bad[] = {"",    " 1",   "1 ", "inf", "-inf",    "nan",
                                      "NAN", "0x10", "1e", "--1", "1.2.3",   "1e39",
                                      "-",   ".",    "e5", "1,5", "infinity"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        float value = 99;
        assert_false(weft_ml_number_f32(bad[i], strlen(bad[i]), &value));
        assert_true(value == 99);
    }
}

static void decimal_numbers_have_a_longest(void **state)
{
    (void)state;
    char text[WEFT_ML_NUMBER_BYTES_MAX + 1];
    memset(text, '0', sizeof(text));
    float value = 99;
    assert_false(weft_ml_number_f32(text, sizeof(text), &value));
    assert_true(weft_ml_number_f32(text, sizeof(text) - 1, &value));
    assert_true(value == 0);
}

static void text_is_not_read_past_its_end(void **state)
{
    (void)state;
    float f = 0;
    uint64_t u = 0;
    assert_true(weft_ml_number_f32("12345", 2, &f));
    assert_true(f == 12);
    assert_true(weft_ml_number_u64("12345", 3, &u));
    assert_int_equal(u, 123);
    assert_false(weft_ml_number_f32("1\0002", 3, &f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(decimal_numbers),
        cmocka_unit_test(decimal_numbers_have_a_longest),
        cmocka_unit_test(text_is_not_read_past_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
