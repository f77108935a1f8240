/* The incast rounds and their grid: the ideal computed by hand, equal seeds, effects of the network
 * on the results, the cells and their limits. */
#include "sim/grid.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct weft_incast_config config_of(uint32_t senders, uint32_t rounds)
{
    struct weft_incast_config config;
    weft_incast_config_default(&config);
    config.senders = senders;
    config.rounds = rounds;
    return config;
}

static struct weft_incast_result run(const struct weft_incast_config *config)
{
    struct weft_incast_result result;
    assert_null(weft_incast_config_check(config));
    weft_incast_run(config, &result);
    if (!result.ok) {
        print_message("%s\n", result.failure);
    }
    assert_true(result.ok);
    return result;
}

/* 250,000 bytes are 177 chunks of 1,408 bytes and one of 784; 42 + 12 + 8 + 16 bytes of headers on
 * each of 178, and 28 more on the first: 263,912 bytes per message. */
static void the_ideal_is_the_wire_time_of_all_packets(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(8, 1);
    assert_int_equal(weft_incast_ideal_ns(&config), UINT64_C(263912) * 8 * 8 + 50000);
    config.shards = 2;
    assert_int_equal(weft_incast_ideal_ns(&config), UINT64_C(263912) * 16 * 8 + 50000);
    /* 10 MB: 7,102 chunks and one of 384 bytes; 40 Gbit/s is 5 bytes per nanosecond. */
    config = config_of(64, 1);
    config.message_bytes = 10000000;
    config.rate_bps = UINT64_C(40000000000);
    config.rtt_ns = 10000;
    assert_int_equal(weft_incast_ideal_ns(&config),
                     UINT64_C(64) * (10000000 + 7103 * 78 + 28) / 5 + 10000);
}

/* A link sends at its rate: no round is much faster than the ideal, which includes half a round
 * trip more than a round needs. */
static void no_round_beats_the_wire(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(8, 20);
    struct weft_incast_result result = run(&config);
    assert_int_equal(result.rounds, 20);
    assert_int_equal(result.messages, 160);
    assert_int_equal(result.delivered_ppm_mean, 1000000);
    assert_true(result.p50_ns >= result.ideal_ns - config.rtt_ns);
    assert_true(result.p50_ns <= result.p99_ns && result.p99_ns <= result.max_ns);
    assert_true(result.queue_bytes_max <= config.buffer_bytes);
    assert_true(result.goodput_bps[0] < UINT64_C(250000) * 1000000000 / 263912);
}

static void a_seed_is_a_run(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(8, 10);
    config.loss_ppm = 10000;
    struct weft_incast_result a = run(&config);
    struct weft_incast_result b = run(&config);
    assert_true(a.trace_hash == b.trace_hash);
    assert_int_equal(a.p99_ns, b.p99_ns);
    config.seed = 2;
    b = run(&config);
    assert_false(a.trace_hash == b.trace_hash);
}

/* Both kinds of loss occur at their rate; a lost chunk is missing or was resent. */
static void losses_have_their_rate(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(8, 60);
    config.loss_ppm = 50000;
    for (int burst = 0; burst < 2; burst++) {
        config.burst = burst;
        struct weft_incast_result result = run(&config);
        double share = (double)result.dropped_wire / (double)result.packets;
        print_message("burst %d: %.4f of all packets lost\n", burst, share);
        assert_true(share > (burst ? 0.04 : 0.047) && share < (burst ? 0.06 : 0.053));
        assert_true(result.retransmitted_ppm > 30000);
        assert_int_equal(result.delivered_ppm_min, 1000000);
    }
    config.burst = false;
    config.bound_ppm = 200000;
    struct weft_incast_result result = run(&config);
    /* 950,000 without retransmissions within the bound, all with complete retransmission. */
    assert_true(result.delivered_ppm_mean < 985000 && result.delivered_ppm_mean > 960000);
    assert_true(result.delivered_ppm_min >= 800000);
    assert_true(result.retransmitted_ppm > 15000 && result.retransmitted_ppm < 45000);
}

static void two_endpoints_share_one_downlink(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(4, 20);
    config.shards = 2;
    struct weft_incast_result result = run(&config);
    assert_true(result.rounds >= 21 && result.rounds <= 40);
    assert_true(result.goodput_bps[0] + result.goodput_bps[1] < UINT64_C(1000000000));
    assert_true(result.goodput_bps[0] > 0 && result.goodput_bps[1] > 0);
    double a = (double)result.goodput_bps[0];
    double b = (double)result.goodput_bps[1];
    double jain = (a + b) * (a + b) / (2 * (a * a + b * b));
    assert_true((double)result.jain_ppm / 1e6 > jain - 0.001);
    assert_true((double)result.jain_ppm / 1e6 < jain + 0.001);
}

