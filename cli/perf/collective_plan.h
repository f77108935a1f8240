/* `weft perf allreduce --plan`: the ranks make a plan before the first round (coll/plan.h). */
#ifndef WEFT_CLI_PERF_COLLECTIVE_PLAN_H
#define WEFT_CLI_PERF_COLLECTIVE_PLAN_H

#include "cli/options.h"
#include "cli/output.h"
#include "cli/perf/layout.h"
#include "node/coll_thread.h"

struct weft_perf_plan_options {
    uint32_t form;       /* index in weft_perf_plan_forms; 0 = none */
    uint32_t host_ranks; /* ranks of a host, as the planner is told */
    const char *mbps;    /* LIST; NULL = unknown */
};

extern const char *const weft_perf_plan_forms[];

/* Rows of an option table. */
#define WEFT_PERF_PLAN_ROWS(plan)                                                                  \
    {"plan", "FORM",                                                                               \
     "allreduce: how the vector is divided: none = into equal slices; slices = by\n"               \
     "the rates of --link-mbps; trees = parts that are summed along trees; auto =\n"               \
     "slices or trees, whichever is predicted to be faster",                                       \
     WEFT_OPTION_CHOICE, .value = &(plan)->form, .choices = weft_perf_plan_forms},                 \
    {"link-mbps", "LIST",                                                                          \
     "with --plan: rate of each rank's link, such as 1000,1000,100; the last one\n"                \
     "is also that of all further ranks",                                                          \
     WEFT_OPTION_STRING, .value = &(plan)->mbps, .fallback = "equal rates"},                       \
    {"host-ranks", "N", "with --plan: so many consecutive ranks share a link", WEFT_OPTION_U32,    \
     .value = &(plan)->host_ranks, .min = 1, .max = WEFT_PERF_PARTICIPANTS_MAX}

/* NULL, or what is wrong with the options. */
const char *weft_perf_plan_check(const struct weft_perf_plan_options *options, uint32_t ranks);

/* Make the plan, for vectors of so many bytes; false: error has the reason. */
bool weft_perf_plan_set(const struct weft_perf_plan_options *options,
                        struct weft_coll_thread *const *threads, uint32_t ranks, uint64_t bytes,
                        uint64_t timeout_ns, struct weft_collective_plan *planned_p,
                        struct weft_error *error);

/* A line, or fields of a report, about the plan; nothing of a line without one. */
void weft_perf_plan_print(const struct weft_perf_plan_options *options,
                          const struct weft_collective_plan *planned, uint64_t bytes);
void weft_perf_plan_report(const struct weft_perf_plan_options *options,
                           const struct weft_collective_plan *planned, cJSON *root);

#endif
