/* The hosts of a simulated job with a coordinator: members, workers, the coordinator. */
#include "sim/swarm_member_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SOCKET_PACKETS = 4096, DATA_PEERS = 24, MEMBER_PEERS = 8, COORDINATOR_PEERS = 64 };

/* ---- endpoints ------------------------------------------------------------------------------- */

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    (void)self;
    (void)host;
    (void)now_ns;
}

static void open_host(struct swarm_member *m, uint32_t host, uint64_t name, uint32_t expects,
                      uint32_t peers, const struct weft_world_app *app)
{
    struct weft_world_host_config config = {.ep = m->ps.plan.host[host].ep,
                                            .progress_delay_ns =
                                                m->ps.plan.host[host].progress_delay_ns,
                                            .socket_packets = SOCKET_PACKETS,
                                            .app = *app};
    m->generation++;
    config.ep.name = name;
    config.ep.expects_max = expects;
    config.ep.peers_max = peers;
    config.ep.chunks_max = 4 * IDS_MAX;
    config.ep.incarnation += m->generation;
    config.ep.seed += m->generation;
    config.ep.keepalive_ns = 300 * WEFT_NS_PER_MS;
    config.ep.peer_timeout_ns = 1500 * WEFT_NS_PER_MS;
    weft_status status = weft_world_restart(m->ps.world, host, &config);
    WEFT_ASSERT(status == WEFT_OK);
    weft_world_wake(m->ps.world, host, weft_world_now_ns(m->ps.world));
}

/* Schedule a round of progress for work that is due without a packet; *planned_p is the time
 * already scheduled. */
static void plan_wake(struct swarm_member *m, uint32_t host, uint64_t due_ns, uint64_t *planned_p,
                      uint64_t now_ns)
{
    due_ns = weft_max_u64(due_ns, now_ns + swarm_tick_ns);
    if (due_ns != WEFT_NEVER && (*planned_p <= now_ns || due_ns < *planned_p)) {
        *planned_p = due_ns;
        weft_world_wake(m->ps.world, host, due_ns);
    }
}

/* ---- members --------------------------------------------------------------------------------- */

static void client_event(void *self, uint32_t host, const struct weft_msg_event *event,
                         uint64_t now_ns)
{
    struct swarm_member *m = self;
    weft_member_client_event(m->client[host - m->processes].client, event, now_ns);
}

static void client_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm_member *m = self;
    struct swarm_client *client = &m->client[host - m->processes];
    if (weft_member_client_wants_peer(client->client, now_ns)) {
        struct weft_addr addr = weft_world_addr(coordinator_host(m));
        weft_peer peer;
        weft_status status =
            weft_ep_connect(weft_world_ep(m->ps.world, host), &addr, now_ns, &peer);
        weft_member_client_connecting(client->client, status == WEFT_OK ? peer : WEFT_PEER_ANY,
                                      now_ns);
    }
    weft_member_client_progress(client->client, now_ns);
    plan_wake(m, host, weft_member_client_deadline(client->client), &client->wake_ns, now_ns);
}

void weft_swarm_client_start(struct swarm_member *m, uint32_t process,
                             const struct weft_member_client_config *config)
{
    struct swarm_client *client = &m->client[process];
    uint32_t host = member_host(m, process);
    const struct weft_world_app app = {.self = m, .event = client_event, .wake = on_wake,
                                       .batch = client_batch};
    open_host(m, host, weft_rpc_name(WEFT_ROLE_MEMBER, (uint32_t)config->member),
              WEFT_MEMBER_CLIENT_EXPECTS, MEMBER_PEERS, &app);
    weft_member_client_free(client->client); /* its endpoint is gone */
    client->wake_ns = 0;
    weft_status status = weft_member_client_new(
        config, weft_ep_msgr(weft_world_ep(m->ps.world, host)), &client->client);
    WEFT_ASSERT(status == WEFT_OK);
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static bool record(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct swarm_member *m = arg;
    WEFT_ASSERT(m->journal_count < JOURNAL_MAX);
    m->journal[m->journal_count].op = op;
    m->journal[m->journal_count].count = (uint16_t)count;
    memcpy(m->journal[m->journal_count++].bytes, bytes, count);
    return true;
}

static bool sync_records(void *arg)
{
    struct swarm_member *m = arg;
    m->journal_synced = m->journal_count;
    return true;
}

/* Notifications from the coordinator that `weft run` would receive. */
static void note(void *arg, enum weft_member_note what, const struct weft_member_request *who,
                 uint16_t status)
{
    struct swarm_member *m = arg;
    (void)status;
    if ((what != WEFT_MEMBER_NOTE_EXPIRED && what != WEFT_MEMBER_NOTE_RECLAIMED) ||
        who->role != WEFT_ROLE_SERVER ||
        who->incarnation != m->server[m->current[who->first]].incarnation) {
        return;
    }
    m->replace_ns[who->first] = what == WEFT_MEMBER_NOTE_EXPIRED
                                    ? weft_world_now_ns(m->ps.world) + m->lease_ns / 2
                                    : WEFT_NEVER;
}

static void service_event(void *self, uint32_t host, const struct weft_msg_event *event,
                          uint64_t now_ns)
{
    struct swarm_member *m = self;
    (void)host;
    weft_member_service_event(m->service, event, now_ns);
}

static void service_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm_member *m = self;
    weft_member_service_progress(m->service, now_ns);
    plan_wake(m, host, weft_member_service_deadline(m->service), &m->service_wake_ns, now_ns);
}

