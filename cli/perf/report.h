/* Figures of several flows, measured in turn: medians, spread, and ratios round by round. */
#ifndef WEFT_CLI_PERF_REPORT_H
#define WEFT_CLI_PERF_REPORT_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_PERF_FLOWS_MAX = 5, WEFT_PERF_STREAM_ROUNDS_MAX = 1000 };

/* One measurement. */
struct weft_perf_sample {
    double goodput_gbps;
    double cpu_s;
    uint64_t retransmitted;
    uint64_t lost;
};

struct weft_perf_flow {
    const char *name; /* "weft auth" */
    const char *transport;
    const char *security;
    struct weft_perf_sample *samples; /* one for each round */
};

struct weft_perf_report {
    uint64_t bytes; /* of floats in a round */
    uint32_t message_bytes;
    uint32_t packet_bytes;
    uint32_t rounds;
    const char *lab;                    /* NULL = loopback */
    const struct weft_perf_flow *flows; /* ratios have these first ones as numerators */
    uint32_t flow_count;
};

/* On standard output. False: standard error says why. One flow is one flat JSON object; several are
 * {"flows": [...], "ratios": [...]}. */
void weft_perf_report_text(const struct weft_perf_report *report);
bool weft_perf_report_json(const struct weft_perf_report *report);

#endif
