/* Statistics of round times, for the reports of sim/incast.h and sim/exchange.h. */
#ifndef WEFT_SIM_ROUND_TIMES_H
#define WEFT_SIM_ROUND_TIMES_H

#include <stdint.h>

struct weft_sim_times {
    uint64_t p50_ns; /* nearest-rank percentiles */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
};

/* Sorts times_ns. All zero if there are no times. */
struct weft_sim_times weft_sim_times_of(uint64_t *times_ns, uint64_t count);

#endif
