/* Settings of the fabric simulation: built-in settings are valid, draws follow their distributions,
 * and equal seeds give equal draws. */
#include "sim/fabric_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void those_built_in_are_valid_and_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; weft_fabric_computes[i] != NULL; i++) {
        assert_null(weft_fabric_compute_check(weft_fabric_computes[i]));
        assert_ptr_equal(weft_fabric_compute_find(weft_fabric_computes[i]->name),
                         weft_fabric_computes[i]);
    }
    for (uint32_t i = 0; weft_fabric_networks[i] != NULL; i++) {
        assert_null(weft_fabric_network_check(weft_fabric_networks[i]));
        assert_ptr_equal(weft_fabric_network_find(weft_fabric_networks[i]->name),
                         weft_fabric_networks[i]);
    }
    assert_null(weft_fabric_compute_find("CS9"));
    assert_null(weft_fabric_network_find("CS1"));
}

static void exactly_the_share_is_chosen(void **state)
{
    (void)state;
    uint32_t times_chosen[30] = {0};
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct weft_prng prng;
        bool is[30];
        uint32_t count = 0;
        weft_prng_init(&prng, seed);
        weft_fabric_choose(&prng, 200000, 30, is);
        for (uint32_t i = 0; i < 30; i++) {
            count += is[i];
            times_chosen[i] += is[i];
        }
        assert_int_equal(count, 6);
    }
    for (uint32_t i = 0; i < 30; i++) { /* 200 of 1,000; five standard deviations are 63 */
        assert_in_range(times_chosen[i], 137, 263);
    }
}

static void steps_keep_to_their_distribution(void **state)
{
    (void)state;
    const struct weft_fabric_compute *bimodal = weft_fabric_compute_find("bimodal");
    const struct weft_fabric_compute *uniform = weft_fabric_compute_find("uniform");
    const struct weft_fabric_compute *slow = weft_fabric_compute_find("slow-20");
    struct weft_prng prng;
    uint32_t long_steps = 0;
    uint64_t sum_ms = 0;
    weft_prng_init(&prng, 5);
    for (uint32_t i = 0; i < 10000; i++) {
        uint64_t ns = weft_fabric_step_ns(bimodal, false, &prng);
        assert_true(ns == 1600 * WEFT_NS_PER_MS || ns == 6400 * WEFT_NS_PER_MS);
        long_steps += ns == 6400 * WEFT_NS_PER_MS;
        ns = weft_fabric_step_ns(uniform, false, &prng);
        assert_in_range(ns, 1500 * WEFT_NS_PER_MS, 2500 * WEFT_NS_PER_MS);
        sum_ms += ns / WEFT_NS_PER_MS;
        assert_in_range(weft_fabric_step_ns(slow, true, &prng), 3800 * WEFT_NS_PER_MS,
                        4200 * WEFT_NS_PER_MS);
    }
    assert_in_range(long_steps, 850, 1150);
    assert_in_range(sum_ms / 10000, 1985, 2015);
}

/* Workers of real jobs: draws are independent of order and process. */
static void workers_draw_the_same_at_any_step(void **state)
{
    (void)state;
    enum { WORKERS = 10, STEPS = 2000 };
    const struct weft_fabric_compute *cs2 = weft_fabric_compute_find("CS2");
    const struct weft_fabric_compute *cs3 = weft_fabric_compute_find("CS3");
    uint32_t equal = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint32_t slow_count = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            bool is_slow = weft_fabric_worker_is_slow(cs3, seed, w, WORKERS);
            uint64_t ns = weft_fabric_worker_step_ns(cs3, seed, w, is_slow, 7);
            uint64_t factor = is_slow ? 2 : 1;
            slow_count += is_slow;
            assert_in_range(ns, factor * 1900 * WEFT_NS_PER_MS, factor * 2100 * WEFT_NS_PER_MS);
            assert_int_equal(ns, weft_fabric_worker_step_ns(cs3, seed, w, is_slow, 7));
            equal += ns == weft_fabric_worker_step_ns(cs3, seed, w, is_slow, 8);
            equal += ns == weft_fabric_worker_step_ns(cs3, seed, w + 1, is_slow, 7);
            equal += ns == weft_fabric_worker_step_ns(cs3, seed + 1, w, is_slow, 7);
        }
        assert_int_equal(slow_count, 2);
    }
    assert_int_equal(equal, 0);
    uint32_t long_steps = 0;
    for (uint32_t step = STEPS; step-- > 0;) {
        long_steps += weft_fabric_worker_step_ns(cs2, 1, 3, false, step) > 5000 * WEFT_NS_PER_MS;
    }
    assert_in_range(long_steps, 130, 270); /* 200; five standard deviations are 67 */
    assert_false(weft_fabric_worker_is_slow(cs2, 1, 0, 1));
}

