/* A question to the thread that owns an object, from another one: it is answered by the owner,
 * between two pieces of its work. While nobody asks, the owner reads one flag.
 *
 * That is how /metrics and /hot see a shard without a lock on its path: the shard's thread copies
 * what is wanted, when it is wanted.
 *
 * Thread:  weft_stats_query_poll, open and close: the owner. weft_stats_query: any one other thread at a time.
 */
#ifndef WEFT_NODE_STATS_QUERY_H
#define WEFT_NODE_STATS_QUERY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The owner runs it on its object. */
typedef void weft_stats_query_fn(void *arg, void *object);

struct weft_stats_query {
    pthread_mutex_t lock; /* of what follows, and held while a question is answered */
    pthread_cond_t changed;
    atomic_bool waits; /* a question is there; the owner's look without the lock */
    bool is_open;      /* there is an owner */
    weft_stats_query_fn *question;
    void *arg;
};

void weft_stats_query_init(struct weft_stats_query *ask);
void weft_stats_query_fini(struct weft_stats_query *ask);

void weft_stats_query_open(struct weft_stats_query *ask);
/* Whoever waits hears that there is no answer. */
void weft_stats_query_close(struct weft_stats_query *ask);

void weft_stats_query_run(struct weft_stats_query *ask, void *object);

static inline void weft_stats_query_poll(struct weft_stats_query *ask, void *object)
{
    if (atomic_load_explicit(&ask->waits, memory_order_relaxed)) {
        weft_stats_query_run(ask, object);
    }
}

/* Have the question answered. wake (or NULL) ends a sleep of the owner; it is called without the
 * lock. False: there is no owner, or it did not come to it in timeout_ns; question was not run and
 * will not be.
 * Owns:    borrows arg until return. */
bool weft_stats_query_ask(struct weft_stats_query *ask, weft_stats_query_fn *question, void *arg, void (*wake)(void *arg),
              void *wake_arg, uint64_t timeout_ns);

#endif
