/* A model, as used by a worker of a parameter server. Input: rows of floats by feature id, and a
 * batch of data. Output: a loss and a gradient of the same shape, or a score for each example.
 *
 *     lr   logistic regression          row of a feature = [w]
 *     fm   factorization machine        row of a feature = [w, v_1 .. v_k]
 *     mf   matrix factorization         row of a user or an item = [b, p_1 .. p_k]
 *     mlp  one hidden layer             row of a feature = its weights to the k hidden units
 *     lda  topics of documents          row of a word    = number of its tokens with each of the k
 *     topics
 *
 * One table holds all rows. Its width is 1 + k for lr, fm and mf: the bias feature (row.h) has a
 * row like the others, of which only column 0 is used; column 0 starts at zero, the factors at
 * weft_init_value(seed, id, column, scale) of base/init.h, as at the servers.
 *
 * mlp is a dense model: its table is one vector that every step pulls and pushes completely. Row r
 * is that of the feature in column r of the data set. WEFT_ML_OUTPUT_ROWS rows follow the feature
 * rows: the weights of the hidden units to the output, and the output's bias. The bias feature's
 * row has the biases of the hidden units. All begin at weft_init_value(seed, r, column, scale).
 *
 * L2 regularization is part of the gradient computed here, not of the server's optimizer. A
 * feature's gradient increases by l2 / n times its row for each of the n examples of the batch that
 * contains it, except for the bias. Frequent features are therefore regularized more often, and a
 * batch's objective is the mean over its examples of
 *
 *     loss + l2 / 2 * (sum over the features of the example of their squared norms)
 *
 * Optimizers and averaging over workers are on the server, or in reference.h.
 *
 * Source: Rendle 2010, Factorization Machines, sections III and V; Koren, Bell and Volinsky 2009;
 *         docs/MODELS.md, a section on each.
 */
#ifndef WEFT_ML_MODEL_H
#define WEFT_ML_MODEL_H

#include "ml/batch.h"

enum { WEFT_ML_FACTORS_MAX = 255 }; /* so that a row fits in one block of a push */

/* Rows of a dense model after the feature rows. In a saved model they have the ids
 * WEFT_ML_OUTPUT_ID, WEFT_ML_OUTPUT_ID + 1: larger than any feature's. */
enum { WEFT_ML_OUTPUT_ROWS = 2 };
#define WEFT_ML_OUTPUT_ID ((uint64_t)INT64_MAX + 1)

struct weft_ml_model;

struct weft_ml_model_settings {
    uint32_t factors; /* k; for mlp: hidden units, for lda: topics; ignored by lr */
    float l2;
    float init_scale; /* of factors, before the first update */
    float alpha;      /* lda: prior of a document's topics */
    float beta;       /* lda: prior of a topic's words */
};

/* Defaults for training with Adagrad and with SGD; see defaults.h. */
struct weft_ml_model_pace {
    uint32_t epochs;
    float adagrad_rate;
    float adagrad_accumulator;
    float sgd_rate;
};

struct weft_ml_model_kind {
    const char *name; /* on the command line */
    const char *help;
    bool has_factors;
    bool is_dense;         /* every batch uses all features; the output rows follow */
    bool predicts_ratings; /* needs a data set with ratings; scores are ratings, not margins */
    bool counts_topics;    /* needs a data set with counts; pushes are added to the rows without
                            * an optimizer, and must be lossless; no scores */
    struct weft_ml_model_settings settings; /* defaults, found with `pace` (docs/MODELS.md) */
    struct weft_ml_model_pace pace;

    /* The part of weft_ml_model_gradient without L2, and weft_ml_model_scores. */
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
    uint32_t dim;            /* floats in a row: weft_ml_model_dim */
    uint64_t init_seed;      /* 0 if all weights start at zero */
    float offset;            /* mf: the mean rating of the training rows; else 0 */
    uint32_t words;          /* lda: words in the vocabulary */
    struct weft_ml_lda *lda; /* the topics of the training documents' tokens; NULL if the model
                              * is not trained */
};

/* Floats in a row: 1 + factors; for mlp and lda: factors. */
uint32_t weft_ml_model_dim(const struct weft_ml_model_kind *kind, uint32_t factors);

/* Set the factors of a model with this many floats in a row; false if there is no such model. */
bool weft_ml_model_factors(const struct weft_ml_model_kind *kind, uint32_t dim,
                           uint32_t *factors_p);

/* Rows of a batch with this many ids, including those of the output. */
static inline uint32_t weft_ml_model_rows(const struct weft_ml_model *model, uint32_t id_count)
{
    return id_count + (model->kind->is_dense ? WEFT_ML_OUTPUT_ROWS : 0);
}

/* Errors:  WEFT_INVALID   factors out of range; mf on a data set without ratings; lda on one
 *                         without counts, or with more tokens than a float32 can count.
 *          WEFT_NOMEM */
weft_status weft_ml_model_init(struct weft_ml_model *model, const struct weft_ml_model_kind *kind,
                               const struct weft_ml_model_settings *settings, uint64_t seed,
                               const struct weft_ml_dataset *dataset);

/* A zeroed model is allowed. */
void weft_ml_model_fini(struct weft_ml_model *model);

/* Build the batch of these examples, with the features that they contain, or all features for a
 * dense model.   As weft_ml_batch_build. */
weft_status weft_ml_model_batch(const struct weft_ml_model *model, struct weft_ml_batch *batch,
                                const uint32_t *rows, uint32_t row_count);

/* A row before its first update; id is a feature id or, for a dense model, the row number.
 * Shape:   row_p (dim,). */
void weft_ml_model_initial_row(const struct weft_ml_model *model, uint64_t id, float *row_p);

/* Loss of the batch and the gradient of its objective.
 *
 * Shape:   rows, gradient_p (weft_ml_model_rows, dim): rows of batch->ids, then the output's;
 *          gradient_p is overwritten. The two may not overlap. Rows that are not finite give
 *          results that are not finite.
 * Returns: without the L2 term: the mean log-loss, for mf the mean squared error, for lda the mean
 *          of the tokens' -log P. An empty batch returns 0; its gradient is zeros for a dense
 *          model, otherwise unchanged. lda changes the topics of model->lda.
 * Cost:    O(nonzeros * dim), no allocation.
 */
double weft_ml_model_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                              const float *rows, float *gradient_p);

/* For each example its margin (lr, fm, mlp) or its predicted rating (mf, not clipped).
 *
 * Shape:   rows (weft_ml_model_rows, dim); scores_p (row_count,).
 */
void weft_ml_model_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                          const float *rows, float *scores_p);

struct weft_ml_quality {
    uint32_t row_count;
    double log_loss;   /* lr, fm, mlp: mean, natural logarithm */
    double auc;        /* lr, fm, mlp: metrics.h */
    double rmse;       /* mf: root of the mean squared error */
    double perplexity; /* lda: of the held-out halves of the documents */
};

/* Quality on the batch's rows, for example on all test rows in one batch.
 *
 * Errors:  WEFT_DATA   a score is not finite, one of the classes is missing (lr, fm, mlp), or there
 *                      is no token to predict (lda).
 *          WEFT_NOMEM
 * Cost:    O(nonzeros * dim + rows log rows); allocates and frees.
 */
weft_status weft_ml_model_evaluate(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   struct weft_ml_quality *quality_p);

#endif
