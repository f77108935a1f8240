#include "ml/reference.h"

#include "base/prng.h"
#include "ml/defaults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weft_ml_reference_memory {
    struct weft_ml_share *shares; /* (worker_count,) */
    struct weft_ml_batch batch;
    struct weft_prng prng; /* decides which chunks are lost */
    uint32_t row_count;    /* in the table: one per column, and the output rows */
    float *sums;           /* (row_count, dim): sum of the step's gradients; zero outside a step */
    float *squares;        /* (row_count, dim): Adagrad's s */
    float *pulled;         /* (row_count, dim): the batch's rows */
    float *gradient;       /* (row_count, dim): for the batch's rows */
    uint32_t *touched;     /* (row_count,): rows in some worker's gradient, each once */
    uint8_t *is_touched;   /* (row_count,) */
    uint32_t touched_count;
};

struct weft_ml_reference_options
weft_ml_reference_defaults_of(const struct weft_ml_model_kind *kind,
                              enum weft_ml_optimizer optimizer)
{
    bool is_sgd = optimizer == WEFT_ML_SGD;
    return (struct weft_ml_reference_options){
        .kind = kind,
        .settings = kind->settings,
        .optimizer = optimizer,
        .worker_count = 4,
        .batch_rows = WEFT_ML_DEFAULT_BATCH_ROWS,
        .learning_rate = is_sgd ? kind->pace.sgd_rate : kind->pace.adagrad_rate,
        .epsilon = WEFT_ML_DEFAULT_ADAGRAD_EPSILON,
        .accumulator = kind->pace.adagrad_accumulator,
        .seed = WEFT_ML_DEFAULT_SEED,
        .chunk_ids = 96,
    };
}

struct weft_ml_reference_options weft_ml_reference_defaults(enum weft_ml_optimizer optimizer)
{
    return weft_ml_reference_defaults_of(&weft_ml_model_kinds[0], optimizer);
}

static void begin_weights(struct weft_ml_reference *reference)
{
    const struct weft_ml_dataset *set = reference->dataset;
    size_t dim = reference->model.dim;
    size_t row_count = reference->memory->row_count;
    for (size_t i = 0; i < row_count; i++) {
        weft_ml_model_initial_row(&reference->model,
                                  reference->model.kind->is_dense ? i : set->feature_ids[i],
                                  reference->weights + i * dim);
    }
    for (size_t i = 0; i < row_count * dim; i++) {
        reference->memory->squares[i] = reference->options.accumulator;
    }
}

static weft_status init_memory(struct weft_ml_reference *reference)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    const struct weft_ml_dataset *set = reference->dataset;
    memory->row_count = weft_ml_model_rows(&reference->model, set->feature_count);
    size_t count = memory->row_count;
    size_t row_bytes = reference->model.dim * sizeof(float);
    memory->sums = calloc(count, row_bytes);
    memory->squares = calloc(count, row_bytes);
    memory->pulled = calloc(count, row_bytes);
    memory->gradient = calloc(count, row_bytes);
    memory->touched = calloc(count, sizeof(*memory->touched));
    memory->is_touched = calloc(count, sizeof(*memory->is_touched));
    reference->weights = calloc(count, row_bytes);
    uint32_t workers = reference->options.worker_count;
    memory->shares = calloc(workers, sizeof(*memory->shares));
    if (memory->sums == NULL || memory->squares == NULL || memory->pulled == NULL ||
        memory->gradient == NULL || memory->touched == NULL || memory->is_touched == NULL ||
        reference->weights == NULL || memory->shares == NULL) {
        return WEFT_NOMEM;
    }
    begin_weights(reference);
    weft_status status = weft_ml_batch_init(&memory->batch, set);
    for (uint32_t w = 0; status == WEFT_OK && w < workers; w++) {
        status = weft_ml_share_init(&memory->shares[w], set, w, workers, reference->options.seed);
    }
    weft_prng_split(&memory->prng, reference->options.seed, UINT64_MAX);
    return status;
}

weft_status weft_ml_reference_init(struct weft_ml_reference *reference,
                                   const struct weft_ml_dataset *dataset,
                                   const struct weft_ml_reference_options *options)
{
    if (dataset->train_count == 0 || options->worker_count == 0 || options->batch_rows == 0 ||
        options->chunk_ids == 0 ||
        (options->kind->counts_topics &&
         (options->loss_ppm > 0 || options->optimizer != WEFT_ML_SGD))) {
        return WEFT_INVALID;
    }
    struct weft_ml_model model;
    weft_status status =
        weft_ml_model_init(&model, options->kind, &options->settings, options->seed, dataset);
    if (status != WEFT_OK) {
        return status;
    }
    *reference =
        (struct weft_ml_reference){.dataset = dataset, .options = *options, .model = model};
    reference->memory = calloc(1, sizeof(*reference->memory));
    status = reference->memory == NULL ? WEFT_NOMEM : init_memory(reference);
    if (status != WEFT_OK) {
        weft_ml_reference_fini(reference);
    }
    return status;
}

