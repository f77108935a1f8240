#include "lab/flow_plan.h"

#include "base/assert.h"

#include <math.h>

enum { STREAM_TIMES, STREAM_PLACES, STREAM_AMOUNTS };

void weft_flow_plan_init(struct weft_flow_plan *plan, const struct weft_flow_sizes *sizes,
                         uint32_t hosts, uint64_t rate_bps, uint32_t load_ppm, uint64_t seed)
{
    WEFT_ASSERT(hosts >= 2 && rate_bps > 0 && load_ppm > 0);
    double flows_per_s_host =
        (double)load_ppm / WEFT_PPM * (double)rate_bps / (8 * sizes->mean_bytes);
    plan->sizes = sizes;
    plan->hosts = hosts;
    plan->gap_mean_ns = 1e9 / (flows_per_s_host * hosts);
    plan->at_ns = 0;
    weft_prng_split(&plan->times, seed, STREAM_TIMES);
    weft_prng_split(&plan->places, seed, STREAM_PLACES);
    weft_prng_split(&plan->amounts, seed, STREAM_AMOUNTS);
}

void weft_flow_plan_next(struct weft_flow_plan *plan, struct weft_flow_arrival *arrival_p)
{
    /* In (0, 1], so that the logarithm is finite. */
    double u = (double)((weft_prng_u64(&plan->times) >> 11) + 1) * 0x1p-53;
    plan->at_ns -= log(u) * plan->gap_mean_ns;
    arrival_p->at_ns = (uint64_t)plan->at_ns;
    arrival_p->source = (uint32_t)weft_prng_below(&plan->places, plan->hosts);
    uint32_t other = (uint32_t)weft_prng_below(&plan->places, plan->hosts - 1);
    arrival_p->destination = other + (other >= arrival_p->source);
    arrival_p->bytes = weft_flow_sizes_draw(plan->sizes, &plan->amounts);
}
