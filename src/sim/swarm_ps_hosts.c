/* The hosts of a simulated parameter server: shards and workers, and the deaths of both. */
#include "sim/swarm_ps_internal.h"

#include "base/assert.h"
#include "ps/shard_journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOCKET_PACKETS = 4096 };
enum { JOURNAL_BYTES = 4 << 20, JOURNAL_BYTES_SMALL = 16 << 10 };

/* ---- the hosts ------------------------------------------------------------------------------- */

static uint64_t clock_ns(void *arg)
{
    return weft_world_now_ns(arg);
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    (void)self;
    (void)host;
    (void)now_ns;
}

void weft_swarm_ps_give_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        void *slab = malloc(bytes);
        WEFT_ASSERT(slab != NULL);
        WEFT_ASSERT(weft_shard_add_slab(shard, table, slab, bytes) == WEFT_OK);
    }
}

static bool is_worker(const struct swarm_ps *ps, uint32_t host)
{
    return host >= ps->shards && host < ps->shards + ps->table.workers;
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct swarm_ps *ps = self;
    if (event->type == WEFT_EVENT_PEER_DOWN && ps->deaths == 0 && !ps->via && !ps->replicas) {
        weft_world_fail(ps->world, "host %" PRIu32 ": PEER_DOWN (%d), but no process died", host,
                        (int)event->down);
    }
    if (weft_swarm_ps_standby_event(ps, host, event, now_ns)) {
        return;
    }
    if (weft_swarm_ps_is_box(ps, host)) {
        weft_swarm_ps_box_event(ps, host, event, now_ns);
    } else if (!is_worker(ps, host)) {
        struct weft_shard *shard = ps->shard[weft_swarm_ps_shard_at(ps, host)];
        weft_shard_event(shard, event, now_ns);
        /* At every event, because a batch of a slow host may bring more new rows than one slab
         * holds. */
        weft_swarm_ps_give_slabs(shard);
    } else {
        weft_ps_client_event(ps->worker[host - ps->shards].client, event, now_ns);
    }
}

static weft_status shard_connect(struct swarm_ps *ps, uint32_t w, uint32_t s, uint64_t now_ns,
                                 weft_peer *peer_p)
{
    const struct weft_addr addr = weft_world_addr(weft_swarm_ps_shard_host(ps, s));
    weft_status status =
        weft_ep_connect(weft_world_ep(ps->world, ps->shards + w), &addr, now_ns, peer_p);
    ps->worker[w].at_host[s] = weft_swarm_ps_shard_host(ps, s);
    ps->worker[w].peer[s] = *peer_p;
    return status;
}

static void reconnect(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    for (uint32_t s = 0; s < ps->shards; s++) {
        uint64_t until_ns;
        weft_peer peer;
        struct weft_ps_client *client = ps->worker[w].client;
        if (!weft_ps_client_away(client, s, &until_ns)) {
            continue;
        }
        uint64_t retry_ns = weft_ps_client_reconnect_ns(client, s);
        if (now_ns < retry_ns) {
            weft_world_wake(ps->world, ps->shards + w, retry_ns);
        } else {
            weft_status status = shard_connect(ps, w, s, now_ns, &peer);
            WEFT_ASSERT(status == WEFT_OK);
            status = weft_ps_client_reconnect(client, s, peer, now_ns);
            WEFT_ASSERT(status == WEFT_OK);
        }
    }
}

/* The shard may be dead at this time. */
static void note_blocks(struct swarm_ps *ps, uint32_t s)
{
    const struct weft_table *table = weft_shard_table(ps->shard[s], ps->table.spec.table);
    ps->blocks = table != NULL ? weft_table_blocks(&table->spec) : ps->blocks;
}

static void save(struct swarm_ps *ps, uint32_t s, uint64_t now_ns)
{
    uint32_t clock;
    if (ps_has_journal(ps) && weft_shard_cut_wanted(ps->shard[s], &clock)) {
        weft_saved_begin(&ps->saved[s], ps->shard[s]);
    }
    if (ps->deaths > 0 && weft_saved_poll(&ps->saved[s], ps->shard[s])) {
        weft_shard_durable(ps->shard[s]);
        weft_shard_progress(ps->shard[s], now_ns);
    }
}

