/* The swarm's third kind of seed: the parameter server of sim/swarm_ps.h with a coordinator.
 *
 * Servers register, hold leases, claim their shard in the log of a directory (sim/dirlog.h), and
 * restore. Only then they serve and publish their address; workers get addresses from the
 * coordinator. Servers are frozen and resume with their old state and overdue timers, are killed,
 * and are replaced by a later process while the earlier one may still run. The coordinator dies and
 * is restored from its journal. Writing a checkpoint takes several steps of virtual time; any of
 * these events can happen between two steps, and a step may fail. Workers keep the pushes that no
 * checkpoint contains, so at the end every push must count exactly once.
 */
#ifndef WEFT_SIM_SWARM_MEMBER_H
#define WEFT_SIM_SWARM_MEMBER_H

#include "sim/swarm.h"

/* Whether the seed, one of a parameter server, has a coordinator. */
bool weft_swarm_member_has(uint64_t seed);

/* lax: for tests of the checks: claims in the directory are ignored, and replaced processes keep
 * writing. */
void weft_swarm_member_run(uint64_t seed, bool lax, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

#endif
