/* Aggregators in a simulated parameter server: one or two for each shard, either chained or side by
 * side. They die, restart, and are disconnected by faults of their links like all hosts. All pushes
 * and pulls of workers that are eligible use them. Pulled rows are checked as without aggregators
 * (swarm_ps_check.c). */
#include "sim/swarm_ps_internal.h"

#include "base/assert.h"
#include "ps/transfer.h"

#include <stdlib.h>

enum { DEATHS_MAX = 5 };

static const uint64_t gap_ns = 60 * WEFT_NS_PER_MS;
static const uint64_t connect_pause_ns = 5 * WEFT_NS_PER_MS;

static uint64_t clock_ns(void *arg)
{
    return weft_world_now_ns(arg);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static uint32_t host_of(const struct swarm_ps *ps, uint32_t b)
{
    return ps->shards * (1U + ps->replicas) + ps->table.workers + b;
}

void weft_swarm_ps_via_begin(struct swarm_ps *ps, uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, UINT64_C(0x74726565));
    ps->tree = ps->via && weft_prng_below(&prng, 2) == 0;
}

/* A second aggregator for each shard: below the first in two of three shards. */
static void tree_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x6c65766c73));
    for (uint32_t s = 0; ps->tree && s < ps->shards; s++) {
        struct swarm_ps_box *upper = &ps->box[s], *lower = &ps->box[ps->shards + s];
        const bool has_parent = weft_prng_below(&prng, 3) > 0;
        lower->config.number = 1;
        lower->config.has_parent = has_parent;
        lower->above = has_parent ? host_of(ps, s) : s;
        upper->config.children_max = 2;
        ps->lower[s] = weft_prng_below(&prng, UINT64_C(1) << WORKERS_MAX);
    }
}

/* In three of four runs: for a moment, or longer than the run. */
static void park_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x7061726b));
    const bool parks = weft_prng_below(&prng, 4) > 0;
    const uint64_t most_ns = weft_prng_below(&prng, 2) == 0 ? WEFT_NS_PER_S : 60 * WEFT_NS_PER_S;
    ps->park_lease_ns = parks ? weft_prng_range(&prng, 100 * WEFT_NS_PER_MS, most_ns) : 0;
    ps->park_pause_ns = weft_prng_range(&prng, 1, 20 * WEFT_NS_PER_MS);
}

/* In one of three runs, in which workers do not park. Sets change at the maximum rate. */
static void hot_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x686f74));
    const bool is_hot = weft_prng_below(&prng, 3) == 0;
    ps->hot_rows = is_hot ? (uint32_t)weft_prng_range(&prng, 1, ps->table.ids / 4 + 1) : 0;
    ps->hot_epoch_ns = weft_prng_range(&prng, WEFT_NS_PER_MS, 50 * WEFT_NS_PER_MS);
    ps->can |= WEFT_RPC_CAN_HOT;
}

/* In three of four runs whose rows identify the pushes in them. With a journal or replay it is
 * not allowed, and nothing may be lost; in half of these runs there is none instead. */
static void apply_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x6170706c79));
    const bool is_exact = ps->table.flavour == WEFT_SWARM_PLAIN && ps->table.push_bound_ppm == 0;
    const bool applies = weft_prng_below(&prng, 4) > 0 && is_exact && !ps->replicas;
    if (applies && ps->deaths > 0 && weft_prng_below(&prng, 2) == 0) {
        ps->durability = DURABILITY_NOBODY;
        ps->mortal = false;
    }
    for (uint32_t b = 0; b < ps->boxes; b++) {
        ps->box[b].config.on_apply = applies;
    }
    ps->applies = applies && (ps->deaths == 0 || ps->durability == DURABILITY_NOBODY);
}

