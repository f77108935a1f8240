/* Forwarding by hosts, step by step, compared with times computed by hand: aggregates, reductions,
 * broadcasts, and grants that change during a transfer. Links have 8 Mbit/s, so 1 MB needs 1 s. */
#include "sim/fabric_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 4, SERVER = WORKERS, MB = 1000000 };

static struct weft_fabric_result result;
static struct weft_fabric f;

static int begin(void **state)
{
    (void)state;
    memset(&result, 0, sizeof(result));
    memset(&f, 0, sizeof(f));
    weft_fabric_config_default(&f.config);
    f.config.workers = WORKERS;
    f.config.update_bytes = MB;
    f.config.model_bytes = 0;
    f.config.chunk_bytes = MB / 4;
    f.config.network.delay_ns = 0;
    f.config.compute = *weft_fabric_compute_find("fixed");
    f.config.compute.step_ns_min = f.config.compute.step_ns_max = 1000 * WEFT_NS_PER_S;
    f.result = &result;
    result.ok = true;
    f.hosts = WORKERS + 1;
    f.fluid = weft_fluid_new(2 * f.hosts);
    for (uint32_t l = 0; l < 2 * f.hosts; l++) {
        weft_fluid_set_capacity(f.fluid, l, 8000000);
    }
    f.workers = weft_fabric_zeroed(WORKERS, sizeof(*f.workers));
    for (uint32_t i = 0; i < WORKERS; i++) {
        f.workers[i].state = WEFT_FABRIC_PUSHING;
        f.workers[i].outstanding = true;
        f.workers[i].left = 1;
        f.workers[i].sent_ns = WEFT_NEVER;
    }
    f.outstanding = WORKERS;
    return 0;
}

static int end(void **state)
{
    (void)state;
    weft_sim_heap_fini(&f.heap);
    weft_fluid_free(f.fluid);
    free(f.workers);
    free(f.transfers);
    free(f.spare);
    free(f.grouped);
    free(f.relays);
    free(f.delays);
    return 0;
}

static uint32_t start(enum weft_fabric_kind kind, uint32_t from, uint32_t to, uint32_t members,
                      bool cut_through)
{
    const struct weft_fabric_transfer transfer = {
        .kind = kind,
        .from = from,
        .to = to,
        .worker = from,
        .members = members,
        .trees = 1,
        .bytes = MB,
        .group = 1,
        .cut_through = cut_through,
    };
    return weft_fabric_transfer_start(&f, &transfer);
}

/* Time until this many updates are committed, in ms. */
static uint64_t until_commits(uint64_t commits)
{
    weft_fabric_relay(&f);
    while (result.commits < commits) {
        weft_fabric_moment(&f);
        assert_true(f.now_ns < 100 * WEFT_NS_PER_S);
    }
    return f.now_ns / WEFT_NS_PER_MS;
}

/* Updates of hosts 1 and 2 are sent to host 0, which adds its own: each gets half of the downlink,
 * so both arrive after 2 s. Then 1 s to the server; with chunks of a quarter only the last chunk
 * remains, 0.25 s. */
static void sum_up(bool cut_through)
{
    for (uint32_t i = 0; i < 3; i++) {
        f.workers[i].group = 1;
        (void)start(WEFT_FABRIC_MEMBER, i, 0, 3, cut_through);
    }
    (void)start(WEFT_FABRIC_GROUP, 0, SERVER, 3, cut_through);
}

static void an_aggregate_waits_for_its_members(void **state)
{
    (void)state;
    sum_up(false);
    assert_int_equal(until_commits(3), 3000);
    assert_int_equal(result.groups, 1);
    assert_int_equal(result.grouped, 3);
    assert_int_equal(result.update_bytes, MB);
    assert_int_equal(f.grouped_count, 0);
}

static void a_cut_through_one_for_each_chunk(void **state)
{
    (void)state;
    sum_up(true);
    assert_int_equal(until_commits(3), 2250);
    assert_int_equal(f.grouped_count, 0);
}

/* The grant to the server may arrive before those of the members. */
static void an_aggregate_may_be_granted_first(void **state)
{
    (void)state;
    (void)start(WEFT_FABRIC_GROUP, 0, SERVER, 2, true);
    weft_fabric_relay(&f);
    assert_true(weft_fluid_next_ns(f.fluid) == WEFT_NEVER);
    for (uint32_t i = 0; i < 2; i++) {
        f.workers[i].group = 1;
        (void)start(WEFT_FABRIC_MEMBER, i, 0, 2, true);
    }
    assert_int_equal(until_commits(2), 1250);
}

