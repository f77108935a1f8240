/* A simulated job with a coordinator: the draw from the seed, and the run. */
#include "sim/swarm_member_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t drain_ns = 300 * WEFT_NS_PER_MS;

/* ---- drawing --------------------------------------------------------------------------------- */

/* Only a seed in which shards may die: its results are the same with and without restarts, so every
 * difference is an error. */
static bool has(const struct swarm_ps *ps, uint64_t seed, struct weft_prng *prng)
{
    weft_prng_split(prng, seed, UINT64_C(0x6d656d626572));
    return weft_prng_below(prng, 3) == 0 && ps->deaths > 0;
}

bool weft_swarm_member_has(uint64_t seed)
{
    struct weft_prng prng;
    struct swarm_ps *ps = calloc(1, sizeof(*ps));
    WEFT_ASSERT(ps != NULL);
    weft_swarm_ps_draw(ps, seed);
    bool result = has(ps, seed, &prng);
    weft_swarm_table_fini(&ps->table);
    free(ps);
    return result;
}

/* Each process has two hosts, one for data and one for membership. Both get the links and faults
 * that were drawn for its shard or worker. */
static void spread_hosts(struct swarm_member *m)
{
    struct weft_plan *plan = &m->ps.plan;
    struct weft_plan_host drawn[SHARDS_MAX + WORKERS_MAX];
    for (uint32_t h = 0; h < plan->hosts; h++) {
        drawn[h] = plan->host[h];
    }
    for (uint32_t p = 0; p < m->processes; p++) {
        uint32_t from = p < m->servers ? shard_of(p) : m->ps.shards + p - m->servers;
        plan->host[p] = plan->host[member_host(m, p)] = drawn[from];
    }
    plan->host[coordinator_host(m)] = drawn[0];
    plan->hosts = 2 * m->processes + 1;
}

static void draw_events(struct swarm_member *m, struct weft_prng *prng)
{
    uint64_t at_ns = 0;
    m->events = (uint32_t)weft_prng_range(prng, 1, EVENTS_MAX);
    for (uint32_t i = 0; i < m->events; i++) {
        at_ns += weft_prng_below(prng, m->lease_ns);
        struct swarm_event *event = &m->event[i];
        uint64_t kind = weft_prng_below(prng, 2 * EVENT_KINDS);
        event->kind = kind < EVENT_KINDS ? (enum event_kind)kind : EVENT_FREEZE;
        event->at_ns = at_ns;
        event->span_ns = weft_prng_below(prng, 6 * m->lease_ns);
        event->shard = (uint32_t)weft_prng_below(prng, m->ps.shards);
        m->busy_until_ns = weft_max_u64(m->busy_until_ns, at_ns + event->span_ns);
    }
}

