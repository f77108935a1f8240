/* The fabric simulation compared with times computed by hand; equal seeds; guarantees of its
 * policies. Every run itself checks the sum of the delays (sim/fabric.h) and that no link exceeds
 * its capacity. */
#include "fabric_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* An update of 12.5 MB needs 100 ms on a link of 1 Gbit/s. */
static struct weft_fabric_config config_of(enum weft_fabric_policy policy, const char *compute,
                                           const char *network)
{
    struct weft_fabric_config config;
    weft_fabric_config_default(&config);
    config.policy = policy;
    config.compute = *weft_fabric_compute_find(compute);
    config.network = *weft_fabric_network_find(network);
    config.network.delay_ns = 0;
    return config;
}

/* Read 0.1 s, compute 2 s, push 0.1 s: 27 rounds of 2.2 s in 60 s; a single worker has no delay. */
static void one_worker_alone(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    config.workers = 1;
    run(&config);
    assert_int_equal(result.commits, 27);
    assert_int_equal(result.delay_max, 0);
    assert_int_equal(result.update_bytes, UINT64_C(27) * 12500000);
    /* With two servers each holds half of the model and gets half of each update. The worker's own
     * link is still the limit. */
    config.servers = 2;
    run(&config);
    assert_int_equal(result.commits, 27);
    /* With 0.05 ms each way, read and push each arrive 0.05 ms later: a round is 2.2001 s. */
    config.servers = 1;
    config.network.delay_ns = 50000;
    config.duration_ns = 22001 * UINT64_C(100000) * 10 + 1;
    run(&config);
    assert_int_equal(result.commits, 10);
}

/* Without reads, 30 workers compute for 2 s and push at the same time: 3 s for all, with 1/30 of
 * the link each. 30 commits in 5 s; the twelfth round would end with the run, at 60 s. Delays are 0
 * .. 29 in the first round; then each update is delayed by all others. */
static void fair_shares_keep_workers_in_step(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    config.model_bytes = 0;
    run(&config);
    assert_int_equal(result.commits, 330);
    assert_int_equal(result.delay_max, 29);
    assert_true(result.share_min == 1);
    assert_true(result.server_link_utilization > 0.599 && result.server_link_utilization < 0.601);
}

/* Sent one after the other, the same updates arrive after 0.1, 0.2, ... s, and workers are out of
 * phase from then on. The server's link is then always busy: 580 of the 600 updates that it could
 * carry. */
static void turns_fill_the_link(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_FIFO, "fixed", "homogeneous");
    config.model_bytes = 0;
    run(&config);
    assert_in_range(result.commits, 570, 580);
    assert_true(result.server_link_utilization > 0.95);
    config.policy = WEFT_FABRIC_ORDER;
    run(&config);
    assert_in_range(result.commits, 570, 580);
}

static uint64_t round_ns(enum weft_fabric_policy policy, uint32_t workers)
{
    struct weft_fabric_config config = config_of(policy, "fixed", "homogeneous");
    config.mode = WEFT_FABRIC_SYNC;
    config.workers = workers;
    run(&config);
    assert_int_equal(result.delay_max, 0);
    return result.makespan_ns - 2 * WEFT_NS_PER_S;
}

static void all_reduce_takes_what_its_steps_take(void **state)
{
    (void)state;
    const uint64_t ms = WEFT_NS_PER_MS;
    /* Read and push of 8 at once: 0.8 s each. */
    assert_int_equal(round_ns(WEFT_FABRIC_FAIR, 8), 1600 * ms);
    /* 2 (n - 1) steps of one part: 14 of 12.5 ms; 6 of 25 ms. */
    assert_int_equal(round_ns(WEFT_FABRIC_RING, 8), 175 * ms);
    assert_int_equal(round_ns(WEFT_FABRIC_RING, 4), 150 * ms);
    /* Halves, quarters, eighths and back: 2 x 87.5 ms. */
    assert_int_equal(round_ns(WEFT_FABRIC_HALVING_DOUBLING, 8), 175 * ms);
    assert_int_equal(round_ns(WEFT_FABRIC_HALVING_DOUBLING, 2), 100 * ms);
    /* With six workers, two send their whole vector first and receive the result last: 100 + 150 +
     * 100 ms. */
    assert_int_equal(round_ns(WEFT_FABRIC_HALVING_DOUBLING, 6), 350 * ms);
}

/* 30 workers: the tree with cut-through needs at most 1.5 times the time of the ring, and at most a
 * third of its own time without cut-through. */
