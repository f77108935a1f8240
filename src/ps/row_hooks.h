/* What the owner of a shard does with rows in place of what the table's specification says: steps of its
 * own, and answers of its own (weft/fabric.h). All else of a table stays: sums, clocks, bounds, admission,
 * "at most once".
 *
 * They are called inside of the shard, on its thread, and see one row at a time. Checkpoints hold weights
 * and state as they are in memory, not what a pull was answered.
 */
#ifndef WEFT_PS_ROW_HOOKS_H
#define WEFT_PS_ROW_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

/* A gradient, and the block of a row that it is for. */
struct weft_row_step {
    uint64_t id; /* of the row; dense: its number */
    uint16_t table;
    uint32_t column; /* of the block's first weight */
    uint32_t count;
    const float *gradient; /* (count,): averaged as the table says */
    float *weights;        /* (count,) */
    float *slots;          /* optimizer's state of weight i: [k * stride + i], k < slots_count */
    uint32_t slots_count;
    uint32_t stride;
};

/* A row that a pull reads. */
struct weft_row_read {
    uint64_t id;
    uint16_t table;
    uint32_t count;       /* dim */
    float *values;        /* (count,): its weights, to be changed into what is to be answered */
    const float *slots;   /* as above; NULL = the row does not exist, and values are those it begins with */
    uint32_t slots_count;
    uint32_t stride;
};

struct weft_row_hooks {
    /* False: it was not done, and the table's optimizer does it. NULL = never is. */
    bool (*step)(void *arg, const struct weft_row_step *step);
    void (*read)(void *arg, const struct weft_row_read *read); /* NULL = answers are the weights */
    void *arg;
};

#endif
