/* Values as messages carry them: float32 as it is, or bf16, the upper half of a float32.
 *
 * Pure functions of memory. What a table's messages carry is in its specification; both ends compute with
 * float32. A bf16 is rounded to the nearest, to even between two. A finite value stays finite: beyond
 * the largest bf16 (3.39e38) it becomes that one. Infinities stay, a NaN stays a NaN, zeros keep their
 * sign. So for every finite x the remainder x - bf16(x) is a float32, without rounding.
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

/* Shape:   from (count,) float32; out (count,) of this type, unaligned, not overlapping. */
void weft_values_store(uint8_t type, const float *from, size_t count, void *out);

/* Shape:   from (count,) of this type, unaligned; out (count,) float32, not overlapping. */
void weft_values_load(uint8_t type, const void *from, size_t count, float *out);

#endif
