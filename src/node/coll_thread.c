#include "node/coll_thread.h"

#include "base/assert.h"
#include "io/clock.h"
#include "node/leader.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    NONE = UINT32_MAX,
    CHUNKS_MAX = 65536,
    FAILURE_BYTES = 800,
    PEERS_SPARE = 8, /* of an earlier start of the job, say, until they are refused */
};

static const size_t kept_bytes_max = 64 << 20; /* of one block that is kept */

enum place_state { PLACE_FREE, PLACE_QUEUED, PLACE_OPEN, PLACE_DONE };

/* Of one operation, from begin until it has been waited for. */
struct place {
    enum place_state state;
    uint32_t life;
    uint32_t waiters; /* for this operation: one of them takes it, and nobody who waits for any */
    bool is_offered;  /* in done */
    uint32_t next;    /* in its queue */
    struct weft_coll_call call;
    struct weft_coll_done done;
    uint32_t block; /* the thread's: index, or NONE */
};

/* What calls need beyond their buffers. */
struct block {
    void *memory;
    size_t bytes;
    bool used;
};

struct queue {
    uint32_t head, tail;
};

/* Something to do on the thread, for someone who waits. */
struct request {
    void (*run)(struct weft_coll_thread *thread, void *arg);
    void *arg;
    bool is_done;
    struct request *next;
};

/* Where a rank is reached. */
struct dial {
    struct weft_launch_address address;
    weft_peer peer; /* the connection that is being made; NONE */
};

struct weft_coll_thread {
    /* Of who leads: the thread, or one that waits. */
    struct weft_coll_thread_config config;
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_coll *coll;
    struct weft_msgr msgr;
    struct block *block; /* (ops_max,) */
    struct dial *dial;   /* (ranks,) */
    bool links_changed;  /* since publish */
    uint64_t stop_ns;    /* of a stop after a failure: the others are told until then */

    pthread_t thread;
    uint16_t port;
    atomic_bool stopping;
    atomic_bool has_work; /* queued or requests have something */

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    struct weft_leader leader;
    uint32_t waiters;    /* that sleep on changed */
    struct place *place; /* (ops_max,) */
    uint32_t free_head;
    struct queue queued, done;
    uint32_t open_ops; /* begun, and not waited for */
    struct request *requests, **requests_end;
    int fd; /* eventfd; -1 = nobody has asked */
    bool is_joining;
    uint64_t join_end_ns; /* connections that do not come about are tried again until then */
    uint32_t ranks_up;
    bool failed; /* and failure says why */
    char failure[FAILURE_BYTES];
};

void weft_coll_thread_config_default(struct weft_coll_thread_config *config_p)
{
    *config_p = (struct weft_coll_thread_config){.security = NULL};
    weft_coll_config_default(&config_p->coll);
    weft_driver_config_default(&config_p->driver);
    config_p->driver.udp.ep.chunks_max = CHUNKS_MAX;
    config_p->driver.udp.ep.keepalive_ns = WEFT_NS_PER_S;
    config_p->driver.udp.busy_poll_us = WEFT_COLL_THREAD_BUSY_POLL_US;
}

/* ---- queues of places, under the lock -------------------------------------------------------- */

static void queue_add(struct weft_coll_thread *t, struct queue *q, uint32_t i)
{
    t->place[i].next = NONE;
    if (q->head == NONE) {
        q->head = i;
    } else {
        t->place[q->tail].next = i;
    }
    q->tail = i;
}

static uint32_t queue_take(struct weft_coll_thread *t, struct queue *q)
{
    uint32_t i = q->head;
    if (i != NONE) {
        q->head = t->place[i].next;
    }
    return i;
}

static void queue_remove(struct weft_coll_thread *t, struct queue *q, uint32_t i)
{
    uint32_t before = NONE;
    for (uint32_t at = q->head; at != i; at = t->place[at].next) {
        before = at;
    }
    if (before == NONE) {
        q->head = t->place[i].next;
    } else {
        t->place[before].next = t->place[i].next;
    }
    q->tail = q->tail == i ? before : q->tail;
}

static uint64_t id_of(const struct weft_coll_thread *t, uint32_t i)
{
    return (uint64_t)t->place[i].life << 32 | i;
}

