/* The arithmetic of each kind of model, for the table in model.c and for tests. The contracts
 * are those of weft_ml_model_gradient and weft_ml_model_scores, except that the gradient is
 * without L2 regularization. */
#ifndef WEFT_ML_KINDS_H
#define WEFT_ML_KINDS_H

#include "ml/model.h"

/* One row of a batch. The bias, always its last nonzero, with value 1, is at index `count`. */
struct weft_ml_item {
    const float *values;
    const uint32_t *local;
    uint64_t count; /* without the bias */
};

/* Row r of the batch, whose nonzeros start at `local`. */
static inline struct weft_ml_item weft_ml_item_at(const struct weft_ml_batch *batch, uint32_t r,
                                                  const uint32_t *local)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t begin = set->row_begin[batch->rows[r]];
    return (struct weft_ml_item){.values = set->values + begin,
                                 .local = local,
                                 .count = set->row_begin[batch->rows[r] + 1] - begin - 1};
}

/* Logistic regression; the model is not used and may be NULL.
 *
 *     margin of a row   m = sum over its nonzeros of w[id] * value     (the bias is a nonzero)
 *     P(label = 1)      1 / (1 + exp(-m))
 *     loss of a row     log(1 + exp(-m)) for label 1, log(1 + exp(m)) for label 0
 *     gradient by id    mean over the rows of the batch of (P - label) * value
 */
double weft_ml_lr_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p);
void weft_ml_lr_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p);

/* Factorization machine of degree 2 with the same loss; x_i are the row's values, the bias b apart:
 *
 *     m = w[b] + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j
 *
 * in time linear in the row's length, since the last sum is half of |sum_i v_i x_i|^2 - sum_i |v_i
 * x_i|^2. With s = sum_i v_i x_i the slope of m by v_i is x_i (s - v_i x_i).
 *
 * Source: Rendle 2010, equations 1, 4 and lemma 3.1. */
double weft_ml_fm_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p);
void weft_ml_fm_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p);

/* Matrix factorization with biases; each row is a user u, an item i and the bias b:
 *
 *     rating = offset + w[b] + w_u + w_i + <p_u, p_i>         loss  e^2 / 2, e = rating - target
 *
 * Returns the mean of e^2. It is a factorization machine of two features with another loss; written
 * separately, it is shorter and twice as fast.
 *
 * Source: Koren, Bell and Volinsky 2009, equations 4 and 5; Rendle 2010, section V.A. */
double weft_ml_mf_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                           const float *rows, float *gradient_p);
void weft_ml_mf_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                       const float *rows, float *scores_p);

/* One hidden layer of rectified linear units, log-loss as above; W is the features' rows (the bias
 * b is one of them), v and c the two rows of the output, of c only column 0:
 *
 *     h = sum_i x_i W_i + W_b          m = c_0 + <v, max(h, 0)>
 *     slopes of m: by v_j max(h_j, 0); by c_0 1; by W_ij x_i v_j where h_j > 0, else 0
 */
double weft_ml_mlp_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                            const float *rows, float *gradient_p);
void weft_ml_mlp_scores(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                        const float *rows, float *scores_p);

/* Topics of documents; lda.h. Returns the mean of -log of the probability of each token's topic
 * before it was drawn. The gradient is the change of the counts, to be added to them. */
double weft_ml_lda_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                            const float *rows, float *gradient_p);

#endif