/* The mean capacity of a link over 1,000 s; every change is later than the previous one. */
static uint64_t mean_capacity(const struct weft_fabric_network *network, bool slow, bool contended,
                              uint64_t seed)
{
    struct weft_fabric_link link;
    const uint64_t end_ns = 1000 * WEFT_NS_PER_S;
    uint64_t sum_mbit_ms = 0;
    uint64_t now_ns = 0;
    weft_fabric_link_init(&link, network, slow, contended, seed, 1);
    while (now_ns < end_ns) {
        uint64_t next_ns = weft_min_u64(weft_fabric_link_next_ns(&link), end_ns);
        assert_true(next_ns > now_ns);
        sum_mbit_ms += weft_fabric_link_capacity(&link, network) / 1000000 *
                       ((next_ns - now_ns) / WEFT_NS_PER_MS);
        now_ns = next_ns;
        weft_fabric_link_step(&link, network, now_ns);
    }
    return sum_mbit_ms / 1000000;
}

static void links_keep_to_their_setting(void **state)
{
    (void)state;
    const struct weft_fabric_network *slow = weft_fabric_network_find("slow-uplinks");
    const struct weft_fabric_network *contended = weft_fabric_network_find("contended");
    const struct weft_fabric_network *varying = weft_fabric_network_find("varying");
    assert_int_equal(mean_capacity(slow, false, false, 1), 1000);
    assert_int_equal(mean_capacity(slow, true, false, 1), 100);
    /* Cross traffic uses 60 % half of the time; the mean of a varying rate is 0.65. */
    assert_in_range(mean_capacity(contended, false, true, 1), 670, 730);
    assert_in_range(mean_capacity(varying, false, false, 1), 625, 675);
    assert_int_equal(mean_capacity(varying, false, false, 2),
                     mean_capacity(varying, false, false, 2));
    assert_int_equal(mean_capacity(contended, false, false, 1), 1000);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct weft_fabric_compute compute;
    struct weft_fabric_network network;
    weft_fabric_compute_default(&compute);
    compute.step_ns_min = compute.step_ns_max + 1;
    assert_non_null(strstr(weft_fabric_compute_check(&compute), "minimum time"));
    weft_fabric_compute_default(&compute);
    compute.slow_worker_factor_ppm = WEFT_PPM / 2;
    assert_non_null(strstr(weft_fabric_compute_check(&compute), "factor"));
    compute = *weft_fabric_compute_find("fixed");
    compute.slow_steps_ppm = WEFT_PPM + 1;
    assert_non_null(strstr(weft_fabric_compute_check(&compute), "share"));
    weft_fabric_network_default(&network);
    network.rate_bps = 0;
    assert_non_null(strstr(weft_fabric_network_check(&network), "rate"));
    weft_fabric_network_default(&network);
    network.contended_workers_ppm = 1;
    assert_non_null(strstr(weft_fabric_network_check(&network), "contended"));
    weft_fabric_network_default(&network);
    network.rate_factor_ppm_min = WEFT_PPM / 2;
    assert_non_null(strstr(weft_fabric_network_check(&network), "vary"));
    weft_fabric_network_default(&network);
    network.outside_ppm = WEFT_PPM;
    assert_non_null(strstr(weft_fabric_network_check(&network), "outside"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_built_in_are_valid_and_found),
        cmocka_unit_test(exactly_the_share_is_chosen),
        cmocka_unit_test(steps_keep_to_their_distribution),
        cmocka_unit_test(workers_draw_the_same_at_any_step),
        cmocka_unit_test(links_keep_to_their_setting),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests_name("sim_fabric_settings", tests, NULL, NULL);
}
