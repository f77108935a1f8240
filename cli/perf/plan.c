#include "cli/perf/plan.h"

#include <stdio.h>

static void add(struct weft_perf_plan *plan, uint32_t from, uint32_t to)
{
    plan->flows[plan->flow_count++] = (struct weft_perf_pair){.from = from, .to = to};
}

static void add_all_to_all(struct weft_perf_plan *plan, uint32_t count)
{
    for (uint32_t step = 1; step < count; step++) {
        for (uint32_t i = 0; i < count; i++) {
            add(plan, i, (i + step) % count);
        }
    }
}

static uint64_t flows_of(enum weft_perf_pattern pattern, uint64_t senders, uint64_t receivers)
{
    switch (pattern) {
    case WEFT_PERF_PINGPONG:
        return 2;
    case WEFT_PERF_ALLTOALL:
        return senders * (senders - 1);
    case WEFT_PERF_SHUFFLE:
        return senders * receivers;
    case WEFT_PERF_INCAST:
    case WEFT_PERF_OUTCAST:
        break;
    }
    return senders;
}

static uint64_t participants_of(enum weft_perf_pattern pattern, uint64_t senders,
                                uint64_t receivers)
{
    switch (pattern) {
    case WEFT_PERF_PINGPONG:
        return 2;
    case WEFT_PERF_ALLTOALL:
        return senders;
    case WEFT_PERF_SHUFFLE:
        return senders + receivers;
    case WEFT_PERF_INCAST:
    case WEFT_PERF_OUTCAST:
        break;
    }
    return senders + 1;
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
        for (uint32_t i = 1; i <= senders; i++) {
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
    if (flows_of(pattern, senders, receivers) > WEFT_PERF_PAIRS_MAX ||
        participants_of(pattern, senders, receivers) > WEFT_PERF_PARTICIPANTS_MAX) {
        return false;
    }
    plan_p->pattern = pattern;
    plan_p->flow_count = 0;
    plan_p->participants = (uint32_t)participants_of(pattern, senders, receivers);
    plan_p->parallel = parallel > 0 ? parallel : WEFT_PERF_PAIRS_MAX;
    add_flows(plan_p, senders, receivers);
    return true;
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

static bool only_sends(const struct weft_perf_plan *plan, uint32_t participant)
{
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        if (plan->flows[i].to == participant) {
            return false;
        }
    }
    return true;
}

static bool only_receives(const struct weft_perf_plan *plan, uint32_t participant)
{
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        if (plan->flows[i].from == participant) {
            return false;
        }
    }
    return true;
}

void weft_perf_plan_role(const struct weft_perf_plan *plan, uint32_t participant, char *text_p,
                         unsigned bytes)
{
    const char *role = only_sends(plan, participant)      ? "sender"
                       : only_receives(plan, participant) ? "receiver"
                                                          : "participant";
    (void)snprintf(text_p, bytes, "%s %u", role, participant);
}

bool weft_perf_plan_connects(const struct weft_perf_plan *plan, uint32_t me, uint32_t other)
{
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        const struct weft_perf_pair *flow = &plan->flows[i];
        if ((flow->from == me && flow->to == other) || (flow->from == other && flow->to == me)) {
            return flow->from == me;
        }
    }
    return false;
}
