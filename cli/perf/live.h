/* /metrics of a run in progress: its progress, the times of rounds, and the counters of each
 * participant's transport since the beginning, warm-up included.
 *
 * The coordinator serves them, outside of a lab's networks. Participants are processes: when the
 * coordinator requests counters, each copies its own to the shared memory between two iterations of
 * its loop; without a request it only reads one word. A sockets program (tcp-raw, udp-raw) has no
 * counters. A participant that does not answer within half a second is shown with its last
 * counters.
 */
#ifndef WEFT_CLI_PERF_LIVE_H
#define WEFT_CLI_PERF_LIVE_H

#include "cli/metrics.h"
#include "cli/perf/run.h"
#include "metrics/text.h"

#include <pthread.h>

/* The metrics of a participant. The labels must be first: metrics/text.h. */
struct weft_perf_live_part {
    char labels[WEFT_METRICS_LABELS_BYTES];
    struct weft_driver_counters counters;
};

struct weft_perf_live {
    struct weft_metrics metrics;
    const struct weft_perf_job *job;
    pthread_mutex_t asking;            /* protects the next two; held for at most half a second,
                                        * while participants are asked for their counters */
    struct weft_perf_shared *shared;   /* NULL = no participants now */
    struct weft_perf_live_part *parts; /* (participants,); NULL = without --metrics */
    pthread_mutex_t lock;              /* protects the rest; held briefly, so rounds do not wait */
    uint64_t warmup;                   /* rounds done */
    uint64_t measured;
    uint64_t bytes; /* bytes of messages that arrived in measured rounds */
    struct weft_hist round_ns;
};

/* No effect without --metrics.   Errors:  as weft_metrics_start; WEFT_NOMEM. */
weft_status weft_perf_live_start(struct weft_perf_live *live,
                                 const struct weft_metrics_options *options,
                                 const struct weft_perf_job *job, struct weft_error *error);
/* A zeroed struct is allowed. */
void weft_perf_live_stop(struct weft_perf_live *live);

/* Call it when the participants have started, and with NULL before they end. */
void weft_perf_live_see(struct weft_perf_live *live, struct weft_perf_shared *shared);

/* Report completed rounds: (count,) measured ones, or, with NULL, rounds of the warm-up; and the
 * bytes that measured rounds have delivered so far. */
void weft_perf_live_rounds(struct weft_perf_live *live, const struct weft_perf_round *timed,
                           uint32_t count, uint64_t bytes);

#endif