static void on_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm_ps *ps = self;
    if (weft_swarm_ps_is_box(ps, host)) {
        weft_swarm_ps_box_turn(ps, host, now_ns);
        return;
    }
    if (weft_swarm_ps_standby_turn(ps, host, now_ns)) {
        return;
    }
    if (is_worker(ps, host)) {
        uint32_t w = host - ps->shards;
        reconnect(ps, w, now_ns);
        weft_swarm_ps_via_turn(ps, w, now_ns);
        weft_ps_client_progress(ps->worker[w].client, now_ns);
        while (weft_world_wrong(ps->world)[0] == '\0' && !weft_swarm_ps_computes(ps, w, now_ns) &&
               weft_swarm_ps_worker_step(ps, w, now_ns)) {
            weft_ps_client_progress(ps->worker[w].client, now_ns);
        }
        weft_swarm_ps_sched_turn(ps, w, now_ns);
        if (ps->via) {
            reconnect(ps, w, now_ns); /* a shard that was parked */
        }
        weft_swarm_ps_via_turn(ps, w, now_ns);
        return;
    }
    uint32_t s = weft_swarm_ps_shard_at(ps, host);
    do {
        weft_shard_progress(ps->shard[s], now_ns);
        save(ps, s, now_ns);
        note_blocks(ps, s);
    } while (weft_shard_has_work(ps->shard[s]));
    weft_swarm_ps_shard_closes(ps, s, now_ns);
    weft_swarm_ps_sched_check_shard(ps, s);
    weft_swarm_ps_give_slabs(ps->shard[s]);
    weft_swarm_ps_sched_transfer(ps, s, now_ns);
    weft_swarm_ps_replicas_turn(ps, s, now_ns);
}

static void draw_key(struct weft_prng *prng, uint8_t key[WEFT_HASH_KEY_BYTES])
{
    for (int i = 0; i < WEFT_HASH_KEY_BYTES; i++) {
        key[i] = (uint8_t)weft_prng_below(prng, 256);
    }
}

/* As processes draw them: separate keys, except for the filter's. */
static void draw_keys(const struct swarm_ps *ps, uint32_t shard, struct weft_table_keys *keys_p)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x66696c746572));
    draw_key(&prng, keys_p->filter);
    weft_prng_split(&prng, ps->table.seed, (uint64_t)ps->lives[shard] << 32 | shard);
    draw_key(&prng, keys_p->index);
    draw_key(&prng, keys_p->counter);
}

struct weft_shard_config weft_swarm_ps_shard_config(const struct swarm_ps *ps, uint32_t shard)
{
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.shard = shard;
    config.shards = ps->shards;
    config.workers_max = ps->table.workers;
    config.tables_max = 2;
    config.rows_max = 2 * IDS_MAX;
    config.dim_max = ps->table.spec.dim;
    config.step_rows = 50; /* fewer than the rows: clocks end in slices */
    config.rows_per_rpc_max = ps->rows_per_rpc;
    config.slab_bytes = 1 << 20; /* at least twice the rows of the longest packet */
    config.list_ids = ps->list_ids;
    config.delay_max = ps->delay_max;
    config.checkpoints = ps->deaths > 0;
    config.aggregators_max = ps->via ? 1U + ps->tree : 0;
    if (ps->hot_rows > 0) {
        config.hot_rows = ps->hot_rows;
        config.hot_epoch_ns = ps->hot_epoch_ns;
    }
    if (ps->deaths > 0 || ps->fetches != FETCHES_NONE || ps->via) {
        config.chunks_max = 4 * IDS_MAX;
    }
    weft_swarm_ps_replicas_config(ps, &config);
    draw_keys(ps, shard, &config.keys);
    config.clock_ns = clock_ns;
    config.clock_arg = ps->world;
    return config;
}

