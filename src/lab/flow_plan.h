/* Open-loop background traffic as a plan: the start time, source, destination and size of each
 * flow.
 *
 * Arrivals are a Poisson process. They do not wait for flows to complete, so a slow network gets as
 * many new flows as a fast one. All hosts send at the same rate. Hence one process with the total
 * rate and a uniformly drawn source is equivalent to one process per host. The plan is a function
 * of the seed alone.
 *
 * The rate follows from the load: load x link rate / (8 x mean size) flows per second and host.
 * Load counts the flows' payload, without headers, as in papers.
 */
#ifndef WEFT_LAB_FLOW_PLAN_H
#define WEFT_LAB_FLOW_PLAN_H

#include "base/prng.h"
#include "lab/flow_sizes.h"

#include <stdint.h>

struct weft_flow_arrival {
    uint64_t at_ns; /* since the start; never decreases */
    uint64_t bytes; /* at least 1 */
    uint32_t source;
    uint32_t destination; /* another host */
};

struct weft_flow_plan {
    const struct weft_flow_sizes *sizes;
    uint32_t hosts;
    double gap_mean_ns;
    double at_ns;
    /* Separate random streams, so that the times do not depend on the sizes. */
    struct weft_prng times;
    struct weft_prng places;
    struct weft_prng amounts;
};

/* Shape:   hosts at least 2; load_ppm and rate_bps above 0.
 * Owns:    borrows sizes for the plan's life. */
void weft_flow_plan_init(struct weft_flow_plan *plan, const struct weft_flow_sizes *sizes,
                         uint32_t hosts, uint64_t rate_bps, uint32_t load_ppm, uint64_t seed);

/* The next flow; the plan has no end. */
void weft_flow_plan_next(struct weft_flow_plan *plan, struct weft_flow_arrival *arrival_p);

#endif
