/* A simulated parameter server: the draw from the seed, and the run. */
#include "sim/swarm_ps_internal.h"

#include "wire/packet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEATHS_MAX = 4 };

static const uint64_t check_interval_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t death_gap_ns = 30 * WEFT_NS_PER_MS;
static const uint64_t drain_ns = 2 * WEFT_NS_PER_S;

static const char *const durability_names[DURABILITIES] = {"workers replay", "journal and workers",
                                                  "small journal and workers", "journal", "nobody"};

/* ---- drawing --------------------------------------------------------------------------------- */

/* The longest and the shortest packets of any host. */
static void packet_bytes(const struct swarm_ps *ps, uint32_t *most_p, uint32_t *least_p)
{
    *most_p = 0;
    *least_p = UINT32_MAX;
    for (uint32_t h = 0; h < ps->plan.hosts; h++) {
        uint32_t bytes = ps->plan.host[h].ep.packet_bytes;
        *most_p = bytes > *most_p ? bytes : *most_p;
        *least_p = bytes < *least_p ? bytes : *least_p;
    }
}

/* Only if a restart leaves no effect: admission and eviction depend on the order. */
static uint32_t deaths_draw(const struct weft_swarm_table *table)
{
    struct weft_prng prng;
    weft_prng_split(&prng, table->seed, UINT64_C(0x646561746873));
    bool leaves_none = table->flavour == WEFT_SWARM_PLAIN ||
                       table->flavour == WEFT_SWARM_OPTIMIZER ||
                       table->flavour == WEFT_SWARM_DENSE || table->flavour == WEFT_SWARM_WIDE;
    uint32_t deaths = (uint32_t)weft_prng_below(&prng, 2 * DEATHS_MAX);
    return leaves_none && table->push_bound_ppm == 0 && deaths <= DEATHS_MAX ? deaths : 0;
}

/* Only plain rows identify exactly the pushes in them, even if some are missing. */
static void durability_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x6b6565706572));
    bool plain = ps->table.flavour == WEFT_SWARM_PLAIN;
    uint32_t drawn = (uint32_t)weft_prng_below(&prng, DURABILITIES);
    /* A part of a row, or a different number of gradients in a mean, could not be distinguished
     * from an error. */
    bool whole_rows =
        plain || (ps->table.flavour == WEFT_SWARM_DENSE && ps->table.spec.mode != WEFT_TABLE_BSP);
    ps->durability =
        drawn == DURABILITY_NOBODY && !plain ? DURABILITY_JOURNAL : (enum durability)drawn;
    ps->mortal = whole_rows && ps->deaths > 0 &&
                 (ps->durability == DURABILITY_BOTH || ps->durability == DURABILITY_JOURNAL);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Encoding of row ids in requests; ascending ids are worth packing. */
static void ids_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x696473));
    ps->can = (uint16_t)weft_prng_below(&prng, (WEFT_RPC_CAN_PACK | WEFT_RPC_CAN_LIST) + 1);
    if (weft_prng_below(&prng, 4) > 0) {
        qsort(ps->id, IDS_MAX, sizeof(*ps->id), by_value);
    }
    /* From none to all, including lists that are dropped before they are used. */
    ps->fetches = (enum fetches)weft_prng_below(&prng, FETCHES);
    ps->list_ids = (uint32_t)weft_prng_below(&prng, 5) * (uint32_t)weft_prng_below(&prng, IDS_MAX);
}

static void values_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x76616c756573));
    const uint8_t type = ps->value_type;
    uint64_t ways = type != WEFT_VALUE_FLOAT32 ? weft_prng_range(&prng, 1, 3) : 0;
    ways |= type == WEFT_VALUE_INT8;
    ps->table.spec.push_values = (ways & 1) != 0 ? type : WEFT_VALUE_FLOAT32;
    ps->table.spec.pull_values = (ways & 2) != 0 ? WEFT_VALUE_BF16 : WEFT_VALUE_FLOAT32;
}

/* Only without loss, and if rows are kept: then the missing values equal the workers' residuals. */
static bool draws_odd(const struct weft_swarm_table *table)
{
    return table->spec.push_values != WEFT_VALUE_FLOAT32 && table->push_bound_ppm == 0 &&
           (table->flavour == WEFT_SWARM_PLAIN || table->flavour == WEFT_SWARM_DENSE ||
            table->flavour == WEFT_SWARM_WIDE);
}

