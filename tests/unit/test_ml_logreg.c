/* Batches and gradients of the logistic regression, compared with slow and obvious versions. */
#include "base/prng.h"
#include "ml/kinds.h"
#include "ml/metrics.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A random libsvm file of `rows` lines over ids below `ids`; loaded through the real reader. */
static struct weft_ml_dataset random_dataset(struct weft_prng *prng, uint32_t rows, uint64_t ids)
{
    size_t capacity = (size_t)rows * 12 * 40;
    char *text = malloc(capacity);
    assert_non_null(text);
    size_t used = 0;
    for (uint32_t r = 0; r < rows; r++) {
        used += (size_t)snprintf(text + used, capacity - used, "%d", (int)weft_prng_below(prng, 2));
        uint64_t id = 0;
        for (uint64_t n = weft_prng_below(prng, 10); n > 0; n--) {
            id += 1 + weft_prng_below(prng, ids / 10);
            used += (size_t)snprintf(text + used, capacity - used, " %llu:%d.%d",
                                     (unsigned long long)id, (int)weft_prng_below(prng, 3) - 1,
                                     (int)weft_prng_range(prng, 1, 9));
        }
        used += (size_t)snprintf(text + used, capacity - used, "\n");
    }
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    assert_int_equal(weft_ml_format_find("libsvm", NULL, &format), WEFT_OK);
    weft_status status = weft_ml_dataset_load_memory("random", text, used, format, &error, &set);
    if (status != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    free(text);
    return set;
}

static int compare_u64(const void *left_p, const void *right_p)
{
    uint64_t left = *(const uint64_t *)left_p;
    uint64_t right = *(const uint64_t *)right_p;
    return (left > right) - (left < right);
}

/* All distinct ids of the rows, sorted: with qsort instead of stamps and radix passes. */
static uint32_t slow_ids(const struct weft_ml_dataset *set, const uint32_t *rows, uint32_t count,
                         uint64_t *ids)
{
    uint32_t total = 0;
    for (uint32_t r = 0; r < count; r++) {
        for (uint64_t i = set->row_begin[rows[r]]; i < set->row_begin[rows[r] + 1]; i++) {
            ids[total++] = set->feature_ids[set->columns[i]];
        }
    }
    qsort(ids, total, sizeof(*ids), compare_u64);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < total; i++) {
        if (kept == 0 || ids[kept - 1] != ids[i]) {
            ids[kept++] = ids[i];
        }
    }
    return kept;
}

static void check_batch(const struct weft_ml_batch *batch, const uint32_t *rows, uint32_t count)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t *ids = malloc((set->nonzero_count + 1) * 4 * sizeof(*ids));
    assert_non_null(ids);
    uint32_t id_count = slow_ids(set, rows, count, ids);
    assert_int_equal(batch->id_count, id_count);
    assert_int_equal(batch->row_count, count);
    for (uint32_t k = 0; k < id_count; k++) {
        assert_int_equal(batch->ids[k], ids[k]);
        assert_int_equal(set->feature_ids[batch->columns[k]], ids[k]);
    }
    uint64_t at = 0;
    for (uint32_t r = 0; r < count; r++) {
        assert_int_equal(batch->rows[r], rows[r]);
        for (uint64_t i = set->row_begin[rows[r]]; i < set->row_begin[rows[r] + 1]; i++) {
            assert_int_equal(batch->ids[batch->local[at]], set->feature_ids[set->columns[i]]);
            at++;
        }
    }
    assert_int_equal(batch->nonzero_count, at);
    free(ids);
}

static void batches_name_every_id_once(void **state)
{
    (void)state;
    static const uint64_t id_limits[] = {10, 1000, 100000, UINT64_C(1) << 40};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        uint32_t rows_max = seed % 2 == 0 ? 3000 : 50; /* more and fewer columns than one digit */
        struct weft_ml_dataset set =
            random_dataset(&prng, rows_max, id_limits[seed % WEFT_ARRAY_COUNT(id_limits)]);
        struct weft_ml_batch batch;
        assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
        uint32_t *rows = malloc(set.row_count * sizeof(*rows));
        assert_non_null(rows);
        for (int build = 0; build < 20; build++) {
            uint32_t count = (uint32_t)weft_prng_below(&prng, set.row_count);
            for (uint32_t r = 0; r < count; r++) {
                rows[r] = (uint32_t)weft_prng_below(&prng, set.row_count);
            }
            assert_int_equal(weft_ml_batch_build(&batch, rows, count), WEFT_OK);
            check_batch(&batch, rows, count);
        }
        free(rows);
        weft_ml_batch_fini(&batch);
        weft_ml_dataset_fini(&set);
    }
}

static void memory_is_reused(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 5);
    struct weft_ml_dataset set = random_dataset(&prng, 100, 1000);
    struct weft_ml_batch batch;
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, set.train_rows, 60), WEFT_OK);
    const uint64_t *ids = batch.ids;
    const uint32_t *local = batch.local;
    for (uint32_t count = 1; count <= 60; count++) {
        assert_int_equal(weft_ml_batch_build(&batch, set.train_rows, count), WEFT_OK);
        assert_ptr_equal(batch.ids, ids);
        assert_ptr_equal(batch.local, local);
    }
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

