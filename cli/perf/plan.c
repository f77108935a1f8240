#include "cli/perf/plan.h"

#include "base/units.h"

#include <stdio.h>

/* Beyond the limit, flows are only counted. */
static void add(struct weft_perf_plan *plan, uint32_t from, uint32_t to)
{
    if (plan->flow_count++ < WEFT_PERF_PAIRS_MAX) {
        plan->flows[plan->flow_count - 1] = (struct weft_perf_pair){.from = from, .to = to};
    }
    plan->participants = (uint32_t)weft_max_u64(plan->participants, weft_max_u64(from, to) + 1);
}

static void add_all_to_all(struct weft_perf_plan *plan, uint32_t count)
{
    for (uint32_t step = 1; step < count; step++) {
        for (uint32_t i = 0; i < count; i++) {
            add(plan, i, (i + step) % count);
        }
    }
}

static void add_flows(struct weft_perf_plan *plan, uint32_t senders, uint32_t receivers)
{
    switch (plan->pattern) {
    case WEFT_PERF_PINGPONG:
        add(plan, 0, 1);
        add(plan, 1, 0);
        break;
    case WEFT_PERF_INCAST:
        for (uint32_t i = 1; i <= senders; i++) {
            add(plan, i, 0);
        }
        break;
    case WEFT_PERF_OUTCAST:
        for (uint32_t i = 1; i <= receivers; i++) {
            add(plan, 0, i);
        }
        break;
    case WEFT_PERF_ALLTOALL:
        add_all_to_all(plan, senders);
        break;
    case WEFT_PERF_SHUFFLE:
        for (uint32_t i = 0; i < senders * receivers; i++) {
            add(plan, i / receivers, senders + i % receivers);
        }
        break;
    }
}

bool weft_perf_plan_make(enum weft_perf_pattern pattern, uint32_t senders, uint32_t receivers,
                         uint32_t parallel, struct weft_perf_plan *plan_p)
{
    plan_p->pattern = pattern;
    plan_p->participants = 0;
    plan_p->flow_count = 0;
    plan_p->parallel = parallel > 0 ? parallel : WEFT_PERF_PAIRS_MAX;
    add_flows(plan_p, senders, receivers);
    return plan_p->flow_count <= WEFT_PERF_PAIRS_MAX &&
           plan_p->participants <= WEFT_PERF_PARTICIPANTS_MAX;
}

const char *weft_perf_pattern_name(enum weft_perf_pattern pattern)
{
    static const char *const names[] = {
        [WEFT_PERF_PINGPONG] = "pingpong", [WEFT_PERF_INCAST] = "incast",
        [WEFT_PERF_OUTCAST] = "outcast",   [WEFT_PERF_ALLTOALL] = "alltoall",
        [WEFT_PERF_SHUFFLE] = "shuffle",
    };
    return names[pattern];
}

void weft_perf_plan_role(const struct weft_perf_plan *plan, uint32_t participant, char *text_p,
                         unsigned bytes)
{
    bool sends = false;
    bool receives = false;
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        sends = sends || plan->flows[i].from == participant;
        receives = receives || plan->flows[i].to == participant;
    }
    const char *role = !receives ? "sender" : !sends ? "receiver" : "participant";
    (void)snprintf(text_p, bytes, "%s %u", role, participant);
}
