/* Encodings of values in messages: float32; bf16, the upper half of a float32; or int8, multiples
 * of a scale.
 *
 * Pure functions. A table's specification determines the encoding; both ends compute with float32.
 *
 * bf16: rounded to nearest, ties to even. A finite value beyond the largest bf16 (3.39e38)
 * saturates to it. Infinities and NaNs are preserved; zeros keep their sign.
 *
 * int8: values are encoded in groups of at most 64 (of whole rows if these are short), each
 * preceded by its scale s, a bf16. A value is q s with q = -127 .. 127. s is the least bf16 for
 * which 127 s reaches the largest magnitude of the group, limited so that 127 s is finite (the
 * largest float32 is 127.01 times that limit). q is rounded to nearest, ties to even. A value that
 * is not finite is -128, which decodes to NaN, and does not affect the scale. A group of zeros has
 * scale 0.
 *
 * Rationale. Rounding is deterministic: the error is added to the next push (residual.c), so it
 * need not be unbiased, and its error is at most half a step, against a whole step of stochastic
 * rounding. Groups are small because one large value makes the step coarse for all. A scale with an
 * 8-bit significand makes the receiver's product exact (7 + 8 bits), and the remainder, too.
 *
 * For every finite x the remainder of bf16 and of int8 is exactly a float32: it is a multiple of
 * the unit in the last place of x, and not larger than x.
 *
 * Not here: the use of the remainder (residual.c).
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
    rounded = size > 0x7f800000 ? upper | 0x40 : rounded; /* make the NaN quiet: all its set bits
                                                           * may be in the lower half */
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

/* The reverse.
 * Shape:   from (count,) of this type, unaligned; out (count,) float32, not overlapping. */
void weft_values_load(uint8_t type, const void *from, size_t count, float *out);

/* True: no value is infinite or NaN.
 * Shape:   floats (count,) float32, unaligned. */
[[nodiscard]] bool weft_values_finite(const void *floats, size_t count);

/* Encode blocks of `floats` floats together, with any type.
 * Shape:   from (blocks, floats) float32; out weft_blocks_bytes, unaligned, not overlapping. */
void weft_blocks_store(uint8_t type, uint32_t floats, const float *from, size_t blocks, void *out);

/* Decode blocks; untrusted input. False: a scale is negative, infinite or NaN; out is then
 * undefined.
 * Shape:   from weft_blocks_bytes, unaligned; out (blocks, floats) float32, not overlapping. */
[[nodiscard]] bool weft_blocks_load(uint8_t type, uint32_t floats, const void *from, size_t blocks,
                                    float *out);

/* Extract block `index`, as it would be encoded alone: the same values.
 * Shape:   from: the encoding of more than `index` blocks; out weft_blocks_bytes of one block. */
void weft_blocks_take(uint8_t type, uint32_t floats, const void *from, size_t index, void *out);

#endif
