/* All-reduce on virtual time: hosts with several ranks, slow links, late ranks, and the plan that
 * is made from them (sched/collective.h). Private to sim/allreduce.c. */
#ifndef WEFT_SIM_ALLREDUCE_PLAN_H
#define WEFT_SIM_ALLREDUCE_PLAN_H

#include "sched/collective.h"
#include "sim/allreduce.h"

/* Whether the network or the ranks are not all alike, so that a plan can save time. */
bool weft_allreduce_is_mixed(const struct weft_allreduce_config *config);

/* NULL, or what is wrong with the fields for these. */
const char *weft_allreduce_plan_check(const struct weft_allreduce_config *config);

/* The rank whose links this rank uses: the first one of its host. */
uint32_t weft_allreduce_port(const struct weft_allreduce_config *config, uint32_t rank);
/* The rate of the link that this rank uses. */
uint64_t weft_allreduce_rate_bps(const struct weft_allreduce_config *config, uint32_t rank);
/* By how much it begins a round later than others. */
uint64_t weft_allreduce_late_ns(const struct weft_allreduce_config *config, uint32_t rank);

/* Make a plan of this form for a vector of so many bytes.
 * Owns:    gives the memory that the plan uses: free. */
void *weft_allreduce_plan_new(const struct weft_allreduce_config *config,
                              enum weft_collective_form form, uint64_t bytes, uint64_t hop_ns,
                              struct weft_collective_plan *plan_p);
/* Add what the plan is, and the times that the planner expects. */
void weft_allreduce_plan_result(const struct weft_collective_plan *plan,
                                struct weft_allreduce_result *result_p);

#endif
