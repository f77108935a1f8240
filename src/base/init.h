/* The value of a weight before its first update. It is a function of (seed, id, column) alone. So
 * every server, also after a restart, and a trainer without servers start from the same values, and
 * rows without an update need no memory.
 *
 * Uniform in [-scale, scale), on a grid of 2^-23 scale. Models that multiply weights by each other
 * (factorizations) cannot start at zero: it is a saddle point, where every gradient is zero.
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