static void a_tree_cuts_through(void **state)
{
    (void)state;
    const uint64_t sizes[] = {4000000, 100000000};
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_fabric_config config = config_of(WEFT_FABRIC_RING, "fixed", "homogeneous");
        config.network.delay_ns = 50000;
        config.mode = WEFT_FABRIC_SYNC;
        config.update_bytes = sizes[i];
        config.chunk_bytes = i == 0 ? 64000 : 256000;
        config.duration_ns = 10 * WEFT_NS_PER_S;
        run(&config);
        uint64_t ring_ns = result.makespan_ns - 2 * WEFT_NS_PER_S;
        config.policy = WEFT_FABRIC_TREE;
        run(&config);
        uint64_t whole_ns = result.makespan_ns - 2 * WEFT_NS_PER_S;
        config.policy = WEFT_FABRIC_TREE_CUT_THROUGH;
        run(&config);
        uint64_t chunks_ns = result.makespan_ns - 2 * WEFT_NS_PER_S;
        assert_true(chunks_ns * 2 <= ring_ns * 3);
        assert_true(chunks_ns * 3 <= whole_ns);
        assert_true(chunks_ns > sizes[i] * 8 * 2); /* twice over an uplink, at one bit per ns */
        assert_int_equal(result.commits, 30 * result.rounds);
    }
}

/* Every kind of all-reduce in every setting: rounds complete, and every worker takes part in
 * each. */
static void every_all_reduce_ends(void **state)
{
    (void)state;
    for (int policy = WEFT_FABRIC_TREE; policy < WEFT_FABRIC_POLICIES; policy++) {
        for (uint32_t n = 0; weft_fabric_networks[n] != NULL; n++) {
            struct weft_fabric_config config = config_of((enum weft_fabric_policy)policy, "bimodal",
                                                         weft_fabric_networks[n]->name);
            config.network.delay_ns = 50000;
            config.mode = WEFT_FABRIC_SYNC;
            config.workers = 2 + 3 * n;
            config.seed = n;
            run(&config);
            assert_true(result.rounds >= 4);
            assert_int_equal(result.commits, config.workers * result.rounds);
            assert_true(result.share_min == 1);
        }
    }
}

/* The uplink with a tenth of the rate sends its six parts one after the other, 250 ms each; the
 * other links need less. */
static void the_slowest_link_holds_a_ring(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_RING, "fixed", "slow-uplinks");
    config.mode = WEFT_FABRIC_SYNC;
    config.workers = 4; /* round(0.8) = one of them is slow */
    run(&config);
    assert_int_equal(result.makespan_ns, 3500 * WEFT_NS_PER_MS);
}

/* ssp:N: a worker that is N commits ahead of the slowest may make one more step, so at the end the
 * fastest is N or N + 1 ahead. */
static void ssp_holds_the_fast_back(void **state)
{
    (void)state;
    for (uint32_t staleness = 0; staleness <= 3; staleness++) {
        struct weft_fabric_config config = config_of(WEFT_FABRIC_FAIR, "slow-20", "homogeneous");
        uint64_t least = UINT64_MAX;
        uint64_t most = 0;
        config.mode = WEFT_FABRIC_SSP;
        config.staleness = staleness;
        config.servers = 4;
        run(&config);
        for (uint32_t i = 0; i < config.workers; i++) {
            least = weft_min_u64(least, result.commits_by_worker[i]);
            most = weft_max_u64(most, result.commits_by_worker[i]);
        }
        assert_in_range(most - least, staleness, staleness + 1);
    }
}

static void a_chain_copies_every_update(void **state)
{
    (void)state;
    for (int policy = WEFT_FABRIC_FAIR; policy <= WEFT_FABRIC_BOUND; policy++) {
        struct weft_fabric_config config =
            config_of((enum weft_fabric_policy)policy, "uniform", "homogeneous");
        config.div_max = 5;
        config.is_chained = policy != WEFT_FABRIC_FAIR; /* FAIR always chains */
        run(&config);
        assert_true(result.commits > 0);
        assert_true(result.has_replica && result.replica_divergence_max == 0);
        assert_in_range(result.replica_bytes, result.commits * 12500000,
                        (result.commits + 30) * 12500000);
    }
}

/* Updates that wait to be copied to the replica are summed: with a bound of 30 times the mean norm
 * of an update far fewer bytes are copied than with a chain, and there are nearly as many commits
 * as without replicas. */
static void a_bound_costs_less_than_a_chain(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_ORDER, "uniform", "homogeneous");
    run(&config);
    const uint64_t alone = result.commits;
    config.div_max = 30;
    run(&config);
    const uint64_t bounded = result.commits, bounded_bytes = result.replica_bytes;
    assert_true(result.replica_divergence_max <= 30);
    config.is_chained = true;
    run(&config);
    assert_true(10 * bounded > 9 * alone && bounded > result.commits);
    assert_true(5 * bounded_bytes < result.replica_bytes);
}

/* ---- all policies, all settings -------------------------------------------------------------- */

static const enum weft_fabric_policy served_policies[] = {
    WEFT_FABRIC_FAIR,        WEFT_FABRIC_FIFO,        WEFT_FABRIC_ORDER,     WEFT_FABRIC_BOUND,
    WEFT_FABRIC_AGGREGATION, WEFT_FABRIC_CUT_THROUGH, WEFT_FABRIC_ADMISSION,
};

