/* The aggregation box as a process with a UDP socket (io/dense_box.h), until Ctrl-C or SIGTERM:
 * what `weft aggregate --dense` runs, and `weft aggregate --xdp` on a host without BPF. */
#ifndef WEFT_CLI_BOX_PROCESS_H
#define WEFT_CLI_BOX_PROCESS_H

#include "cli/metrics.h"
#include "io/dense_box.h"

struct weft_box_process {
    struct weft_dense_box_config config;
    uint32_t members; /* 0 .. members - 1; sets config.agg.members */
    struct weft_metrics_options metrics_options;
    bool json; /* print the counters as JSON */
    struct weft_metrics metrics;
    struct weft_dense_box *box;
};

/* Open the box, print where it is, sum, and print its counters. Returns the exit status. */
int weft_box_process_run(struct weft_box_process *process);

#endif
