/* Progress: one step of the leader, and the loop of the endpoint's own thread.
 *
 * A step takes the queued operations and requests, passes the transport's events to the state
 * machine, lets it make progress, and publishes the results. All of it runs in the leader, without
 * the lock except where it uses slots, requests and results.
 */
#include "node/coll_thread_internal.h"

#include <stdlib.h>
#include <unistd.h>

static const size_t kept_bytes_max = 64 << 20; /* of one block that is kept */

/* ---- the leader: memory of operations -------------------------------------------------------- */

static uint32_t block_take(struct weft_coll_thread *t, size_t bytes)
{
    uint32_t best =
        COLL_NONE; /* the smallest that is large enough; otherwise the largest, to be enlarged */
    for (uint32_t i = 0; i < t->config.coll.ops_max; i++) {
        const struct coll_block *b = &t->block[i];
        if (b->used) {
            continue;
        }
        size_t has = best != COLL_NONE ? t->block[best].bytes : 0;
        bool fits = b->bytes >= bytes;
        bool better = has >= bytes ? fits && b->bytes < has : fits || b->bytes > has;
        best = best == COLL_NONE || better ? i : best;
    }
    WEFT_ASSERT(best != COLL_NONE); /* a block for each slot */
    struct coll_block *b = &t->block[best];
    if (b->bytes < bytes) {
        free(b->memory);
        size_t rounded = weft_div_ceil_u64(bytes, WEFT_COLL_ALIGN) * WEFT_COLL_ALIGN;
        b->memory = aligned_alloc(WEFT_COLL_ALIGN, rounded);
        b->bytes = b->memory != NULL ? rounded : 0;
    }
    b->used = b->bytes >= bytes;
    return b->used ? best : COLL_NONE;
}

static void block_give(struct weft_coll_thread *t, uint32_t i)
{
    if (i == COLL_NONE) {
        return;
    }
    struct coll_block *b = &t->block[i];
    b->used = false;
    if (b->bytes > kept_bytes_max) {
        free(b->memory);
        *b = (struct coll_block){.memory = NULL};
    }
}

/* ---- the leader: publishing results ---------------------------------------------------------- */

static void set_done(struct weft_coll_thread *t, uint32_t i, const struct weft_coll_done *done)
{
    const uint64_t one = 1;
    struct coll_slot *p = &t->slot[i];
    p->state = SLOT_DONE;
    p->done = *done;
    p->done.user = p->call.user;
    if (p->waiters > 0 || p->is_internal) {
        return; /* the thread that polls the eventfd is not woken: it would compete with the waiter
                 * for a processor */
    }
    if (t->fd >= 0 && t->done.head == COLL_NONE) {
        (void)!write(t->fd, &one, sizeof(one));
    }
    p->is_offered = true;
    coll_queue_add(t, &t->done, i);
}

static void note_failure(struct weft_coll_thread *t)
{
    const struct weft_coll_failure *f = weft_coll_failure(t->coll);
    if (!t->failed && f->reason != WEFT_COLL_FINE) {
        weft_coll_failure_text(f, t->failure, sizeof(t->failure));
        t->failed = true;
    }
}

