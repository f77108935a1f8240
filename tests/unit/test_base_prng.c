/* The generator is a contract: a seed in a bug report must give the same run forever. Golden values
 * come from the published algorithms (splitmix64 of seed 1234567 and xoshiro256** of state 1, 2, 3,
 * 4 are the values that other implementations test against). */
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static void seeding_is_splitmix64(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1234567);
    assert_int_equal(prng.state[0], UINT64_C(6457827717110365317));
    assert_int_equal(prng.state[1], UINT64_C(3203168211198807973));
    assert_int_equal(prng.state[2], UINT64_C(9817491932198370423));
    assert_int_equal(prng.state[3], UINT64_C(4593380528125082431));
}

static void stepping_is_xoshiro256ss(void **state)
{
    (void)state;
    static const uint64_t golden[] = {
        UINT64_C(11520),
        UINT64_C(0),
        UINT64_C(1509978240),
        UINT64_C(1215971899390074240),
        UINT64_C(1216172134540287360),
        UINT64_C(607988272756665600),
        UINT64_C(16172922978634559625),
        UINT64_C(8476171486693032832),
        UINT64_C(10595114339597558777),
        UINT64_C(2904607092377533576),
    };
    struct weft_prng prng = {.state = {1, 2, 3, 4}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(golden); i++) {
        assert_int_equal(weft_prng_u64(&prng), golden[i]);
    }
}

static void seeded_streams_have_not_changed(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 0);
    assert_int_equal(weft_prng_u64(&prng), UINT64_C(0x99ec5f36cb75f2b4));
    assert_int_equal(weft_prng_u64(&prng), UINT64_C(0xbf6e1f784956452a));
    weft_prng_init(&prng, 42);
    assert_int_equal(weft_prng_u64(&prng), UINT64_C(0x15780b2e0c2ec716));
    weft_prng_split(&prng, 42, 7);
    assert_int_equal(weft_prng_u64(&prng), UINT64_C(0x8d8c3d4ddaadc08c));
    assert_int_equal(weft_prng_u64(&prng), UINT64_C(0xcb1d131f45e8e1e2));
}

static void below_and_range_keep_their_limits(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    static const uint64_t limits[] = {1, 2, 3, 10, 1000, UINT64_C(1) << 33, UINT64_MAX};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(limits); i++) {
        for (int round = 0; round < 1000; round++) {
            assert_true(weft_prng_below(&prng, limits[i]) < limits[i]);
            uint64_t lo = UINT64_MAX - limits[i];
            uint64_t v = weft_prng_range(&prng, lo, UINT64_MAX - 1);
            assert_true(v >= lo && v <= UINT64_MAX - 1);
        }
    }
    assert_int_equal(weft_prng_range(&prng, 5, 5), 5);
}

static void both_ends_of_a_range_occur(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    unsigned seen[4] = {0};
    for (int round = 0; round < 4000; round++) {
        seen[weft_prng_range(&prng, 10, 13) - 10]++;
    }
    for (int i = 0; i < 4; i++) {
        /* Expected 1000, standard deviation 27. */
        assert_in_range(seen[i], 850, 1150);
    }
}

static void the_range_of_all_numbers_is_one(void **state)
{
    (void)state;
    struct weft_prng a;
    struct weft_prng b;
    weft_prng_init(&a, 3);
    weft_prng_init(&b, 3);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(weft_prng_range(&a, 0, UINT64_MAX), weft_prng_u64(&b));
    }
}

static void chance_comes_true_as_often_as_it_says(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 4);
    unsigned hits = 0;
    for (int round = 0; round < 100000; round++) {
        assert_false(weft_prng_chance(&prng, 0));
        assert_true(weft_prng_chance(&prng, WEFT_PPM));
        hits += weft_prng_chance(&prng, 10000);
    }
    /* Expected 1000, standard deviation 31. */
    assert_in_range(hits, 840, 1160);
}

/* Number of equal bits in two streams: n bits of independent streams agree in n / 2 +- sqrt(n) / 2
 * of them. */
static void check_unrelated(struct weft_prng *a, struct weft_prng *b)
{
    enum { WORDS = 256, BITS = WORDS * 64 };
    unsigned equal = 0;
    for (int i = 0; i < WORDS; i++) {
        equal += (unsigned)__builtin_popcountll(~(weft_prng_u64(a) ^ weft_prng_u64(b)));
    }
    /* sqrt(16384) / 2 = 64; five times that in both directions. */
    assert_in_range(equal, BITS / 2 - 320, BITS / 2 + 320);
}

static void split_streams_are_unrelated(void **state)
{
    (void)state;
    for (uint64_t label = 0; label < 64; label++) {
        struct weft_prng a;
        struct weft_prng b;
        weft_prng_split(&a, 99, label);
        weft_prng_split(&b, 99, label + 1);
        check_unrelated(&a, &b);
        weft_prng_split(&a, label, 5);
        weft_prng_split(&b, label + 1, 5);
        check_unrelated(&a, &b);
        /* Streams with seed and label swapped, and the seed's own stream. */
        weft_prng_split(&a, label, label + 1);
        weft_prng_split(&b, label + 1, label);
        check_unrelated(&a, &b);
        weft_prng_split(&a, label, 0);
        weft_prng_init(&b, label);
        check_unrelated(&a, &b);
    }
}

static void split_repeats(void **state)
{
    (void)state;
    struct weft_prng a;
    struct weft_prng b;
    weft_prng_split(&a, 1, 2);
    weft_prng_split(&b, 1, 2);
    assert_memory_equal(&a, &b, sizeof(a));
}

/* xoshiro never leaves the all-zero state, so no seed may lead there. */
static void no_small_seed_is_dead(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        assert_true((prng.state[0] | prng.state[1] | prng.state[2] | prng.state[3]) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeding_is_splitmix64),
        cmocka_unit_test(stepping_is_xoshiro256ss),
        cmocka_unit_test(seeded_streams_have_not_changed),
        cmocka_unit_test(below_and_range_keep_their_limits),
        cmocka_unit_test(both_ends_of_a_range_occur),
        cmocka_unit_test(the_range_of_all_numbers_is_one),
        cmocka_unit_test(chance_comes_true_as_often_as_it_says),
        cmocka_unit_test(split_streams_are_unrelated),
        cmocka_unit_test(split_repeats),
        cmocka_unit_test(no_small_seed_is_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
