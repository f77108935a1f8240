/* What a load has measured, as one JSON object or as a table for people. docs/LOAD.md has every
 * field; bench/METRICS.md the formulas. */
#ifndef WEFT_CLI_LOAD_REPORT_H
#define WEFT_CLI_LOAD_REPORT_H

#include "cli/load/run.h"

struct weft_load_report {
    const struct weft_load_workload *workload;
    const struct weft_load_servers *servers;
    const struct weft_load_outcome *outcome;
    const struct weft_zipf *zipf;
    const char *transport;
    const char *security;
    uint32_t threads;
    uint64_t records_dropped;
};

/* One object, alone on standard output. False: no memory, or standard output is closed. */
bool weft_load_report_json(const struct weft_load_report *report);
void weft_load_report_text(const struct weft_load_report *report);

#endif
