/* io/busy_poll.h: when polling before a sleep saves time. */
#include "io/busy_poll.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <time.h>

static const uint64_t poll_ns = 60 * WEFT_NS_PER_S; /* none of these polls times out */

static bool look(struct weft_busy_poll *poll, bool found)
{
    if (!weft_busy_poll_begin(poll, WEFT_NEVER)) {
        return false;
    }
    weft_busy_poll_end(poll, found);
    return true;
}

static uint32_t looks(struct weft_busy_poll *poll, uint32_t sleeps, bool found)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sleeps; i++) {
        count += look(poll, found);
    }
    return count;
}

static void never_without_a_time(void **state)
{
    (void)state;
    struct weft_busy_poll poll;
    weft_busy_poll_init(&poll, 0);
    assert_int_equal(looks(&poll, 100, true), 0);
}

static void none_before_a_sleep_that_is_over(void **state)
{
    (void)state;
    struct weft_busy_poll poll;
    weft_busy_poll_init(&poll, poll_ns);
    assert_false(weft_busy_poll_begin(&poll, weft_clock_now_ns()));
}

static void looks_that_find_nothing_are_left_out(void **state)
{
    (void)state;
    struct weft_busy_poll poll;
    weft_busy_poll_init(&poll, poll_ns);
    assert_int_equal(looks(&poll, 100, true), 100);
    (void)looks(&poll, 20, false);
    assert_int_equal(looks(&poll, 10 * WEFT_BUSY_POLL_PROBE_EVERY, false), 10);
    /* One successful poll is enough: the other end may have begun to poll, too. */
    while (!look(&poll, true)) {
    }
    assert_int_equal(looks(&poll, 100, true), 100);
    /* One success in four is still enough. */
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(looks(&poll, 3, false), 3);
        assert_true(look(&poll, true));
    }
}

static void turn_that_takes_long_ends_the_looking_for_a_while(void **state)
{
    (void)state;
    const struct timespec long_turn = {.tv_nsec = 2 * WEFT_NS_PER_MS};
    struct weft_busy_poll poll;
    weft_busy_poll_init(&poll, poll_ns);
    assert_true(weft_busy_poll_begin(&poll, WEFT_NEVER));
    nanosleep(&long_turn, NULL);
    assert_false(weft_busy_poll_again(&poll));
    weft_busy_poll_end(&poll, false);
    assert_true(poll.off_until > poll.round_ns);
    assert_true(poll.off_ns > 0);
    poll.off_until = WEFT_NEVER - 1;
    assert_int_equal(looks(&poll, 100, true), 0);
    /* A second slow round soon afterwards doubles the pause. */
    poll.off_until = weft_clock_now_ns();
    poll.off_ns = WEFT_NS_PER_S;
    assert_true(weft_busy_poll_begin(&poll, WEFT_NEVER));
    nanosleep(&long_turn, NULL);
    assert_false(weft_busy_poll_again(&poll));
    assert_int_equal(poll.off_ns, 2 * WEFT_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_without_a_time),
        cmocka_unit_test(none_before_a_sleep_that_is_over),
        cmocka_unit_test(looks_that_find_nothing_are_left_out),
        cmocka_unit_test(turn_that_takes_long_ends_the_looking_for_a_while),
    };
    return cmocka_run_group_tests_name("io busy poll", tests, NULL, NULL);
}
