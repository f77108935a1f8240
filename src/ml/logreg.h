/* Logistic regression, the arithmetic of one worker of a parameter server.
 *
 *     margin of a row   m = sum over its nonzeros of weight[id] * value     (the bias is a nonzero)
 *     P(label = 1)      1 / (1 + exp(-m))
 *     loss of a row     log(1 + exp(-m)) for label 1, log(1 + exp(m)) for label 0
 *     gradient by id    mean over the rows of the batch of (P - label) * value
 *
 * No optimizer and no network here: the server applies the gradient (reference.h does it for
 * tests).
 */
#ifndef WEFT_ML_LOGREG_H
#define WEFT_ML_LOGREG_H

#include "ml/batch.h"

/* Mean loss of the batch and its gradient.
 *
 * Shape:   weights (id_count,) as pulled for batch->ids; gradient_p (id_count,), overwritten.
 *          The two may not overlap. Weights that are not finite give results that are not finite.
 * Returns: the mean loss; 0 for a batch of no rows.
 * Cost:    O(nonzeros), no allocation.
 */
double weft_ml_batch_gradient(const struct weft_ml_batch *batch, const float *weights,
                              float *gradient_p);

/* The margin of each row.   Shape: weights (id_count,); margins_p (row_count,). */
void weft_ml_batch_margins(const struct weft_ml_batch *batch, const float *weights,
                           float *margins_p);

struct weft_ml_quality {
    uint32_t row_count;
    double log_loss; /* mean, natural logarithm */
    double auc;      /* metrics.h */
};

/* Log-loss and AUC of the batch's rows, for example of all test rows built as one batch.
 *
 * Errors:  those of weft_ml_auc.   Cost: O(nonzeros + rows log rows); allocates and frees.
 */
weft_status weft_ml_batch_evaluate(const struct weft_ml_batch *batch, const float *weights,
                                   struct weft_ml_quality *quality_p);

#endif
