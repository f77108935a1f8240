/* The reference trainer: its arithmetic on a case that can be computed by hand, and the quality
 * that docs/MODELS.md claims for the shipped data, with and without loss. */
#include "ml/reference.h"

#include "ml/defaults.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct weft_ml_dataset adult; /* loaded once for the group */

static int load_adult(void **state)
{
    (void)state;
    const char *root = getenv("WEFT_SOURCE_ROOT");
    const struct weft_ml_format *format = NULL;
    struct weft_error error = {0};
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/data/adult/adult.data.zst", root != NULL ? root : ".");
    if (weft_ml_format_find("adult", &error, &format) != WEFT_OK ||
        weft_ml_dataset_load(path, format, &error, &adult) != WEFT_OK) {
        print_error("%s\n", error.text);
        return -1;
    }
    return 0;
}

static int free_adult(void **state)
{
    (void)state;
    weft_ml_dataset_fini(&adult);
    return 0;
}

static struct weft_ml_quality train(const struct weft_ml_dataset *set,
                                    const struct weft_ml_reference_options *options,
                                    uint32_t epochs)
{
    struct weft_ml_reference reference;
    struct weft_ml_quality quality;
    assert_int_equal(weft_ml_reference_init(&reference, set, options), WEFT_OK);
    for (uint32_t e = 0; e < epochs; e++) {
        double loss = 0;
        assert_int_equal(weft_ml_reference_epoch(&reference, e, &loss), WEFT_OK);
        assert_true(isfinite(loss) && loss > 0);
    }
    assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
    weft_ml_reference_fini(&reference);
    return quality;
}

/* Two workers, one step. Worker 0 has the row {5: 2} with label 1, worker 1 the row {} with label
 * 0; at zero weights P = 1/2, so their gradients are {5: -1, bias: -1/2} and {bias: +1/2}. The sums
 * over W = 2 are {5: -1/2, bias: 0}. */
static void one_step_by_hand(void **state)
{
    (void)state;
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    static const char text[] = "1 5:2\n0\n";
    assert_int_equal(weft_ml_format_find("libsvm", NULL, &format), WEFT_OK);
    assert_int_equal(weft_ml_dataset_load_memory("two", text, strlen(text), format, &error, &set),
                     WEFT_OK);
    assert_int_equal(set.train_count, 2);
    for (int o = WEFT_ML_ADAGRAD; o <= WEFT_ML_SGD; o++) {
        struct weft_ml_reference_options options = weft_ml_reference_defaults(o);
        options.worker_count = 2;
        options.batch_rows = 1;
        options.learning_rate = 0.5F;
        options.epsilon = 0.25F;
        options.accumulator = 0.75F;
        struct weft_ml_reference reference;
        double loss = 0;
        assert_int_equal(weft_ml_reference_init(&reference, &set, &options), WEFT_OK);
        assert_int_equal(weft_ml_reference_epoch(&reference, 0, &loss), WEFT_OK);
        assert_true(fabs(loss - log(2)) < 1e-12);
        /* Adagrad: s = 3/4 + 1/4 = 1, w = 1/2 * 1/2 / (1 + 1/4). SGD: w = 1/2 * 1/2. */
        assert_true(reference.weights[0] == (o == WEFT_ML_SGD ? 0.25F : 0.25F / 1.25F));
        assert_true(reference.weights[1] == 0);
        weft_ml_reference_fini(&reference);
    }
    weft_ml_dataset_fini(&set);
}

static void without_training_rows(void **state)
{
    (void)state;
    struct weft_ml_dataset set = {.feature_count = 1};
    struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_SGD);
    struct weft_ml_reference reference;
    assert_int_equal(weft_ml_reference_init(&reference, &set, &options), WEFT_INVALID);
}

static void when_everything_is_lost_nothing_is_learnt(void **state)
{
    (void)state;
    struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_ADAGRAD);
    options.loss_ppm = WEFT_PPM;
    struct weft_ml_quality quality = train(&adult, &options, 1);
    assert_true(quality.auc == 0.5);
    assert_true(fabs(quality.log_loss - log(2)) < 1e-12);
}

static void the_same_seed_repeats_the_run(void **state)
{
    (void)state;
    struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_ADAGRAD);
    options.loss_ppm = 100000;
    struct weft_ml_quality first = train(&adult, &options, 1);
    struct weft_ml_quality second = train(&adult, &options, 1);
    assert_true(first.auc == second.auc && first.log_loss == second.log_loss);
    options.seed++;
    struct weft_ml_quality other = train(&adult, &options, 1);
    assert_true(first.log_loss != other.log_loss);
}

static void adult_with_default_settings(void **state)
{
    (void)state;
    static const uint32_t worker_counts[] = {1, 4, 16};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(worker_counts); i++) {
        struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_ADAGRAD);
        options.worker_count = worker_counts[i];
        struct weft_ml_quality quality = train(&adult, &options, WEFT_ML_DEFAULT_EPOCHS);
        assert_true(quality.auc >= 0.915);
        assert_true(quality.log_loss <= 0.31);
        assert_int_equal(quality.row_count, 6023);
    }
}

static void adult_under_loss(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_ADAGRAD);
        options.loss_ppm = 100000;
        options.seed = seed;
        assert_true(train(&adult, &options, WEFT_ML_DEFAULT_EPOCHS).auc >= 0.915);
    }
}

static void adult_with_sgd(void **state)
{
    (void)state;
    struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_SGD);
    assert_true(train(&adult, &options, WEFT_ML_DEFAULT_EPOCHS).auc >= 0.90);
    options.loss_ppm = 100000;
    assert_true(train(&adult, &options, WEFT_ML_DEFAULT_EPOCHS).auc >= 0.90);
}

/* A hidden layer learns more than the crosses of adult contain. */
static void adult_with_a_hidden_layer(void **state)
{
    (void)state;
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find("mlp", NULL, &kind), WEFT_OK);
    struct weft_ml_reference_options options = weft_ml_reference_defaults_of(kind, WEFT_ML_ADAGRAD);
    struct weft_ml_quality quality = train(&adult, &options, 2);
    assert_true(quality.auc >= 0.920);
    assert_true(quality.log_loss <= 0.305);
    options.loss_ppm = 100000;
    assert_true(train(&adult, &options, 2).auc >= 0.920);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_by_hand),
        cmocka_unit_test(without_training_rows),
        cmocka_unit_test(when_everything_is_lost_nothing_is_learnt),
        cmocka_unit_test(the_same_seed_repeats_the_run),
        cmocka_unit_test(adult_with_default_settings),
        cmocka_unit_test(adult_under_loss),
        cmocka_unit_test(adult_with_sgd),
        cmocka_unit_test(adult_with_a_hidden_layer),
    };
    return cmocka_run_group_tests(tests, load_adult, free_adult);
}
