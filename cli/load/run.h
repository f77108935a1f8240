/* The workers of a load, dealt to a few threads; each turns its own by one epoll.
 *
 * A run has edges at fixed times: go, the beginning of what is measured (after the warm-up), its end.
 * Every thread cuts at them by itself, between two turns, so that what it counts and the CPU time
 * that it took belong to the same span; the first thread reads the servers' CPU there, too.
 */
#ifndef WEFT_CLI_LOAD_RUN_H
#define WEFT_CLI_LOAD_RUN_H

#include "cli/load/worker.h"
#include "cli/metrics.h"

/* Of the workers' endpoints, in the time that is measured. */
struct weft_load_packets {
    uint64_t sent; /* datagrams; over TCP records */
    uint64_t received;
    uint64_t again;   /* sent again: also some that were late, not lost */
    uint64_t dropped; /* by the kernel: a receive buffer was full */
};

/* What one thread, or all of them, have measured. */
struct weft_load_outcome {
    struct weft_load_sums sums;
    struct weft_ps_latencies rpc[WEFT_LOAD_KINDS];
    struct weft_load_packets packets;
    uint64_t span_ns;       /* measured */
    uint64_t worker_cpu_ns; /* in it */
    uint64_t server_cpu_ns; /* in it; 0 when not known */
    bool server_cpu_known;
    uint64_t rss_bytes; /* of this process, at the end of the span */
    bool is_measured;   /* the span has begun before the run ended */
    bool is_interrupted;
};

struct weft_load_run_config {
    const struct weft_load_workload *workload;
    struct weft_load_servers *servers;
    const struct weft_transport_options *transport;
    const struct weft_security *security;
    const struct weft_zipf *zipf;
    struct weft_recording *recording; /* open, or off */
    const struct weft_metrics_options *metrics;
    uint32_t threads;
    uint64_t patience_ns; /* with servers that do not answer at the start; WEFT_NEVER = for ever */
};

enum { WEFT_LOAD_ERROR_BYTES = 768 };

/* Connect, warm up, measure, disconnect. Returns when all is done, or a signal of cli/stop.h came:
 * then the outcome is that of the time until then.
 * Errors:  a worker failed or could not connect; error_p says which and why. */
weft_status weft_load_run(const struct weft_load_run_config *config,
                                struct weft_load_outcome *outcome_p,
                                char error_p[WEFT_LOAD_ERROR_BYTES]);

#endif
