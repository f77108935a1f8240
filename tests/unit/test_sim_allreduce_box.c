/* All-reduce through an aggregation box on virtual time: the ideals computed by hand, complete runs
 * of all kinds, equal seeds, and times beside those of the ranks' own all_reduce. */
#include "allreduce_run.h"
#include "sim/wire_time.h"

#include <stdio.h>

static struct weft_allreduce_config box_config(enum weft_allreduce_box box, uint32_t ranks,
                                               uint64_t bytes)
{
    struct weft_allreduce_config config = config_of(ranks, bytes);
    config.box = box;
    return config;
}

/* 4,000,000 bytes are 2,841 packets with 32 + 42 bytes of headers, 8 ns each byte. */
static void the_ideal_is_the_vector_both_ways_at_once(void **state)
{
    (void)state;
    struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 8, 4000000);
    assert_int_equal(weft_allreduce_ideal_ns(&config), (4000000 + 2841 * 74) * 8 + 25000);
    config.box = WEFT_ALLREDUCE_BOX_HOST;
    assert_int_equal(weft_allreduce_ideal_ns(&config), (4000000 + 2841 * 74) * 8 * 8 + 50000);
    assert_int_equal(weft_allreduce_ideal_without_box_ns(&config),
                     14 * (500000 + 356 * 78) * 8 + 100000);
}

static void runs_of_all_sorts_end_with_the_right_sums(void **state)
{
    (void)state;
    const struct {
        uint32_t ranks;
        uint64_t bytes;
        uint32_t slots, reorder, loss_ppm;
    } rows[] = {
        {2, 4, 32, 8, 0},          {3, 1408, 1, 0, 50000},    {5, 1412, 32, 8, 200000},
        {64, 20000, 7, 3, 20000},  {4, 400000, 1, 0, 0},      {4, 400000, 256, 0, 50000},
        {8, 400000, 256, 8, 100000}, {2, 400000, 65536, 8, 10000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint32_t host = 0; host < 2; host++) {
            struct weft_allreduce_config config =
                box_config(host != 0 ? WEFT_ALLREDUCE_BOX_HOST : WEFT_ALLREDUCE_BOX_SWITCH,
                          rows[i].ranks, rows[i].bytes);
            config.box_slots = rows[i].slots;
            config.box_reorder = rows[i].reorder;
            config.loss_ppm = rows[i].loss_ppm;
            struct weft_allreduce_result result = run(&config);
            assert_true(rows[i].loss_ppm != 0 || result.dropped_wire == 0);
            assert_true(result.p50_ns > 0 && result.packets > 0);
        }
    }
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 5, 100000);
    config.loss_ppm = 20000;
    struct weft_allreduce_result first = run(&config);
    struct weft_allreduce_result second = run(&config);
    assert_int_equal(first.trace_hash, second.trace_hash);
    assert_int_equal(first.virtual_ns, second.virtual_ns);
    assert_true(first.dropped_wire > 0);
    config.seed++;
    assert_int_not_equal(first.trace_hash, run(&config).trace_hash);
}

/* A link carries the vector once in each direction, at once; in the ranks' own all_reduce 2 (n - 1)
 * / n times. */
static void a_box_in_the_switch_nearly_halves_the_time(void **state)
{
    (void)state;
    const uint32_t losses_ppm[] = {0, 10000};
    const uint64_t ratios_max[] = {1010, 1150}; /* to the ideal, in thousandths */
    for (size_t i = 0; i < 2; i++) {
        struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 8, 4000000);
        config.loss_ppm = losses_ppm[i];
        struct weft_allreduce_result box = run(&config);
        config.box = WEFT_ALLREDUCE_NO_BOX;
        struct weft_allreduce_result own = run(&config);
        assert_true(box.mean_ns * 1000 <= box.ideal_ns * ratios_max[i]);
        assert_int_equal(box.ideal_without_box_ns, own.ideal_ns);
        assert_true(box.mean_ns * 3 < own.mean_ns * 2);
    }
}

/* The buffer before a box that is a host has 43 packets, and 8 ranks send 64 each. With timeouts of
 * equal lengths the same packets met there again and again, and the second round did not end. */
