/* Optimizers: what an averaged gradient does to a row. The arithmetic is that of the reference
 * trainer (src/ml/reference.h), in float32 and in the same order:
 *
 *     sgd       w -= rate * g
 *     adagrad   s += g * g;   w -= rate * g / (sqrt(s) + epsilon)     s starts at `accumulator`
 *
 * with g = sum / W. Element by element: a part of a row may be updated alone.
 */
#ifndef WEFT_PS_OPTIMIZER_H
#define WEFT_PS_OPTIMIZER_H

#include "rpc/head.h"

struct weft_optimizer {
    const char *name;
    uint8_t kind;   /* enum weft_optimizer_kind; its place in the list */
    uint32_t slots; /* floats of state for each weight */

    /* State of new weights. */
    void (*init)(const struct weft_table_spec *spec, float *slots, uint32_t count);

    /* One step with g = sums[i] / spec->workers.
     * Shape:   weights, sums (count,); slots (count,) when there are any. */
    void (*step)(const struct weft_table_spec *spec, float *weights, float *slots,
                 const float *sums, uint32_t count);
};

enum { WEFT_OPTIMIZERS_COUNT = 2 };
extern const struct weft_optimizer *const weft_optimizers[WEFT_OPTIMIZERS_COUNT];

/* NULL when there is none of that number or name. */
const struct weft_optimizer *weft_optimizer_at(uint8_t kind);
const struct weft_optimizer *weft_optimizer_find(const char *name);

#endif
