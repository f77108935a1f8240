/* The fluid model compared with cases computed by hand, and its rates with the definition of
 * max-min fairness. */
#include "base/prng.h"
#include "sim/fluid.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t mbit = 1000000;
static const uint32_t megabyte = 1000000;

/* Links 0 .. 3 are uplinks, 4 .. 7 downlinks, all of 1 Gbit/s unless a test changes them. */
enum { DOWN = 4, LINKS = 8 };

static struct weft_fluid *fluid_new(void)
{
    struct weft_fluid *f = weft_fluid_new(LINKS);
    for (uint32_t l = 0; l < LINKS; l++) {
        weft_fluid_set_capacity(f, l, 1000 * mbit);
    }
    return f;
}

static uint32_t start(struct weft_fluid *f, uint32_t up, uint32_t down, uint64_t bytes)
{
    struct weft_fluid_flow flow = {.up = up,
                                   .down = DOWN + down,
                                   .bytes = bytes,
                                   .limit_bps = WEFT_FLUID_NO_LIMIT,
                                   .user = up};
    return weft_fluid_start(f, &flow, bytes);
}

/* Run to the next event, which must have this time and user. */
static struct weft_fluid_event expect_at(struct weft_fluid *f, uint64_t ns, uint64_t user)
{
    struct weft_fluid_event event;
    while (!weft_fluid_poll(f, &event)) {
        assert_true(weft_fluid_next_ns(f) <= ns);
        weft_fluid_advance(f, weft_fluid_next_ns(f));
    }
    assert_true(weft_fluid_next_ns(f) >= ns);
    assert_int_equal(event.user, user);
    return event;
}

/* 1 MB and 3 MB into one link of 8 Mbit/s: half each until 2 s, then 2 MB at the full rate. */
static void two_flows_share_a_link(void **state)
{
    (void)state;
    struct weft_fluid *f = fluid_new();
    weft_fluid_set_capacity(f, DOWN, 8 * mbit);
    uint32_t small = start(f, 0, 0, megabyte);
    uint32_t large = start(f, 1, 0, 3 * megabyte);
    assert_int_equal(weft_fluid_rate(f, small), 4 * mbit);
    assert_int_equal(weft_fluid_rate(f, large), 4 * mbit);
    assert_int_equal(weft_fluid_next_ns(f), 2 * WEFT_NS_PER_S);
    assert_true(expect_at(f, 2 * WEFT_NS_PER_S, 0).finished);
    assert_int_equal(weft_fluid_rate(f, large), 8 * mbit);
    assert_int_equal(weft_fluid_left(f, large), 2 * megabyte);
    assert_int_equal(weft_fluid_next_ns(f), 4 * WEFT_NS_PER_S);
    assert_true(expect_at(f, 4 * WEFT_NS_PER_S, 1).finished);
    assert_true(weft_fluid_carried(f, DOWN) == weft_fluid_offered(f, DOWN));
    weft_fluid_free(f);
}

/* Uplink 0 has rate 10 and carries a and b; downlink 1 has rate 4 and carries b and c. Then b and c
 * get 2, a gets 8. */
static void three_flows_are_max_min(void **state)
{
    (void)state;
    struct weft_fluid *f = fluid_new();
    weft_fluid_set_capacity(f, 0, 10 * mbit);
    weft_fluid_set_capacity(f, DOWN + 1, 4 * mbit);
    uint32_t a = start(f, 0, 0, megabyte);
    uint32_t b = start(f, 0, 1, megabyte);
    uint32_t c = start(f, 1, 1, megabyte);
    assert_int_equal(weft_fluid_rate(f, a), 8 * mbit);
    assert_int_equal(weft_fluid_rate(f, b), 2 * mbit);
    assert_int_equal(weft_fluid_rate(f, c), 2 * mbit);
    /* With c limited to 1, b gets 3 of the downlink, and a the rest of the uplink. */
    weft_fluid_limit(f, c, 1 * mbit, 0);
    assert_int_equal(weft_fluid_rate(f, a), 7 * mbit);
    assert_int_equal(weft_fluid_rate(f, b), 3 * mbit);
    assert_int_equal(weft_fluid_rate(f, c), 1 * mbit);
    weft_fluid_free(f);
}

/* 1 MB at 8 Mbit/s; after half a second the link has 2 Mbit/s for a second, then 0 for a second,
 * then 8: 0.5 s x 8 + 1 x 2 + 0 x 1 + 0.25 x 8 = 8 Mbit. */