static void read_journal(struct swarm_member *m, uint64_t now_ns)
{
    struct weft_member_request request;
    m->journal_count = m->journal_synced; /* unsynced records are lost with the machine */
    for (uint32_t i = 0; i < m->journal_count; i++) {
        weft_status status = weft_member_request_unpack(m->journal[i].op, m->journal[i].bytes,
                                                        m->journal[i].count, &request);
        if (status == WEFT_OK) {
            status = weft_roster_restore(m->roster, m->journal[i].op, &request, now_ns);
        }
        if (status != WEFT_OK) {
            weft_world_fail(m->ps.world, "record %" PRIu32 " of the coordinator's journal: %s", i,
                            weft_status_name(status));
        }
    }
    /* Compact it, every second time. */
    if (m->seen.coordinator_deaths % 2 == 1) {
        m->journal_count = 0;
        for (uint8_t op; weft_roster_record(m->roster, m->journal_count, &op, &request);) {
            uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
            (void)record(m, op, bytes, weft_member_request_pack(&request, bytes));
        }
        m->journal_synced = m->journal_count;
    }
}

void weft_swarm_coordinator_start(struct swarm_member *m)
{
    const struct weft_world_app app = {.self = m, .event = service_event, .wake = on_wake,
                                       .batch = service_batch};
    struct weft_roster_config roster;
    weft_roster_config_default(&roster);
    roster.workers = m->ps.table.workers;
    roster.shards = m->ps.shards;
    roster.lease_ns = m->lease_ns;
    open_host(m, coordinator_host(m), weft_rpc_name(WEFT_ROLE_COORDINATOR, 0), COORDINATOR_SLOTS,
              COORDINATOR_PEERS, &app);
    weft_member_service_free(m->service); /* its endpoint is gone */
    weft_roster_free(m->roster);
    weft_status status = weft_roster_new(&roster, &m->roster);
    WEFT_ASSERT(status == WEFT_OK);
    read_journal(m, weft_world_now_ns(m->ps.world));
    const struct weft_member_service_config service = {.peers_max = COORDINATOR_PEERS,
                                                       .slots = COORDINATOR_SLOTS,
                                                       .shards_max = roster.shards_max,
                                                       .roster = m->roster,
                                                       .record = record,
                                                       .sync = sync_records,
                                                       .note = note,
                                                       .arg = m};
    status = weft_member_service_new(
        &service, weft_ep_msgr(weft_world_ep(m->ps.world, coordinator_host(m))), &m->service);
    WEFT_ASSERT(status == WEFT_OK);
    m->service_wake_ns = 0;
    m->coordinator_up_ns = WEFT_NEVER;
    for (uint32_t s = 0; s < m->ps.shards; s++) {
        m->replace_ns[s] = WEFT_NEVER; /* all leases restart */
    }
}

void weft_swarm_coordinator_kill(struct swarm_member *m)
{
    m->seen.coordinator_deaths++;
    weft_world_kill(m->ps.world, coordinator_host(m));
}

/* ---- data ------------------------------------------------------------------------------------ */

static bool look_up(const struct swarm_member *m, uint32_t w, uint32_t s, struct weft_addr *addr_p)
{
    const struct weft_member_reply *list =
        &weft_member_client_state(m->client[m->servers + w].client)->list;
    if (list->version == 0) {
        return false;
    }
    *addr_p = weft_world_addr(list->addresses[s].port - SWARM_PORT);
    return true;
}

