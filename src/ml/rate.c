#include "ml/rate.h"

#include "ml/defaults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HELD_OUT = 5,     /* one of this many rows */
    BATCHES_MAX = 21, /* in a pass */
    STEPS = 7,        /* factors of 4, up and down */
};

/* ---- the sample ------------------------------------------------------------------------------ */

static uint32_t sample_rows(const struct weft_ml_dataset *dataset)
{
    uint64_t per_row = weft_max_u64(dataset->nonzero_count / dataset->row_count, 1);
    uint64_t rows = weft_min_u64(WEFT_ML_RATE_NONZEROS_MAX / per_row, WEFT_ML_RATE_ROWS_MAX);
    return (uint32_t)weft_min_u64(rows, dataset->train_count);
}

static uint32_t row_of(const struct weft_ml_dataset *dataset, uint32_t i, uint32_t count)
{
    return dataset->train_rows[(uint64_t)i * dataset->train_count / count];
}

static uint64_t nonzeros_of(const struct weft_ml_dataset *dataset, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = row_of(dataset, i, count);
        sum += dataset->row_begin[row + 1] - dataset->row_begin[row];
    }
    return sum;
}

static weft_status sample_allocate(struct weft_ml_dataset *sample, uint32_t rows, uint64_t nonzeros,
                                   uint32_t features)
{
    sample->row_begin = calloc((size_t)rows + 1, sizeof(*sample->row_begin));
    sample->columns = calloc(nonzeros, sizeof(*sample->columns));
    sample->values = calloc(nonzeros, sizeof(*sample->values));
    sample->labels = calloc(rows, sizeof(*sample->labels));
    sample->feature_ids = calloc(features, sizeof(*sample->feature_ids));
    sample->train_rows = calloc(rows, sizeof(*sample->train_rows));
    sample->test_rows = calloc(rows, sizeof(*sample->test_rows));
    return sample->row_begin == NULL || sample->columns == NULL || sample->values == NULL ||
                   sample->labels == NULL || sample->feature_ids == NULL ||
                   sample->train_rows == NULL || sample->test_rows == NULL
               ? WEFT_NOMEM
               : WEFT_OK;
}

static void sample_fill(struct weft_ml_dataset *sample, const struct weft_ml_dataset *dataset,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = row_of(dataset, i, count);
        uint64_t begin = dataset->row_begin[row], n = dataset->row_begin[row + 1] - begin;
        memcpy(sample->columns + sample->nonzero_count, dataset->columns + begin,
               n * sizeof(*sample->columns));
        memcpy(sample->values + sample->nonzero_count, dataset->values + begin,
               n * sizeof(*sample->values));
        sample->nonzero_count += n;
        sample->row_begin[i + 1] = sample->nonzero_count;
        sample->labels[i] = dataset->labels[row];
        if (i % HELD_OUT == HELD_OUT - 1) {
            sample->test_rows[sample->test_count++] = i;
        } else {
            sample->train_rows[sample->train_count++] = i;
        }
    }
    sample->row_count = count;
}

/* Number only the columns that occur: a trial's memory and time depend on their number. Shape:
 * numbers (dataset->feature_count,), zeros. */
static void sample_compact(struct weft_ml_dataset *sample, const struct weft_ml_dataset *dataset,
                           uint32_t *numbers)
{
    for (uint64_t i = 0; i < sample->nonzero_count; i++) {
        numbers[sample->columns[i]] = 1;
    }
    for (uint32_t c = 0; c < dataset->feature_count; c++) {
        if (numbers[c] != 0) {
            numbers[c] = sample->feature_count;
            sample->feature_ids[sample->feature_count++] = dataset->feature_ids[c];
        }
    }
    for (uint64_t i = 0; i < sample->nonzero_count; i++) {
        sample->columns[i] = numbers[sample->columns[i]];
    }
}

