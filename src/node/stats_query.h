/* A question to the thread that owns an object, from another one: the owner answers it between two
 * pieces of its work. So /metrics and /hot see a shard without a lock on its path. While nobody asks,
 * the owner reads one flag.
 *
 * A loop of ours comes by within milliseconds. A program that uses the library may compute for a minute
 * between two calls; for it there is a copy that is kept: once anybody has asked, the owner renews it
 * every period_ns whenever it comes by. An asker that finds the owner away gets that copy with its
 * age; it waits for the owner once, and not again before the owner has come back.
 *
 * In a process that was forked meanwhile close, fini and poll do nothing.
 *
 * Thread:  open, close, poll: the owner. ask, acquire, release: any one other thread at a time.
 */
#ifndef WEFT_NODE_STATS_QUERY_H
#define WEFT_NODE_STATS_QUERY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The owner runs it on its object. */
typedef void weft_stats_query_fn(void *arg, void *object);

struct weft_stats_query_config {
    void (*wake)(void *arg); /* ends a sleep of the owner; called without the lock; NULL = cannot */
    void *wake_arg;
    /* The copy that is kept; NULL = none. */
    weft_stats_query_fn *copy; /* its arg is stats */
    void *stats;
    uint64_t period_ns; /* 0 = it is made when asked for, and never on its own */
};

struct weft_stats_query {
    struct weft_stats_query_config config;
    atomic_bool active; /* there may be something to do: the owner's look without the lock */
    atomic_bool asked;  /* a question is there */
    pthread_mutex_t lock; /* of what follows and of stats; held while a question is answered */
    pthread_cond_t changed;
    bool is_open; /* there is an owner */
    weft_stats_query_fn *question;
    void *arg;
    uint64_t taken_ns; /* when the copy was made; before the first: when init was called */
    bool was_missed;   /* who asked for the copy last waited for nothing; with period_ns */
    pid_t pid;         /* of who made it */
};

void weft_stats_query_init(struct weft_stats_query *query,
                           const struct weft_stats_query_config *config);
void weft_stats_query_fini(struct weft_stats_query *query);

void weft_stats_query_open(struct weft_stats_query *query);
/* Whoever waits hears that there is no answer. */
void weft_stats_query_close(struct weft_stats_query *query);

void weft_stats_query_run(struct weft_stats_query *query, void *object);

static inline void weft_stats_query_poll(struct weft_stats_query *query, void *object)
{
    if (atomic_load_explicit(&query->active, memory_order_relaxed)) {
        weft_stats_query_run(query, object);
    }
}

/* Have the question answered. False: there is no owner, or it did not answer in timeout_ns;
 * question was not run and will not be.
 * Owns:    borrows arg until return. */
bool weft_stats_query_ask(struct weft_stats_query *query, weft_stats_query_fn *question, void *arg,
                          uint64_t timeout_ns);

/* Have the copy made, unless it is younger than period_ns, and hold it still: stats may be read until
 * release, whether or not the owner answered. Returns its age. */
uint64_t weft_stats_query_acquire(struct weft_stats_query *query, uint64_t timeout_ns);
void weft_stats_query_release(struct weft_stats_query *query);

#endif
