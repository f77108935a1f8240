/* Plans of an all-reduce: fractions computed by hand, every plan is complete and its trees are
 * trees, and impossible input. */
#include "base/prng.h"
#include "base/units.h"
#include "print_seed.h"
#include "sched/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 64 };

#define GBIT UINT64_C(1000000000)
#define WHOLE ((double)WEFT_COLLECTIVE_WHOLE)

static void is_near(double value, double wanted, double error)
{
    if (value < wanted - error || value > wanted + error) {
        fail_msg("%.9g is not %.9g", value, wanted);
    }
}

static uint64_t memory[400000];

static struct weft_collective_plan make(const struct weft_collective_rank *ranks, uint32_t n,
                                        enum weft_collective_form form, uint64_t bytes)
{
    const struct weft_collective_options options = {
        .form = form, .bytes = bytes, .chunk_bytes = 64512, .hop_ns = 25000};
    struct weft_collective_plan plan;
    assert_true(weft_collective_plan_bytes(n) <= sizeof(memory));
    memset(memory, 0xa5, sizeof(memory)); /* code must not rely on zeros */
    assert_null(weft_collective_plan_make(ranks, n, &options, memory, &plan));
    return plan;
}

static double share(const struct weft_collective_plan *plan, uint32_t rank)
{
    return (plan->slice[rank + 1] - plan->slice[rank]) / WHOLE;
}

static void ranks_init(struct weft_collective_rank *ranks, uint32_t n, uint32_t each)
{
    for (uint32_t r = 0; r < n; r++) {
        ranks[r] = (struct weft_collective_rank){.up_bps = GBIT, .host = 100 + r / each};
    }
}

/* 4 MB at 1 Gbit/s are 32 ms. */
static void equal_links_give_equal_slices(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[8];
    ranks_init(ranks, 8, 1);
    struct weft_collective_plan plan = make(ranks, 8, WEFT_COLLECTIVE_AUTO, 4000000);
    assert_int_equal(plan.form, WEFT_COLLECTIVE_SLICES);
    assert_int_equal(plan.parts, 0);
    for (uint32_t r = 0; r < 8; r++) {
        is_near(share(&plan, r), 0.125, 1e-5);
    }
    assert_int_equal(plan.equal_ns, 56000000 + 50000);
    assert_in_range(plan.slices_ns, plan.equal_ns - 1000, plan.equal_ns + 1000);
    assert_true(plan.trees_ns > plan.slices_ns);
    ranks[3].up_bps = 0; /* unknown: the fastest */
    is_near(share(&plan, 3), 0.125, 1e-5);
    ranks_init(ranks, 8, 8); /* all on one host */
    plan = make(ranks, 8, WEFT_COLLECTIVE_AUTO, 4000000);
    assert_int_equal(plan.hosts, 8);
    is_near(share(&plan, 0), 0.125, 1e-5);
}

/* A link of 100 Mbit/s transmits the vector in 320 ms, and nothing else then; with equal slices
 * 1.75 times as much. The others have time for a seventh each. */
static void a_slow_link_owns_nothing(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[8];
    ranks_init(ranks, 8, 1);
    ranks[2].down_bps = GBIT / 10;
    struct weft_collective_plan plan = make(ranks, 8, WEFT_COLLECTIVE_AUTO, 4000000);
    assert_int_equal(plan.form, WEFT_COLLECTIVE_SLICES);
    assert_int_equal(plan.equal_ns, 560000000 + 50000);
    assert_in_range(plan.slices_ns, 320000000 + 50000, 320000000 + 51000);
    for (uint32_t r = 0; r < 8; r++) {
        is_near(share(&plan, r), r == 2 ? 0 : 1 / 7.0, 1e-5);
    }
}

/* Two links of 1 and one of 0.75 Gbit/s: (T - 1) + (T - 1) + (0.75 T - 1) = 1 of 32 ms each. */
static void fractions_fill_the_links(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[3];
    ranks_init(ranks, 3, 1);
    ranks[2].up_bps = GBIT * 3 / 4;
    struct weft_collective_plan plan = make(ranks, 3, WEFT_COLLECTIVE_SLICES, 4000000);
    double t = 4 / 2.75;
    is_near(share(&plan, 0), t - 1, 1e-4);
    is_near(share(&plan, 2), 0.75 * t - 1, 1e-4);
    is_near((double)plan.slices_ns, t * 32e6 + 50000, 1000);
}

