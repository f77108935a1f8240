/* All-reduce through an aggregation box on virtual time: the runs of sim/allreduce.h with a box. */
#ifndef WEFT_SIM_ALLREDUCE_BOX_H
#define WEFT_SIM_ALLREDUCE_BOX_H

#include "agg/dense_member.h"
#include "sim/allreduce.h"

/* NULL, or what is wrong with the configuration; the fields that runs without a box have, too, were
 * checked. */
const char *weft_allreduce_box_check(const struct weft_allreduce_config *config);

uint64_t weft_allreduce_box_ideal_ns(const struct weft_allreduce_config *config);

void weft_allreduce_box_run(const struct weft_allreduce_config *config,
                            struct weft_allreduce_result *result_p);

#endif
