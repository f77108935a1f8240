#include "node/leader.h"

#include "base/assert.h"
#include "base/units.h"
#include "io/clock.h"

/* The grace period: longer than the time between two consecutive operations of a program, and short
 * for peers that wait for an answer of this endpoint while its program computes. */
static const uint64_t grace_ns = 500 * WEFT_NS_PER_US;

/* A wait within this time after its begin counts as soon. */
static const uint64_t soon_ns = 100 * WEFT_NS_PER_US;

enum { SOON_NEED = 4 };

void weft_leader_init(struct weft_leader *leader, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    *leader = (struct weft_leader){.lock = lock, .changed = changed, .who = WEFT_LEADS_THREAD};
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&leader->turn, &attr);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
}

void weft_leader_fini(struct weft_leader *leader)
{
    pthread_cond_destroy(&leader->turn);
}

/* The thread sleeps until looks_ns, or until woken. It is the only one that sleeps on `turn`, and
 * yet it is woken by broadcast: glibc before 2.41 can lose a signal to a wait that has already
 * ended (https://sourceware.org/bugzilla/show_bug.cgi?id=25847). */
static void sleep_until_turn(struct weft_leader *leader)
{
    if (leader->looks_ns == WEFT_NEVER) {
        pthread_cond_wait(&leader->turn, leader->lock);
        return;
    }
    struct timespec at = {.tv_sec = (time_t)(leader->looks_ns / WEFT_NS_PER_S),
                          .tv_nsec = (long)(leader->looks_ns % WEFT_NS_PER_S)};
    (void)pthread_cond_timedwait(&leader->turn, leader->lock, &at);
}

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
            leader->looks_ns =
                leader->who == WEFT_LEADS_NOBODY ? leader->left_ns + grace_ns : WEFT_NEVER;
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
    return true;
}

void weft_leader_leave(struct weft_leader *leader, uint64_t now_ns, bool more)
{
    leader->who = WEFT_LEADS_NOBODY;
    leader->left_ns = now_ns;
    if (more) {
        weft_leader_hurry(leader);
    } else if (leader->looks_ns > now_ns + grace_ns) {
        pthread_cond_broadcast(&leader->turn);
    }
}

void weft_leader_hurry(struct weft_leader *leader)
{
    if (leader->who == WEFT_LEADS_NOBODY && !leader->hurry) {
        leader->hurry = true;
        pthread_cond_broadcast(&leader->turn);
    }
}
