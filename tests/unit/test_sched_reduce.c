/* All-reduce: in every tree each contribution arrives once and the result reaches all workers;
 * predicted times compared with the ring's and with store-and-forward; complete rounds of the
 * planner, with late arrivals, jitter and a worker that leaves. */
#include "base/prng.h"
#include "print_seed.h"
#include "sched/planner.h"
#include "sched/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GBIT UINT64_C(1000000000)

enum { NODES = 64 };

static uint32_t words[6][NODES];
static uint64_t times[2][NODES];
static struct weft_tree_edge edges[2][2 * NODES];
static const struct weft_tree_scratch scratch = {.order = {words[0], words[1], words[5]},
                                                 .up_flows = words[2],
                                                 .down_flows = words[3],
                                                 .members = words[4],
                                                 .first_ns = times[0],
                                                 .last_ns = times[1]};

static struct weft_tree_plan choose(const struct weft_tree_node *nodes, uint32_t count,
                                    const struct weft_tree_options *options)
{
    struct weft_tree_plan plan = {.reduce = edges[0], .broadcast = edges[1]};
    assert_true(weft_tree_choose(nodes, count, options, &scratch, &plan));
    return plan;
}

/* Each contribution reaches the root of its tree once; afterwards all workers have the result. */
static void check_tree(const struct weft_tree_node *nodes, uint32_t count,
                       const struct weft_tree_options *options, const struct weft_tree_plan *plan)
{
    for (uint32_t t = 0; t < plan->trees; t++) {
        uint32_t sum[NODES], all = 0;
        bool sent[NODES] = {false}, has[NODES] = {false};
        for (uint32_t i = 0; i < count; i++) {
            sum[i] = nodes[i].is_merged ? 0 : nodes[i].members;
            all += sum[i];
        }
        for (uint32_t i = 0; i < plan->reduce_count; i++) {
            const struct weft_tree_edge *e = &plan->reduce[i];
            if (e->tree == t) {
                assert_false(sent[e->from] || sent[e->to] || nodes[e->from].is_merged);
                assert_int_equal(e->members, sum[e->from]);
                sent[e->from] = true;
                sum[e->to] += sum[e->from];
                assert_true(e->start_ns >= nodes[e->from].ready_ns && e->end_ns <= plan->end_ns);
            }
        }
        assert_int_equal(sum[plan->root[t]], all);
        has[plan->root[t]] = true;
        for (uint32_t i = 0; i < plan->broadcast_count; i++) {
            const struct weft_tree_edge *e = &plan->broadcast[i];
            if (e->tree == t) {
                assert_true(has[e->from] && !has[e->to]);
                has[e->to] = true;
            }
        }
        for (uint32_t i = 0; options->is_broadcast && i < count; i++) {
            assert_true(has[i]);
        }
    }
}

static void random_trees(void **state)
{
    (void)state;
    for (seed = 1; seed <= 5000; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_tree_node nodes[NODES];
        uint32_t count = 1 + (uint32_t)weft_prng_below(&prng, NODES);
        for (uint32_t i = 0; i < count; i++) {
            nodes[i] = (struct weft_tree_node){
                .ready_ns = weft_prng_below(&prng, 3) * weft_prng_below(&prng, WEFT_NS_PER_MS),
                .up_bps = weft_prng_range(&prng, GBIT / 10, GBIT),
                .down_bps = weft_prng_range(&prng, GBIT / 10, GBIT),
                .members = 1 + (uint32_t)weft_prng_below(&prng, 3),
                .is_merged = i > 0 && weft_prng_chance(&prng, 200000)};
        }
        struct weft_tree_options options = {.bytes = weft_prng_range(&prng, 1, 10000000),
                                            .chunk_bytes = 65536,
                                            .is_cut_through = weft_prng_chance(&prng, 500000),
                                            .is_broadcast = weft_prng_chance(&prng, 700000),
                                            .trees_max = 1 + (uint32_t)weft_prng_below(&prng, 2)};
        struct weft_tree_plan plan = choose(nodes, count, &options);
        check_tree(nodes, count, &options, &plan);
    }
}

