/* /metrics and /targets of `weft run`: running processes and deaths of the job, and the metrics
 * addresses of the coordinator, the servers and the workers. */
#ifndef WEFT_CLI_RUN_METRICS_H
#define WEFT_CLI_RUN_METRICS_H

#include "job/supervisor.h"
#include "metrics/targets.h"

enum { WEFT_RUN_ROLES = 6 };

struct weft_run_metrics {
    struct weft_metrics metrics;
    struct weft_targets targets; /* its lock also protects the other fields */
    struct {
        uint64_t running;
        uint64_t starts;
        uint64_t deaths; /* exits other than that of a finished worker */
    } of[WEFT_RUN_ROLES];
    uint64_t finished;   /* workers that exited with status 0 */
    uint64_t promotions; /* of replicas */
};

/* Errors:  as weft_metrics_start. */
weft_status weft_run_metrics_start(struct weft_run_metrics *run,
                                   const struct weft_metrics_options *options, const char *folder,
                                   struct weft_error *error);
/* A zeroed object is valid. */
void weft_run_metrics_stop(struct weft_run_metrics *run);

/* Make a worker serve metrics at the address of --metrics, on any free port, and report the port in
 * a file in `folder`; no effect without --metrics. */
void weft_run_metrics_serve_worker(const struct weft_metrics_options *options, const char *folder,
                                   struct weft_slot *slot);

/* Update the counters. */
void weft_run_metrics_update(struct weft_run_metrics *run,
                             const struct weft_supervisor *supervisor);

/* Process the ready message of the slot's process. */
void weft_run_metrics_note(struct weft_run_metrics *run, const struct weft_slot *slot,
                           const cJSON *message);
/* The slot's process has ended. */
void weft_run_metrics_gone(struct weft_run_metrics *run, const struct weft_slot *slot);
/* A replica has taken its server's place. */
void weft_run_metrics_promoted(struct weft_run_metrics *run);
/* The slot has another process, which serves its metrics at `url`; "" = it serves none. */
void weft_run_metrics_moved(struct weft_run_metrics *run, const struct weft_slot *slot,
                            const char *url);

#endif
