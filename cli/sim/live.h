/* /metrics of `weft sim swarm` and `weft sim grid`: the numbers of completed and of failed runs. A
 * run uses virtual time, in a process of its own, and reports nothing before its end; the counters
 * of its endpoints are not rates of this machine, and are not exported.
 */
#ifndef WEFT_CLI_SIM_LIVE_H
#define WEFT_CLI_SIM_LIVE_H

#include "cli/metrics.h"

#include <stdatomic.h>

struct weft_sim_live {
    struct weft_metrics metrics;
    _Atomic uint64_t good;
    _Atomic uint64_t failed;
    _Atomic uint64_t packets;
    uint64_t planned;
};

/* Serve the metrics and print their address on standard error; no effect without --metrics. False:
 * they cannot be served, which is reported. planned: seeds or cells. command: "sim swarm". */
bool weft_sim_live_start(struct weft_sim_live *live, const struct weft_metrics_options *options,
                         uint64_t planned, const char *command);
/* A zeroed object is valid. */
void weft_sim_live_stop(struct weft_sim_live *live);

/* A run has completed. */
void weft_sim_live_note(struct weft_sim_live *live, bool is_good, uint64_t packets);

#endif
