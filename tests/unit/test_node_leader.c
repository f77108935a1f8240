/* Leadership of an endpoint between its thread and waiters (node/leader.h): a real thread, whose
 * steps are counted. */
#include "node/leader.h"

#include "base/units.h"
#include "io/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const uint64_t limit_ns = 20 * WEFT_NS_PER_S;
static const uint64_t later_ns = WEFT_NS_PER_S; /* a wait after this time does not follow its begin
                                                 * soon */

struct owner {
    struct weft_leader leader;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    uint32_t open;
    atomic_uint steps;    /* steps of the thread */
    atomic_bool is_led;   /* a thread leads now */
    atomic_uint together; /* concurrent steps of two leaders: must stay 0 */
    atomic_bool stop;
};

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * (long)WEFT_NS_PER_US}, NULL);
}

/* A leader's step: two must never run at the same time. */
static void lead_once(struct owner *o)
{
    if (atomic_exchange(&o->is_led, true)) {
        atomic_fetch_add(&o->together, 1);
    }
    pause_us(50);
    atomic_store(&o->is_led, false);
}

static void *run(void *arg)
{
    struct owner *o = arg;
    while (!atomic_load(&o->stop)) {
        pthread_mutex_lock(&o->lock);
        weft_leader_thread(&o->leader, &o->open);
        pthread_mutex_unlock(&o->lock);
        lead_once(o);
        atomic_fetch_add(&o->steps, 1);
    }
    return NULL;
}

static int set_up(void **state)
{
    struct owner *o = calloc(1, sizeof(*o));
    assert_non_null(o);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    assert_int_equal(weft_leader_init(&o->leader, &o->lock, &o->changed), WEFT_OK);
    assert_int_equal(pthread_create(&o->thread, NULL, run, o), 0);
    *state = o;
    return 0;
}

static int tear_down(void **state)
{
    struct owner *o = *state;
    pthread_mutex_lock(&o->lock);
    atomic_store(&o->stop, true);
    weft_leader_hurry(&o->leader);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    assert_int_equal(atomic_load(&o->together), 0);
    weft_leader_fini(&o->leader);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o);
    return 0;
}

/* Acquire the lead, as a wait does. Returns with the lock held. */
static void take(struct owner *o, uint64_t now_ns)
{
    pthread_mutex_lock(&o->lock);
    while (!weft_leader_take(&o->leader, now_ns)) {
        bool asks = o->leader.who == WEFT_LEADS_THREAD;
        o->leader.wanted += asks;
        pthread_cond_wait(&o->changed, &o->lock);
        o->leader.wanted -= asks;
    }
}

