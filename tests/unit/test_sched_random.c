/* 100,000 random jobs: mode, policy, network, sizes, jitter and trouble are drawn from the seed. At
 * every step no link is over-reserved, no commit exceeds tau_max, no replica exceeds div_max,
 * delays are conserved, and the job makes progress (sched_rig.h). Also 25,000 floods of
 * contradictory reports: no invariant breaks, and every bound that can be met is met. */
#include "print_seed.h"
#include "sched_rig.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CASES = 4000 };
#else
enum { CASES = 100000 };
#endif
enum { STEPS = 30 };

static struct weft_planner_counters total;
static struct rig rig;

static void draw(struct weft_prng *prng)
{
    uint32_t workers = 1 + (uint32_t)weft_prng_below(prng, 9);
    uint32_t servers = 1 + (uint32_t)weft_prng_below(prng, 3);
    uint32_t aggregators = (uint32_t)weft_prng_below(prng, 3);
    rig_hosts(&rig, workers, servers, aggregators, GBIT);
    for (uint32_t h = 0; h < rig.config.hosts; h++) {
        if (weft_prng_chance(prng, 300000)) {
            rig.host[h].up_bps = weft_prng_range(prng, GBIT / 20, GBIT);
            rig.host[h].down_bps = weft_prng_range(prng, GBIT / 20, GBIT);
        }
    }
    if (aggregators > 0 && weft_prng_chance(prng, 300000)) {
        rig.aggregator_host[0] = 0; /* on a worker's host */
    }
    struct weft_planner_config *c = &rig.config;
    c->mode = (enum weft_planner_mode)weft_prng_below(prng, WEFT_PLANNER_ALL_REDUCE);
    c->policy = (uint32_t)weft_prng_below(prng, 64);
    c->ahead = 1 + (uint32_t)weft_prng_below(prng, 4);
    c->tau_max = weft_prng_below(prng, 2 * workers + 1);
    c->read_credits = 1 + (uint32_t)weft_prng_below(prng, workers);
    c->age_ns = weft_prng_chance(prng, 500000) ? WEFT_NEVER : WEFT_NS_PER_MS;
    c->hold_max = (uint32_t)weft_prng_below(prng, 4);
    c->drops_max = (uint32_t)weft_prng_below(prng, 4);
    c->aggregate_ppm = weft_prng_chance(prng, 500000) ? 0 : 300000;
    c->div_max = 2;
    c->step_size = 0.5;
    c->momentum = weft_prng_chance(prng, 500000) ? 0 : 0.5;
    rig.setting = (struct rig_setting){.seed = weft_prng_u64(prng),
                                       .compute_ns_min = 0,
                                       .compute_ns_max = weft_prng_below(prng, 20 * WEFT_NS_PER_MS),
                                       .bytes_min = weft_prng_range(prng, 1, 1000000),
                                       .norm_max = weft_prng_chance(prng, 900000) ? 1 : 3,
                                       .jitter_ppm = weft_prng_chance(prng, 500000) ? 0 : 400000,
                                       .trouble_ppm = weft_prng_chance(prng, 700000) ? 0 : 150000,
                                       .has_reads = weft_prng_chance(prng, 700000)};
    rig.setting.bytes_max = weft_prng_range(prng, rig.setting.bytes_min, 1000000);
}

static void one_case(void)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    draw(&prng);
    rig_begin(&rig);
    for (int step = 0; step < STEPS; step++) {
        rig_step(&rig);
    }
    const struct weft_planner_counters *c = weft_planner_counters(rig.planner);
    assert_int_equal(c->refused_unknown + c->refused_range + c->refused_norm + c->refused_version +
                         c->refused_twice,
                     0);
    for (size_t i = 0; i < sizeof(total) / sizeof(uint64_t); i++) {
        ((uint64_t *)&total)[i] += ((const uint64_t *)c)[i];
    }
    rig_end(&rig);
}

static void random_jobs(void **state)
{
    (void)state;
    for (seed = 1; seed <= CASES; seed++) {
        one_case();
    }
    /* Check that every case has occurred. */
    assert_true(total.commits > 4 * CASES && total.grouped > CASES / 20 &&
                total.reads_granted > CASES);
    assert_true(total.dropped_late > 0 && total.dropped_crowded > 0 && total.dropped_blocking > 0 &&
                total.dropped_divergence > 0 && total.promoted > 0 && total.slow_first > 0 &&
                total.held > 0 && total.held_divergence > 0 && total.replications > 0 &&
                total.overdue > 0);
}

