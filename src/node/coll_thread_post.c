/* Posting: beginning operations, and requests to the leader.
 *
 * Both are queues under the lock. When no thread leads, the caller may make one step itself, so
 * that its operation is started when it returns (node/leader.h).
 */
#include "node/coll_thread_internal.h"

#include <stdio.h>
#include <sys/eventfd.h>

/* ---- requests -------------------------------------------------------------------------------- */

void weft_coll_thread_wake(struct weft_coll_thread *t)
{
    bool had_work = atomic_exchange(&t->has_work, true);
    if (t->leader.who == WEFT_LEADS_NOBODY) {
        weft_leader_hurry(&t->leader);
    } else if (!had_work) {
        weft_driver_wake(t->driver);
    }
}

void weft_coll_thread_request(struct weft_coll_thread *t,
                              void (*what)(struct weft_coll_thread *, void *), void *arg)
{
    struct coll_request request = {.run = what, .arg = arg};
    pthread_mutex_lock(&t->lock);
    *t->requests_end = &request;
    t->requests_end = &request.next;
    weft_coll_thread_wake(t);
    while (!request.is_done) {
        (void)weft_coll_thread_wait_changed(t, WEFT_NEVER);
    }
    pthread_mutex_unlock(&t->lock);
}

struct group_request {
    const uint32_t *ranks;
    uint32_t n;
    uint32_t *group_p;
    weft_status status;
};

static void make_group(struct weft_coll_thread *t, void *arg)
{
    struct group_request *r = arg;
    r->status = weft_coll_group(t->coll, r->ranks, r->n, r->group_p);
}

weft_status weft_coll_thread_group(struct weft_coll_thread *t, const uint32_t *ranks, uint32_t n,
                                   uint32_t *group_p, struct weft_error *error)
{
    struct group_request r = {.ranks = ranks, .n = n, .group_p = group_p};
    weft_coll_thread_request(t, make_group, &r);
    switch (r.status) {
    case WEFT_OK:
        return WEFT_OK;
    case WEFT_NOMEM:
        return weft_fail(error, r.status, "groups_max is %u, and so many exist; raise it",
                         t->config.coll.groups_max);
    default:
        return weft_fail(error, r.status,
                         "the ranks of a group must be below %u, each named once, at least one",
                         t->config.coll.ranks);
    }
}

static void read_counters(struct weft_coll_thread *t, void *arg)
{
    struct weft_coll_thread_counters *counters_p = arg;
    counters_p->coll = *weft_coll_counters(t->coll);
    weft_driver_counters(t->driver, &counters_p->driver);
    weft_coll_thread_box_counters(t, counters_p);
}

void weft_coll_thread_counters(struct weft_coll_thread *t,
                               struct weft_coll_thread_counters *counters_p)
{
    weft_coll_thread_request(t, read_counters, counters_p);
}

static void fail(struct weft_coll_thread *t, void *arg)
{
    weft_coll_abort(t->coll, arg, weft_clock_now_ns());
}

void weft_coll_thread_abort(struct weft_coll_thread *t, const char *text)
{
    char copy[COLL_FAILURE_BYTES];
    snprintf(copy, sizeof(copy), "%s", text);
    weft_coll_thread_request(t, fail, copy);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Start the queued operations. With the lock held, which is released meanwhile. */
static void start(struct weft_coll_thread *t)
{
    int before;
    if (!weft_leader_begin(&t->leader, t->open_ops, weft_clock_now_ns())) {
        weft_coll_thread_wake(t);
        return;
    }
    atomic_store(&t->has_work, true);
    pthread_mutex_unlock(&t->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    weft_coll_thread_step(t, 0);
    pthread_setcancelstate(before, NULL);
    pthread_mutex_lock(&t->lock);
    weft_coll_thread_leave(t);
}

static weft_status post(struct weft_coll_thread *t, const struct weft_coll_call *call,
                        bool is_internal, uint64_t *id_p)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&t->lock);
    uint32_t i = t->free_head;
    if (t->failed) {
        status = WEFT_PEER;
    } else if (i == COLL_NONE) {
        status = WEFT_AGAIN;
    } else {
        struct coll_slot *p = &t->slot[i];
        t->free_head = p->next;
        p->state = SLOT_QUEUED;
        p->call = *call;
        p->is_internal = is_internal;
        *id_p = coll_id_of(t, i);
        coll_queue_add(t, &t->queued, i);
        t->open_ops++;
        t->internal_ops += is_internal;
        start(t);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

weft_status weft_coll_thread_begin(struct weft_coll_thread *t, const struct weft_coll_call *call,
                                   uint64_t *id_p)
{
    return post(t, call, false, id_p);
}

weft_status weft_coll_thread_begin_internal(struct weft_coll_thread *t,
                                            const struct weft_coll_call *call, uint64_t *id_p)
{
    return post(t, call, true, id_p);
}

uint32_t weft_coll_thread_open_ops(struct weft_coll_thread *t)
{
    pthread_mutex_lock(&t->lock);
    uint32_t ops = t->open_ops;
    pthread_mutex_unlock(&t->lock);
    return ops;
}

weft_status weft_coll_thread_fd(struct weft_coll_thread *t, int *fd_p)
{
    pthread_mutex_lock(&t->lock);
    if (t->fd < 0) {
        t->fd = eventfd(t->done.head != COLL_NONE ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
    *fd_p = t->fd;
    pthread_mutex_unlock(&t->lock);
    return *fd_p >= 0 ? WEFT_OK : WEFT_IO;
}

bool weft_coll_thread_failed(struct weft_coll_thread *t, char *text_p, size_t bytes)
{
    pthread_mutex_lock(&t->lock);
    bool failed = t->failed;
    if (failed) {
        snprintf(text_p, bytes, "%s", t->failure);
    }
    pthread_mutex_unlock(&t->lock);
    return failed;
}