void weft_swarm_ps_draw(struct swarm_ps *ps, uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, UINT64_C(0x7073));
    ps->shards = (uint32_t)weft_prng_range(&prng, 1, SHARDS_MAX);
    ps->table.workers = (uint32_t)weft_prng_range(&prng, 1, WORKERS_MAX);
    ps->table.clocks =
        (uint32_t)weft_prng_range(&prng, 1, weft_min_u64(5, BITS_MAX / ps->table.workers));
    ps->table.ids = (uint32_t)weft_prng_range(&prng, 1, IDS_MAX);
    ps->rows_per_rpc = (uint32_t)weft_prng_range(&prng, 10, IDS_MAX);
    ps->table.share_percent = (uint32_t)weft_prng_range(&prng, 10, 100);
    bool lossy = weft_prng_below(&prng, 2) == 0;
    ps->table.push_bound_ppm = lossy ? (uint32_t)weft_prng_below(&prng, 400000) : 0;
    ps->table.pull_bound_ppm = lossy ? (uint32_t)weft_prng_below(&prng, 400000) : 0;
    uint8_t mode = (uint8_t)weft_prng_below(&prng, 3);
    ps->table.spec = (struct weft_table_spec){
        .table = 1,
        .dim = (uint32_t)weft_prng_range(&prng, 2, 40),
        .optimizer = WEFT_OPTIMIZER_SGD,
        .mode = mode,
        .workers = (uint16_t)ps->table.workers,
        .staleness = mode == WEFT_TABLE_SSP ? (uint32_t)weft_prng_range(&prng, 1, 3) : 0,
        .learning_rate = 1,
    };
    ps->table.seed = seed;
    ps->plan.seed = seed;
    ps->plan.pattern = "parameter server";
    ps->plan.victim = UINT32_MAX;
    ps->plan.hosts = ps->shards * (1U + ps->via + ps->tree + ps->replicas) + ps->table.workers;
    weft_plan_draw_cluster(&prng, &ps->plan);
    weft_plan_draw_security(&ps->plan);
    for (uint32_t i = 0; i < IDS_MAX; i++) {
        /* In half of the runs all ids fit 32 bits; an odd factor keeps them distinct. */
        ps->id[i] = seed % 2 == 0 ? weft_mix64(seed * IDS_MAX + i + 1)
                                  : (uint32_t)(seed * IDS_MAX + i) * UINT32_C(0x9e3779b1);
    }
    ids_draw(ps);
    values_draw(ps);
    uint32_t most, least;
    packet_bytes(ps, &most, &least);
    weft_swarm_table_draw(&ps->table, most, least - WEFT_DATA_OVERHEAD_BYTES, ps->id);
    for (uint32_t i = 0; ps->table.flavour == WEFT_SWARM_DENSE && i < IDS_MAX; i++) {
        ps->id[i] = i;
    }
    ps->table.is_odd = draws_odd(&ps->table);
    ps->deaths = deaths_draw(&ps->table);
    durability_draw(ps);
    ps->plan.limit_ns = ps->plan.heal_ns + 30 * WEFT_NS_PER_S;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Returns NULL if all are done, else the host that is not. */
static const char *waits(struct swarm_ps *ps)
{
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        if (ps->worker[w].phase != PHASE_DONE) {
            return "a worker has not finished its clocks";
        }
        if (weft_ps_client_busy(ps->worker[w].client)) {
            return "a client is busy although its worker has finished";
        }
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (ps->deaths > 0 &&
            weft_shard_clock(ps->shard[s], ps->table.spec.table) != ps->table.clocks) {
            return "a shard that died has not received all pushes again";
        }
        if (weft_shard_busy(ps->shard[s])) {
            return "a shard is busy although all workers have finished";
        }
    }
    const char *replicas_wait = weft_swarm_ps_replicas_wait(ps);
    if (replicas_wait != NULL) {
        return replicas_wait;
    }
    /* A server with a replica sends to it from time to time even if nothing has changed. */
    for (uint32_t i = 0; !ps->replicas && i < ps->plan.hosts; i++) {
        if (weft_ep_busy(weft_world_ep(ps->world, i))) {
            return "an endpoint is busy although all is closed";
        }
    }
    return NULL;
}

bool weft_swarm_ps_run_until(struct swarm_ps *ps, uint64_t until_ns)
{
    enum weft_world_end end = weft_world_run(ps->world, until_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(ps->world, "%d events were not enough", STEPS_MAX);
    }
    return end != WEFT_WORLD_BROKEN && end != WEFT_WORLD_STEPS;
}

