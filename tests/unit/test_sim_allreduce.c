/* All-reduce on virtual time: the ideal computed by hand, complete runs of all kinds, equal seeds,
 * and times near the ideal. */
#include "allreduce_run.h"

#include <stdio.h>

/* A slice of 500,000 bytes is 356 packets: 14 x (500,000 + 356 x 78) bytes, 8 ns each. */
static void the_ideal_is_what_a_link_carries(void **state)
{
    (void)state;
    struct weft_allreduce_config config = config_of(8, 4000000);
    assert_int_equal(weft_allreduce_ideal_ns(&config), 14 * (500000 + 356 * 78) * 8 + 100000);
    config.rate_bps = UINT64_C(10000000000);
    config.rtt_ns = 20000;
    assert_int_equal(weft_allreduce_ideal_ns(&config), 14 * (500000 + 356 * 78) * 8 / 10 + 40000);
}

static void runs_of_all_sorts_end_with_the_right_sums(void **state)
{
    (void)state;
    const struct {
        uint32_t ranks;
        uint64_t bytes;
        uint32_t ops, loss_ppm, bound_ppm;
        bool feedback;
    } rows[] = {
        {2, 4, 1, 0, 0, false},
        {3, 1408, 1, 0, 0, false},
        {5, 1412, 1, 50000, 0, false},
        {20, 400, 1, 10000, 0, false},
        {4, 800000, 1, 0, 0, false},
        {4, 800000, 4, 20000, 0, false},
        {4, 800000, 1, 50000, 100000, false},
        {4, 800000, 2, 50000, 100000, true},
        {7, 300000, 3, 100000, 200000, true},
        {16, 100000, 1, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weft_allreduce_config config = config_of(rows[i].ranks, rows[i].bytes);
        config.ops = rows[i].ops;
        config.loss_ppm = rows[i].loss_ppm;
        config.bound_ppm = rows[i].bound_ppm;
        config.feedback = rows[i].feedback;
        struct weft_allreduce_result result = run(&config);
        assert_true(result.p50_ns <= result.p99_ns && result.p99_ns <= result.max_ns);
        assert_true(result.delivered_ppm <= 1000000);
        assert_int_equal(result.delivered_ppm<1000000, rows[i].bound_ppm> 0);
    }
}

/* With loss other ranks leave the barrier later, and that time counts. */
static void rounds_after_a_barrier_end_with_the_right_sums(void **state)
{
    (void)state;
    struct weft_allreduce_config config = config_of(8, 200000);
    config.rate_bps = 50000000;
    config.rounds = 10;
    struct weft_allreduce_result plain = run(&config);
    config.barrier = true;
    struct weft_allreduce_result after = run(&config);
    assert_in_range(after.mean_ns, plain.mean_ns, plain.mean_ns + plain.mean_ns / 20);
    config.loss_ppm = 50000;
    struct weft_allreduce_result lossy = run(&config);
    config.barrier = false;
    assert_true(lossy.mean_ns > run(&config).mean_ns);
    config.barrier = true;
    config.bound_ppm = 100000;
    config.feedback = true;
    config.ops = 4;
    assert_true(run(&config).delivered_ppm < 1000000);
    config.box = WEFT_ALLREDUCE_BOX_SWITCH;
    assert_non_null(weft_allreduce_config_check(&config));
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    struct weft_allreduce_config config = config_of(4, 200000);
    config.loss_ppm = 30000;
    struct weft_allreduce_result first = run(&config), second = run(&config);
    assert_int_equal(first.trace_hash, second.trace_hash);
    assert_int_equal(first.mean_ns, second.mean_ns);
    config.seed++;
    assert_true(run(&config).trace_hash != first.trace_hash);
}

/* docs/COLLECTIVES.md has the figures. A vector of one packet is sent once, to all ranks: half of
 * the bytes of the ideal, and one round trip less. */
static void the_time_is_near_the_ideal(void **state)
{
    (void)state;
    struct weft_allreduce_config config = config_of(8, 4000000);
    config.rounds = 10;
    struct weft_allreduce_result result = run(&config);
    assert_true(result.mean_ns * 100 <= result.ideal_ns * 106);
    config.loss_ppm = 50000;
    result = run(&config);
    assert_true(result.mean_ns * 1000 <= result.ideal_ns * 1150);
    config = config_of(8, 1024);
    config.rtt_ns = 10 * WEFT_NS_PER_MS;
    result = run(&config);
    assert_true(result.p50_ns * 100 <= result.ideal_ns * 60);
}

/* 18 chunks from each rank to each other: 1.25 and 1.26 times the ideal when ranks sent messages in
 * their order. */
static void short_vectors_are_near_the_ideal(void **state)
{
    (void)state;
    const struct {
        uint64_t buffer_bytes;
        uint32_t loss_ppm;
        uint32_t ratio_max; /* in thousandths */
    } rows[] = {{64000, 0, 1120}, {16000, 0, 1150}, {64000, 10000, 1210}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weft_allreduce_config config = config_of(8, 200000);
        config.rate_bps = 50000000;
        config.buffer_bytes = rows[i].buffer_bytes;
        config.loss_ppm = rows[i].loss_ppm;
        config.rounds = 20;
        struct weft_allreduce_result result = run(&config);
        uint64_t ratio = result.mean_ns * 1000 / result.ideal_ns;
        if (ratio > rows[i].ratio_max) {
            fail_msg("row %zu: %u thousandths of the ideal", i, (unsigned)ratio);
        }
    }
}

/* Hosts with several ranks, slow links and late ranks: equal bits and exact sums in every form, and
 * a plan is faster than equal slices where the planner predicts it. */
static void plans_are_faster_where_links_differ(void **state)
{
    (void)state;
    const struct {
        uint32_t ranks, host_ranks, slow_links, late_ranks, loss_ppm;
        enum weft_allreduce_plan plan;
        bool trees;
        uint32_t ratio_max; /* to equal slices, in thousandths */
    } rows[] = {
        {8, 1, 1, 0, 0, WEFT_ALLREDUCE_PLAN_AUTO, false, 760},
        {8, 1, 1, 0, 10000, WEFT_ALLREDUCE_PLAN_AUTO, false, 760},
        {8, 1, 0, 1, 0, WEFT_ALLREDUCE_PLAN_AUTO, false, 950},
        {16, 4, 0, 0, 0, WEFT_ALLREDUCE_PLAN_AUTO, true, 400},
        {16, 4, 0, 0, 10000, WEFT_ALLREDUCE_PLAN_AUTO, true, 400},
        {16, 4, 1, 0, 0, WEFT_ALLREDUCE_PLAN_AUTO, true, 250},
        {6, 4, 0, 0, 0, WEFT_ALLREDUCE_PLAN_AUTO, true, 500},
        {5, 1, 0, 0, 0, WEFT_ALLREDUCE_PLAN_TREES, true, 1400},
        {5, 1, 0, 0, 50000, WEFT_ALLREDUCE_PLAN_TREES, true, 1400},
        {2, 1, 0, 0, 0, WEFT_ALLREDUCE_PLAN_TREES, true, 1100},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weft_allreduce_config config = config_of(rows[i].ranks, 2000000);
        config.host_ranks = rows[i].host_ranks;
        config.slow_links = rows[i].slow_links;
        config.slow_rate_bps = 100000000;
        config.late_ranks = rows[i].late_ranks;
        config.late_ns = 20 * WEFT_NS_PER_MS;
        config.loss_ppm = rows[i].loss_ppm;
        struct weft_allreduce_result equal = run(&config);
        config.plan = rows[i].plan;
        struct weft_allreduce_result planned = run(&config);
        assert_int_equal(planned.plan_trees, rows[i].trees);
        uint64_t ratio = planned.mean_ns * 1000 / equal.mean_ns;
        if (ratio > rows[i].ratio_max) {
            fail_msg("row %zu: %u thousandths of the time without a plan", i, (unsigned)ratio);
        }
    }
}

/* With a bound the slices of the plan are used, and what is missing is told and fed back. */
static void a_plan_with_a_bound_ends_with_the_right_sums(void **state)
{
    (void)state;
    for (uint32_t feedback = 0; feedback < 2; feedback++) {
        struct weft_allreduce_config config = config_of(6, 600000);
        config.plan = WEFT_ALLREDUCE_PLAN_TREES;
        config.host_ranks = 2;
        config.slow_links = 1;
        config.slow_rate_bps = 200000000;
        config.ops = 2;
        config.loss_ppm = 50000;
        config.bound_ppm = 100000;
        config.feedback = feedback != 0;
        assert_true(run(&config).delivered_ppm < 1000000);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct weft_allreduce_config config;
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        weft_allreduce_config_default(&config);                                                    \
        assert_null(weft_allreduce_config_check(&config));                                         \
        config.field = value;                                                                      \
        assert_non_null(weft_allreduce_config_check(&config));                                     \
    } while (0)
    REFUSED(ranks, 1);
    REFUSED(ranks, WEFT_ALLREDUCE_RANKS_MAX + 1);
    REFUSED(bytes, 0);
    REFUSED(bytes, 4000002);
    REFUSED(bytes, 400000004);
    REFUSED(ops, 0);
    REFUSED(ops, 3);
    REFUSED(ops, 17);
    REFUSED(rate_bps, 999999);
    REFUSED(rtt_ns, UINT64_C(1000000001));
    REFUSED(buffer_bytes, 1000);
    REFUSED(loss_ppm, 500000);
    REFUSED(bound_ppm, 1000000);
    REFUSED(segment_bytes, 100);
    REFUSED(rounds, 0);
    REFUSED(cc_name, "none");
    REFUSED(host_ranks, 0);
    REFUSED(host_ranks, 9);
    REFUSED(slow_links, 9);
    REFUSED(slow_links, 1); /* without a rate */
    REFUSED(late_ranks, 9);
    REFUSED(late_ns, UINT64_C(1000000001));
    config.late_ranks = 1;
    config.late_ns = 1;
    assert_null(weft_allreduce_config_check(&config));
    config.barrier = true;
    assert_non_null(weft_allreduce_config_check(&config));
    config.barrier = false;
    config.box = WEFT_ALLREDUCE_BOX_SWITCH;
    assert_non_null(weft_allreduce_config_check(&config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ideal_is_what_a_link_carries),
        cmocka_unit_test(runs_of_all_sorts_end_with_the_right_sums),
        cmocka_unit_test(rounds_after_a_barrier_end_with_the_right_sums),
        cmocka_unit_test(the_same_seed_is_the_same_run),
        cmocka_unit_test(the_time_is_near_the_ideal),
        cmocka_unit_test(short_vectors_are_near_the_ideal),
        cmocka_unit_test(plans_are_faster_where_links_differ),
        cmocka_unit_test(a_plan_with_a_bound_ends_with_the_right_sums),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
