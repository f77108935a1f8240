/* Metrics: AUC compared with its definition counted pair by pair, and the tails of the logistic
 * curve. */
#include "base/prng.h"
#include "ml/metrics.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>

enum { ROWS_MAX = 200 };

/* The definition: P(positive above negative) + P(equal) / 2, over all pairs. */
static double slow_auc(const float *scores, const uint8_t *labels, uint32_t count)
{
    double wins = 0;
    double pairs = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            if (labels[i] == 1 && labels[j] == 0) {
                pairs += 1;
                wins += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
            }
        }
    }
    return wins / pairs;
}

static void auc_agrees_with_its_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        float scores[ROWS_MAX];
        uint8_t labels[ROWS_MAX];
        uint32_t count = (uint32_t)weft_prng_range(&prng, 2, ROWS_MAX);
        /* From all equal to nearly all different. */
        uint64_t distinct = UINT64_C(1) << weft_prng_below(&prng, 12);
        for (uint32_t i = 0; i < count; i++) {
            scores[i] = (float)weft_prng_below(&prng, distinct) - 3.5F;
            labels[i] = (uint8_t)weft_prng_below(&prng, 2);
        }
        labels[0] = 0;
        labels[1] = 1;
        double auc = -1;
        assert_int_equal(weft_ml_auc(scores, labels, count, &auc), WEFT_OK);
        /* Both are ratios of small whole numbers, one division each. */
        assert_true(fabs(auc - slow_auc(scores, labels, count)) < 1e-12);
    }
}

static void auc_of_plain_cases(void **state)
{
    (void)state;
    double auc = -1;
    assert_int_equal(weft_ml_auc((float[]){1, 2, 3, 4}, (uint8_t[]){0, 0, 1, 1}, 4, &auc), WEFT_OK);
    assert_true(auc == 1.0);
    assert_int_equal(weft_ml_auc((float[]){1, 2, 3, 4}, (uint8_t[]){1, 1, 0, 0}, 4, &auc), WEFT_OK);
    assert_true(auc == 0.0);
    assert_int_equal(weft_ml_auc((float[]){5, 5, 5}, (uint8_t[]){1, 0, 0}, 3, &auc), WEFT_OK);
    assert_true(auc == 0.5);
    assert_int_equal(weft_ml_auc((float[]){-INFINITY, INFINITY, 0}, (uint8_t[]){0, 1, 0}, 3, &auc),
                     WEFT_OK);
    assert_true(auc == 1.0);
    assert_int_equal(weft_ml_auc((float[]){-0.0F, 0.0F}, (uint8_t[]){0, 1}, 2, &auc), WEFT_OK);
    assert_true(auc == 0.5);
}

static void auc_that_does_not_exist(void **state)
{
    (void)state;
    double auc = -1;
    assert_int_equal(weft_ml_auc(NULL, NULL, 0, &auc), WEFT_DATA);
    assert_int_equal(weft_ml_auc((float[]){1, 2}, (uint8_t[]){1, 1}, 2, &auc), WEFT_DATA);
    assert_int_equal(weft_ml_auc((float[]){1, 2}, (uint8_t[]){0, 0}, 2, &auc), WEFT_DATA);
    assert_int_equal(weft_ml_auc((float[]){1, NAN}, (uint8_t[]){0, 1}, 2, &auc), WEFT_DATA);
    assert_true(auc == -1);
}

static void logistic_curve(void **state)
{
    (void)state;
    assert_true(weft_ml_sigmoid(0) == 0.5);
    assert_true(weft_ml_sigmoid(1000) == 1);
    assert_true(weft_ml_sigmoid(-1000) == 0);
    assert_true(fabs(weft_ml_log_loss(0, 1) - log(2)) < 1e-15);
    assert_true(weft_ml_log_loss(1000, 0) == 1000);
    assert_true(weft_ml_log_loss(1000, 1) == 0);
    assert_true(weft_ml_log_loss(-1000, 1) == 1000);
    for (double margin = -30; margin <= 30; margin += 0.37) {
        double p = weft_ml_sigmoid(margin);
        assert_true(fabs(p + weft_ml_sigmoid(-margin) - 1) < 1e-15);
        assert_true(fabs(weft_ml_log_loss(margin, 1) - log1p(exp(-margin))) < 1e-12);
        assert_true(fabs(weft_ml_log_loss(margin, 0) - log1p(exp(margin))) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auc_agrees_with_its_definition),
        cmocka_unit_test(auc_of_plain_cases),
        cmocka_unit_test(auc_that_does_not_exist),
        cmocka_unit_test(logistic_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