static struct swarm_member *draw(uint64_t seed, bool lax)
{
    struct weft_prng prng;
    struct swarm_member *m = calloc(1, sizeof(*m));
    WEFT_ASSERT(m != NULL);
    weft_swarm_ps_draw(&m->ps, seed);
    bool drawn = has(&m->ps, seed, &prng);
    WEFT_ASSERT(drawn);
    m->ps.durability = DURABILITY_WORKERS;
    m->ps.mortal = false;
    m->log.is_lax = lax;
    m->servers = m->ps.shards * SLOTS;
    m->processes = m->servers + m->ps.table.workers;
    m->lease_ns = weft_prng_range(&prng, 50, 400) * WEFT_NS_PER_MS;
    m->full_ppm = weft_prng_below(&prng, 2) == 0 ? (uint32_t)weft_prng_below(&prng, 500000) : 0;
    draw_events(m, &prng);
    /* Training takes about as long as the sequence of faults. */
    m->think_ns = weft_prng_range(&prng, 1, 3) * m->busy_until_ns / m->ps.table.clocks;
    spread_hosts(m);
    weft_prng_split(&m->prng, seed, UINT64_C(0x7469636b73));
    m->busy_until_ns = weft_max_u64(m->busy_until_ns, m->ps.plan.heal_ns);
    m->ps.plan.limit_ns = m->busy_until_ns + 60 * WEFT_NS_PER_S;
    m->coordinator_up_ns = WEFT_NEVER;
    return m;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void start(struct swarm_member *m, const struct weft_world_tap *tap)
{
    struct weft_world_config config = {
        .hosts = m->ps.plan.hosts,
        .seed = weft_mix64(m->ps.plan.seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = m->ps.plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    m->ps.world = weft_world_new(&config);
    weft_plan_build(&m->ps.plan, weft_world_net(m->ps.world));
    weft_swarm_coordinator_start(m);
    for (uint32_t s = 0; s < m->ps.shards; s++) {
        weft_swarm_server_start(m, s);
    }
    for (uint32_t w = 0; w < m->ps.table.workers; w++) {
        weft_swarm_worker_start(m, w);
    }
}

static void finish(struct swarm_member *m)
{
    weft_swarm_table_fini(&m->ps.table);
    weft_world_free(m->ps.world); /* first: endpoints borrow memory of all others */
    for (uint32_t i = 0; i < m->servers; i++) {
        weft_swarm_server_free(&m->server[i]);
    }
    for (uint32_t p = 0; p < m->processes; p++) {
        weft_member_client_free(m->client[p].client);
    }
    for (uint32_t w = 0; w < m->ps.table.workers; w++) {
        weft_ps_client_free(m->ps.worker[w].client);
        free(m->ps.worker[w].rows);
        free(m->ps.worker[w].fetched_rows);
    }
    weft_member_service_free(m->service);
    weft_roster_free(m->roster);
    weft_dirlog_fini(&m->log);
    free(m);
}

static void happen(struct swarm_member *m, const struct swarm_event *event, uint64_t now_ns)
{
    switch (event->kind) {
    case EVENT_FREEZE:
        weft_swarm_server_freeze(m, event->shard, now_ns + event->span_ns);
        break;
    case EVENT_KILL:
        weft_swarm_server_kill(m, event->shard, now_ns);
        break;
    case EVENT_COORDINATOR:
        if (m->coordinator_up_ns == WEFT_NEVER) {
            weft_swarm_coordinator_kill(m);
            m->coordinator_up_ns = now_ns + event->span_ns;
        }
        break;
    case EVENT_KINDS:
        WEFT_ASSERT(false);
    }
}

/* Returns NULL if all are done, else the process that is not. */
static const char *waits(const struct swarm_member *m)
{
    const struct swarm_ps *ps = &m->ps;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        if (ps->worker[w].phase != PHASE_DONE) {
            return "a worker has not finished its clocks";
        }
        if (weft_ps_client_busy(ps->worker[w].client)) {
            return "a client is busy although its worker has finished";
        }
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (ps->shard[s] == NULL || m->server[m->current[s]].shard != ps->shard[s] ||
            m->server[m->current[s]].frozen_ns != 0) {
            return "a shard has no server";
        }
        if (weft_shard_clock(ps->shard[s], ps->table.spec.table) != ps->table.clocks) {
            return "a server that was replaced or died has not received all pushes again";
        }
        if (weft_shard_busy(ps->shard[s])) {
            return "a shard is busy although all workers have finished";
        }
    }
    return NULL;
}

/* Run one millisecond. Returns false on an error or if the run does not end. */
static bool tick(struct swarm_member *m, uint32_t *next_event, uint64_t now_ns)
{
    enum weft_world_end end = weft_world_run(m->ps.world, now_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(m->ps.world, "%d events were not enough", STEPS_MAX);
    }
    for (; *next_event < m->events && m->event[*next_event].at_ns <= now_ns; (*next_event)++) {
        happen(m, &m->event[*next_event], now_ns);
    }
    if (m->coordinator_up_ns <= now_ns) {
        weft_swarm_coordinator_start(m);
    }
    for (uint32_t i = 0; i < m->servers; i++) {
        weft_swarm_server_tick(m, i, now_ns);
    }
    weft_swarm_supervise(m, now_ns);
    for (uint32_t w = 0; w < m->ps.table.workers; w++) {
        weft_swarm_worker_tick(m, w, now_ns);
    }
    return weft_world_wrong(m->ps.world)[0] == '\0';
}

static void run(struct swarm_member *m)
{
    uint32_t next_event = 0;
    uint64_t quiet_ns = 0; /* time since which no process waits */
    bool healed = false;
    for (uint64_t now_ns = 0; tick(m, &next_event, now_ns); now_ns += swarm_tick_ns) {
        if (!healed && now_ns >= m->ps.plan.heal_ns) {
            weft_net_heal(weft_world_net(m->ps.world));
            healed = true;
        }
        const char *why = waits(m);
        quiet_ns = why != NULL || now_ns < m->busy_until_ns ? 0 : quiet_ns == 0 ? now_ns : quiet_ns;
        if (quiet_ns != 0 && now_ns >= quiet_ns + drain_ns) {
            weft_swarm_ps_check_tables(&m->ps);
            return;
        }
        if (now_ns > m->ps.plan.limit_ns) {
            weft_world_fail(m->ps.world, "%s", why != NULL ? why : "never quiet");
            return;
        }
    }
}

static void describe(const struct swarm_member *m, char *text, size_t bytes)
{
    int used = snprintf(
        text, bytes,
        "coordinator: lease %" PRIu64 " ms, pauses to %" PRIu64 " ms, disk full %" PRIu32
        " ppm; processes: %" PRIu64 " frozen, %" PRIu64 " replaced, %" PRIu64
        " thawed after their replacement, %" PRIu64 " killed; %" PRIu64
        " deaths of the coordinator; checkpoints: %" PRIu64 " complete, %" PRIu64
        " abandoned; %" PRIu32 " shards, %" PRIu32 " workers, %" PRIu32 " clocks, mode %u, %s\n",
        m->lease_ns / WEFT_NS_PER_MS, m->think_ns / WEFT_NS_PER_MS, m->full_ppm, m->seen.frozen,
        m->seen.replaced, m->seen.thawed, m->seen.killed, m->seen.coordinator_deaths,
        m->seen.checkpoints, m->seen.full, m->ps.shards, m->ps.table.workers, m->ps.table.clocks,
        m->ps.table.spec.mode, weft_swarm_table_name(&m->ps.table));
    if (used > 0 && (size_t)used < bytes) {
        weft_plan_describe(&m->ps.plan, text + used, bytes - (size_t)used);
    }
}

void weft_swarm_member_run(uint64_t seed, bool lax, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p)
{
    struct swarm_member *m = draw(seed, lax);
    start(m, tap);
    run(m);
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(m->ps.world)[0] == '\0',
        .trace_hash = weft_world_hash(m->ps.world),
        .steps = weft_world_steps(m->ps.world),
        .virtual_ns = m->ps.closed_ns,
    };
    for (uint32_t h = 0; h < m->ps.plan.hosts; h++) {
        const struct weft_ep *ep = weft_world_ep(m->ps.world, h);
        result_p->packets += weft_world_counters(m->ps.world, h)->packets_sent;
        result_p->messages += ep != NULL ? (uint32_t)weft_ep_counters(ep)->messages_sent : 0;
    }
    describe(m, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(m->ps.world));
    finish(m);
}
