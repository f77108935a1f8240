/* /metrics of a run while it runs: how far it is, what rounds took, and what each participant's
 * transport has counted since the beginning, warm-up included.
 *
 * The coordinator serves them, outside of a lab's networks. Participants are processes: they put
 * their counters into what all see together when the coordinator asks, between two turns of theirs,
 * and look at one word for it else. A sockets program (tcp-raw, udp-raw) has none. One that does not
 * come to it within half a second is shown as it was the last time.
 */
#ifndef WEFT_CLI_PERF_LIVE_H
#define WEFT_CLI_PERF_LIVE_H

#include "cli/metrics.h"
#include "cli/perf/run.h"
#include "metrics/text.h"

#include <pthread.h>

/* What is shown of a participant. The labels come first: metrics/text.h. */
struct weft_perf_live_part {
    char labels[WEFT_METRICS_LABELS_BYTES];
    struct weft_driver_counters counters;
};

struct weft_perf_live {
    struct weft_metrics metrics;
    const struct weft_perf_job *job;
    pthread_mutex_t asking;            /* of the next two; held for as long as patience lasts */
    struct weft_perf_shared *shared;   /* NULL = no participants now */
    struct weft_perf_live_part *parts; /* (participants,); NULL = nobody asked for metrics */
    pthread_mutex_t lock;              /* of the rest, for moments: rounds do not wait */
    uint64_t warmup;                   /* rounds done */
    uint64_t measured;
    uint64_t bytes; /* of messages, that arrived in measured rounds */
    struct weft_hist round_ns;
};

/* Nothing happens without --metrics.   Errors:  as weft_metrics_start; WEFT_NOMEM. */
weft_status weft_perf_live_start(struct weft_perf_live *live,
                                 const struct weft_metrics_options *options,
                                 const struct weft_perf_job *job, struct weft_error *error);
/* A zeroed one is fine. */
void weft_perf_live_stop(struct weft_perf_live *live);

/* The participants are there; before they are gone: NULL. */
void weft_perf_live_see(struct weft_perf_live *live, struct weft_perf_shared *shared);

/* So many rounds are done: measured ones, (count,) of them, or with NULL those of the warm-up; and the
 * bytes that measured ones have delivered so far. */
void weft_perf_live_rounds(struct weft_perf_live *live, const struct weft_perf_round *timed,
                           uint32_t count, uint64_t bytes);

#endif
