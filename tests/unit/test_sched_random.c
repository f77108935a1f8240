/* 100,000 random jobs: mode, policy, network, sizes, jitter and trouble are drawn from the seed. At every
 * step no link is over-reserved, no commit is later than tau_max, no replica further than div_max, delays
 * are conserved, and the job goes on (sched_rig.h). */
#include "sched_rig.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CASES = 4000 };
#else
enum { CASES = 100000 };
#endif
enum { STEPS = 30 };

static uint64_t seed;
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
        rig.aggregator_host[0] = 0; /* a worker's */
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
    if (c->mode == WEFT_PLANNER_SYNC) {
        rig.setting.norm_max = 1; /* nothing is dropped there */
    }
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
    /* Everything that is promised was also tried. */
    assert_true(total.commits > 4 * CASES && total.grouped > CASES / 20 &&
                total.reads_granted > CASES);
    assert_true(total.dropped_late > 0 && total.dropped_crowded > 0 && total.dropped_hold > 0 &&
                total.dropped_divergence > 0 && total.promoted > 0 && total.slow_first > 0 &&
                total.held > 0 && total.held_divergence > 0 && total.replications > 0 &&
                total.overdue > 0);
}

static int print_seed(void **state)
{
    (void)state;
    print_message(
        "# last seed %llu; commits %llu, grouped %llu, late %llu, crowded %llu, hold %llu, "
        "divergence %llu, promoted %llu, held %llu, replications %llu, full %llu\n",
        (unsigned long long)seed, (unsigned long long)total.commits,
        (unsigned long long)total.grouped, (unsigned long long)total.dropped_late,
        (unsigned long long)total.dropped_crowded, (unsigned long long)total.dropped_hold,
        (unsigned long long)total.dropped_divergence, (unsigned long long)total.promoted,
        (unsigned long long)total.held, (unsigned long long)total.replications,
        (unsigned long long)total.full);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_jobs, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
