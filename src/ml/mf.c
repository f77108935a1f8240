#include "ml/kinds.h"

#include <string.h>

/* Indices of the three nonzeros of a row in a batch's `local`. */
enum { USER, ITEM, BIAS, NONZEROS };

static double predict(const struct weft_ml_model *model, const uint32_t *local, const float *rows)
{
    uint64_t dim = model->dim;
    const float *user = rows + local[USER] * dim;
    const float *item = rows + local[ITEM] * dim;
    double rating =
        (double)model->offset + (double)rows[local[BIAS] * dim] + (double)user[0] + (double)item[0];
    for (uint64_t f = 1; f < dim; f++) {
        rating += (double)user[f] * (double)item[f];
    }
    return rating;
}

double weft_ml_mf_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p)
{
    uint64_t dim = model->dim;
    if (batch->row_count == 0) {
        return 0;
    }
    memset(gradient_p, 0, batch->id_count * dim * sizeof(*gradient_p));
    double scale = 1.0 / batch->row_count;
    double squares = 0;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++, local += NONZEROS) {
        double error =
            predict(model, local, rows) - (double)batch->dataset->targets[batch->rows[r]];
        squares += error * error;
        double slope = error * scale;
        const float *user = rows + local[USER] * dim;
        const float *item = rows + local[ITEM] * dim;
        float *to_user = gradient_p + local[USER] * dim;
        float *to_item = gradient_p + local[ITEM] * dim;
        to_user[0] += (float)slope;
        to_item[0] += (float)slope;
        gradient_p[local[BIAS] * dim] += (float)slope;
        for (uint64_t f = 1; f < dim; f++) {
            to_user[f] += (float)(slope * (double)item[f]);
            to_item[f] += (float)(slope * (double)user[f]);
        }
    }
    return squares * scale;
}

void weft_ml_mf_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p)
{
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++, local += NONZEROS) {
        scores_p[r] = (float)predict(model, local, rows);
    }
}
