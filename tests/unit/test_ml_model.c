/* The models with factors compared with slow and obvious versions: the score from its definition,
 * the gradient as the slope of the objective, L2 included. */
#include "base/init.h"
#include "base/prng.h"
#include "ml/kinds.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FACTORS = 3, DIM = 1 + FACTORS, IDS_MAX = 64, ROWS_MAX = 40 };

static struct weft_ml_dataset random_ratings(struct weft_prng *prng)
{
    char text[8192];
    size_t used = 0;
    for (int r = 0; r < ROWS_MAX; r++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%d,%d,%d.5,%d\n",
                                 (int)weft_prng_below(prng, 6), (int)weft_prng_below(prng, 6),
                                 (int)weft_prng_below(prng, 5), r);
    }
    return ml_load("movielens", text);
}

/* By definition: every pair of features, each factor in turn. */
static double slow_score(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                         uint32_t r, uint64_t at, const double *rows)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t begin = set->row_begin[batch->rows[r]];
    uint64_t count = set->row_begin[batch->rows[r] + 1] - begin - 1;
    double score = (double)model->offset + rows[batch->local[at + count] * DIM];
    for (uint64_t i = 0; i < count; i++) {
        const double *left = rows + batch->local[at + i] * DIM;
        score += left[0] * (double)set->values[begin + i];
        for (uint64_t j = i + 1; j < count; j++) {
            const double *right = rows + batch->local[at + j] * DIM;
            for (int f = 1; f < DIM; f++) {
                score += left[f] * right[f] * (double)set->values[begin + i] *
                         (double)set->values[begin + j];
            }
        }
    }
    return score;
}

struct slow {
    double loss;      /* as returned by weft_ml_model_gradient */
    double objective; /* the objective whose slope is the gradient */
};

static struct slow slow_objective(const struct weft_ml_model *model,
                                  const struct weft_ml_batch *batch, const double *rows)
{
    const struct weft_ml_dataset *set = batch->dataset;
    struct slow slow = {0};
    uint64_t at = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint32_t row = batch->rows[r];
        uint64_t count = set->row_begin[row + 1] - set->row_begin[row] - 1;
        double score = slow_score(model, batch, r, at, rows);
        double error = score - (double)set->targets[row];
        double loss = log1p(exp(set->labels[row] == 1 ? -score : score));
        slow.loss += model->kind->predicts_ratings ? error * error : loss;
        slow.objective += model->kind->predicts_ratings ? error * error / 2 : loss;
        for (uint64_t i = 0; i < count; i++) {
            for (int c = 0; c < DIM; c++) {
                double w = rows[batch->local[at + i] * DIM + (uint64_t)c];
                slow.objective += (double)model->settings.l2 / 2 * w * w;
            }
        }
        at += count + 1;
    }
    slow.loss /= batch->row_count;
    slow.objective /= batch->row_count;
    return slow;
}

static void check_slopes(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                         struct weft_prng *prng)
{
    float rows[IDS_MAX * DIM];
    double exact[IDS_MAX * DIM];
    float gradient[IDS_MAX * DIM];
    assert_in_range(batch->id_count, 1, IDS_MAX);
    for (uint32_t k = 0; k < batch->id_count * DIM; k++) {
        rows[k] = (float)weft_prng_below(prng, 2000) / 1000.0F - 1.0F;
        exact[k] = (double)rows[k];
        gradient[k] = NAN; /* must be overwritten */
    }
    double loss = weft_ml_model_gradient(model, batch, rows, gradient);
    assert_true(fabs(loss - slow_objective(model, batch, exact).loss) < 1e-9);
    for (uint32_t k = 0; k < batch->id_count * DIM; k++) {
        const double step = 1e-5;
        double kept = exact[k];
        exact[k] = kept + step;
        double above = slow_objective(model, batch, exact).objective;
        exact[k] = kept - step;
        double below = slow_objective(model, batch, exact).objective;
        exact[k] = kept;
        /* The error of central differences is step^2; that of float32 sums of 20 rows about 1e-7
         * each. */
        assert_true(fabs((above - below) / (2 * step) - (double)gradient[k]) < 2e-6);
    }
    float scores[ROWS_MAX];
    weft_ml_model_scores(model, batch, rows, scores);
    uint64_t at = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        assert_true(fabs(slow_score(model, batch, r, at, exact) - (double)scores[r]) < 1e-5);
        at += batch->dataset->row_begin[batch->rows[r] + 1] -
              batch->dataset->row_begin[batch->rows[r]];
    }
}

static void the_gradient_is_the_slope_of_the_objective(void **state)
{
    (void)state;
    static const char *const names[] = {"fm", "mf"};
    static const float pulls[] = {0.0F, 0.3F};
    for (uint64_t n = 0; n < 24; n++) {
        struct weft_prng prng;
        weft_prng_init(&prng, n + 1);
        const struct weft_ml_model_kind *kind = NULL;
        assert_int_equal(weft_ml_model_find(names[n % 2], NULL, &kind), WEFT_OK);
        struct weft_ml_dataset set =
            kind->predicts_ratings ? random_ratings(&prng) : ml_random_rows(&prng, ROWS_MAX, 7);
        struct weft_ml_model_settings settings = {
            .factors = FACTORS, .l2 = pulls[n / 2 % 2], .init_scale = 0.1F};
        struct weft_ml_model model;
        assert_int_equal(weft_ml_model_init(&model, kind, &settings, n, &set), WEFT_OK);
        struct weft_ml_batch batch;
        assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
        assert_true(set.train_count > 5);
        assert_int_equal(weft_ml_batch_build(&batch, set.train_rows, set.train_count), WEFT_OK);
        check_slopes(&model, &batch, &prng);
        weft_ml_batch_fini(&batch);
        weft_ml_dataset_fini(&set);
    }
}

