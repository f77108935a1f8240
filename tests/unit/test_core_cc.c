/* The algorithms on scripted samples: growth, marks, loss above and below the path's floor. */
#include "core/cc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { PACKET = 1472 };

static const uint64_t rtt_ns = 200 * WEFT_NS_PER_US;

static struct weft_cc cc_named(const char *name)
{
    struct weft_cc cc = {.ops = weft_cc_find(name)};
    assert_non_null(cc.ops);
    cc.ops->init(&cc, PACKET, 0);
    return cc;
}

static struct weft_cc cc_make(void)
{
    return cc_named("dctcp");
}

/* One round trip: a full window is acknowledged; `lost_ppm` of it is lost and `ce_ppm` marked. */
static void round_trip(struct weft_cc *cc, uint64_t *now_ns, uint32_t lost_ppm, uint32_t ce_ppm,
                       uint64_t srtt_ns)
{
    uint32_t packets = (uint32_t)(cc->cwnd_bytes / PACKET);
    uint32_t lost = (uint32_t)((uint64_t)packets * lost_ppm / WEFT_PPM);
    *now_ns += srtt_ns;
    struct weft_cc_sample s = {
        .now_ns = *now_ns,
        .acked_packets = packets - lost,
        .acked_bytes = (uint64_t)(packets - lost) * PACKET,
        .lost_packets = lost,
        .lost_sent_ns = *now_ns - srtt_ns,
        .ce_packets = (uint32_t)((uint64_t)packets * ce_ppm / WEFT_PPM),
        .srtt_ns = srtt_ns,
        .rtt_ns_min = rtt_ns,
        .in_flight_bytes = cc->cwnd_bytes,
        .round_end = true,
    };
    cc->ops->on_ack(cc, &s);
}

static void test_names(void **state)
{
    (void)state;
    assert_non_null(weft_cc_find(NULL));
    assert_ptr_equal(weft_cc_find(NULL), weft_cc_all[0]);
    assert_null(weft_cc_find("no such"));
}

static void test_slow_start_doubles_until_marked(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    uint64_t before = cc.cwnd_bytes;
    round_trip(&cc, &now, 0, 0, rtt_ns);
    assert_int_equal(cc.cwnd_bytes, 2 * before);
    assert_true(cc.slow_start);
    round_trip(&cc, &now, 0, 500000, rtt_ns);
    assert_false(cc.slow_start);
    before = cc.cwnd_bytes;
    round_trip(&cc, &now, 0, 0, rtt_ns);
    assert_int_equal(cc.cwnd_bytes, before + PACKET);
}

static void test_pacing_is_the_window_over_the_round_trip(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    assert_int_equal(cc.rate_bps, 0);
    round_trip(&cc, &now, 0, 500000, rtt_ns);
    uint64_t window_bps = cc.cwnd_bytes * 8 * WEFT_NS_PER_S / rtt_ns;
    assert_in_range(cc.rate_bps, window_bps, window_bps * 3 / 2);
}

/* Constant random loss must not reduce the window: with 10 % loss the link would stay mostly idle.
 * The same loss with a standing queue must reduce it. */
static void test_floor_loss_is_no_signal_but_a_queue_is(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    round_trip(&cc, &now, 100000, 500000, rtt_ns); /* out of slow start, on the same path */
    for (int i = 0; i < 200; i++) {
        round_trip(&cc, &now, 100000, 0, rtt_ns);
    }
    uint64_t steady = cc.cwnd_bytes;
    assert_in_range(weft_cc_loss_ppm(&cc), 80000, 100000);
    assert_true(steady > 100 * PACKET);
    for (int i = 0; i < 20; i++) {
        round_trip(&cc, &now, 100000, 0, 20 * rtt_ns); /* 4 ms, target 2.8 ms */
    }
    assert_true(cc.cwnd_bytes < steady * 6 / 10);
}

static void test_loss_above_the_floor_cuts_in_proportion(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    round_trip(&cc, &now, 0, 500000, rtt_ns);
    for (int i = 0; i < 100; i++) {
        round_trip(&cc, &now, 0, 0, rtt_ns);
    }
    uint64_t before = cc.cwnd_bytes;
    round_trip(&cc, &now, 240000, 0, rtt_ns);
    /* smoothed 24 % / 8 = 3 %; one percentage point is ignored as noise; half of the rest reduces
     * the window: far less than a halving */
    assert_in_range(cc.cwnd_bytes, before * 98 / 100, before * 995 / 1000);
}

static void test_silence_and_limits(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    for (int i = 0; i < 100; i++) {
        round_trip(&cc, &now, 0, 0, rtt_ns);
    }
    assert_true(cc.cwnd_bytes <= UINT64_C(64) << 20);
    cc.ops->on_silence(&cc);
    assert_int_equal(cc.cwnd_bytes, 4 * PACKET);
    for (int i = 0; i < 50; i++) {
        round_trip(&cc, &now, 500000, 900000, 10 * rtt_ns);
    }
    assert_true(cc.cwnd_bytes >= 4 * PACKET);
}