static uint64_t idle_network(uint64_t bytes, bool is_cut_through, struct weft_tree_plan *plan_p)
{
    struct weft_tree_node nodes[30];
    for (uint32_t i = 0; i < 30; i++) {
        nodes[i] = (struct weft_tree_node){.up_bps = GBIT, .down_bps = GBIT, .members = 1};
    }
    struct weft_tree_options options = {.bytes = bytes,
                                        .chunk_bytes = 65536,
                                        .is_cut_through = is_cut_through,
                                        .is_broadcast = true,
                                        .trees_max = 2};
    *plan_p = choose(nodes, 30, &options);
    check_tree(nodes, 30, &options, plan_p);
    return plan_p->end_ns;
}

/* 30 equal workers, reduce and broadcast: a ring needs 2 x 29/30 of the transmission time of the
 * vector. */
static void beside_ring_and_store_and_forward(void **state)
{
    (void)state;
    const uint64_t sizes[] = {4000000, 100000000};
    for (int i = 0; i < 2; i++) {
        struct weft_tree_plan cut, whole;
        uint64_t cut_ns = idle_network(sizes[i], true, &cut);
        uint64_t whole_ns = idle_network(sizes[i], false, &whole);
        uint64_t ring_ns = weft_transfer_ns(sizes[i], GBIT) * 2 * 29 / 30;
        print_message(
            "# %llu bytes: ring 1, cut-through %.3f (%u trees, fan-out %u), whole %.3f (%u, "
            "%u)\n",
            (unsigned long long)sizes[i], (double)cut_ns / (double)ring_ns, cut.trees, cut.fanout,
            (double)whole_ns / (double)ring_ns, whole.trees, whole.fanout);
        assert_true(cut_ns * 2 <= ring_ns * 3);
        assert_true(whole_ns >= 3 * cut_ns);
    }
}

/* A slow node is a leaf, and the last one to arrive is near the root. */
static void the_slow_are_leaves(void **state)
{
    (void)state;
    struct weft_tree_node nodes[8];
    for (uint32_t i = 0; i < 8; i++) {
        nodes[i] = (struct weft_tree_node){.up_bps = GBIT, .down_bps = GBIT, .members = 1};
    }
    nodes[3].up_bps = GBIT / 10;
    nodes[5].ready_ns = 5 * WEFT_NS_PER_S;
    struct weft_tree_options options = {.bytes = 1000000, .chunk_bytes = 65536, .trees_max = 1};
    struct weft_tree_plan plan = choose(nodes, 8, &options);
    check_tree(nodes, 8, &options, &plan);
    assert_int_equal(plan.root[0], 5);
    for (uint32_t i = 0; i < plan.reduce_count; i++) {
        assert_int_not_equal(plan.reduce[i].to, 3);
    }
    nodes[5].up_bps = nodes[5].down_bps = 0;
    assert_false(weft_tree_choose(nodes, 8, &options, &scratch, &plan));
}

/* ---- rounds ---------------------------------------------------------------------------------- */

struct job {
    struct weft_planner *planner;
    uint32_t workers;
    uint64_t now_ns;
    uint64_t ask_ns[NODES]; /* time of the request; WEFT_NEVER = requested */
    uint64_t clock[NODES];
    struct weft_planner_decision transfers[4 * NODES];
    uint64_t due_ns[4 * NODES];
    uint32_t count;
    struct weft_prng prng;
};

static struct job begin(uint32_t workers, uint32_t policy)
{
    static struct weft_planner_host host[NODES];
    static uint32_t worker_host[NODES];
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    for (uint32_t i = 0; i < workers; i++) {
        host[i] = (struct weft_planner_host){GBIT, GBIT};
        worker_host[i] = i;
    }
    config.mode = WEFT_PLANNER_ALL_REDUCE;
    config.policy = policy;
    config.hosts = config.workers = workers;
    config.host = host;
    config.worker_host = worker_host;
    struct job job = {.workers = workers};
    assert_int_equal(weft_planner_new(&config, &job.planner), WEFT_OK);
    weft_prng_init(&job.prng, seed);
    return job;
}

