/* The rows of one step of a worker, and the ids that they contain.
 *
 * A worker's step is: build a batch from row numbers; pull the weights of batch->ids; compute a
 * gradient (model.h); push it under the same ids. The batch lists every id once, in ascending
 * order, and has for each nonzero the index of its id. It has no models or weights.
 */
#ifndef WEFT_ML_BATCH_H
#define WEFT_ML_BATCH_H

#include "ml/dataset.h"

struct weft_ml_batch {
    const struct weft_ml_dataset *dataset; /* borrowed until fini */

    uint32_t row_count;
    uint32_t id_count;
    uint64_t nonzero_count;
    const uint32_t *rows;    /* (row_count,): a copy of the caller's list */
    const uint64_t *ids;     /* (id_count,): strictly ascending, each used by at least one row;
                              * or the ids of all features (weft_ml_batch_build_whole) */
    const uint32_t *columns; /* (id_count,): columns of the ids in the data set; NULL: the k-th
                              * id is the k-th feature */
    const uint32_t *local;   /* (nonzero_count,): index into ids, row after row as in `rows` */

    struct weft_ml_batch_memory *memory; /* private */
};

/* Cost:    memory for two integers per feature of the data set.   Errors: WEFT_NOMEM. */
weft_status weft_ml_batch_init(struct weft_ml_batch *batch, const struct weft_ml_dataset *dataset);

/* Build the batch of these rows; it replaces the previous one.
 *
 * Shape:   rows (row_count,), each below dataset->row_count; repeats are allowed; 0 rows too.
 * Errors:  WEFT_NOMEM   the previous batch is lost; retry or stop.
 * Cost:    O(nonzeros of the rows); allocates only if it is larger than all previous batches.
 */
weft_status weft_ml_batch_build(struct weft_ml_batch *batch, const uint32_t *rows,
                                uint32_t row_count);

/* The same, but the batch contains every feature of the data set, whether or not its rows have
 * it: local is the column. For dense models. */
weft_status weft_ml_batch_build_whole(struct weft_ml_batch *batch, const uint32_t *rows,
                                      uint32_t row_count);

/* A zeroed batch is allowed. */
void weft_ml_batch_fini(struct weft_ml_batch *batch);

#endif
