/* Rows: growth, and summing features with equal ids, compared with counting. */
#include "base/prng.h"
#include "ml/row.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void a_row_grows_and_keeps_its_features(void **state)
{
    (void)state;
    struct weft_ml_row row = {0};
    for (int round = 0; round < 2; round++) {
        weft_ml_row_clear(&row);
        for (uint32_t i = 0; i < 1000; i++) {
            assert_int_equal(weft_ml_row_add(&row, i * 3, (float)i, NULL), WEFT_OK);
        }
        assert_int_equal(row.count, 1000);
        for (uint32_t i = 0; i < 1000; i++) {
            assert_int_equal(row.ids[i], i * 3);
            assert_true(row.values[i] == (float)i);
        }
    }
    weft_ml_row_fini(&row);
}

static void equal_ids_add_up(void **state)
{
    (void)state;
    enum { IDS = 300 };
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_ml_row row = {0};
        float totals[IDS] = {0};
        uint32_t distinct = 0;
        for (uint64_t n = weft_prng_below(&prng, 400); n > 0; n--) {
            uint64_t id = weft_prng_below(&prng, IDS);
            float value = (float)weft_prng_range(&prng, 1, 4);
            assert_int_equal(weft_ml_row_add(&row, id, value, NULL), WEFT_OK);
            distinct += totals[id] == 0;
            totals[id] += value;
        }
        weft_ml_row_merge(&row);
        assert_int_equal(row.count, distinct);
        for (uint32_t i = 0; i < row.count; i++) {
            assert_true(i == 0 || row.ids[i] > row.ids[i - 1]);
            assert_true(row.values[i] == totals[row.ids[i]]);
        }
        weft_ml_row_fini(&row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_grows_and_keeps_its_features),
        cmocka_unit_test(equal_ids_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
