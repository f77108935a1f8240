/* Timelines of links: Fig. 4 of [mlfabric], released bookings, full tables; random bookings
 * compared with an oracle that stores the residual of every nanosecond. */
#include "base/prng.h"
#include "print_seed.h"
#include "sched/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MBYTE  UINT64_C(1000000)
#define SECOND WEFT_NS_PER_S

static struct weft_path path_of(struct weft_timeline *a, struct weft_timeline *b)
{
    return (struct weft_path){.count = b == NULL ? 1 : 2, .links = {a, b}};
}

/* Make the residual `mb_per_s` from from_s to to_s of a link with 10 MB/s. */
static void leave(struct weft_timeline *line, uint64_t from_s, uint64_t to_s, uint64_t mb_per_s)
{
    struct weft_booking others = {
        .count = 1, .pieces = {{from_s * SECOND, to_s * SECOND, (10 - mb_per_s) * 8 * MBYTE}}};
    struct weft_path path = path_of(line, NULL);
    assert_true(weft_path_reserve(&path, &others));
}

/* Fig. 4: an update of 30 MB, available at 0, over a residual that is a step function, ends at 7.
 * The paper's text gives size and end; the steps are chosen here. */
static void figure_4(void **state)
{
    (void)state;
    struct weft_timeline up, down;
    weft_timeline_init(&up, 80 * MBYTE);
    weft_timeline_init(&down, 80 * MBYTE);
    leave(&up, 0, 2, 5);   /* 10 MB until 2 */
    leave(&down, 1, 2, 8); /* the other link does not matter here */
    leave(&down, 2, 4, 2); /* 14 MB until 4 */
    leave(&up, 4, 5, 0);   /* nothing in [4, 5) */
    leave(&down, 5, 6, 6); /* 20 MB until 6; then 10 MB/s: 30 MB until 7 */
    struct weft_path path = path_of(&up, &down);
    struct weft_booking booking;
    assert_true(weft_path_fit(&path, 30 * MBYTE, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_int_equal(booking.start_ns, 0);
    assert_int_equal(booking.end_ns, 7 * SECOND);
    assert_int_equal(booking.count, 4);

    /* Fig. 4 (c): after the reservation the bottleneck is full until 7. */
    assert_true(weft_path_reserve(&path, &booking));
    for (uint64_t s = 0; s < 7; s++) {
        uint64_t at_ns = s * SECOND + SECOND / 2;
        assert_int_equal(
            weft_min_u64(weft_timeline_residual(&up, at_ns), weft_timeline_residual(&down, at_ns)),
            0);
    }
    assert_int_equal(weft_timeline_residual(&up, 7 * SECOND), 80 * MBYTE);
    assert_true(weft_path_fit(&path, 10 * MBYTE, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_int_equal(booking.start_ns, 7 * SECOND);
    assert_int_equal(booking.end_ns, 8 * SECOND);
}

static void a_cap_and_a_late_start(void **state)
{
    (void)state;
    struct weft_timeline line;
    weft_timeline_init(&line, 1000);
    struct weft_path path = path_of(&line, NULL);
    struct weft_booking booking;
    assert_true(weft_path_fit(&path, 25, 3 * SECOND, 100, &booking));
    assert_int_equal(booking.start_ns, 3 * SECOND);
    assert_int_equal(booking.end_ns, 5 * SECOND);
    assert_int_equal(weft_booking_sent(&booking, 25, 4 * SECOND), 12);
    assert_int_equal(weft_booking_sent(&booking, 25, 9 * SECOND), 25);
    assert_int_equal(weft_booking_sent(&booking, 25, SECOND), 0);
    assert_int_equal(weft_transfer_ns(25, 100), 2 * SECOND);
    assert_int_equal(weft_transfer_ns(1, 0), WEFT_NEVER);
}

static void a_link_that_is_down_never_ends(void **state)
{
    (void)state;
    struct weft_timeline up, down;
    weft_timeline_init(&up, 1000);
    weft_timeline_init(&down, 0);
    struct weft_path path = path_of(&up, &down);
    struct weft_booking booking;
    assert_false(weft_path_fit(&path, 1, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    down.capacity_bps = 1;
    assert_false(weft_path_fit(&path, UINT64_C(1) << 40, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_true(weft_path_fit(&path, 1, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_int_equal(booking.end_ns, 8 * SECOND);
}

static void capacity_below_what_is_reserved(void **state)
{
    (void)state;
    struct weft_timeline line;
    weft_timeline_init(&line, 80 * MBYTE);
    leave(&line, 0, 4, 4);
    line.capacity_bps = 40 * MBYTE;
    assert_int_equal(weft_timeline_residual(&line, 0), 0);
    assert_int_equal(weft_timeline_residual(&line, 4 * SECOND), 40 * MBYTE);
    assert_int_equal(weft_timeline_peak(&line, 0), 48 * MBYTE);
    assert_int_equal(weft_timeline_peak(&line, 4 * SECOND), 0);
}

/* With more gaps than a booking may have pieces, it starts later, where it fits. */
static void a_fragmented_residual(void **state)
{
    (void)state;
    struct weft_timeline line;
    weft_timeline_init(&line, 80 * MBYTE);
    for (uint64_t s = 0; s < 20; s += 2) {
        leave(&line, s, s + 1, 0);
    }
    struct weft_path path = path_of(&line, NULL);
    struct weft_booking booking;
    assert_true(weft_path_fit(&path, 100 * MBYTE, 0, WEFT_TIMELINE_BPS_MAX, &booking));
    assert_int_equal(booking.count, WEFT_BOOKING_PIECES);
    /* Gaps at 1, 3, .. 19; the eighth piece is the open end from 19 on. */
    assert_int_equal(booking.start_ns, 5 * SECOND);
    assert_int_equal(booking.end_ns, 22 * SECOND);
}

static void a_full_table_refuses_and_changes_nothing(void **state)
{
    (void)state;
    struct weft_timeline line, before;
    weft_timeline_init(&line, 80 * MBYTE);
    struct weft_path path = path_of(&line, NULL);
    uint64_t taken = 0;
    for (uint64_t s = 0;; s += 2) {
        struct weft_booking hole = {.count = 1, .pieces = {{s * SECOND + 1, (s + 1) * SECOND, 1}}};
        before = line;
        if (!weft_path_reserve(&path, &hole)) {
            break;
        }
        taken++;
    }
    assert_memory_equal(&before, &line, sizeof(line));
    assert_int_equal(taken, (WEFT_TIMELINE_STEPS - 1) / 2);
    /* With one free step a booking that ends within another cannot be shortened. */
    struct weft_booking last = {.count = 1, .pieces = {{300 * SECOND, WEFT_NEVER - 1, 1}}};
    assert_false(weft_path_reserve(&path, &last));
    weft_timeline_trim(&line, 4 * SECOND);
    assert_true(weft_path_reserve(&path, &last));
}

/* In a full table a booking can still be released from any time on. */
static void a_full_table_has_steps_for_cutting(void **state)
{
    (void)state;
    struct weft_timeline line;
    weft_timeline_init(&line, 80 * MBYTE);
    struct weft_path path = path_of(&line, NULL);
    struct weft_booking wide = {.count = 1, .pieces = {{0, 500 * SECOND, MBYTE}}};
    struct weft_booking hole = {.count = 1, .pieces = {{SECOND, 2 * SECOND, 1}}};
    assert_true(weft_path_reserve(&path, &wide));
    while (weft_path_reserve(&path, &hole)) {
        hole.pieces[0].from_ns += 2 * SECOND;
        hole.pieces[0].to_ns += 2 * SECOND;
    }
    assert_int_equal(line.count, WEFT_TIMELINE_STEPS);
    assert_true(weft_path_release(&path, &wide, 10 * SECOND + SECOND / 4));
    assert_int_equal(weft_timeline_residual(&line, 10 * SECOND), 79 * MBYTE);
    assert_int_equal(weft_timeline_residual(&line, 10 * SECOND + SECOND / 4), 80 * MBYTE);
    assert_false(weft_path_reserve(&path, &hole));
}

/* ---- oracle ---------------------------------------------------------------------------------- */

enum { LINKS = 3, HORIZON = 400, BOOKINGS = 12 };

struct oracle {
    uint64_t capacity[LINKS];
    uint64_t reserved[LINKS][HORIZON];
};

static uint64_t oracle_rate(const struct oracle *oracle, uint32_t a, uint32_t b, uint64_t at_ns)
{
    uint64_t rate_a = oracle->capacity[a] - oracle->reserved[a][at_ns];
    uint64_t rate_b = oracle->capacity[b] - oracle->reserved[b][at_ns];
    return weft_min_u64(rate_a, rate_b);
}

/* Rates are in bytes/ns here: 8e9 bit/s each. */
#define UNIT (8 * WEFT_NS_PER_S)

static void oracle_change(struct oracle *oracle, uint32_t link, const struct weft_booking *booking,
                          uint64_t from_ns, bool is_release)
{
    for (uint32_t i = 0; i < booking->count; i++) {
        const struct weft_booking_piece *piece = &booking->pieces[i];
        for (uint64_t t = weft_max_u64(piece->from_ns, from_ns); t < piece->to_ns; t++) {
            uint64_t rate = piece->rate_bps / UNIT;
            oracle->reserved[link][t] += is_release ? 0 - rate : rate;
        }
    }
}

static uint64_t oracle_end(const struct oracle *oracle, uint32_t a, uint32_t b, uint64_t bytes,
                           uint64_t from_ns, uint64_t *start_ns_p)
{
    *start_ns_p = WEFT_NEVER;
    for (uint64_t t = from_ns;; t++) {
        assert_true(t < HORIZON);
        uint64_t rate = oracle_rate(oracle, a, b, t);
        if (rate > 0 && *start_ns_p == WEFT_NEVER) {
            *start_ns_p = t;
        }
        if (rate >= bytes) {
            return t + 1;
        }
        bytes -= rate;
    }
}

static void same_as_oracle(const struct weft_timeline *lines, const struct oracle *oracle,
                           uint64_t from_ns)
{
    for (uint32_t l = 0; l < LINKS; l++) {
        for (uint64_t t = from_ns; t < HORIZON; t++) {
            assert_int_equal(weft_timeline_residual(&lines[l], t),
                             (oracle->capacity[l] - oracle->reserved[l][t]) * UNIT);
        }
    }
}

static void one_run(uint64_t run_seed)
{
    struct weft_prng prng;
    weft_prng_init(&prng, run_seed);
    struct weft_timeline lines[LINKS];
    static struct oracle oracle;
    memset(&oracle, 0, sizeof(oracle));
    for (uint32_t l = 0; l < LINKS; l++) {
        oracle.capacity[l] = weft_prng_range(&prng, 2, 9);
        weft_timeline_init(&lines[l], oracle.capacity[l] * UNIT);
    }
    struct weft_booking made[BOOKINGS];
    uint32_t ends[BOOKINGS][2], count = 0;
    uint64_t now_ns = 0;
    for (int op = 0; op < 40; op++) {
        now_ns += weft_prng_below(&prng, 3);
        for (uint32_t l = 0; l < LINKS; l++) {
            weft_timeline_trim(&lines[l], now_ns);
        }
        if (count < BOOKINGS && weft_prng_chance(&prng, 600000)) {
            uint32_t a = (uint32_t)weft_prng_below(&prng, LINKS);
            uint32_t b = (a + 1 + (uint32_t)weft_prng_below(&prng, LINKS - 1)) % LINKS;
            struct weft_path path = path_of(&lines[a], &lines[b]);
            uint64_t bytes = weft_prng_range(&prng, 1, 40), start_ns;
            uint64_t from_ns = now_ns + weft_prng_below(&prng, 10);
            struct weft_booking *booking = &made[count];
            assert_true(weft_path_fit(&path, bytes, from_ns, WEFT_TIMELINE_BPS_MAX, booking));
            uint64_t end_ns = oracle_end(&oracle, a, b, bytes, from_ns, &start_ns);
            /* A booking limited to fewer pieces than the residual has may start later. */
            assert_true(booking->start_ns == start_ns
                            ? booking->end_ns == end_ns
                            : booking->start_ns > start_ns && booking->end_ns > end_ns);
            assert_int_equal(weft_booking_sent(booking, bytes, WEFT_NEVER), bytes);
            assert_true(weft_path_reserve(&path, booking));
            oracle_change(&oracle, a, booking, 0, false);
            oracle_change(&oracle, b, booking, 0, false);
            ends[count][0] = a;
            ends[count++][1] = b;
        } else if (count > 0) {
            uint32_t i = (uint32_t)weft_prng_below(&prng, count);
            struct weft_path path = path_of(&lines[ends[i][0]], &lines[ends[i][1]]);
            assert_true(weft_path_release(&path, &made[i], now_ns));
            oracle_change(&oracle, ends[i][0], &made[i], now_ns, true);
            oracle_change(&oracle, ends[i][1], &made[i], now_ns, true);
            made[i] = made[--count];
            memcpy(ends[i], ends[count], sizeof(ends[i]));
        }
        same_as_oracle(lines, &oracle, now_ns);
    }
}

static void random_bookings(void **state)
{
    (void)state;
    for (seed = 1; seed <= 2000; seed++) {
        one_run(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figure_4),
        cmocka_unit_test(a_cap_and_a_late_start),
        cmocka_unit_test(a_link_that_is_down_never_ends),
        cmocka_unit_test(capacity_below_what_is_reserved),
        cmocka_unit_test(a_fragmented_residual),
        cmocka_unit_test(a_full_table_refuses_and_changes_nothing),
        cmocka_unit_test(a_full_table_has_steps_for_cutting),
        cmocka_unit_test_teardown(random_bookings, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
