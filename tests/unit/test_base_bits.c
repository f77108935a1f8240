/* Bitmaps compared with an oracle of one bool per bit. */
#include "base/bits.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

enum { BITS_MAX = 200, WORDS_MAX = WEFT_BITS_WORDS(BITS_MAX) + 1, ROUNDS = 4000 };

static const uint64_t GUARD = UINT64_C(0xdeadbeefcafef00d);

static size_t slow_next(const bool *oracle, size_t bits, size_t from, bool wanted)
{
    for (size_t i = from; i < bits; i++) {
        if (oracle[i] == wanted) {
            return i;
        }
    }
    return bits;
}

static size_t slow_count(const bool *oracle, size_t bits)
{
    size_t count = 0;
    for (size_t i = 0; i < bits; i++) {
        count += oracle[i];
    }
    return count;
}

static void words_round_up(void **state)
{
    (void)state;
    assert_int_equal(WEFT_BITS_WORDS(0), 0);
    assert_int_equal(WEFT_BITS_WORDS(1), 1);
    assert_int_equal(WEFT_BITS_WORDS(64), 1);
    assert_int_equal(WEFT_BITS_WORDS(65), 2);
}

/* The layout is part of the protocol: bit i is word i / 64, value 2^(i % 64). */
static void layout(void **state)
{
    (void)state;
    uint64_t words[2] = {0};
    weft_bits_set(words, 0);
    weft_bits_set(words, 63);
    weft_bits_set(words, 65);
    assert_int_equal(words[0], UINT64_C(0x8000000000000001));
    assert_int_equal(words[1], 2);
    weft_bits_clear(words, 63);
    weft_bits_clear(words, 62);
    assert_int_equal(words[0], 1);
    assert_true(weft_bits_test(words, 65));
    assert_false(weft_bits_test(words, 64));
}

static void fill_sets_exactly_so_many(void **state)
{
    (void)state;
    for (size_t bits = 0; bits <= BITS_MAX; bits++) {
        uint64_t words[WORDS_MAX];
        memset(words, 0xa5, sizeof(words));
        words[WEFT_BITS_WORDS(bits)] = GUARD;
        weft_bits_fill(words, bits);
        for (size_t i = 0; i < WEFT_BITS_WORDS(bits) * 64; i++) {
            assert_int_equal(weft_bits_test(words, i), i < bits);
        }
        assert_int_equal(words[WEFT_BITS_WORDS(bits)], GUARD);
        assert_int_equal(weft_bits_count(words, bits), bits);
        assert_int_equal(weft_bits_next_zero(words, bits, 0), bits);
    }
}

/* The bits beyond `bits` are random and must be ignored. */
static void random_bitmaps_agree_with_the_oracle(void **state)
{
    (void)state;
    enum { SEED = 20261121 };
    print_message("seed %d\n", SEED);
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bits = weft_prng_below(&prng, BITS_MAX + 1);
        /* Sparse and dense maps, so that runs of equal words occur. */
        uint32_t ones_ppm = (uint32_t)weft_prng_below(&prng, 3) * (WEFT_PPM / 2);
        ones_ppm += ones_ppm == 0 ? WEFT_PPM / 200 : 0;
        bool oracle[BITS_MAX + 64] = {0};
        uint64_t words[WORDS_MAX] = {0};
        for (size_t i = 0; i < WEFT_BITS_WORDS(bits) * 64; i++) {
            oracle[i] = weft_prng_chance(&prng, ones_ppm);
            if (oracle[i]) {
                weft_bits_set(words, i);
            }
        }
        assert_int_equal(weft_bits_count(words, bits), slow_count(oracle, bits));
        size_t rank = 0;
        for (size_t i = 0; i < bits; i++) {
            if (oracle[i]) {
                assert_int_equal(weft_bits_nth_one(words, rank++), i);
            }
        }
        for (size_t from = 0; from <= bits + 2; from++) {
            size_t one = from >= bits ? bits : slow_next(oracle, bits, from, true);
            size_t zero = from >= bits ? bits : slow_next(oracle, bits, from, false);
            assert_int_equal(weft_bits_next_one(words, bits, from), one);
            assert_int_equal(weft_bits_next_zero(words, bits, from), zero);
        }
    }
}

static void random_operations_agree_with_the_oracle(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 7);
    bool oracle[BITS_MAX] = {0};
    uint64_t words[WORDS_MAX] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        size_t bit = weft_prng_below(&prng, BITS_MAX);
        oracle[bit] = weft_prng_chance(&prng, WEFT_PPM / 2);
        if (oracle[bit]) {
            weft_bits_set(words, bit);
        } else {
            weft_bits_clear(words, bit);
        }
        assert_int_equal(weft_bits_count(words, BITS_MAX), slow_count(oracle, BITS_MAX));
    }
    for (size_t i = 0; i < BITS_MAX; i++) {
        assert_int_equal(weft_bits_test(words, i), oracle[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_round_up),
        cmocka_unit_test(layout),
        cmocka_unit_test(fill_sets_exactly_so_many),
        cmocka_unit_test(random_bitmaps_agree_with_the_oracle),
        cmocka_unit_test(random_operations_agree_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