static weft_status sample_init(struct weft_ml_dataset *sample,
                               const struct weft_ml_dataset *dataset, uint32_t count)
{
    uint64_t nonzeros = nonzeros_of(dataset, count);
    uint32_t features = (uint32_t)weft_min_u64(nonzeros, dataset->feature_count);
    uint32_t *numbers = calloc(dataset->feature_count, sizeof(*numbers));
    weft_status status = sample_allocate(sample, count, nonzeros, features);
    if (status == WEFT_OK && numbers != NULL) {
        sample_fill(sample, dataset, count);
        sample_compact(sample, dataset, numbers);
    }
    status = numbers == NULL ? WEFT_NOMEM : status;
    free(numbers);
    return status;
}

/* The AUC of the held-out rows, and so weft_ml_reference_test, needs both classes. */
static bool has_both_classes(const struct weft_ml_dataset *sample)
{
    uint32_t positive = 0;
    for (uint32_t i = 0; i < sample->test_count; i++) {
        positive += sample->labels[sample->test_rows[i]];
    }
    return positive > 0 && positive < sample->test_count;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The loss reached with a rate; infinity if it diverges. */
static weft_status try_rate(const struct weft_ml_dataset *sample,
                            const struct weft_ml_reference_options *options, float rate,
                            double *loss_p)
{
    struct weft_ml_reference_options with = *options;
    struct weft_ml_reference trainer;
    struct weft_ml_quality quality = {.log_loss = INFINITY};
    double train_loss;
    with.learning_rate = rate;
    weft_status status = weft_ml_reference_init(&trainer, sample, &with);
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t e = 0; status == WEFT_OK && e < WEFT_ML_DEFAULT_EPOCHS; e++) {
        status = weft_ml_reference_epoch(&trainer, e, &train_loss);
    }
    if (status == WEFT_OK) {
        status = weft_ml_reference_test(&trainer, &quality);
        status = status == WEFT_DATA ? WEFT_OK : status; /* a score that is not finite */
    }
    weft_ml_reference_fini(&trainer);
    *loss_p = isfinite(quality.log_loss) ? quality.log_loss : INFINITY;
    return status;
}

/* Try the default rate x 4^i, over the whole range: for values far from 1 the loss has a second
 * minimum, where only the bias is learned, and a descent would end there. Then try both
 * neighbours at a factor of 2. Of equal losses the first is used, which is the smallest rate. */
static weft_status search(const struct weft_ml_dataset *sample,
                          const struct weft_ml_reference_options *options, float *rate_p)
{
    float best = options->learning_rate; /* kept if no loss is finite */
    double best_loss = INFINITY;
    for (int i = -STEPS; i <= STEPS + 2; i++) {
        float rate = i <= STEPS ? ldexpf(options->learning_rate, 2 * i)
                                : ldexpf(*rate_p, i == STEPS + 1 ? -1 : 1);
        double loss;
        weft_status status = try_rate(sample, options, rate, &loss);
        if (status != WEFT_OK) {
            return status;
        }
        best = loss < best_loss ? rate : best;
        best_loss = loss < best_loss ? loss : best_loss;
        *rate_p = i <= STEPS ? best : *rate_p;
    }
    *rate_p = best;
    return WEFT_OK;
}

weft_status weft_ml_rate_find(const struct weft_ml_dataset *dataset,
                              enum weft_ml_optimizer optimizer, float l2, uint32_t steps,
                              struct weft_ml_rate *rate_p)
{
    struct weft_ml_reference_options options = weft_ml_reference_defaults(optimizer);
    uint32_t count = sample_rows(dataset);
    options.worker_count = 1;
    options.settings.l2 = l2;
    uint64_t batches = weft_min_u64(weft_max_u64(steps, 1), BATCHES_MAX);
    options.batch_rows =
        (uint32_t)weft_max_u64(weft_div_ceil_u64(count - count / HELD_OUT, batches), 1);
    struct weft_ml_rate found = {.rate = options.learning_rate};
    struct weft_ml_dataset sample = {.row_count = 0};
    weft_status status = WEFT_OK;
    if (count >= WEFT_ML_RATE_ROWS_MIN) {
        status = sample_init(&sample, dataset, count);
        if (status == WEFT_OK && has_both_classes(&sample)) {
            found.rows = count;
            status = search(&sample, &options, &found.rate);
        }
    }
    weft_ml_dataset_fini(&sample);
    if (status == WEFT_OK) {
        *rate_p = found;
    }
    return status;
}
