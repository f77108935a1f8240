/* The order of the chunks: a permutation for every n, and one that scatters like a shuffle.
 *
 * Two statistics, both at fixed keys, so that the test gives the same answer every time:
 *   position over many keys, the position of one index: chi-square test against uniform, alpha =
 *   0.01 adjacency neighbours in sending order that are neighbours in the vector: a shuffle has 2
 *   (n - 1) / n
 *               on average, whatever n is, with a variance near 2. This is what a burst of
 *               losses would turn into a hole.
 * Known bad orders are tested with the same two statistics, to show that the tests can fail. */
#include "base/bits.h"
#include "base/prng.h"
#include "core/perm.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_ALL_MAX = 3000, N_MAX = 1 << 20 };

static uint64_t seen[WEFT_BITS_WORDS(N_MAX)];

static void check_bijection(uint32_t n, uint64_t key)
{
    struct weft_perm perm;
    weft_perm_init(&perm, n, key);
    memset(seen, 0, WEFT_BITS_WORDS((size_t)n) * sizeof(seen[0]));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ahead = weft_perm_peek(&perm);
        uint32_t image = weft_perm_next(&perm);
        assert_int_equal(ahead, image);
        if (image >= n || weft_bits_test(seen, image)) {
            fail_msg("n %u, key %llu: index %u goes to %u, %s", n, (unsigned long long)key, i,
                     image, image >= n ? "outside" : "which is taken");
        }
        weft_bits_set(seen, image);
    }
}

static void a_permutation_of_every_small_n(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= N_ALL_MAX; n++) {
        check_bijection(n, n * UINT64_C(7));
    }
    for (uint32_t n = 1; n <= 64; n++) {
        for (uint64_t key = 0; key < 200; key++) {
            check_bijection(n, key);
        }
    }
}

static void a_permutation_of_some_large_n(void **state)
{
    (void)state;
    static const uint32_t edges[] = {4095,  4096,   4097,      65535, 65536,
                                     65537, 262144, N_MAX - 1, N_MAX};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(edges); i++) {
        check_bijection(edges[i], i);
    }
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (int i = 0; i < 10; i++) {
        uint64_t n =
            weft_prng_range(&prng, N_ALL_MAX, (uint64_t)N_MAX >> weft_prng_below(&prng, 8));
        check_bijection((uint32_t)n, weft_prng_u64(&prng));
    }
}

static void the_largest_domain_is_not_left(void **state)
{
    (void)state;
    struct weft_perm perm;
    const uint32_t n = UINT32_C(1) << 31;
    weft_perm_init(&perm, n, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(weft_perm_next(&perm) < n);
    }
}

/* ---- the statistics -------------------------------------------------------------------------- */

typedef uint32_t order_fn(uint64_t key, uint32_t n, uint32_t index);

static uint32_t mixed(uint64_t key, uint32_t n, uint32_t index)
{
    /* The statistics query either one index of many keys, or all indices in order. */
    static struct weft_perm perm;
    static uint64_t key_now;
    if (perm.n != n || key_now != key || perm.taken > index) {
        weft_perm_init(&perm, n, key);
        key_now = key;
    }
    while (perm.taken < index) {
        (void)weft_perm_next(&perm);
    }
    return weft_perm_next(&perm);
}

static uint32_t identity(uint64_t key, uint32_t n, uint32_t index)
{
    (void)key;
    (void)n;
    return index;
}

/* A bad order: begins at a random index, then continues in order. Each position is uniform, but
 * neighbours stay neighbours. */
static uint32_t cyclic_shift(uint64_t key, uint32_t n, uint32_t index)
{
    return (uint32_t)((weft_mix64(key) % n + index) % n);
}

static const uint32_t N_TESTED[] = {2, 3, 5, 8, 13, 16, 31, 64, 100, 256, 257, 300, 1000, 1024};

/* 99th percentile of chi-square by Wilson and Hilferty's cube; its error is below 1 % from 2
 * degrees of freedom on. */
static double chi_square_limit(double freedom)
{
    double a = 2 / (9 * freedom);
    double root = 1 - a + 2.326348 * sqrt(a);
    return freedom == 1 ? 6.635 : freedom * root * root * root;
}

/* Chi-square divided by its limit: above 1 means that uniformity is rejected. Keys count up, like a
 * sender's message numbers. */
static double position_score(order_fn *order, uint32_t n, uint32_t index, uint64_t key_first)
{
    enum { PER_CELL = 40 };
    static uint32_t cells[1024];
    memset(cells, 0, sizeof(cells));
    for (uint64_t k = 0; k < (uint64_t)n * PER_CELL; k++) {
        cells[order(key_first + k, n, index)]++;
    }
    double chi_square = 0;
    for (uint32_t i = 0; i < n; i++) {
        double off = (double)cells[i] - PER_CELL;
        chi_square += off * off / PER_CELL;
    }
    return chi_square / chi_square_limit(n - 1.0);
}

/* Deviation of the mean number of adjacent pairs from a shuffle's, in standard errors. */
static double adjacency_score(order_fn *order, uint32_t n)
{
    enum { KEYS = 2000 };
    uint64_t pairs = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        uint32_t before = order(key, n, 0);
        for (uint32_t i = 1; i < n; i++) {
            uint32_t now = order(key, n, i);
            pairs += now + 1 == before || before + 1 == now;
            before = now;
        }
    }
    double expected = 2 * (n - 1.0) / n;
    return fabs((double)pairs / KEYS - expected) / sqrt(2.0 / KEYS);
}

/* Of a true shuffle one test in a hundred is rejected: 84 tests may lose a few, and more than four
 * with a probability of 0.2 %. */
static void each_index_goes_everywhere_equally(void **state)
{
    (void)state;
    static const uint64_t keys_first[] = {1, 1000003};
    int rejected = 0;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(N_TESTED); i++) {
        uint32_t n = N_TESTED[i];
        uint32_t indexes[] = {0, n / 2, n - 1};
        for (size_t j = 0; j < WEFT_ARRAY_COUNT(indexes); j++) {
            for (size_t k = 0; k < WEFT_ARRAY_COUNT(keys_first); k++) {
                double score = position_score(mixed, n, indexes[j], keys_first[k]);
                rejected += score > 1;
                if (score > 1.5) {
                    fail_msg("n %u, index %u: chi-square %.2f times its limit", n, indexes[j],
                             score);
                }
            }
        }
    }
    assert_in_range(rejected, 0, 4);
}

static void neighbours_part_as_in_a_shuffle(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(N_TESTED); i++) {
        if (N_TESTED[i] >= 64) {
            double score = adjacency_score(mixed, N_TESTED[i]);
            if (score > 4) {
                fail_msg("n %u: %.1f standard errors from a shuffle", N_TESTED[i], score);
            }
        }
    }
}

static void bad_orders_fail_the_same_statistics(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(N_TESTED); i++) {
        uint32_t n = N_TESTED[i];
        assert_true(position_score(identity, n, n / 2, 1) > 1);
        if (n >= 64) {
            assert_true(adjacency_score(identity, n) > 100);
            assert_true(adjacency_score(cyclic_shift, n) > 100);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permutation_of_every_small_n),
        cmocka_unit_test(a_permutation_of_some_large_n),
        cmocka_unit_test(the_largest_domain_is_not_left),
        cmocka_unit_test(each_index_goes_everywhere_equally),
        cmocka_unit_test(neighbours_part_as_in_a_shuffle),
        cmocka_unit_test(bad_orders_fail_the_same_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
