/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Add the values of a packet to sums, in blocks of eight.
 *
 * int32 addition wraps around, and each addition reports whether it overflowed. A wrapped sum is
 * restored exactly by subtraction, so a second pass is needed only if a packet is refused because a
 * sum would overflow, which is rare. A float sum cannot be restored, so it is checked before it is
 * stored. Floats are supported on the host only; the kernel has none.
 *
 * Shape:   sums (count,), values (count,) little-endian; count is a multiple of WEFT_AGG_BLOCK and
 *          at most max, which is a constant in calls from the kernel's program. `end` is the end of
 *          the packet. The values of a decoded packet do not extend beyond it, but the kernel's
 *          verifier requires a comparison for each block.
 */
#ifndef WEFT_AGG_ADD_H
#define WEFT_AGG_ADD_H

#include "agg/agg.h"

/* Add a block. The top bit of the returned word is set if a sum overflowed. */
WEFT_AGG_INLINE uint32_t weft_agg_add_block(uint32_t *sums, const uint8_t *values)
{
    uint32_t overflow = 0;
    for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
        uint32_t a = sums[j];
        uint32_t b = weft_wire_load_u32(values + 4 * j);
        uint32_t sum = a + b;
        overflow |= (a ^ sum) & (b ^ sum);
        sums[j] = sum;
    }
    return overflow;
}

/* Subtract a block. */
WEFT_AGG_INLINE void weft_agg_subtract_block(uint32_t *sums, const uint8_t *values)
{
    for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
        sums[j] -= weft_wire_load_u32(values + 4 * j);
    }
}

/* Add `count` values. Returns as weft_agg_add_block. */
WEFT_AGG_INLINE uint32_t weft_agg_add(uint32_t *sums, const uint8_t *values, const uint8_t *end,
                                      uint32_t count, uint32_t max)
{
    uint32_t overflow = 0;
    for (uint32_t i = 0; i < max && i < count; i += WEFT_AGG_BLOCK) {
        const uint8_t *at = values + 4 * i;
        if (at + WEFT_AGG_BLOCK_BYTES > end) {
            break;
        }
        overflow |= weft_agg_add_block(sums + i, at);
    }
    return overflow;
}

/* Replace the sums by the first values of a round. */
WEFT_AGG_INLINE void weft_agg_set(uint32_t *sums, const uint8_t *values, const uint8_t *end,
                                  uint32_t count, uint32_t max)
{
    for (uint32_t i = 0; i < max && i < count; i += WEFT_AGG_BLOCK) {
        const uint8_t *at = values + 4 * i;
        if (at + WEFT_AGG_BLOCK_BYTES > end) {
            break;
        }
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            sums[i + j] = weft_wire_load_u32(at + 4 * j);
        }
    }
}

/* Write the sums to the reply packet. */
WEFT_AGG_INLINE void weft_agg_get(const uint32_t *sums, uint8_t *values, const uint8_t *end,
                                  uint32_t count, uint32_t max)
{
    for (uint32_t i = 0; i < max && i < count; i += WEFT_AGG_BLOCK) {
        uint8_t *at = values + 4 * i;
        if (at + WEFT_AGG_BLOCK_BYTES > end) {
            break;
        }
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            weft_wire_store_u32(at + 4 * j, sums[i + j]);
        }
    }
}

#ifndef __bpf__

static inline float weft_agg_real(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t weft_agg_bits(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* In infinities and NaN all bits of the exponent field are set. */
static inline uint32_t weft_agg_not_finite(uint32_t bits)
{
    return (bits & 0x7f800000) == 0x7f800000 ? UINT32_C(0x80000000) : 0;
}

/* Check whether a sum would become infinite or NaN. Result in the top bit, as weft_agg_add; the
 * sums do not change. */
static inline uint32_t weft_agg_real_try(const uint32_t *sums, const uint8_t *values,
                                         uint32_t count)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = weft_wire_load_u32(values + 4 * i);
        float sum = weft_agg_real(sums[i]) + weft_agg_real(value);
        bad |= weft_agg_not_finite(value) | weft_agg_not_finite(weft_agg_bits(sum));
    }
    return bad;
}

/* The same check for values that start a sum. */
static inline uint32_t weft_agg_real_check(const uint8_t *values, uint32_t count)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        bad |= weft_agg_not_finite(weft_wire_load_u32(values + 4 * i));
    }
    return bad;
}

static inline void weft_agg_real_add(uint32_t *sums, const uint8_t *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        float value = weft_agg_real(weft_wire_load_u32(values + 4 * i));
        sums[i] = weft_agg_bits(weft_agg_real(sums[i]) + value);
    }
}

#endif
#endif