struct weft_ps_client_config weft_swarm_ps_client_config(const struct swarm_ps *ps, uint32_t w)
{
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    config.worker = w;
    config.shards = ps->shards;
    config.tables_max = 2;
    config.ops_max = 4;
    config.lists_per_op_max = 1;
    config.rows_per_op_max = IDS_MAX;
    config.rows_per_rpc_max = ps->rows_per_rpc;
    config.dim_max = ps->table.spec.dim;
    config.missed_max = IDS_MAX;
    config.can = ps->can;
    config.update_bytes_min = ps->update_bytes_min;
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x6d6973736564) << 16 | w);
    draw_key(&prng, config.missed_key);
    const uint64_t via_ms = ps->scheduled ? 800 : 300; /* planned sums wait longer for members */
    config.via_timeout_ns = ps->via ? via_ms * WEFT_NS_PER_MS : 0;
    if (ps->via) {
        config.park_lease_ns = ps->park_lease_ns;
        config.park_pause_ns = ps->park_pause_ns;
        config.hot_rows = ps->hot_rows;
        config.pieces = (uint32_t)weft_mix64(ps->table.seed ^ UINT64_C(0x706965636573)) % 6;
        config.piece_rows_min = 1;
        config.piece_bytes_min = 200;
    }
    if (ps->deaths > 0) {
        config.reconnect_ns = 100 * WEFT_NS_PER_S;
        bool replays = ps->durability != DURABILITY_JOURNAL && ps->durability != DURABILITY_NOBODY;
        config.replay_bytes = replays ? 16 << 20 : 0;
    }
    config.clock_ns = clock_ns;
    config.clock_arg = ps->world;
    return config;
}

struct weft_world_host_config weft_swarm_ps_host_config(struct swarm_ps *ps, uint32_t host,
                                                        uint64_t name, uint32_t expects)
{
    struct weft_world_host_config config = {
        .ep = ps->plan.host[host].ep,
        .progress_delay_ns = ps->plan.host[host].progress_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = ps, .event = on_event, .wake = on_wake, .batch = on_batch},
    };
    config.ep.name = name;
    config.ep.expects_max = expects;
    config.ep.chunks_max = 4 * IDS_MAX;
    config.ep.peer_timeout_ns = ps->plan.heal_ns + 20 * WEFT_NS_PER_S;
    if (ps->deaths > 0 || ps->via || ps->replicas) {
        config.ep.keepalive_ns = 300 * WEFT_NS_PER_MS;
    }
    config.ep.peers_max = ps->replicas ? SWARM_PEERS : config.ep.peers_max;
    return config;
}

static void host_init(struct swarm_ps *ps, uint32_t host, uint64_t name, uint32_t expects)
{
    struct weft_world_host_config config = weft_swarm_ps_host_config(ps, host, name, expects);
    weft_status status = weft_world_host_init(ps->world, host, &config);
    WEFT_ASSERT(status == WEFT_OK);
}

/* Replay the work since the checkpoint, and record it in a new journal from now on. The journal of
 * the previous process is read, and then discarded. */
static void keep_journal(struct swarm_ps *ps, uint32_t s)
{
    if (!ps_has_journal(ps)) {
        return;
    }
    uint64_t bytes =
        ps->durability == DURABILITY_SMALL_JOURNAL ? JOURNAL_BYTES_SMALL : JOURNAL_BYTES;
    uint8_t *former = ps->journal[s];
    ps->journal[s] = calloc(1, bytes);
    WEFT_ASSERT(ps->journal[s] != NULL);
    const struct weft_shard_journal_config config = {.memory = ps->journal[s],
                                                     .bytes = bytes,
                                                     .bytes_max = bytes,
                                                     .job = ps->table.seed,
                                                     .checkpoint = ps->saved[s].number,
                                                     .lineage = 1,
                                                     .source = former,
                                                     .source_bytes = bytes};
    weft_status status = weft_shard_journal_init(ps->shard[s], &config);
    WEFT_ASSERT(status == WEFT_OK);
    while (weft_shard_journal_replay(ps->shard[s])) {
        weft_swarm_ps_give_slabs(ps->shard[s]);
    }
    const struct weft_shard_journal_report *report = weft_shard_journal_report(ps->shard[s]);
    if (report->refused > 0 || report->damaged) {
        weft_world_fail(ps->world, "shard %" PRIu32 ": its journal cannot be replayed", s);
    }
    free(former);
}

