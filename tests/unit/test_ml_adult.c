/* The Adult line parser: the features of one row compared with the rule written out by hand,
 * spellings with equal meaning, and refused lines. */
#include "ml/adult.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The first row of the shipped file, and its features as docs/MODELS.md lists them. */
static const char first_row[] =
    "45,Self-emp-not-inc,183710,9th,5,Married-civ-spouse,Farming-fishing,Husband,White,Male,0,0,40,"
    "United-States,<=50K";
static const char *const first_texts[] = {
    "age=8",
    "type_employer=Self-emp-not-inc",
    "education=9th",
    "marital=Married-civ-spouse",
    "occupation=Farming-fishing",
    "relationship=Husband",
    "race=White",
    "sex=Male",
    "capital_gain=0",
    "capital_loss=0",
    "hr_per_week=5",
    "country=United-States",
};

static const char header[] =
    "age,type_employer,fnlwgt,education,education_num,marital,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hr_per_week,country,income";

enum { HASHES = 1 << 20 };

/* The oracle: how often each hash occurs, computed from the texts alone. */
static uint8_t *count_hashes(const char *const *texts, size_t text_count)
{
    uint8_t *counts = calloc(HASHES, 1);
    assert_non_null(counts);
    for (size_t i = 0; i < text_count; i++) {
        counts[XXH64(texts[i], strlen(texts[i]), 0) % HASHES]++;
        for (size_t j = i + 1; j < text_count; j++) {
            char pair[256];
            int bytes = snprintf(pair, sizeof(pair), "%s&%s", texts[i], texts[j]);
            counts[XXH64(pair, (size_t)bytes, 0) % HASHES]++;
        }
    }
    return counts;
}

static void check_features(const struct weft_ml_row *row, const char *const *texts,
                           size_t text_count)
{
    uint8_t *counts = count_hashes(texts, text_count);
    float total = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        assert_true(row->ids[i] < HASHES);
        assert_true(i == 0 || row->ids[i] > row->ids[i - 1]);
        assert_true(row->values[i] == (float)counts[row->ids[i]]);
        total += row->values[i];
    }
    assert_true(total == (float)(text_count + text_count * (text_count - 1) / 2));
    free(counts);
}

static weft_status parse(const char *line, uint64_t number, struct weft_ml_row *row,
                         struct weft_error *error, bool *is_row_p)
{
    return weft_ml_adult_parse(line, strlen(line), number, row, error, is_row_p);
}

static void a_row_has_the_documented_features(void **state)
{
    (void)state;
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(parse(first_row, 2, &row, NULL, &is_row), WEFT_OK);
    assert_true(is_row);
    assert_int_equal(row.label, 0);
    assert_int_equal(row.count, 78);
    check_features(&row, first_texts, WEFT_ARRAY_COUNT(first_texts));
    weft_ml_row_fini(&row);
}

/* adult3: the features of adult, and the triples. */
static void triples_come_on_top(void **state)
{
    (void)state;
    const size_t n = WEFT_ARRAY_COUNT(first_texts);
    uint8_t *counts = count_hashes(first_texts, n);
    float total = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            for (size_t k = j + 1; k < n; k++) {
                char text[256];
                int bytes = snprintf(text, sizeof(text), "%s&%s&%s", first_texts[i], first_texts[j],
                                     first_texts[k]);
                counts[XXH64(text, (size_t)bytes, 0) % HASHES]++;
            }
        }
    }
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(weft_ml_adult3_parse(first_row, strlen(first_row), 2, &row, NULL, &is_row),
                     WEFT_OK);
    for (uint32_t i = 0; i < row.count; i++) {
        assert_true(i == 0 || row.ids[i] > row.ids[i - 1]);
        assert_true(row.values[i] == (float)counts[row.ids[i]]);
        total += row.values[i];
    }
    assert_true(total == 12 + 66 + 220);
    weft_ml_row_fini(&row);
    free(counts);
}

/* The worked example of docs/MODELS.md, so that the document stays correct. */
static void hashes_of_the_worked_example(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t id;
    } examples[] = {
        {"age=8", 195655},
        {"education=9th", 846751},
        {"age=8&education=9th", 5277},
    };
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(parse(first_row, 2, &row, NULL, &is_row), WEFT_OK);
    for (size_t e = 0; e < WEFT_ARRAY_COUNT(examples); e++) {
        assert_int_equal(XXH64(examples[e].text, strlen(examples[e].text), 0) % HASHES,
                         examples[e].id);
        bool found = false;
        for (uint32_t i = 0; i < row.count; i++) {
            found = found || row.ids[i] == examples[e].id;
        }
        assert_true(found);
    }
    weft_ml_row_fini(&row);
}

/* Two spellings of one row. */
static void check_same(const char *line, uint8_t label)
{
    struct weft_ml_row row = {0};
    bool is_row = false;
    assert_int_equal(parse(line, 2, &row, NULL, &is_row), WEFT_OK);
    assert_true(is_row);
    assert_int_equal(row.label, label);
    check_features(&row, first_texts, WEFT_ARRAY_COUNT(first_texts));
    weft_ml_row_fini(&row);
}

