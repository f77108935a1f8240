#include "node/stats_query.h"

#include "base/units.h"

#include <errno.h>
#include <time.h>

void weft_stats_query_init(struct weft_stats_query *ask)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ask->lock, NULL);
    pthread_cond_init(&ask->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    atomic_init(&ask->waits, false);
    ask->is_open = false;
    ask->question = NULL;
}

void weft_stats_query_fini(struct weft_stats_query *ask)
{
    pthread_cond_destroy(&ask->changed);
    pthread_mutex_destroy(&ask->lock);
}

void weft_stats_query_open(struct weft_stats_query *ask)
{
    pthread_mutex_lock(&ask->lock);
    ask->is_open = true;
    pthread_mutex_unlock(&ask->lock);
}

void weft_stats_query_close(struct weft_stats_query *ask)
{
    pthread_mutex_lock(&ask->lock);
    ask->is_open = false;
    pthread_cond_broadcast(&ask->changed);
    pthread_mutex_unlock(&ask->lock);
}

void weft_stats_query_run(struct weft_stats_query *ask, void *object)
{
    pthread_mutex_lock(&ask->lock);
    if (ask->question != NULL) {
        ask->question(ask->arg, object);
        ask->question = NULL;
        atomic_store_explicit(&ask->waits, false, memory_order_relaxed);
        pthread_cond_broadcast(&ask->changed);
    }
    pthread_mutex_unlock(&ask->lock);
}

static struct timespec deadline_in(uint64_t timeout_ns)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + timeout_ns;
    at.tv_sec += (time_t)(ns / WEFT_NS_PER_S);
    at.tv_nsec = (long)(ns % WEFT_NS_PER_S);
    return at;
}

/* Put the question down; false when there is no owner. */
static bool put(struct weft_stats_query *ask, weft_stats_query_fn *question, void *arg)
{
    pthread_mutex_lock(&ask->lock);
    bool is_open = ask->is_open;
    if (is_open) {
        ask->question = question;
        ask->arg = arg;
        atomic_store_explicit(&ask->waits, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&ask->lock);
    return is_open;
}

bool weft_stats_query_ask(struct weft_stats_query *ask, weft_stats_query_fn *question, void *arg, void (*wake)(void *arg),
              void *wake_arg, uint64_t timeout_ns)
{
    const struct timespec deadline = deadline_in(timeout_ns);
    if (!put(ask, question, arg)) {
        return false;
    }
    if (wake != NULL) {
        wake(wake_arg);
    }
    pthread_mutex_lock(&ask->lock);
    while (ask->question != NULL && ask->is_open &&
           pthread_cond_timedwait(&ask->changed, &ask->lock, &deadline) != ETIMEDOUT) {
    }
    bool answered = ask->question == NULL;
    ask->question = NULL;
    atomic_store_explicit(&ask->waits, false, memory_order_relaxed);
    pthread_mutex_unlock(&ask->lock);
    return answered;
}