void weft_swarm_ps_via_draw(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x766961));
    ps->can |= WEFT_RPC_CAN_AGGREGATE | WEFT_RPC_CAN_ON_APPLY;
    ps->box_deaths = (uint32_t)weft_prng_below(&prng, DEATHS_MAX + 1);
    ps->boxes = ps->shards * (1 + ps->tree);
    for (uint32_t b = 0; b < ps->boxes; b++) {
        struct weft_aggregator_config *config = &ps->box[b].config;
        weft_aggregator_config_default(config);
        config->shard = b % ps->shards;
        ps->box[b].above = config->shard;
        config->workers_max = ps->table.workers;
        config->tables_max = 2;
        config->push_slots = (uint32_t)weft_prng_range(&prng, 1, 4);
        config->push_bytes_max = (uint32_t)weft_prng_range(&prng, 4096, 100000);
        config->groups_max = (uint32_t)weft_prng_range(&prng, 1, 4);
        config->count_max = (uint32_t)weft_prng_below(&prng, 5);
        config->age_ns = weft_prng_range(&prng, 1000, 5 * WEFT_NS_PER_MS);
        config->pull_slots = (uint32_t)weft_prng_range(&prng, 1, 4);
        config->pull_rows_max = (uint32_t)weft_prng_range(&prng, IDS_MAX / 4, IDS_MAX);
        config->cache_bytes = weft_prng_below(&prng, 3) * 40000;
        config->pull_age_ns = weft_prng_below(&prng, 10 * WEFT_NS_PER_MS);
        config->pull_patience_ns = 100 * WEFT_NS_PER_MS;
        for (int i = 0; i < WEFT_HASH_KEY_BYTES; i++) {
            config->key[i] = (uint8_t)weft_prng_below(&prng, 256);
        }
    }
    tree_draw(ps);
    park_draw(ps);
    hot_draw(ps);
    apply_draw(ps);
}

/* ---- the hosts ------------------------------------------------------------------------------- */

bool weft_swarm_ps_is_box(const struct swarm_ps *ps, uint32_t host)
{
    return ps->via && host >= host_of(ps, 0);
}

static void make(struct swarm_ps *ps, uint32_t b)
{
    struct swarm_ps_box *box = &ps->box[b];
    box->config.clock_ns = clock_ns;
    box->config.clock_arg = ps->world;
    weft_status status = weft_aggregator_new(
        &box->config, weft_ep_msgr(weft_world_ep(ps->world, host_of(ps, b))), &box->aggregator);
    WEFT_ASSERT(status == WEFT_OK);
    weft_world_wake(ps->world, host_of(ps, b), weft_world_now_ns(ps->world));
}

static struct weft_world_host_config host_config(struct swarm_ps *ps, uint32_t b)
{
    struct weft_world_host_config host = weft_swarm_ps_host_config(
        ps, host_of(ps, b),
        weft_rpc_aggregator_name(ps->box[b].config.shard, ps->box[b].config.number),
        weft_aggregator_expects_max(&ps->box[b].config));
    host.ep.incarnation += ps->box[b].lives;
    host.ep.seed += ps->box[b].lives;
    return host;
}

void weft_swarm_ps_boxes_make(struct swarm_ps *ps)
{
    for (uint32_t b = 0; b < ps->boxes; b++) {
        const struct weft_world_host_config host = host_config(ps, b);
        weft_status status = weft_world_host_init(ps->world, host_of(ps, b), &host);
        WEFT_ASSERT(status == WEFT_OK);
        make(ps, b);
    }
}

static void count(struct swarm_ps *ps, uint32_t b)
{
    const struct weft_aggregator_counters *counters =
        weft_aggregator_counters(ps->box[b].aggregator);
    ps->pushes_absorbed += counters->pushes_absorbed;
    ps->aggregates_in += counters->aggregates_in;
    ps->pulls_answered += counters->pulls_answered;
    ps->pushes_applied += counters->pushes_applied;
    ps->pull_rows_spared += counters->pull_rows_cached + counters->pull_rows_shared;
}

