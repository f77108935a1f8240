/* A swarm seed with collectives: production ranks (coll/coll.h) on a cluster with faults, and a
 * script of operations in one or two groups. One rank may die, leave the script, or call a
 * different operation. Checks: results are bit-identical at all ranks; values equal those of a
 * simple loop; the missing parts of a sum equal those reported to its contributors; error feedback
 * loses no value; a failure names the right rank at all ranks; and everything ends in time. */
#ifndef WEFT_SIM_SWARM_COLL_H
#define WEFT_SIM_SWARM_COLL_H

#include "sim/swarm.h"

void weft_swarm_coll_run(uint64_t seed, const struct weft_world_tap *tap,
                         struct weft_swarm_result *result_p);

#endif