/* 2 networks x 4 senders x 3 buffers x 6 losses x 2 bounds, and 2 x 3 fair ones. */
static void the_grid_is_whole(void **state)
{
    (void)state;
    static struct weft_grid_cell cells[WEFT_GRID_CELLS_MAX];
    struct weft_grid_config config = {.slow_network = true, .fast_network = true, .seed = 1};
    uint32_t count = weft_grid_cells(&config, cells);
    uint32_t limited = 0;
    assert_int_equal(count, 2 * 4 * 3 * 6 * 2 + 2 * 3);
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_grid_cell *cell = &cells[i];
        assert_null(weft_incast_config_check(&cell->config));
        assert_int_equal(cell->config.rounds, 500);
        limited += cell->p99_ppm_max > 0;
        assert_false(cell->config.burst && cell->p99_ppm_max > 0);
    }
    /* Bound 10 %: five losses. Bound 0: three. */
    assert_int_equal(limited, 2 * 4 * 3 * (5 + 3));
}

/* The thin grid has every (network, senders, loss, bound) with a limit, and every buffer. */
static void the_thin_grid_has_a_cell_for_each_limit(void **state)
{
    (void)state;
    static struct weft_grid_cell cells[WEFT_GRID_CELLS_MAX];
    static struct weft_grid_cell thin[WEFT_GRID_CELLS_MAX];
    struct weft_grid_config config = {.slow_network = true, .fast_network = true, .seed = 1};
    uint32_t count = weft_grid_cells(&config, cells);
    config.thin = true;
    uint32_t thin_count = weft_grid_cells(&config, thin);
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_incast_config *c = &cells[i].config;
        bool found = cells[i].p99_ppm_max == 0;
        for (uint32_t j = 0; j < thin_count && !found; j++) {
            const struct weft_incast_config *t = &thin[j].config;
            found = t->senders == c->senders && t->shards == c->shards &&
                    t->rate_bps == c->rate_bps && t->loss_ppm == c->loss_ppm &&
                    t->burst == c->burst && t->bound_ppm == c->bound_ppm &&
                    thin[j].p99_ppm_max == cells[i].p99_ppm_max;
        }
        assert_true(found);
    }
    for (uint64_t buffer = 64000; buffer <= 450000; buffer += buffer == 64000 ? 64000 : 322000) {
        uint32_t with = 0;
        for (uint32_t j = 0; j < thin_count; j++) {
            with += thin[j].config.buffer_bytes == buffer && thin[j].p99_ppm_max > 0;
        }
        assert_true(with > thin_count / 5);
    }
}

static void cells_are_judged_by_their_limits(void **state)
{
    (void)state;
    struct weft_grid_cell cell = {.p99_ppm_max = 1100000};
    struct weft_incast_result result = {.ok = true, .ideal_ns = 1000, .p99_ns = 1100};
    assert_null(weft_grid_verdict(&cell, &result));
    result.p99_ns = 1101;
    assert_string_equal(weft_grid_verdict(&cell, &result), "p99");
    cell.p99_ppm_max = 0;
    assert_null(weft_grid_verdict(&cell, &result));
    cell.jain_ppm_min = 950000;
    result.jain_ppm = 949999;
    assert_string_equal(weft_grid_verdict(&cell, &result), "unfair");
    result.jain_ppm = 950000;
    result.dropped_full = 1;
    assert_null(weft_grid_verdict(&cell, &result));
    cell.no_drops = true;
    assert_string_equal(weft_grid_verdict(&cell, &result), "drops");
    result.ok = false;
    assert_string_equal(weft_grid_verdict(&cell, &result), "failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ideal_is_the_wire_time_of_all_packets),
        cmocka_unit_test(no_round_beats_the_wire),
        cmocka_unit_test(a_seed_is_a_run),
        cmocka_unit_test(losses_have_their_rate),
        cmocka_unit_test(two_endpoints_share_one_downlink),
        cmocka_unit_test(the_grid_is_whole),
        cmocka_unit_test(the_thin_grid_has_a_cell_for_each_limit),
        cmocka_unit_test(cells_are_judged_by_their_limits),
    };
    return cmocka_run_group_tests_name("sim_incast", tests, NULL, NULL);
}