/* A rank that is late by 100 ms owns nothing, and all end 32 ms later. */
static void a_late_rank_owns_nothing(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[4];
    ranks_init(ranks, 4, 1);
    for (uint32_t r = 0; r < 4; r++) {
        ranks[r].ready_ns = 5000000; /* common to all: it does not count */
    }
    ranks[3].ready_ns += 100000000;
    struct weft_collective_plan plan = make(ranks, 4, WEFT_COLLECTIVE_AUTO, 4000000);
    is_near(share(&plan, 3), 0, 0);
    is_near(share(&plan, 0), 1 / 3.0, 1e-5);
    assert_in_range(plan.slices_ns, 132000000 + 50000, 132000000 + 51000);
}

/* One rank of 64 is fast enough to own everything: it would hold 63 vectors. */
static void an_owner_holds_few_vectors(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[RANKS];
    ranks_init(ranks, RANKS, 1);
    ranks[5].up_bps = 1000 * GBIT;
    struct weft_collective_plan plan = make(ranks, RANKS, WEFT_COLLECTIVE_SLICES, 4000000);
    assert_true(share(&plan, 5) * (RANKS - 1) < 5);
    assert_true(share(&plan, 5) * (RANKS - 1) > 3.9);
    is_near(share(&plan, 7), (1 - share(&plan, 5)) / (RANKS - 1), 1e-5);
    for (uint32_t r = 0; r < RANKS; r++) { /* of 32 hosts of two ranks one */
        ranks[r].host = 100 + r / 2;
        ranks[r].up_bps = r / 2 == 5 ? 1000 * GBIT : GBIT;
    }
    plan = make(ranks, RANKS, WEFT_COLLECTIVE_TREES, 4000000);
    assert_int_equal(plan.depth, 2); /* host trees */
    double roots = 0;
    for (uint32_t p = 0; p < plan.parts; p++) {
        roots += plan.up[p * RANKS + 10] == 10 ? (plan.part[p + 1] - plan.part[p]) / WHOLE : 0;
    }
    assert_true(roots * 32 < 5 && roots * 32 > 3.9);
}

/* Four hosts of four ranks: a host's link carries 1.5 vectors with trees, and 6 without. */
static void ranks_of_a_host_are_summed_first(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[16];
    ranks_init(ranks, 16, 4);
    struct weft_collective_plan plan = make(ranks, 16, WEFT_COLLECTIVE_AUTO, 4000000);
    assert_int_equal(plan.form, WEFT_COLLECTIVE_TREES);
    assert_int_equal(plan.hosts, 4);
    assert_int_equal(plan.parts, 16);
    assert_int_equal(plan.depth, 2);
    assert_int_equal(plan.equal_ns, 6 * 32000000 + 50000);
    assert_in_range(plan.trees_ns, 48000000 + 100000, 48000000 + 101000);
    uint32_t roots[16] = {0};
    for (uint32_t p = 0; p < 16; p++) {
        uint32_t across = 0;
        for (uint32_t r = 0; r < 16; r++) {
            uint32_t up = plan.up[p * 16 + r];
            assert_int_equal(up, plan.down[p * 16 + r]);
            across += ranks[r].host != ranks[up].host;
            roots[r] += up == r;
        }
        assert_int_equal(across, 3); /* one sum from each of the other hosts */
    }
    for (uint32_t r = 0; r < 16; r++) {
        assert_int_equal(roots[r], 1); /* the ranks take turns */
    }
    plan = make(ranks, 16, WEFT_COLLECTIVE_SLICES, 4000000);
    assert_int_equal(plan.parts, 0);
    is_near(share(&plan, 5), 1 / 16.0, 1e-5);
}

/* ---- any input ------------------------------------------------------------------------------- */

static void check_positions(const uint32_t *at, uint32_t n)
{
    assert_int_equal(at[0], 0);
    assert_int_equal(at[n], WEFT_COLLECTIVE_WHOLE);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(at[i] <= at[i + 1]);
    }
}

static uint32_t root_of(const uint16_t *parent, uint32_t n, uint32_t rank)
{
    uint32_t steps = 0;
    while (parent[rank] != rank) {
        assert_true(steps++ < n && parent[rank] < n);
        rank = parent[rank];
    }
    return rank;
}

