/* Blocks of BLOCK elements are reduced in accumulators on the stack, one source after another. Each
 * source is read once, and the compiler can vectorize loops with a fixed operation. Sums begin with
 * two sources, which saves a pass over the accumulators. */
#include "coll/fold.h"

#include <string.h>

enum { BLOCK = 256 };

/* ---- half precision -------------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float weft_coll_f16_load(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0x1f) {
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Adding `magic` shifts the bits that binary16 has for a subnormal to the end of the fraction; the
 * processor rounds. */
uint16_t weft_coll_f16_store(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    }
    if (bits >= 0x47800000) { /* 65,536 and more; smaller values that round up to it carry over
                               * below */
        return (uint16_t)(sign | 0x7c00);
    }
    if (bits < 0x38800000) { /* below 2^-14 */
        const float magic = 0.5f;
        float sum = float_of_bits(bits) + magic;
        return (uint16_t)(sign | (bits_of_float(sum) - bits_of_float(magic)));
    }
    uint32_t odd = bits >> 13 & 1;
    bits += 0xfff + odd;
    return (uint16_t)(sign | (bits - ((uint32_t)112 << 23)) >> 13);
}

float weft_coll_bf16_load(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

uint16_t weft_coll_bf16_store(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- one type -------------------------------------------------------------------------------- */

/* Elements of a source, which may be in a packet, where they are not aligned. */
#define SOURCE(NAME, T) typedef T source_##NAME __attribute__((aligned(1), may_alias));

SOURCE(f32, float)
SOURCE(f64, double)
SOURCE(f16, uint16_t)
SOURCE(bf16, uint16_t)
SOURCE(i8, int8_t)
SOURCE(u8, uint8_t)
SOURCE(i32, int32_t)
SOURCE(i64, int64_t)

#define EACH(expression)                                                                           \
    for (size_t i = 0; i < n; i++) {                                                               \
        acc[i] = expression;                                                                       \
    }

/* NaN propagates: a comparison with it is false. */
#define FLOAT_STEP(NAME, ACC, LOAD)                                                                \
    static void step_##NAME(ACC *acc, const source_##NAME *from, size_t n,                         \
                            enum weft_coll_reduction reduction)                                    \
    {                                                                                              \
        switch (reduction) {                                                                       \
        case WEFT_COLL_MIN:                                                                        \
            EACH((acc[i] < LOAD(from[i]) || acc[i] != acc[i]) ? acc[i] : LOAD(from[i]))            \
            break;                                                                                 \
        case WEFT_COLL_MAX:                                                                        \
            EACH((acc[i] > LOAD(from[i]) || acc[i] != acc[i]) ? acc[i] : LOAD(from[i]))            \
            break;                                                                                 \
        case WEFT_COLL_PRODUCT:                                                                    \
            EACH(acc[i] * LOAD(from[i]))                                                           \
            break;                                                                                 \
        default:                                                                                   \
            EACH(acc[i] + LOAD(from[i]))                                                           \
            break;                                                                                 \
        }                                                                                          \
    }

/* U is an unsigned type in which sums and products wrap around. */
#define INT_STEP(NAME, T, U)                                                                       \
    static void step_##NAME(T *acc, const source_##NAME *from, size_t n,                           \
                            enum weft_coll_reduction reduction)                                    \
    {                                                                                              \
        switch (reduction) {                                                                       \
        case WEFT_COLL_MIN:                                                                        \
            EACH(acc[i] < from[i] ? acc[i] : from[i])                                              \
            break;                                                                                 \
        case WEFT_COLL_MAX:                                                                        \
            EACH(acc[i] > from[i] ? acc[i] : from[i])                                              \
            break;                                                                                 \
        case WEFT_COLL_PRODUCT:                                                                    \
            EACH((T)((U)acc[i] * (U)from[i]))                                                      \
            break;                                                                                 \
        case WEFT_COLL_AND:                                                                        \
            EACH((T)(acc[i] & from[i]))                                                            \
            break;                                                                                 \
        case WEFT_COLL_OR:                                                                         \
            EACH((T)(acc[i] | from[i]))                                                            \
            break;                                                                                 \
        case WEFT_COLL_XOR:                                                                        \
            EACH((T)(acc[i] ^ from[i]))                                                            \
            break;                                                                                 \
        default:                                                                                   \
            EACH((T)((U)acc[i] + (U)from[i]))                                                      \
            break;                                                                                 \
        }                                                                                          \
    }

