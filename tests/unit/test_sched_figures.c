/* Figures 5 and 6 of [mlfabric] (4 is in test_sched_timeline.c), and brute force for n <= 7: every
 * order, and every order with every partition into groups. On one shared link the planner's mean
 * completion time is optimal; on general networks the test prints its distance from the optimum. */
#include "sched/partition.h"

#include "print_seed.h"
#include "sched_rig.h"

enum { N_MAX = 7 };

#define MBYTE UINT64_C(1000000)

static struct rig rig;

static void ask(uint32_t worker, uint64_t bytes, uint64_t base_version)
{
    struct weft_planner_update update = {.worker = worker,
                                         .clock = rig.workers[worker].clock++,
                                         .bytes = bytes,
                                         .base_version = base_version};
    assert_int_equal(weft_planner_update(rig.planner, &update, rig.now_ns), WEFT_OK);
}

static void make_planner(void)
{
    assert_int_equal(weft_planner_new(&rig.config, &rig.planner), WEFT_OK);
}

/* ---- Fig. 5 ---------------------------------------------------------------------------------- */

/* Worker 0 has an uplink of 10 Mbit/s: its 12.5 MB need 10 s, those of the others 0.1 s. Three
 * updates are committed after its base version, and tau_max is 3, so it must be next. Returns the
 * arrival of the last of the other three. */
static uint64_t figure_5_with(uint32_t drops_max, bool *dropped_p)
{
    rig_hosts(&rig, 4, 1, 0, GBIT);
    rig.host[0].up_bps = GBIT / 100;
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND;
    rig.config.tau_max = 3;
    rig.config.drops_max = drops_max;
    rig.config.floor_ppm = 0;
    make_planner();
    struct weft_planner_decision d;
    for (uint32_t w = 1; w < 4; w++) {
        ask(w, 1, 0);
        weft_planner_plan(rig.planner, 0);
        assert_true(weft_planner_poll(rig.planner, &d));
        assert_int_equal(weft_planner_delivered(rig.planner, d.transfer, 0), WEFT_OK);
        assert_int_equal(weft_planner_committed(rig.planner, w, -1, 0), WEFT_OK);
    }
    ask(0, 12500000, 0);
    uint64_t end_ns = 0, now_ns = 0;
    for (uint32_t w = 1; w < 4; w++) {
        ask(w, 12500000, 3);
    }
    *dropped_p = false;
    for (uint32_t grants = 0; grants < (*dropped_p ? 3U : 4U);) {
        weft_planner_plan(rig.planner, now_ns);
        while (weft_planner_poll(rig.planner, &d)) {
            if (d.kind == WEFT_PLANNER_DROP) {
                assert_int_equal(d.worker, 0);
                assert_int_equal(d.drop, WEFT_PLANNER_DROP_BLOCKING);
                *dropped_p = true;
                continue;
            }
            grants++;
            end_ns = weft_max_u64(end_ns, d.booking.end_ns);
            if (d.worker == 0) {
                /* No other worker may be granted before its commit. */
                assert_int_equal(d.booking.end_ns - d.booking.start_ns, 10 * WEFT_NS_PER_S);
                weft_planner_plan(rig.planner, now_ns);
                assert_int_equal(weft_planner_counters(rig.planner)->granted, 4);
                now_ns = d.booking.end_ns;
                assert_int_equal(weft_planner_delivered(rig.planner, d.transfer, now_ns), WEFT_OK);
                assert_int_equal(weft_planner_committed(rig.planner, 0, -1, now_ns), WEFT_OK);
            }
        }
    }
    weft_planner_free(rig.planner);
    return end_ns;
}

static void figure_5(void **state)
{
    (void)state;
    bool dropped;
    assert_int_equal(figure_5_with(2, &dropped), 3 * WEFT_NS_PER_S / 10);
    assert_true(dropped);
    /* The delay that dropping it avoids. */
    assert_int_equal(figure_5_with(0, &dropped), 103 * WEFT_NS_PER_S / 10);
    assert_false(dropped);
}

/* ---- Fig. 6 ---------------------------------------------------------------------------------- */

