/* A model as a worker of a parameter server sees it: rows of floats by feature id, a batch of data,
 * and from the two a loss and a gradient of the same shape; or a score for each row of the batch.
 *
 *     lr   logistic regression          row of a feature = [w]
 *     fm   factorization machine        row of a feature = [w, v_1 .. v_k]
 *     mf   matrix factorization         row of a user or an item = [b, p_1 .. p_k]
 *     mlp  one hidden layer             row of a feature = its weights to the k hidden units
 *     lda  topics of documents          row of a word    = how often it has each of the k topics
 *
 * One table holds all rows. Its width is 1 + k for lr, fm and mf: the bias feature (row.h) has a row
 * like the others, of which only column 0 is used; column 0 starts at zero, the factors at
 * weft_init_value(seed, id, column, scale) of base/init.h, which servers compute as well.
 *
 * mlp is a dense model: its table is one vector that every step pulls and pushes whole. Row r is that
 * of the feature in column r of the data set; behind the features' rows come WEFT_ML_OUTPUT_ROWS
 * more, the weights of the hidden units to the output and the output's bias. The bias feature's row
 * has the biases of the hidden units. All begin at weft_init_value(seed, r, column, scale).
 *
 * L2 is here, not on the server: a feature's row gains l2 / n times itself for each row of the
 * batch (n rows) that names it, the bias excepted. So what is learnt from often is held down more
 * often, and a batch's objective is the mean over its rows of
 *
 *     loss + l2 / 2 * (sum over the features of the row of their squared norms)
 *
 * Not here: optimizers and averaging over workers (the server, or reference.h).
 *
 * Source: Rendle 2010, Factorization Machines, sections III and V; Koren, Bell and Volinsky 2009;
 *         docs/MODELS.md, a section on each.
 */
#ifndef WEFT_ML_MODEL_H
#define WEFT_ML_MODEL_H

#include "ml/batch.h"

enum { WEFT_ML_FACTORS_MAX = 255 }; /* a row is then one block of a push */

/* Rows of a dense model behind those of the features. In a saved model they have the ids
 * WEFT_ML_OUTPUT_ID, WEFT_ML_OUTPUT_ID + 1: larger than any feature's. */
enum { WEFT_ML_OUTPUT_ROWS = 2 };
#define WEFT_ML_OUTPUT_ID ((uint64_t)INT64_MAX + 1)

struct weft_ml_model;

struct weft_ml_model_settings {
    uint32_t factors; /* k; of mlp: hidden units, of lda: topics; ignored by lr */
    float l2;
    float init_scale; /* of factors, before the first update */
    float alpha;      /* lda: prior of a document's topics */
    float beta;       /* lda: prior of a topic's words */
};

/* What training with Adagrad resp. SGD needs beside the settings; see defaults.h. */
struct weft_ml_model_pace {
    uint32_t epochs;
    float adagrad_rate;
    float adagrad_accumulator;
    float sgd_rate;
};

struct weft_ml_model_kind {
    const char *name; /* as on the command line */
    const char *help;
    bool has_factors;
    bool is_dense; /* every batch is of all features; rows of the output stand behind them */
    bool predicts_ratings; /* needs a data set with ratings; scores are ratings, not margins */
    bool counts_topics;    /* needs a data set with counts; what is pushed is added to the rows as it
                            * is, and nothing of it may be lost; no scores */
    struct weft_ml_model_settings settings; /* defaults, found with `pace` (docs/MODELS.md) */
    struct weft_ml_model_pace pace;

    /* The data's part of weft_ml_model_gradient, and weft_ml_model_scores. */
    double (*gradient)(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *gradient_p);
    void (*scores)(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                   const float *rows, float *scores_p);
};

/* All kinds; ends with a NULL name. */
extern const struct weft_ml_model_kind weft_ml_model_kinds[];

/* Errors:  WEFT_NOTFOUND   unknown; the text lists the known names. */
weft_status weft_ml_model_find(const char *name, struct weft_error *error,
                               const struct weft_ml_model_kind **kind_p);