static void a_full_buffer_before_the_box_delays_and_does_not_stop(void **state)
{
    (void)state;
    struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_HOST, 8, 4000000);
    config.box_slots = 64;
    struct weft_allreduce_result full = run(&config);
    assert_true(full.dropped_full > 1000);
    assert_true(full.queue_bytes_max > config.buffer_bytes - 2 * WEFT_SIM_PACKET_BYTES);
    assert_true(full.mean_ns * 10 <= full.ideal_ns * 15);
    config.box_slots = 5;
    struct weft_allreduce_result fits = run(&config);
    assert_int_equal(fits.dropped_full, 0);
    assert_int_equal(fits.resent_timeout + fits.resent_early, 0);
    assert_true(fits.mean_ns * 100 <= fits.ideal_ns * 101);
}

/* The exponent of each packet is agreed on in the packet before it, so the first one of each slot
 * costs a round trip more. */
static void block_exponents_cost_a_round_trip(void **state)
{
    (void)state;
    struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 8, 262144);
    struct weft_allreduce_result fixed = run(&config);
    config.box_block_float = true;
    struct weft_allreduce_result block = run(&config);
    assert_in_range(block.mean_ns - fixed.mean_ns, config.rtt_ns / 2, config.rtt_ns);
    config.loss_ppm = 50000;
    assert_true(run(&config).dropped_wire > 0);
}

/* A lost packet is sent again when later ones are answered, not only after the timeout. */
static void later_sums_are_quicker_than_the_timeout(void **state)
{
    (void)state;
    struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 8, 1000000);
    config.box_slots = 8;
    config.loss_ppm = 10000;
    struct weft_allreduce_result early = run(&config);
    config.box_reorder = 0;
    struct weft_allreduce_result late = run(&config);
    assert_true(early.resent_early > 0 && late.resent_early == 0 && late.resent_timeout > 0);
    assert_true(early.mean_ns < late.mean_ns);
}

/* 8 MB at 1 Mbit/s take more than the 60 s after which a round is treated as hung. With the second
 * seed the first event after that is the arrival of a packet, which has to be freed. */
static void a_round_that_takes_too_long_is_reported(void **state)
{
    (void)state;
    const uint64_t seeds[] = {1, 14};
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        struct weft_allreduce_result result;
        struct weft_allreduce_config config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 2, 8000000);
        config.rate_bps = 1000000;
        config.rtt_ns = WEFT_NS_PER_S;
        config.loss_ppm = 100000;
        config.box_slots = 1;
        config.seed = seeds[i];
        weft_allreduce_run(&config, &result);
        assert_false(result.ok);
        assert_string_equal(result.failure, "after 60 s a round is not over");
        assert_int_equal(result.rounds, 0);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    const struct weft_world_tap tap = {0};
    struct weft_allreduce_config config;
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        config = box_config(WEFT_ALLREDUCE_BOX_SWITCH, 8, 4000000);                                 \
        assert_null(weft_allreduce_config_check(&config));                                         \
        config.field = value;                                                                      \
        assert_non_null(weft_allreduce_config_check(&config));                                     \
    } while (0)
    REFUSED(ranks, 65);
    REFUSED(ops, 2);
    REFUSED(bound_ppm, 10000);
    REFUSED(feedback, true);
    REFUSED(ecn_bytes, 10000);
    REFUSED(host_delay_ns, 1000);
    REFUSED(cc_name, "dctcp");
    REFUSED(tap, &tap);
    REFUSED(segment_bytes, 4096);
    REFUSED(receivers_max, 1);
    REFUSED(box_slots, 0);
    REFUSED(box_slots, 65537);
    REFUSED(loss_ppm, 500000);
    config = box_config(WEFT_ALLREDUCE_NO_BOX, 8, 4000000);
    config.box_block_float = true;
    assert_non_null(weft_allreduce_config_check(&config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ideal_is_the_vector_both_ways_at_once),
        cmocka_unit_test(runs_of_all_sorts_end_with_the_right_sums),
        cmocka_unit_test(the_same_seed_is_the_same_run),
        cmocka_unit_test(a_box_in_the_switch_nearly_halves_the_time),
        cmocka_unit_test(a_full_buffer_before_the_box_delays_and_does_not_stop),
        cmocka_unit_test(block_exponents_cost_a_round_trip),
        cmocka_unit_test(later_sums_are_quicker_than_the_timeout),
        cmocka_unit_test(a_round_that_takes_too_long_is_reported),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
