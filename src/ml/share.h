/* The training rows of a worker, and their order.
 *
 * The i-th training row (`train_rows[i]`) belongs to worker i mod W. Before each epoch a worker
 * shuffles its own rows (Fisher-Yates) with a generator that depends only on (seed, epoch, worker).
 * Any process can thus compute any worker's batches, and a restarted worker continues where the
 * old one stopped. An epoch has S = ceil(largest share / batch_rows) steps for every worker, so
 * that all workers have the same number of clocks. Step s uses the positions [s n / S, (s + 1) n /
 * S) of a share of n rows. The batches of a worker differ by at most one row. No batch exceeds
 * batch_rows. A batch is empty only if the share has fewer than S rows.
 */
#ifndef WEFT_ML_SHARE_H
#define WEFT_ML_SHARE_H

#include "ml/dataset.h"

struct weft_ml_share {
    const struct weft_ml_dataset *dataset; /* borrowed until fini */
    uint64_t seed;
    uint32_t worker;
    uint32_t worker_count;
    uint32_t row_count; /* of this worker */
    uint32_t *order;    /* (row_count,): rows in the order of the current epoch */
};

/* Steps of one epoch, the same for every worker; at least 1.
 *
 * Shape:   worker_count and batch_rows at least 1.
 */
uint32_t weft_ml_share_steps(const struct weft_ml_dataset *dataset, uint32_t worker_count,
                             uint32_t batch_rows);

/* The share of worker `worker` of `worker_count`, in the order of epoch 0.   Errors: WEFT_NOMEM. */
weft_status weft_ml_share_init(struct weft_ml_share *share, const struct weft_ml_dataset *dataset,
                               uint32_t worker, uint32_t worker_count, uint64_t seed);

/* Put the rows in the order of an epoch, independent of the previous epoch. */
void weft_ml_share_begin_epoch(struct weft_ml_share *share, uint32_t epoch);

/* The rows of one step, valid until the next begin_epoch.
 *
 * Shape:   step < steps, steps from weft_ml_share_steps; rows_p borrows (count_p,) from the share.
 */
void weft_ml_share_step(const struct weft_ml_share *share, uint32_t step, uint32_t steps,
                        const uint32_t **rows_p, uint32_t *count_p);

/* A zeroed share is allowed. */
void weft_ml_share_fini(struct weft_ml_share *share);

#endif
