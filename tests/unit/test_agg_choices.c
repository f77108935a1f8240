/* Exponents and their error bound, the decision to flush, and the choice of hot rows. */
#include "agg/exponent.h"
#include "agg/flush.h"
#include "agg/hot_set.h"
#include "base/prng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void sums_are_within_the_bound(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 4);
    int least = 0;
    for (int trial = 0; trial < 2000; trial++) {
        uint32_t n = (uint32_t)weft_prng_range(&prng, 1, 300);
        float largest = (float)ldexp(1 + (double)weft_prng_below(&prng, 1000) / 1000,
                                     (int)weft_prng_below(&prng, 169) - 149);
        int8_t e = weft_agg_exponent(largest, n);
        int64_t q_sum = 0;
        double exact = 0;
        for (uint32_t i = 0; i < n; i++) {
            float x = largest * ((float)weft_prng_below(&prng, 2000001) / 1e6f - 1);
            int32_t q = 0;
            assert_true(weft_agg_quantize(x, e, &q));
            q_sum += q;
            exact += (double)x;
        }
        /* With the spare bit the sum never overflows. */
        assert_true(q_sum <= (1 << 30) + n && q_sum >= -(1 << 30) - (int64_t)n);
        double off = fabs(weft_agg_value((int32_t)q_sum, e) - exact);
        assert_true(off <= weft_agg_error_bound(n, e) + 1e-12 * n * (double)largest);
        if (e == WEFT_AGG_EXPONENT_MIN) {
            least++;
            continue;
        }
        /* The exponent is the smallest possible: half of it would be too small. */
        double need = (double)n * (double)largest;
        assert_true(need > 0x1p30 * weft_agg_power(e - 1));
        assert_true(weft_agg_error_bound(n, e) <= n * need * 0x1p-30);
    }
    assert_in_range(least, 100, 1900);
}

static void integers_are_exact(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 5);
    for (int i = 0; i < 100000; i++) {
        int32_t x = (int32_t)weft_prng_range(&prng, 0, 1 << 24) - (1 << 23);
        int8_t e = (int8_t) - (int)weft_prng_below(&prng, 8);
        int32_t q = 0;
        assert_true(weft_agg_quantize((float)x, e, &q));
        assert_true(weft_agg_value(q, e) == x);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    int32_t q = 77;
    assert_false(weft_agg_quantize(NAN, 0, &q));
    assert_false(weft_agg_quantize(INFINITY, 127, &q));
    assert_false(weft_agg_quantize(-INFINITY, 0, &q));
    assert_false(weft_agg_quantize(0x1p31f, 0, &q));
    assert_false(weft_agg_quantize(1, -31, &q));
    assert_int_equal(q, 77);
    assert_true(weft_agg_quantize(-0x1p31f, 0, &q));
    assert_int_equal(q, INT32_MIN);
    assert_true(weft_agg_quantize(2.5f, 0, &q));
    assert_int_equal(q, 2); /* ties to even */
    assert_true(weft_agg_quantize(-3.5f, 0, &q));
    assert_int_equal(q, -4);
    assert_true(weft_agg_quantize(0x1p-149f, WEFT_AGG_EXPONENT_MIN, &q));
    assert_int_equal(q, 0);
    assert_int_equal(weft_agg_exponent(0, 16), WEFT_AGG_EXPONENT_MIN);
    assert_int_equal(weft_agg_exponent(INFINITY, 1), WEFT_AGG_EXPONENT_MAX);
    assert_int_equal(weft_agg_exponent(1, 1), -30);
    assert_int_equal(weft_agg_exponent(1, 17), -25);
}

static void each_reason_flushes_and_the_first_is_named(void **state)
{
    (void)state;
    const struct weft_agg_flush_rules rules = {.packets_max = 10, .age_ns_max = 200000};
    struct weft_agg_flush_state s = {.first_ns = 1000, .packets = 9};
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 200999), WEFT_AGG_FLUSH_NONE);
    assert_true(weft_agg_flush_deadline(&rules, &s) == 201000);
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 201000), WEFT_AGG_FLUSH_AGE);
    s.packets = 10;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_COUNT);
    s.refused = 1;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_MEMORY);
    s.clock = true;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_CLOCK);
    s.checkpoint = true;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_CHECKPOINT);
    s.epoch_ends = true;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_EPOCH);
    s.draining = true;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, 1000), WEFT_AGG_FLUSH_BLOCKED);
    assert_true(weft_agg_flush_deadline(&rules, &s) == UINT64_MAX);
    s.packets = 0;
    assert_int_equal(weft_agg_flush_decide(&rules, &s, UINT64_MAX), WEFT_AGG_FLUSH_NONE);
    const struct weft_agg_flush_rules none = {.age_ns_max = UINT64_MAX};
    s = (struct weft_agg_flush_state){.first_ns = 1000, .packets = UINT32_MAX};
    assert_int_equal(weft_agg_flush_decide(&none, &s, UINT64_MAX - 1), WEFT_AGG_FLUSH_NONE);
    assert_true(weft_agg_flush_deadline(&none, &s) == UINT64_MAX);
}

enum { ROWS = 100, ROOM = 10 };

static bool is_hot(const struct weft_agg_candidate *rows, uint64_t id)
{
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].id == id) {
            return rows[i].is_hot;
        }
    }
    fail_msg("row %llu is missing", (unsigned long long)id);
    return false;
}

