/* Which thread progresses an endpoint that has a thread of its own: that thread, or one that waits
 * for an operation on the endpoint (the leader/followers pattern).
 *
 * Why: a caller that waits while the endpoint's thread works must wake that thread to send, and is
 *      woken by it at the end: two context switches for each operation. So the waiter leads: it
 *      progresses the endpoint itself until its operation is done. The thread sleeps meanwhile, and
 *      for a grace period after that, because a caller that waits for an operation usually starts
 *      the next one soon.
 *
 *   - A waiter leads immediately when no thread leads. When the endpoint's thread leads, the waiter
 *     requests the lead. When another waiter leads, it waits for its result, or until that one
 *     gives up the lead.
 *   - A thread that begins an operation while no thread leads makes one step itself, so that the
 *     operation is started. Where waits do not follow begins soon, the endpoint's thread is woken
 *     instead, so that the operation overlaps with computing.
 *   - The endpoint's thread leads when no thread has led for the grace period, and immediately when
 *     there is work for it.
 *   - The thread sleeps on a timer, because the timer can be set and stopped without waking the
 *     thread. A waiter that gives up the lead sets it to the end of the grace period. The next one
 *     stops it, if the last one led for long; otherwise it rarely expires before it would be set
 *     again. When the thread slept on a condition, each operation longer than the grace period woke
 *     it three to four times, and it then competed with the leader for a processor.
 *
 * The lead is passed under the owner's lock, so the leader's data needs no lock.
 *
 * Thread:  weft_leader_thread: the endpoint's own. All others: any. Call all with the lock held,
 *          except init and fini.
 */
#ifndef WEFT_NODE_LEADER_H
#define WEFT_NODE_LEADER_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum weft_leads { WEFT_LEADS_NOBODY, WEFT_LEADS_THREAD, WEFT_LEADS_WAITER };

struct weft_leader {
    pthread_mutex_t *lock;   /* the owner's */
    pthread_cond_t *changed; /* waiters sleep on it; broadcast when the lead is free for them */
    int turn_fd;             /* timer; the endpoint's thread sleeps on it */
    enum weft_leads who;
    uint32_t wanted;   /* waiters that have requested the lead from the thread */
    bool hurry;        /* no grace period */
    uint64_t left_ns;  /* no thread has led since then */
    uint64_t looks_ns; /* when the timer expires, or has expired; WEFT_NEVER = it is stopped */
    uint64_t taken_ns; /* a waiter leads since then; 0 = none, or for one step only */
    bool was_long;     /* the last one led for as long as a grace period */
    uint32_t sleeps;   /* of the thread, that have ended */
    uint64_t begun_ns; /* time of the first begin without a wait after it; 0 = none */
    uint32_t soon;     /* consecutive waits that followed a begin soon */
};

/* The thread leads.
 *
 * Owns:    borrows lock and changed until fini, which is allowed after an error, too.
 * Errors:  WEFT_IO  no timer; errno says why. */
weft_status weft_leader_init(struct weft_leader *leader, pthread_mutex_t *lock,
                             pthread_cond_t *changed);
void weft_leader_fini(struct weft_leader *leader);

/* Before each step of the thread: give the lead to waiters that request it, and return when the
 * thread leads again.   open: operations begun and not waited for, read with the lock held. */
void weft_leader_thread(struct weft_leader *leader, const uint32_t *open);

/* An operation has begun, and `open` are now open. True: no thread leads, so the caller does, for
 * one step without sleep. */
bool weft_leader_begin(struct weft_leader *leader, uint32_t open, uint64_t now_ns);

/* For a wait. True: the caller leads now. */
bool weft_leader_take(struct weft_leader *leader, uint64_t now_ns);

/* The caller gives up the lead. more: it leaves work undone. */
void weft_leader_leave(struct weft_leader *leader, uint64_t now_ns, bool more);

/* There is work for the endpoint's thread, if no thread leads. */
void weft_leader_hurry(struct weft_leader *leader);

#endif
