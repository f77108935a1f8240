#include "ml/compression.h"

#include "ml/lda.h"
#include "ml/share.h"

#include <stdlib.h>
#include <string.h>

struct measure {
    const struct weft_ml_dataset *dataset;
    struct weft_ml_compression_config config;
    struct weft_ml_model model;
    struct weft_ml_batch batch;
    struct weft_ml_share *shares;
    float *weights;    /* (features, topics) */
    float *sums;       /* (features, topics): a step's updates */
    float *pulled;     /* (features, topics): in the order of the batch's ids */
    float *gradient;   /* (features, topics): as pulled */
    bool *is_touched;  /* (features,) */
    uint32_t *touched; /* the features marked in is_touched */
    uint32_t touched_count;
    struct weft_ml_compression *result;
};

static uint64_t entries_of(const float *row, uint32_t topics)
{
    uint64_t entries = 0;
    for (uint32_t k = 0; k < topics; k++) {
        entries += row[k] != 0;
    }
    return entries;
}

/* Add one worker's update of this step; the weights do not change. */
static weft_status add_update(struct measure *m, uint32_t worker, uint32_t step, uint32_t steps,
                              bool counts)
{
    uint32_t topics = m->config.topics;
    const uint32_t *rows;
    uint32_t count;
    weft_ml_share_step(&m->shares[worker], step, steps, &rows, &count);
    weft_status status = weft_ml_model_batch(&m->model, &m->batch, rows, count);
    if (status != WEFT_OK || count == 0) {
        return status;
    }
    for (uint32_t i = 0; i < m->batch.id_count; i++) {
        memcpy(m->pulled + (size_t)i * topics, m->weights + (size_t)m->batch.columns[i] * topics,
               topics * sizeof(float));
    }
    (void)weft_ml_model_gradient(&m->model, &m->batch, m->pulled, m->gradient);
    for (uint32_t i = 0; i < m->batch.id_count; i++) {
        uint32_t column = m->batch.columns[i];
        const float *changed = m->gradient + (size_t)i * topics;
        for (uint32_t k = 0; k < topics; k++) {
            m->sums[(size_t)column * topics + k] += changed[k];
        }
        if (!m->is_touched[column]) {
            m->is_touched[column] = true;
            m->touched[m->touched_count++] = column;
        }
        m->result->entries_separate += counts ? entries_of(changed, topics) : 0;
    }
    m->result->rows_separate += counts ? m->batch.id_count : 0;
    return WEFT_OK;
}

static void apply_sum(struct measure *m, bool counts)
{
    uint32_t topics = m->config.topics;
    for (uint32_t i = 0; i < m->touched_count; i++) {
        uint32_t column = m->touched[i];
        float *sum = m->sums + (size_t)column * topics;
        m->result->entries_together += counts ? entries_of(sum, topics) : 0;
        for (uint32_t k = 0; k < topics; k++) {
            m->weights[(size_t)column * topics + k] += sum[k];
            sum[k] = 0;
        }
        m->is_touched[column] = false;
    }
    m->result->rows_together += counts ? m->touched_count : 0;
    m->result->steps += counts;
    m->touched_count = 0;
}

static weft_status train(struct measure *m)
{
    uint32_t workers = m->config.workers;
    uint32_t steps = weft_ml_share_steps(m->dataset, workers, m->config.batch_rows);
    weft_status status = WEFT_OK;
    for (uint32_t e = 0; e < m->config.epochs; e++) {
        bool counts = e + 1 == m->config.epochs;
        for (uint32_t w = 0; w < workers; w++) {
            weft_ml_share_begin_epoch(&m->shares[w], e);
        }
        for (uint32_t step = 0; step < steps && status == WEFT_OK; step++) {
            for (uint32_t w = 0; w < workers && status == WEFT_OK; w++) {
                status = add_update(m, w, step, steps, counts);
            }
            apply_sum(m, counts);
        }
    }
    return status;
}

static weft_status begin(struct measure *m)
{
    const struct weft_ml_model_kind *kind = NULL;
    size_t features = m->dataset->feature_count;
    size_t row_bytes = m->config.topics * sizeof(float);
    weft_status status = weft_ml_model_find("lda", NULL, &kind);
    struct weft_ml_model_settings settings = kind->settings;
    settings.factors = m->config.topics;
    status = weft_ml_model_init(&m->model, kind, &settings, m->config.seed, m->dataset);
    if (status != WEFT_OK) {
        return status;
    }
    m->weights = calloc(features, row_bytes);
    m->sums = calloc(features, row_bytes);
    m->pulled = calloc(features, row_bytes);
    m->gradient = calloc(features, row_bytes);
    m->is_touched = calloc(features, sizeof(*m->is_touched));
    m->touched = calloc(features, sizeof(*m->touched));
    m->shares = calloc(m->config.workers, sizeof(*m->shares));
    if (m->weights == NULL || m->sums == NULL || m->pulled == NULL || m->gradient == NULL ||
        m->is_touched == NULL || m->touched == NULL || m->shares == NULL) {
        return WEFT_NOMEM;
    }
    status = weft_ml_batch_init(&m->batch, m->dataset);
    for (uint32_t w = 0; status == WEFT_OK && w < m->config.workers; w++) {
        status =
            weft_ml_share_init(&m->shares[w], m->dataset, w, m->config.workers, m->config.seed);
    }
    return status;
}

static void end(struct measure *m)
{
    for (uint32_t w = 0; m->shares != NULL && w < m->config.workers; w++) {
        weft_ml_share_fini(&m->shares[w]);
    }
    weft_ml_batch_fini(&m->batch);
    weft_ml_model_fini(&m->model);
    free(m->shares);
    free(m->weights);
    free(m->sums);
    free(m->pulled);
    free(m->gradient);
    free(m->is_touched);
    free(m->touched);
}

weft_status weft_ml_compression_measure(const struct weft_ml_dataset *dataset,
                                        const struct weft_ml_compression_config *config,
                                        struct weft_ml_compression *compression_p)
{
    struct measure m = {.dataset = dataset, .config = *config, .result = compression_p};
    *compression_p = (struct weft_ml_compression){0};
    if (config->workers == 0 || config->batch_rows == 0 || config->epochs == 0 ||
        dataset->train_count == 0) {
        return WEFT_INVALID;
    }
    weft_status status = begin(&m);
    status = status == WEFT_OK ? train(&m) : status;
    end(&m);
    return status;
}
