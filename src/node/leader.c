#include "node/leader.h"

#include "base/assert.h"
#include "base/units.h"
#include "io/clock.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* The grace period: longer than the time between two consecutive operations of a program, and short
 * for peers that wait for an answer of this endpoint while its program computes. */
static const uint64_t grace_ns = 500 * WEFT_NS_PER_US;

/* A wait within this time after its begin counts as soon. */
static const uint64_t soon_ns = 100 * WEFT_NS_PER_US;

enum { SOON_NEED = 4 };

weft_status weft_leader_init(struct weft_leader *leader, pthread_mutex_t *lock,
                             pthread_cond_t *changed)
{
    *leader = (struct weft_leader){
        .lock = lock, .changed = changed, .who = WEFT_LEADS_THREAD, .looks_ns = WEFT_NEVER};
    leader->turn_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return leader->turn_fd >= 0 ? WEFT_OK : WEFT_IO;
}

void weft_leader_fini(struct weft_leader *leader)
{
    if (leader->turn_fd >= 0) {
        close(leader->turn_fd);
    }
}

/* ---- the timer ------------------------------------------------------------------------------- */

/* Setting it forgets an expiry that the thread has not read. So it is postponed or stopped only
 * while there is no work for the thread. */
static void timer_set(struct weft_leader *leader, uint64_t at_ns)
{
    struct itimerspec spec = {0};
    if (at_ns != WEFT_NEVER) {
        spec.it_value.tv_sec = (time_t)(at_ns / WEFT_NS_PER_S);
        spec.it_value.tv_nsec = (long)(at_ns % WEFT_NS_PER_S);
    }
    int rc = timerfd_settime(leader->turn_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    WEFT_ASSERT(rc == 0); /* fails only for wrong arguments */
    leader->looks_ns = at_ns;
}

static void wake(struct weft_leader *leader)
{
    timer_set(leader, 1); /* in the past */
}

/* Without the lock until the timer has expired. */
static void sleep_until_turn(struct weft_leader *leader)
{
    uint64_t count;
    pthread_mutex_unlock(leader->lock);
    while (read(leader->turn_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    pthread_mutex_lock(leader->lock);
    leader->looks_ns = WEFT_NEVER;
    leader->sleeps++;
}

/* ---- the lead -------------------------------------------------------------------------------- */

/* True: no thread leads, and the endpoint's thread should. */
static bool is_due(const struct weft_leader *leader)
{
    return leader->hurry || weft_clock_now_ns() >= leader->left_ns + grace_ns;
}

void weft_leader_thread(struct weft_leader *leader, const uint32_t *open)
{
    if (leader->who == WEFT_LEADS_THREAD && leader->wanted > 0) {
        leader->who = WEFT_LEADS_NOBODY;
        leader->left_ns = weft_clock_now_ns();
        pthread_cond_broadcast(leader->changed);
    }
    while (leader->who != WEFT_LEADS_THREAD) {
        if (leader->who == WEFT_LEADS_NOBODY && is_due(leader)) {
            leader->who = WEFT_LEADS_THREAD;
            leader->soon = *open > 0 ? 0 : leader->soon; /* no thread waits for the operations that
                                                          * have begun */
        } else {
            if (leader->who == WEFT_LEADS_NOBODY && leader->looks_ns == WEFT_NEVER) {
                timer_set(leader, leader->left_ns + grace_ns);
            }
            sleep_until_turn(leader);
        }
    }
    leader->hurry = false;
}

bool weft_leader_begin(struct weft_leader *leader, uint32_t open, uint64_t now_ns)
{
    if (open == 1 || leader->begun_ns == 0) {
        leader->begun_ns = now_ns;
    } else if (now_ns - leader->begun_ns >= soon_ns) {
        leader->soon =
            0; /* otherwise such operations would extend the grace period without limit */
    }
    if (leader->who != WEFT_LEADS_NOBODY) {
        return false;
    }
    if (leader->soon < SOON_NEED) {
        weft_leader_hurry(leader);
        return false;
    }
    leader->who = WEFT_LEADS_WAITER;
    leader->hurry = false; /* as in weft_leader_take; otherwise leave would not wake a thread that
                            * has found this leader and sleeps again */
    return true;
}

bool weft_leader_take(struct weft_leader *leader, uint64_t now_ns)
{
    leader->soon += leader->soon < SOON_NEED && now_ns - leader->begun_ns < soon_ns;
    leader->begun_ns = 0;
    if (leader->who != WEFT_LEADS_NOBODY) {
        return false;
    }
    leader->who = WEFT_LEADS_WAITER;
    leader->hurry = false; /* the leader does the work */
    leader->taken_ns = now_ns;
    if (leader->was_long && leader->looks_ns != WEFT_NEVER) {
        timer_set(leader, WEFT_NEVER);
    }
    return true;
}

void weft_leader_leave(struct weft_leader *leader, uint64_t now_ns, bool more)
{
    leader->who = WEFT_LEADS_NOBODY;
    leader->left_ns = now_ns;
    if (leader->taken_ns != 0) {
        leader->was_long = now_ns - leader->taken_ns >= grace_ns;
        leader->taken_ns = 0;
    }
    if (more) {
        weft_leader_hurry(leader);
    } else if (leader->looks_ns > now_ns + grace_ns) {
        timer_set(leader, now_ns + grace_ns);
    }
}

void weft_leader_hurry(struct weft_leader *leader)
{
    if (leader->who == WEFT_LEADS_NOBODY && !leader->hurry) {
        leader->hurry = true;
        wake(leader);
    }
}
