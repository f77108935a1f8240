#include "ml/kinds.h"

#include "ml/metrics.h"

#include <string.h>

/* The output rows, which follow those of the batch's ids. */
enum { OUTPUT_WEIGHTS, OUTPUT_BIAS };

/* Return the margin; hidden_p (dim,) is set to max(h, 0). */
static double margin_of(const struct weft_ml_item *item, const float *rows, const float *output,
                        uint64_t dim, float *hidden_p)
{
    memset(hidden_p, 0, dim * sizeof(*hidden_p));
    for (uint64_t i = 0; i <= item->count; i++) {
        const float *row = rows + item->local[i] * dim;
        float x = item->values[i];
        for (uint64_t j = 0; j < dim; j++) {
            hidden_p[j] += x * row[j];
        }
    }
    double margin = (double)output[OUTPUT_BIAS * dim];
    for (uint64_t j = 0; j < dim; j++) {
        hidden_p[j] = hidden_p[j] > 0.0F ? hidden_p[j] : 0.0F;
        margin += (double)output[OUTPUT_WEIGHTS * dim + j] * (double)hidden_p[j];
    }
    return margin;
}

static void add_slopes(const struct weft_ml_item *item, const float *hidden, const float *output,
                       float slope, uint64_t dim, float *gradient_p, float *output_p)
{
    float back[WEFT_ML_FACTORS_MAX];
    for (uint64_t j = 0; j < dim; j++) {
        output_p[OUTPUT_WEIGHTS * dim + j] += slope * hidden[j];
        back[j] = hidden[j] > 0.0F ? slope * output[OUTPUT_WEIGHTS * dim + j] : 0.0F;
    }
    output_p[OUTPUT_BIAS * dim] += slope;
    for (uint64_t i = 0; i <= item->count; i++) {
        float *to = gradient_p + item->local[i] * dim;
        float x = item->values[i];
        for (uint64_t j = 0; j < dim; j++) {
            to[j] += x * back[j];
        }
    }
}

double weft_ml_mlp_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                            const float *rows, float *gradient_p)
{
    float hidden[WEFT_ML_FACTORS_MAX];
    uint64_t dim = model->dim;
    uint64_t row_count = weft_ml_model_rows(model, batch->id_count);
    /* Also for an empty batch: all rows of the table are pushed. */
    memset(gradient_p, 0, row_count * dim * sizeof(*gradient_p));
    if (batch->row_count == 0) {
        return 0;
    }
    const float *output = rows + batch->id_count * dim;
    float *output_p = gradient_p + batch->id_count * dim;
    double scale = 1.0 / batch->row_count;
    double loss = 0;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        struct weft_ml_item item = weft_ml_item_at(batch, r, local);
        uint8_t label = batch->dataset->labels[batch->rows[r]];
        double margin = margin_of(&item, rows, output, dim, hidden);
        loss += weft_ml_log_loss(margin, label);
        add_slopes(&item, hidden, output, (float)((weft_ml_sigmoid(margin) - label) * scale), dim,
                   gradient_p, output_p);
        local += item.count + 1;
    }
    return loss * scale;
}

void weft_ml_mlp_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                        const float *rows, float *scores_p)
{
    float hidden[WEFT_ML_FACTORS_MAX];
    const float *output = rows + (uint64_t)batch->id_count * model->dim;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        struct weft_ml_item item = weft_ml_item_at(batch, r, local);
        scores_p[r] = (float)margin_of(&item, rows, output, model->dim, hidden);
        local += item.count + 1;
    }
}