/* Checkpoints and deaths, at any time. Returns false if a check has already failed. */
static bool run_deaths(struct swarm_ps *ps)
{
    struct weft_prng prng, worker_prng, box_prng;
    weft_prng_split(&box_prng, ps->table.seed, UINT64_C(0x62646965));
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x64696573));
    weft_prng_split(&worker_prng, ps->table.seed, UINT64_C(0x776469657300));
    /* If pushes are not resent, many must have arrived since the checkpoint. */
    bool by_workers = ps->durability == DURABILITY_WORKERS;
    uint64_t gap_ns = by_workers ? death_gap_ns : 4 * death_gap_ns;
    for (uint32_t i = 0; !ps->replicas && i < 3 * ps->deaths; i++) {
        ps->died_ns += weft_prng_below(&prng, gap_ns);
        uint32_t s = (uint32_t)weft_prng_below(&prng, ps->shards);
        if (!weft_swarm_ps_run_until(ps, ps->died_ns)) {
            return false;
        }
        (void)weft_swarm_ps_box_may_die(ps, &box_prng);
        if (ps->mortal && weft_prng_below(&worker_prng, 2) == 0) {
            weft_swarm_ps_worker_dies(ps,
                                      (uint32_t)weft_prng_below(&worker_prng, ps->table.workers));
        }
        if (i % 3 == 2) {
            weft_swarm_ps_shard_dies(ps, s);
        } else if (by_workers || i % 3 == 0) {
            weft_saved_begin(&ps->saved[s], ps->shard[s]);
        }
    }
    return true;
}

/* Deaths of aggregators, after those of shards. */
static bool run_box_deaths(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x626f786573));
    for (uint32_t i = 0; ps->via && !ps->replicas && i < 6; i++) {
        ps->died_ns += weft_swarm_ps_box_gap_ns(&prng);
        if (!weft_swarm_ps_run_until(ps, ps->died_ns)) {
            return false;
        }
        (void)weft_swarm_ps_box_may_die(ps, &prng);
    }
    return true;
}

static void ps_run(struct swarm_ps *ps)
{
    if (!run_deaths(ps) || !run_box_deaths(ps) || !weft_swarm_ps_run_replicas(ps)) {
        return;
    }
    ps->plan.limit_ns += ps->replicas ? ps->died_ns : 0;
    if (!weft_swarm_ps_run_until(ps, weft_max_u64(ps->died_ns, ps->plan.heal_ns))) {
        return;
    }
    weft_net_heal(weft_world_net(ps->world));
    uint64_t at_ns = weft_max_u64(ps->died_ns, ps->plan.heal_ns);
    while (waits(ps) != NULL) {
        if (at_ns > ps->plan.limit_ns ||
            weft_net_next_ns(weft_world_net(ps->world)) == WEFT_NEVER) {
            weft_world_fail(ps->world, "%s", waits(ps));
            return;
        }
        at_ns += check_interval_ns;
        if (!weft_swarm_ps_run_until(ps, at_ns)) {
            return;
        }
    }
    if (weft_swarm_ps_run_until(ps, at_ns + drain_ns)) {
        weft_swarm_ps_replicas_end(ps);
        weft_swarm_ps_check_tables(ps);
    }
}

static void describe(const struct swarm_ps *ps, char *text, size_t bytes)
{
    static const char *const modes[] = {"BSP", "SSP", "ASP"};
    const struct weft_swarm_table *table = &ps->table;
    int used = snprintf(
        text, bytes,
        "%" PRIu32 " shards, %" PRIu32 " workers, %" PRIu32 " clocks, %" PRIu32
        " ids of dim %" PRIu32 ", %s staleness %" PRIu32 ", %" PRIu32
        " rows an RPC, bounds %u and %u ppm, may %u, fetches %u, lists of %" PRIu32
        " ids%s%s%s; %s, optimizer %u, %" PRIu32 " deaths of shards%s, kept by: %s\n",
        ps->shards, table->workers, table->clocks, table->ids, table->spec.dim,
        modes[table->spec.mode], table->spec.staleness, ps->rows_per_rpc, table->push_bound_ppm,
        table->pull_bound_ppm, ps->can, ps->fetches, ps->list_ids,
        table->spec.push_values == WEFT_VALUE_BF16   ? ", bf16 pushes"
        : table->spec.push_values == WEFT_VALUE_INT8 ? ", int8 pushes"
                                                     : "",
        table->spec.pull_values == WEFT_VALUE_BF16 ? ", bf16 answers" : "",
        !ps->scheduled ? ""
        : ps->drops    ? ", scheduled, with drops"
                       : ", scheduled",
        weft_swarm_table_name(table), table->spec.optimizer, ps->deaths,
        ps->mortal ? " and workers" : "", ps->deaths > 0 ? durability_names[ps->durability] : "-");
    if (ps->via) {
        used += snprintf(text + used, bytes - (size_t)used,
                         "by aggregators: %" PRIu64 " pushes, %" PRIu64 " pulls, %" PRIu64
                         " rows not asked for%s; sums of one for another: %" PRIu64
                         "; connections parked: %" PRIu64 ", opened again: %" PRIu64
                         "; hot rows: %u, pushed %" PRIu64 " rows of them and %" PRIu64
                         " others; acknowledged on apply: %" PRIu64 " pushes\n",
                         ps->pushes_absorbed, ps->pulls_answered, ps->pull_rows_spared,
                         ps->tree ? "; two of each shard" : "", ps->aggregates_in, ps->parks,
                         ps->unparks, ps->hot_rows, ps->rows_hot, ps->rows_cold,
                         ps->pushes_applied);
    }
    if (ps->replicas) {
        const struct weft_swarm_replicas *r = &ps->told_replicas;
        used += snprintf(text + used, bytes - (size_t)used,
                         "replicas: bound %g, lease %" PRIu64 " ms, deaths %" PRIu64
                         " us apart; %" PRIu64 " promotions, %" PRIu64 " of them lost something, "
                         "at most %.3f of the bound; %" PRIu64 " transfers\n",
                         ps->div_max, ps->replica_lease_ns / WEFT_NS_PER_MS,
                         ps->death_gap_ns / WEFT_NS_PER_US, r->promotions, r->lost_some,
                         r->lost_share_max, r->transfers);
    }
    if (ps_kills(ps)) {
        used += snprintf(text + used, bytes - (size_t)used,
                         "also died: %" PRIu64 " workers, %" PRIu64 " aggregators, %" PRIu64
                         " schedulers\n",
                         ps->told_replicas.worker_deaths, ps->told_replicas.aggregator_deaths,
                         ps->told_replicas.scheduler_deaths);
    }
    weft_plan_describe(&ps->plan, text + used, bytes - (size_t)used);
}