static void publish(struct weft_coll_thread *t)
{
    struct weft_coll_done done;
    bool any = weft_coll_thread_poll(t, &done);
    bool fails = !t->failed && weft_coll_failure(t->coll)->reason != WEFT_COLL_FINE;
    if (!any && !t->links_changed && !fails) { /* only the leader writes failed */
        return;
    }
    t->links_changed = false;
    pthread_mutex_lock(&t->lock);
    for (; any; any = weft_coll_thread_poll(t, &done)) {
        uint32_t i = (uint32_t)done.user;
        block_give(t, t->slot[i].block);
        set_done(t, i, &done);
    }
    t->ranks_met = weft_coll_ranks_met(t->coll);
    note_failure(t);
    if (t->waiters > 0) {
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the leader: operations and requests ----------------------------------------------------- */

/* If this rank cannot begin a call, the other ranks would wait for it, so they are notified. */
static weft_status begin(struct weft_coll_thread *t, struct coll_slot *p, uint32_t i,
                         uint64_t now_ns)
{
    struct weft_coll_call call = p->call;
    size_t bytes = weft_coll_thread_work_bytes(t, &call);
    p->block = COLL_NONE;
    if (bytes > 0) {
        p->block = block_take(t, bytes);
        call.work = p->block != COLL_NONE ? t->block[p->block].memory : NULL;
    }
    call.user = i;
    weft_status status =
        bytes > 0 && p->block == COLL_NONE ? WEFT_NOMEM : weft_coll_thread_call(t, &call, now_ns);
    if (status == WEFT_OK) {
        return status;
    }
    WEFT_ASSERT(status != WEFT_AGAIN); /* a slot for each of ops_max */
    block_give(t, p->block);
    p->block = COLL_NONE;
    if (status != WEFT_PEER) {
        weft_coll_abort(t->coll, weft_status_text(status), now_ns);
    }
    return status;
}

static void take_begun(struct weft_coll_thread *t, uint64_t now_ns)
{
    for (;;) {
        pthread_mutex_lock(&t->lock);
        uint32_t i = coll_queue_take(t, &t->queued);
        if (i != COLL_NONE) {
            t->slot[i].state = SLOT_OPEN; /* used by this thread only until it is done */
        }
        pthread_mutex_unlock(&t->lock);
        if (i == COLL_NONE) {
            return;
        }
        weft_status status = begin(t, &t->slot[i], i, now_ns);
        if (status != WEFT_OK) {
            pthread_mutex_lock(&t->lock);
            note_failure(t);
            set_done(t, i, &(struct weft_coll_done){.status = status});
            pthread_cond_broadcast(&t->changed);
            pthread_mutex_unlock(&t->lock);
        }
    }
}

static void take_requests(struct weft_coll_thread *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->requests != NULL) {
        struct coll_request *r = t->requests;
        t->requests = r->next;
        if (t->requests == NULL) {
            t->requests_end = &t->requests;
        }
        pthread_mutex_unlock(&t->lock);
        r->run(t, r->arg);
        pthread_mutex_lock(&t->lock);
        r->is_done = true;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
}

static void take_work(struct weft_coll_thread *t, uint64_t now_ns)
{
    if (!atomic_load(&t->has_work)) {
        return;
    }
    atomic_store(&t->has_work, false);
    take_begun(t, now_ns);
    take_requests(t);
}

/* ---- the thread: its loop -------------------------------------------------------------------- */

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_coll_thread *t = arg;
    struct weft_msg_event event;
    take_work(t, now_ns);
    while (t->msgr.ops->poll(t->msgr.self, &event)) {
        weft_coll_event(t->coll, &event, now_ns);
        weft_coll_thread_on_event(t, &event, now_ns);
    }
    if (now_ns >= weft_coll_deadline(t->coll)) {
        weft_coll_on_deadline(t->coll, now_ns);
    }
    weft_coll_thread_progress(t, now_ns);
    publish(t);
}

static void close_refused(struct weft_coll_thread *t)
{
    weft_peer peer;
    while (weft_coll_take_close(t->coll, &peer)) {
        weft_driver_disconnect(t->driver, peer);
    }
}

/* After a failure the other ranks are notified before the thread ends. */
static bool may_end(struct weft_coll_thread *t)
{
    if (!atomic_load(&t->stopping)) {
        return false;
    }
    uint64_t now_ns = weft_clock_now_ns();
    if (t->stop_ns == WEFT_NEVER) {
        t->stop_ns = weft_time_add(now_ns, t->config.coll.abort_ns);
    }
    bool failed = weft_coll_failure(t->coll)->reason != WEFT_COLL_FINE;
    return !failed || weft_coll_ranks_up(t->coll) <= 1 || now_ns >= t->stop_ns;
}

void weft_coll_thread_step(struct weft_coll_thread *t, uint64_t end_ns)
{
    uint64_t until_ns = weft_min_u64(end_ns, weft_coll_thread_deadline(t));
    uint64_t now_ns = until_ns == WEFT_NEVER ? 0 : weft_clock_now_ns();
    uint64_t sleep_ns = until_ns == WEFT_NEVER ? WEFT_NEVER
                        : until_ns > now_ns    ? until_ns - now_ns
                                               : 0;
    (void)weft_driver_step(t->driver, atomic_load(&t->has_work) ? 0 : sleep_ns, handle, t);
    close_refused(t);
}

void *weft_coll_thread_run(void *arg)
{
    struct weft_coll_thread *t = arg;
    weft_clock_timers_exact();
    for (;;) {
        pthread_mutex_lock(&t->lock);
        weft_leader_thread(&t->leader, &t->open_ops);
        pthread_mutex_unlock(&t->lock);
        if (may_end(t)) {
            return NULL;
        }
        weft_coll_thread_step(t, t->stop_ns);
    }
}
