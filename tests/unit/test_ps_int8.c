/* Gradients as int8: the encoding compared with a simple one that follows docs/PROTOCOL.md
 * literally, its error, its remainder, and invalid bytes. */
#include "base/bits.h"
#include "base/prng.h"
#include "ps/values.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VALUES_MAX = 256 * 70, BYTES_MAX = VALUES_MAX * 3 };

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- the slow one ---------------------------------------------------------------------------- */

/* First value and length of the group of value i. */
static uint32_t group_of(uint32_t floats, uint32_t blocks, uint32_t i, uint32_t *first_p)
{
    uint32_t begin = 0, end = floats * blocks, most = 64;
    if (floats >= 64) {
        begin = i / floats * floats;
        end = begin + floats;
    } else {
        most = 64 / floats * floats;
    }
    *first_p = begin + (i - begin) / most * most;
    return end - *first_p < most ? end - *first_p : most;
}

/* The smallest bf16 that is at least 1/127 of the largest value, by linear search. */
static uint16_t scale_of(const float *from, uint32_t count)
{
    float most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = isfinite(from[i]) && fabsf(from[i]) > most ? fabsf(from[i]) : most;
    }
    uint16_t scale = weft_bf16_store(most / 127);
    while (scale > 0 && weft_bf16_load((uint16_t)(scale - 1)) >= most / 127) {
        scale--;
    }
    while (weft_bf16_load(scale) < most / 127) {
        scale++;
    }
    return scale < 0x7c01 ? scale : 0x7c01;
}

static int32_t steps_of(float value, float scale)
{
    if (!isfinite(value)) {
        return -128;
    }
    return scale == 0 ? 0 : (int32_t)nearbyintf(value / scale);
}

/* Encode blocks together; returns the number of bytes. */
static size_t slow_store(uint32_t floats, const float *from, uint32_t blocks, uint8_t *out)
{
    size_t bytes = 0;
    for (uint32_t i = 0, first, n; i < floats * blocks; i += n) {
        n = group_of(floats, blocks, i, &first);
        assert_int_equal(first, i);
        const uint16_t scale = scale_of(from + i, n);
        out[bytes++] = (uint8_t)scale;
        out[bytes++] = (uint8_t)(scale >> 8);
        for (uint32_t k = 0; k < n; k++) {
            out[bytes++] = (uint8_t)steps_of(from[i + k], weft_bf16_load(scale));
        }
    }
    return bytes;
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* Values of one magnitude, of all magnitudes, mostly zeros, or whole steps; some are not finite. */
static void draw(struct weft_prng *prng, float *out, uint32_t count)
{
    const uint64_t kind = weft_prng_below(prng, 6);
    const uint32_t exponent = (uint32_t)weft_prng_below(prng, 255);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)weft_prng_u64(prng);
        const uint32_t near = (exponent + bits % 8) % 255;
        float value = of_bits((bits & 0x807fffff) | near << 23);
        value = kind == 1 ? of_bits(bits) : value;
        value = kind == 2 && bits % 9 != 0 ? 0 : value;
        value = kind == 3 ? (float)((int32_t)(bits % 255) - 127) * 0.5F : value;
        value = kind == 4 ? of_bits(bits & 0x80ffffff) : value; /* subnormal, or close to it */
        value = kind != 5 && !isfinite(value) ? 1 : value;
        out[i] = kind == 5 && bits % 7 == 0 ? of_bits((bits & 0x80000000) | 0x7f800000 | bits % 3)
                                            : value;
    }
}

static const uint32_t lengths[] = {1,  2,  3,   5,   16,  31,  32,  33, 63,
                                   64, 65, 100, 127, 128, 129, 200, 256};

/* ---- tests ----------------------------------------------------------------------------------- */

static void as_the_slow_one(void **state)
{
    (void)state;
    static float from[VALUES_MAX];
    static uint8_t fast[BYTES_MAX + 1], slow[BYTES_MAX];
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (uint32_t round = 0; round < 3000; round++) {
        const uint32_t floats = lengths[round % WEFT_ARRAY_COUNT(lengths)];
        const uint32_t blocks = (uint32_t)weft_prng_range(&prng, 0, 70);
        draw(&prng, from, floats * blocks);
        const size_t bytes = weft_blocks_bytes(WEFT_VALUE_INT8, floats, blocks);
        assert_int_equal(slow_store(floats, from, blocks, slow), bytes);
        memset(fast, 0xee, bytes + 2 < sizeof(fast) ? bytes + 2 : sizeof(fast));
        weft_blocks_store(WEFT_VALUE_INT8, floats, from, blocks, fast + 1); /* not aligned */
        assert_memory_equal(fast + 1, slow, bytes);
        assert_int_equal(fast[bytes + 1], 0xee);
    }
}

/* The error is at most half a step. A step is at most 1/127 of the largest value, rounded up to 8
 * bits. The remainder is a float32. Steps are -127 .. 127. A value that is not finite becomes NaN
 * and affects no other. */
