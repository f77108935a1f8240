/* A learning rate for data with arbitrary scale: a short search on a sample of the training rows.
 * Logistic regression only.
 *
 * Adagrad moves a weight by about the rate, whatever the gradient's size, so the best rate for a
 * data set is inversely proportional to its values; the number of features per row and their
 * frequency matter as much. No formula fits all data sets (docs/MODELS.md section 3), but a search
 * does.
 *
 *     sample    at most 4,096 training rows and about 2^19 nonzeros, at equal distances in the
 *               order of the file; each fifth row of the sample is held out
 *     trial     three passes of the reference trainer over the others, each in as many batches as
 *               an epoch of the job has steps, at most 21. The number matters: the bias, whose
 *               value is always 1, changes by about the rate in each step, and few steps cannot
 *               correct a change that is too large. Then the mean log-loss of the held-out rows
 *     search    the model's default rate x 4^-7 .. 4^7, then the best one x 1/2 and x 2
 *
 * The result is a function of the data set, the optimizer, l2 and the steps of an epoch. It does
 * not depend on ranks, epochs and seeds, so every worker of a job finds the same rate, and so does
 * a worker that resumes the job. The order of the arithmetic is fixed; only exp and log1p of
 * another C library could decide a near tie differently.
 */
#ifndef WEFT_ML_RATE_H
#define WEFT_ML_RATE_H

#include "ml/reference.h"

enum {
    WEFT_ML_RATE_ROWS_MAX = 4096,
    WEFT_ML_RATE_ROWS_MIN = 320, /* in a sample; fewer are not significant */
    WEFT_ML_RATE_NONZEROS_MAX = 1 << 19,
};

struct weft_ml_rate {
    float rate;
    uint32_t rows; /* in the sample; 0 = it was too small or had one class: the default rate */
};

/* Shape:   steps of an epoch of the job (share.h).
 * Errors:  WEFT_NOMEM.
 * Cost:    51 passes over the sample, about a second; allocates and frees. */
weft_status weft_ml_rate_find(const struct weft_ml_dataset *dataset,
                              enum weft_ml_optimizer optimizer, float l2, uint32_t steps,
                              struct weft_ml_rate *rate_p);

#endif