static void a_batch_of_no_rows(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 6);
    struct weft_ml_dataset set = random_dataset(&prng, 10, 100);
    struct weft_ml_batch batch;
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, NULL, 0), WEFT_OK);
    assert_int_equal(batch.id_count, 0);
    assert_true(weft_ml_lr_gradient(NULL, &batch, NULL, NULL) == 0);
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

/* Mean loss at these weights, in double from the definition. */
static double slow_loss(const struct weft_ml_batch *batch, const double *weights)
{
    const struct weft_ml_dataset *set = batch->dataset;
    double loss = 0;
    uint64_t at = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        double margin = 0;
        for (uint64_t i = set->row_begin[batch->rows[r]]; i < set->row_begin[batch->rows[r] + 1];
             i++) {
            margin += weights[batch->local[at++]] * (double)set->values[i];
        }
        loss += log1p(exp(set->labels[batch->rows[r]] == 1 ? -margin : margin));
    }
    return loss / batch->row_count;
}

static void the_gradient_is_the_slope_of_the_loss(void **state)
{
    (void)state;
    enum { IDS_MAX = 600 };
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_ml_dataset set = random_dataset(&prng, 60, 300);
        struct weft_ml_batch batch;
        assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
        uint32_t row_count = set.train_count < 20 ? set.train_count : 20;
        assert_int_equal(weft_ml_batch_build(&batch, set.train_rows, row_count), WEFT_OK);
        assert_in_range(batch.id_count, 1, IDS_MAX);
        float weights[IDS_MAX];
        double exact[IDS_MAX];
        float gradient[IDS_MAX];
        for (uint32_t k = 0; k < batch.id_count; k++) {
            weights[k] = (float)weft_prng_below(&prng, 2000) / 1000.0F - 1.0F;
            exact[k] = (double)weights[k];
            gradient[k] = NAN; /* must be overwritten */
        }
        double loss = weft_ml_lr_gradient(NULL, &batch, weights, gradient);
        assert_true(fabs(loss - slow_loss(&batch, exact)) < 1e-9);
        for (uint32_t k = 0; k < batch.id_count; k++) {
            const double step = 1e-5;
            double kept = exact[k];
            exact[k] = kept + step;
            double above = slow_loss(&batch, exact);
            exact[k] = kept - step;
            double below = slow_loss(&batch, exact);
            exact[k] = kept;
            /* The error of central differences is step^2; that of float32 sums of 20 rows about
             * 1e-7. */
            assert_true(fabs((above - below) / (2 * step) - (double)gradient[k]) < 1e-6);
        }
        weft_ml_batch_fini(&batch);
        weft_ml_dataset_fini(&set);
    }
}

static void evaluation_is_loss_and_auc_of_the_margins(void **state)
{
    (void)state;
    enum { ROWS_MAX = 400, IDS_MAX = 2000 };
    struct weft_prng prng;
    weft_prng_init(&prng, 9);
    struct weft_ml_dataset set = random_dataset(&prng, ROWS_MAX, 1000);
    struct weft_ml_batch batch;
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, set.test_rows, set.test_count), WEFT_OK);
    assert_in_range(batch.id_count, 1, IDS_MAX);
    float weights[IDS_MAX];
    double exact[IDS_MAX];
    float margins[ROWS_MAX];
    uint8_t labels[ROWS_MAX];
    for (uint32_t k = 0; k < batch.id_count; k++) {
        weights[k] = (float)weft_prng_below(&prng, 2000) / 1000.0F - 1.0F;
        exact[k] = (double)weights[k];
    }
    weft_ml_lr_scores(NULL, &batch, weights, margins);
    for (uint32_t r = 0; r < batch.row_count; r++) {
        labels[r] = set.labels[batch.rows[r]];
    }
    double auc = 0;
    assert_int_equal(weft_ml_auc(margins, labels, batch.row_count, &auc), WEFT_OK);
    struct weft_ml_quality quality;
    struct weft_ml_model model;
    const struct weft_ml_model_kind *kind = &weft_ml_model_kinds[0];
    assert_int_equal(weft_ml_model_init(&model, kind, &kind->settings, 1, &set), WEFT_OK);
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, weights, &quality), WEFT_OK);
    assert_true(quality.auc == auc);
    assert_int_equal(quality.row_count, set.test_count);
    assert_true(fabs(quality.log_loss - slow_loss(&batch, exact)) < 1e-6);

    weights[0] = NAN;
    weights[batch.id_count - 1] = NAN; /* the bias, which is part of every margin */
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, weights, &quality), WEFT_DATA);
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_name_every_id_once),
        cmocka_unit_test(memory_is_reused),
        cmocka_unit_test(a_batch_of_no_rows),
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(evaluation_is_loss_and_auc_of_the_margins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
