/* The MovieLens line parser: accepted ratings and refused lines. */
#include "ml/movielens.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static weft_status parse(const char *line, uint64_t number, struct weft_ml_row *row,
                         struct weft_error *error, bool *is_row_p)
{
    return weft_ml_movielens_parse(line, strlen(line), number, row, error, is_row_p);
}

static void check_row(const char *line, uint64_t user, uint64_t movie, float rating, uint8_t click)
{
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(parse(line, 1, &row, NULL, &is_row), WEFT_OK);
    assert_true(is_row);
    assert_int_equal(row.count, 2);
    assert_true(row.ids[0] == user);
    assert_true(row.ids[1] == (UINT64_C(1) << 32) + movie);
    assert_true(row.values[0] == 1 && row.values[1] == 1);
    assert_true(row.target == rating);
    assert_int_equal(row.label, click);
    weft_ml_row_fini(&row);
}

static void what_a_rating_becomes(void **state)
{
    (void)state;
    check_row("1,31,2.5,1260759144", 1, 31, 2.5F, 0);
    check_row("7,8,4.0,1", 7, 8, 4.0F, 1);
    check_row("7,8,3.99,1", 7, 8, 3.99F, 0);
    check_row("0,0,0,0", 0, 0, 0, 0);
    check_row("4294967295,4294967295,5,18446744073709551615", UINT32_MAX, UINT32_MAX, 5, 1);
}

/* A reused row has none of its old contents. */
static void rows_are_reused(void **state)
{
    (void)state;
    struct weft_ml_row row = {.label = 1, .target = 9, .field_count = 7};
    bool is_row = true;
    assert_int_equal(parse("userId,movieId,rating,timestamp", 1, &row, NULL, &is_row), WEFT_OK);
    assert_false(is_row);
    assert_int_equal(row.count, 0);
    is_row = true;
    assert_int_equal(parse("", 5, &row, NULL, &is_row), WEFT_OK);
    assert_false(is_row);
    assert_int_equal(parse("1,2,3,4", 5, &row, NULL, &is_row), WEFT_OK);
    assert_int_equal(row.count, 2);
    assert_int_equal(row.label, 0);
    assert_int_equal(row.field_count, 0);
    weft_ml_row_fini(&row);
}

static void check_refused(const char *line, uint64_t number, const char *text)
{
    ml_check_refused(weft_ml_movielens_parse, line, number, text);
}

static void what_is_refused(void **state)
{
    (void)state;
    check_refused("userId,movieId,rating,timestamp", 2,
                  "userId \"userId\" is not a whole number below 2^32");
    check_refused("userId,movieId,rating", 1, "3 fields where a rating has 4");
    check_refused("1,31,2.5", 2, "3 fields where a rating has 4");
    check_refused("1,31,2.5,1,", 2, "5 fields where a rating has 4");
    check_refused("4294967296,31,2.5,1", 2,
                  "userId \"4294967296\" is not a whole number below 2^32");
    check_refused("1,,2.5,1", 2, "movieId \"\" is not a whole number below 2^32");
    check_refused("1,\"31\",2.5,1", 2, "movieId \"\"31\"\" is not a whole number below 2^32");
    check_refused("1,31,5.01,1", 2, "rating \"5.01\" is not a number from 0 to 5");
    check_refused("1,31,-0.5,1", 2, "rating \"-0.5\" is not a number from 0 to 5");
    check_refused("1,31,nan,1", 2, "rating \"nan\" is not a number from 0 to 5");
    check_refused("1,31,,1", 2, "rating \"\" is not a number from 0 to 5");
    check_refused("1,31,4,-1", 2, "timestamp \"-1\" is not a whole number");
    check_refused("1, 31,4,1", 2, "movieId \" 31\" is not a whole number below 2^32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_rating_becomes),
        cmocka_unit_test(rows_are_reused),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
