/* Values as messages carry them: float32 as it is, bf16, the upper half of a float32, or int8, a number of
 * steps whose size a scale says.
 *
 * Pure functions of memory. What a table's messages carry is in its specification; both ends compute with
 * float32.
 *
 * bf16: rounded to the nearest, to even between two. A finite value stays finite: beyond the largest bf16
 * (3.39e38) it becomes that one. Infinities stay, a NaN stays a NaN, zeros keep their sign.
 *
 * int8: values go in groups of at most 64, of whole rows where those are short, each behind its scale s, a
 * bf16. A value is q s with q = -127 .. 127; s is the least bf16 that reaches the largest value of the group
 * so (not above that whose 127 steps are finite: the largest float32 is 127.01 of those). q is rounded to
 * the nearest, to even between two. What is not finite is -128, NaN at the receiver, and has no say in the
 * scale; a group of zeros has scale 0.
 *
 * Why so. Rounding is not random: what it takes is added to the next push (residual.c), so its mean does
 * not matter, and the error of the nearest is at most half a step, that of random rounding a whole one.
 * A group is small because one large value makes the step coarse for all. A scale of 8 bits makes the
 * receiver's product exact (7 + 8 bits), and the remainder, too.
 *
 * For every finite x the remainder of bf16 and of int8 is a float32, without rounding: it is a multiple
 * of the last place of x, and not larger than x.
 *
 * Not here: what becomes of the remainder (residual.c).
 *
 * Source: docs/PROTOCOL.md section 7, "Values".
 */
#ifndef WEFT_PS_VALUES_H
#define WEFT_PS_VALUES_H

#include "rpc/table_spec.h"

#include <stddef.h>
#include <string.h>

static inline uint16_t weft_bf16_store(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint32_t size = bits & 0x7fffffff, upper = bits >> 16;
    uint32_t rounded = (bits + 0x7fff + (upper & 1)) >> 16;
    rounded = size >= 0x7f7f8000 ? (upper & 0x8000) | 0x7f7f : rounded;
    rounded = size >= 0x7f800000 ? upper : rounded;
    rounded =
        size > 0x7f800000 ? upper | 0x40 : rounded; /* quiet: its lower half may be all it had */
    return (uint16_t)rounded;
}

static inline float weft_bf16_load(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Values of float32 or bf16.
 * Shape:   from (count,) float32; out (count,) of this type, unaligned, not overlapping. */
void weft_values_store(uint8_t type, const float *from, size_t count, void *out);

/* Shape:   from (count,) of this type, unaligned; out (count,) float32, not overlapping. */
void weft_values_load(uint8_t type, const void *from, size_t count, float *out);

/* Blocks of so many floats, of any type, that are encoded together.
 * Shape:   from (blocks, floats) float32; out weft_blocks_bytes, unaligned, not overlapping. */
void weft_blocks_store(uint8_t type, uint32_t floats, const float *from, size_t blocks, void *out);

/* Shape:   from weft_blocks_bytes, unaligned: anything; out (blocks, floats) float32, not overlapping.
 * Returns: false where a scale is negative, infinite or NaN; out is then anything. */
[[nodiscard]] bool weft_blocks_load(uint8_t type, uint32_t floats, const void *from, size_t blocks,
                                    float *out);

/* Block `index` of those, as it is when it is encoded alone: the same values.
 * Shape:   from weft_blocks_bytes of more than index; out weft_blocks_bytes of one. */
void weft_blocks_take(uint8_t type, uint32_t floats, const void *from, size_t index, void *out);

#endif