#define FOLD(NAME, T, ACC, LOAD, STORE, PLUS, DIVIDE)                                              \
    static void fold_##NAME(T *out, const void *const *from, uint32_t sources, size_t elems,       \
                            enum weft_coll_reduction reduction, uint32_t divisor)                  \
    {                                                                                              \
        ACC acc[BLOCK];                                                                            \
        bool sum = reduction == WEFT_COLL_SUM || reduction == WEFT_COLL_MEAN;                      \
        bool two = sum && sources > 1;                                                             \
        for (size_t at = 0; at < elems; at += BLOCK) {                                             \
            size_t n = weft_min_u64(elems - at, BLOCK);                                            \
            const source_##NAME *first = (const source_##NAME *)from[0] + at;                      \
            const source_##NAME *second = (const source_##NAME *)from[two] + at;                   \
            if (two) {                                                                             \
                EACH(PLUS(LOAD(first[i]), LOAD(second[i])))                                        \
            } else {                                                                               \
                EACH(LOAD(first[i]))                                                               \
            }                                                                                      \
            for (uint32_t k = two ? 2 : 1; k < sources; k++) {                                     \
                step_##NAME(acc, (const source_##NAME *)from[k] + at, n, reduction);               \
            }                                                                                      \
            if (reduction == WEFT_COLL_MEAN) {                                                     \
                EACH(DIVIDE(acc[i]))                                                               \
            }                                                                                      \
            for (size_t i = 0; i < n; i++) {                                                       \
                out[at + i] = STORE(acc[i]);                                                       \
            }                                                                                      \
        }                                                                                          \
    }

#define SAME(x)       (x)
#define ADD(x, y)     ((x) + (y))
#define ADD_32(x, y)  ((uint32_t)(x) + (uint32_t)(y)) /* wraps, also where it becomes narrower */
#define ADD_64(x, y)  ((uint64_t)(x) + (uint64_t)(y))
#define DIVIDE_F32(x) ((x) / (float)divisor)
#define DIVIDE_F64(x) ((x) / (double)divisor)
#define NO_DIVIDE(x)  ((void)divisor, (x))

FLOAT_STEP(f32, float, SAME)
FLOAT_STEP(f64, double, SAME)
FLOAT_STEP(f16, float, weft_coll_f16_load)
FLOAT_STEP(bf16, float, weft_coll_bf16_load)
INT_STEP(i8, int8_t, uint32_t)
INT_STEP(u8, uint8_t, uint32_t)
INT_STEP(i32, int32_t, uint32_t)
INT_STEP(i64, int64_t, uint64_t)

FOLD(f32, float, float, SAME, SAME, ADD, DIVIDE_F32)
FOLD(f64, double, double, SAME, SAME, ADD, DIVIDE_F64)
FOLD(f16, uint16_t, float, weft_coll_f16_load, weft_coll_f16_store, ADD, DIVIDE_F32)
FOLD(bf16, uint16_t, float, weft_coll_bf16_load, weft_coll_bf16_store, ADD, DIVIDE_F32)
FOLD(i8, int8_t, int8_t, SAME, SAME, ADD_32, NO_DIVIDE)
FOLD(u8, uint8_t, uint8_t, SAME, SAME, ADD_32, NO_DIVIDE)
FOLD(i32, int32_t, int32_t, SAME, SAME, ADD_32, NO_DIVIDE)
FOLD(i64, int64_t, int64_t, SAME, SAME, ADD_64, NO_DIVIDE)

/* ---- all types ------------------------------------------------------------------------------- */

void weft_coll_fold(enum weft_coll_type type, enum weft_coll_reduction reduction, void *out,
                    const void *const *from, uint32_t sources, size_t elems, uint32_t divisor)
{
    switch (type) {
    case WEFT_COLL_F32:
        fold_f32(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_F64:
        fold_f64(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_F16:
        fold_f16(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_BF16:
        fold_bf16(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_I8:
        fold_i8(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_U8:
        fold_u8(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_I32:
        fold_i32(out, from, sources, elems, reduction, divisor);
        break;
    case WEFT_COLL_I64:
    case WEFT_COLL_TYPES:
        fold_i64(out, from, sources, elems, reduction, divisor);
        break;
    }
}

bool weft_coll_fold_has(enum weft_coll_type type, enum weft_coll_reduction reduction)
{
    bool floats = type <= WEFT_COLL_BF16;
    switch (reduction) {
    case WEFT_COLL_SUM:
    case WEFT_COLL_MIN:
    case WEFT_COLL_MAX:
    case WEFT_COLL_PRODUCT:
        return true;
    case WEFT_COLL_MEAN:
        return floats;
    case WEFT_COLL_AND:
    case WEFT_COLL_OR:
    case WEFT_COLL_XOR:
        return !floats;
    case WEFT_COLL_REDUCTIONS:
        break;
    }
    return false;
}