static void leave(struct owner *o, bool more)
{
    weft_leader_leave(&o->leader, weft_clock_now_ns(), more);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static void await_steps(struct owner *o, uint32_t more)
{
    uint32_t from = atomic_load(&o->steps);
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (atomic_load(&o->steps) - from < more && weft_clock_now_ns() < end_ns) {
        pause_us(100);
    }
    assert_true(atomic_load(&o->steps) - from >= more);
}

static void the_thread_leads_until_it_is_asked(void **state)
{
    struct owner *o = *state;
    await_steps(o, 3);
    take(o, later_ns);
    uint32_t before = atomic_load(&o->steps);
    pthread_mutex_unlock(&o->lock);
    pause_us(5000); /* ten grace periods, in which the leader keeps the lead */
    pthread_mutex_lock(&o->lock);
    /* The thread's step for the request is counted after the thread has given up the lead. */
    assert_in_range(atomic_load(&o->steps), before, before + 1);
    assert_int_equal(o->leader.who, WEFT_LEADS_WAITER);
    leave(o, false);
    await_steps(o, 3); /* then the thread leads again */
}

/* Waits that follow each other closely keep the lead from the thread. */
static void the_thread_sleeps_while_waits_follow_each_other(void **state)
{
    struct owner *o = *state;
    uint32_t held = 0;
    enum { TIMES = 200 };
    for (uint32_t i = 0; i < TIMES; i++) {
        take(o, later_ns);
        uint32_t before = atomic_load(&o->steps);
        leave(o, false);
        take(o, later_ns);
        held += atomic_load(&o->steps) == before;
        leave(o, false);
    }
    assert_in_range(held, TIMES * 3 / 4, TIMES); /* other processes may have used the processor */
}

/* Nor do waits wake it, if they are longer than the grace period: the next one stops its timer. The
 * times of leaves lie ahead, so that no timer of theirs expires, however late this thread runs. */
static void long_waits_do_not_wake_the_thread(void **state)
{
    struct owner *o = *state;
    const uint64_t wait_ns = 2 * WEFT_NS_PER_MS;
    uint64_t now_ns = weft_clock_now_ns() + 3600 * WEFT_NS_PER_S;
    uint32_t led = 0, stopped = 0, set = 0;
    enum { TIMES = 100 };
    take(o, now_ns);
    uint32_t before = o->leader.sleeps;
    for (uint32_t i = 0; i < TIMES; i++) {
        now_ns += wait_ns;
        weft_leader_leave(&o->leader, now_ns, false);
        set += o->leader.looks_ns != WEFT_NEVER;
        led += weft_leader_take(&o->leader, now_ns);
        stopped += o->leader.looks_ns == WEFT_NEVER;
        pthread_mutex_unlock(&o->lock); /* an expired timer would wake the thread here */
        pause_us(100);
        pthread_mutex_lock(&o->lock);
    }
    uint32_t sleeps = o->leader.sleeps - before;
    leave(o, false);
    assert_int_equal(led, TIMES);
    assert_int_equal(set, TIMES);
    assert_int_equal(stopped, TIMES);
    assert_in_range(sleeps, 0, 1); /* the timer of the thread's own last turn */
}

/* A step of a thread that begins an operation, while the thread is on its way to the lead, does not
 * keep it from what is left to do. */
static void a_begin_does_not_take_the_hurry_with_it(void **state)
{
    struct owner *o = *state;
    for (uint32_t i = 0; i < 100; i++) {
        take(o, later_ns);
        weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
        o->leader.soon = 4; /* begins lead */
        weft_leader_hurry(&o->leader);
        pthread_mutex_unlock(&o->lock); /* the thread may take the lead here */
        pthread_mutex_lock(&o->lock);
        bool led = weft_leader_begin(&o->leader, 1, later_ns);
        pthread_mutex_unlock(&o->lock);
        if (led) {
            pause_us(100); /* the thread finds another leader */
            pthread_mutex_lock(&o->lock);
            weft_leader_leave(&o->leader, weft_clock_now_ns(), true);
            pthread_mutex_unlock(&o->lock);
        }
        await_steps(o, 1);
    }
}

static void what_is_left_to_do_wakes_the_thread(void **state)
{
    struct owner *o = *state;
    take(o, later_ns);
    leave(o, true);
    await_steps(o, 1);
    take(o, later_ns);
    leave(o, false);
    pthread_mutex_lock(&o->lock);
    weft_leader_hurry(&o->leader);
    assert_true(o->leader.who == WEFT_LEADS_THREAD || o->leader.hurry);
    pthread_mutex_unlock(&o->lock);
    await_steps(o, 1);
}

/* A begin makes a step itself if, and only if, waits have followed begins soon. */
static void a_begin_leads_where_waits_follow_soon(void **state)
{
    struct owner *o = *state;
    uint64_t now_ns = 2 * later_ns;
    bool led = false;
    for (uint32_t i = 0; i < 50 && !led; i++) {
        take(o, now_ns); /* afterwards no thread leads */
        weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
        led = weft_leader_begin(&o->leader, 1, now_ns);
        assert_true(led || o->leader.hurry);
        assert_true(i >= 4 || !led);
        if (led) {
            weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
        }
        pthread_mutex_unlock(&o->lock);
    }
    assert_true(led);
    pthread_mutex_lock(&o->lock);
    o->open = 1; /* no wait follows: the thread leads and handles begins again */
    pthread_mutex_unlock(&o->lock);
    await_steps(o, 1);
    take(o, now_ns + later_ns);
    weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
    assert_false(weft_leader_begin(&o->leader, 1, now_ns + later_ns));
    pthread_mutex_unlock(&o->lock);
}

/* Begins without waits, each within the grace period of the previous one, must not keep the lead
 * from the thread, which has to overlap them with computing. */
static void begins_that_no_wait_follows_are_the_threads(void **state)
{
    struct owner *o = *state;
    const uint64_t now_ns = later_ns;
    take(o, now_ns);
    weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
    o->leader.soon = 4; /* waits followed until now */
    bool led[4];
    for (uint32_t i = 0; i < 4; i++) {
        led[i] = weft_leader_begin(&o->leader, i + 1, now_ns + i * 40 * WEFT_NS_PER_US);
        if (led[i]) {
            weft_leader_leave(&o->leader, weft_clock_now_ns(), false);
        }
    }
    bool hurry = o->leader.hurry;
    pthread_mutex_unlock(&o->lock); /* before an assertion may fail: the teardown locks it */
    assert_true(led[0] && led[1] && led[2]);
    assert_false(led[3]);
    assert_true(hurry);
    await_steps(o, 1);
}

enum { WAITERS = 4, TURNS = 300 };

static void *take_turns(void *arg)
{
    struct owner *o = arg;
    for (uint32_t i = 0; i < TURNS; i++) {
        take(o, later_ns);
        pthread_mutex_unlock(&o->lock);
        lead_once(o);
        pthread_mutex_lock(&o->lock);
        leave(o, i % 7 == 0);
        if (i % 50 == 49) {
            pause_us(1500); /* the thread leads in between */
        }
    }
    return NULL;
}

/* Two leaders never run at a time, and every waiter gets its result. */
static void several_waiters_and_the_thread_take_turns(void **state)
{
    struct owner *o = *state;
    pthread_t waiter[WAITERS];
    for (uint32_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_create(&waiter[i], NULL, take_turns, o), 0);
    }
    for (uint32_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiter[i], NULL), 0);
    }
    await_steps(o, 3);
    assert_int_equal(atomic_load(&o->together), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_thread_leads_until_it_is_asked),
        TEST(the_thread_sleeps_while_waits_follow_each_other),
        TEST(long_waits_do_not_wake_the_thread),
        TEST(a_begin_does_not_take_the_hurry_with_it),
        TEST(what_is_left_to_do_wakes_the_thread),
        TEST(a_begin_leads_where_waits_follow_soon),
        TEST(begins_that_no_wait_follows_are_the_threads),
        TEST(several_waiters_and_the_thread_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