static void capacity_steps(void **state)
{
    (void)state;
    struct weft_fluid *f = fluid_new();
    const uint64_t ms = WEFT_NS_PER_MS;
    weft_fluid_set_capacity(f, 2, 8 * mbit);
    (void)start(f, 2, 0, megabyte);
    weft_fluid_advance(f, 500 * ms);
    weft_fluid_set_capacity(f, 2, 2 * mbit);
    weft_fluid_advance(f, 1500 * ms);
    weft_fluid_set_capacity(f, 2, 0);
    assert_true(weft_fluid_next_ns(f) == WEFT_NEVER);
    weft_fluid_advance(f, 2500 * ms);
    weft_fluid_set_capacity(f, 2, 8 * mbit);
    assert_int_equal(weft_fluid_next_ns(f), 2750 * ms);
    assert_true(expect_at(f, 2750 * ms, 2).finished);
    assert_true(weft_fluid_carried(f, 2) == weft_fluid_offered(f, 2));
    weft_fluid_free(f);
}

/* The first grants keep their rates when the link shrinks; flows without a grant share the
 * remainder. */
static void grants_come_first_in_their_order(void **state)
{
    (void)state;
    struct weft_fluid *f = fluid_new();
    weft_fluid_set_capacity(f, DOWN, 10 * mbit);
    uint32_t second = start(f, 0, 0, megabyte);
    uint32_t first = start(f, 1, 0, megabyte);
    uint32_t other = start(f, 2, 0, megabyte);
    weft_fluid_limit(f, second, 3 * mbit, 2);
    weft_fluid_limit(f, first, 6 * mbit, 1);
    assert_int_equal(weft_fluid_rate(f, first), 6 * mbit);
    assert_int_equal(weft_fluid_rate(f, second), 3 * mbit);
    assert_int_equal(weft_fluid_rate(f, other), 1 * mbit);
    weft_fluid_set_capacity(f, DOWN, 7 * mbit);
    assert_int_equal(weft_fluid_rate(f, first), 6 * mbit);
    assert_int_equal(weft_fluid_rate(f, second), 1 * mbit);
    assert_int_equal(weft_fluid_rate(f, other), 0);
    weft_fluid_stop(f, first);
    assert_int_equal(weft_fluid_rate(f, second), 3 * mbit);
    assert_int_equal(weft_fluid_rate(f, other), 4 * mbit);
    weft_fluid_free(f);
}

/* 1 MB in chunks of 0.4 MB at 8 Mbit/s: 0.4, 0.8 and 1 MB; it stops when no more data is
 * released. */
static void chunks_are_sent_as_they_are_released(void **state)
{
    (void)state;
    struct weft_fluid *f = fluid_new();
    const uint64_t ms = WEFT_NS_PER_MS;
    weft_fluid_set_capacity(f, 0, 8 * mbit);
    struct weft_fluid_flow flow = {.up = 0,
                                   .down = DOWN,
                                   .bytes = megabyte,
                                   .chunk_bytes = 400000,
                                   .limit_bps = WEFT_FLUID_NO_LIMIT};
    uint32_t number = weft_fluid_start(f, &flow, 0);
    assert_true(weft_fluid_next_ns(f) == WEFT_NEVER);
    weft_fluid_advance(f, 100 * ms);
    weft_fluid_release(f, number, 400000);
    struct weft_fluid_event event = expect_at(f, 500 * ms, 0);
    assert_int_equal(event.bytes, 400000);
    assert_false(event.finished);
    assert_true(weft_fluid_next_ns(f) == WEFT_NEVER);
    weft_fluid_release(f, number, megabyte);
    assert_int_equal(expect_at(f, 900 * ms, 0).bytes, 800000);
    event = expect_at(f, 1100 * ms, 0);
    assert_int_equal(event.bytes, megabyte);
    assert_true(event.finished);
    weft_fluid_free(f);
}

/* ---- against the definition ------------------------------------------------------------------ */

enum { FLOWS_MAX = 24 };

struct drawn {
    struct weft_fluid_flow flow[FLOWS_MAX];
    uint64_t rate_bps[FLOWS_MAX];
    uint64_t capacity_bps[LINKS];
    uint32_t count;
};

static void draw(struct weft_prng *prng, struct weft_fluid *f, struct drawn *d)
{
    for (uint32_t l = 0; l < LINKS; l++) {
        d->capacity_bps[l] = weft_prng_range(prng, 0, 50) * mbit + weft_prng_below(prng, 7);
        weft_fluid_set_capacity(f, l, d->capacity_bps[l]);
    }
    d->count = (uint32_t)weft_prng_range(prng, 1, FLOWS_MAX);
    for (uint32_t i = 0; i < d->count; i++) {
        bool limited = weft_prng_below(prng, 3) == 0;
        d->flow[i] = (struct weft_fluid_flow){
            .up = (uint32_t)weft_prng_below(prng, DOWN),
            .down = DOWN + (uint32_t)weft_prng_below(prng, DOWN),
            .bytes = megabyte,
            .limit_bps = limited ? weft_prng_range(prng, 1, 10) * mbit : WEFT_FLUID_NO_LIMIT,
        };
    }
}