void weft_swarm_ps_shard_dies(struct swarm_ps *ps, uint32_t s)
{
    weft_swarm_ps_sched_breaks(ps);
    ps->lives[s]++;
    struct weft_shard_config config = weft_swarm_ps_shard_config(ps, s);
    struct weft_world_host_config host = weft_swarm_ps_host_config(
        ps, s, weft_rpc_name(WEFT_ROLE_SERVER, s), weft_shard_expects_max(&config));
    host.ep.incarnation += ps->lives[s];
    host.ep.seed += ps->lives[s];
    weft_status status = weft_world_restart(ps->world, s, &host);
    WEFT_ASSERT(status == WEFT_OK);
    void *slab;
    while ((slab = weft_shard_take_slab(ps->shard[s])) != NULL) {
        free(slab);
    }
    weft_shard_free(ps->shard[s]);
    status = weft_shard_new(&config, weft_ep_msgr(weft_world_ep(ps->world, s)), &ps->shard[s]);
    WEFT_ASSERT(status == WEFT_OK);
    weft_saved_restore(&ps->saved[s], ps->shard[s]);
    keep_journal(ps, s);
    weft_world_wake(ps->world, s, weft_world_now_ns(ps->world));
}

static void make_shard(struct swarm_ps *ps, uint32_t s)
{
    struct weft_shard_config config = weft_swarm_ps_shard_config(ps, s);
    host_init(ps, s, weft_rpc_name(WEFT_ROLE_SERVER, s),
              weft_shard_expects_max(&config) + (ps->replicas ? WEFT_REPLICA_EXPECTS : 0));
    weft_status status =
        weft_shard_new(&config, weft_ep_msgr(weft_world_ep(ps->world, s)), &ps->shard[s]);
    WEFT_ASSERT(status == WEFT_OK);
    keep_journal(ps, s);
}

static void make_client(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    uint32_t host = ps->shards + w;
    weft_peer peers[SHARDS_MAX];
    struct weft_ps_client_config config = weft_swarm_ps_client_config(ps, w);
    struct weft_ep *ep = weft_world_ep(ps->world, host);
    for (uint32_t s = 0; s < ps->shards; s++) {
        weft_status status = shard_connect(ps, w, s, now_ns, &peers[s]);
        WEFT_ASSERT(status == WEFT_OK);
    }
    weft_status status =
        weft_ps_client_new(&config, weft_ep_msgr(ep), peers, &ps->worker[w].client);
    WEFT_ASSERT(status == WEFT_OK);
    weft_world_wake(ps->world, host, now_ns);
}

void weft_swarm_ps_worker_init(struct swarm_ps *ps, uint32_t w)
{
    size_t floats = (size_t)IDS_MAX * ps->table.spec.dim;
    ps->worker[w].rows = calloc(floats, sizeof(float));
    ps->worker[w].fetched_rows = calloc(2 * floats, sizeof(float));
    WEFT_ASSERT(ps->worker[w].rows != NULL && ps->worker[w].fetched_rows != NULL);
    if (ps->table.is_odd) {
        ps->worker[w].kept = malloc(weft_row_store_bytes(IDS_MAX, ps->table.spec.dim));
        WEFT_ASSERT(ps->worker[w].kept != NULL);
    }
}

static void make_worker(struct swarm_ps *ps, uint32_t w)
{
    struct weft_ps_client_config config = weft_swarm_ps_client_config(ps, w);
    host_init(ps, ps->shards + w, weft_rpc_name(WEFT_ROLE_WORKER, w),
              weft_ps_client_expects_max(&config));
    weft_swarm_ps_worker_init(ps, w);
    make_client(ps, w, 0);
}

