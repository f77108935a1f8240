/* Number of distinct workers within a millisecond, compared with a complete table. */
#include "obs/active.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/prng.h"

static const uint64_t ms = 1000000;

static void a_worker_counts_once_in_a_window(void **state)
{
    (void)state;
    struct weft_active active;
    assert_int_equal(weft_active_init(&active, 4), WEFT_OK);
    assert_int_equal(weft_active_quantile(&active, 1, 500000), 0);
    weft_active_note(&active, 0, 10 * ms, 0, WEFT_NEVER);
    weft_active_note(&active, 0, 10 * ms + 5, 0, WEFT_NEVER);
    weft_active_note(&active, 3, 11 * ms - 1, 0, WEFT_NEVER);
    assert_int_equal(weft_active_quantile(&active, 1, 500000), 2);
    weft_active_note(&active, 0, 11 * ms, 0, WEFT_NEVER); /* the next window */
    weft_active_note(&active, 1, 90 * ms, 0, WEFT_NEVER); /* the windows in between are empty */
    assert_int_equal(weft_active_quantile(&active, 1, 500000), 1);
    assert_int_equal(weft_active_quantile(&active, 1, 1000000), 2);
    weft_active_fini(&active);
}

static void only_the_measured_time_counts(void **state)
{
    (void)state;
    struct weft_active active;
    assert_int_equal(weft_active_init(&active, 4), WEFT_OK);
    weft_active_note(&active, 0, 9 * ms, 10 * ms, 20 * ms);
    weft_active_note(&active, 1, 20 * ms, 10 * ms, 20 * ms);
    weft_active_note(&active, 4, 12 * ms, 10 * ms, 20 * ms); /* no such peer */
    assert_int_equal(weft_active_quantile(&active, 1, 1000000), 0);
    weft_active_note(&active, 1, 10 * ms, 10 * ms, 20 * ms);
    assert_int_equal(weft_active_quantile(&active, 1, 1000000), 1);
    weft_active_fini(&active);
}

/* Three shards, random workers at ascending times. */
static void quantiles_are_over_all_shards(void **state)
{
    (void)state;
    enum { SHARDS = 3, WORKERS = 20, WINDOWS = 200 };
    static uint32_t seen[SHARDS][WINDOWS][WORKERS];
    struct weft_active active[SHARDS];
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    uint64_t with[WORKERS + 1] = {0}, all = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(weft_active_init(&active[s], WORKERS), WEFT_OK);
        for (uint64_t at = ms; at < WINDOWS * ms; at += 1 + weft_prng_below(&prng, ms / 4)) {
            uint32_t worker = (uint32_t)weft_prng_below(&prng, WORKERS);
            weft_active_note(&active[s], worker, at, 0, WEFT_NEVER);
            seen[s][at / ms][worker] = 1;
        }
        for (uint32_t w = 0; w < WINDOWS; w++) {
            uint32_t count = 0;
            for (uint32_t k = 0; k < WORKERS; k++) {
                count += seen[s][w][k];
            }
            with[count] += count > 0;
            all += count > 0;
        }
    }
    for (uint32_t ppm = 100000; ppm <= 1000000; ppm += 100000) {
        uint64_t sum = 0;
        uint32_t wanted = 0;
        while (sum < weft_div_ceil_u64(all * ppm, WEFT_PPM)) {
            sum += with[++wanted];
        }
        assert_int_equal(weft_active_quantile(active, SHARDS, ppm), wanted);
    }
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_active_fini(&active[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_counts_once_in_a_window),
        cmocka_unit_test(only_the_measured_time_counts),
        cmocka_unit_test(quantiles_are_over_all_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
