/* The reference trainer: synchronous data-parallel training of a model, with all workers and the
 * server in one process, without a network.
 *
 * It is the oracle for training over the fabric: the same shares, batches, gradients and optimizer
 * formulas in the same precision (float32 state), but in a plain loop. Packet loss is simulated by
 * leaving out runs of consecutive ids of a worker's gradient.
 *
 * One step, with W workers: every worker computes the gradient of its batch at the current weights;
 * g = (sum of the gradients that arrived) / W, even if fewer workers touched the row; each touched
 * row changes:
 *
 *     Adagrad   s += g * g;   w -= rate * g / (sqrt(s) + epsilon)      s starts at `accumulator`
 *     SGD       w -= rate * g
 *
 * Topic counts (lda) are summed, not averaged: w -= rate * sum with SGD's rate of -1.
 */
#ifndef WEFT_ML_REFERENCE_H
#define WEFT_ML_REFERENCE_H

#include "ml/model.h"
#include "ml/share.h"

enum weft_ml_optimizer { WEFT_ML_ADAGRAD, WEFT_ML_SGD };

struct weft_ml_reference_options {
    const struct weft_ml_model_kind *kind;
    struct weft_ml_model_settings settings;
    enum weft_ml_optimizer optimizer;
    uint32_t worker_count;
    uint32_t batch_rows; /* per worker */
    float learning_rate;
    float epsilon;      /* Adagrad alone */
    float accumulator;  /* Adagrad alone */
    uint64_t seed;      /* for the order of the rows and the initial factors */
    uint32_t loss_ppm;  /* probability that a chunk of a gradient does not arrive */
    uint32_t chunk_ids; /* ids per chunk, counted from the first id of a push; at least 1 */
};

struct weft_ml_reference {
    const struct weft_ml_dataset *dataset; /* borrowed until fini */
    struct weft_ml_reference_options options;
    struct weft_ml_model model;
    float *weights; /* (weft_ml_model_rows of all features, model.dim): indexed by column of the
                     * data set */

    struct weft_ml_reference_memory *memory; /* private */
};

/* 4 workers, no loss, chunks of 96 ids, all other values from defaults.h; for logistic
 * regression or the given kind. */
struct weft_ml_reference_options weft_ml_reference_defaults(enum weft_ml_optimizer optimizer);
struct weft_ml_reference_options
weft_ml_reference_defaults_of(const struct weft_ml_model_kind *kind,
                              enum weft_ml_optimizer optimizer);

/* Errors: WEFT_NOMEM, WEFT_INVALID (no training rows, a count of 0 in options, topics with loss or
 * with an optimizer other than SGD, or those of weft_ml_model_init). */
weft_status weft_ml_reference_init(struct weft_ml_reference *reference,
                                   const struct weft_ml_dataset *dataset,
                                   const struct weft_ml_reference_options *options);

/* Train one epoch (numbered from 0); *loss_p is the mean over steps and workers of the batch losses
 * before their updates.   Errors: WEFT_NOMEM. */
weft_status weft_ml_reference_epoch(struct weft_ml_reference *reference, uint32_t epoch,
                                    double *loss_p);

/* Quality on the test rows.   Errors: those of weft_ml_model_evaluate. */
weft_status weft_ml_reference_test(struct weft_ml_reference *reference,
                                   struct weft_ml_quality *quality_p);

/* A zeroed reference is allowed. */
void weft_ml_reference_fini(struct weft_ml_reference *reference);

#endif