static void poll(struct job *job)
{
    struct weft_planner_decision d;
    weft_planner_plan(job->planner, job->now_ns);
    while (weft_planner_poll(job->planner, &d)) {
        assert_true(d.kind == WEFT_PLANNER_REDUCE || d.kind == WEFT_PLANNER_BROADCAST);
        assert_true(d.to_host < job->workers && d.from_host != d.to_host && d.tree < d.trees);
        job->transfers[job->count] = d;
        job->due_ns[job->count++] = d.booking.end_ns + weft_prng_below(&job->prng, WEFT_NS_PER_MS);
    }
    for (uint32_t h = 0; h < job->workers; h++) {
        for (int up = 0; up < 2; up++) {
            const struct weft_timeline *line = weft_planner_link(job->planner, h, up);
            assert_true(weft_timeline_peak(line, job->now_ns) <= line->capacity_bps);
        }
    }
}

static bool step(struct job *job, uint64_t until_ns)
{
    uint64_t next_ns = weft_planner_deadline(job->planner);
    for (uint32_t i = 0; i < job->workers; i++) {
        next_ns = weft_min_u64(next_ns, job->ask_ns[i]);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        next_ns = weft_min_u64(next_ns, job->due_ns[i]);
    }
    if (next_ns >= until_ns) {
        return false;
    }
    job->now_ns = weft_max_u64(job->now_ns, next_ns);
    for (uint32_t i = job->count; i-- > 0;) {
        if (job->due_ns[i] <= job->now_ns) {
            uint64_t transfer = job->transfers[i].transfer;
            job->transfers[i] = job->transfers[--job->count];
            job->due_ns[i] = job->due_ns[job->count];
            assert_int_equal(weft_planner_delivered(job->planner, transfer, job->now_ns), WEFT_OK);
        }
    }
    for (uint32_t i = 0; i < job->workers; i++) {
        struct weft_planner_update update = {.worker = i, .bytes = 1000000};
        update.clock = job->clock[i];
        if (job->ask_ns[i] <= job->now_ns &&
            weft_planner_update(job->planner, &update, job->now_ns) == WEFT_OK) {
            job->clock[i]++;
            job->ask_ns[i] = WEFT_NEVER;
        } else if (job->ask_ns[i] <= job->now_ns) {
            job->ask_ns[i] = job->now_ns + WEFT_NS_PER_MS; /* still receives the last result */
        }
    }
    poll(job);
    return true;
}

static void rounds_with(uint32_t workers, uint32_t policy)
{
    struct job job = begin(workers, policy);
    for (uint64_t round = 1; round <= 4; round++) {
        for (uint32_t i = 0; i < workers; i++) {
            job.ask_ns[i] = job.now_ns + weft_prng_below(&job.prng, 30 * WEFT_NS_PER_MS);
        }
        while (step(&job, WEFT_NEVER)) {
        }
        const struct weft_planner_counters *c = weft_planner_counters(job.planner);
        assert_int_equal(c->rounds, round);
        assert_int_equal(weft_planner_version(job.planner), round);
        for (uint32_t i = 0; i < workers; i++) {
            assert_int_equal(weft_planner_commits(job.planner, i), round);
        }
    }
    weft_planner_free(job.planner);
}

static void rounds_end(void **state)
{
    (void)state;
    for (seed = 1; seed <= 300; seed++) {
        uint32_t workers = 2 + (uint32_t)(seed % 40);
        rounds_with(workers, 0);
        rounds_with(workers, WEFT_PLAN_AGGREGATE);
        rounds_with(workers, WEFT_PLAN_CUT_THROUGH);
        rounds_with(workers, WEFT_PLAN_CUT_THROUGH | WEFT_PLAN_AGGREGATE);
    }
}

