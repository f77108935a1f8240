/* The swarm's third kind of seed: the parameter server of sim/swarm_ps.h with a coordinator.
 *
 * Servers register, hold leases, claim their shard in the log of a directory (sim/dirlog.h), restore, and
 * only then serve and publish their address; workers learn addresses from the coordinator. Servers are
 * frozen and thaw with their old state and overdue timers, are killed, are replaced by a later process
 * while the earlier one may still live; the coordinator dies and comes back from its journal. Writing a
 * checkpoint takes several steps of virtual time, between any two of which all this can happen, and may
 * fail. Workers keep what no checkpoint has, so at the end every push must count once.
 */
#ifndef WEFT_SIM_SWARM_MEMBER_H
#define WEFT_SIM_SWARM_MEMBER_H

#include "sim/swarm.h"

/* Does the seed, one of a parameter server, draw a coordinator? */
bool weft_swarm_member_has(uint64_t seed);

/* lax: for tests of the tests: nobody looks at claims in the directory, and what was replaced writes on. */
void weft_swarm_member_run(uint64_t seed, bool lax, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

#endif
