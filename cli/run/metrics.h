/* /metrics and /targets of `weft run`: which processes of the job run and how often they died, and
 * where the coordinator, the servers and the workers serve the rest.
 */
#ifndef WEFT_CLI_RUN_METRICS_H
#define WEFT_CLI_RUN_METRICS_H

#include "job/supervisor.h"
#include "metrics/targets.h"

enum { WEFT_RUN_ROLES = 5 };

struct weft_run_metrics {
    struct weft_metrics metrics;
    struct weft_targets targets; /* its lock is of the rest, too */
    struct {
        uint64_t running;
        uint64_t starts;
        uint64_t deaths; /* ended otherwise than a finished worker does */
    } of[WEFT_RUN_ROLES];
    uint64_t finished; /* workers that ended with status 0 */
    uint64_t promotions; /* of replicas */
};

/* Errors:  as weft_metrics_start. */
weft_status weft_run_metrics_start(struct weft_run_metrics *run,
                                   const struct weft_metrics_options *options, const char *folder,
                                   struct weft_error *error);
/* A zeroed one is fine. */
void weft_run_metrics_stop(struct weft_run_metrics *run);

/* What a worker is told, so that it serves metrics at a free port of the same host and says where;
 * nothing without --metrics. */
void weft_run_metrics_tell(const struct weft_metrics_options *options, const char *folder,
                           struct weft_slot *slot);

/* Count again. */
void weft_run_metrics_look(struct weft_run_metrics *run, const struct weft_supervisor *supervisor);

/* The slot's process is ready, and said this. */
void weft_run_metrics_note(struct weft_run_metrics *run, const struct weft_slot *slot,
                           const cJSON *message);
/* A replica has taken its server's place. */
void weft_run_metrics_promoted(struct weft_run_metrics *run);
/* Another process has the slot, which serves its metrics there; "" = it serves none. */
void weft_run_metrics_moved(struct weft_run_metrics *run, const struct weft_slot *slot,
                            const char *url);

#endif
