/* Models with factors compared with the planted optimum: the reference trainer comes close to the
 * best possible model, and a model without factors does not. A gradient that is wrong in its sign,
 * its cross term or its scale fails here. */
#include "ml/metrics.h"
#include "ml/reference.h"
#include "planted.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static struct weft_ml_dataset load(const struct planted *planted)
{
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    assert_int_equal(weft_ml_format_find("movielens", NULL, &format), WEFT_OK);
    weft_status status =
        weft_ml_dataset_load_memory("planted", planted->text, planted->bytes, format, &error, &set);
    if (status != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(set.row_count, PLANTED_ROWS);
    return set;
}

struct run {
    const char *model;
    uint32_t factors;
    float l2;
    uint32_t epochs;
    uint32_t loss_ppm;
    uint64_t seed;
};

static struct weft_ml_quality train(const struct weft_ml_dataset *set, struct run run)
{
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find(run.model, NULL, &kind), WEFT_OK);
    struct weft_ml_reference_options options = weft_ml_reference_defaults_of(kind, WEFT_ML_ADAGRAD);
    options.settings.factors = run.factors;
    options.settings.l2 = run.l2;
    options.loss_ppm = run.loss_ppm;
    options.seed = run.seed;
    options.chunk_ids = 8;
    struct weft_ml_reference reference;
    struct weft_ml_quality quality;
    assert_int_equal(weft_ml_reference_init(&reference, set, &options), WEFT_OK);
    for (uint32_t e = 0; e < run.epochs; e++) {
        double loss = 0;
        assert_int_equal(weft_ml_reference_epoch(&reference, e, &loss), WEFT_OK);
    }
    assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
    weft_ml_reference_fini(&reference);
    return quality;
}

static void ratings(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct planted planted;
        assert_true(planted_make(seed, false, &planted));
        struct weft_ml_dataset set = load(&planted);
        struct run run = {"mf", 4, 0.01F, 10, 0, seed};
        double whole = train(&set, run).rmse;
        run.loss_ppm = 350000;
        double lossy = train(&set, run).rmse;
        print_message("planted ratings %d: whole %.4f, 35 %% lost %.4f\n", (int)seed, whole, lossy);
        assert_true(whole > PLANTED_NOISE_RMSE * 0.97 && whole < PLANTED_NOISE_RMSE * 1.10);
        assert_true(lossy < PLANTED_NOISE_RMSE * 1.15);
        weft_ml_dataset_fini(&set);
        free(planted.text);
        free(planted.margins);
    }
}

/* The AUC of the planted margins on the test rows. */
static double best_auc(const struct weft_ml_dataset *set, const struct planted *planted)
{
    float *scores = calloc(set->test_count, sizeof(*scores));
    uint8_t *labels = calloc(set->test_count, 1);
    assert_true(scores != NULL && labels != NULL);
    for (uint32_t t = 0; t < set->test_count; t++) {
        scores[t] = planted->margins[set->test_rows[t]];
        labels[t] = set->labels[set->test_rows[t]];
    }
    double auc = 0;
    assert_int_equal(weft_ml_auc(scores, labels, set->test_count, &auc), WEFT_OK);
    free(scores);
    free(labels);
    return auc;
}

static void clicks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct planted planted;
        assert_true(planted_make(seed, true, &planted));
        struct weft_ml_dataset set = load(&planted);
        double best = best_auc(&set, &planted);
        struct run run = {"fm", 4, 0.01F, 10, 0, seed};
        double whole = train(&set, run).auc;
        run.loss_ppm = 100000;
        double lossy = train(&set, run).auc;
        double linear = train(&set, (struct run){"lr", 0, 0.01F, 10, 0, seed}).auc;
        print_message("planted clicks %d: best %.4f, whole %.4f, 10 %% lost %.4f, linear %.4f\n",
                      (int)seed, best, whole, lossy, linear);
        assert_true(best > 0.80);
        assert_true(whole > best - 0.02 && whole < best + 0.005);
        assert_true(lossy > best - 0.02);
        assert_true(linear < best - 0.15);
        weft_ml_dataset_fini(&set);
        free(planted.text);
        free(planted.margins);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratings),
        cmocka_unit_test(clicks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
