/* Bags of words: lines become documents, the split is by their numbers, and incomplete, unordered
 * or invalid input is refused, with the line number. */
#include "ml/dataset.h"
#include "ml/docword.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static weft_status load(const char *text, struct weft_error *error, struct weft_ml_dataset *set_p)
{
    const struct weft_ml_format *format = NULL;
    assert_int_equal(weft_ml_format_find("docword", NULL, &format), WEFT_OK);
    return weft_ml_dataset_load_memory("text", text, strlen(text), format, error, set_p);
}

/* Words of a document are in any order, and counts of the same word are added. */
static void lines_become_documents(void **state)
{
    (void)state;
    struct weft_error error = {0};
    struct weft_ml_dataset set;
    assert_int_equal(load("3\n9\n5\n1 7 2\n1 4 1\n1 7 3\n\n5 4 6\n6 9 1\n", &error, &set), WEFT_OK);
    assert_true(set.has_counts && !set.has_ratings);
    assert_int_equal(set.row_count, 3);
    static const uint64_t ids[] = {4, 7, 9, WEFT_ML_BIAS_ID};
    assert_int_equal(set.feature_count, WEFT_ARRAY_COUNT(ids));
    assert_memory_equal(set.feature_ids, ids, sizeof(ids));
    static const uint64_t begin[] = {0, 3, 5, 7};
    static const uint32_t columns[] = {0, 1, 3, 0, 3, 2, 3};
    static const float values[] = {1, 5, 1, 6, 1, 1, 1};
    assert_memory_equal(set.row_begin, begin, sizeof(begin));
    assert_memory_equal(set.columns, columns, sizeof(columns));
    assert_memory_equal(set.values, values, sizeof(values));
    weft_ml_dataset_fini(&set);
}

static void the_split_is_by_the_number_of_the_document(void **state)
{
    (void)state;
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof(text), "100\n1\n100\n");
    for (int d = 1; d <= 100; d++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%d 1 1\n", d);
    }
    struct weft_error error = {0};
    struct weft_ml_dataset set;
    assert_int_equal(load(text, &error, &set), WEFT_OK);
    uint32_t tests = 0;
    for (uint32_t r = 0; r < 100; r++) {
        char digits[8];
        int bytes = snprintf(digits, sizeof(digits), "%u", r + 1);
        if (weft_ml_is_test_line(digits, (size_t)bytes)) {
            assert_int_equal(set.test_rows[tests], r);
            tests++;
        }
    }
    assert_int_equal(set.test_count, tests);
    assert_in_range(tests, 5, 40);
    weft_ml_dataset_fini(&set);
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "text: the file is empty"},
        {"x\n1\n1\n1 1 1\n", "text:1: \"x\" is not the number of documents"},
        {"1\n0\n1\n1 1 1\n", "text:2: \"0\" is not the number of words"},
        {"1\n1\n-1\n1 1 1\n", "text:3: \"-1\" is not the number of lines that follow"},
        {"1\n1\n2\n1 1 1\n", "text: 1 lines where line 3 announces 2"},
        {"1\n1\n1\n1 1 1\n1 2 1\n", "text: 2 lines where line 3 announces 1"},
        {"1\n1\n", "text: no rows, only blank lines, comments or a header"},
        {"1\n1\n1\n1 1\n", "text:4: not \"document word count\": \"1 1\""},
        {"1\n1\n1\n1 1 1 1\n", "text:4: not \"document word count\": \"1 1 1 1\""},
        {"1\n1\n1\n0 1 1\n", "text:4: document \"0\" is not a whole number from 1 to 4294967295"},
        {"1\n1\n1\n1 4294967295 1\n",
         "text:4: word \"4294967295\" is not a whole number from 1 to 4294967294"},
        {"1\n1\n1\n1 1 16777217\n",
         "text:4: count \"16777217\" is not a whole number from 1 to 16777216"},
        {"1\n1\n1\n1 1 1.5\n", "text:4: count \"1.5\" is not a whole number from 1 to 16777216"},
        {"1\n1\n1\n1 1 0\n", "text:4: count \"0\" is not a whole number from 1 to 16777216"},
        {"2\n1\n2\n2 1 1\n1 1 1\n",
         "text:5: document 1 after document 2; sort the lines by document"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct weft_error error = {0};
        struct weft_ml_dataset set;
        assert_int_equal(load(cases[i].text, &error, &set), WEFT_DATA);
        assert_string_equal(error.text, cases[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_documents),
        cmocka_unit_test(the_split_is_by_the_number_of_the_document),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
