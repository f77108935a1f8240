/* The workers of a load, dealt to a few threads; each turns its own by one epoll.
 *
 * A run has edges at fixed times: go, the beginning of what is measured (after the warm-up), its end.
 * Every thread cuts at them by itself, between two turns, so that what it counts and the CPU time
 * that it took belong to the same span; the first thread reads the servers' CPU there, too.
 */
#ifndef WEFT_CLI_LOAD_RUN_H
#define WEFT_CLI_LOAD_RUN_H

#include "cli/load/worker.h"

/* What one thread, or all of them, have measured. */
struct weft_load_outcome {
    struct weft_load_sums sums;
    struct weft_ps_latencies rpc[WEFT_LOAD_KINDS];
    struct weft_driver_counters transport; /* of the workers' endpoints */
    struct weft_ps_client_counters client; /* of the workers, in the span */
    uint64_t span_ns;       /* measured */
    uint64_t worker_cpu_ns; /* in it */
    uint64_t server_cpu_ns; /* in it; 0 when not known */
    bool server_cpu_known;
    uint64_t rss_bytes; /* of this process, at the end of the span */
    bool is_measured;   /* the span has begun before the run ended */
    bool is_interrupted;
    uint64_t records_dropped; /* of --records; known at the end */
};

/* Connect, warm up, measure, disconnect. Returns when all is done, or a signal of cli/stop.h came:
 * then the outcome is that of the time until then.
 * Errors:  a worker failed or could not connect; error says which and why. */
weft_status weft_load_run(struct weft_load *load, struct weft_load_outcome *outcome_p,
                          struct weft_error *error);

/* What was measured, as one JSON object, alone on standard output, or as a table for people
 * (report.c). docs/LOAD.md has every field; bench/METRICS.md the formulas. False: no memory, or
 * standard output is closed. */
bool weft_load_report_json(const struct weft_load *load, const struct weft_load_outcome *outcome);
void weft_load_report_text(const struct weft_load *load, const struct weft_load_outcome *outcome);

#endif
