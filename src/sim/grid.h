/* The incast grid: which cells there are, and the limit of each.
 *
 * W senders x switch buffers x loss x bound on two networks (250 KB messages at 1 Gbit/s with 50 us
 * base round trip, 10 MB at 40 Gbit/s with 10 us), and two endpoints behind one downlink with 8
 * senders each. Cells are only listed and judged here; sim/incast.h runs them.
 *
 * The thin grid is the part that fits in a test run: every W, every loss and both bounds that have
 * a limit, with the buffers taking turns and rounds so few that a cell has a bounded number of
 * packets. With fewer than 100 rounds its p99 is the slowest round, so it is no easier to pass.
 */
#ifndef WEFT_SIM_GRID_H
#define WEFT_SIM_GRID_H

#include "sim/incast.h"

enum { WEFT_GRID_CELLS_MAX = 512 };

struct weft_grid_cell {
    struct weft_incast_config config;
    uint32_t p99_ppm_max;  /* of ideal; 0 = reported, not bounded */
    uint32_t jain_ppm_min; /* 0 = not asked */
    bool no_drops;         /* in the switch */
};

struct weft_grid_config {
    bool thin;
    bool slow_network; /* 1 Gbit/s */
    bool fast_network; /* 40 Gbit/s */
    uint32_t senders;  /* only the cells with so many of an endpoint; 0 = all */
    uint32_t rounds;   /* a cell; 0 = 500, and in the thin grid as many as fit */
    uint64_t seed;
    const char *cc_name;
};

/* Returns the number of cells. */
uint32_t weft_grid_cells(const struct weft_grid_config *config,
                         struct weft_grid_cell cells_p[WEFT_GRID_CELLS_MAX]);

/* NULL when the cell keeps its limits, else one word about the first that it breaks: "failed" (the
 * run itself; result->failure says how), "p99", "unfair", "drops". */
const char *weft_grid_verdict(const struct weft_grid_cell *cell,
                              const struct weft_incast_result *result);

#endif
