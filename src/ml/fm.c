#include "ml/kinds.h"

#include "ml/metrics.h"

#include <string.h>

/* Return the margin; sums_p (factors,) is set to s of kinds.h. */
static double margin_of(const struct weft_ml_item *item, const float *rows, uint32_t factors,
                        double *sums_p)
{
    uint64_t dim = (uint64_t)factors + 1;
    double margin = (double)rows[item->local[item->count] * dim];
    double squares = 0;
    memset(sums_p, 0, factors * sizeof(*sums_p));
    for (uint64_t i = 0; i < item->count; i++) {
        const float *row = rows + item->local[i] * dim;
        double x = (double)item->values[i];
        margin += (double)row[0] * x;
        for (uint32_t f = 0; f < factors; f++) {
            double term = (double)row[1 + f] * x;
            sums_p[f] += term;
            squares += term * term;
        }
    }
    double crossed = 0;
    for (uint32_t f = 0; f < factors; f++) {
        crossed += sums_p[f] * sums_p[f];
    }
    return margin + (crossed - squares) / 2;
}

static void add_slopes(const struct weft_ml_item *item, const float *rows, uint32_t factors,
                       const double *sums, double slope, float *gradient_p)
{
    uint64_t dim = (uint64_t)factors + 1;
    for (uint64_t i = 0; i < item->count; i++) {
        const float *row = rows + item->local[i] * dim;
        float *to = gradient_p + item->local[i] * dim;
        double x = (double)item->values[i];
        to[0] += (float)(slope * x);
        for (uint32_t f = 0; f < factors; f++) {
            to[1 + f] += (float)(slope * x * (sums[f] - (double)row[1 + f] * x));
        }
    }
    gradient_p[item->local[item->count] * dim] += (float)slope;
}

double weft_ml_fm_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p)
{
    uint32_t factors = model->settings.factors;
    double sums[WEFT_ML_FACTORS_MAX];
    if (batch->row_count == 0) {
        return 0;
    }
    memset(gradient_p, 0, (size_t)batch->id_count * model->dim * sizeof(*gradient_p));
    double scale = 1.0 / batch->row_count;
    double loss = 0;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        struct weft_ml_item item = weft_ml_item_at(batch, r, local);
        uint8_t label = batch->dataset->labels[batch->rows[r]];
        double margin = margin_of(&item, rows, factors, sums);
        loss += weft_ml_log_loss(margin, label);
        add_slopes(&item, rows, factors, sums, (weft_ml_sigmoid(margin) - label) * scale,
                   gradient_p);
        local += item.count + 1;
    }
    return loss * scale;
}

void weft_ml_fm_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p)
{
    double sums[WEFT_ML_FACTORS_MAX];
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        struct weft_ml_item item = weft_ml_item_at(batch, r, local);
        scores_p[r] = (float)margin_of(&item, rows, model->settings.factors, sums);
        local += item.count + 1;
    }
}
