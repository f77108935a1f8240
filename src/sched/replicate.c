/* Replicas: how far each is behind, and when it is sent what it lacks. */
#include "sched/internal.h"

#include <math.h>

uint64_t planner_norm(const struct weft_planner *planner, double norm)
{
    const struct weft_planner_config *c = &planner->config;
    if (!planner_has(planner, WEFT_PLAN_REPLICATE)) {
        return 0;
    }
    double units = ceil(c->step_size / (1 - c->momentum) * norm / c->div_max * 0x1p40);
    /* Not below: the sum of all workers' must not wrap. Also what overflowed to infinity. */
    return units < 0x1p50 ? (uint64_t)units : UINT64_C(1) << 50;
}

uint64_t weft_planner_divergence_ppm(const struct weft_planner *planner)
{
    (void)planner;
    return 0;
}