/* 3 -> 2 -> 1 -> 0 and back, all links full duplex: uplinks of 1 and 2 carry both.
 * Store-and-forward: six transfers of 1 s, one after the other. */
static void chain(bool cut_through)
{
    for (uint32_t i = WORKERS - 1; i > 0; i--) {
        (void)start(WEFT_FABRIC_REDUCE, i, i - 1, WORKERS - i, cut_through);
        (void)start(WEFT_FABRIC_BROADCAST, i - 1, i, 0, cut_through);
    }
    f.config.mode = WEFT_FABRIC_SYNC;
    f.config.policy = WEFT_FABRIC_TREE;
}

static void a_tree_reduces_and_broadcasts(void **state)
{
    (void)state;
    chain(false);
    assert_int_equal(until_commits(WORKERS), 6000);
    assert_int_equal(f.grouped_count, 0);
}

/* With cut-through no link is idle for long: each carries at most 2 MB, and the pipeline is five
 * chunks deep. */
static void and_overlaps_both(void **state)
{
    (void)state;
    chain(true);
    assert_in_range(until_commits(WORKERS), 2000, 2000 + 5 * 250);
}

/* 0.5 MB at 4 Mbit/s from 1 s on; replanned: the rest at 8 Mbit/s from 3 s on. */
static void a_grant_that_is_revised(void **state)
{
    (void)state;
    struct weft_fabric_transfer push = {
        .kind = WEFT_FABRIC_PUSH,
        .granted = true,
        .from = 0,
        .to = SERVER,
        .worker = 0,
        .bytes = MB,
        .rank = 1,
        .booking = {.start_ns = WEFT_NS_PER_S,
                    .end_ns = 3 * WEFT_NS_PER_S,
                    .count = 1,
                    .pieces = {{WEFT_NS_PER_S, 3 * WEFT_NS_PER_S, 4000000}}},
    };
    uint32_t index = weft_fabric_transfer_start(&f, &push);
    weft_fabric_moment(&f);
    assert_int_equal(f.now_ns, WEFT_NS_PER_S);
    weft_fluid_advance(f.fluid, 2 * WEFT_NS_PER_S);
    f.now_ns = 2 * WEFT_NS_PER_S;
    assert_int_equal(weft_fluid_left(f.fluid, f.transfers[index].flow), MB / 2);
    const struct weft_booking again = {
        .start_ns = 3 * WEFT_NS_PER_S,
        .end_ns = 3500 * WEFT_NS_PER_MS,
        .count = 1,
        .pieces = {{3 * WEFT_NS_PER_S, 3500 * WEFT_NS_PER_MS, 8000000}}};
    weft_fabric_transfer_regrant(&f, index, &again);
    assert_int_equal(until_commits(1), 3500);
}

/* A link changes twice before the planner learns of the first change: each report contains the rate
 * at its own time. */
static void a_report_is_of_its_own_change(void **state)
{
    (void)state;
    f.config.policy = WEFT_FABRIC_ORDER;
    weft_fabric_planner_new(&f);
    assert_non_null(f.planner);
    const struct weft_timeline *line = weft_planner_link(f.planner, 0, true);
    weft_fluid_set_capacity(f.fluid, weft_fabric_up(0), 4000000);
    weft_fabric_report_capacity(&f, weft_fabric_up(0));
    f.now_ns = f.config.report_ns / 2;
    weft_fluid_advance(f.fluid, f.now_ns);
    weft_fluid_set_capacity(f.fluid, weft_fabric_up(0), 2000000);
    weft_fabric_report_capacity(&f, weft_fabric_up(0));
    weft_fabric_moment(&f);
    assert_int_equal(f.now_ns, f.config.report_ns);
    assert_int_equal(line->capacity_bps, 4000000);
    weft_fabric_moment(&f);
    assert_int_equal(line->capacity_bps, 2000000);
    weft_planner_free(f.planner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_aggregate_waits_for_its_members, begin, end),
        cmocka_unit_test_setup_teardown(a_cut_through_one_for_each_chunk, begin, end),
        cmocka_unit_test_setup_teardown(an_aggregate_may_be_granted_first, begin, end),
        cmocka_unit_test_setup_teardown(a_tree_reduces_and_broadcasts, begin, end),
        cmocka_unit_test_setup_teardown(and_overlaps_both, begin, end),
        cmocka_unit_test_setup_teardown(a_grant_that_is_revised, begin, end),
        cmocka_unit_test_setup_teardown(a_report_is_of_its_own_change, begin, end),
    };
    return cmocka_run_group_tests_name("sim_fabric_transfer", tests, NULL, NULL);
}
