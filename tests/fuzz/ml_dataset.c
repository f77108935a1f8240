/* A whole data file of any bytes, plain or compressed, in the format that the first byte selects: a
 * data set that loads fulfils the contract of dataset.h, and can be made into a batch and
 * evaluated. */
#include "base/assert.h"
#include "ml/kinds.h"
#include "ml/lda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A few hundred bytes of zstd can decompress to gigabytes of zeros. One huge line is refused, but
 * many empty lines are valid, and slow. So the input length is limited. */
enum { INPUT_BYTES_MAX = 4096 };

static uint64_t id_in_data(const struct weft_ml_dataset *set, uint64_t nonzero)
{
    uint64_t id = set->feature_ids[set->columns[nonzero]];
    return id == WEFT_ML_BIAS_TWIN ? WEFT_ML_BIAS_ID : id;
}

static void check_dataset(const struct weft_ml_dataset *set)
{
    WEFT_ASSERT(set->row_count > 0 && set->row_count == set->train_count + set->test_count);
    WEFT_ASSERT(set->row_begin[set->row_count] == set->nonzero_count);
    for (uint32_t r = 0; r < set->row_count; r++) {
        WEFT_ASSERT(!set->has_ratings || set->row_begin[r + 1] - set->row_begin[r] == 3);
        WEFT_ASSERT(isfinite(set->targets[r]));
        WEFT_ASSERT(set->feature_ids[set->columns[set->row_begin[r + 1] - 1]] == WEFT_ML_BIAS_ID);
        for (uint64_t i = set->row_begin[r]; i < set->row_begin[r + 1]; i++) {
            WEFT_ASSERT(set->columns[i] < set->feature_count);
            WEFT_ASSERT(i == set->row_begin[r] || i + 1 == set->row_begin[r + 1] ||
                        id_in_data(set, i) > id_in_data(set, i - 1));
            WEFT_ASSERT(isfinite(set->values[i]) && set->values[i] != 0);
        }
    }
}

/* All test rows at zero weights: every margin is 0, so the loss is log 2. */
static void check_batch(const struct weft_ml_dataset *set)
{
    struct weft_ml_batch batch;
    float *zeros = calloc(set->feature_count, sizeof(*zeros));
    float *gradient = calloc(set->feature_count, sizeof(*gradient));
    WEFT_ASSERT(zeros != NULL && gradient != NULL);
    weft_status status = weft_ml_batch_init(&batch, set);
    WEFT_ASSERT(status == WEFT_OK);
    status = weft_ml_batch_build(&batch, set->test_rows, set->test_count);
    WEFT_ASSERT(status == WEFT_OK);
    double loss = weft_ml_lr_gradient(NULL, &batch, zeros, gradient);
    WEFT_ASSERT(set->test_count == 0 || fabs(loss - log(2)) < 1e-9);
    weft_ml_batch_fini(&batch);
    free(zeros);
    free(gradient);
}

/* Draw the topics of all training documents once: afterwards the word counts sum to the number of
 * tokens, and so do the totals. */
static void check_topics(const struct weft_ml_dataset *set)
{
    const struct weft_ml_model_kind *kind = NULL;
    struct weft_ml_model model;
    struct weft_ml_batch batch;
    weft_status status = weft_ml_model_find("lda", NULL, &kind);
    WEFT_ASSERT(status == WEFT_OK);
    uint64_t tokens = weft_ml_lda_tokens(set, false);
    if (tokens > 100000 || weft_ml_model_init(&model, kind, &kind->settings, 1, set) != WEFT_OK) {
        return; /* too slow, or no training documents */
    }
    size_t floats = (size_t)set->feature_count * model.dim;
    float *rows = calloc(floats, sizeof(*rows)), *changed = calloc(floats, sizeof(*changed));
    WEFT_ASSERT(rows != NULL && changed != NULL);
    status = weft_ml_batch_init(&batch, set);
    WEFT_ASSERT(status == WEFT_OK);
    status = weft_ml_batch_build(&batch, set->train_rows, set->train_count);
    WEFT_ASSERT(status == WEFT_OK);
    double sum = 0, loss = weft_ml_model_gradient(&model, &batch, rows, changed);
    for (size_t i = 0; i < (size_t)batch.id_count * model.dim; i++) {
        sum += (double)changed[i];
    }
    WEFT_ASSERT(isfinite(loss) && sum == 2.0 * (double)tokens);
    weft_ml_batch_fini(&batch);
    weft_ml_model_fini(&model);
    free(rows);
    free(changed);
}

static const char *format_name(uint8_t letter)
{
    switch (letter) {
    case 'a':
        return "adult";
    case 'c':
        return "criteo";
    case 'd':
        return "docword";
    case 'm':
        return "movielens";
    case 't':
        return "tsv";
    default:
        return "libsvm";
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > INPUT_BYTES_MAX) {
        return 0;
    }
    const struct weft_ml_format *format = NULL;
    weft_status status = weft_ml_format_find(format_name(data[0]), NULL, &format);
    WEFT_ASSERT(status == WEFT_OK);
    struct weft_error error = {0};
    struct weft_ml_dataset set;
    status = weft_ml_dataset_load_memory("fuzz", data + 1, size - 1, format, &error, &set);
    if (status != WEFT_OK) {
        WEFT_ASSERT(status == WEFT_DATA && strncmp(error.text, "fuzz:", 5) == 0);
        return 0;
    }
    check_dataset(&set);
    check_batch(&set);
    if (set.has_counts) {
        check_topics(&set);
    }
    weft_ml_dataset_fini(&set);
    return 0;
}