/* Early contributions are summed while the last worker computes: after that, one sum is added to
 * its own, not 15 contributions. Store-and-forward; in both cases the result is returned over four
 * levels of 8 ms. */
static void early_ones_are_merged(void **state)
{
    (void)state;
    uint64_t took_ns[2];
    for (int merges = 0; merges < 2; merges++) {
        struct job job = begin(16, merges ? WEFT_PLAN_AGGREGATE : 0);
        for (uint32_t i = 0; i < 16; i++) {
            job.ask_ns[i] = i == 7 ? WEFT_NS_PER_S : 0;
        }
        while (step(&job, WEFT_NEVER)) {
        }
        took_ns[merges] = job.now_ns - WEFT_NS_PER_S;
        assert_int_equal(weft_planner_counters(job.planner)->rounds, 1);
        weft_planner_free(job.planner);
    }
    print_message("# after the last arrival: %.1f ms, with early sums %.1f ms\n",
                  (double)took_ns[0] / 1e6, (double)took_ns[1] / 1e6);
    uint64_t back_ns = 4 * weft_transfer_ns(1000000, GBIT);
    assert_true(3 * (took_ns[1] - back_ns) < 2 * (took_ns[0] - back_ns));
}

/* The remaining workers begin the round again without the one that left. */
static void a_worker_that_leaves(void **state)
{
    (void)state;
    struct job job = begin(8, WEFT_PLAN_AGGREGATE);
    for (uint32_t i = 0; i < 8; i++) {
        job.ask_ns[i] = i * WEFT_NS_PER_MS;
    }
    while (step(&job, 5 * WEFT_NS_PER_MS)) {
    }
    assert_int_equal(weft_planner_worker_left(job.planner, 2, job.now_ns), WEFT_OK);
    job.count = 0;
    job.ask_ns[2] = WEFT_NEVER;
    for (uint32_t i = 0; i < 8; i++) {
        job.ask_ns[i] = i == 2 ? WEFT_NEVER : job.now_ns + WEFT_NS_PER_MS;
    }
    while (step(&job, WEFT_NEVER)) {
    }
    assert_int_equal(weft_planner_counters(job.planner)->rounds, 1);
    assert_int_equal(weft_planner_commits(job.planner, 2), 0);
    assert_int_equal(weft_planner_commits(job.planner, 3), 1);
    assert_int_equal(weft_planner_read(job.planner, 1, 5, job.now_ns), WEFT_DATA);
    assert_int_equal(weft_planner_committed(job.planner, 1, 0, job.now_ns), WEFT_DATA);
    weft_planner_free(job.planner);
}

/* With one worker no transfer is needed: the round ends at once. */
static void one_worker_is_left(void **state)
{
    (void)state;
    struct job job = begin(3, WEFT_PLAN_AGGREGATE);
    assert_int_equal(weft_planner_worker_left(job.planner, 0, 0), WEFT_OK);
    assert_int_equal(weft_planner_worker_left(job.planner, 2, 0), WEFT_OK);
    for (uint64_t round = 0; round < 3; round++) {
        const struct weft_planner_update update = {.worker = 1, .clock = round, .bytes = 1000};
        assert_int_equal(weft_planner_update(job.planner, &update, 0), WEFT_OK);
        poll(&job);
        assert_int_equal(job.count, 0);
    }
    assert_int_equal(weft_planner_counters(job.planner)->rounds, 3);
    assert_int_equal(weft_planner_commits(job.planner, 1), 3);
    weft_planner_free(job.planner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_trees, print_seed),
        cmocka_unit_test(beside_ring_and_store_and_forward),
        cmocka_unit_test(the_slow_are_leaves),
        cmocka_unit_test_teardown(rounds_end, print_seed),
        cmocka_unit_test(early_ones_are_merged),
        cmocka_unit_test(a_worker_that_leaves),
        cmocka_unit_test(one_worker_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
