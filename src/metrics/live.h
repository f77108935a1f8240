/* The figures of threads that run, as /metrics: each thread copies its own when somebody asks
 * (node/stats_query.h), and one text is written of them all.
 *
 * A thread that does not come by in time is shown as it was the last time; weft_snapshot_age_seconds
 * says how long ago that is, of the oldest copy.
 */
#ifndef WEFT_METRICS_LIVE_H
#define WEFT_METRICS_LIVE_H

#include "metrics/serve.h"
#include "metrics/target_file.h"
#include "node/stats_query.h"

struct weft_metrics_live_config {
    const char *role;   /* "worker" */
    uint32_t rank;      /* with has_target; or WEFT_TARGET_NO_RANK */
    bool has_target;    /* write a target file */
    uint32_t threads;   /* at least 1 */
    size_t stats_bytes; /* of one thread's copy */
    weft_stats_query_fn *copy; /* (stats, object): run by the thread */
    /* stats: (threads, stats_bytes), zeros where a thread has made no copy yet. */
    void (*write)(void *arg, const void *stats, struct weft_exposition *text);
    void (*wake)(void *arg); /* ends a sleep of thread 0; NULL = cannot */
    void *arg;               /* of write and wake */
    void *object;            /* a first copy of it is made by start; NULL = not */
    uint64_t timeout_ns;     /* how long a request waits for a thread */
    uint64_t period_ns;      /* as in struct weft_stats_query_config */
};

struct weft_metrics_live;

/* Owns:    gives *live_p; NULL without --metrics, and after an error.
 * Errors:  as weft_metrics_start; WEFT_NOMEM. */
weft_status weft_metrics_live_start(const struct weft_metrics_live_config *config,
                                    const struct weft_metrics_options *options,
                                    struct weft_metrics_live **live_p, struct weft_error *error);

/* For each of the rest, NULL is fine. */

/* The thread, between two pieces of its work.   Cost: one look at a flag. */
void weft_metrics_live_poll(struct weft_metrics_live *live, uint32_t thread, void *object);
/* The thread answers no more. */
void weft_metrics_live_leave(struct weft_metrics_live *live, uint32_t thread);

/* "" for NULL. */
const char *weft_metrics_live_url(const struct weft_metrics_live *live);

/* Before what copy and write look at goes away. Also in a forked process. */
void weft_metrics_live_stop(struct weft_metrics_live *live);

#endif
