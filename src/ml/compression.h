/* The reduction of lda's traffic by an aggregator, when the updates that it sums have words and
 * topics in common: bytes of the updates divided by bytes of their sum.
 *
 * Workers train synchronously (BSP), as in the reference trainer. In every step of the last epoch
 * the sizes of their updates and of the sum are counted in two encodings:
 *
 *   rows     rows of the table are pushed whole, as weft pushes them: 4 bytes for the id, and a
 *            float for each topic
 *   entries  only changed counts are pushed: 4 bytes for the index, and 4 for the change
 *
 * Changes that cancel out in the sum are not entries of the sum. */
#ifndef WEFT_ML_COMPRESSION_H
#define WEFT_ML_COMPRESSION_H

#include "ml/dataset.h"

struct weft_ml_compression_config {
    uint32_t workers;
    uint32_t batch_rows; /* documents in a worker's step */
    uint32_t topics;
    uint32_t epochs;
    uint64_t seed;
};

struct weft_ml_compression {
    uint32_t steps; /* steps counted */
    uint64_t rows_separate;
    uint64_t rows_together;
    uint64_t entries_separate;
    uint64_t entries_together;
};

/* Errors:  WEFT_INVALID  a number is 0, too many topics, or a data set without counts.
 *          WEFT_NOMEM.   Cost: epochs x tokens x topics. */
weft_status weft_ml_compression_measure(const struct weft_ml_dataset *dataset,
                                        const struct weft_ml_compression_config *config,
                                        struct weft_ml_compression *compression_p);

static inline uint64_t weft_ml_compression_rows_bytes(uint64_t rows, uint32_t topics)
{
    return rows * (4 + UINT64_C(4) * topics);
}

static inline uint64_t weft_ml_compression_entries_bytes(uint64_t entries)
{
    return entries * 8;
}

#endif
