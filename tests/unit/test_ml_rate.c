/* The search for a learning rate: it follows the scale of the values, improves training, depends on
 * the data alone, and keeps the default if a sample is not informative. */
#include "ml/rate.h"

#include "base/prng.h"
#include "ml/defaults.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES = 400, PER_ROW = 16, LINE_BYTES = PER_ROW * 24 + 8 };

static double uniform(struct weft_prng *prng)
{
    return (double)(weft_prng_u64(prng) >> 11) * 0x1p-53;
}

/* Like a bag of words: ids of very different frequency, each with a planted weight, values of
 * scale/2 to scale. A row is positive where the weighted sum is; every tenth label is random. */
static struct weft_ml_dataset make(uint32_t rows, double scale)
{
    struct weft_prng prng;
    struct weft_ml_dataset set;
    struct weft_error error = {.text = ""};
    const struct weft_ml_format *format;
    double weights[FEATURES];
    char *text = malloc((size_t)rows * LINE_BYTES), *at = text;
    assert_non_null(text);
    weft_prng_init(&prng, 7);
    for (uint32_t i = 0; i < FEATURES; i++) {
        weights[i] = uniform(&prng) - 0.5;
    }
    for (uint32_t r = 0; r < rows; r++) {
        double values[FEATURES] = {0}, sum = 0;
        for (uint32_t k = 0; k < PER_ROW; k++) {
            double u = uniform(&prng);
            values[(uint32_t)(u * u * FEATURES)] = 0.5 + uniform(&prng) / 2;
        }
        for (uint32_t i = 0; i < FEATURES; i++) {
            sum += weights[i] * values[i];
        }
        bool positive = weft_prng_below(&prng, 10) == 0 ? weft_prng_below(&prng, 2) == 0 : sum > 0;
        at += snprintf(at, 4, "%d", positive);
        for (uint32_t i = 0; i < FEATURES; i++) {
            at += values[i] > 0 ? snprintf(at, 24, " %u:%.6g", i, values[i] * scale) : 0;
        }
        *at++ = '\n';
    }
    assert_int_equal(weft_ml_format_find("libsvm", NULL, &format), WEFT_OK);
    assert_int_equal(
        weft_ml_dataset_load_memory("made", text, (size_t)(at - text), format, &error, &set),
        WEFT_OK);
    free(text);
    return set;
}

/* As in a job with default settings. */
static uint32_t steps_of(const struct weft_ml_dataset *set)
{
    return weft_ml_share_steps(set, 4, WEFT_ML_DEFAULT_BATCH_ROWS);
}

static struct weft_ml_rate find(const struct weft_ml_dataset *set, enum weft_ml_optimizer optimizer)
{
    struct weft_ml_rate found;
    assert_int_equal(weft_ml_rate_find(set, optimizer, 0, steps_of(set), &found), WEFT_OK);
    return found;
}

/* Mean test log-loss after the default epochs of the reference trainer. */
static double loss_at(const struct weft_ml_dataset *set, enum weft_ml_optimizer optimizer,
                      float rate)
{
    struct weft_ml_reference_options options = weft_ml_reference_defaults(optimizer);
    struct weft_ml_reference reference;
    struct weft_ml_quality quality;
    options.learning_rate = rate;
    assert_int_equal(weft_ml_reference_init(&reference, set, &options), WEFT_OK);
    for (uint32_t e = 0; e < WEFT_ML_DEFAULT_EPOCHS; e++) {
        double loss;
        assert_int_equal(weft_ml_reference_epoch(&reference, e, &loss), WEFT_OK);
    }
    assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
    weft_ml_reference_fini(&reference);
    return quality.log_loss;
}

static void the_rate_follows_the_scale(void **state)
{
    (void)state;
    static const double scales[] = {64, 8, 1, 0.125};
    for (int o = WEFT_ML_ADAGRAD; o <= WEFT_ML_SGD; o++) {
        float before = 0;
        /* The bias, whose value is 1, limits SGD: at a rate above 8 it oscillates. */
        size_t count = WEFT_ARRAY_COUNT(scales) - (o == WEFT_ML_SGD);
        for (size_t i = 0; i < count; i++) {
            struct weft_ml_dataset set = make(4000, scales[i]);
            struct weft_ml_rate found = find(&set, o);
            print_message("optimizer %d, values below %g: rate %g\n", o, scales[i],
                          (double)found.rate);
            assert_int_equal(found.rows, set.train_count);
            assert_true(found.rate >=
                        2 * before); /* 8 or 64 would be exact; the bias keeps its scale */
            before = found.rate;
            weft_ml_dataset_fini(&set);
        }
    }
}

static void small_values_are_learnt_from(void **state)
{
    (void)state;
    struct weft_ml_dataset set = make(6000, 1.0 / 16);
    double usual = loss_at(&set, WEFT_ML_ADAGRAD, WEFT_ML_DEFAULT_ADAGRAD_RATE);
    double found = loss_at(&set, WEFT_ML_ADAGRAD, find(&set, WEFT_ML_ADAGRAD).rate);
    print_message("log-loss %.4f at the usual rate, %.4f at the one found\n", usual, found);
    assert_true(usual > 0.66); /* log 2 is 0.693: almost nothing was learnt */
    assert_true(found < usual - 0.05);
    weft_ml_dataset_fini(&set);
}

static void it_depends_on_the_data_alone(void **state)
{
    (void)state;
    struct weft_ml_dataset a = make(3000, 0.1), b = make(3000, 0.1);
    struct weft_ml_rate of_a = find(&a, WEFT_ML_ADAGRAD), again = find(&a, WEFT_ML_ADAGRAD);
    struct weft_ml_rate of_b = find(&b, WEFT_ML_ADAGRAD);
    assert_true(of_a.rate > WEFT_ML_DEFAULT_ADAGRAD_RATE);
    assert_memory_equal(&of_a, &again, sizeof(of_a));
    assert_memory_equal(&of_a, &of_b, sizeof(of_a));
    weft_ml_dataset_fini(&a);
    weft_ml_dataset_fini(&b);
}

static void a_sample_is_bounded(void **state)
{
    (void)state;
    struct weft_ml_dataset set = make(12000, 1);
    assert_true(set.train_count > WEFT_ML_RATE_ROWS_MAX);
    assert_int_equal(find(&set, WEFT_ML_ADAGRAD).rows, WEFT_ML_RATE_ROWS_MAX);
    weft_ml_dataset_fini(&set);
}

static void little_data_keeps_the_default(void **state)
{
    (void)state;
    struct weft_ml_dataset few = make(300, 0.01), one = make(1000, 0.01);
    struct weft_ml_rate found = find(&few, WEFT_ML_SGD);
    assert_true(few.train_count < WEFT_ML_RATE_ROWS_MIN);
    assert_int_equal(found.rows, 0);
    assert_true(found.rate == WEFT_ML_DEFAULT_SGD_RATE);

    memset(one.labels, 1, one.row_count);
    found = find(&one, WEFT_ML_ADAGRAD);
    assert_int_equal(found.rows, 0);
    assert_true(found.rate == WEFT_ML_DEFAULT_ADAGRAD_RATE);
    weft_ml_dataset_fini(&few);
    weft_ml_dataset_fini(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_follows_the_scale),
        cmocka_unit_test(small_values_are_learnt_from),
        cmocka_unit_test(it_depends_on_the_data_alone),
        cmocka_unit_test(a_sample_is_bounded),
        cmocka_unit_test(little_data_keeps_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
