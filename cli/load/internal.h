/* Internals of `weft load`: one thread and its workers. The thread's state is private; struct
 * load_shared has the state that it shares with the supervising thread. */
#ifndef WEFT_CLI_LOAD_INTERNAL_H
#define WEFT_CLI_LOAD_INTERNAL_H

#include "cli/load/run.h"
#include "metrics/live.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- live.c: /metrics ------------------------------------------------------------------------
 * Progress of the run and counters of its workers, copied by the worker threads on request. Shards
 * of the same process (--local) are not included. Unlike the result, the counters start at the
 * beginning of the run, warm-up included. */

/* Counters of one thread's workers. */
struct weft_load_figures {
    struct weft_driver_counters transport;
    struct weft_ps_client_counters client;
    struct weft_load_seen seen;
    uint64_t connected; /* workers that have reached all shards */
    uint64_t measuring; /* 1: the measurement interval has begun */
};

struct weft_load_live {
    struct weft_metrics_live *served; /* NULL = off */
    uint32_t threads;
    uint32_t workers;
};

/* Start /metrics. copy fills a struct weft_load_figures; each thread polls `served` with it.
 * Errors: as weft_metrics_live_start. */
weft_status weft_load_live_start(struct weft_load_live *live,
                                 const struct weft_metrics_options *options, uint32_t workers,
                                 uint32_t threads, weft_stats_query_fn *copy,
                                 struct weft_error *error);

/* Add (subtract) structs that consist of uint64_t only. */
void weft_load_counters_add(void *into, const void *from, size_t bytes);
void weft_load_counters_sub(void *into, const void *from, size_t bytes);

/* ---- run.c, thread.c ------------------------------------------------------------------------- */

/* State shared between the worker threads and the supervising thread. */
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
    uint32_t first;   /* rank of the first worker */
    uint32_t opened;  /* workers opened */
    uint32_t settled; /* workers that are connected or have failed */
    bool *again;      /* (count,): run again before the next wait */
    bool *counted;    /* (count,): was counted as ready or failed */
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

/* Create a thread's share of the workers. False: no memory. Free it also then; a zeroed object with
 * epoll_fd -1 can be freed, too. */
bool weft_load_thread_new(struct load_thread *thread, struct load_shared *shared, uint32_t index);
void weft_load_thread_free(struct load_thread *thread);

/* The thread function: connect, warm up, measure, disconnect. */
void *weft_load_thread_run(void *thread);

/* Copy function for weft_load_live_start. */
void weft_load_thread_figures(void *arg, void *thread);

void weft_load_latencies_merge(struct weft_ps_latencies *into,
                               const struct weft_ps_latencies *from);

#endif
