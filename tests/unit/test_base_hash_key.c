/* The keyed hash: a fixed test vector; every bit of the id and of the key affects every bit of the
 * hash; ids in patterns collide no more often than random ids under any key. */
#include "base/hash_key.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { KEYS = 50, IDS = 4096 };

static struct weft_hash_key draw(struct weft_prng *prng)
{
    uint8_t bytes[WEFT_HASH_KEY_BYTES];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)weft_prng_below(prng, 256);
    }
    return weft_hash_key(bytes);
}

/* As computed with Python's integers: filters in checkpoints were made with this function. */
static void vectors(void **state)
{
    (void)state;
    uint8_t bytes[WEFT_HASH_KEY_BYTES] = {0};
    struct weft_hash_key key = weft_hash_key(bytes);
    assert_int_equal(weft_hash_keyed(&key, 0), UINT64_C(0xf5bbb786ac4058c7));
    assert_int_equal(weft_hash_keyed(&key, UINT64_MAX), UINT64_C(0x5a7e21c6aa99e123));
    for (uint8_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = i;
    }
    key = weft_hash_key(bytes);
    assert_int_equal(weft_hash_keyed(&key, 1), UINT64_C(0x3b0ea732ac9fda4d));
    assert_int_equal(weft_hash_keyed(&key, 2), UINT64_C(0xfa5e6a0a049d2199));
}

static void zeros_are_told(void **state)
{
    (void)state;
    uint8_t bytes[WEFT_HASH_KEY_BYTES] = {0};
    assert_true(weft_hash_key_is_zero(bytes));
    bytes[WEFT_HASH_KEY_BYTES - 1] = 1;
    assert_false(weft_hash_key_is_zero(bytes));
}

/* A bit of the id flips each bit of the hash with probability one half. 4,000 trials: 0.5 +- 6
 * sigma. */
static void bits_reach_bits(void **state)
{
    (void)state;
    enum { TOSSES = 4000 };
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (int in = 0; in < 64; in++) {
        uint32_t flips[64] = {0};
        for (int toss = 0; toss < TOSSES; toss++) {
            struct weft_hash_key key = draw(&prng);
            uint64_t id = weft_prng_u64(&prng);
            uint64_t other = id ^ UINT64_C(1) << in;
            uint64_t change = weft_hash_keyed(&key, id) ^ weft_hash_keyed(&key, other);
            for (int out = 0; out < 64; out++) {
                flips[out] += change >> out & 1;
            }
        }
        for (int out = 0; out < 64; out++) {
            assert_in_range(flips[out], TOSSES / 2 - 190, TOSSES / 2 + 190);
        }
    }
}

/* Id number i of a pattern. */
static uint64_t pattern(int kind, uint64_t i)
{
    switch (kind) {
    case 0: /* both ends */
        return i << 58 ^ i >> 6;
    case 1: /* both halves */
        return i * UINT64_C(0x100000001);
    case 2: /* multiples of a constant of the function */
        return i * UINT64_C(0xe7037ed1a0b428db);
    default: /* progressions: from counting up to the highest bits alone */
        return i << (kind - 3);
    }
}

/* With 4,096 random ids the fullest of 4,096 slots has about 7 ids, and 16 once in 10^9 runs. */
static void patterns_do_not_meet(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    for (int k = 0; k < KEYS; k++) {
        struct weft_hash_key key = draw(&prng);
        for (int kind = 0; kind < 3 + 53; kind++) {
            uint8_t places[IDS] = {0}, tags[256] = {0};
            uint32_t most = 0, tags_used = 0;
            for (uint64_t i = 0; i < IDS; i++) {
                uint64_t hash = weft_hash_keyed(&key, pattern(kind, i));
                uint8_t *place = &places[hash % IDS];
                most = ++*place > most ? *place : most;
                tags[hash >> 40 & 0xff] = 1;
            }
            for (int t = 0; t < 256; t++) {
                tags_used += tags[t];
            }
            assert_in_range(most, 4, 15);
            assert_in_range(tags_used, 250, 256);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(zeros_are_told),
        cmocka_unit_test(bits_reach_bits),
        cmocka_unit_test(patterns_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
