/* Losses are uniform over the vector, which the bounds of [apnet19] assume (docs/PROTOCOL.md
 * section 6).
 *
 * Messages of many senders meet in a switch with a small buffer, on the simulator's network: tail
 * drops lose runs of consecutive packets. Two tests check which chunks are then missing, with fixed
 * seeds:
 *
 *   positions   chi-square of how often each chunk was missing, alpha 0.01
 *   neighbours  the number of pairs of adjacent missing chunks, within 5 % of what a true shuffle
 *               (Fisher-Yates) of as many missing chunks of as many messages gives
 *
 * Messages sent in the vector's order must fail the first test. Messages sent in cyclic order from
 * a random chunk on lose every chunk equally often; they must fail the second. */
#include "base/bits.h"
#include "base/prng.h"
#include "sim/incast.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { CHUNKS = 180, CHUNK_BYTES = 1408, SENDERS = 16, ROUNDS = 125, SEEDS = 5, SHUFFLES = 4 };

/* The 0.99 quantile of the standard normal distribution. */
static const double z99 = 2.3263478740408408;

struct seen {
    uint64_t messages;
    uint64_t missing;
    uint64_t at[CHUNKS]; /* number of times that each chunk was missing */
    double variance;     /* variance if losses are uniform: sum over messages of p (1 - p) */
    uint64_t pairs;
    uint64_t shuffled; /* pairs in SHUFFLES true shuffles of each message */
    struct weft_prng prng;
};

static uint32_t count_pairs(const bool *missing)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i + 1 < CHUNKS; i++) {
        pairs += missing[i] && missing[i + 1];
    }
    return pairs;
}

/* Number of adjacent pairs if a shuffle places `count` missing chunks. */
static uint32_t shuffled_pairs(struct weft_prng *prng, uint32_t count)
{
    bool missing[CHUNKS];
    for (uint32_t i = 0; i < CHUNKS; i++) {
        missing[i] = i < count;
    }
    for (uint32_t i = CHUNKS - 1; i > 0; i--) {
        uint32_t j = (uint32_t)weft_prng_below(prng, i + 1);
        bool swap = missing[i];
        missing[i] = missing[j];
        missing[j] = swap;
    }
    return count_pairs(missing);
}

static void on_message(void *self, const uint64_t *mask, uint32_t chunks)
{
    struct seen *seen = self;
    bool missing[CHUNKS];
    uint32_t count = 0;
    assert_int_equal(chunks, CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        missing[i] = !weft_bits_test(mask, i);
        seen->at[i] += missing[i];
        count += missing[i];
    }
    double p = (double)count / CHUNKS;
    seen->variance += p * (1 - p);
    seen->missing += count;
    seen->pairs += count_pairs(missing);
    for (int i = 0; i < SHUFFLES; i++) {
        seen->shuffled += shuffled_pairs(&seen->prng, count);
    }
    seen->messages++;
}

/* Chi-square over positions. The chunks that one message misses are drawn without replacement, so
 * the variance of a count is p (1 - p) per message instead of p; the sum of all counts is fixed. */
static double chi_square(const struct seen *seen)
{
    double mean = (double)seen->missing / CHUNKS;
    double sum = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        sum += ((double)seen->at[i] - mean) * ((double)seen->at[i] - mean);
    }
    return sum / seen->variance * (CHUNKS - 1) / CHUNKS;
}

/* The value exceeded with probability 0.01 (Wilson and Hilferty's approximation). */
static double chi_square_limit(void)
{
    double df = CHUNKS - 1;
    double root = 1 - 2 / (9 * df) + z99 * sqrt(2 / (9 * df));
    return df * root * root * root;
}

static double pairs_ratio(const struct seen *seen)
{
    return (double)seen->pairs * SHUFFLES / (double)seen->shuffled;
}

/* SEEDS networks of ROUNDS rounds each, 10,000 messages in total, so that the result does not
 * depend on the drop pattern of one network and one set of permutations. */
static void run(enum weft_ep_order order, uint32_t bound_ppm, struct seen *seen_p)
{
    static struct weft_incast_result result;
    struct weft_incast_config config;
    uint64_t dropped = 0;
    *seen_p = (struct seen){.messages = 0};
    weft_prng_init(&seen_p->prng, 1);
    weft_incast_config_default(&config);
    config.senders = SENDERS;
    config.rounds = ROUNDS;
    config.message_bytes = CHUNKS * CHUNK_BYTES;
    config.buffer_bytes = 16000;
    config.bound_ppm = bound_ppm;
    config.order = order;
    config.seen = on_message;
    config.seen_self = seen_p;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        config.seed = seed;
        weft_incast_run(&config, &result);
        assert_true(result.ok);
        dropped += result.dropped_full;
    }
    print_message("order %d, bound %" PRIu32 " ppm, %d seeds: %" PRIu64
                  " messages, %.2f %% of chunks missing, %" PRIu64 " tail drops, chi-square %.1f "
                  "(limit %.1f), adjacent pairs %.3f of a shuffle's\n",
                  order, bound_ppm, SEEDS, seen_p->messages,
                  100 * (double)seen_p->missing / (double)(seen_p->messages * CHUNKS), dropped,
                  chi_square(seen_p), chi_square_limit(), pairs_ratio(seen_p));
    assert_int_equal(seen_p->messages, SENDERS * ROUNDS * SEEDS);
    /* Fewer losses would prove little. */
    assert_true(seen_p->missing * 20 > seen_p->messages * CHUNKS);
}

static bool is_even(const struct seen *seen)
{
    return chi_square(seen) <= chi_square_limit();
}

static bool is_shuffled(const struct seen *seen)
{
    return pairs_ratio(seen) >= 0.95 && pairs_ratio(seen) <= 1.05;
}

static void losses_are_uniform(void **state)
{
    (void)state;
    static struct seen seen;
    run(WEFT_ORDER_PERM, 400000, &seen);
    assert_true(is_even(&seen));
    assert_true(is_shuffled(&seen));
}

/* More chunks are lost than the bound allows, so the sender selects chunks to resend. */
static void losses_at_the_bound_are_uniform(void **state)
{
    (void)state;
    static struct seen seen;
    run(WEFT_ORDER_PERM, 100000, &seen);
    assert_true(is_even(&seen));
    assert_true(is_shuffled(&seen));
}

static void without_a_permutation_they_are_not_even(void **state)
{
    (void)state;
    static struct seen seen;
    run(WEFT_ORDER_NONE, 400000, &seen);
    assert_false(is_even(&seen));
}

static void a_cyclic_shift_leaves_neighbours_together(void **state)
{
    (void)state;
    static struct seen seen;
    run(WEFT_ORDER_CYCLIC, 400000, &seen);
    assert_false(is_shuffled(&seen));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_uniform),
        cmocka_unit_test(losses_at_the_bound_are_uniform),
        cmocka_unit_test(without_a_permutation_they_are_not_even),
        cmocka_unit_test(a_cyclic_shift_leaves_neighbours_together),
    };
    return cmocka_run_group_tests_name("sim_uniform", tests, NULL, NULL);
}