/* u1-u3 are sent directly; u4 and u5 are summed meanwhile. u6 is not part of the sum, because u4-u6
 * would reach the aggregator later than u1-u3 the server. */
static void figure_6(void **state)
{
    (void)state;
    const uint64_t mbytes[6] = {10, 10, 10, 12, 14, 16};
    rig_hosts(&rig, 6, 1, 2, 8 * GBIT); /* 1 MB per ms */
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE;
    make_planner();
    for (uint32_t w = 0; w < 6; w++) {
        ask(w, mbytes[w] * MBYTE, 0);
    }
    planner_partition_prepare(rig.planner);
    assert_true(planner_partition_try(rig.planner, 3, false));
    const struct planner_partition *p = rig.planner->partition;
    assert_int_equal(p->trial.groups, 1);
    assert_int_equal(p->trial.group[0].first, 3);
    assert_int_equal(p->trial.group[0].count, 2);
    for (uint32_t w = 0; w < 6; w++) {
        assert_int_equal(p->order[w], w);
    }
    /* u1-u3 until 30, the sum of u4 and u5 (14 MB) until 44, u6 until 60. */
    assert_int_equal(p->trial.makespan_ns, 60 * WEFT_NS_PER_MS);
    assert_int_equal(p->trial.sum_ns, (10 + 20 + 30 + 44 + 44 + 60) * WEFT_NS_PER_MS);
    weft_planner_free(rig.planner);
}

/* A group from start to end: members to the aggregator, then the sum to the server. */
static void a_group_is_granted(void **state)
{
    (void)state;
    for (int cut_through = 0; cut_through < 2; cut_through++) {
        rig_hosts(&rig, 6, 1, 2, 8 * GBIT);
        rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE;
        rig.config.policy |= cut_through ? WEFT_PLAN_CUT_THROUGH : 0;
        rig.setting.compute_ns_min = rig.setting.compute_ns_max = WEFT_NS_PER_S;
        rig.setting.bytes_min = rig.setting.bytes_max = 10 * MBYTE;
        rig.setting.has_reads = false;
        rig_begin(&rig);
        while (rig.now_ns < 2 * WEFT_NS_PER_S) {
            rig_step(&rig);
        }
        const struct weft_planner_counters *c = weft_planner_counters(rig.planner);
        assert_int_equal(c->commits, 6);
        assert_true(c->groups >= 1 && c->grouped >= 2);
        rig_end(&rig);
    }
}

/* ---- brute force over orders ----------------------------------------------------------------- */

/* The network of a case, for the oracle: uplinks, the server's link, two aggregators. */
struct net {
    uint32_t n;
    uint64_t bytes[N_MAX];
    struct weft_timeline up[N_MAX];
    struct weft_timeline server;
    struct weft_timeline in[2];
    struct weft_timeline out[2];
};