/* Max-min: a flow below its limit crosses a full link on which no flow has more. Shares are rounded
 * down, so a link counts as full if less than 1 bit/s per flow remains, and "more" means more than
 * that difference. */
static bool has_bottleneck(const struct drawn *d, uint32_t flow)
{
    const uint32_t links[] = {d->flow[flow].up, d->flow[flow].down};
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t sum = 0;
        uint64_t most = 0;
        for (uint32_t i = 0; i < d->count; i++) {
            if (d->flow[i].up == links[k] || d->flow[i].down == links[k]) {
                sum += d->rate_bps[i];
                most = weft_max_u64(most, d->rate_bps[i]);
            }
        }
        if (sum + FLOWS_MAX >= d->capacity_bps[links[k]] && most <= d->rate_bps[flow] + FLOWS_MAX) {
            return true;
        }
    }
    return false;
}

static void rates_are_max_min(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct weft_prng prng;
        struct weft_fluid *f = fluid_new();
        struct drawn d;
        weft_prng_init(&prng, seed);
        draw(&prng, f, &d);
        uint32_t numbers[FLOWS_MAX];
        uint64_t sum[LINKS] = {0};
        for (uint32_t i = 0; i < d.count; i++) {
            numbers[i] = weft_fluid_start(f, &d.flow[i], megabyte);
        }
        for (uint32_t i = 0; i < d.count; i++) {
            d.rate_bps[i] = weft_fluid_rate(f, numbers[i]);
            sum[d.flow[i].up] += d.rate_bps[i];
            sum[d.flow[i].down] += d.rate_bps[i];
        }
        for (uint32_t l = 0; l < LINKS; l++) {
            assert_true(sum[l] <= d.capacity_bps[l]);
        }
        for (uint32_t i = 0; i < d.count; i++) {
            assert_true(d.rate_bps[i] <= d.flow[i].limit_bps);
            if (d.rate_bps[i] < d.flow[i].limit_bps && !has_bottleneck(&d, i)) {
                fail_msg("seed %llu, flow %u: %llu bit/s is not max-min", (unsigned long long)seed,
                         i, (unsigned long long)d.rate_bps[i]);
            }
        }
        weft_fluid_free(f);
    }
}

/* Flows that start and end at random: each byte of a started flow crosses both of its links
 * once. */
static void bytes_are_conserved(void **state)
{
    (void)state;
    struct weft_prng prng;
    struct weft_fluid *f = fluid_new();
    weft_fluid_nanobits arrived = 0;
    weft_fluid_nanobits carried = 0;
    uint64_t started = 0;
    weft_prng_init(&prng, 7);
    for (uint32_t step = 0; step < 3000; step++) {
        struct weft_fluid_event event;
        uint64_t next_ns = weft_fluid_next_ns(f);
        if (step < 1500 && (next_ns == WEFT_NEVER || weft_prng_below(&prng, 2) == 0)) {
            uint64_t bytes = weft_prng_range(&prng, 1, megabyte);
            (void)start(f, (uint32_t)weft_prng_below(&prng, DOWN),
                        (uint32_t)weft_prng_below(&prng, DOWN), bytes);
            started += bytes;
        } else if (next_ns != WEFT_NEVER) {
            weft_fluid_advance(f, next_ns);
            while (weft_fluid_poll(f, &event)) {
                assert_true(event.finished);
                arrived += event.bytes;
            }
        }
    }
    for (uint32_t l = 0; l < LINKS; l++) {
        carried += weft_fluid_carried(f, l);
    }
    assert_true(weft_fluid_next_ns(f) == WEFT_NEVER);
    assert_true(arrived == started);
    assert_true(carried == 2 * (weft_fluid_nanobits)started * 8 * WEFT_NS_PER_S);
    weft_fluid_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_flows_share_a_link),
        cmocka_unit_test(three_flows_are_max_min),
        cmocka_unit_test(capacity_steps),
        cmocka_unit_test(grants_come_first_in_their_order),
        cmocka_unit_test(chunks_are_sent_as_they_are_released),
        cmocka_unit_test(rates_are_max_min),
        cmocka_unit_test(bytes_are_conserved),
    };
    return cmocka_run_group_tests_name("sim_fluid", tests, NULL, NULL);
}
