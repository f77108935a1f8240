#include "io/udp/delayed_ack.h"

#include "base/assert.h"
#include "io/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum state {
    OWNED,   /* the owner has the endpoint */
    LENT,    /* lent: the owner or the thread may claim it */
    SENDING, /* the thread has it; only while it holds `lock` */
};

struct weft_delayed_ack {
    struct weft_delayed_ack_config config;
    /* Used by the owner only. */
    bool lent;  /* lent, and not reclaimed */
    bool quick; /* the last time, the owner returned within the gap */
    bool has_thread;
    bool no_thread;   /* no thread could be started */
    uint64_t left_ns; /* end of the owner's last step; WEFT_NEVER = it is in a step */
    pthread_t thread;
    pid_t maker; /* process of the thread: a forked process does not have it */

    atomic_int state;
    atomic_uint turn;   /* counts loans: the thread compares it between two checks */
    atomic_bool asleep; /* the thread sleeps, and must be woken */
    atomic_ullong sent;
    bool stopping; /* protected by lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static const uint64_t check_ns = 2 * WEFT_NS_PER_MS;

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_until_next_check(struct weft_delayed_ack *ack)
{
    uint64_t at_ns = weft_clock_now_ns() + check_ns;
    const struct timespec at = {.tv_sec = (time_t)(at_ns / WEFT_NS_PER_S),
                                .tv_nsec = (long)(at_ns % WEFT_NS_PER_S)};
    while (!ack->stopping && pthread_cond_timedwait(&ack->wake, &ack->lock, &at) != ETIMEDOUT) {
        continue;
    }
}

/* Nothing is lent. The owner lends by storing `state` and then reading `asleep`; here the order is
 * the reverse, so at least one of the two sees the other's store. */
static void sleep_until_lent(struct weft_delayed_ack *ack)
{
    atomic_store(&ack->asleep, true);
    while (!ack->stopping && atomic_load(&ack->state) != LENT) {
        pthread_cond_wait(&ack->wake, &ack->lock);
    }
    atomic_store(&ack->asleep, false);
}

/* False when the owner has the endpoint. */
static bool send_delayed(struct weft_delayed_ack *ack)
{
    int expected = LENT;
    if (!atomic_compare_exchange_strong(&ack->state, &expected, SENDING)) {
        return false;
    }
    ack->config.send(ack->config.arg);
    atomic_fetch_add(&ack->sent, 1);
    atomic_store(&ack->state, OWNED);
    return true;
}

static void *watch(void *arg)
{
    struct weft_delayed_ack *ack = arg;
    pthread_mutex_lock(&ack->lock);
    unsigned seen = atomic_load(&ack->turn);
    while (!ack->stopping) {
        sleep_until_next_check(ack);
        unsigned turn = atomic_load(&ack->turn);
        if (turn != seen) {
            seen = turn; /* the owner has made a step since */
        } else if (!ack->stopping && !send_delayed(ack)) {
            sleep_until_lent(ack);
        }
    }
    pthread_mutex_unlock(&ack->lock);
    return NULL;
}

/* The application's signals are for its own threads. */
static bool thread_start(struct weft_delayed_ack *ack)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ack->has_thread = pthread_create(&ack->thread, NULL, watch, ack) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ack->maker = getpid();
    ack->no_thread = !ack->has_thread;
    return ack->has_thread;
}

/* ---- the owner ------------------------------------------------------------------------------- */

bool weft_delayed_ack_pays(struct weft_delayed_ack *ack)
{
    bool pays = ack->quick || ack->config.gap_ns == WEFT_NEVER;
    return pays && !ack->no_thread && (ack->has_thread || thread_start(ack));
}

static void lend(struct weft_delayed_ack *ack)
{
    ack->lent = true;
    atomic_store(&ack->state, LENT);
    if (atomic_load(&ack->asleep)) {
        pthread_mutex_lock(&ack->lock);
        pthread_cond_broadcast(&ack->wake);
        pthread_mutex_unlock(&ack->lock);
    }
}

void weft_delayed_ack_leave(struct weft_delayed_ack *ack, bool lends, uint64_t now_ns)
{
    ack->left_ns = now_ns;
    if (lends) {
        atomic_fetch_add_explicit(&ack->turn, 1, memory_order_relaxed);
        lend(ack);
    }
}

bool weft_delayed_ack_enter(struct weft_delayed_ack *ack)
{
    if (ack == NULL || !ack->lent) {
        return false;
    }
    ack->lent = false;
    int expected = LENT;
    if (!atomic_compare_exchange_strong(&ack->state, &expected, OWNED) && expected == SENDING &&
        getpid() == ack->maker) {
        pthread_mutex_lock(&ack->lock);
        pthread_mutex_unlock(&ack->lock);
    }
    return true;
}

