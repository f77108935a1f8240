/* The swarm: each seed defines a whole cluster with faults, which is run to its end and checked.
 *
 * Everything is drawn from the seed: the number of hosts, their links, faults, message sizes,
 * bounds, sinks, senders, receivers, times and deaths. Faults come first; then the network heals
 * and everything must end within a virtual time limit. The oracles (sim/oracle.c) compute the
 * expected result of every message and compare memory, masks, events and counters with it.
 *
 * A run depends only on its seed: no clock, no threads. The caller may run seeds in parallel, in
 * separate processes, so that an assertion in one seed does not end the others.
 */
#ifndef WEFT_SIM_SWARM_H
#define WEFT_SIM_SWARM_H

#include "base/status.h"
#include "base/units.h"
#include "sim/world.h"

#include <stdbool.h>

/* Outcomes of updates of a parameter server whose updates wait for a scheduler. */
struct weft_swarm_updates {
    uint64_t asked;
    uint64_t dropped;
    uint64_t late;     /* refused by a shard */
    uint64_t broken;   /* not completely granted when a shard died */
    uint64_t replayed; /* not completely granted when the worker resent pushes that a shard had
                        * lost */
    uint64_t reads;    /* admitted after a wait */
    uint64_t transfers; /* transfers to replicas that waited for a grant */
    uint64_t in_sums;  /* closed by a shard: in a sum with others, with a delay above 0 */
};

/* Replicas of a parameter server's shards. */
struct weft_swarm_replicas {
    uint64_t promotions;
    uint64_t refused;      /* deaths that did not occur because the replica could not be promoted */
    uint64_t mid_run;      /* workers that had not finished at deaths, summed */
    uint64_t lost_some;    /* promotions after which something reported was missing */
    double lost_share_max; /* the largest of these losses, as a fraction of the shard's bound */
    uint64_t transfers;    /* confirmed, of servers; also the next three */
    uint64_t failed;
    uint64_t holds;
    uint64_t bytes;
    uint64_t pushes_lost; /* push messages that workers know to be lost */
    uint64_t replica_deaths;
    uint64_t worker_deaths; /* also the next two: only with aggregators */
    uint64_t aggregator_deaths;
    uint64_t scheduler_deaths;
};

struct weft_swarm_result {
    uint64_t seed;
    bool ok;
    uint64_t trace_hash;
    uint64_t steps;        /* events of the network */
    uint64_t virtual_ns;   /* time at which the last message was closed */
    uint64_t packets;      /* sent by all endpoints */
    uint64_t path_changes; /* of all endpoints together; also the next three */
    uint64_t black_holes;
    uint64_t sizes_raised;
    uint64_t ecn_failed;
    uint64_t cut;           /* ends of connections that went down because the plan closed them */
    uint64_t cut_messages;  /* messages that ended UNKNOWN or SHORT at such an end */
    uint64_t pushes_listed; /* pushes to a parameter server that referred to a list of ids */
    uint64_t lists_unknown; /* of these, with a list that the shard did not have */
    struct weft_swarm_updates updates;
    uint64_t pushes_absorbed;  /* by aggregators, and committed */
    uint64_t pulls_answered;   /* by aggregators */
    uint64_t pull_rows_spared; /* rows of these pulls that were not requested from a shard */
    uint64_t parks;            /* connections to shards that workers parked, */
    uint64_t unparks;          /* and opened again */
    uint64_t rows_hot;         /* of pushes that were split: rows for an aggregator, */
    uint64_t rows_cold;        /* and rows for the shard */
    uint64_t aggregates_in;    /* sums that one aggregator received from another */
    uint64_t pushes_applied;   /* acknowledged by aggregators on apply, */
    uint64_t pushes_lost;      /* and lost, in runs in which that may happen: counted by workers */
    uint64_t noticed;          /* connections to a dead host that went down, where deaths are
                                * detected */
    struct weft_swarm_replicas replicas;
    uint32_t messages;
    char plan[2048];   /* the drawn configuration, as lines of text */
    char failure[512]; /* description of the failed check; "" if ok */
};

/* Run one seed. tap may be NULL and does not change the result. */
void weft_swarm_run(uint64_t seed, const struct weft_world_tap *tap,
                    struct weft_swarm_result *result_p);

/* Run one seed as a parameter server whose messages carry values of this type (enum
 * weft_value_type; sim/swarm_ps.h). */
void weft_swarm_run_values(uint64_t seed, uint8_t type, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p);

/* Run one seed as a parameter server whose workers use aggregators. */
void weft_swarm_run_via(uint64_t seed, const struct weft_world_tap *tap,
                        struct weft_swarm_result *result_p);

/* Run one seed as a parameter server whose shards have replicas. */
void weft_swarm_run_replicas(uint64_t seed, const struct weft_world_tap *tap,
                             struct weft_swarm_result *result_p);

/* Run one seed as such a server with aggregators, too; processes of every kind die. */
void weft_swarm_run_kills(uint64_t seed, const struct weft_world_tap *tap,
                          struct weft_swarm_result *result_p);

/* Combine results, in the order of their seeds, into one hash that does not depend on the order of
 * execution. */
uint64_t weft_swarm_combine(uint64_t hash, const struct weft_swarm_result *result);
#define WEFT_SWARM_COMBINE_INIT UINT64_C(0)

#endif
