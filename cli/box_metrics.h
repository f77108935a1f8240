/* /metrics of an aggregation box, in the kernel (`weft aggregate --xdp`) or in a process (--dense):
 * the families weft_box_ that both have. docs/METRICS.md lists them. */
#ifndef WEFT_CLI_BOX_METRICS_H
#define WEFT_CLI_BOX_METRICS_H

#include "lab/aggregate_bpf.h"
#include "obs/exposition.h"

struct weft_box_figures {
    struct weft_aggregate_counts counts;
    uint32_t members; /* from which packets were received */
    uint32_t epoch;
};

void weft_box_families(struct weft_exposition *text, const struct weft_box_figures *figures);

#endif
