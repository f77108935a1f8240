#include "node/box_link.h"

#include "base/assert.h"
#include "io/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum state { IDLE, SUMMING, ENDED };

struct weft_box_link {
    struct weft_box_link_config config;
    struct weft_dense_link *dense;
    pthread_t thread;
    bool started;
    atomic_bool stopping; /* the sum in progress */
    atomic_bool closing;
    atomic_int state; /* enum state; changed with the lock held */
    atomic_uint_least64_t sums, resent;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Of the sum: written by its owner before SUMMING, `end` by the thread before ENDED. */
    const void *in;
    void *out;
    uint64_t count;
    uint64_t *direct;
    uint64_t timeout_ns;
    struct weft_box_link_end end;
};

uint32_t weft_box_link_epoch_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const time_t before = now.tv_sec;
    while (now.tv_sec == before) { /* a signal may end a sleep */
        const struct timespec left = {.tv_nsec = (long)WEFT_NS_PER_S - now.tv_nsec - 1};
        (void)nanosleep(&left, NULL);
        (void)clock_gettime(CLOCK_REALTIME, &now);
    }
    return (uint32_t)now.tv_sec;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void publish(struct weft_box_link *link)
{
    const struct weft_agg_member_counters *c = &weft_dense_link_member(link->dense)->counters;
    atomic_store_explicit(&link->sums, c->sums, memory_order_relaxed);
    atomic_store_explicit(&link->resent, c->resent_timeout + c->resent_early,
                          memory_order_relaxed);
}

static bool is_stopped(void *arg)
{
    struct weft_box_link *link = arg;
    const struct weft_dense_link_config *dense = &link->config.dense;
    publish(link);
    return atomic_load(&link->stopping) || atomic_load(&link->closing) ||
           (dense->is_stopped != NULL && dense->is_stopped(dense->arg));
}

static void sum(struct weft_box_link *link)
{
    struct weft_box_link_end *end = &link->end;
    end->error.text[0] = '\0';
    end->status = weft_dense_link_sum(link->dense, link->in, link->out, link->count, link->direct,
                                      link->timeout_ns, &end->error);
    end->at_ns = weft_clock_now_ns();
    publish(link);
}

static void *run(void *arg)
{
    struct weft_box_link *link = arg;
    weft_clock_timers_exact();
    pthread_mutex_lock(&link->lock);
    while (!atomic_load(&link->closing)) {
        if (atomic_load(&link->state) != SUMMING) {
            pthread_cond_wait(&link->changed, &link->lock);
            continue;
        }
        pthread_mutex_unlock(&link->lock);
        sum(link);
        pthread_mutex_lock(&link->lock);
        atomic_store(&link->state, ENDED);
        pthread_cond_broadcast(&link->changed);
        pthread_mutex_unlock(&link->lock);
        if (link->config.ended != NULL) {
            link->config.ended(link->config.arg);
        }
        pthread_mutex_lock(&link->lock);
    }
    pthread_mutex_unlock(&link->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The program's signals are for its own threads. */
static int create_thread(struct weft_box_link *link)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&link->thread, NULL, run, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

weft_status weft_box_link_open(const struct weft_box_link_config *config,
                               struct weft_box_link **link_p, struct weft_error *error)
{
    struct weft_box_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a member");
    }
    link->config = *config;
    int rc = pthread_mutex_init(&link->lock, NULL);
    rc = rc != 0 ? rc : pthread_cond_init(&link->changed, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these do not fail */
    struct weft_dense_link_config dense = config->dense;
    dense.is_stopped = is_stopped;
    dense.arg = link;
    weft_status status = weft_dense_link_open(&dense, &link->dense, error);
    if (status == WEFT_OK) {
        rc = create_thread(link);
        link->started = rc == 0;
        status = rc == 0 ? WEFT_OK
                         : weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(rc));
    }
    if (status != WEFT_OK) {
        weft_box_link_close(link);
        return status;
    }
    *link_p = link;
    return WEFT_OK;
}

void weft_box_link_close(struct weft_box_link *link)
{
    if (link == NULL) {
        return;
    }
    if (link->started) {
        pthread_mutex_lock(&link->lock);
        atomic_store(&link->closing, true);
        pthread_cond_broadcast(&link->changed);
        pthread_mutex_unlock(&link->lock);
        int rc = pthread_join(link->thread, NULL);
        WEFT_ASSERT(rc == 0);
    }
    weft_dense_link_close(link->dense);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

/* ---- the owner ------------------------------------------------------------------------------- */

void weft_box_link_epoch(struct weft_box_link *link, uint32_t epoch)
{
    struct weft_agg_member *member = weft_dense_link_member(link->dense);
    WEFT_ASSERT(atomic_load(&link->state) == IDLE);
    weft_agg_member_epoch(member, epoch, member->config.exponent);
}

void weft_box_link_begin(struct weft_box_link *link, const void *in, void *out, uint64_t count,
                         uint64_t *direct, uint64_t timeout_ns)
{
    WEFT_ASSERT(atomic_load(&link->state) == IDLE);
    pthread_mutex_lock(&link->lock);
    link->in = in;
    link->out = out;
    link->count = count;
    link->direct = direct;
    link->timeout_ns = timeout_ns;
    atomic_store(&link->stopping, false);
    atomic_store(&link->state, SUMMING);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

void weft_box_link_stop(struct weft_box_link *link)
{
    atomic_store(&link->stopping, true);
}

static bool take_end(struct weft_box_link *link, struct weft_box_link_end *end_p)
{
    if (atomic_load(&link->state) != ENDED) {
        return false;
    }
    *end_p = link->end;
    atomic_store(&link->state, IDLE);
    return true;
}

bool weft_box_link_poll(struct weft_box_link *link, struct weft_box_link_end *end_p)
{
    if (atomic_load(&link->state) != ENDED) {
        return false;
    }
    pthread_mutex_lock(&link->lock);
    bool ended = take_end(link, end_p);
    pthread_mutex_unlock(&link->lock);
    return ended;
}

void weft_box_link_wait(struct weft_box_link *link, struct weft_box_link_end *end_p)
{
    pthread_mutex_lock(&link->lock);
    while (!take_end(link, end_p)) {
        pthread_cond_wait(&link->changed, &link->lock);
    }
    pthread_mutex_unlock(&link->lock);
}

void weft_box_link_counters(const struct weft_box_link *link,
                            struct weft_box_link_counters *counters_p)
{
    counters_p->sums = atomic_load_explicit(&link->sums, memory_order_relaxed);
    counters_p->resent = atomic_load_explicit(&link->resent, memory_order_relaxed);
}

const struct weft_agg_member *weft_box_link_member(const struct weft_box_link *link)
{
    return weft_dense_link_member(link->dense);
}
