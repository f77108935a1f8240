/* A learning rate for data whose values have a scale of their own: a short search on a sample of the
 * training rows. Logistic regression only.
 *
 * Adagrad moves a weight by about the rate, whatever the gradient's size, so the rate that suits a
 * data set is inverse to its values; how many features a row has and how rare they are matters as
 * much. No formula of these fits all sets (docs/MODELS.md section 3), a search does.
 *
 *     sample    at most 4,096 training rows and about 2^19 nonzeros, at equal distances in the order
 *               of the file; each fifth row of the sample is held out
 *     trial     three passes of the reference trainer over the others, each in as many batches as an
 *               epoch of the job has steps, at most 21: with few steps the bias, whose value is always
 *               1, must not take too large ones. Then the mean log-loss of the rows held out
 *     search    the model's default rate x 4^-7 .. 4^7, then the best one x 1/2 and x 2
 *
 * The result is a function of the data set, the optimizer, l2 and the steps of an epoch. Ranks, epochs
 * and seeds do not enter, so that every worker of a job finds the same rate, and so does one that resumes
 * it.
 * It is arithmetic in a fixed order; only exp and log1p of another C library could bring a near tie to
 * another end.
 */
#ifndef WEFT_ML_RATE_H
#define WEFT_ML_RATE_H

#include "ml/reference.h"

enum {
    WEFT_ML_RATE_ROWS_MAX = 4096,
    WEFT_ML_RATE_ROWS_MIN = 320, /* of a sample; fewer say nothing */
    WEFT_ML_RATE_NONZEROS_MAX = 1 << 19,
};

struct weft_ml_rate {
    float rate;
    uint32_t rows; /* of the sample; 0 = it was too small or had one class: the default rate */
};

/* Shape:   steps of an epoch of the job (share.h).
 * Errors:  WEFT_NOMEM.
 * Cost:    51 passes over the sample, about a second; allocates and frees. */
weft_status weft_ml_rate_find(const struct weft_ml_dataset *dataset,
                              enum weft_ml_optimizer optimizer, float l2, uint32_t steps,
                              struct weft_ml_rate *rate_p);

#endif
