#include "node/stats_query.h"

#include "base/units.h"
#include "io/clock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

void weft_stats_query_init(struct weft_stats_query *query,
                           const struct weft_stats_query_config *config)
{
    pthread_condattr_t attributes;
    *query = (struct weft_stats_query){
        .config = *config, .taken_ns = weft_clock_now_ns(), .pid = getpid()};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&query->lock, NULL);
    pthread_cond_init(&query->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* In a forked process the thread that holds the lock, or waits, does not exist: locking and
 * destroying would wait for it forever. */
static void set_open(struct weft_stats_query *query, bool is_open)
{
    if (getpid() == query->pid) {
        pthread_mutex_lock(&query->lock);
        query->is_open = is_open;
        pthread_cond_broadcast(&query->changed);
        pthread_mutex_unlock(&query->lock);
    }
}

void weft_stats_query_fini(struct weft_stats_query *query)
{
    if (getpid() == query->pid) {
        pthread_cond_destroy(&query->changed);
        pthread_mutex_destroy(&query->lock);
    }
}

void weft_stats_query_open(struct weft_stats_query *query)
{
    set_open(query, true);
}

void weft_stats_query_close(struct weft_stats_query *query)
{
    set_open(query, false);
}

/* Call with the lock held. */
static void set_asked(struct weft_stats_query *query, bool asked)
{
    atomic_store_explicit(&query->asked, asked, memory_order_relaxed);
    atomic_store_explicit(&query->active, asked || query->config.period_ns > 0,
                          memory_order_relaxed);
}

/* taken_ns is written by the owner alone, which may read it without the lock. */
void weft_stats_query_run(struct weft_stats_query *query, void *object)
{
    const struct weft_stats_query_config *config = &query->config;
    uint64_t now_ns = weft_clock_now_ns();
    bool asked = atomic_load_explicit(&query->asked, memory_order_relaxed);
    bool is_due = config->period_ns > 0 && now_ns - query->taken_ns >= config->period_ns;
    if ((!asked && !is_due) || getpid() != query->pid) {
        return;
    }
    /* A querying thread holds the lock briefly. A reader of the copy may hold the lock for a long
     * time, so the owner does not wait for the lock. */
    if (asked) {
        pthread_mutex_lock(&query->lock);
    } else if (pthread_mutex_trylock(&query->lock) != 0) {
        return;
    }
    if (query->question == NULL && is_due) {
        query->question = config->copy;
        query->arg = config->stats;
    }
    if (query->question != NULL) {
        query->question(query->arg, object);
        if (query->question == config->copy) {
            query->taken_ns = now_ns;
            query->was_missed = false;
        }
        query->question = NULL;
        /* Otherwise the next poll would wait for the lock while the querying thread reads the
         * copy. */
        set_asked(query, false);
        pthread_cond_broadcast(&query->changed);
    }
    pthread_mutex_unlock(&query->lock);
}

/* The clock of weft_clock_now_ns is the monotonic one. */
static struct timespec deadline_in(uint64_t timeout_ns)
{
    uint64_t at_ns = weft_clock_now_ns() + timeout_ns;
    return (struct timespec){.tv_sec = (time_t)(at_ns / WEFT_NS_PER_S),
                             .tv_nsec = (long)(at_ns % WEFT_NS_PER_S)};
}

/* With the lock held, which it releases while it waits. */
static bool ask(struct weft_stats_query *query, weft_stats_query_fn *question, void *arg,
                uint64_t timeout_ns)
{
    const struct timespec deadline = deadline_in(timeout_ns);
    if (!query->is_open) {
        return false;
    }
    query->question = question;
    query->arg = arg;
    set_asked(query, true);
    if (query->config.wake != NULL) {
        pthread_mutex_unlock(&query->lock);
        query->config.wake(query->config.wake_arg);
        pthread_mutex_lock(&query->lock);
    }
    while (query->question != NULL && query->is_open &&
           pthread_cond_timedwait(&query->changed, &query->lock, &deadline) != ETIMEDOUT) {
    }
    bool answered = query->question == NULL;
    query->question = NULL;
    set_asked(query, false);
    return answered;
}

bool weft_stats_query_ask(struct weft_stats_query *query, weft_stats_query_fn *question, void *arg,
                          uint64_t timeout_ns)
{
    pthread_mutex_lock(&query->lock);
    bool answered = ask(query, question, arg, timeout_ns);
    pthread_mutex_unlock(&query->lock);
    return answered;
}

uint64_t weft_stats_query_acquire(struct weft_stats_query *query, uint64_t timeout_ns)
{
    const struct weft_stats_query_config *config = &query->config;
    pthread_mutex_lock(&query->lock);
    uint64_t age_ns = weft_clock_now_ns() - query->taken_ns;
    bool is_fresh = config->period_ns > 0 && age_ns < config->period_ns;
    if (!is_fresh && !query->was_missed && !ask(query, config->copy, config->stats, timeout_ns)) {
        query->was_missed = config->period_ns > 0;
    }
    uint64_t now_ns = weft_clock_now_ns();
    return now_ns > query->taken_ns ? now_ns - query->taken_ns : 0;
}

void weft_stats_query_release(struct weft_stats_query *query)
{
    pthread_mutex_unlock(&query->lock);
}
