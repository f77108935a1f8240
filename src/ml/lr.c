#include "ml/kinds.h"

#include "ml/metrics.h"

#include <string.h>

/* In double precision: a row may have 10^5 nonzeros, and the result depends on the order of
 * additions. */
static double dot(const float *values, const uint32_t *local, uint64_t count, const float *weights)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)weights[local[i]];
    }
    return sum;
}

double weft_ml_lr_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p)
{
    (void)model;
    const struct weft_ml_dataset *set = batch->dataset;
    if (batch->row_count == 0) {
        return 0;
    }
    memset(gradient_p, 0, batch->id_count * sizeof(*gradient_p));
    double scale = 1.0 / batch->row_count;
    double loss = 0;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint32_t row = batch->rows[r];
        uint64_t count = set->row_begin[row + 1] - set->row_begin[row];
        const float *values = set->values + set->row_begin[row];
        double margin = dot(values, local, count, rows);
        loss += weft_ml_log_loss(margin, set->labels[row]);
        double slope = (weft_ml_sigmoid(margin) - set->labels[row]) * scale;
        for (uint64_t i = 0; i < count; i++) {
            gradient_p[local[i]] += (float)(slope * (double)values[i]);
        }
        local += count;
    }
    return loss * scale;
}

void weft_ml_lr_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p)
{
    (void)model;
    const struct weft_ml_dataset *set = batch->dataset;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint64_t begin = set->row_begin[batch->rows[r]];
        uint64_t count = set->row_begin[batch->rows[r] + 1] - begin;
        scores_p[r] = (float)dot(set->values + begin, local, count, rows);
        local += count;
    }
}