struct weft_ml_lda; /* lda.h */

struct weft_ml_model {
    const struct weft_ml_model_kind *kind;
    struct weft_ml_model_settings settings;
    uint32_t dim;       /* floats in a row: weft_ml_model_dim */
    uint64_t init_seed; /* 0 where nothing starts at random */
    float offset;       /* mf: the mean rating of the training rows; else 0 */
    uint32_t words;     /* lda: in the vocabulary */
    struct weft_ml_lda *lda; /* the topics of the training documents' tokens; NULL: they are not
                              * trained on */
};

/* Floats in a row: 1 + factors; of mlp and lda as many as factors. */
uint32_t weft_ml_model_dim(const struct weft_ml_model_kind *kind, uint32_t factors);

/* The factors of a model whose rows have so many floats; false when there is no such model. */
bool weft_ml_model_factors(const struct weft_ml_model_kind *kind, uint32_t dim,
                           uint32_t *factors_p);

/* Rows of a batch with so many ids, those of the output included. */
static inline uint32_t weft_ml_model_rows(const struct weft_ml_model *model, uint32_t id_count)
{
    return id_count + (model->kind->is_dense ? WEFT_ML_OUTPUT_ROWS : 0);
}

/* Errors:  WEFT_INVALID   factors out of range; mf on a data set without ratings; lda on one without
 *                         counts, or with more tokens than a float32 counts.
 *          WEFT_NOMEM */
weft_status weft_ml_model_init(struct weft_ml_model *model, const struct weft_ml_model_kind *kind,
                               const struct weft_ml_model_settings *settings, uint64_t seed,
                               const struct weft_ml_dataset *dataset);

/* A zeroed model is allowed. */
void weft_ml_model_fini(struct weft_ml_model *model);

/* Make the batch of these rows of data that the model is trained or tested on: of their features, or
 * of all.   As weft_ml_batch_build. */
weft_status weft_ml_model_batch(const struct weft_ml_model *model, struct weft_ml_batch *batch,
                                const uint32_t *rows, uint32_t row_count);

/* A row before its first update; id is a feature's, of a dense model the number of the row.
 * Shape:   row_p (dim,). */
void weft_ml_model_initial_row(const struct weft_ml_model *model, uint64_t id, float *row_p);

/* Loss of the batch and the gradient of its objective.
 *
 * Shape:   rows, gradient_p (weft_ml_model_rows, dim): for batch->ids, then the output's;
 *          gradient_p is overwritten. The two may not overlap. Rows that are not finite give results
 *          that are not finite.
 * Returns: without the L2 term: the mean log-loss, for mf the mean squared error, for lda the mean of
 *          the tokens' -log P; 0 for a batch of no rows, whose gradient is zeros where the model is
 *          dense, else left alone. lda changes the topics of model->lda.
 * Cost:    O(nonzeros * dim), no allocation.
 */
double weft_ml_model_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                              const float *rows, float *gradient_p);

/* For each row of the batch its margin (lr, fm, mlp) or its predicted rating (mf, not clipped).
 *
 * Shape:   rows (weft_ml_model_rows, dim); scores_p (row_count,).
 */
void weft_ml_model_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                          const float *rows, float *scores_p);

struct weft_ml_quality {
    uint32_t row_count;
    double log_loss; /* lr, fm, mlp: mean, natural logarithm */
    double auc;      /* lr, fm, mlp: metrics.h */
    double rmse;     /* mf: root of the mean squared error */
    double perplexity; /* lda: of the documents' other halves */
};

/* Quality on the batch's rows, for example of all test rows built as one batch.
 *
 * Errors:  WEFT_DATA   a score is not finite, one of the classes is missing (lr, fm, mlp), or there is
 *                      no token to predict (lda).
 *          WEFT_NOMEM
 * Cost:    O(nonzeros * dim + rows log rows); allocates and frees.
 */
weft_status weft_ml_model_evaluate(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   struct weft_ml_quality *quality_p);

#endif
