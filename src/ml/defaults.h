/* Default hyper-parameters of the reference trainer; docs/MODELS.md says how they were found and
 * what they reach. They belong together: the accumulator is in the units of a squared gradient, and
 * a gradient here is a mean over the rows of a batch. */
#ifndef WEFT_ML_DEFAULTS_H
#define WEFT_ML_DEFAULTS_H

#define WEFT_ML_DEFAULT_EPOCHS     3
#define WEFT_ML_DEFAULT_BATCH_ROWS 256 /* per worker and step */
#define WEFT_ML_DEFAULT_SEED       UINT64_C(1)

#define WEFT_ML_DEFAULT_ADAGRAD_RATE        0.1F
#define WEFT_ML_DEFAULT_ADAGRAD_EPSILON     1e-8F
#define WEFT_ML_DEFAULT_ADAGRAD_ACCUMULATOR 1e-4F /* of squared gradients, at the start */

#define WEFT_ML_DEFAULT_SGD_RATE 0.4F

#endif
