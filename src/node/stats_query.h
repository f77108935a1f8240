/* A query from another thread to the thread that owns an object: the owner answers it between two
 * pieces of its work. So /metrics and /hot read a shard without a lock on its data path. Without a
 * query the owner only reads one flag.
 *
 * weft's own loops poll within milliseconds. A program that uses the library may compute for a
 * minute between two calls; for that case a copy is kept: after the first query the owner renews it
 * every period_ns, when it polls. If the owner does not poll, the querying thread gets that copy
 * with its age; it waits for the owner once, and not again before the owner has polled.
 *
 * In a forked process, open, close, fini and poll have no effect.
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

/* Run by the owner on its object. */
typedef void weft_stats_query_fn(void *arg, void *object);

struct weft_stats_query_config {
    void (*wake)(void *arg); /* ends a sleep of the owner; called without the lock; NULL = cannot */
    void *wake_arg;
    /* The copy that is kept; NULL = none. */
    weft_stats_query_fn *copy; /* its arg is stats */
    void *stats;
    uint64_t period_ns; /* 0 = made only for a query, never periodically */
};

struct weft_stats_query {
    struct weft_stats_query_config config;
    atomic_bool active;   /* a query may exist; read by the owner without the lock */
    atomic_bool asked;    /* a query is pending */
    pthread_mutex_t lock; /* protects the fields below and stats; held while a query is answered */
    pthread_cond_t changed;
    bool is_open; /* an owner exists */
    weft_stats_query_fn *question;
    void *arg;
    uint64_t taken_ns; /* when the copy was made; before the first: when init was called */
    bool was_missed;   /* the last wait for the copy timed out; with period_ns */
    pid_t pid;         /* process that created it */
};

void weft_stats_query_init(struct weft_stats_query *query,
                           const struct weft_stats_query_config *config);
void weft_stats_query_fini(struct weft_stats_query *query);

void weft_stats_query_open(struct weft_stats_query *query);
/* A waiting query ends without an answer. */
void weft_stats_query_close(struct weft_stats_query *query);

void weft_stats_query_run(struct weft_stats_query *query, void *object);

static inline void weft_stats_query_poll(struct weft_stats_query *query, void *object)
{
    if (atomic_load_explicit(&query->active, memory_order_relaxed)) {
        weft_stats_query_run(query, object);
    }
}

/* Run a query. False: there is no owner, or it did not answer in timeout_ns; question was not run
 * and will not be.
 * Owns:    borrows arg until return. */
bool weft_stats_query_ask(struct weft_stats_query *query, weft_stats_query_fn *question, void *arg,
                          uint64_t timeout_ns);

/* Renew the copy, unless it is younger than period_ns, and lock it: stats may be read until
 * release, whether or not the owner answered. Returns its age. */
uint64_t weft_stats_query_acquire(struct weft_stats_query *query, uint64_t timeout_ns);
void weft_stats_query_release(struct weft_stats_query *query);

#endif
