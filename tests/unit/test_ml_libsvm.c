/* The libsvm line parser: a line becomes a row or an error text. */
#include "ml/libsvm.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

/* "1 | 3:0.5 7:1" for a row, "-" for no row, "! text" for an error. */
static void show(const char *text, size_t bytes, char *out, size_t capacity)
{
    struct weft_ml_row row = {0};
    struct weft_error error = {0};
    bool is_row = false;
    weft_status status = weft_ml_libsvm_parse(text, bytes, 1, &row, &error, &is_row);
    if (status != WEFT_OK) {
        assert_int_equal(status, WEFT_DATA);
        (void)snprintf(out, capacity, "! %s", error.text);
    } else if (!is_row) {
        (void)snprintf(out, capacity, "-");
    } else {
        size_t used = (size_t)snprintf(out, capacity, "%u |", row.label);
        for (uint32_t i = 0; i < row.count && used < capacity; i++) {
            used += (size_t)snprintf(out + used, capacity - used, " %llu:%g",
                                     (unsigned long long)row.ids[i], (double)row.values[i]);
        }
    }
    weft_ml_row_fini(&row);
}

static void check(const char *text, const char *expected)
{
    char shown[WEFT_ERROR_BYTES + 8];
    show(text, strlen(text), shown, sizeof(shown));
    assert_string_equal(shown, expected);
}

static void rows(void **state)
{
    (void)state;
    check("1 3:0.5 7:1", "1 | 3:0.5 7:1");
    check("+1 3:1", "1 | 3:1");
    check("-1 3:1", "0 | 3:1");
    check("0 3:1", "0 | 3:1");
    check("1.0 3:1", "1 | 3:1");
    check("-1.000 3:1", "0 | 3:1");
    check("1", "1 |");
    check("1 0:2", "1 | 0:2");
    check("  1\t3:1   4:-2.5e1 \t", "1 | 3:1 4:-25");
    check("1 3:0 4:0.0 5:1 6:-0", "1 | 5:1");
    check("1 9223372036854775806:1", "1 | 9223372036854775806:1");
    check("1 3:1 # 4:1 and words", "1 | 3:1");
    check("1 3:1#4", "1 | 3:1");
}

static void lines_without_a_row(void **state)
{
    (void)state;
    check("", "-");
    check("   \t", "-");
    check("# 1 3:1", "-");
    check("  #", "-");
}

static void bad_labels(void **state)
{
    (void)state;
    check("2 3:1", "! label \"2\" is not one of 0, 1, -1, +1");
    check("3:1 4:1", "! label \"3:1\" is not one of 0, 1, -1, +1");
    check("nan 3:1", "! label \"nan\" is not one of 0, 1, -1, +1");
    check("1,3:1", "! label \"1,3:1\" is not one of 0, 1, -1, +1");
    check("0.5 3:1", "! label \"0.5\" is not one of 0, 1, -1, +1");
    check("1\r", "! label \"1?\" is not one of 0, 1, -1, +1");
    check("\xef\xbb\xbf"
          "1 3:1",
          "! label \"???1\" is not one of 0, 1, -1, +1");
}

static void bad_features(void **state)
{
    (void)state;
    check("1 3", "! feature \"3\" is not index:value");
    check("1 3:1 x", "! feature \"x\" is not index:value");
    check("1 qid:1", "! feature \"qid:1\": the index is not an integer from 0 to 2^63 - 2");
    check("1 :1", "! feature \":1\": the index is not an integer from 0 to 2^63 - 2");
    check("1 -3:1", "! feature \"-3:1\": the index is not an integer from 0 to 2^63 - 2");
    check("1 9223372036854775807:1",
          "! feature \"9223372036854775807:1\": the index is not an integer from 0 to 2^63 - 2");
    check("1 18446744073709551617:1",
          "! feature \"18446744073709551617:1\": the index is not an integer from 0 to 2^63 - 2");
    check("1 3:", "! feature \"3:\": the value is not a finite decimal number");
    check("1 3:nan", "! feature \"3:nan\": the value is not a finite decimal number");
    check("1 3:inf", "! feature \"3:inf\": the value is not a finite decimal number");
    check("1 3:1e39", "! feature \"3:1e39\": the value is not a finite decimal number");
    check("1 3:1:2", "! feature \"3:1:2\": the value is not a finite decimal number");
    check("1 3: 1", "! feature \"3:\": the value is not a finite decimal number");
}

static void indices_ascend(void **state)
{
    (void)state;
    check("1 3:1 3:2", "! index 3 after 3: indices must ascend");
    check("1 7:1 3:2", "! index 3 after 7: indices must ascend");
    check("1 0:1 0:1", "! index 0 after 0: indices must ascend");
    check("1 7:0 3:2", "! index 3 after 7: indices must ascend"); /* zeros are checked too */
}

static void long_tokens_are_quoted_short(void **state)
{
    (void)state;
    char line[200] = "1 ";
    memset(line + 2, '9', 150);
    check(line, "! feature \"9999999999999999999999999999999999999999...\" is not index:value");
}

static void bytes_beyond_the_line_are_not_read(void **state)
{
    (void)state;
    char shown[WEFT_ERROR_BYTES + 8];
    show("1 3:12", 5, shown, sizeof(shown));
    assert_string_equal(shown, "1 | 3:1");
    show("1 3:1\0 4:1", 10, shown, sizeof(shown));
    assert_string_equal(shown, "! feature \"3:1?\": the value is not a finite decimal number");
}

static void a_row_is_reused(void **state)
{
    (void)state;
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(weft_ml_libsvm_parse("1 1:1 2:2", 9, 1, &row, NULL, &is_row), WEFT_OK);
    assert_int_equal(row.count, 2);
    assert_int_equal(weft_ml_libsvm_parse("0 5:1", 5, 2, &row, NULL, &is_row), WEFT_OK);
    assert_int_equal(row.count, 1);
    assert_int_equal(row.label, 0);
    assert_int_equal(row.ids[0], 5);
    weft_ml_row_fini(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(lines_without_a_row),
        cmocka_unit_test(bad_labels),
        cmocka_unit_test(bad_features),
        cmocka_unit_test(indices_ascend),
        cmocka_unit_test(long_tokens_are_quoted_short),
        cmocka_unit_test(bytes_beyond_the_line_are_not_read),
        cmocka_unit_test(a_row_is_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