/* ---- any report at any time ------------------------------------------------------------------ */

static uint32_t some_worker(struct weft_prng *prng)
{
    return (uint32_t)weft_prng_below(prng, rig.config.workers + 1); /* one beyond the last */
}

/* Reports that may contradict each other: each is refused, or accepted and used for planning. */
static void any_report(struct weft_prng *prng, const uint64_t *transfers, uint32_t count)
{
    static const double norms[] = {0, 0.5, 1, 7, -1, 1e300};
    struct weft_planner *p = rig.planner;
    struct weft_planner_update update = {.worker = some_worker(prng),
                                         .clock = weft_prng_below(prng, 5),
                                         .bytes = weft_prng_below(prng, 1000000),
                                         .base_version =
                                             weft_planner_version(p) + weft_prng_below(prng, 3),
                                         .norm = norms[weft_prng_below(prng, 6)]};
    uint64_t transfer = count == 0 ? 0 : transfers[weft_prng_below(prng, count)];
    uint64_t at_ns = rig.now_ns;
    weft_status status = WEFT_OK;
    switch (weft_prng_below(prng, 11)) {
    case 0:
    case 1:
        status = weft_planner_update(p, &update, at_ns);
        break;
    case 2:
        status = weft_planner_read(p, update.worker, update.bytes, at_ns);
        break;
    case 3:
        status = weft_planner_delivered(p, transfer, at_ns);
        break;
    case 4:
        status = weft_prng_chance(prng, 500000)
                     ? weft_planner_delivered(p, transfer, at_ns)
                     : weft_planner_sum_arrived(p, update.worker,
                                                (uint32_t)weft_prng_below(prng, 3), at_ns);
        break;
    case 5:
    case 6:
        status = weft_planner_committed(p, update.worker, update.norm, at_ns);
        break;
    case 7:
        status = weft_prng_chance(prng, 500000)
                     ? weft_planner_worker_left(p, update.worker, at_ns)
                     : weft_planner_aggregator(p, (uint32_t)weft_prng_below(prng, 3),
                                               weft_prng_chance(prng, 600000), at_ns);
        break;
    case 8:
        status = weft_planner_read_at(p, update.worker, update.clock, update.bytes, at_ns);
        break;
    case 9:
        status = weft_prng_chance(prng, 500000)
                     ? weft_planner_has_read(p, update.worker, update.clock, at_ns)
                     : weft_planner_read_over(p, update.worker, at_ns);
        break;
    default:
        status = weft_planner_capacity(
            p, (uint32_t)weft_prng_below(prng, rig.config.hosts + 1),
            weft_prng_chance(prng, 500000),
            weft_prng_chance(prng, 200000) ? 0 : weft_prng_below(prng, 2 * GBIT), at_ns);
        break;
    }
    assert_true(status == WEFT_OK || status == WEFT_DATA);
}

static void one_flood(void)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    draw(&prng);
    if (weft_prng_chance(&prng, 200000) && rig.config.workers > 1) {
        rig.config.mode = WEFT_PLANNER_ALL_REDUCE;
        rig.config.servers = 0;
        rig.config.server_host = NULL;
        rig.config.policy &= ~(uint32_t)WEFT_PLAN_REPLICATE;
    }
    uint64_t transfers[64];
    uint32_t count = 0;
    assert_int_equal(weft_planner_new(&rig.config, &rig.planner), WEFT_OK);
    for (int i = 0; i < 80; i++) {
        rig.now_ns += weft_prng_below(&prng, 5 * WEFT_NS_PER_MS);
        any_report(&prng, transfers, count);
        weft_planner_plan(rig.planner, rig.now_ns);
        rig_check_links(&rig);
        struct weft_planner_decision d;
        while (weft_planner_poll(rig.planner, &d)) {
            transfers[count < 64 ? count++ : weft_prng_below(&prng, 64)] = d.transfer;
        }
    }
    assert_true(weft_planner_counters(rig.planner)->delay_max <= rig.config.tau_max ||
                (rig.config.policy & WEFT_PLAN_BOUND) == 0 || rig.config.mode == WEFT_PLANNER_SYNC);
    weft_planner_free(rig.planner);
}

static void any_reports(void **state)
{
    (void)state;
    for (seed = 1; seed <= CASES / 4; seed++) {
        one_flood();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_jobs, print_seed),
        cmocka_unit_test_teardown(any_reports, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