/* A new process replaces it at once, and resumes from the state at the shards. */
void weft_swarm_ps_worker_dies(struct swarm_ps *ps, uint32_t w)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    struct weft_ps_client_config config = weft_swarm_ps_client_config(ps, w);
    uint32_t h = ps->shards + w;
    if (worker->phase == PHASE_DONE) {
        return; /* it has finished */
    }
    if (worker->phase == PHASE_PUSHING && !ps_was_cut_off(ps, w, worker->clock)) {
        worker->cut_off |= UINT32_C(1) << worker->clock;
        worker->cut_off_elements += (uint64_t)worker->n * ps_blocks(ps);
    }
    struct weft_world_host_config host = weft_swarm_ps_host_config(
        ps, h, weft_rpc_name(WEFT_ROLE_WORKER, w), weft_ps_client_expects_max(&config));
    worker->lives++;
    host.ep.incarnation += worker->lives;
    host.ep.seed += worker->lives;
    weft_status status = weft_world_restart(ps->world, h, &host);
    WEFT_ASSERT(status == WEFT_OK);
    worker->lost += weft_ps_client_counters(worker->client)->pushes_lost;
    weft_swarm_ps_count_lists(ps, w);
    weft_swarm_ps_count_parks(ps, w);
    weft_ps_client_free(worker->client);
    worker->phase = PHASE_OPEN;
    worker->has_ahead = false;
    memset(worker->ask, 0, sizeof(worker->ask));
    make_client(ps, w, weft_world_now_ns(ps->world));
}

struct swarm_ps *weft_swarm_ps_new(uint64_t seed, uint8_t value_type, enum swarm_ps_with with,
                                   const struct weft_world_tap *tap)
{
    struct swarm_ps *ps = calloc(1, sizeof(*ps));
    WEFT_ASSERT(ps != NULL);
    ps->value_type = value_type;
    ps->via = (with & WITH_AGGREGATORS) != 0;
    ps->replicas = (with & WITH_REPLICAS) != 0;
    weft_swarm_ps_via_begin(ps, seed);
    weft_swarm_ps_draw(ps, seed);
    if (ps->replicas) {
        weft_swarm_ps_replicas_draw(ps);
    }
    if (ps->via) {
        weft_swarm_ps_via_draw(ps);
    }
    weft_swarm_ps_sched_draw(ps);
    struct weft_world_config config = {
        .hosts = ps->plan.hosts,
        .seed = weft_mix64(seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = ps->plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    ps->world = weft_world_new(&config);
    for (uint32_t s = 0; s < ps->shards; s++) {
        weft_saved_init(&ps->saved[s], 2, ps->table.workers);
    }
    weft_plan_build(&ps->plan, weft_world_net(ps->world));
    for (uint32_t s = 0; s < ps->shards; s++) {
        make_shard(ps, s);
    }
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        make_worker(ps, w);
    }
    weft_swarm_ps_boxes_make(ps);
    weft_swarm_ps_replicas_make(ps);
    return ps;
}

void weft_swarm_ps_free(struct swarm_ps *ps)
{
    weft_swarm_table_fini(&ps->table);
    weft_world_free(ps->world); /* first: endpoints borrow the memory of shards and clients */
    weft_swarm_ps_boxes_free(ps);
    weft_swarm_ps_replicas_free(ps);
    for (uint32_t s = 0; s < ps->shards; s++) {
        void *slab;
        while ((slab = weft_shard_take_slab(ps->shard[s])) != NULL) {
            free(slab);
        }
        weft_shard_free(ps->shard[s]);
        weft_saved_fini(&ps->saved[s]);
        free(ps->journal[s]);
    }
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        weft_ps_client_free(ps->worker[w].client);
        free(ps->worker[w].rows);
        free(ps->worker[w].kept);
        free(ps->worker[w].fetched_rows);
    }
    free(ps);
}
