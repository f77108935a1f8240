/* The steal monitor's probe (lab/wake_probe.h): its wake-up times increase, and it can be
 * stopped. */
#define _GNU_SOURCE /* CPU_ISSET, sched_getaffinity */
#include "lab/wake_probe.h"

#include "base/units.h"
#include "lab/clock.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

static int own_processor(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    int processor = 0;
    while (!CPU_ISSET((size_t)processor, &set)) {
        processor++;
    }
    return processor;
}

/* Wait for the next wake-up of the probe, without a time limit. */
static uint64_t wait_for(struct weft_wake_probe *probe)
{
    uint64_t time_ns;
    while ((time_ns = weft_wake_probe_next(probe)) == WEFT_NEVER) {
        const struct timespec pause = {.tv_nsec = 1000000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
    return time_ns;
}

static void test_wake_up_times_increase(void **state)
{
    (void)state;
    uint64_t before_ns = weft_lab_now_ns();
    struct weft_wake_probe *probe = weft_wake_probe_new(own_processor(), before_ns, WEFT_NS_PER_MS);
    assert_non_null(probe);
    uint64_t last_ns = before_ns;
    for (int i = 0; i < 5; i++) {
        uint64_t time_ns = wait_for(probe);
        assert_true(time_ns >= last_ns && time_ns <= weft_lab_now_ns());
        last_ns = time_ns;
    }
    assert_true(last_ns - before_ns >= 4 * WEFT_NS_PER_MS); /* never early */
    weft_wake_probe_free(probe);
}

static void test_no_such_processor(void **state)
{
    (void)state;
    struct weft_wake_probe *probe =
        weft_wake_probe_new(CPU_SETSIZE - 1, weft_lab_now_ns(), WEFT_NS_PER_MS);
    assert_non_null(probe);
    assert_true(weft_wake_probe_next(probe) == WEFT_NEVER);
    weft_wake_probe_free(probe);
    weft_wake_probe_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wake_up_times_increase),
        cmocka_unit_test(test_no_such_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
