/* Statistics of running threads, as /metrics: on request each thread copies its own
 * (node/stats_query.h), and one text is written from all copies.
 *
 * If a thread does not respond in time, its last copy is shown; weft_snapshot_age_seconds is the
 * age of the oldest copy.
 */
#ifndef WEFT_METRICS_LIVE_H
#define WEFT_METRICS_LIVE_H

#include "metrics/serve.h"
#include "metrics/target_file.h"
#include "node/stats_query.h"

struct weft_metrics_live_config {
    const char *role;          /* "worker" */
    uint32_t rank;             /* with has_target; or WEFT_TARGET_NO_RANK */
    bool has_target;           /* if true, write a target file */
    uint32_t threads;          /* at least 1 */
    size_t stats_bytes;        /* size of one thread's copy */
    weft_stats_query_fn *copy; /* (stats, object): run by the thread */
    /* stats: (threads, stats_bytes), zero for a thread that has not made a copy yet. */
    void (*write)(void *arg, const void *stats, struct weft_exposition *text);
    void (*wake)(void *arg); /* wakes thread 0 from a sleep; NULL = not possible */
    void *arg;               /* of write and wake */
    void *object;            /* copied once by start; NULL = not */
    uint64_t timeout_ns;     /* how long a request waits for a thread */
    uint64_t period_ns;      /* as in struct weft_stats_query_config */
};

struct weft_metrics_live;

/* Owns:    gives *live_p; NULL without --metrics, and after an error.
 * Errors:  as weft_metrics_start; WEFT_NOMEM. */
weft_status weft_metrics_live_start(const struct weft_metrics_live_config *config,
                                    const struct weft_metrics_options *options,
                                    struct weft_metrics_live **live_p, struct weft_error *error);

/* The following functions accept NULL. */

/* Called by the thread between two units of work.   Cost: a check of a flag. */
void weft_metrics_live_poll(struct weft_metrics_live *live, uint32_t thread, void *object);
/* The thread will not respond any more. */
void weft_metrics_live_leave(struct weft_metrics_live *live, uint32_t thread);

/* Returns "" for NULL. */
const char *weft_metrics_live_url(const struct weft_metrics_live *live);

/* Call before the objects used by copy and write are freed. Also in a forked process. */
void weft_metrics_live_stop(struct weft_metrics_live *live);

#endif