static void every_setting_runs_to_its_end(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < WEFT_ARRAY_COUNT(served_policies); p++) {
        for (uint32_t c = 0; weft_fabric_computes[c] != NULL; c++) {
            for (uint32_t n = 0; weft_fabric_networks[n] != NULL; n++) {
                struct weft_fabric_config config =
                    config_of(served_policies[p], weft_fabric_computes[c]->name,
                              weft_fabric_networks[n]->name);
                bool admits = config.policy == WEFT_FABRIC_ADMISSION;
                config.mode = (enum weft_fabric_mode)((c + n) % (admits ? 2 : 3));
                config.staleness = 2;
                config.servers = 1 + (c + p) % 3;
                config.workers = 12;
                config.duration_ns = 20 * WEFT_NS_PER_S;
                config.seed = 17 + n;
                config.tau_max = 11;
                config.read_credits = 6;
                config.network.delay_ns = 50000;
                run(&config);
                assert_true(result.commits >= config.workers / 2);
                assert_true(result.server_link_utilization <= 1);
            }
        }
    }
}

/* The run checks that no delay exceeds tau_max and no replica exceeds its bound. This test checks
 * that the bounds take effect, with link changes that the planner learns late. */
static void bounds_are_kept_when_they_bite(void **state)
{
    (void)state;
    uint64_t dropped = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct weft_fabric_config config =
            config_of(served_policies[3 + seed % 3], "bimodal", seed % 2 == 0 ? "varying" : "NS3");
        config.seed = seed;
        config.workers = 16;
        config.network.delay_ns = 50000;
        config.tau_max = 6 + seed % 8;
        config.div_max = seed % 4 < 2 ? 0 : 3;
        config.duration_ns = 30 * WEFT_NS_PER_S;
        run(&config);
        assert_true(result.commits > 0);
        assert_true(result.delay_max <= config.tau_max);
        assert_true(result.replica_divergence_max <= config.div_max * (1 + 1e-9));
        assert_true((result.replica_bytes > 0) == (config.div_max > 0));
        dropped += result.dropped;
    }
    assert_true(dropped > 100);
}

/* If only half of the workers may be between read and commit, the delay is that of half as many
 * workers, and the link is as busy. No delay exceeds 28, twice the number of the 14 others. */
static void admission_halves_the_delay(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_CUT_THROUGH, "brief", "homogeneous");
    run(&config);
    uint64_t commits = result.commits;
    double delay = result.delay_mean;
    config.policy = WEFT_FABRIC_ADMISSION;
    config.read_credits = 15;
    run(&config);
    assert_true(result.delay_mean < 0.55 * delay);
    assert_true(result.commits * 100 >= commits * 95);
    assert_in_range(result.delay_max, 0, 28);
}

static void one_seed_is_one_run(void **state)
{
    (void)state;
    static struct weft_fabric_result first;
    for (uint32_t p = 0; p < WEFT_ARRAY_COUNT(served_policies); p++) {
        struct weft_fabric_config config = config_of(served_policies[p], "bimodal", "varying");
        config.duration_ns = 20 * WEFT_NS_PER_S;
        run(&config);
        first = result;
        run(&config);
        assert_memory_equal(&first, &result, sizeof(result));
        config.seed++;
        run(&config);
        assert_true(memcmp(&first, &result, sizeof(result)) != 0);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_RING, "fixed", "homogeneous");
    assert_non_null(strstr(weft_fabric_config_check(&config), "sync"));
    config.mode = WEFT_FABRIC_SYNC;
    assert_null(weft_fabric_config_check(&config));
    config.div_max = 1;
    assert_non_null(strstr(weft_fabric_config_check(&config), "replicas"));
    config.div_max = 0;
    config.workers = 1;
    assert_non_null(strstr(weft_fabric_config_check(&config), "two workers"));
    config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    config.model_bytes = 10;
    assert_non_null(strstr(weft_fabric_config_check(&config), "bytes"));
    config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    config.workers = 1001;
    assert_non_null(strstr(weft_fabric_config_check(&config), "workers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_alone),
        cmocka_unit_test(fair_shares_keep_workers_in_step),
        cmocka_unit_test(turns_fill_the_link),
        cmocka_unit_test(all_reduce_takes_what_its_steps_take),
        cmocka_unit_test(a_tree_cuts_through),
        cmocka_unit_test(every_all_reduce_ends),
        cmocka_unit_test(the_slowest_link_holds_a_ring),
        cmocka_unit_test(ssp_holds_the_fast_back),
        cmocka_unit_test(a_chain_copies_every_update),
        cmocka_unit_test(a_bound_costs_less_than_a_chain),
        cmocka_unit_test(every_setting_runs_to_its_end),
        cmocka_unit_test(bounds_are_kept_when_they_bite),
        cmocka_unit_test(admission_halves_the_delay),
        cmocka_unit_test(one_seed_is_one_run),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests_name("sim_fabric", tests, NULL, NULL);
}
