/* One thread of `weft load` and its workers. The thread's state is its own; what it and the one that
 * waits for it tell each other is in struct load_shared.
 */
#ifndef WEFT_CLI_LOAD_INTERNAL_H
#define WEFT_CLI_LOAD_INTERNAL_H

#include "cli/load/run.h"
#include "metrics/live.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- live.c: /metrics ------------------------------------------------------------------------
 * How far the run is and what its workers have done so far, copied by the threads that turn them when
 * somebody asks. It is of the workers alone: what shards of the same process (--local) count is not in
 * it. Unlike the result it counts from the beginning, warm-up included. */

/* Of one thread's workers. */
struct weft_load_figures {
    struct weft_driver_counters transport;
    struct weft_ps_client_counters client;
    struct weft_load_seen seen;
    uint64_t connected; /* workers that have reached all shards */
    uint64_t measuring; /* 1: what happens counts for the result */
};

struct weft_load_live {
    struct weft_metrics_live *served; /* NULL = off */
    uint32_t threads;
    uint32_t workers;
};

/* copy fills a struct weft_load_figures from what each thread polls served with.
 * Errors:  as weft_metrics_live_start. */
weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 struct weft_error *error);

/* Add (subtract) structs of nothing but uint64_t. */
void weft_load_counters_add(void *into, const void *from, size_t bytes);
void weft_load_counters_sub(void *into, const void *from, size_t bytes);

/* ---- run.c, thread.c ---------------------------------------------------------------------------- */

/* What the threads and the one that waits for them tell each other. */
struct load_shared {
    struct weft_load *load;
    const float *gradients;
    _Atomic uint32_t ready;  /* workers */
    _Atomic uint32_t failed; /* workers */
    _Atomic uint64_t go_ns;  /* 0 = not yet */
    _Atomic bool stop;
    struct weft_load_live live;
};

enum phase { CONNECTING, WARMING, MEASURING, OVER };

struct load_thread {
    struct load_shared *shared;
    pthread_t pthread;
    uint32_t index;
    struct weft_load_context context;
    struct weft_load_seen seen;
    struct weft_load_worker *workers; /* (count,) */
    uint32_t count;
    uint32_t first;   /* rank of the first */
    uint32_t opened;  /* of these */
    uint32_t settled; /* of these: connected, or failed */
    bool *again;      /* (count,): to be turned before the next wait */
    bool *told;       /* (count,): counted as ready or failed */
    bool any_again;
    int epoll_fd;
    enum phase phase;
    struct weft_driver_counters transport_from;
    struct weft_ps_client_counters client_from;
    uint64_t cpu_from_ns;
    uint64_t server_cpu_from_ns;
    uint64_t began_ns;
    uint64_t warm_ns; /* the end of the warm-up */
    struct weft_load_outcome *outcome;
};

/* A thread's share of the workers. False: no memory; to be freed all the same, as is a zeroed one whose
 * epoll_fd is -1. */
bool weft_load_thread_new(struct load_thread *thread, struct load_shared *shared, uint32_t index);
void weft_load_thread_free(struct load_thread *thread);

/* The thread: connect, warm up, measure, end. */
void *weft_load_thread_run(void *thread);

/* The copy for weft_load_live_start. */
void weft_load_thread_figures(void *arg, void *thread);

void weft_load_latencies_merge(struct weft_ps_latencies *into,
                               const struct weft_ps_latencies *from);

#endif
