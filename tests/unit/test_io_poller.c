/* Sleeps end at their deadline and not before, whatever the timer's previous deadline. */
#include "io/clock.h"
#include "io/poller.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct weft_poller poller;
static int fd;

static int set_up(void **state)
{
    (void)state;
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weft_poller_init(&poller);
    return fd >= 0 && weft_poller_open(&poller, fd) == WEFT_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_poller_close(&poller);
    (void)close(fd);
    return 0;
}

/* A sleep ends early if the process was stopped and continued meanwhile (SIGSTOP, SIGCONT), but not
 * twenty times in a row. */
static void sleep_for(uint64_t ns)
{
    bool whole = false;
    for (int i = 0; i < 20 && !whole; i++) {
        uint64_t until_ns = weft_clock_now_ns() + ns;
        assert_false(weft_poller_wait(&poller, until_ns));
        whole = weft_clock_now_ns() >= until_ns;
    }
    assert_true(whole);
}

static void signal_fd(int readable)
{
    uint64_t one = 1;
    assert_int_equal(write(readable, &one, sizeof(one)), sizeof(one));
}

static void a_sleep_ends_at_its_deadline(void **state)
{
    (void)state;
    sleep_for(WEFT_NS_PER_MS);
    sleep_for(3 * WEFT_NS_PER_MS);
    sleep_for(100 * WEFT_NS_PER_US);
}

/* The first sleep is ended by the socket, so the timer stays armed for 200 ms. */
static void an_earlier_timer_does_not_end_a_later_sleep(void **state)
{
    (void)state;
    uint64_t value;
    signal_fd(fd);
    assert_false(weft_poller_wait(&poller, weft_clock_now_ns() + 200 * WEFT_NS_PER_MS));
    assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
    assert_true(poller.armed_ns != WEFT_NEVER);
    sleep_for(300 * WEFT_NS_PER_MS);
}

/* A sleep that the socket ends at once; returns the time for which the timer is armed then. */
static uint64_t armed_after(uint64_t until_ns)
{
    uint64_t value;
    signal_fd(fd);
    assert_false(weft_poller_wait(&poller, until_ns));
    assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
    return poller.armed_ns;
}

/* A timer that would fire early in a sleep is set anew, so that it does not wake the thread up in
 * vain. One that would fire late probably never does: something else ends the sleep before. */
static void a_timer_that_fires_early_is_set_later(void **state)
{
    (void)state;
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t first_ns = now_ns + 1000 * WEFT_NS_PER_S;
    assert_int_equal(armed_after(first_ns), first_ns);
    assert_int_equal(armed_after(now_ns + 3000 * WEFT_NS_PER_S), first_ns);
    uint64_t later_ns = now_ns + 10000 * WEFT_NS_PER_S;
    assert_int_equal(armed_after(later_ns), later_ns);
    assert_int_equal(armed_after(WEFT_NEVER), WEFT_NEVER);
}

/* The expiration of a timer that has fired does not end a later sleep either. */
static void a_timer_that_has_fired_is_set_later(void **state)
{
    (void)state;
    uint64_t fired_ns = weft_clock_now_ns() + WEFT_NS_PER_MS;
    (void)armed_after(fired_ns);
    while (weft_clock_now_ns() < fired_ns) {
        (void)usleep(100);
    }
    uint64_t later_ns = fired_ns + 1000 * WEFT_NS_PER_S;
    assert_int_equal(armed_after(later_ns), later_ns);
}

static void a_later_timer_is_set_to_an_earlier_deadline(void **state)
{
    (void)state;
    uint64_t value;
    signal_fd(fd);
    assert_false(weft_poller_wait(&poller, weft_clock_now_ns() + 60 * WEFT_NS_PER_S));
    assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
    sleep_for(WEFT_NS_PER_MS); /* would take a minute, and the test's time limit */
}

static void a_deadline_in_the_past_ends_at_once(void **state)
{
    (void)state;
    assert_false(weft_poller_wait(&poller, 1));
}

static void a_wake_ends_the_next_sleep_once(void **state)
{
    (void)state;
    weft_poller_wake(&poller);
    weft_poller_wake(&poller);
    assert_int_equal(atomic_load(&poller.woken), 1);
    assert_true(weft_poller_wait(&poller, WEFT_NEVER));
    assert_int_equal(atomic_load(&poller.woken), 0);
    sleep_for(WEFT_NS_PER_MS);
}

static atomic_bool may_wake;

static void *wake_later(void *arg)
{
    (void)arg;
    while (!atomic_load(&may_wake)) {
        (void)usleep(1000);
    }
    (void)usleep(5000);
    weft_poller_wake(&poller);
    return NULL;
}

static void a_wake_of_another_thread_ends_an_unlimited_sleep(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wake_later, NULL), 0);
    /* The timer of an earlier sleep fires meanwhile. */
    signal_fd(fd);
    assert_false(weft_poller_wait(&poller, weft_clock_now_ns() + WEFT_NS_PER_MS));
    uint64_t value;
    assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
    atomic_store(&may_wake, true);
    while (!weft_poller_wait(&poller, WEFT_NEVER)) {
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* For a thread that waits for many pollers: readable at or before the deadline, never long after
 * it. */
static void a_prepared_descriptor_turns_readable(void **state)
{
    (void)state;
    struct pollfd wait = {.fd = poller.epoll_fd, .events = POLLIN};
    uint64_t value;
    weft_poller_prepare(&poller, WEFT_NEVER);
    assert_int_equal(poll(&wait, 1, 0), 0);
    uint64_t until_ns = weft_clock_now_ns() + 2 * WEFT_NS_PER_MS;
    weft_poller_prepare(&poller, until_ns);
    assert_int_equal(poll(&wait, 1, -1), 1);
    assert_true(weft_clock_now_ns() >= until_ns);
    weft_poller_prepare(&poller, WEFT_NEVER); /* clears the expired timer */
    assert_int_equal(poll(&wait, 1, 0), 0);
    signal_fd(fd);
    assert_int_equal(poll(&wait, 1, -1), 1);
    assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
    weft_poller_wake(&poller);
    assert_int_equal(poll(&wait, 1, -1), 1);
    weft_poller_prepare(&poller, WEFT_NEVER); /* clears the wake */
    assert_int_equal(poll(&wait, 1, 0), 0);
}

static void a_nap_ignores_the_descriptor_and_ends_at_a_wake(void **state)
{
    (void)state;
    signal_fd(fd);
    bool whole = false;
    for (int i = 0; i < 20 && !whole; i++) {
        uint64_t until_ns = weft_clock_now_ns() + WEFT_NS_PER_MS;
        assert_false(weft_poller_nap(&poller, WEFT_NS_PER_MS));
        whole = weft_clock_now_ns() >= until_ns;
    }
    assert_true(whole);
    weft_poller_wake(&poller);
    assert_true(weft_poller_nap(&poller, 60 * WEFT_NS_PER_S));
    assert_false(weft_poller_nap(&poller, WEFT_NS_PER_US)); /* cleared */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sleep_ends_at_its_deadline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_earlier_timer_does_not_end_a_later_sleep, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_timer_that_fires_early_is_set_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_that_has_fired_is_set_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_later_timer_is_set_to_an_earlier_deadline, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_deadline_in_the_past_ends_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wake_ends_the_next_sleep_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wake_of_another_thread_ends_an_unlimited_sleep, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_prepared_descriptor_turns_readable, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_nap_ignores_the_descriptor_and_ends_at_a_wake,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
