/* A swarm seed with collectives: production ranks (coll/coll.h) on a cluster with faults, a script of
 * operations in one or two groups, and one rank that may die, leave the script, or call something
 * else. The oracles: equal bits at all ranks; the values are what a plain loop says; what is missing of
 * a sum is what its contributors were told; feedback loses nothing; a failure names the right rank at
 * all ranks; and all ends in time. */
#ifndef WEFT_SIM_SWARM_COLL_H
#define WEFT_SIM_SWARM_COLL_H

#include "sim/swarm.h"

void weft_swarm_coll_run(uint64_t seed, const struct weft_world_tap *tap,
                         struct weft_swarm_result *result_p);

#endif
