/* Waiting: a thread that waits for an operation leads the endpoint until the operation is done, or
 * follows the leader (node/leader.h).
 */
#include "node/coll_thread_internal.h"

#include <errno.h>
#include <unistd.h>

void weft_coll_thread_leave(struct weft_coll_thread *t)
{
    weft_leader_leave(&t->leader, weft_clock_now_ns(), atomic_load(&t->has_work));
    if (t->waiters > 0) {
        pthread_cond_broadcast(&t->changed); /* one of them leads */
    }
}

/* Sleep until the condition is broadcast; false at end_ns. With the lock held. */
bool weft_coll_thread_wait_changed(struct weft_coll_thread *t, uint64_t end_ns)
{
    int rc = 0;
    t->waiters++;
    if (end_ns == WEFT_NEVER) {
        rc = pthread_cond_wait(&t->changed, &t->lock);
    } else {
        struct timespec end = {.tv_sec = (time_t)(end_ns / WEFT_NS_PER_S),
                               .tv_nsec = (long)(end_ns % WEFT_NS_PER_S)};
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &end);
    }
    t->waiters--;
    return rc != ETIMEDOUT;
}

static void take_done(struct weft_coll_thread *t, uint32_t i, struct weft_coll_done *done_p)
{
    struct coll_slot *p = &t->slot[i];
    uint64_t count;
    *done_p = p->done;
    if (p->is_offered) {
        p->is_offered = false;
        coll_queue_remove(t, &t->done, i);
        if (t->fd >= 0 && t->done.head == COLL_NONE) {
            (void)!read(t->fd, &count, sizeof(count));
        }
    }
    p->state = SLOT_FREE;
    p->life++;
    p->waiters = 0; /* other threads that wait for the same operation find it gone */
    p->next = t->free_head;
    t->free_head = i;
    t->open_ops--;
    t->internal_ops -= p->is_internal;
    if (t->open_ops > t->internal_ops) {
        return;
    }
    if (t->waiters > 0) { /* no operation is left for callers of wait_any */
        pthread_cond_broadcast(&t->changed);
    }
    if (t->leader.who == WEFT_LEADS_WAITER) {
        weft_driver_wake(t->driver);
    }
}

/* The slot of a done operation with this id; COLL_NONE, and WEFT_AGAIN or WEFT_NOTFOUND. */
static uint32_t find_done(const struct weft_coll_thread *t, uint64_t id, weft_status *status_p)
{
    uint32_t i = id == WEFT_COLL_THREAD_ANY ? t->done.head : (uint32_t)id;
    if (id == WEFT_COLL_THREAD_ANY) {
        bool any = t->open_ops > t->internal_ops;
        *status_p = i != COLL_NONE ? WEFT_OK : any ? WEFT_AGAIN : WEFT_NOTFOUND;
        return i;
    }
    bool known =
        i < t->config.coll.ops_max && t->slot[i].life == id >> 32 && t->slot[i].state != SLOT_FREE;
    *status_p = !known ? WEFT_NOTFOUND : t->slot[i].state == SLOT_DONE ? WEFT_OK : WEFT_AGAIN;
    return i;
}

/* Progress until find_done may succeed, or until end_ns (false). With the lock held, which is
 * released meanwhile. */
static bool lead(struct weft_coll_thread *t, uint64_t id, uint64_t end_ns)
{
    weft_status status;
    bool in_time;
    do {
        pthread_mutex_unlock(&t->lock);
        weft_coll_thread_step(t, end_ns);
        in_time = end_ns == WEFT_NEVER || weft_clock_now_ns() < end_ns;
        pthread_mutex_lock(&t->lock);
        (void)find_done(t, id, &status);
    } while (status == WEFT_AGAIN && in_time);
    weft_coll_thread_leave(t);
    return in_time;
}

/* If the endpoint's thread leads, request the lead; sleep until a result may be there, or the lead
 * is free. */
static bool follow(struct weft_coll_thread *t, uint64_t end_ns)
{
    bool asks = t->leader.who == WEFT_LEADS_THREAD;
    if (asks && t->leader.wanted++ == 0) {
        weft_driver_wake(t->driver);
    }
    bool in_time = weft_coll_thread_wait_changed(t, end_ns);
    t->leader.wanted -= asks;
    return in_time;
}

/* Returns when find_done may succeed, or false at end_ns. With the lock held. */
static bool wait_done(struct weft_coll_thread *t, uint64_t id, uint32_t i, uint64_t end_ns)
{
    struct coll_slot *p = id != WEFT_COLL_THREAD_ANY ? &t->slot[i] : NULL;
    uint32_t life = p != NULL ? p->life : 0;
    if (p != NULL) {
        p->waiters++;
    }
    bool leads = weft_leader_take(&t->leader, weft_clock_now_ns());
    bool in_time = leads ? lead(t, id, end_ns) : follow(t, end_ns);
    if (p != NULL) {
        p->waiters -= p->life == life;
    }
    return in_time;
}

weft_status weft_coll_thread_wait(struct weft_coll_thread *t, uint64_t id, uint64_t until_ns,
                                  uint64_t *id_p, struct weft_coll_done *done_p)
{
    weft_status status;
    bool in_time = until_ns > 0;
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* a leader must give up the lead */
    pthread_mutex_lock(&t->lock);
    uint32_t i = find_done(t, id, &status);
    while (status == WEFT_AGAIN && in_time) {
        in_time = wait_done(t, id, i, until_ns);
        i = find_done(t, id, &status);
    }
    if (status == WEFT_OK) {
        *id_p = coll_id_of(t, i);
        take_done(t, i, done_p);
    }
    pthread_mutex_unlock(&t->lock);
    pthread_setcancelstate(before, NULL);
    return status == WEFT_AGAIN ? WEFT_TIMEOUT : status;
}
