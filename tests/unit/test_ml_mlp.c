/* The model with a hidden layer: its score from the definition in float64, its gradient as the
 * slope of the objective, the same results from a batch of all features, and the initial weights of
 * its rows. */
#include "base/init.h"
#include "base/prng.h"
#include "ml/model.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    HIDDEN = 4,
    FEATURES_MAX = 40,
    FLOATS_MAX = (FEATURES_MAX + WEFT_ML_OUTPUT_ROWS) * HIDDEN,
    ROWS = 40
};

static struct weft_ml_dataset few_features(struct weft_ml_dataset set)
{
    assert_in_range(set.feature_count, 1, FEATURES_MAX);
    return set;
}

static const struct weft_ml_model_kind *mlp(void)
{
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find("mlp", NULL, &kind), WEFT_OK);
    return kind;
}

struct slow {
    double loss;
    double objective; /* with L2 */
    double closest;   /* smallest distance of a hidden unit from its kink at 0 */
};

static double slow_margin(const struct weft_ml_batch *batch, const uint32_t *local, uint32_t row,
                          const double *rows, struct slow *slow)
{
    const struct weft_ml_dataset *set = batch->dataset;
    const double *output = rows + (uint64_t)batch->id_count * HIDDEN;
    uint64_t begin = set->row_begin[row];
    double margin = output[HIDDEN];
    for (int j = 0; j < HIDDEN; j++) {
        double h = 0;
        for (uint64_t i = 0; i < set->row_begin[row + 1] - begin; i++) {
            h += rows[local[i] * HIDDEN + (uint64_t)j] * (double)set->values[begin + i];
        }
        slow->closest = fmin(slow->closest, fabs(h));
        margin += h > 0 ? output[j] * h : 0;
    }
    return margin;
}

static struct slow slow_objective(const struct weft_ml_model *model,
                                  const struct weft_ml_batch *batch, const double *rows)
{
    const struct weft_ml_dataset *set = batch->dataset;
    struct slow slow = {.closest = INFINITY};
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint32_t row = batch->rows[r];
        uint64_t count = set->row_begin[row + 1] - set->row_begin[row];
        double margin = slow_margin(batch, local, row, rows, &slow);
        double loss = log1p(exp(set->labels[row] == 1 ? -margin : margin));
        slow.loss += loss / batch->row_count;
        slow.objective += loss / batch->row_count;
        for (uint64_t k = 0; k < (count - 1) * HIDDEN; k++) {
            double w = rows[local[k / HIDDEN] * HIDDEN + k % HIDDEN];
            slow.objective += (double)model->settings.l2 / 2 * w * w / batch->row_count;
        }
        local += count;
    }
    return slow;
}

/* Draw rows with no unit so near its kink that a step of the difference crosses it. */
static void draw_rows(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                      struct weft_prng *prng, float *rows_p, double *exact_p)
{
    uint32_t floats = weft_ml_model_rows(model, batch->id_count) * HIDDEN;
    do {
        for (uint32_t k = 0; k < floats; k++) {
            rows_p[k] = (float)weft_prng_below(prng, 2000) / 1000.0F - 1.0F;
            exact_p[k] = (double)rows_p[k];
        }
    } while (slow_objective(model, batch, exact_p).closest < 1e-3);
}

static void check_slopes(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                         const float *rows, double *exact)
{
    float gradient[FLOATS_MAX];
    uint32_t floats = weft_ml_model_rows(model, batch->id_count) * HIDDEN;
    for (uint32_t k = 0; k < floats; k++) {
        gradient[k] = NAN; /* must be overwritten */
    }
    double loss = weft_ml_model_gradient(model, batch, rows, gradient);
    assert_true(fabs(loss - slow_objective(model, batch, exact).loss) < 1e-6);
    for (uint32_t k = 0; k < floats; k++) {
        const double step = 1e-5;
        double kept = exact[k];
        exact[k] = kept + step;
        double above = slow_objective(model, batch, exact).objective;
        exact[k] = kept - step;
        double below = slow_objective(model, batch, exact).objective;
        exact[k] = kept;
        assert_true(fabs((above - below) / (2 * step) - (double)gradient[k]) < 2e-6);
    }
}

static void the_gradient_is_the_slope_of_the_objective(void **state)
{
    (void)state;
    static const float pulls[] = {0.0F, 0.3F};
    for (uint64_t n = 0; n < 12; n++) {
        struct weft_prng prng;
        weft_prng_init(&prng, n + 1);
        struct weft_ml_dataset set = few_features(ml_random_rows(&prng, ROWS, 6));
        struct weft_ml_model_settings settings = {
            .factors = HIDDEN, .l2 = pulls[n % 2], .init_scale = 0.1F};
        struct weft_ml_model model;
        struct weft_ml_batch batch;
        float rows[FLOATS_MAX];
        double exact[FLOATS_MAX];
        assert_int_equal(weft_ml_model_init(&model, mlp(), &settings, n, &set), WEFT_OK);
        assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
        /* A few rows without all features. */
        assert_int_equal(weft_ml_model_batch(&model, &batch, set.train_rows, 6), WEFT_OK);
        assert_int_equal(batch.id_count, set.feature_count);
        draw_rows(&model, &batch, &prng, rows, exact);
        check_slopes(&model, &batch, rows, exact);
        weft_ml_batch_fini(&batch);
        weft_ml_dataset_fini(&set);
    }
}

