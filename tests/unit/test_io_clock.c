/* The clock, and the conversion of arrival timestamps to it. */
#include "io/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

static struct timespec from_ns(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / WEFT_NS_PER_S),
                             .tv_nsec = (long)(ns % WEFT_NS_PER_S)};
}

static void clock_does_not_go_back(void **state)
{
    (void)state;
    uint64_t last_ns = weft_clock_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now_ns = weft_clock_now_ns();
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
}

static void stamp_moves_by_the_difference(void **state)
{
    (void)state;
    struct weft_clock_map map = {.realtime_ahead_ns = 5000};
    struct timespec stamp = from_ns(3 * WEFT_NS_PER_S + 5000);
    assert_int_equal(weft_clock_map_stamp(&map, &stamp, 3 * WEFT_NS_PER_S + 700),
                     3 * WEFT_NS_PER_S);
}

/* The monotonic clock may also be ahead: a machine without a battery-backed clock starts in
 * 1970. */
static void realtime_may_be_behind(void **state)
{
    (void)state;
    struct weft_clock_map map = {.realtime_ahead_ns = -(int64_t)(90 * WEFT_NS_PER_S)};
    struct timespec stamp = from_ns(10 * WEFT_NS_PER_S);
    assert_int_equal(weft_clock_map_stamp(&map, &stamp, 100 * WEFT_NS_PER_S + 5),
                     100 * WEFT_NS_PER_S);
}

static void impossible_stamps_are_now(void **state)
{
    (void)state;
    struct weft_clock_map map = {.realtime_ahead_ns = 0};
    uint64_t now_ns = 100 * WEFT_NS_PER_S;
    struct timespec none = {0};
    struct timespec future = from_ns(now_ns + 1);
    struct timespec old = from_ns(now_ns - WEFT_NS_PER_S - 1);
    struct timespec just = from_ns(now_ns - WEFT_NS_PER_S);
    assert_int_equal(weft_clock_map_stamp(&map, &none, now_ns), now_ns);
    assert_int_equal(weft_clock_map_stamp(&map, &future, now_ns), now_ns);
    assert_int_equal(weft_clock_map_stamp(&map, &old, now_ns), now_ns);
    assert_int_equal(weft_clock_map_stamp(&map, &just, now_ns), now_ns - WEFT_NS_PER_S);
}

static void map_follows_the_real_clocks(void **state)
{
    (void)state;
    struct weft_clock_map map;
    uint64_t before_ns = weft_clock_now_ns();
    struct timespec realtime;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &realtime), 0);
    uint64_t now_ns = weft_clock_map_refresh(&map);
    uint64_t at_ns = weft_clock_map_stamp(&map, &realtime, now_ns);
    assert_true(at_ns <= now_ns);
    /* Taken after before_ns; 50 ms allow for a thread that is preempted between two readings. */
    assert_true(at_ns + 50 * WEFT_NS_PER_MS >= before_ns);
}

static void cpu_time_is_that_of_work(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 60 * 1000 * 1000};
    uint64_t before_ns = weft_clock_cpu_ns();
    assert_int_equal(nanosleep(&pause, NULL), 0);
    uint64_t slept_ns = weft_clock_cpu_ns() - before_ns;
    assert_true(slept_ns < 30 * WEFT_NS_PER_MS);
    uint64_t end_ns = weft_clock_now_ns() + 60 * WEFT_NS_PER_S;
    while (weft_clock_cpu_ns() - before_ns - slept_ns < 5 * WEFT_NS_PER_MS) {
        assert_true(weft_clock_now_ns() < end_ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_does_not_go_back),
        cmocka_unit_test(stamp_moves_by_the_difference),
        cmocka_unit_test(realtime_may_be_behind),
        cmocka_unit_test(impossible_stamps_are_now),
        cmocka_unit_test(map_follows_the_real_clocks),
        cmocka_unit_test(cpu_time_is_that_of_work),
    };
    return cmocka_run_group_tests_name("io clock", tests, NULL, NULL);
}
