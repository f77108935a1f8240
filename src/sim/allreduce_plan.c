#include "sim/allreduce_plan.h"

#include "base/assert.h"

#include <stdlib.h>

bool weft_allreduce_is_mixed(const struct weft_allreduce_config *config)
{
    return config->host_ranks > 1 || config->slow_links > 0 || config->late_ranks > 0;
}

const char *weft_allreduce_plan_check(const struct weft_allreduce_config *config)
{
    uint32_t each = config->host_ranks;
    if (each < 1 || each > config->ranks) {
        return "a host has one rank or more, but not more than there are";
    }
    if (config->slow_links > weft_div_ceil_u64(config->ranks, each) ||
        config->late_ranks > config->ranks) {
        return "there are not so many slow links or late ranks";
    }
    if (config->slow_links > 0 && (config->slow_rate_bps < 1000000 ||
                                   config->slow_rate_bps > config->rate_bps)) {
        return "the rate of slow links is at least 1 Mbit/s, and at most that of the others";
    }
    if (config->late_ns > WEFT_NS_PER_S) {
        return "a rank is at most a second late";
    }
    bool planned = config->plan != WEFT_ALLREDUCE_NO_PLAN;
    if ((planned || weft_allreduce_is_mixed(config)) && config->box != WEFT_ALLREDUCE_NO_BOX) {
        return "with a box there are no plans, no hosts of several ranks, no slow links and no "
               "late ranks";
    }
    if (config->late_ranks > 0 && config->barrier) {
        return "a barrier has no late ranks";
    }
    return NULL;
}

uint32_t weft_allreduce_port(const struct weft_allreduce_config *config, uint32_t rank)
{
    return rank - rank % config->host_ranks;
}

uint64_t weft_allreduce_rate_bps(const struct weft_allreduce_config *config, uint32_t rank)
{
    uint32_t hosts = (uint32_t)weft_div_ceil_u64(config->ranks, config->host_ranks);
    bool slow = rank / config->host_ranks >= hosts - config->slow_links;
    return slow ? config->slow_rate_bps : config->rate_bps;
}

uint64_t weft_allreduce_late_ns(const struct weft_allreduce_config *config, uint32_t rank)
{
    return rank >= config->ranks - config->late_ranks ? config->late_ns : 0;
}

void *weft_allreduce_plan_new(const struct weft_allreduce_config *config,
                              enum weft_collective_form form, uint64_t bytes, uint64_t hop_ns,
                              struct weft_collective_plan *plan_p)
{
    struct weft_collective_rank ranks[WEFT_ALLREDUCE_RANKS_MAX];
    for (uint32_t r = 0; r < config->ranks; r++) {
        uint64_t rate_bps = weft_allreduce_rate_bps(config, r);
        ranks[r] = (struct weft_collective_rank){.up_bps = rate_bps,
                                                 .down_bps = rate_bps,
                                                 .ready_ns = weft_allreduce_late_ns(config, r),
                                                 .host = weft_allreduce_port(config, r)};
    }
    const struct weft_collective_options options = {.form = form,
                                                    .bytes = bytes,
                                                    .chunk_bytes = config->segment_bytes / 2,
                                                    .hop_ns = hop_ns};
    void *memory = malloc(weft_collective_plan_bytes(config->ranks));
    WEFT_ASSERT(memory != NULL);
    const char *wrong =
        weft_collective_plan_make(ranks, config->ranks, &options, memory, plan_p);
    WEFT_ASSERT(wrong == NULL);
    return memory;
}

void weft_allreduce_plan_result(const struct weft_collective_plan *plan,
                                struct weft_allreduce_result *result_p)
{
    result_p->plan_trees = plan->parts > 0;
    result_p->plan_parts = plan->parts;
    result_p->plan_depth = plan->depth;
    for (uint32_t i = 0; i < plan->ranks; i++) {
        result_p->plan_owners += plan->slice[i + 1] > plan->slice[i];
    }
    result_p->equal_ns = plan->equal_ns;
    result_p->slices_ns = plan->slices_ns;
    result_p->trees_ns = plan->trees_ns;
}