static void check_plan(const struct weft_collective_plan *plan, uint32_t n)
{
    assert_int_equal(plan->ranks, n);
    check_positions(plan->slice, n);
    for (uint32_t r = 0; r < n; r++) {
        assert_true(share(plan, r) * (n - 1) < 5); /* vectors that it holds */
    }
    assert_int_equal(plan->parts > 0, plan->form == WEFT_COLLECTIVE_TREES);
    if (plan->parts > 0) {
        check_positions(plan->part, plan->parts);
    }
    for (uint32_t p = 0; p < plan->parts; p++) {
        const uint16_t *up = plan->up + p * n, *down = plan->down + p * n;
        uint32_t root = root_of(up, n, 0), children[RANKS] = {0};
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(root_of(up, n, r), root);
            assert_int_equal(root_of(down, n, r), root);
            assert_int_equal(plan->row[p * n + r], r == root ? 0 : children[up[r]]++);
        }
    }
}

static void any_ranks_get_a_complete_plan(void **state)
{
    (void)state;
    for (seed = 1; seed <= 3000; seed++) {
        struct weft_prng prng;
        struct weft_collective_rank ranks[RANKS];
        weft_prng_init(&prng, seed);
        uint32_t n = (uint32_t)weft_prng_range(&prng, 1, seed % 20 == 0 ? RANKS : 12);
        uint32_t hosts = (uint32_t)weft_prng_range(&prng, 1, n);
        for (uint32_t r = 0; r < n; r++) {
            ranks[r] = (struct weft_collective_rank){
                .up_bps = weft_prng_below(&prng, 4) == 0 ? 0 : GBIT / weft_prng_range(&prng, 1, 30),
                .down_bps =
                    weft_prng_below(&prng, 2) == 0 ? 0 : weft_prng_range(&prng, 1000000, GBIT),
                .ready_ns = weft_prng_below(&prng, 4) == 0 ? weft_prng_below(&prng, GBIT) : 0,
                .host = weft_prng_below(&prng, hosts)};
        }
        uint64_t bytes = UINT64_C(1) << weft_prng_below(&prng, 37);
        struct weft_collective_plan plan =
            make(ranks, n, (enum weft_collective_form)(seed % 3), bytes);
        check_plan(&plan, n);
        uint32_t first = plan.slice[n / 2];
        plan = make(ranks, n, (enum weft_collective_form)(seed % 3), bytes);
        assert_int_equal(plan.slice[n / 2], first);
    }
}

static void impossible_input_is_refused(void **state)
{
    (void)state;
    struct weft_collective_rank ranks[300] = {0};
    struct weft_collective_options good = {.bytes = 1000, .chunk_bytes = 100}, options;
    struct weft_collective_plan plan;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        memset(ranks, 0, sizeof(ranks));                                                           \
        options = good;                                                                            \
        assert_null(weft_collective_plan_make(ranks, 4, &options, memory, &plan));                 \
        change;                                                                                    \
        assert_non_null(weft_collective_plan_make(ranks, 4, &options, memory, &plan));             \
    } while (0)
    REFUSED(ranks[3].up_bps = 999999);
    REFUSED(ranks[3].down_bps = WEFT_COLLECTIVE_BPS_MAX + 1);
    REFUSED(ranks[0].ready_ns = WEFT_COLLECTIVE_READY_MAX + 1);
    REFUSED(options.bytes = 0);
    REFUSED(options.bytes = WEFT_COLLECTIVE_BYTES_MAX + 1);
    REFUSED(options.chunk_bytes = 0);
    REFUSED(options.form = (enum weft_collective_form)3);
    options = good;
    assert_non_null(weft_collective_plan_make(ranks, 0, &options, memory, &plan));
    options.form = WEFT_COLLECTIVE_TREES;
    assert_non_null(weft_collective_plan_make(ranks, 257, &options, memory, &plan));
    options.form = WEFT_COLLECTIVE_AUTO;
    assert_null(weft_collective_plan_make(ranks, 257, &options, memory, &plan));
    assert_int_equal(plan.form, WEFT_COLLECTIVE_SLICES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_links_give_equal_slices),
        cmocka_unit_test(a_slow_link_owns_nothing),
        cmocka_unit_test(fractions_fill_the_links),
        cmocka_unit_test(a_late_rank_owns_nothing),
        cmocka_unit_test(an_owner_holds_few_vectors),
        cmocka_unit_test(ranks_of_a_host_are_summed_first),
        cmocka_unit_test_teardown(any_ranks_get_a_complete_plan, print_seed),
        cmocka_unit_test(impossible_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