static void reconnect(struct swarm_member *m, uint32_t w, uint64_t now_ns)
{
    struct weft_ps_client *client = m->ps.worker[w].client;
    for (uint32_t s = 0; s < m->ps.shards; s++) {
        uint64_t until_ns;
        weft_peer peer;
        struct weft_addr addr;
        if (weft_ps_client_away(client, s, &until_ns) && look_up(m, w, s, &addr) &&
            weft_ep_connect(weft_world_ep(m->ps.world, m->servers + w), &addr, now_ns, &peer) ==
                WEFT_OK) {
            weft_status status = weft_ps_client_reconnect(client, s, peer, now_ns);
            WEFT_ASSERT(status == WEFT_OK);
        }
    }
}

static void data_event(void *self, uint32_t host, const struct weft_msg_event *event,
                       uint64_t now_ns)
{
    struct swarm_member *m = self;
    if (host < m->servers) {
        weft_shard_event(m->server[host].shard, event, now_ns);
        weft_swarm_ps_give_slabs(m->server[host].shard);
    } else {
        weft_ps_client_event(m->ps.worker[host - m->servers].client, event, now_ns);
    }
}

static void server_batch(struct swarm_member *m, uint32_t server, uint64_t now_ns)
{
    struct weft_shard *shard = m->server[server].shard;
    do {
        weft_shard_progress(shard, now_ns);
    } while (weft_shard_has_work(shard));
    weft_swarm_ps_give_slabs(shard);
    const struct weft_table *table = weft_shard_table(shard, m->ps.table.spec.table);
    m->ps.blocks = table != NULL ? weft_table_blocks(&table->spec) : m->ps.blocks;
}

static void worker_batch(struct swarm_member *m, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &m->ps.worker[w];
    bool moved = true;
    if (worker->client == NULL) {
        return;
    }
    reconnect(m, w, now_ns);
    weft_ps_client_progress(worker->client, now_ns);
    while (moved && weft_world_wrong(m->ps.world)[0] == '\0') {
        enum phase before = worker->phase;
        moved = !(before == PHASE_PUSH && now_ns < m->pause_ns[w]) &&
                weft_swarm_ps_worker_step(&m->ps, w, now_ns);
        if (moved && worker->phase == PHASE_PUSH) { /* it computes */
            m->pause_ns[w] = now_ns + weft_prng_below(&m->prng, m->think_ns);
            weft_world_wake(m->ps.world, m->servers + w, m->pause_ns[w]);
        }
        weft_ps_client_progress(worker->client, now_ns);
    }
}

static void data_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm_member *m = self;
    if (host < m->servers) {
        server_batch(m, host, now_ns);
    } else {
        worker_batch(m, host - m->servers, now_ns);
    }
}

void weft_swarm_data_start(struct swarm_member *m, uint32_t process, uint64_t name,
                           uint32_t expects)
{
    const struct weft_world_app app = {.self = m, .event = data_event, .wake = on_wake,
                                       .batch = data_batch};
    open_host(m, process, name, expects, DATA_PEERS, &app);
}

/* ---- workers --------------------------------------------------------------------------------- */

void weft_swarm_worker_start(struct swarm_member *m, uint32_t w)
{
    const struct weft_member_client_config config = {.role = WEFT_ROLE_WORKER,
                                                     .member = 100 + w,
                                                     .incarnation = 1,
                                                     .rank = w,
                                                     .first = WEFT_MEMBER_NONE};
    weft_swarm_ps_worker_init(&m->ps, w);
    weft_swarm_client_start(m, m->servers + w, &config);
}

void weft_swarm_worker_tick(struct swarm_member *m, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &m->ps.worker[w];
    struct weft_addr addr;
    weft_peer peers[SHARDS_MAX];
    if (worker->client != NULL || !look_up(m, w, 0, &addr)) {
        return;
    }
    struct weft_ps_client_config config = weft_swarm_ps_client_config(&m->ps, w);
    uint32_t host = m->servers + w;
    weft_swarm_data_start(m, host, weft_rpc_name(WEFT_ROLE_WORKER, w),
                          weft_ps_client_expects_max(&config));
    struct weft_ep *ep = weft_world_ep(m->ps.world, host);
    for (uint32_t s = 0; s < m->ps.shards; s++) {
        bool found = look_up(m, w, s, &addr);
        WEFT_ASSERT(found);
        weft_status status = weft_ep_connect(ep, &addr, now_ns, &peers[s]);
        WEFT_ASSERT(status == WEFT_OK);
    }
    weft_status status = weft_ps_client_new(&config, weft_ep_msgr(ep), peers, &worker->client);
    WEFT_ASSERT(status == WEFT_OK);
}