/* Above the target delay the window shrinks in proportion, below it grows by one packet. */
static void test_delay_holds_the_queue_at_its_target(void **state)
{
    (void)state;
    static const char *const names[] = {"delay", "dctcp"}; /* dctcp on a path without marks */
    for (size_t i = 0; i < 2; i++) {
        struct weft_cc cc = cc_named(names[i]);
        uint64_t now = 0;
        for (int k = 0; k < 3; k++) {
            round_trip(&cc, &now, 0, 0, rtt_ns);
        }
        uint64_t before = cc.cwnd_bytes;
        round_trip(&cc, &now, 0, 0, 28 * rtt_ns); /* 5.6 ms, target 2.8 ms: 0.8 x 0.5 */
        assert_false(cc.slow_start);
        assert_in_range(cc.cwnd_bytes, before * 110 / 100, before * 125 / 100); /* 2 x 0.6 */
        before = cc.cwnd_bytes;
        round_trip(&cc, &now, 0, 0, 13 * rtt_ns);
        assert_int_equal(cc.cwnd_bytes, before + PACKET);
    }
}

/* Delay alone does not reduce the window below the number of packets whose queue the receivers'
 * credit bounds. Loss does, and with longer packets that number is smaller. */
static void test_delay_leaves_what_credit_keeps_standing(void **state)
{
    (void)state;
    static const char *const names[] = {"delay", "dctcp"};
    for (size_t i = 0; i < 2; i++) {
        struct weft_cc cc = cc_named(names[i]);
        uint64_t now = 0;
        for (int k = 0; k < 20; k++) {
            round_trip(&cc, &now, 0, 0, 100 * rtt_ns);
            assert_true(k < 2 || cc.cwnd_bytes + PACKET > 96 * PACKET);
        }
        assert_true(cc.cwnd_bytes <= 97 * PACKET);
        uint64_t least = cc.cwnd_bytes;
        for (int k = 0; k < 40; k++) {
            round_trip(&cc, &now, 500000, 0, 100 * rtt_ns);
            least = weft_min_u64(least, cc.cwnd_bytes);
        }
        assert_true(least < 96 * PACKET);
        cc = cc_named(names[i]);
        cc.packet_bytes = 8972;
        for (int k = 0; k < 40; k++) {
            round_trip(&cc, &now, 0, 0, 100 * rtt_ns);
        }
        assert_in_range(cc.cwnd_bytes, 16 * 8972, 17 * 8972);
    }
}

/* If switches mark, the marks count and the delay is ignored. */
static void test_dctcp_on_a_marking_path_ignores_delay(void **state)
{
    (void)state;
    struct weft_cc cc = cc_make();
    uint64_t now = 0;
    round_trip(&cc, &now, 0, 500000, rtt_ns);
    uint64_t before = cc.cwnd_bytes;
    round_trip(&cc, &now, 0, 0, 28 * rtt_ns);
    assert_int_equal(cc.cwnd_bytes, before + PACKET);
}

/* One halving for all losses of a window, whatever the path's constant loss. */
static void test_reno_fair_halves_once_per_window(void **state)
{
    (void)state;
    struct weft_cc cc = cc_named("reno-fair");
    uint64_t now = 0;
    assert_int_equal(cc.cwnd_bytes, 10 * PACKET);
    for (int i = 0; i < 4; i++) {
        round_trip(&cc, &now, 0, 0, rtt_ns);
    }
    assert_int_equal(cc.cwnd_bytes, 160 * PACKET);
    round_trip(&cc, &now, 100000, 0, rtt_ns);
    assert_int_equal(cc.cwnd_bytes, 80 * PACKET);
    round_trip(&cc, &now, 100000, 0, rtt_ns); /* packets sent before the cut */
    assert_int_equal(cc.cwnd_bytes, 80 * PACKET + PACKET * 67 / 100);
    round_trip(&cc, &now, 0, 0, rtt_ns);
    assert_int_equal(cc.cwnd_bytes, 80 * PACKET + 2 * (PACKET * 67 / 100));
    cc.cwnd_bytes = 100 * PACKET;
    assert_false(cc.marks);
    round_trip(&cc, &now, 0, 10000, rtt_ns); /* one mark counts as a loss */
    assert_true(cc.marks);
    assert_int_equal(cc.cwnd_bytes, 50 * PACKET);
    cc.ops->on_silence(&cc);
    assert_true(cc.cwnd_bytes >= 2 * PACKET && cc.cwnd_bytes <= 4 * PACKET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_slow_start_doubles_until_marked),
        cmocka_unit_test(test_pacing_is_the_window_over_the_round_trip),
        cmocka_unit_test(test_floor_loss_is_no_signal_but_a_queue_is),
        cmocka_unit_test(test_loss_above_the_floor_cuts_in_proportion),
        cmocka_unit_test(test_silence_and_limits),
        cmocka_unit_test(test_delay_holds_the_queue_at_its_target),
        cmocka_unit_test(test_delay_leaves_what_credit_keeps_standing),
        cmocka_unit_test(test_dctcp_on_a_marking_path_ignores_delay),
        cmocka_unit_test(test_reno_fair_halves_once_per_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
