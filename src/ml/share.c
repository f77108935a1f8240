#include "ml/share.h"

#include "base/assert.h"
#include "base/prng.h"

#include <stdlib.h>

uint32_t weft_ml_share_steps(const struct weft_ml_dataset *dataset, uint32_t worker_count,
                             uint32_t batch_rows)
{
    WEFT_ASSERT(worker_count > 0 && batch_rows > 0);
    uint64_t rows_max = weft_div_ceil_u64(dataset->train_count, worker_count);
    return (uint32_t)weft_max_u64(weft_div_ceil_u64(rows_max, batch_rows), 1);
}

weft_status weft_ml_share_init(struct weft_ml_share *share, const struct weft_ml_dataset *dataset,
                               uint32_t worker, uint32_t worker_count, uint64_t seed)
{
    WEFT_ASSERT(worker < worker_count);
    uint64_t count = worker < dataset->train_count
                         ? weft_div_ceil_u64(dataset->train_count - worker, worker_count)
                         : 0;
    uint32_t *order = calloc(weft_max_u64(count, 1), sizeof(*order));
    if (order == NULL) {
        return WEFT_NOMEM;
    }
    *share = (struct weft_ml_share){.dataset = dataset,
                                    .seed = seed,
                                    .worker = worker,
                                    .worker_count = worker_count,
                                    .row_count = (uint32_t)count,
                                    .order = order};
    weft_ml_share_begin_epoch(share, 0);
    return WEFT_OK;
}

void weft_ml_share_begin_epoch(struct weft_ml_share *share, uint32_t epoch)
{
    uint32_t *order = share->order;
    for (uint32_t i = 0; i < share->row_count; i++) {
        uint64_t position = share->worker + (uint64_t)i * share->worker_count;
        order[i] = share->dataset->train_rows[position];
    }
    struct weft_prng prng;
    weft_prng_split(&prng, share->seed, (uint64_t)epoch << 32 | share->worker);
    for (uint32_t left = share->row_count; left > 1; left--) {
        uint32_t pick = (uint32_t)weft_prng_below(&prng, left);
        uint32_t swap = order[pick];
        order[pick] = order[left - 1];
        order[left - 1] = swap;
    }
}

void weft_ml_share_step(const struct weft_ml_share *share, uint32_t step, uint32_t steps,
                        const uint32_t **rows_p, uint32_t *count_p)
{
    WEFT_ASSERT(step < steps);
    uint64_t begin = (uint64_t)share->row_count * step / steps;
    uint64_t end = (uint64_t)share->row_count * (step + 1) / steps;
    *rows_p = share->order + begin;
    *count_p = (uint32_t)(end - begin);
}

void weft_ml_share_fini(struct weft_ml_share *share)
{
    free(share->order);
    *share = (struct weft_ml_share){0};
}
