/* Default hyper-parameters of the reference trainer; docs/MODELS.md describes how they were
 * found and the quality they reach. They depend on each other: the accumulator is in the units
 * of a squared gradient, and a gradient here is a mean over the rows of a batch. */
#ifndef WEFT_ML_DEFAULTS_H
#define WEFT_ML_DEFAULTS_H

#define WEFT_ML_DEFAULT_EPOCHS     3
#define WEFT_ML_DEFAULT_BATCH_ROWS 256 /* per worker and step */
#define WEFT_ML_DEFAULT_SEED       UINT64_C(1)

#define WEFT_ML_DEFAULT_ADAGRAD_RATE        0.1F
#define WEFT_ML_DEFAULT_ADAGRAD_EPSILON     1e-8F
#define WEFT_ML_DEFAULT_ADAGRAD_ACCUMULATOR 1e-4F /* of squared gradients, at the start */

#define WEFT_ML_DEFAULT_SGD_RATE 0.4F

/* Of each kind of model (model.h): factors, l2, init_scale, alpha, beta; epochs, Adagrad's rate and
 * accumulator, rate of SGD. */
#define WEFT_ML_DEFAULT_LR_PACE                                                                    \
    {WEFT_ML_DEFAULT_EPOCHS, WEFT_ML_DEFAULT_ADAGRAD_RATE, WEFT_ML_DEFAULT_ADAGRAD_ACCUMULATOR,    \
     WEFT_ML_DEFAULT_SGD_RATE}

#define WEFT_ML_DEFAULT_FM_SETTINGS {63, 0.04F, 0.05F, 0.0F, 0.0F}
#define WEFT_ML_DEFAULT_FM_PACE     {16, 0.2F, 1e-5F, 2.0F}

#define WEFT_ML_DEFAULT_MF_SETTINGS {16, 0.1F, 0.05F, 0.0F, 0.0F}
#define WEFT_ML_DEFAULT_MF_PACE     {12, 0.2F, 1e-5F, 1.0F}

#define WEFT_ML_DEFAULT_MLP_SETTINGS {144, 0.0F, 0.08F, 0.0F, 0.0F}
#define WEFT_ML_DEFAULT_MLP_PACE     {3, 0.02F, 1e-7F, 0.8F}

#define WEFT_ML_DEFAULT_LDA_SETTINGS {50, 0.0F, 0.0F, 0.1F, 0.05F}
#define WEFT_ML_DEFAULT_LDA_PACE     {50, 0.0F, 0.0F, -1.0F} /* w -= -1 x change */

#endif