/* Row i has rank i: row 0 had most updates. */
static void fill(struct weft_agg_candidate *rows, int hot_from, int hot_to)
{
    for (int i = 0; i < ROWS; i++) {
        rows[(i * 37) % ROWS] = (struct weft_agg_candidate){.id = (uint64_t)i,
                                                            .before = 500,
                                                            .now = 500 + 1000 - (uint32_t)i,
                                                            .is_hot = i >= hot_from && i < hot_to};
    }
}

static void the_first_set_is_the_first_rows(void **state)
{
    (void)state;
    struct weft_agg_candidate rows[ROWS];
    struct weft_agg_hot_change change;
    fill(rows, 0, 0);
    weft_agg_hot_choose(rows, ROWS, ROOM, &change);
    assert_int_equal(change.hot, ROOM);
    assert_int_equal(change.came, ROOM);
    for (uint64_t id = 0; id < ROWS; id++) {
        assert_int_equal(is_hot(rows, id), id < ROOM);
        assert_int_equal(rows[id].id, id); /* sorted by rank */
    }
}

static void rows_near_the_limit_stay_as_they_are(void **state)
{
    (void)state;
    struct weft_agg_candidate rows[ROWS];
    struct weft_agg_hot_change change;
    fill(rows, 2, 12); /* ranks 8 to 11 are between the limits, and were in the set */
    weft_agg_hot_choose(rows, ROWS, ROOM, &change);
    assert_int_equal(change.came, 2); /* ranks 0 and 1 */
    assert_int_equal(change.left, 2); /* ranks 10 and 11 are replaced by them */
    assert_int_equal(change.hot, ROOM);
    assert_true(is_hot(rows, 0) && is_hot(rows, 9) && !is_hot(rows, 10));
    fill(rows, 5, 15);
    weft_agg_hot_choose(rows, ROWS, ROOM, &change);
    assert_int_equal(change.came, 5);
    assert_true(!is_hot(rows, 12) && !is_hot(rows, 10) && is_hot(rows, 8));
    /* A row that was not in the set does not enter between the limits. */
    fill(rows, 0, 8);
    weft_agg_hot_choose(rows, ROWS, ROOM, &change);
    assert_int_equal(change.came + change.left, 0);
    assert_false(weft_agg_hot_changed(&change, 1));
    assert_false(is_hot(rows, 8));
    fill(rows, 40, 50);
    weft_agg_hot_choose(rows, ROWS, ROOM, &change);
    assert_int_equal(change.left, 10);
    assert_int_equal(change.hot, 8);
}

/* Total counts would keep a row that is no longer updated. */
static void differences_count_not_totals(void **state)
{
    (void)state;
    struct weft_agg_hot_change change;
    struct weft_agg_candidate rows[] = {
        {.id = 1, .before = 1000000, .now = 1000000, .is_hot = true},
        {.id = 2, .before = 0, .now = 50},
        {.id = 3, .before = 900, .now = 60}, /* evicted and created again: 60 new updates */
    };
    weft_agg_hot_choose(rows, 3, 5, &change);
    assert_int_equal(rows[0].id, 3);
    assert_int_equal(rows[1].id, 2);
    assert_true(rows[0].is_hot && rows[1].is_hot && !rows[2].is_hot);
    assert_int_equal(change.left, 1);
    weft_agg_hot_choose(rows, 0, 5, &change);
    assert_int_equal(change.hot, 0);
    weft_agg_hot_choose(rows, 3, 0, &change);
    assert_int_equal(change.hot, 0);
}

/* Popularity in a random walk: the set never exceeds its size K, always contains the first 0.8 K
 * ranks, and never a rank beyond 1.2 K. */
static void random_sets_keep_the_limits(void **state)
{
    (void)state;
    struct weft_prng prng;
    struct weft_agg_candidate rows[ROWS];
    weft_prng_init(&prng, 6);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = (struct weft_agg_candidate){.id = (uint64_t)i};
    }
    for (int epoch = 0; epoch < 3000; epoch++) {
        uint32_t room = (uint32_t)weft_prng_range(&prng, 1, 60);
        struct weft_agg_hot_change change;
        uint32_t were = 0;
        for (int i = 0; i < ROWS; i++) {
            rows[i].before = rows[i].now;
            rows[i].now += (uint32_t)weft_prng_below(&prng, 200);
            were += rows[i].is_hot;
        }
        weft_agg_hot_choose(rows, ROWS, room, &change);
        uint32_t hot = 0;
        for (uint32_t i = 0; i < ROWS; i++) {
            bool any = rows[i].now > rows[i].before;
            hot += rows[i].is_hot;
            assert_true(!(i < room * 4 / 5 && any) || rows[i].is_hot);
            assert_true(i < room * 6 / 5 || !rows[i].is_hot);
        }
        assert_int_equal(hot, change.hot);
        assert_true(hot <= room);
        assert_int_equal(were + change.came - change.left, hot);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_within_the_bound),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(each_reason_flushes_and_the_first_is_named),
        cmocka_unit_test(the_first_set_is_the_first_rows),
        cmocka_unit_test(rows_near_the_limit_stay_as_they_are),
        cmocka_unit_test(differences_count_not_totals),
        cmocka_unit_test(random_sets_keep_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