/* ---- the thread: what operations need -------------------------------------------------------- */

static uint32_t block_take(struct weft_coll_thread *t, size_t bytes)
{
    uint32_t best = NONE; /* the least that is long enough; else the longest, to be made longer */
    for (uint32_t i = 0; i < t->config.coll.ops_max; i++) {
        const struct block *b = &t->block[i];
        if (b->used) {
            continue;
        }
        size_t has = best != NONE ? t->block[best].bytes : 0;
        bool fits = b->bytes >= bytes;
        bool better = has >= bytes ? fits && b->bytes < has : fits || b->bytes > has;
        best = best == NONE || better ? i : best;
    }
    WEFT_ASSERT(best != NONE); /* a block for each place */
    struct block *b = &t->block[best];
    if (b->bytes < bytes) {
        free(b->memory);
        size_t rounded = weft_div_ceil_u64(bytes, WEFT_COLL_ALIGN) * WEFT_COLL_ALIGN;
        b->memory = aligned_alloc(WEFT_COLL_ALIGN, rounded);
        b->bytes = b->memory != NULL ? rounded : 0;
    }
    b->used = b->bytes >= bytes;
    return b->used ? best : NONE;
}

static void block_give(struct weft_coll_thread *t, uint32_t i)
{
    if (i == NONE) {
        return;
    }
    struct block *b = &t->block[i];
    b->used = false;
    if (b->bytes > kept_bytes_max) {
        free(b->memory);
        *b = (struct block){.memory = NULL};
    }
}

/* ---- the thread: what it tells the others ---------------------------------------------------- */

