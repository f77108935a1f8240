/* The swarm's second kind of seed: a parameter server's workers and shards on the faulty network.
 *
 * Gradients are chosen so that a weight says what happened to it. Worker w in clock c pushes to
 * each of its rows 2^(w x clocks + c) in column 0 and 1 in the others, all times the number of
 * workers, with SGD at rate 1. A row's column 0 is then minus the set of pushes that reached it, as
 * bits, and every other column minus their number. A push applied twice carries into another bit,
 * and the columns disagree. Seeds also draw other kinds of table: sim/swarm_table.h.
 *
 * With bf16 the same seeds' tables say that their messages carry that, one way or both. The first column
 * is a number that bf16 can say, so all of the above holds for what the shards have; where nothing may
 * be lost the others count by 1001, which it cannot, and what the rows lack is what the workers keep.
 * Of rows that are rounded on the way back the first column says a range of sets.
 *
 * With int8 pushes carry that (sim/swarm_table.h).
 */
#ifndef WEFT_SIM_SWARM_PS_H
#define WEFT_SIM_SWARM_PS_H

#include "rpc/table_spec.h"
#include "sim/swarm.h"

void weft_swarm_ps_run(uint64_t seed, uint8_t value_type, const struct weft_world_tap *tap,
                       struct weft_swarm_result *result_p);

/* The same, but that the workers go by aggregators, one for each shard, which die and come back
 * (ps/aggregator.h). */
void weft_swarm_ps_via_run(uint64_t seed, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

#endif
