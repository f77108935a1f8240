/* The incast grid: its cells, and the limits of each cell.
 *
 * W senders x switch buffers x loss x bound on two networks (250 KB messages at 1 Gbit/s with 50 us
 * base round trip, 10 MB at 40 Gbit/s with 10 us), and two endpoints behind one downlink with 8
 * senders each. This file lists and checks the cells; sim/incast.h runs them.
 *
 * The thin grid fits into a test run: it has every W, every loss and both bounds that have a limit.
 * The buffers alternate, and the number of rounds bounds the packets of a cell. With fewer than 100
 * rounds the p99 is the slowest round, so the limit is not easier to meet.
 */
#ifndef WEFT_SIM_GRID_H
#define WEFT_SIM_GRID_H

#include "sim/incast.h"

enum { WEFT_GRID_CELLS_MAX = 512 };

struct weft_grid_cell {
    struct weft_incast_config config;
    uint32_t p99_ppm_max;  /* relative to the ideal; 0 = reported, not bounded */
    uint32_t jain_ppm_min; /* 0 = not checked */
    bool no_drops;         /* in the switch */
};

struct weft_grid_config {
    bool thin;
    bool slow_network; /* 1 Gbit/s */
    bool fast_network; /* 40 Gbit/s */
    uint32_t senders;  /* only cells with this many senders per endpoint; 0 = all */
    uint32_t rounds;   /* per cell; 0 = 500, and in the thin grid as many as fit */
    uint64_t seed;
    const char *cc_name;
};

/* Returns the number of cells. */
uint32_t weft_grid_cells(const struct weft_grid_config *config,
                         struct weft_grid_cell cells_p[WEFT_GRID_CELLS_MAX]);

/* Returns NULL if the cell meets its limits, else the name of the first violation: "failed" (the
 * run itself; result->failure has the details), "p99", "unfair", "drops". */
const char *weft_grid_verdict(const struct weft_grid_cell *cell,
                              const struct weft_incast_result *result);

#endif