void weft_ml_reference_fini(struct weft_ml_reference *reference)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    if (memory != NULL) {
        for (uint32_t w = 0; memory->shares != NULL && w < reference->options.worker_count; w++) {
            weft_ml_share_fini(&memory->shares[w]);
        }
        weft_ml_batch_fini(&memory->batch);
        free(memory->shares);
        free(memory->sums);
        free(memory->squares);
        free(memory->pulled);
        free(memory->gradient);
        free(memory->touched);
        free(memory->is_touched);
        free(memory);
    }
    free(reference->weights);
    weft_ml_model_fini(&reference->model);
    *reference = (struct weft_ml_reference){0};
}

/* Index in the table of the k-th row of the batch: the output rows follow the columns. */
static uint32_t row_at(const struct weft_ml_reference *reference, uint32_t k)
{
    const struct weft_ml_batch *batch = &reference->memory->batch;
    return k < batch->id_count ? batch->columns[k]
                               : reference->dataset->feature_count + k - batch->id_count;
}

/* Copy the weights of the batch's rows. */
static void pull(struct weft_ml_reference *reference)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    size_t dim = reference->model.dim;
    uint32_t row_count = weft_ml_model_rows(&reference->model, memory->batch.id_count);
    for (uint32_t k = 0; k < row_count; k++) {
        memcpy(memory->pulled + k * dim, reference->weights + row_at(reference, k) * dim,
               dim * sizeof(float));
    }
}

/* Add the part of the batch's gradient that arrives to the sums. */
static void push(struct weft_ml_reference *reference)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    const struct weft_ml_reference_options *options = &reference->options;
    uint32_t row_count = weft_ml_model_rows(&reference->model, memory->batch.id_count);
    size_t dim = reference->model.dim;
    for (uint32_t begin = 0; begin < row_count; begin += options->chunk_ids) {
        if (weft_prng_chance(&memory->prng, options->loss_ppm)) {
            continue;
        }
        uint32_t end = (uint32_t)weft_min_u64((uint64_t)begin + options->chunk_ids, row_count);
        for (uint32_t k = begin; k < end; k++) {
            uint32_t column = row_at(reference, k);
            if (memory->is_touched[column] == 0) {
                memory->is_touched[column] = 1;
                memory->touched[memory->touched_count++] = column;
            }
            for (size_t c = 0; c < dim; c++) {
                memory->sums[column * dim + c] += memory->gradient[k * dim + c];
            }
        }
    }
}

static void update_weight(struct weft_ml_reference *reference, size_t index, float gradient)
{
    const struct weft_ml_reference_options *options = &reference->options;
    float *weight = &reference->weights[index];
    if (options->optimizer == WEFT_ML_SGD) {
        *weight -= options->learning_rate * gradient;
        return;
    }
    float *square = &reference->memory->squares[index];
    *square += gradient * gradient;
    *weight -= options->learning_rate * gradient / (sqrtf(*square) + options->epsilon);
}

static void update_touched(struct weft_ml_reference *reference)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    size_t dim = reference->model.dim;
    float divisor =
        reference->model.kind->counts_topics ? 1.0F : (float)reference->options.worker_count;
    for (uint32_t i = 0; i < memory->touched_count; i++) {
        uint32_t column = memory->touched[i];
        for (size_t at = column * dim; at < (column + 1) * dim; at++) {
            update_weight(reference, at, memory->sums[at] / divisor);
            memory->sums[at] = 0;
        }
        memory->is_touched[column] = 0;
    }
    memory->touched_count = 0;
}

weft_status weft_ml_reference_epoch(struct weft_ml_reference *reference, uint32_t epoch,
                                    double *loss_p)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    uint32_t workers = reference->options.worker_count;
    uint32_t steps =
        weft_ml_share_steps(reference->dataset, workers, reference->options.batch_rows);
    double loss = 0;
    for (uint32_t w = 0; w < workers; w++) {
        weft_ml_share_begin_epoch(&memory->shares[w], epoch);
    }
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t w = 0; w < workers; w++) {
            const uint32_t *rows = NULL;
            uint32_t count = 0;
            weft_ml_share_step(&memory->shares[w], s, steps, &rows, &count);
            weft_status status =
                weft_ml_model_batch(&reference->model, &memory->batch, rows, count);
            if (status != WEFT_OK) {
                return status;
            }
            pull(reference);
            loss += weft_ml_model_gradient(&reference->model, &memory->batch, memory->pulled,
                                           memory->gradient);
            push(reference);
        }
        update_touched(reference);
    }
    *loss_p = loss / workers / steps;
    return WEFT_OK;
}

weft_status weft_ml_reference_test(struct weft_ml_reference *reference,
                                   struct weft_ml_quality *quality_p)
{
    struct weft_ml_reference_memory *memory = reference->memory;
    const struct weft_ml_dataset *set = reference->dataset;
    weft_status status =
        weft_ml_model_batch(&reference->model, &memory->batch, set->test_rows, set->test_count);
    if (status != WEFT_OK) {
        return status;
    }
    pull(reference);
    return weft_ml_model_evaluate(&reference->model, &memory->batch, memory->pulled, quality_p);
}
