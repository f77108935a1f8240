#include "ml/model.h"

#include "base/assert.h"
#include "base/init.h"
#include "ml/defaults.h"
#include "ml/kinds.h"
#include "ml/lda.h"
#include "ml/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct weft_ml_model_kind weft_ml_model_kinds[] = {
    {
        .name = "lr",
        .help = "logistic regression",
        .pace = WEFT_ML_DEFAULT_LR_PACE,
        .gradient = weft_ml_lr_gradient,
        .scores = weft_ml_lr_scores,
    },
    {
        .name = "fm",
        .help = "factorization machine",
        .has_factors = true,
        .settings = WEFT_ML_DEFAULT_FM_SETTINGS,
        .pace = WEFT_ML_DEFAULT_FM_PACE,
        .gradient = weft_ml_fm_gradient,
        .scores = weft_ml_fm_scores,
    },
    {
        .name = "mf",
        .help = "matrix factorization of ratings",
        .has_factors = true,
        .predicts_ratings = true,
        .settings = WEFT_ML_DEFAULT_MF_SETTINGS,
        .pace = WEFT_ML_DEFAULT_MF_PACE,
        .gradient = weft_ml_mf_gradient,
        .scores = weft_ml_mf_scores,
    },
    {
        .name = "mlp",
        .help = "neural network with one hidden layer",
        .has_factors = true,
        .is_dense = true,
        .settings = WEFT_ML_DEFAULT_MLP_SETTINGS,
        .pace = WEFT_ML_DEFAULT_MLP_PACE,
        .gradient = weft_ml_mlp_gradient,
        .scores = weft_ml_mlp_scores,
    },
    {
        .name = "lda",
        .help = "latent Dirichlet allocation: topics of documents",
        .has_factors = true,
        .counts_topics = true,
        .settings = WEFT_ML_DEFAULT_LDA_SETTINGS,
        .pace = WEFT_ML_DEFAULT_LDA_PACE,
        .gradient = weft_ml_lda_gradient,
    },
    {.name = NULL},
};

weft_status weft_ml_model_find(const char *name, struct weft_error *error,
                               const struct weft_ml_model_kind **kind_p)
{
    char known[64] = "";
    for (const struct weft_ml_model_kind *kind = weft_ml_model_kinds; kind->name != NULL; kind++) {
        if (strcmp(name, kind->name) == 0) {
            *kind_p = kind;
            return WEFT_OK;
        }
        strncat(known, known[0] != '\0' ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, kind->name, sizeof(known) - strlen(known) - 1);
    }
    return weft_fail(error, WEFT_NOTFOUND, "unknown model \"%s\"; known: %s",
                     weft_ml_quote(name, strlen(name)).text, known);
}

static float mean_target(const struct weft_ml_dataset *dataset)
{
    double sum = 0;
    for (uint32_t i = 0; i < dataset->train_count; i++) {
        sum += (double)dataset->targets[dataset->train_rows[i]];
    }
    return dataset->train_count > 0 ? (float)(sum / dataset->train_count) : 0.0F;
}

/* True if a row has only factors, without a linear weight or bias first. */
static bool has_factors_alone(const struct weft_ml_model_kind *kind)
{
    return kind->is_dense || kind->counts_topics;
}

uint32_t weft_ml_model_dim(const struct weft_ml_model_kind *kind, uint32_t factors)
{
    return !kind->has_factors ? 1 : has_factors_alone(kind) ? factors : 1 + factors;
}

bool weft_ml_model_factors(const struct weft_ml_model_kind *kind, uint32_t dim, uint32_t *factors_p)
{
    uint32_t least = kind->has_factors && !has_factors_alone(kind) ? 2 : 1;
    uint32_t most = kind->has_factors ? weft_ml_model_dim(kind, WEFT_ML_FACTORS_MAX) : 1;
    *factors_p = has_factors_alone(kind) ? dim : dim - 1;
    return dim >= least && dim <= most;
}

weft_status weft_ml_model_init(struct weft_ml_model *model, const struct weft_ml_model_kind *kind,
                               const struct weft_ml_model_settings *settings, uint64_t seed,
                               const struct weft_ml_dataset *dataset)
{
    struct weft_ml_model made = {.kind = kind, .settings = *settings};
    if (!kind->has_factors) {
        made.settings.factors = 0;
        made.settings.init_scale = 0;
    } else if (settings->factors == 0 || settings->factors > WEFT_ML_FACTORS_MAX) {
        return WEFT_INVALID;
    }
    if ((kind->predicts_ratings && !dataset->has_ratings) ||
        kind->counts_topics != dataset->has_counts) {
        return WEFT_INVALID;
    }
    made.dim = weft_ml_model_dim(kind, made.settings.factors);
    made.init_seed = kind->has_factors && !kind->counts_topics ? seed : 0;
    made.offset = kind->predicts_ratings ? mean_target(dataset) : 0.0F;
    made.words = kind->counts_topics ? dataset->feature_count - 1 : 0;
    weft_status status = kind->counts_topics ? weft_ml_lda_new(dataset, seed, &made.lda) : WEFT_OK;
    if (status == WEFT_OK) {
        *model = made;
    }
    return status;
}

