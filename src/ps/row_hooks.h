/* Hooks by which the owner of a shard replaces the optimizer steps and the pull replies of the
 * table's specification (weft/fabric.h). Sums, clocks, bounds, admission and "at most once" are
 * unaffected.
 *
 * The shard calls them on its thread, for one row at a time. Checkpoints contain weights and state
 * as in memory, not the values of pull replies.
 */
#ifndef WEFT_PS_ROW_HOOKS_H
#define WEFT_PS_ROW_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

/* A gradient and the block of a row to which it applies. */
struct weft_row_step {
    uint64_t id; /* of the row; dense: its number */
    uint16_t table;
    uint32_t column; /* of the block's first weight */
    uint32_t count;
    const float *gradient; /* (count,): averaged as specified by the table */
    float *weights;        /* (count,) */
    float *slots;          /* optimizer state of weight i: [k * stride + i], k < slots_count */
    uint32_t slots_count;
    uint32_t stride;
};

/* A row that a pull reads. */
struct weft_row_read {
    uint64_t id;
    uint16_t table;
    uint32_t count;     /* dim */
    float *values;      /* (count,): its weights; the hook changes them to the values of the
                         * reply */
    const float *slots; /* as above; NULL = the row does not exist, and values are its initial
                         * weights */
    uint32_t slots_count;
    uint32_t stride;
};

struct weft_row_hooks {
    /* False: not handled; the table's optimizer steps. NULL = the optimizer always steps. */
    bool (*step)(void *arg, const struct weft_row_step *step);
    void (*read)(void *arg, const struct weft_row_read *read); /* NULL = replies are the weights */
    void *arg;
};

#endif
