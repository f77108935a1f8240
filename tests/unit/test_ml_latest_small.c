/* What docs/MODELS.md claims for MovieLens latest-small, which does not ship: skipped, with a
 * message, unless WEFT_DATA_DIR has movielens-latest-small/ratings.csv. */
#include "ml/defaults.h"
#include "ml/locate.h"
#include "ml/reference.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { MF_SEEDS = 1, FM_SEEDS = 1 };
#else
enum { MF_SEEDS = 3, FM_SEEDS = 2 };
#endif

static struct weft_ml_dataset set;
static bool is_there;

static int load(void **state)
{
    (void)state;
    const char *directory = getenv("WEFT_DATA_DIR");
    const struct weft_ml_format *format = NULL;
    struct weft_error error = {0};
    char path[WEFT_ML_PATH_BYTES];
    if (directory == NULL || weft_ml_locate("movielens-latest-small/ratings.csv", &directory, 1,
                                            &error, path) != WEFT_OK) {
        print_message("no movielens-latest-small/ratings.csv in $WEFT_DATA_DIR\n");
        return 0;
    }
    if (weft_ml_format_find("movielens", &error, &format) != WEFT_OK ||
        weft_ml_dataset_load(path, format, &error, &set) != WEFT_OK) {
        print_error("%s\n", error.text);
        return -1;
    }
    is_there = true;
    return 0;
}

static int unload(void **state)
{
    (void)state;
    weft_ml_dataset_fini(&set);
    return 0;
}

struct run {
    const char *model;
    uint32_t epochs; /* 0 = the default; also for the next two */
    float learning_rate;
    float l2;
    uint32_t loss_ppm;
    uint64_t seed;
};

static struct weft_ml_quality train(struct run run)
{
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find(run.model, NULL, &kind), WEFT_OK);
    struct weft_ml_reference_options options = weft_ml_reference_defaults_of(kind, WEFT_ML_ADAGRAD);
    uint32_t epochs = run.epochs > 0 ? run.epochs : kind->pace.epochs;
    options.learning_rate = run.learning_rate > 0 ? run.learning_rate : options.learning_rate;
    options.settings.l2 = run.l2 > 0 ? run.l2 : options.settings.l2;
    options.loss_ppm = run.loss_ppm;
    options.seed = run.seed;
    options.chunk_ids = 8;
    struct weft_ml_reference reference;
    struct weft_ml_quality quality;
    assert_int_equal(weft_ml_reference_init(&reference, &set, &options), WEFT_OK);
    for (uint32_t e = 0; e < epochs; e++) {
        double loss = 0;
        assert_int_equal(weft_ml_reference_epoch(&reference, e, &loss), WEFT_OK);
    }
    assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
    weft_ml_reference_fini(&reference);
    return quality;
}

/* One round of regularised means. A column's mean is the sum of its residuals / (its count + pull).
 * Residuals are relative to the global mean and the other side's mean. `side` is 0 for users, 1 for
 * items. */
static void mean_round(double mean, double pull, uint64_t side, double *weights, double *sums)
{
    double *counts = sums + set.feature_count;
    memset(sums, 0, 2 * set.feature_count * sizeof(*sums));
    for (uint32_t t = 0; t < set.train_count; t++) {
        const uint32_t *columns = set.columns + set.row_begin[set.train_rows[t]];
        sums[columns[side]] +=
            (double)set.targets[set.train_rows[t]] - mean - weights[columns[1 - side]];
        counts[columns[side]]++;
    }
    for (uint32_t c = 0; c < set.feature_count; c++) {
        weights[c] = counts[c] > 0 ? sums[c] / (counts[c] + pull) : weights[c];
    }
}

/* The test RMSE of mean + user's mean + item's mean. */
static double means_rmse(double user_pull, double item_pull)
{
    double *weights = calloc(set.feature_count, 3 * sizeof(*weights));
    assert_non_null(weights);
    double mean = 0;
    for (uint32_t t = 0; t < set.train_count; t++) {
        mean += (double)set.targets[set.train_rows[t]] / set.train_count;
    }
    for (int round = 0; round < 10; round++) {
        mean_round(mean, item_pull, 1, weights, weights + set.feature_count);
        mean_round(mean, user_pull, 0, weights, weights + set.feature_count);
    }
    double squares = 0;
    for (uint32_t t = 0; t < set.test_count; t++) {
        const uint32_t *columns = set.columns + set.row_begin[set.test_rows[t]];
        double error = mean + weights[columns[0]] + weights[columns[1]] -
                       (double)set.targets[set.test_rows[t]];
        squares += error * error;
    }
    free(weights);
    return sqrt(squares / set.test_count);
}

static void the_split_is_the_documented_one(void **state)
{
    (void)state;
    if (!is_there) {
        skip();
    }
    assert_int_equal(set.row_count, 100836);
    assert_int_equal(set.train_count, 80707);
    assert_int_equal(set.test_count, 20129);
    assert_int_equal(set.feature_count, 610 + 9724 + 1);
}

static void ratings_are_predicted_better_than_by_means(void **state)
{
    (void)state;
    if (!is_there) {
        skip();
    }
    double means = means_rmse(3, 3);
    assert_true(means > 0.855 && means < 0.863);
    for (uint64_t seed = 1; seed <= MF_SEEDS; seed++) {
        double whole = train((struct run){.model = "mf", .seed = seed}).rmse;
        double lossy = train((struct run){.model = "mf", .seed = seed, .loss_ppm = 350000}).rmse;
        print_message("MF %d: means %.4f, whole %.4f, 35 %% lost %.4f\n", (int)seed, means, whole,
                      lossy);
        assert_true(whole <= 0.875 && whole <= means - 0.003);
        assert_true(lossy <= 0.875 && lossy <= means - 0.003);
    }
}

static void clicks_are_ranked_better_than_by_a_linear_model(void **state)
{
    (void)state;
    if (!is_there) {
        skip();
    }
    struct run linear_run = {
        .model = "lr", .epochs = 40, .learning_rate = 0.3F, .l2 = 0.03F, .seed = 1};
    double linear = train(linear_run).auc;
    assert_true(linear > 0.78);
    for (uint64_t seed = 1; seed <= FM_SEEDS; seed++) {
        double whole = train((struct run){.model = "fm", .seed = seed}).auc;
        double lossy = train((struct run){.model = "fm", .seed = seed, .loss_ppm = 100000}).auc;
        print_message("FM %d: linear %.4f, whole %.4f, 10 %% lost %.4f\n", (int)seed, linear, whole,
                      lossy);
        assert_true(whole >= 0.78 && whole >= linear + 0.005);
        assert_true(lossy >= 0.78 && lossy >= linear + 0.005);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_split_is_the_documented_one),
        cmocka_unit_test(ratings_are_predicted_better_than_by_means),
        cmocka_unit_test(clicks_are_ranked_better_than_by_a_linear_model),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
