/* Deaths of every kind of process of a simulated parameter server: besides servers and replicas
 * (swarm_ps_replica.c) also workers, aggregators and the scheduler.
 *
 * They die between any two steps, also while a server is dead and its replica is not promoted yet.
 * A dead worker or aggregator is replaced at once, a dead scheduler later; until then no updates
 * are decided.
 *
 * A worker that dies does not report which of its pushes a promotion has lost, or whether its last
 * push was applied. All other checks of swarm_ps_replica.c and swarm_ps_check.c still apply. */
#include "sim/swarm_ps_internal.h"

enum { WORKER_DEATHS_MAX = 4, SCHED_DEATHS_MAX = 4 };

static const uint64_t sched_dead_ns = 2 * WEFT_NS_PER_S;

void weft_swarm_ps_kills_draw(struct swarm_ps *ps)
{
    struct weft_prng *prng = &ps->kills_prng;
    weft_prng_split(prng, ps->table.seed, UINT64_C(0x6b696c6c73));
    if (!ps_kills(ps)) {
        return;
    }
    /* As in swarm_ps.c: a part of a row, or another number of gradients in a mean, could not be
     * distinguished from an error. */
    ps->mortal = ps->deaths > 0 && weft_prng_below(prng, 4) > 0 &&
                 (ps->table.flavour == WEFT_SWARM_PLAIN || ps->table.spec.mode != WEFT_TABLE_BSP);
}

void weft_swarm_ps_kills_may(struct swarm_ps *ps)
{
    struct weft_prng *prng = &ps->kills_prng;
    struct weft_swarm_replicas *told = &ps->told_replicas;
    if (!ps_kills(ps)) {
        return;
    }
    told->aggregator_deaths += weft_swarm_ps_box_may_die(ps, prng);
    const uint32_t w = (uint32_t)weft_prng_below(prng, ps->table.workers);
    if (ps->mortal && told->worker_deaths < WORKER_DEATHS_MAX &&
        ps->worker[w].phase != PHASE_DONE && weft_prng_below(prng, 4) == 0) {
        weft_swarm_ps_worker_dies(ps, w);
        told->worker_deaths++;
    }
    if (ps->scheduled && told->scheduler_deaths < SCHED_DEATHS_MAX &&
        weft_prng_below(prng, 8) == 0) {
        weft_swarm_ps_sched_dies(ps, weft_prng_below(prng, sched_dead_ns));
        told->scheduler_deaths++;
    }
}