void weft_swarm_ps_boxes_count(struct swarm_ps *ps)
{
    for (uint32_t b = 0; b < ps->boxes; b++) {
        count(ps, b);
    }
}

void weft_swarm_ps_boxes_free(struct swarm_ps *ps)
{
    for (uint32_t b = 0; b < ps->boxes; b++) {
        weft_aggregator_free(ps->box[b].aggregator);
    }
}

/* A new process replaces it at once. */
static void box_dies(struct swarm_ps *ps, uint32_t b)
{
    struct swarm_ps_box *box = &ps->box[b];
    count(ps, b);
    box->lives++;
    box->connect_ns = box->check_ns = 0;
    const struct weft_world_host_config host = host_config(ps, b);
    weft_status status = weft_world_restart(ps->world, host_of(ps, b), &host);
    WEFT_ASSERT(status == WEFT_OK);
    weft_aggregator_free(box->aggregator);
    make(ps, b);
}

/* An aggregator may die twice before any other event. */
bool weft_swarm_ps_box_may_die(struct swarm_ps *ps, struct weft_prng *prng)
{
    const bool dies = ps->via && ps->box_deaths > 0 && weft_prng_below(prng, 2) == 0;
    if (dies) {
        ps->box_deaths--;
        box_dies(ps, (uint32_t)weft_prng_below(prng, ps->boxes));
    }
    return dies;
}

