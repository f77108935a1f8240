/* The loss injector: its rate is the requested one; equal seeds give equal drops, and each process
 * has its own sequence. */
#include "io/udp/inject_loss.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

static uint32_t drops_of(const struct weft_inject_loss_config *config, uint32_t datagrams)
{
    struct weft_inject_loss inject;
    weft_inject_loss_init(&inject, config);
    uint32_t drops = 0;
    for (uint32_t i = 0; i < datagrams; i++) {
        drops += weft_inject_loss_next(&inject);
    }
    return drops;
}

/* |drops - n p| <= 4 sigma, compared as squares: (drops - n p)^2 <= 16 n p (1 - p). */
static void rate_is_as_asked(void **state)
{
    (void)state;
    static const uint32_t rates_ppm[] = {1000, 10000, 100000, 500000};
    const uint32_t datagrams = 100000;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rates_ppm); i++) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            struct weft_inject_loss_config config = {.loss_ppm = rates_ppm[i], .seed = seed};
            double p = rates_ppm[i] / 1e6;
            double off = drops_of(&config, datagrams) - datagrams * p;
            assert_true(off * off <= 16.0 * datagrams * p * (1.0 - p));
        }
    }
}

static void none_and_all(void **state)
{
    (void)state;
    struct weft_inject_loss_config none = {.loss_ppm = 0, .seed = 1};
    struct weft_inject_loss_config all = {.loss_ppm = WEFT_PPM, .seed = 1};
    assert_int_equal(drops_of(&none, 1000), 0);
    assert_int_equal(drops_of(&all, 1000), 1000);
}

/* Differences between the first 2,000 decisions of two injectors at 50 %. */
static uint32_t differences(struct weft_inject_loss_config a, struct weft_inject_loss_config b)
{
    struct weft_inject_loss of_a;
    struct weft_inject_loss of_b;
    weft_inject_loss_init(&of_a, &a);
    weft_inject_loss_init(&of_b, &b);
    uint32_t count = 0;
    for (int i = 0; i < 2000; i++) {
        count += weft_inject_loss_next(&of_a) != weft_inject_loss_next(&of_b);
    }
    return count;
}

static void same_seed_same_drops(void **state)
{
    (void)state;
    struct weft_inject_loss_config a = {.loss_ppm = 500000, .role = 1, .rank = 3, .seed = 9};
    assert_int_equal(differences(a, a), 0);
}

static void every_process_has_its_own_stream(void **state)
{
    (void)state;
    struct weft_inject_loss_config a = {.loss_ppm = 500000, .role = 1, .rank = 3, .seed = 9};
    struct weft_inject_loss_config others[] = {a, a, a, a};
    others[0].role = 2;
    others[1].rank = 4;
    others[2].seed = 10;
    others[3].role = 3;
    others[3].rank = 1;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(others); i++) {
        /* Independent streams differ in 1,000 of 2,000, sigma 22.4. */
        assert_in_range(differences(a, others[i]), 900, 1100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_is_as_asked),
        cmocka_unit_test(none_and_all),
        cmocka_unit_test(same_seed_same_drops),
        cmocka_unit_test(every_process_has_its_own_stream),
    };
    return cmocka_run_group_tests_name("io loss", tests, NULL, NULL);
}
