/* The arithmetic of reductions: combines several vectors into one, in the given order. */
#ifndef WEFT_COLL_FOLD_H
#define WEFT_COLL_FOLD_H

#include "coll/coll.h"

/* out[i] = from[0][i] op from[1][i] op ..., for elems elements; f16 and bf16 are summed in f32 and
 * rounded once. MEAN divides by `divisor`.
 *
 * Shape:   each from[k], k < sources, (elems,), unaligned; sources >= 1; out may be one of them.
 * Cost:    O(sources x elems). */
void weft_coll_fold(enum weft_coll_type type, enum weft_coll_reduction reduction, void *out,
                    const void *const *from, uint32_t sources, size_t elems, uint32_t divisor);

/* Whether the type supports this reduction. */
bool weft_coll_fold_has(enum weft_coll_type type, enum weft_coll_reduction reduction);

/* IEEE 754 binary16, and bf16, the upper half of binary32; rounded to nearest, ties to even. */
float weft_coll_f16_load(uint16_t bits);
uint16_t weft_coll_f16_store(float value);
float weft_coll_bf16_load(uint16_t bits);
uint16_t weft_coll_bf16_store(float value);

#endif