static void the_bias_is_not_pulled(void **state)
{
    (void)state;
    struct weft_ml_dataset set = ml_load("libsvm", "1 1:1\n0 1:1\n");
    for (const struct weft_ml_model_kind *kind = weft_ml_model_kinds; kind->name != NULL; kind++) {
        if (kind->predicts_ratings || kind->is_dense || kind->counts_topics) {
            continue;
        }
        struct weft_ml_model_settings settings = {.factors = FACTORS, .l2 = 0.5F, .init_scale = 0.1F};
        struct weft_ml_model model;
        struct weft_ml_batch batch;
        uint32_t rows[] = {0, 1};
        float weights[2 * DIM] = {0};
        float gradient[2 * DIM];
        assert_int_equal(weft_ml_model_init(&model, kind, &settings, 1, &set), WEFT_OK);
        assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
        assert_int_equal(weft_ml_batch_build(&batch, rows, 2), WEFT_OK);
        weights[0] = 1;          /* feature 1, in both rows: l2 * 1 */
        weights[model.dim] = -1; /* the bias; margins are 0, the two slopes cancel out */
        (void)weft_ml_model_gradient(&model, &batch, weights, gradient);
        assert_true(fabsf(gradient[0] - 0.5F) < 1e-6F);
        assert_true(fabsf(gradient[model.dim]) < 1e-6F);
        weft_ml_batch_fini(&batch);
    }
    weft_ml_dataset_fini(&set);
}

static void rows_begin_where_servers_begin_them(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    struct weft_ml_dataset set = random_ratings(&prng);
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find("mf", NULL, &kind), WEFT_OK);
    struct weft_ml_model_settings settings = {.factors = FACTORS, .l2 = 0, .init_scale = 0.25F};
    struct weft_ml_model model;
    float row[DIM];
    assert_int_equal(weft_ml_model_init(&model, kind, &settings, 77, &set), WEFT_OK);
    weft_ml_model_initial_row(&model, 5, row);
    assert_true(row[0] == 0);
    for (uint32_t c = 1; c < DIM; c++) {
        assert_true(row[c] == weft_init_value(77, 5, c, 0.25F));
        assert_true(row[c] != 0);
    }
    /* The offset is the mean of the training rows alone. */
    double sum = 0;
    for (uint32_t t = 0; t < set.train_count; t++) {
        sum += (double)set.targets[set.train_rows[t]];
    }
    assert_true(set.test_count > 0 && set.train_count > 0);
    assert_true(fabs((double)model.offset - sum / set.train_count) < 1e-6);
    weft_ml_dataset_fini(&set);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    struct weft_error error = {0};
    const struct weft_ml_model_kind *kind = NULL;
    struct weft_ml_model model;
    assert_int_equal(weft_ml_model_find("svm", &error, &kind), WEFT_NOTFOUND);
    assert_non_null(strstr(error.text, "\"svm\""));
    assert_non_null(strstr(error.text, "lr, fm, mf, mlp, lda"));
    struct weft_ml_dataset set = ml_load("libsvm", "1 1:1\n0 1:1\n");
    assert_int_equal(weft_ml_model_find("mf", NULL, &kind), WEFT_OK);
    assert_int_equal(weft_ml_model_init(&model, kind, &kind->settings, 1, &set), WEFT_INVALID);
    assert_int_equal(weft_ml_model_find("fm", NULL, &kind), WEFT_OK);
    struct weft_ml_model_settings settings = kind->settings;
    assert_int_equal(weft_ml_model_init(&model, kind, &settings, 1, &set), WEFT_OK);
    settings.factors = 0;
    assert_int_equal(weft_ml_model_init(&model, kind, &settings, 1, &set), WEFT_INVALID);
    settings.factors = WEFT_ML_FACTORS_MAX + 1;
    assert_int_equal(weft_ml_model_init(&model, kind, &settings, 1, &set), WEFT_INVALID);
    weft_ml_dataset_fini(&set);
}

static void quality_of_ratings(void **state)
{
    (void)state;
    struct weft_ml_dataset set = ml_load("movielens", "1,1,3,0\n2,1,4,0\n");
    const struct weft_ml_model_kind *kind = NULL;
    struct weft_ml_model model;
    struct weft_ml_batch batch;
    struct weft_ml_quality quality = {0};
    uint32_t rows[] = {0, 1};
    float weights[4 * DIM] = {0};
    assert_int_equal(weft_ml_model_find("mf", NULL, &kind), WEFT_OK);
    struct weft_ml_model_settings settings = {.factors = FACTORS, .l2 = 0, .init_scale = 0.25F};
    assert_int_equal(weft_ml_model_init(&model, kind, &settings, 1, &set), WEFT_OK);
    model.offset = 3;
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, rows, 2), WEFT_OK);
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, weights, &quality), WEFT_OK);
    assert_true(fabs(quality.rmse - sqrt(0.5)) < 1e-9); /* errors 0 and 1 */
    assert_int_equal(quality.row_count, 2);
    weights[3 * DIM] = INFINITY; /* the bias */
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, weights, &quality), WEFT_DATA);
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_is_the_slope_of_the_objective),
        cmocka_unit_test(the_bias_is_not_pulled),
        cmocka_unit_test(rows_begin_where_servers_begin_them),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(quality_of_ratings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