static void error_and_rest(void **state)
{
    (void)state;
    static float from[VALUES_MAX], back[VALUES_MAX], alone[256];
    static uint8_t bytes[BYTES_MAX], one[256 + 2 * 4];
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    for (uint32_t round = 0; round < 3000; round++) {
        const uint32_t floats = lengths[round % WEFT_ARRAY_COUNT(lengths)];
        const uint32_t blocks = (uint32_t)weft_prng_range(&prng, 1, 70);
        draw(&prng, from, floats * blocks);
        weft_blocks_store(WEFT_VALUE_INT8, floats, from, blocks, bytes);
        assert_true(weft_blocks_load(WEFT_VALUE_INT8, floats, bytes, blocks, back));
        for (uint32_t i = 0, first; i < floats * blocks; i++) {
            const uint32_t n = group_of(floats, blocks, i, &first);
            double most = 0;
            for (uint32_t k = first; i == first && k < first + n; k++) {
                most = isfinite(from[k]) ? fmax(most, fabs((double)from[k])) : most;
            }
            for (uint32_t k = first; i == first && k < first + n; k++) {
                if (!isfinite(from[k])) {
                    assert_true(isnan(back[k]));
                    continue;
                }
                const double rest = (double)from[k] - (double)back[k];
                const double half_step = (most / 127 * (1 + 1.0 / 128) + 0x1p-133) / 2;
                assert_true(fabs(rest) <= half_step * (1 + 0x1p-16));
                assert_true(rest == (double)(from[k] - back[k]));
                assert_true(fabs((double)back[k]) <= FLT_MAX && back[k] * from[k] >= 0);
            }
        }
        for (uint32_t b = 0; b < blocks; b++) { /* each block alone gives the same values */
            weft_blocks_take(WEFT_VALUE_INT8, floats, bytes, b, one);
            assert_true(weft_blocks_load(WEFT_VALUE_INT8, floats, one, 1, alone));
            for (uint32_t i = 0; i < floats; i++) {
                const float there = back[b * floats + i];
                assert_true(alone[i] == there || (isnan(alone[i]) && isnan(there)));
            }
        }
    }
}

/* The examples of docs/PROTOCOL.md, and edges. */
static void by_hand(void **state)
{
    (void)state;
    uint8_t bytes[16];
    const float three[] = {1, 2, -3, 0, 0.5F, 254};
    static const uint8_t together[] = {0x00, 0x40, 0x00, 0x01, 0xfe, 0x00, 0x00, 0x7f};
    static const uint8_t first[] = {0x82, 0x3c, 0x3f, 0x7e};
    assert_int_equal(weft_blocks_bytes(WEFT_VALUE_INT8, 2, 3), sizeof(together));
    weft_blocks_store(WEFT_VALUE_INT8, 2, three, 3, bytes);
    assert_memory_equal(bytes, together, sizeof(together));
    weft_blocks_store(WEFT_VALUE_INT8, 2, three, 1, bytes);
    assert_memory_equal(bytes, first, sizeof(first));
    const struct {
        float pair[2];
        uint8_t bytes[4];
    } cases[] = {
        {{0, -0.0F}, {0, 0, 0, 0}},
        {{NAN, 0}, {0, 0, 0x80, 0}},
        {{INFINITY, 127}, {0x80, 0x3f, 0x80, 0x7f}},
        {{FLT_MAX, -FLT_MAX}, {0x01, 0x7c, 0x7f, 0x81}},
        {{0x1p-149F, 0}, {0, 0, 0, 0}},       /* 1/127 of it rounds to 0 */
        {{0x1p-133F, 0}, {0x01, 0, 0x01, 0}}, /* the smallest scale: one step */
        {{0x1p-126F, 0x1p-127F}, {0x02, 0, 0x40, 0x20}},
        {{-127, 1.5F}, {0x80, 0x3f, 0x81, 0x02}}, /* a tie: to even */
        {{-127, 2.5F}, {0x80, 0x3f, 0x81, 0x02}},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        weft_blocks_store(WEFT_VALUE_INT8, 2, cases[i].pair, 1, bytes);
        assert_memory_equal(bytes, cases[i].bytes, 4);
    }
}

/* The number of blocks that fit is the inverse of the length. */
static void sizes(void **state)
{
    (void)state;
    static const uint8_t types[] = {WEFT_VALUE_FLOAT32, WEFT_VALUE_BF16, WEFT_VALUE_INT8};
    for (size_t t = 0; t < WEFT_ARRAY_COUNT(types); t++) {
        for (uint32_t floats = 1; floats <= 256; floats++) {
            for (uint32_t n = 0; n < 150; n++) {
                const size_t bytes = weft_blocks_bytes(types[t], floats, n);
                const size_t more = weft_blocks_bytes(types[t], floats, n + 1);
                assert_true(more > bytes && more - bytes <= weft_blocks_bytes(types[t], floats, 1));
                assert_int_equal(weft_blocks_within(types[t], floats, bytes), n);
                assert_int_equal(weft_blocks_within(types[t], floats, more - 1), n);
            }
        }
    }
}

/* Negative, infinite and NaN scales are refused at any position; all others are accepted. */
static void scales(void **state)
{
    (void)state;
    float out[130];
    for (uint32_t scale = 0; scale <= UINT16_MAX; scale++) {
        uint8_t bytes[130 + 6] = {0};
        const float step = weft_bf16_load((uint16_t)scale);
        for (uint32_t group = 0; group < 3; group++) {
            memset(bytes, 0, sizeof(bytes));
            memcpy(bytes + group * 66, &scale, 2);
            bytes[group * 66 + 2] = 0x81;
            bytes[group * 66 + 3] = 0x80;
            const bool good = isfinite(step) && !signbit(step);
            assert_int_equal(weft_blocks_load(WEFT_VALUE_INT8, 130, bytes, 1, out), good);
            if (good) {
                assert_true(out[group * 64] == -127 * step && isnan(out[group * 64 + 1]));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_slow_one), cmocka_unit_test(error_and_rest),
        cmocka_unit_test(by_hand),         cmocka_unit_test(sizes),
        cmocka_unit_test(scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
