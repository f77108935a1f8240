/* The parsers of tables of categories: every field's text compared with the rule written out by
 * hand, the buckets of integers, missing values, and refused lines. */
#include "ml/tsv.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* True: the row has exactly these texts; the oracle uses XXH64 directly. */
static void check_texts(const struct weft_ml_row *row, const char *const *texts, uint32_t count)
{
    assert_int_equal(row->count, count);
    for (uint32_t t = 0; t < count; t++) {
        uint64_t id = XXH64(texts[t], strlen(texts[t]), 0) & UINT32_MAX;
        bool found = false;
        for (uint32_t i = 0; i < row->count; i++) {
            found = found || (row->ids[i] == id && row->values[i] == 1);
        }
        if (!found) {
            fail_msg("no feature \"%s\"", texts[t]);
        }
    }
}

static void categories(void **state)
{
    (void)state;
    static const char line[] = "1\tcat\t\t two words \tcat";
    static const char *const texts[] = {"1=cat", "2=", "3= two words ", "4=cat"};
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(weft_ml_tsv_parse(line, strlen(line), 1, &row, NULL, &is_row), WEFT_OK);
    assert_true(is_row);
    assert_int_equal(row.label, 1);
    assert_int_equal(row.field_count, 5);
    check_texts(&row, texts, 4);
    for (uint32_t i = 1; i < row.count; i++) {
        assert_true(row.ids[i] > row.ids[i - 1]);
    }
    weft_ml_row_fini(&row);
}

/* A Criteo line: `first` is the first integer, the rest empty but the last category. */
static void criteo_line(const char *first, char *line, size_t bytes)
{
    (void)snprintf(line, bytes,
                   "0\t%s\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
                   "\t\t\t\t\t\t\t\t\t9727dd16",
                   first);
}

static void integers_fall_into_buckets(void **state)
{
    (void)state;
    static const struct {
        const char *integer;
        const char *text;
    } cases[] = {{"", "1="},     {"-1", "1=-"},  {"-9223372036854775807", "1=-"},
                 {"0", "1=0"},   {"1", "1=1"},   {"2", "1=3"},
                 {"3", "1=4"},   {"4", "1=5"},   {"5", "1=5"},
                 {"6", "1=6"},   {"7", "1=6"},   {"8", "1=7"},
                 {"11", "1=7"},  {"12", "1=8"},  {"15", "1=8"},
                 {"16", "1=9"},  {"23", "1=9"},  {"24", "1=10"},
                 {"1024", "1=21"}, {"9223372036854775807", "1=126"}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        char line[256];
        const char *texts[39];
        char empties[39][16];
        criteo_line(cases[c].integer, line, sizeof(line));
        texts[0] = cases[c].text;
        for (int f = 2; f <= 38; f++) {
            (void)snprintf(empties[f], sizeof(empties[f]), "%d=", f);
            texts[f - 1] = empties[f];
        }
        texts[38] = "39=9727dd16";
        struct weft_ml_row row = {0};
        bool is_row = false;
        assert_int_equal(weft_ml_criteo_parse(line, strlen(line), 1, &row, NULL, &is_row), WEFT_OK);
        assert_true(is_row);
        assert_int_equal(row.field_count, 40);
        check_texts(&row, texts, 39);
        weft_ml_row_fini(&row);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    char line[1200];
    ml_check_refused(weft_ml_tsv_parse, "1", 1, "1 fields between tabs; a row has 2 to 1024");
    ml_check_refused(weft_ml_tsv_parse, "2\ta", 1, "label \"2\" is neither 0 nor 1");
    ml_check_refused(weft_ml_tsv_parse, "\ta", 1, "label \"\" is neither 0 nor 1");
    ml_check_refused(weft_ml_tsv_parse, "-1\ta", 1, "label \"-1\" is neither 0 nor 1");
    line[0] = '0';
    memset(line + 1, '\t', 1024);
    line[1025] = '\0';
    ml_check_refused(weft_ml_tsv_parse, line, 1, "1025 fields between tabs; a row has 2 to 1024");
    memcpy(line, "0\t", 2);
    memset(line + 2, 'x', 257);
    line[259] = '\0';
    ml_check_refused(weft_ml_tsv_parse, line, 1, "field 1 is longer than 256 bytes");
    ml_check_refused(weft_ml_criteo_parse, "0\t1\ta", 1, "3 fields where a Criteo row has 40");
    criteo_line("1.5", line, sizeof(line));
    ml_check_refused(weft_ml_criteo_parse, line, 1, "field 1: \"1.5\" is not a whole number");
    criteo_line("-", line, sizeof(line));
    ml_check_refused(weft_ml_criteo_parse, line, 1, "field 1: \"-\" is not a whole number");
    criteo_line("68fd1e64", line, sizeof(line));
    ml_check_refused(weft_ml_criteo_parse, line, 1, "field 1: \"68fd1e64\" is not a whole number");
    criteo_line("9223372036854775808", line, sizeof(line));
    ml_check_refused(weft_ml_criteo_parse, line, 1,
                     "field 1: \"9223372036854775808\" is not a whole number");
}

static void blank_lines_are_no_rows(void **state)
{
    (void)state;
    struct weft_ml_row row = {0};
    bool is_row = true;
    assert_int_equal(weft_ml_tsv_parse("", 0, 1, &row, NULL, &is_row), WEFT_OK);
    assert_false(is_row);
    is_row = true;
    assert_int_equal(weft_ml_criteo_parse("", 0, 1, &row, NULL, &is_row), WEFT_OK);
    assert_false(is_row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(categories),
        cmocka_unit_test(integers_fall_into_buckets),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(blank_lines_are_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