static void set_done(struct weft_coll_thread *t, uint32_t i, const struct weft_coll_done *done)
{
    const uint64_t one = 1;
    struct place *p = &t->place[i];
    p->state = PLACE_DONE;
    p->done = *done;
    p->done.user = p->call.user;
    if (p->waiters > 0) {
        return; /* waking the thread that polls the eventfd, too, would cost the waiter its processor */
    }
    if (t->fd >= 0 && t->done.head == NONE) {
        (void)!write(t->fd, &one, sizeof(one));
    }
    p->is_offered = true;
    queue_add(t, &t->done, i);
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
    bool any = weft_coll_poll(t->coll, &done);
    bool fails = !t->failed && weft_coll_failure(t->coll)->reason != WEFT_COLL_FINE;
    if (!any && !t->links_changed && !fails) { /* failed is written by who leads alone */
        return;
    }
    t->links_changed = false;
    pthread_mutex_lock(&t->lock);
    for (; any; any = weft_coll_poll(t->coll, &done)) {
        uint32_t i = (uint32_t)done.user;
        block_give(t, t->place[i].block);
        set_done(t, i, &done);
    }
    t->ranks_up = weft_coll_ranks_up(t->coll);
    note_failure(t);
    if (t->waiters > 0) {
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the thread: what it is told ------------------------------------------------------------- */

/* A call that this rank cannot begin leaves the others waiting for it, so they are told. */
static weft_status begin(struct weft_coll_thread *t, struct place *p, uint32_t i, uint64_t now_ns)
{
    struct weft_coll_call call = p->call;
    size_t bytes = weft_coll_work_bytes(t->coll, &call);
    p->block = NONE;
    if (bytes > 0) {
        p->block = block_take(t, bytes);
        call.work = p->block != NONE ? t->block[p->block].memory : NULL;
    }
    call.user = i;
    weft_status status =
        bytes > 0 && p->block == NONE ? WEFT_NOMEM : weft_coll_begin(t->coll, &call, now_ns);
    if (status == WEFT_OK) {
        return status;
    }
    WEFT_ASSERT(status != WEFT_AGAIN); /* a place for each of ops_max */
    block_give(t, p->block);
    p->block = NONE;
    if (status != WEFT_PEER) {
        weft_coll_abort(t->coll, weft_status_text(status), now_ns);
    }
    return status;
}

static void take_begun(struct weft_coll_thread *t, uint64_t now_ns)
{
    for (;;) {
        pthread_mutex_lock(&t->lock);
        uint32_t i = queue_take(t, &t->queued);
        if (i != NONE) {
            t->place[i].state = PLACE_OPEN; /* this thread's from now on, until it is done */
        }
        pthread_mutex_unlock(&t->lock);
        if (i == NONE) {
            return;
        }
        weft_status status = begin(t, &t->place[i], i, now_ns);
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
        struct request *r = t->requests;
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

/* ---- the thread: connections ----------------------------------------------------------------- */

static uint32_t dialled(const struct weft_coll_thread *t, weft_peer peer)
{
    for (uint32_t r = 0; r < t->config.coll.rank; r++) {
        if (t->dial[r].peer == peer) {
            return r;
        }
    }
    return NONE;
}

/* A connection that did not come about, and will not. */
static void not_connected(struct weft_coll_thread *t, uint32_t rank, const char *why)
{
    const struct dial *d = &t->dial[rank];
    pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        snprintf(t->failure, sizeof(t->failure), "no connection with rank %u at %s:%u: %s", rank,
                 d->address.host, d->address.port, why);
        t->failed = true;
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Nobody may have listened yet; then once more. */
static void dial_again(struct weft_coll_thread *t, uint32_t rank, uint64_t now_ns)
{
    struct dial *d = &t->dial[rank];
    pthread_mutex_lock(&t->lock);
    bool again = now_ns < t->join_end_ns;
    pthread_mutex_unlock(&t->lock);
    if (again && weft_driver_connect(t->driver, d->address.host, d->address.port, &d->peer, NULL) !=
                     WEFT_OK) {
        d->peer = NONE;
    }
}

static void on_dialled_down(struct weft_coll_thread *t, uint32_t rank, enum weft_msg_down down,
                            uint64_t now_ns)
{
    t->dial[rank].peer = NONE;
    switch (down) {
    case WEFT_DOWN_CLOSED:
    case WEFT_DOWN_REPLACED:
        not_connected(t, rank, "it closed the connection; its own output says why");
        break;
    case WEFT_DOWN_PROTOCOL:
        not_connected(t, rank, "it broke the protocol; run the same weft version everywhere");
        break;
    case WEFT_DOWN_CRYPTO:
        not_connected(t, rank, "the cryptography of this process failed");
        break;
    case WEFT_DOWN_SILENT:
    case WEFT_DOWN_LOCAL:
    case WEFT_DOWN_IDLE:
    case WEFT_DOWN_RESTARTED:
        dial_again(t, rank, now_ns);
        break;
    }
}

static void on_dialled_up(struct weft_coll_thread *t, uint32_t rank, uint64_t name)
{
    t->dial[rank].peer = NONE;
    if (name != weft_coll_name(t->config.coll.epoch, rank)) {
        not_connected(
            t, rank,
            "what answers there is another rank, or of another start of the job; see that "
            "the addresses are in the order of the ranks, and that all ranks have the same "
            "epoch");
    }
}

static void on_event(struct weft_coll_thread *t, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    if (event->type != WEFT_EVENT_PEER_UP && event->type != WEFT_EVENT_PEER_DOWN) {
        return;
    }
    t->links_changed = true;
    uint32_t rank = dialled(t, event->peer);
    if (rank == NONE) {
        return;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        on_dialled_down(t, rank, event->down, now_ns);
    } else {
        on_dialled_up(t, rank, event->name);
    }
}

/* ---- the thread: its loop -------------------------------------------------------------------- */

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_coll_thread *t = arg;
    struct weft_msg_event event;
    take_work(t, now_ns);
    while (t->msgr.ops->poll(t->msgr.self, &event)) {
        weft_coll_event(t->coll, &event, now_ns);
        on_event(t, &event, now_ns);
    }
    if (now_ns >= weft_coll_deadline(t->coll)) {
        weft_coll_on_deadline(t->coll, now_ns);
    }
    weft_coll_progress(t->coll, now_ns);
    publish(t);
}

static void close_refused(struct weft_coll_thread *t)
{
    weft_peer peer;
    while (weft_coll_take_close(t->coll, &peer)) {
        weft_driver_disconnect(t->driver, peer);
    }
}

/* After a failure the others are told before it ends. */
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

/* Of who leads: sleep until something happens, at the longest until end_ns (0 = not at all), and do it. */
static void step(struct weft_coll_thread *t, uint64_t end_ns)
{
    uint64_t until_ns = weft_min_u64(end_ns, weft_coll_deadline(t->coll));
    uint64_t now_ns = until_ns == WEFT_NEVER ? 0 : weft_clock_now_ns();
    uint64_t sleep_ns = until_ns == WEFT_NEVER ? WEFT_NEVER
                        : until_ns > now_ns    ? until_ns - now_ns
                                               : 0;
    (void)weft_driver_step(t->driver, atomic_load(&t->has_work) ? 0 : sleep_ns, handle, t);
    close_refused(t);
}

static void *run(void *arg)
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
        step(t, t->stop_ns);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* There is work for who leads, or for the thread. Behind the lock. */
static void wake(struct weft_coll_thread *t)
{
    bool had_work = atomic_exchange(&t->has_work, true);
    if (t->leader.who == WEFT_LEADS_NOBODY) {
        weft_leader_hurry(&t->leader);
    } else if (!had_work) {
        weft_driver_wake(t->driver);
    }
}

/* The caller, who leads, leaves. Behind the lock. */
static void leave(struct weft_coll_thread *t)
{
    weft_leader_leave(&t->leader, weft_clock_now_ns(), atomic_load(&t->has_work));
    if (t->waiters > 0) {
        pthread_cond_broadcast(&t->changed); /* one of them leads */
    }
}

/* Returns when what was broadcast may matter, or false at end_ns. Behind the lock. */
static bool wait_changed(struct weft_coll_thread *t, uint64_t end_ns)
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

static void ask(struct weft_coll_thread *t, void (*what)(struct weft_coll_thread *, void *),
                void *arg)
{
    struct request request = {.run = what, .arg = arg};
    pthread_mutex_lock(&t->lock);
    *t->requests_end = &request;
    t->requests_end = &request.next;
    wake(t);
    while (!request.is_done) {
        (void)wait_changed(t, WEFT_NEVER);
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
    ask(t, make_group, &r);
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
}

void weft_coll_thread_counters(struct weft_coll_thread *t,
                               struct weft_coll_thread_counters *counters_p)
{
    ask(t, read_counters, counters_p);
}

static void fail(struct weft_coll_thread *t, void *arg)
{
    weft_coll_abort(t->coll, arg, weft_clock_now_ns());
}

void weft_coll_thread_abort(struct weft_coll_thread *t, const char *text)
{
    char copy[FAILURE_BYTES];
    snprintf(copy, sizeof(copy), "%s", text);
    ask(t, fail, copy);
}

/* ---- joining --------------------------------------------------------------------------------- */

struct join_request {
    const struct weft_launch_address *addresses;
    struct weft_error *error;
    weft_status status;
};

static void connect_all(struct weft_coll_thread *t, void *arg)
{
    struct join_request *r = arg;
    r->status = WEFT_OK;
    for (uint32_t i = 0; i < t->config.coll.rank && r->status == WEFT_OK; i++) {
        struct dial *d = &t->dial[i];
        if (d->peer != NONE || weft_coll_rank_is_up(t->coll, i)) {
            continue;
        }
        d->address = r->addresses[i];
        struct weft_error why;
        r->status =
            weft_driver_connect(t->driver, d->address.host, d->address.port, &d->peer, &why);
        if (r->status != WEFT_OK) {
            d->peer = NONE;
            (void)weft_fail(r->error, r->status, "rank %u at %s:%u: %s", i, d->address.host,
                            d->address.port, why.text);
        }
    }
}

struct missing_request {
    char ranks[160]; /* "1, 2, 5" */
    uint32_t count;
    uint64_t refused; /* connections */
    char hint[WEFT_SECURITY_HINT_BYTES];
};

static void find_missing(struct weft_coll_thread *t, void *arg)
{
    struct missing_request *m = arg;
    size_t used = 0;
    for (uint32_t i = 0; i < t->config.coll.ranks; i++) {
        if (i == t->config.coll.rank || weft_coll_rank_is_up(t->coll, i)) {
            continue;
        }
        const char *form = m->count == 0 ? "%u" : ", %u";
        m->count++;
        if (used + 16 < sizeof(m->ranks)) {
            used += (size_t)snprintf(m->ranks + used, sizeof(m->ranks) - used, form, i);
        } else if (m->ranks[used - 1] != '.') {
            used += (size_t)snprintf(m->ranks + used, sizeof(m->ranks) - used, ", ...");
        }
    }
    m->refused = weft_coll_counters(t->coll)->peers_refused;
    enum weft_ep_hint hint = weft_driver_hint(t->driver);
    if (hint != WEFT_HINT_NONE) {
        weft_security_hint(t->config.security, hint, m->hint, sizeof(m->hint));
    } else {
        weft_driver_unreached(t->driver, m->hint);
    }
}

static weft_status not_in_time(struct weft_coll_thread *t, uint64_t timeout_ns,
                               struct weft_error *error)
{
    struct missing_request m = {.count = 0};
    ask(t, find_missing, &m);
    if (m.refused > 0 && m.hint[0] == '\0') {
        snprintf(m.hint, sizeof(m.hint),
                 "%" PRIu64 " connections were refused: their processes have another epoch, or "
                 "the rank of a process that is connected",
                 m.refused);
    }
    return weft_fail(error, WEFT_TIMEOUT,
                     "after %.1f s %u of %u ranks are not connected with rank %u: %s%s%s; see that "
                     "they were started and reach each other's addresses",
                     (double)timeout_ns / 1e9, m.count, t->config.coll.ranks, t->config.coll.rank,
                     m.ranks, m.hint[0] != '\0' ? ". " : "", m.hint);
}

weft_status weft_coll_thread_join(struct weft_coll_thread *t,
                                  const struct weft_launch_address *addresses, uint64_t timeout_ns,
                                  struct weft_error *error)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    pthread_mutex_lock(&t->lock);
    bool other = t->is_joining;
    if (!other) {
        t->is_joining = true;
        t->join_end_ns = end_ns;
    }
    pthread_mutex_unlock(&t->lock);
    if (other) {
        return weft_fail(error, WEFT_STATE, "another thread is joining already");
    }
    struct join_request r = {.addresses = addresses, .error = error};
    ask(t, connect_all, &r);
    pthread_mutex_lock(&t->lock);
    bool in_time = true;
    while (r.status == WEFT_OK && t->ranks_up < t->config.coll.ranks && !t->failed && in_time) {
        in_time = wait_changed(t, end_ns);
    }
    t->is_joining = false;
    t->join_end_ns = 0;
    bool all = t->ranks_up == t->config.coll.ranks, failed = t->failed;
    pthread_mutex_unlock(&t->lock);
    if (r.status != WEFT_OK) {
        return r.status;
    }
    if (failed) {
        return weft_fail(error, WEFT_PEER, "%s", t->failure);
    }
    return all ? WEFT_OK : not_in_time(t, timeout_ns, error);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Have what is queued begun. Behind the lock, which is released meanwhile. */
static void start(struct weft_coll_thread *t)
{
    int before;
    if (!weft_leader_begin(&t->leader, t->open_ops, weft_clock_now_ns())) {
        wake(t);
        return;
    }
    atomic_store(&t->has_work, true);
    pthread_mutex_unlock(&t->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    step(t, 0);
    pthread_setcancelstate(before, NULL);
    pthread_mutex_lock(&t->lock);
    leave(t);
}

weft_status weft_coll_thread_begin(struct weft_coll_thread *t, const struct weft_coll_call *call,
                                   uint64_t *id_p)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&t->lock);
    uint32_t i = t->free_head;
    if (t->failed) {
        status = WEFT_PEER;
    } else if (i == NONE) {
        status = WEFT_AGAIN;
    } else {
        struct place *p = &t->place[i];
        t->free_head = p->next;
        p->state = PLACE_QUEUED;
        p->call = *call;
        *id_p = id_of(t, i);
        queue_add(t, &t->queued, i);
        t->open_ops++;
        start(t);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

static void take_done(struct weft_coll_thread *t, uint32_t i, struct weft_coll_done *done_p)
{
    struct place *p = &t->place[i];
    uint64_t count;
    *done_p = p->done;
    if (p->is_offered) {
        p->is_offered = false;
        queue_remove(t, &t->done, i);
        if (t->fd >= 0 && t->done.head == NONE) {
            (void)!read(t->fd, &count, sizeof(count));
        }
    }
    p->state = PLACE_FREE;
    p->life++;
    p->waiters = 0; /* who waits for the same one still finds it gone */
    p->next = t->free_head;
    t->free_head = i;
    t->open_ops--;
    if (t->open_ops > 0) {
        return;
    }
    if (t->waiters > 0) { /* no operation is left for callers of wait_any */
        pthread_cond_broadcast(&t->changed);
    }
    if (t->leader.who == WEFT_LEADS_WAITER) {
        weft_driver_wake(t->driver);
    }
}

/* The place of a done operation with this id; NONE, and WEFT_AGAIN or WEFT_NOTFOUND. */
static uint32_t find_done(const struct weft_coll_thread *t, uint64_t id, weft_status *status_p)
{
    uint32_t i = id == WEFT_COLL_THREAD_ANY ? t->done.head : (uint32_t)id;
    if (id == WEFT_COLL_THREAD_ANY) {
        *status_p = i != NONE ? WEFT_OK : t->open_ops > 0 ? WEFT_AGAIN : WEFT_NOTFOUND;
        return i;
    }
    bool known = i < t->config.coll.ops_max && t->place[i].life == id >> 32 &&
                 t->place[i].state != PLACE_FREE;
    *status_p = !known ? WEFT_NOTFOUND : t->place[i].state == PLACE_DONE ? WEFT_OK : WEFT_AGAIN;
    return i;
}

/* Drive until there is something for find_done, or until end_ns. False: the latter. Behind the lock,
 * which is released meanwhile. */
static bool lead(struct weft_coll_thread *t, uint64_t id, uint64_t end_ns)
{
    weft_status status;
    bool in_time;
    do {
        pthread_mutex_unlock(&t->lock);
        step(t, end_ns);
        in_time = end_ns == WEFT_NEVER || weft_clock_now_ns() < end_ns;
        pthread_mutex_lock(&t->lock);
        (void)find_done(t, id, &status);
    } while (status == WEFT_AGAIN && in_time);
    leave(t);
    return in_time;
}

/* Sleep until a result may be there, or the lead is free, which the thread is asked for. */
static bool follow(struct weft_coll_thread *t, uint64_t end_ns)
{
    bool asks = t->leader.who == WEFT_LEADS_THREAD;
    if (asks && t->leader.wanted++ == 0) {
        weft_driver_wake(t->driver);
    }
    bool in_time = wait_changed(t, end_ns);
    t->leader.wanted -= asks;
    return in_time;
}

/* Returns when find_done is worth a look, or false at end_ns. Behind the lock. */
static bool wait_done(struct weft_coll_thread *t, uint64_t id, uint32_t i, uint64_t end_ns)
{
    struct place *p = id != WEFT_COLL_THREAD_ANY ? &t->place[i] : NULL;
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
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* who leads must leave */
    pthread_mutex_lock(&t->lock);
    uint32_t i = find_done(t, id, &status);
    while (status == WEFT_AGAIN && in_time) {
        in_time = wait_done(t, id, i, until_ns);
        i = find_done(t, id, &status);
    }
    if (status == WEFT_OK) {
        *id_p = id_of(t, i);
        take_done(t, i, done_p);
    }
    pthread_mutex_unlock(&t->lock);
    pthread_setcancelstate(before, NULL);
    return status == WEFT_AGAIN ? WEFT_TIMEOUT : status;
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
        t->fd = eventfd(t->done.head != NONE ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
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

/* ---- life ------------------------------------------------------------------------------------ */

uint16_t weft_coll_thread_port(const struct weft_coll_thread *t)
{
    return t->port;
}

static void release(struct weft_coll_thread *t)
{
    weft_driver_close(t->driver); /* it borrows what operations have, so it goes first */
    weft_provider_free(t->provider);
    weft_coll_free(t->coll);
    for (uint32_t i = 0; t->block != NULL && i < t->config.coll.ops_max; i++) {
        free(t->block[i].memory);
    }
    if (t->fd >= 0) {
        close(t->fd);
    }
    weft_leader_fini(&t->leader);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->block);
    free(t->dial);
    free(t->place);
    free(t);
}

static weft_status take_memory(struct weft_coll_thread *t)
{
    const struct weft_coll_config *c = &t->config.coll;
    t->place = calloc(c->ops_max, sizeof(*t->place));
    t->block = calloc(c->ops_max, sizeof(*t->block));
    t->dial = calloc(c->ranks, sizeof(*t->dial));
    if (t->place == NULL || t->block == NULL || t->dial == NULL) {
        return WEFT_NOMEM;
    }
    t->free_head = NONE;
    for (uint32_t i = c->ops_max; i-- > 0;) {
        t->place[i].life = 1;
        t->place[i].block = NONE;
        t->place[i].next = t->free_head;
        t->free_head = i;
    }
    for (uint32_t r = 0; r < c->ranks; r++) {
        t->dial[r].peer = NONE;
    }
    t->queued.head = t->done.head = NONE;
    return WEFT_OK;
}

static void init_sleeping(struct weft_coll_thread *t)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&t->changed, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&t->lock, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
    weft_leader_init(&t->leader, &t->lock, &t->changed);
}

static weft_status open_driver(struct weft_coll_thread *t, struct weft_error *error)
{
    struct weft_driver_config armed = t->config.driver;
    struct weft_ep_config *ep = &armed.udp.ep;
    struct weft_coll_config *c = &t->config.coll;
    ep->name = weft_coll_name(c->epoch, c->rank);
    ep->accept = 1;
    ep->peers_max = c->ranks + PEERS_SPARE;
    ep->expects_max = WEFT_COLL_EXPECTS;
    ep->senders_expected = (uint16_t)weft_max_u64(c->ranks - 1, 1);
    c->peers_max = ep->peers_max;
    c->chunks_max = ep->chunks_max;
    weft_status status = weft_security_arm(t->config.security, &armed.udp, &t->provider, error);
    status = status == WEFT_OK ? weft_driver_open(&armed, &t->driver, error) : status;
    weft_security_disarm(&armed.udp);
    return status;
}

static weft_status open_all(struct weft_coll_thread *t, struct weft_error *error)
{
    weft_status status = open_driver(t, error);
    if (status != WEFT_OK) {
        return status;
    }
    t->msgr = weft_driver_msgr(t->driver);
    t->port = weft_driver_port(t->driver);
    status = weft_coll_new(&t->config.coll, t->msgr, &t->coll);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "cannot make the collectives of rank %u of %u: %s",
                         t->config.coll.rank, t->config.coll.ranks, weft_status_text(status));
    }
    t->ranks_up = weft_coll_ranks_up(t->coll);
    return WEFT_OK;
}

/* The program's signals are for its own threads. */
static int create_thread(struct weft_coll_thread *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

weft_status weft_coll_thread_start(const struct weft_coll_thread_config *config,
                                   struct weft_coll_thread **thread_p, struct weft_error *error)
{
    struct weft_coll_thread *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for collectives");
    }
    t->config = *config;
    t->fd = -1;
    t->stop_ns = WEFT_NEVER;
    t->requests_end = &t->requests;
    init_sleeping(t);
    weft_status status = take_memory(t);
    if (status != WEFT_OK) {
        (void)weft_fail(error, status, "no memory for %u operations of %u ranks",
                        config->coll.ops_max, config->coll.ranks);
    } else {
        status = open_all(t, error);
    }
    if (status != WEFT_OK) {
        release(t);
        return status;
    }
    int rc = create_thread(t);
    if (rc != 0) {
        release(t);
        return weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(rc));
    }
    *thread_p = t;
    return WEFT_OK;
}

void weft_coll_thread_stop(struct weft_coll_thread *thread)
{
    if (thread == NULL) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    atomic_store(&thread->stopping, true);
    weft_leader_hurry(&thread->leader);
    pthread_mutex_unlock(&thread->lock);
    weft_driver_wake(thread->driver);
    int rc = pthread_join(thread->thread, NULL);
    WEFT_ASSERT(rc == 0);
    release(thread);
}