void weft_ml_model_fini(struct weft_ml_model *model)
{
    weft_ml_lda_free(model->lda);
    *model = (struct weft_ml_model){0};
}

weft_status weft_ml_model_batch(const struct weft_ml_model *model, struct weft_ml_batch *batch,
                                const uint32_t *rows, uint32_t row_count)
{
    return model->kind->is_dense ? weft_ml_batch_build_whole(batch, rows, row_count)
                                 : weft_ml_batch_build(batch, rows, row_count);
}

void weft_ml_model_initial_row(const struct weft_ml_model *model, uint64_t id, float *row_p)
{
    uint32_t random_from = model->kind->is_dense ? 0 : 1;
    row_p[0] = 0;
    for (uint32_t c = random_from; c < model->dim; c++) {
        row_p[c] = weft_init_value(model->init_seed, id, c, model->settings.init_scale);
    }
}

/* The last nonzero of a row is the bias, which is not regularized. */
static void add_l2(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                   const float *rows, float *gradient_p)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t dim = model->dim;
    float pull = model->settings.l2 / (float)batch->row_count;
    const uint32_t *local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint64_t count = set->row_begin[batch->rows[r] + 1] - set->row_begin[batch->rows[r]];
        for (uint64_t i = 0; i + 1 < count; i++) {
            const float *row = rows + local[i] * dim;
            float *to = gradient_p + local[i] * dim;
            for (uint64_t c = 0; c < dim; c++) {
                to[c] += pull * row[c];
            }
        }
        local += count;
    }
}

double weft_ml_model_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                              const float *rows, float *gradient_p)
{
    double loss = model->kind->gradient(model, batch, rows, gradient_p);
    if (model->settings.l2 > 0 && batch->row_count > 0) {
        add_l2(model, batch, rows, gradient_p);
    }
    return loss;
}

void weft_ml_model_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                          const float *rows, float *scores_p)
{
    model->kind->scores(model, batch, rows, scores_p);
}

static weft_status judge_ratings(const struct weft_ml_batch *batch, const float *scores,
                                 struct weft_ml_quality *quality_p)
{
    double squares = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        double error = (double)scores[r] - (double)batch->dataset->targets[batch->rows[r]];
        squares += error * error;
    }
    double rmse = sqrt(squares / (double)weft_max_u64(batch->row_count, 1));
    if (!isfinite(rmse)) {
        return WEFT_DATA;
    }
    *quality_p = (struct weft_ml_quality){.row_count = batch->row_count, .rmse = rmse};
    return WEFT_OK;
}

static weft_status judge_clicks(const struct weft_ml_batch *batch, const float *scores,
                                struct weft_ml_quality *quality_p)
{
    uint8_t *labels = malloc(weft_max_u64(batch->row_count, 1));
    if (labels == NULL) {
        return WEFT_NOMEM;
    }
    double loss = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        labels[r] = batch->dataset->labels[batch->rows[r]];
        loss += weft_ml_log_loss((double)scores[r], labels[r]);
    }
    double auc = 0;
    weft_status status = weft_ml_auc(scores, labels, batch->row_count, &auc);
    free(labels);
    if (status == WEFT_OK) {
        *quality_p = (struct weft_ml_quality){
            .row_count = batch->row_count, .log_loss = loss / batch->row_count, .auc = auc};
    }
    return status;
}

weft_status weft_ml_model_evaluate(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   struct weft_ml_quality *quality_p)
{
    if (model->kind->counts_topics) {
        *quality_p = (struct weft_ml_quality){.row_count = batch->row_count};
        return weft_ml_lda_perplexity(model, batch, rows, &quality_p->perplexity);
    }
    float *scores = malloc(weft_max_u64(batch->row_count, 1) * sizeof(*scores));
    if (scores == NULL) {
        return WEFT_NOMEM;
    }
    weft_ml_model_scores(model, batch, rows, scores);
    weft_status status = model->kind->predicts_ratings ? judge_ratings(batch, scores, quality_p)
                                                       : judge_clicks(batch, scores, quality_p);
    free(scores);
    return status;
}