static void spellings_that_mean_the_same(void **state)
{
    (void)state;
    check_same(
        "45, Self-emp-not-inc, 183710, 9th, 5, Married-civ-spouse, Farming-fishing, Husband, "
        "White, Male, 0, 0, 40, United-States, <=50K",
        0);
    check_same(
        "45, Self-emp-not-inc, 183710, 9th, 5, Married-civ-spouse, Farming-fishing, Husband, "
        "White, Male, 0, 0, 40, United-States, >50K.",
        1);
    check_same("\t45 ,Self-emp-not-inc,1,9th,99,Married-civ-spouse,Farming-fishing,Husband,"
               "White,Male,00,0,40,United-States,<=50K. ",
               0);
}

static void buckets(void **state)
{
    (void)state;
    static const struct {
        const char *age;
        const char *text;
    } cases[] = {{"0", "age=0"},   {"19", "age=0"},  {"20", "age=1"},
                 {"22", "age=1"},  {"23", "age=2"},  {"74", "age=13"},
                 {"75", "age=14"}, {"90", "age=14"}, {"18446744073709551615", "age=14"}};
    for (size_t c = 0; c < WEFT_ARRAY_COUNT(cases); c++) {
        char line[512];
        (void)snprintf(line, sizeof(line), "%s%s", cases[c].age, first_row + 2);
        const char *texts[WEFT_ARRAY_COUNT(first_texts)];
        memcpy(texts, first_texts, sizeof(texts));
        texts[0] = cases[c].text;
        struct weft_ml_row row = {0};
        bool is_row = false;
        assert_int_equal(parse(line, 2, &row, NULL, &is_row), WEFT_OK);
        check_features(&row, texts, WEFT_ARRAY_COUNT(texts));
        weft_ml_row_fini(&row);
    }
}

static void headers_are_no_rows(void **state)
{
    (void)state;
    static const char *const headers[] = {
        header,
        "age, workclass, fnlwgt, education, education-num, marital-status, occupation, "
        "relationship, race, sex, capital-gain, capital-loss, hours-per-week, native-country, "
        "income",
        "|1x3 Cross validator",
        "",
        "   ",
    };
    for (size_t h = 0; h < WEFT_ARRAY_COUNT(headers); h++) {
        struct weft_ml_row row = {0};
        bool is_row = true;
        assert_int_equal(parse(headers[h], 1, &row, NULL, &is_row), WEFT_OK);
        assert_false(is_row);
        weft_ml_row_fini(&row);
    }
}

static void check_refused(const char *line, uint64_t number, const char *text)
{
    ml_check_refused(weft_ml_adult_parse, line, number, text);
}

static void what_is_refused(void **state)
{
    (void)state;
    check_refused(header, 2, "column age: \"age\" is not a whole number");
    check_refused("|1x3 Cross validator", 2, "1 fields where an Adult row has 15");
    check_refused("a,b,c", 1, "3 fields where an Adult row has 15");
    check_refused("45,Private,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,<=50K,", 1,
                  "16 fields where an Adult row has 15");
    check_refused("45,Private,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,<=50", 1,
                  "income \"<=50\" is neither <=50K nor >50K");
    check_refused("45,Private,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,", 1,
                  "income \"\" is neither <=50K nor >50K");
    check_refused("45.5,Private,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,>50K", 1,
                  "column age: \"45.5\" is not a whole number");
    check_refused("45,Private,x,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,>50K", 1,
                  "column fnlwgt: \"x\" is not a whole number");
    check_refused("45,Private,1,9th,5,Divorced,Sales,Wife,White,Male,-1,0,40,Cuba,>50K", 1,
                  "column capital_gain: \"-1\" is not a whole number");
    check_refused("45,,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,>50K", 1,
                  "column type_employer is empty or longer than 64 bytes");
    check_refused("45,Private,1,9th,5,Divorced,Sales,Wife,White,Male,0,0,?,Cuba,>50K", 1,
                  "column hr_per_week: \"?\" is not a whole number");
}

/* Found by fuzzing: a zero byte matched the end of the known header. */
static void a_header_ends_where_it_ends(void **state)
{
    (void)state;
    static const char text[] = "|1x3 Cross validator\0\0";
    for (size_t bytes = 1; bytes < sizeof(text); bytes++) {
        struct weft_ml_row row = {0};
        bool is_row = false;
        assert_int_equal(weft_ml_adult_parse(text, bytes, 1, &row, NULL, &is_row),
                         bytes == strlen(text) ? WEFT_OK : WEFT_DATA);
        assert_false(is_row);
        weft_ml_row_fini(&row);
    }
}

static void a_category_has_a_longest(void **state)
{
    (void)state;
    char line[512];
    char name[66];
    memset(name, 'x', sizeof(name));
    struct weft_ml_row row = {0};
    bool is_row = false;
    for (int bytes = 64; bytes <= 65; bytes++) {
        (void)snprintf(line, sizeof(line), "45,%.*s,1,?,5,%.*s,S,W,W,M,0,0,40,%.*s,>50K", bytes,
                       name, bytes, name, bytes, name);
        weft_status wanted = bytes == 64 ? WEFT_OK : WEFT_DATA;
        assert_int_equal(parse(line, 1, &row, NULL, &is_row), wanted);
        assert_int_equal(weft_ml_adult3_parse(line, strlen(line), 1, &row, NULL, &is_row), wanted);
    }
    weft_ml_row_fini(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_documented_features),
        cmocka_unit_test(triples_come_on_top),
        cmocka_unit_test(hashes_of_the_worked_example),
        cmocka_unit_test(spellings_that_mean_the_same),
        cmocka_unit_test(buckets),
        cmocka_unit_test(headers_are_no_rows),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_header_ends_where_it_ends),
        cmocka_unit_test(a_category_has_a_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