uint64_t weft_swarm_ps_box_gap_ns(struct weft_prng *prng)
{
    return weft_prng_below(prng, gap_ns);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Wakes cannot be canceled: schedule only one that is earlier than the scheduled one. */
void weft_swarm_ps_wake_at(struct swarm_ps *ps, uint32_t host, uint64_t at_ns, uint64_t now_ns)
{
    if (at_ns == WEFT_NEVER || (ps->wake_ns[host] > now_ns && ps->wake_ns[host] <= at_ns)) {
        return;
    }
    ps->wake_ns[host] = weft_max_u64(at_ns, now_ns + 1);
    weft_world_wake(ps->world, host, ps->wake_ns[host]);
}

static uint32_t above(const struct swarm_ps *ps, const struct swarm_ps_box *box)
{
    return box->config.has_parent ? box->above : weft_swarm_ps_shard_host(ps, box->config.shard);
}

void weft_swarm_ps_boxes_look(struct swarm_ps *ps, uint32_t s, uint64_t within_ns)
{
    const uint64_t now_ns = weft_world_now_ns(ps->world);
    for (uint32_t b = s; b < ps->boxes; b += ps->shards) {
        ps->box[b].check_ns = now_ns + 1 + weft_prng_below(&ps->kills_prng, within_ns);
        weft_world_wake(ps->world, host_of(ps, b), ps->box[b].check_ns);
    }
}

/* The aggregator is connected to a process that no longer serves the shard, and learns that. */
static void box_moves(struct swarm_ps *ps, uint32_t b, uint64_t now_ns)
{
    struct swarm_ps_box *box = &ps->box[b];
    if (box->check_ns == 0) {
        return;
    }
    if (now_ns < box->check_ns) {
        weft_swarm_ps_wake_at(ps, host_of(ps, b), box->check_ns, now_ns);
        return;
    }
    box->check_ns = 0;
    if (!weft_aggregator_wants_shard(box->aggregator) && box->at_host != above(ps, box)) {
        weft_ep_close(weft_world_ep(ps->world, host_of(ps, b)), box->peer, now_ns);
    }
}

static void box_connects(struct swarm_ps *ps, uint32_t b, uint64_t now_ns)
{
    struct swarm_ps_box *box = &ps->box[b];
    if (!weft_aggregator_wants_shard(box->aggregator)) {
        return;
    }
    if (now_ns >= box->connect_ns) {
        box->at_host = above(ps, box);
        const struct weft_addr addr = weft_world_addr(box->at_host);
        box->connect_ns = now_ns + connect_pause_ns;
        if (weft_ep_connect(weft_world_ep(ps->world, host_of(ps, b)), &addr, now_ns, &box->peer) ==
            WEFT_OK) {
            weft_aggregator_connect(box->aggregator, box->peer);
        }
    }
    weft_swarm_ps_wake_at(ps, host_of(ps, b), box->connect_ns, now_ns);
}

void weft_swarm_ps_box_event(struct swarm_ps *ps, uint32_t host, const struct weft_msg_event *event,
                             uint64_t now_ns)
{
    weft_aggregator_event(ps->box[host - host_of(ps, 0)].aggregator, event, now_ns);
}

void weft_swarm_ps_box_turn(struct swarm_ps *ps, uint32_t host, uint64_t now_ns)
{
    const uint32_t b = host - host_of(ps, 0);
    struct weft_aggregator *aggregator = ps->box[b].aggregator;
    weft_peer peer;
    weft_aggregator_progress(aggregator, now_ns);
    bool for_good;
    while (weft_aggregator_take_closed(aggregator, &peer, &for_good)) {
        if (for_good) {
            weft_ep_refuse(weft_world_ep(ps->world, host), peer, now_ns);
        } else {
            weft_ep_close(weft_world_ep(ps->world, host), peer, now_ns);
        }
    }
    box_moves(ps, b, now_ns);
    box_connects(ps, b, now_ns);
    weft_swarm_ps_wake_at(ps, host, weft_aggregator_deadline(aggregator), now_ns);
}

/* Handle a worker's connections to aggregators, after its events. */
void weft_swarm_ps_via_turn(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    const uint32_t host = ps->shards + w;
    struct weft_ps_client *client = ps->worker[w].client;
    struct weft_ep *ep = weft_world_ep(ps->world, host);
    weft_peer peer;
    uint64_t retry_ns;
    weft_swarm_ps_replicas_moves(ps, w, now_ns);
    if (!ps->via) {
        return;
    }
    while (weft_ps_client_take_via_close(client, &peer)) {
        weft_ep_close(ep, peer, now_ns);
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (!weft_ps_client_wants_via(client, s, &retry_ns)) {
            continue;
        }
        const uint32_t b = s + (ps->tree && (ps->lower[s] >> w & 1) != 0 ? ps->shards : 0);
        const struct weft_addr addr = weft_world_addr(host_of(ps, b));
        if (now_ns < retry_ns) {
            weft_swarm_ps_wake_at(ps, host, retry_ns, now_ns);
        } else if (weft_ep_connect(ep, &addr, now_ns, &peer) == WEFT_OK) {
            weft_ps_client_via(client, s, peer);
        } else {
            weft_ps_client_via_failed(client, s, now_ns);
        }
    }
    weft_swarm_ps_wake_at(ps, host, weft_ps_client_deadline(client), now_ns);
}

void weft_swarm_ps_count_parks(struct swarm_ps *ps, uint32_t w)
{
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(ps->worker[w].client);
    ps->parks += counters->parks;
    ps->unparks += counters->unparks;
    ps->rows_hot += counters->rows_hot;
    ps->rows_cold += counters->rows_cold;
}

/* Close the connections that a shard requests to close. */
void weft_swarm_ps_shard_closes(struct swarm_ps *ps, uint32_t s, uint64_t now_ns)
{
    weft_peer peer;
    bool for_good;
    uint32_t host = weft_swarm_ps_shard_host(ps, s);
    struct weft_ep *ep = weft_world_ep(ps->world, host);
    if (ps->via) {
        weft_swarm_ps_wake_at(ps, host, weft_shard_deadline(ps->shard[s]), now_ns);
    }
    while ((ps->via || ps->replicas) && weft_shard_take_replaced(ps->shard[s], &peer, &for_good)) {
        if (for_good) {
            weft_ep_refuse(ep, peer, now_ns);
        } else {
            weft_ep_close(ep, peer, now_ns);
        }
    }
}
