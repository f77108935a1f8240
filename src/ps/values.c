#include "ps/values.h"

#include "base/assert.h"

enum { STEPS_MAX = 127, NOT_FINITE = -128 };

/* The largest scale of which STEPS_MAX steps are finite: (1 + 1/128) 2^121. */
enum { SCALE_MAX = 0x7c01 };

/* A float32 this large has no fractional bits, so adding a value rounds it to the nearest integer,
 * which is in the low bits of the sum. */
#define ROUNDER 0x1.8p23F

/* ---- float32, bf16 --------------------------------------------------------------------------- */

void weft_values_store(uint8_t type, const float *from, size_t count, void *out)
{
    uint8_t *restrict to = out;
    WEFT_ASSERT(type != WEFT_VALUE_INT8);
    if (type == WEFT_VALUE_FLOAT32) {
        memcpy(to, from, count * sizeof(*from));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = weft_bf16_store(from[i]);
        memcpy(to + i * sizeof(half), &half, sizeof(half));
    }
}

void weft_values_load(uint8_t type, const void *from, size_t count, float *out)
{
    const uint8_t *restrict at = from;
    WEFT_ASSERT(type != WEFT_VALUE_INT8);
    if (type == WEFT_VALUE_FLOAT32) {
        memcpy(out, at, count * sizeof(*out));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, at + i * sizeof(half), sizeof(half));
        out[i] = weft_bf16_load(half);
    }
}

typedef uint32_t quad __attribute__((vector_size(16)));

/* The highest bit of each: an exponent of ones. */
static inline quad quad_not_finite(const uint8_t *at)
{
    quad bits;
    memcpy(&bits, at, sizeof(bits));
    return (bits & 0x7fffffff) + 0x00800000;
}

bool weft_values_finite(const void *floats, size_t count)
{
    const uint8_t *at = floats;
    quad found = {0};
    for (; count >= 16; count -= 16, at += 4 * sizeof(quad)) {
        found |= quad_not_finite(at) | quad_not_finite(at + sizeof(quad)) |
                 quad_not_finite(at + 2 * sizeof(quad)) | quad_not_finite(at + 3 * sizeof(quad));
    }
    uint32_t all = found[0] | found[1] | found[2] | found[3];
    for (; count > 0; count--, at += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, at, sizeof(bits));
        all |= (bits & 0x7fffffff) + 0x00800000;
    }
    return all >> 31 == 0;
}

/* ---- int8 ------------------------------------------------------------------------------------ */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static bool is_finite_bits(uint32_t bits)
{
    return (bits & 0x7f800000) != 0x7f800000;
}

/* The bits of a float32 without the sign compare like its magnitude. */
static uint16_t scale_of(const float *from, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t size = bits_of(from[i]) & 0x7fffffff;
        const uint32_t finite = size < 0x7f800000 ? size : 0;
        most = finite > most ? finite : most;
    }
    float step;
    memcpy(&step, &most, sizeof(step));
    const uint32_t least = (bits_of(step / STEPS_MAX) + 0xffff) >> 16;
    return (uint16_t)(least < SCALE_MAX ? least : SCALE_MAX);
}

static void store_group(const float *from, uint32_t count, uint8_t *restrict out)
{
    const uint16_t scale = scale_of(from, count);
    /* In a group of zeros, or of values so small that they count as zero, every q is 0. */
    const float step = scale == 0 ? 1 : weft_bf16_load(scale);
    memcpy(out, &scale, sizeof(scale));
    for (uint32_t i = 0; i < count; i++) {
        const float steps = from[i] / step;
        const uint32_t whole = bits_of(steps + ROUNDER); /* |steps| < 127.5 */
        const bool finite = is_finite_bits(bits_of(from[i]));
        out[sizeof(scale) + i] = (uint8_t)(finite ? whole : (uint32_t)NOT_FINITE);
    }
}

static bool load_group(const uint8_t *restrict from, uint32_t count, float *out)
{
    const float nan = __builtin_nanf("");
    uint16_t scale;
    memcpy(&scale, from, sizeof(scale));
    const float step = weft_bf16_load(scale);
    for (uint32_t i = 0; i < count; i++) {
        const int8_t steps = (int8_t)from[sizeof(scale) + i];
        const float value = (float)steps * step;
        out[i] = steps == NOT_FINITE ? nan : value;
    }
    return scale < 0x7f80; /* no sign, and finite */
}

/* Number of values in the group that begins at index `value`; groups of long blocks end with the
 * block. */
static uint32_t group_at(uint32_t floats, size_t value, size_t values)
{
    const size_t whole = floats < WEFT_INT8_GROUP ? (size_t)weft_int8_group_blocks(floats) * floats
                                                  : WEFT_INT8_GROUP;
    const size_t end = floats < WEFT_INT8_GROUP ? values : (value / floats + 1) * floats;
    return (uint32_t)(whole < end - value ? whole : end - value);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void weft_blocks_store(uint8_t type, uint32_t floats, const float *from, size_t blocks, void *out)
{
    const size_t values = blocks * floats;
    uint8_t *to = out;
    if (type != WEFT_VALUE_INT8) {
        weft_values_store(type, from, values, out);
        return;
    }
    for (size_t value = 0, n; value < values; value += n) {
        n = group_at(floats, value, values);
        store_group(from + value, (uint32_t)n, to);
        to += WEFT_INT8_SCALE_BYTES + n;
    }
}

bool weft_blocks_load(uint8_t type, uint32_t floats, const void *from, size_t blocks, float *out)
{
    const size_t values = blocks * floats;
    const uint8_t *at = from;
    bool good = true;
    if (type != WEFT_VALUE_INT8) {
        weft_values_load(type, from, values, out);
        return true;
    }
    for (size_t value = 0, n; value < values; value += n) {
        n = group_at(floats, value, values);
        good &= load_group(at, (uint32_t)n, out + value);
        at += WEFT_INT8_SCALE_BYTES + n;
    }
    return good;
}

void weft_blocks_take(uint8_t type, uint32_t floats, const void *from, size_t index, void *out)
{
    const uint8_t *at = from;
    uint8_t *to = out;
    if (type != WEFT_VALUE_INT8 || floats >= WEFT_INT8_GROUP) {
        const size_t block_bytes = weft_blocks_bytes(type, floats, 1);
        memcpy(to, at + index * block_bytes, block_bytes);
        return;
    }
    const uint32_t group_blocks = weft_int8_group_blocks(floats);
    at += index / group_blocks * (WEFT_INT8_SCALE_BYTES + (size_t)group_blocks * floats);
    memcpy(to, at, WEFT_INT8_SCALE_BYTES);
    memcpy(to + WEFT_INT8_SCALE_BYTES,
           at + WEFT_INT8_SCALE_BYTES + index % group_blocks * (size_t)floats, floats);
}
