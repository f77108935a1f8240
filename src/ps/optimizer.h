/* Optimizers: the update of a block of a row by an averaged gradient, element by element, in
 * float32. With g = sum / divisor and rate = learning_rate. All state of a new row is zero unless
 * noted:
 *
 *     sgd       w -= rate g
 *     momentum  v = beta1 v + g;   w -= rate v                                        [polyak64]
 *     adagrad   s += g^2;   w -= rate g / (sqrt(s) + epsilon);   s = accumulator at first [duchi11]
 *     adam      m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2;             [adam15]
 *               w -= rate (m / c1) / (sqrt(v / c2) + epsilon)
 *     ftrl      z += g - (sqrt(n + g^2) - sqrt(n)) / rate w;   n += g^2;                  [ftrl13]
 *               w = 0 if |z| <= l1, else -(z - sign(z) l1) / ((epsilon + sqrt(n)) / rate + l2);
 *               n = accumulator at first, z such that w is the initial weight
 *     adadelay  s += a g^2;   w -= rate g / (sqrt(s / a) + epsilon),   a = t / (t + delay) [sra16]
 *
 * SGD and Adagrad are those of the reference trainer (src/ml/reference.h), bit for bit.
 *
 * Adam's bias correction counts the steps of this block of this row, not those of the table:
 * otherwise a rarely updated row would begin with steps that are far too small. c1 = 1 - beta1^t is
 * computed as the same running average as m, but of ones: c1 = beta1 c1 + (1 - beta1). This needs
 * no power, and m / c1 is a weighted mean regardless of rounding.
 *
 * AdaDelay's t is the current clock of the fastest worker, where the paper counts the server's
 * updates. Its delay is the number of clocks since the one for which the gradient was computed.
 * Without delay it is Adagrad. Except for epsilon, AdaDelay's step with g is Adagrad's with
 * sqrt(a) g. So an aggregator multiplies each gradient by sqrt(a) before it adds it; see
 * weft_aggregate_weight in ps/aggregate.h.
 *
 * Source: docs/papers.md.
 */
#ifndef WEFT_PS_OPTIMIZER_H
#define WEFT_PS_OPTIMIZER_H

#include "rpc/table_spec.h"

enum { WEFT_OPTIMIZER_SLOTS_MAX = 2, WEFT_OPTIMIZER_STEPS_MAX = 2 };

/* One block of one row, and its update. */
struct weft_optimizer_block {
    float *weights;    /* (count,) */
    float *slots;      /* of slot k and weight i: [k * stride + i] */
    float *steps;      /* (optimizer->steps,): of the block as a whole */
    const float *sums; /* (count,) */
    uint32_t stride;   /* dim */
    uint32_t count;
    float divisor; /* W, or another divisor that makes a mean of the sums */
    float fresh; /* AdaDelay's a: 1/2 < a <= 1; of a sum 1/2 < a < 2 */
};

struct weft_optimizer {
    const char *name;
    uint8_t kind;   /* enum weft_optimizer_kind; its index in the list */
    uint32_t slots; /* floats of state for each weight */
    uint32_t steps; /* floats of state for each block; 0 in a new row */

    /* Initialize the state of new weights, which are already set.
     * Shape:   weights (count,); slots (slots, stride), of these the first count columns. */
    void (*init)(const struct weft_table_spec *spec, const float *weights, float *slots,
                 uint32_t stride, uint32_t count);

    void (*step)(const struct weft_table_spec *spec, const struct weft_optimizer_block *block);
};

enum { WEFT_OPTIMIZERS_COUNT = 6 };
extern const struct weft_optimizer *const weft_optimizers[WEFT_OPTIMIZERS_COUNT];

/* AdaDelay's a for a gradient of this clock. newest: clock in progress of the fastest worker, from
 * 1. */
static inline float weft_optimizer_fresh(uint32_t newest, uint32_t clock)
{
    float delay = clock < newest ? (float)(newest - clock) : 0;
    return (float)newest / ((float)newest + delay);
}

/* NULL if no optimizer has that number or name. */
const struct weft_optimizer *weft_optimizer_at(uint8_t kind);
const struct weft_optimizer *weft_optimizer_find(const char *name);

#endif
