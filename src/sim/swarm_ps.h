/* The swarm's second kind of seed: a parameter server's workers and shards on the faulty network.
 *
 * Gradients are chosen so that the weights identify the pushes applied. Worker w in clock c pushes
 * to each of its rows 2^(w x clocks + c) in column 0 and 1 in the others, all times the number of
 * workers, with SGD at rate 1. Column 0 of a row is then minus the set of pushes applied, as bits,
 * and every other column minus their number. A push applied twice carries into another bit, and the
 * columns disagree. Seeds also draw other kinds of table: sim/swarm_table.h.
 *
 * With bf16 the tables of the same seeds use that type for messages, in one direction or both. The
 * first column is representable in bf16, so all of the above holds for the values at the shards. In
 * seeds without loss the other columns count in units of 1001, which bf16 cannot represent; the
 * difference in the rows must equal the residuals of the workers. For rows that are rounded on the
 * way back the first column determines a range of sets.
 *
 * With int8 pushes use that type (sim/swarm_table.h).
 */
#ifndef WEFT_SIM_SWARM_PS_H
#define WEFT_SIM_SWARM_PS_H

#include "rpc/table_spec.h"
#include "sim/swarm.h"

void weft_swarm_ps_run(uint64_t seed, uint8_t value_type, const struct weft_world_tap *tap,
                       struct weft_swarm_result *result_p);

/* The same with aggregators, one or two for each shard, which die and restart (ps/aggregator.h). */
void weft_swarm_ps_via_run(uint64_t seed, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

/* The same with a replica of each shard; servers and replicas die, and replicas are promoted
 * (ps/replica.h). */
void weft_swarm_ps_replicas_run(uint64_t seed, const struct weft_world_tap *tap,
                                struct weft_swarm_result *result_p);

/* The same with both, and often a scheduler: workers, aggregators and the scheduler die as well,
 * and are replaced. */
void weft_swarm_ps_kills_run(uint64_t seed, const struct weft_world_tap *tap,
                             struct weft_swarm_result *result_p);

#endif