void weft_delayed_ack_exit(struct weft_delayed_ack *ack, bool was_lent)
{
    if (was_lent) {
        lend(ack);
    }
}

void weft_delayed_ack_return(struct weft_delayed_ack *ack, uint64_t now_ns)
{
    (void)weft_delayed_ack_enter(ack);
    if (ack->left_ns != WEFT_NEVER) {
        ack->quick = now_ns - ack->left_ns <= ack->config.gap_ns;
        ack->left_ns = WEFT_NEVER;
    }
}

uint64_t weft_delayed_ack_sent(const struct weft_delayed_ack *ack)
{
    return ack == NULL ? 0 : atomic_load(&ack->sent);
}

/* ---- its message interface ------------------------------------------------------------------- */

static uint32_t delayed_ack_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    uint32_t elems = inner->ops->chunk_elems(inner->self, peer, elem_bytes);
    weft_delayed_ack_exit(ack, was_lent);
    return elems;
}

static weft_status delayed_ack_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                                    uint64_t *seq_p)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    weft_status status = inner->ops->send(inner->self, send, now_ns, seq_p);
    weft_delayed_ack_exit(ack, was_lent);
    return status;
}

static weft_status delayed_ack_pace(void *self, weft_peer peer, uint64_t seq,
                                    const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    weft_status status = inner->ops->pace(inner->self, peer, seq, pace, now_ns);
    weft_delayed_ack_exit(ack, was_lent);
    return status;
}

static weft_status delayed_ack_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    weft_status status = inner->ops->withdraw(inner->self, peer, seq, now_ns);
    weft_delayed_ack_exit(ack, was_lent);
    return status;
}

static weft_status delayed_ack_expect(void *self, const struct weft_msg_expect *expect,
                                      weft_expect_id *id_p)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    weft_status status = inner->ops->expect(inner->self, expect, id_p);
    weft_delayed_ack_exit(ack, was_lent);
    return status;
}

static weft_status delayed_ack_cancel(void *self, weft_expect_id id)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    weft_status status = inner->ops->cancel(inner->self, id);
    weft_delayed_ack_exit(ack, was_lent);
    return status;
}

static void delayed_ack_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    inner->ops->set_user(inner->self, peer, seq, user);
    weft_delayed_ack_exit(ack, was_lent);
}

static void delayed_ack_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    inner->ops->refuse(inner->self, peer, seq);
    weft_delayed_ack_exit(ack, was_lent);
}

static bool delayed_ack_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_delayed_ack *ack = self;
    const struct weft_msgr *inner = &ack->config.inner;
    bool was_lent = weft_delayed_ack_enter(ack);
    bool got = inner->ops->poll(inner->self, event_p);
    weft_delayed_ack_exit(ack, was_lent);
    return got;
}

static const struct weft_msg_ops delayed_ack_ops = {
    .chunk_elems = delayed_ack_chunk_elems,
    .send = delayed_ack_send,
    .pace = delayed_ack_pace,
    .withdraw = delayed_ack_withdraw,
    .expect = delayed_ack_expect,
    .cancel = delayed_ack_cancel,
    .set_user = delayed_ack_set_user,
    .refuse = delayed_ack_refuse,
    .poll = delayed_ack_poll,
};

struct weft_msgr weft_delayed_ack_msgr(struct weft_delayed_ack *ack)
{
    return (struct weft_msgr){.ops = &delayed_ack_ops, .self = ack};
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_delayed_ack_new(const struct weft_delayed_ack_config *config,
                                 struct weft_delayed_ack **ack_p)
{
    struct weft_delayed_ack *ack = calloc(1, sizeof(*ack));
    if (ack == NULL) {
        return WEFT_NOMEM;
    }
    ack->config = *config;
    ack->left_ns = WEFT_NEVER;
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&ack->wake, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&ack->lock, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
    *ack_p = ack;
    return WEFT_OK;
}

void weft_delayed_ack_free(struct weft_delayed_ack *ack)
{
    if (ack == NULL) {
        return;
    }
    (void)weft_delayed_ack_enter(ack);
    if (ack->has_thread && getpid() != ack->maker) {
        free(ack); /* forked: without the thread, destroying its condition would block */
        return;
    }
    if (ack->has_thread) {
        pthread_mutex_lock(&ack->lock);
        ack->stopping = true;
        pthread_cond_broadcast(&ack->wake);
        pthread_mutex_unlock(&ack->lock);
        int rc = pthread_join(ack->thread, NULL);
        WEFT_ASSERT(rc == 0);
    }
    pthread_mutex_destroy(&ack->lock);
    pthread_cond_destroy(&ack->wake);
    free(ack);
}
