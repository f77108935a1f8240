/* The swarm: one seed is one whole cluster with faults, run to its end and checked.
 *
 * A seed draws everything: how many hosts, their links, faults, message sizes, bounds, sinks, who
 * sends what to whom and when, who dies. Faults come first; then the network heals and everything
 * must end within a virtual time. The oracles (sim/oracle.c) know what every message should have
 * become and compare memory, masks, events and counters with it.
 *
 * A run depends on nothing but its seed: no clock, no thread. Running seeds in parallel is the
 * caller's affair (processes: the assertion of one seed must not end the others).
 */
#ifndef WEFT_SIM_SWARM_H
#define WEFT_SIM_SWARM_H

#include "base/status.h"
#include "base/units.h"
#include "sim/world.h"

#include <stdbool.h>

/* What happened to updates of a parameter server that waits for a scheduler. */
struct weft_swarm_updates {
    uint64_t asked;
    uint64_t dropped;
    uint64_t late;     /* refused by a shard */
    uint64_t broken;   /* not wholly granted when a shard died */
    uint64_t replayed; /* and when the worker sent again what a shard had lost */
};

struct weft_swarm_result {
    uint64_t seed;
    bool ok;
    uint64_t trace_hash;
    uint64_t steps;       /* events of the network */
    uint64_t virtual_ns;  /* when the last message was closed */
    uint64_t packets;     /* sent by all endpoints */
    uint64_t path_changes; /* of all endpoints together, as are the next three */
    uint64_t black_holes;
    uint64_t sizes_raised;
    uint64_t ecn_failed;
    uint64_t cut;          /* ends of connections that went down because the plan closed them */
    uint64_t cut_messages; /* messages that ended UNKNOWN or SHORT at such an end */
    uint64_t pushes_listed; /* to a parameter server, that named a list of ids */
    uint64_t lists_unknown; /* and such that a shard did not have */
    struct weft_swarm_updates updates;
    uint64_t pushes_absorbed; /* by aggregators, and committed; */
    uint64_t pulls_answered;  /* by them; */
    uint64_t pull_rows_spared; /* rows of these that a shard was not asked for */
    uint64_t aggregates_in; /* sums that one aggregator took from another */
    uint64_t noticed;      /* connections with the dead that went down, where that is watched */
    uint32_t messages;
    char plan[1024];      /* the configuration drawn, lines */
    char failure[512];    /* the check that failed; "" when ok */
};

/* Run one seed. tap = NULL: nobody looks on; the result is the same when somebody does. */
void weft_swarm_run(uint64_t seed, const struct weft_world_tap *tap,
                    struct weft_swarm_result *result_p);

/* Run one seed as a parameter server whose messages carry values of this type (enum weft_value_type;
 * sim/swarm_ps.h). */
void weft_swarm_run_values(uint64_t seed, uint8_t type, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

/* Run one seed as a parameter server whose workers go by aggregators. */
void weft_swarm_run_via(uint64_t seed, const struct weft_world_tap *tap,
                        struct weft_swarm_result *result_p);

/* Fold results, in the order of their seeds, into one hash: it does not depend on who ran them. */
uint64_t weft_swarm_combine(uint64_t hash, const struct weft_swarm_result *result);
#define WEFT_SWARM_COMBINE_INIT UINT64_C(0)

#endif
