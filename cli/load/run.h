/* Run the simulated workers of `weft load`. Each of a few threads owns some workers and drives them
 * with one epoll loop.
 *
 * A run has three fixed times: start, begin of the measurement (after the warm-up), end of the
 * measurement. Each thread takes a snapshot of its counters and CPU time at these times, between
 * two iterations of its loop, so that both cover the same interval. The first thread also reads the
 * servers' CPU time. */
#ifndef WEFT_CLI_LOAD_RUN_H
#define WEFT_CLI_LOAD_RUN_H

#include "cli/load/worker.h"

/* Measurements of one thread, or of all. */
struct weft_load_outcome {
    struct weft_load_sums sums;
    struct weft_ps_latencies rpc[WEFT_LOAD_KINDS];
    struct weft_driver_counters transport; /* of the workers' endpoints */
    struct weft_ps_client_counters client; /* of the workers, in the interval */
    uint64_t span_ns;                      /* length of the measurement interval */
    uint64_t worker_cpu_ns;                /* in that interval */
    uint64_t server_cpu_ns;                /* in that interval; 0 = unknown */
    bool server_cpu_known;
    uint64_t rss_bytes; /* of this process, at the end of the interval */
    bool is_measured;   /* the interval began before the run ended */
    bool is_interrupted;
    uint64_t records_dropped; /* of --records; known after the run */
};

/* Connect, warm up, measure, disconnect. Returns when the run is over or a signal handled by
 * cli/stop.h arrives; after a signal the result covers the time up to it.
 * Errors: a worker failed or could not connect; `error` has the worker and the reason. */
weft_status weft_load_run(struct weft_load *load, struct weft_load_outcome *outcome_p,
                          struct weft_error *error);

/* Print the result on standard output, as one JSON object or as a text table (report.c).
 * docs/LOAD.md defines every field; bench/METRICS.md the formulas. _json returns false if memory
 * is exhausted or standard output is closed. */
bool weft_load_report_json(const struct weft_load *load, const struct weft_load_outcome *outcome);
void weft_load_report_text(const struct weft_load *load, const struct weft_load_outcome *outcome);

#endif