static void ps_seed(uint64_t seed, uint8_t value_type, enum swarm_ps_with with,
                    const struct weft_world_tap *tap, struct weft_swarm_result *result_p)
{
    struct swarm_ps *ps = weft_swarm_ps_new(seed, value_type, with, tap);
    ps_run(ps);
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(ps->world)[0] == '\0',
        .trace_hash = weft_world_hash(ps->world),
        .steps = weft_world_steps(ps->world),
        .virtual_ns = ps->closed_ns,
    };
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        weft_swarm_ps_count_lists(ps, w);
        weft_swarm_ps_count_parks(ps, w);
        ps->told_replicas.pushes_lost += ps->worker[w].lost;
        ps->told_replicas.pushes_lost += weft_ps_client_counters(ps->worker[w].client)->pushes_lost;
    }
    result_p->replicas = ps->told_replicas;
    weft_swarm_ps_boxes_count(ps);
    result_p->pushes_applied = ps->pushes_applied;
    result_p->pushes_lost = ps->applies ? ps->told_replicas.pushes_lost : 0;
    result_p->parks = ps->parks;
    result_p->unparks = ps->unparks;
    result_p->rows_hot = ps->rows_hot;
    result_p->rows_cold = ps->rows_cold;
    result_p->pushes_absorbed = ps->pushes_absorbed;
    result_p->pulls_answered = ps->pulls_answered;
    result_p->pull_rows_spared = ps->pull_rows_spared;
    result_p->aggregates_in = ps->aggregates_in;
    result_p->pushes_listed = ps->pushes_listed;
    result_p->lists_unknown = ps->lists_unknown;
    result_p->updates = ps->told;
    for (uint32_t i = 0; i < ps->plan.hosts; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(ps->world, i));
        result_p->packets += weft_world_counters(ps->world, i)->packets_sent;
        result_p->messages += (uint32_t)c->messages_sent;
    }
    describe(ps, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(ps->world));
    weft_swarm_ps_free(ps);
}

void weft_swarm_ps_run(uint64_t seed, uint8_t value_type, const struct weft_world_tap *tap,
                       struct weft_swarm_result *result_p)
{
    ps_seed(seed, value_type, WITH_NOBODY, tap, result_p);
}

void weft_swarm_ps_via_run(uint64_t seed, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p)
{
    ps_seed(seed, WEFT_VALUE_FLOAT32, WITH_AGGREGATORS, tap, result_p);
}

void weft_swarm_ps_replicas_run(uint64_t seed, const struct weft_world_tap *tap,
                                struct weft_swarm_result *result_p)
{
    ps_seed(seed, WEFT_VALUE_FLOAT32, WITH_REPLICAS, tap, result_p);
}

void weft_swarm_ps_kills_run(uint64_t seed, const struct weft_world_tap *tap,
                             struct weft_swarm_result *result_p)
{
    ps_seed(seed, WEFT_VALUE_FLOAT32, WITH_BOTH, tap, result_p);
}
