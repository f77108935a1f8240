/* Who drives an endpoint that has a thread of its own: that thread, or one that waits for what the
 * endpoint brings (the leader/followers pattern).
 *
 * Why: a thread that waits while another one receives for it has woken that one to send, and is woken
 * by it at the end: two switches of threads for an operation. So the waiter leads: it drives the
 * endpoint itself until it has what it waits for. The thread sleeps meanwhile, and for a grace period
 * after that, since a caller that waits for an operation usually starts the next one soon.
 *
 *   - A waiter leads immediately when nobody does. When the thread does, it is asked for the lead.
 *     When another waiter does, one waits for the result, or until that one leaves.
 *   - Who begins something while nobody leads takes one step itself, so that it is started. Where
 *     waits do not follow begins soon, the thread is woken instead: it is to overlap with computing.
 *   - The thread leads when nobody has for the grace period, and immediately when there is work for
 *     it.
 *
 * The lead changes hands under the owner's lock, so what belongs to the leader needs no lock.
 *
 * Thread:  weft_leader_thread: the endpoint's own. All else: any. Behind the lock, but init and fini.
 */
#ifndef WEFT_NODE_LEADER_H
#define WEFT_NODE_LEADER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum weft_leads { WEFT_LEADS_NOBODY, WEFT_LEADS_THREAD, WEFT_LEADS_WAITER };

struct weft_leader {
    pthread_mutex_t *lock;   /* the owner's */
    pthread_cond_t *changed; /* what waiters sleep on: broadcast when the lead is free for them */
    pthread_cond_t turn;     /* what the thread sleeps on */
    enum weft_leads who;
    uint32_t wanted;   /* waiters who have asked the thread for the lead */
    bool hurry;        /* no grace period */
    uint64_t left_ns;  /* since then nobody leads */
    uint64_t looks_ns; /* when the thread looks by itself; WEFT_NEVER = when it is signalled */
    uint64_t begun_ns; /* the first begin of those that no wait has followed; 0 = none */
    uint32_t soon;     /* waits that followed a begin soon, in a row */
};

/* The thread leads.   Owns:  borrows lock and changed until fini. */
void weft_leader_init(struct weft_leader *leader, pthread_mutex_t *lock, pthread_cond_t *changed);
void weft_leader_fini(struct weft_leader *leader);

/* Before each step of the thread: give the lead to waiters who want it, and return when it is the
 * thread's again.   open: operations begun and not waited for, looked at behind the lock. */
void weft_leader_thread(struct weft_leader *leader, const uint32_t *open);

/* Something is begun, which makes `open` of them. True: nobody leads, so the caller does, for one step
 * that does not sleep. */
bool weft_leader_begin(struct weft_leader *leader, uint32_t open, uint64_t now_ns);

/* For a wait. True: the caller leads now. */
bool weft_leader_take(struct weft_leader *leader, uint64_t now_ns);

/* The caller ends to lead. more: there is work that it has not done. */
void weft_leader_leave(struct weft_leader *leader, uint64_t now_ns, bool more);

/* There is work for the thread, if nobody leads. */
void weft_leader_hurry(struct weft_leader *leader);

#endif
