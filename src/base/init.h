/* The value a weight has before its first update: a function of (seed, id, column) alone, so that
 * every server, after whatever restart, and a trainer without servers begin at the same point, and
 * a row that nobody has updated need not be kept.
 *
 * Uniform in [-scale, scale), on a grid of 2^-23 scale. Models that multiply weights by each other
 * (factorizations) cannot begin at zero: that is a saddle, every gradient there is zero.
 */
#ifndef WEFT_BASE_INIT_H
#define WEFT_BASE_INIT_H

#include "base/prng.h"

static inline float weft_init_value(uint64_t seed, uint64_t id, uint32_t column, float scale)
{
    uint64_t bits = weft_mix64(seed ^ weft_mix64(id ^ weft_mix64(column + UINT64_C(1))));
    int32_t grid = (int32_t)(bits >> 40) - (1 << 23);
    return (float)grid * 0x1p-23f * scale;
}

#endif
