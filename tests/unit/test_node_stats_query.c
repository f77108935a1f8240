/* Queries to a thread that owns an object: answered in time or not at all; and the copy that is
 * kept if the owner may not poll. */
#include "node/stats_query.h"

#include "base/units.h"
#include "io/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Long enough never to expire in the test. */
static const uint64_t long_ns = 120 * WEFT_NS_PER_S;

static void pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_nsec = (long)(ms * WEFT_NS_PER_MS)};
    (void)nanosleep(&pause, NULL);
}

/* ---- an owner in a thread -------------------------------------------------------------------- */

struct owner {
    struct weft_stats_query query;
    pthread_t thread;
    pthread_mutex_t lock; /* the owner sleeps on a condition, and only `wake` ends the sleep */
    pthread_cond_t woken;
    unsigned wakes;
    atomic_bool stop;
    uint64_t value; /* the owner's */
};

static void wake(void *arg)
{
    struct owner *owner = arg;
    pthread_mutex_lock(&owner->lock);
    owner->wakes++;
    pthread_cond_signal(&owner->woken);
    pthread_mutex_unlock(&owner->lock);
}

static void *own(void *arg)
{
    struct owner *owner = arg;
    unsigned seen = 0;
    while (!atomic_load(&owner->stop)) {
        pthread_mutex_lock(&owner->lock);
        while (owner->wakes == seen) {
            pthread_cond_wait(&owner->woken, &owner->lock);
        }
        seen = owner->wakes;
        pthread_mutex_unlock(&owner->lock);
        owner->value++;
        weft_stats_query_poll(&owner->query, owner);
    }
    weft_stats_query_close(&owner->query);
    return NULL;
}

static void copy_value(void *arg, void *object)
{
    *(uint64_t *)arg = ((struct owner *)object)->value;
}

static void owner_start(struct owner *owner)
{
    *owner = (struct owner){.lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};
    weft_stats_query_init(&owner->query,
                          &(struct weft_stats_query_config){.wake = wake, .wake_arg = owner});
    weft_stats_query_open(&owner->query);
    assert_int_equal(pthread_create(&owner->thread, NULL, own, owner), 0);
}

static void owner_stop(struct owner *owner)
{
    atomic_store(&owner->stop, true);
    wake(owner);
    pthread_join(owner->thread, NULL);
}

static void every_question_is_answered_by_the_owner(void **state)
{
    (void)state;
    static struct owner owner;
    uint64_t last = 0, value = 0;
    owner_start(&owner);
    for (int i = 0; i < 1000; i++) {
        assert_true(weft_stats_query_ask(&owner.query, copy_value, &value, long_ns));
        assert_true(value > last);
        last = value;
    }
    owner_stop(&owner);
    /* The owner is gone, so the query does not wait. */
    assert_false(weft_stats_query_ask(&owner.query, copy_value, &value, long_ns));
    assert_int_equal(value, last);
    weft_stats_query_fini(&owner.query);
}

/* ---- an owner that does not come by, which is the test itself -------------------------------- */

static void count(void *arg, void *object)
{
    (void)object;
    ++*(uint64_t *)arg;
}

static void a_question_that_is_late_is_not_run(void **state)
{
    (void)state;
    struct weft_stats_query query;
    uint64_t runs = 0;
    weft_stats_query_init(&query, &(struct weft_stats_query_config){.copy = NULL});
    assert_false(weft_stats_query_ask(&query, count, &runs, long_ns)); /* not open yet */
    weft_stats_query_open(&query);
    assert_false(weft_stats_query_ask(&query, count, &runs, WEFT_NS_PER_MS));
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(runs, 0);
    weft_stats_query_close(&query);
    weft_stats_query_fini(&query);
}

static void a_copy_is_kept_for_an_owner_that_is_away(void **state)
{
    (void)state;
    struct weft_stats_query query;
    uint64_t copies = 0;
    weft_stats_query_init(&query, &(struct weft_stats_query_config){
                                      .copy = count, .stats = &copies, .period_ns = WEFT_NS_PER_MS});
    weft_stats_query_open(&query);
    pause_ms(2);
    /* No copy is made before the first query. */
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(copies, 0);
    assert_true(weft_stats_query_acquire(&query, WEFT_NS_PER_MS) >= WEFT_NS_PER_MS);
    /* The owner does not wait for a reader. */
    pause_ms(2);
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(copies, 0);
    weft_stats_query_release(&query);
    /* After a query that timed out, the next one does not wait. */
    uint64_t began_ns = weft_clock_now_ns();
    (void)weft_stats_query_acquire(&query, long_ns);
    weft_stats_query_release(&query);
    assert_true(weft_clock_now_ns() - began_ns < long_ns / 2);
    /* The owner polls again: from now on it makes copies without queries. */
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(copies, 1);
    assert_false(query.was_missed);
    pause_ms(2);
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(copies, 2);
    weft_stats_query_fini(&query);
}

static void a_copy_that_is_fresh_is_not_made_again(void **state)
{
    (void)state;
    struct weft_stats_query query;
    uint64_t copies = 0;
    weft_stats_query_init(&query, &(struct weft_stats_query_config){
                                      .copy = count, .stats = &copies, .period_ns = long_ns});
    weft_stats_query_open(&query);
    assert_true(weft_stats_query_acquire(&query, long_ns) < long_ns);
    weft_stats_query_release(&query);
    weft_stats_query_poll(&query, NULL);
    assert_int_equal(copies, 0);
    weft_stats_query_fini(&query);
}

/* ---- a fork in the middle of a question ------------------------------------------------------ */

static void *ask_for_copy(void *arg)
{
    (void)weft_stats_query_acquire(arg, long_ns);
    weft_stats_query_release(arg);
    return NULL;
}

/* The forked process can poll and close, although the thread that waits in the parent does not
 * exist there. */
static void a_fork_while_somebody_waits(void **state)
{
    (void)state;
    struct weft_stats_query query;
    uint64_t copies = 0;
    pthread_t thread;
    int status;
    weft_stats_query_init(&query,
                          &(struct weft_stats_query_config){.copy = count, .stats = &copies});
    weft_stats_query_open(&query);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_copy, &query), 0);
    while (!atomic_load(&query.asked)) {
        pause_ms(10);
    }
    pause_ms(10); /* usually it waits by then; otherwise the test checks less */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(60);
        weft_stats_query_poll(&query, NULL);
        weft_stats_query_close(&query);
        weft_stats_query_fini(&query);
        _exit(copies == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    while (atomic_load(&query.asked)) {
        weft_stats_query_poll(&query, NULL);
    }
    pthread_join(thread, NULL);
    assert_int_equal(copies, 1);
    weft_stats_query_fini(&query);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_question_is_answered_by_the_owner),
        cmocka_unit_test(a_question_that_is_late_is_not_run),
        cmocka_unit_test(a_copy_is_kept_for_an_owner_that_is_away),
        cmocka_unit_test(a_copy_that_is_fresh_is_not_made_again),
        cmocka_unit_test(a_fork_while_somebody_waits),
    };
    return cmocka_run_group_tests_name("node/stats_query", tests, NULL, NULL);
}
