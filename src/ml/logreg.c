#include "ml/logreg.h"

#include "ml/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In double: a row may have 10^5 nonzeros, and the order of additions is part of the result. */
static double dot(const float *values, const uint32_t *local, uint64_t count, const float *weights)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)weights[local[i]];
    }
    return sum;
}

double weft_ml_batch_gradient(const struct weft_ml_batch *batch, const float *weights,
                              float *gradient_p)
{
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
        double margin = dot(values, local, count, weights);
        loss += weft_ml_log_loss(margin, set->labels[row]);
        double slope = (weft_ml_sigmoid(margin) - set->labels[row]) * scale;
        for (uint64_t i = 0; i < count; i++) {
            gradient_p[local[i]] += (float)(slope * (double)values[i]);
        }
        local += count;
    }
    return loss * scale;
}

void weft_ml_batch_margins(const struct weft_ml_batch *batch, const float *weights,
                           float *margins_p)
{
    const struct weft_ml_dataset *set = batch->dataset;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint64_t begin = set->row_begin[batch->rows[r]];
        uint64_t count = set->row_begin[batch->rows[r] + 1] - begin;
        margins_p[r] = (float)dot(set->values + begin, local, count, weights);
        local += count;
    }
}

weft_status weft_ml_batch_evaluate(const struct weft_ml_batch *batch, const float *weights,
                                   struct weft_ml_quality *quality_p)
{
    size_t count = weft_max_u64(batch->row_count, 1);
    float *margins = malloc(count * sizeof(*margins));
    uint8_t *labels = malloc(count);
    if (margins == NULL || labels == NULL) {
        free(margins);
        free(labels);
        return WEFT_NOMEM;
    }
    weft_ml_batch_margins(batch, weights, margins);
    double loss = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        labels[r] = batch->dataset->labels[batch->rows[r]];
        loss += weft_ml_log_loss((double)margins[r], labels[r]);
    }
    double auc = 0;
    weft_status status = weft_ml_auc(margins, labels, batch->row_count, &auc);
    if (status == WEFT_OK) {
        *quality_p = (struct weft_ml_quality){
            .row_count = batch->row_count, .log_loss = loss / batch->row_count, .auc = auc};
    }
    free(margins);
    free(labels);
    return status;
}