/* A batch with only the features of its rows, as in prediction, gives the same scores. */
static void a_batch_of_some_features(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 99);
    struct weft_ml_dataset set = few_features(ml_random_rows(&prng, ROWS, 6));
    struct weft_ml_model_settings settings = {.factors = HIDDEN, .l2 = 0, .init_scale = 0.1F};
    struct weft_ml_model model;
    struct weft_ml_batch all, some;
    float rows[FLOATS_MAX], few[FLOATS_MAX], expected[6], scores[6];
    double exact[FLOATS_MAX];
    assert_int_equal(weft_ml_model_init(&model, mlp(), &settings, 1, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_init(&all, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_init(&some, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build_whole(&all, set.train_rows, 6), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&some, set.train_rows, 6), WEFT_OK);
    assert_true(some.id_count < all.id_count);
    assert_memory_equal(all.ids, set.feature_ids, set.feature_count * sizeof(*all.ids));
    draw_rows(&model, &all, &prng, rows, exact);
    for (uint32_t k = 0, column = 0; k < some.id_count; k++) {
        for (; set.feature_ids[column] != some.ids[k]; column++) {
        }
        memcpy(few + (size_t)k * HIDDEN, rows + (size_t)column * HIDDEN, HIDDEN * sizeof(*few));
    }
    memcpy(few + (size_t)some.id_count * HIDDEN, rows + (size_t)set.feature_count * HIDDEN,
           (size_t)WEFT_ML_OUTPUT_ROWS * HIDDEN * sizeof(*few));
    weft_ml_model_scores(&model, &all, rows, expected);
    weft_ml_model_scores(&model, &some, few, scores);
    assert_memory_equal(scores, expected, sizeof(scores));
    weft_ml_batch_fini(&all);
    weft_ml_batch_fini(&some);
    weft_ml_dataset_fini(&set);
}

static void a_batch_of_no_rows(void **state)
{
    (void)state;
    struct weft_ml_dataset set = few_features(ml_load("libsvm", "1 1:1\n0 1:1\n"));
    struct weft_ml_model_settings settings = {.factors = HIDDEN, .l2 = 0.1F, .init_scale = 0.1F};
    struct weft_ml_model model;
    struct weft_ml_batch batch;
    float rows[FLOATS_MAX] = {0}, gradient[FLOATS_MAX];
    assert_int_equal(weft_ml_model_init(&model, mlp(), &settings, 1, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_model_batch(&model, &batch, NULL, 0), WEFT_OK);
    assert_int_equal(batch.id_count, set.feature_count);
    for (uint32_t k = 0; k < FLOATS_MAX; k++) {
        gradient[k] = 7;
    }
    /* Including zeros: the push contains the whole vector. */
    assert_true(weft_ml_model_gradient(&model, &batch, rows, gradient) == 0);
    for (uint32_t k = 0; k < FLOATS_MAX; k++) {
        assert_true(gradient[k] == (k < (set.feature_count + 2) * HIDDEN ? 0 : 7));
    }
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

static void rows_begin_by_their_numbers(void **state)
{
    (void)state;
    struct weft_ml_dataset set = few_features(ml_load("libsvm", "1 70:1\n0 90:1\n"));
    struct weft_ml_model_settings settings = {.factors = HIDDEN, .l2 = 0, .init_scale = 0.25F};
    struct weft_ml_model model;
    float row[HIDDEN];
    assert_int_equal(weft_ml_model_init(&model, mlp(), &settings, 77, &set), WEFT_OK);
    weft_ml_model_initial_row(&model, 1, row);
    for (uint32_t c = 0; c < HIDDEN; c++) {
        assert_true(row[c] == weft_init_value(77, 1, c, 0.25F));
    }
    weft_ml_dataset_fini(&set);
}

static void widths_of_rows(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t factors, dim;
        bool is_good; /* the model accepts such rows */
    } cases[] = {
        {"lr", 0, 1, true},   {"lr", 0, 2, false},     {"fm", 0, 1, false},
        {"fm", 63, 64, true}, {"mf", 255, 256, true},  {"mf", 0, 257, false},
        {"mlp", 1, 1, true},  {"mlp", 255, 255, true}, {"mlp", 0, 256, false},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        const struct weft_ml_model_kind *kind = NULL;
        uint32_t factors = 0;
        assert_int_equal(weft_ml_model_find(cases[i].name, NULL, &kind), WEFT_OK);
        assert_int_equal(weft_ml_model_factors(kind, cases[i].dim, &factors), cases[i].is_good);
        if (cases[i].is_good) {
            assert_int_equal(factors, cases[i].factors);
            assert_int_equal(weft_ml_model_dim(kind, factors), cases[i].dim);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_is_the_slope_of_the_objective),
        cmocka_unit_test(a_batch_of_some_features),
        cmocka_unit_test(a_batch_of_no_rows),
        cmocka_unit_test(rows_begin_by_their_numbers),
        cmocka_unit_test(widths_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