static uint64_t send(struct weft_timeline *a, struct weft_timeline *b, uint64_t bytes,
                     uint64_t from_ns)
{
    struct weft_path path = {.count = 2, .links = {a, b}};
    struct weft_booking booking;
    assert_true(weft_path_fit(&path, bytes, from_ns, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_true(weft_path_reserve(&path, &booking));
    return booking.end_ns;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Next permutation in lexicographic order; false after the last. */
static bool next_permutation(uint32_t *order, uint32_t n)
{
    uint32_t i = n - 1, j = n - 1;
    while (i > 0 && order[i - 1] > order[i]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    while (order[j] < order[i - 1]) {
        j--;
    }
    swap(&order[i - 1], &order[j]);
    for (j = n - 1; i < j; i++, j--) {
        swap(&order[i], &order[j]);
    }
    return true;
}

static uint64_t least_sum(const struct net *net)
{
    uint32_t order[N_MAX];
    uint64_t least_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < net->n; i++) {
        order[i] = i;
    }
    do {
        static struct net work;
        work = *net;
        uint64_t sum_ns = 0;
        for (uint32_t i = 0; i < net->n && sum_ns < least_ns; i++) {
            uint32_t w = order[i];
            sum_ns += send(&work.up[w], &work.server, work.bytes[w], 0);
        }
        least_ns = weft_min_u64(least_ns, sum_ns);
    } while (next_permutation(order, net->n));
    return least_ns;
}

/* n workers; is_shared: the server's link is the only bottleneck. */
static struct net draw(uint32_t n, bool is_shared, bool is_equal, enum weft_planner_mode mode,
                       uint32_t policy, uint32_t aggregators)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct net net = {.n = n};
    rig_hosts(&rig, n, 1, aggregators, GBIT);
    rig.config.mode = mode;
    rig.config.policy = policy;
    rig.config.ahead = WEFT_PLANNER_AHEAD_MAX;
    rig.config.tie_ppm = 0;
    rig.config.floor_ppm = 0;
    weft_timeline_init(&net.server, GBIT);
    for (uint32_t a = 0; a < 2; a++) {
        weft_timeline_init(&net.in[a], GBIT);
        weft_timeline_init(&net.out[a], GBIT);
    }
    for (uint32_t i = 0; i < n; i++) {
        net.bytes[i] = is_equal ? 1000000 : weft_prng_range(&prng, 1, 1000000);
        rig.host[i].up_bps = is_shared ? GBIT : weft_prng_range(&prng, GBIT / 20, GBIT);
        weft_timeline_init(&net.up[i], rig.host[i].up_bps);
    }
    make_planner();
    for (uint32_t i = 0; i < n; i++) {
        ask(i, net.bytes[i], 0);
    }
    return net;
}

static uint64_t planned_sum(uint32_t n)
{
    struct weft_planner_decision d;
    uint64_t sum_ns = 0;
    weft_planner_plan(rig.planner, 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(weft_planner_poll(rig.planner, &d));
        sum_ns += d.booking.end_ns;
    }
    weft_planner_free(rig.planner);
    return sum_ns;
}

static void orders_on_one_shared_link(void **state)
{
    (void)state;
    for (seed = 1; seed <= 300; seed++) {
        uint32_t n = 1 + (uint32_t)(seed % (seed % 20 == 0 ? 7 : 6));
        struct net net = draw(n, true, false, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER, 0);
        assert_int_equal(planned_sum(n), least_sum(&net));
    }
}

static void orders_on_general_networks(void **state)
{
    (void)state;
    double ratio_sum = 0, ratio_max = 0;
    uint32_t cases = 0, equal = 0;
    for (seed = 1; seed <= 400; seed++) {
        uint32_t n = seed % 20 == 0 ? 7 : 2 + (uint32_t)(seed % 5);
        struct net net = draw(n, false, false, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER, 0);
        uint64_t planned_ns = planned_sum(n), least_ns = least_sum(&net);
        assert_true(planned_ns >= least_ns);
        double ratio = (double)planned_ns / (double)least_ns;
        ratio_sum += ratio;
        ratio_max = ratio > ratio_max ? ratio : ratio_max;
        equal += planned_ns == least_ns;
        cases++;
    }
    print_message(
        "# orders, n 2-7, uplinks 0.05-1 of the server's link: %u of %u cases optimal, mean "
        "completion %.4f of the least, at worst %.4f\n",
        equal, cases, ratio_sum / cases, ratio_max);
    /* current values; must not get worse */
    assert_true(ratio_sum / cases < 1.06 && ratio_max < 1.25);
}

/* ---- brute force over orders and partitions -------------------------------------------------- */

/* Bit i of cuts: update i begins a part. A part of one update is sent directly, others through an
 * aggregator, at most two of them. Returns the makespan, WEFT_NEVER for too many groups. */
static uint64_t makespan(const struct net *net, const uint32_t *order, uint32_t cuts,
                         uint64_t *sum_p)
{
    static struct net work;
    work = *net;
    uint64_t end_ns = 0, part_ns;
    uint32_t groups = 0;
    *sum_p = 0;
    for (uint32_t i = 0, count; i < net->n; i += count) {
        for (count = 1; i + count < net->n && (cuts >> (i + count) & 1) == 0; count++) {
        }
        if (count == 1) {
            part_ns = send(&work.up[order[i]], &work.server, work.bytes[order[i]], 0);
        } else if (groups == 2) {
            return WEFT_NEVER;
        } else {
            uint64_t ready_ns = 0, largest = 0;
            for (uint32_t j = i; j < i + count; j++) {
                uint64_t bytes = work.bytes[order[j]];
                uint64_t at_ns = send(&work.up[order[j]], &work.in[groups], bytes, 0);
                ready_ns = weft_max_u64(ready_ns, at_ns);
                largest = weft_max_u64(largest, bytes);
            }
            part_ns = send(&work.out[groups], &work.server, largest, ready_ns);
            groups++;
        }
        *sum_p += count * part_ns;
        end_ns = weft_max_u64(end_ns, part_ns);
    }
    return end_ns;
}

static uint64_t least_makespan(const struct net *net)
{
    uint32_t order[N_MAX];
    uint64_t least_ns = WEFT_NEVER, sum_ns;
    for (uint32_t i = 0; i < net->n; i++) {
        order[i] = i;
    }
    do {
        for (uint32_t cuts = 0; cuts < 1U << (net->n - 1); cuts++) {
            least_ns = weft_min_u64(least_ns, makespan(net, order, cuts << 1, &sum_ns));
        }
    } while (next_permutation(order, net->n));
    return least_ns;
}

/* Distance of the planner's partition, and of sending all directly, from the best order and
 * partition. */
static void partitions_with(const char *what, enum weft_planner_mode mode, bool is_shared,
                            bool is_equal, double worst_allowed)
{
    double ratio_sum = 0, ratio_max = 0, direct_sum = 0;
    uint32_t equal = 0;
    const uint64_t cases = 60;
    for (seed = 1; seed <= cases; seed++) {
        uint32_t n = seed == cases ? 7 : seed % 10 == 0 ? 6 : 3 + (uint32_t)(seed % 3);
        struct net net =
            draw(n, is_shared, is_equal, mode, WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE, 2);
        planner_partition_prepare(rig.planner);
        struct planner_partition *p = rig.planner->partition;
        bool waits;
        const uint32_t direct = planner_partition_best(rig.planner, &waits);
        assert_true(planner_partition_try(rig.planner, direct, waits));
        uint64_t planned_ns = p->trial.makespan_ns, least_ns = least_makespan(&net), sum_ns;
        direct_sum += (double)makespan(&net, p->order, UINT32_MAX, &sum_ns) / (double)least_ns;
        weft_planner_free(rig.planner);
        assert_true(planned_ns >= least_ns);
        double ratio = (double)planned_ns / (double)least_ns;
        ratio_sum += ratio;
        ratio_max = ratio > ratio_max ? ratio : ratio_max;
        equal += planned_ns == least_ns;
    }
    print_message(
        "# partitions, n 3-7, %s: %u of 60 optimal, makespan %.3f of the least, at worst %.3f; "
        "all direct %.3f\n",
        what, equal, ratio_sum / 60, ratio_max, direct_sum / 60);
    assert_true(ratio_sum <= direct_sum && ratio_max < worst_allowed);
}

static void partitions(void **state)
{
    (void)state;
    /* The limits are the measured values; they must not get worse. */
    partitions_with("equal sizes, one shared link", WEFT_PLANNER_ASYNC, true, true, 1.000001);
    partitions_with("one shared link", WEFT_PLANNER_ASYNC, true, false, 1.16);
    partitions_with("general networks", WEFT_PLANNER_ASYNC, false, false, 1.44);
    partitions_with("SYNC, one shared link", WEFT_PLANNER_SYNC, true, false, 1.25);
    partitions_with("SYNC, general networks", WEFT_PLANNER_SYNC, false, false, 1.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figure_5),
        cmocka_unit_test(figure_6),
        cmocka_unit_test(a_group_is_granted),
        cmocka_unit_test_teardown(orders_on_one_shared_link, print_seed),
        cmocka_unit_test_teardown(orders_on_general_networks, print_seed),
        cmocka_unit_test_teardown(partitions, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
