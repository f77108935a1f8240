/* Lifecycle of a server in a simulated job with a coordinator, from its lease to its end, and the
 * supervisor that starts the next one. */
#include "sim/swarm_member_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>

/* Maximum duration of a step on the directory. */
static const uint64_t link_ns = 4 * WEFT_NS_PER_MS;
static const uint64_t read_ns = 30 * WEFT_NS_PER_MS;
static const uint64_t file_ns = 25 * WEFT_NS_PER_MS;
static const uint64_t checkpoint_ns = 60 * WEFT_NS_PER_MS;
static const uint64_t restart_pause_ns = 20 * WEFT_NS_PER_MS;

enum { KEEP = 2 };

static void step_after(struct swarm_member *m, struct swarm_server *server, uint64_t now_ns,
                       uint64_t most_ns)
{
    server->step_ns = now_ns + weft_prng_below(&m->prng, most_ns);
}

/* ---- start and end --------------------------------------------------------------------------- */

static void drop_cut(struct swarm_server *server)
{
    if (server->cut != NULL) {
        weft_saved_fini(server->cut);
        free(server->cut);
        server->cut = NULL;
    }
    server->writes = WRITES_NOTHING;
}

void weft_swarm_server_free(struct swarm_server *server)
{
    void *slab;
    while (server->shard != NULL && (slab = weft_shard_take_slab(server->shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(server->shard);
    server->shard = NULL;
    drop_cut(server);
}

/* Its process has ended without a message. The shard is kept until the endpoint that borrows its
 * memory is freed. */
static void end(struct swarm_member *m, uint32_t i)
{
    struct swarm_server *server = &m->server[i];
    if (server->shard != NULL && m->ps.shard[shard_of(i)] == server->shard) {
        m->ps.shard[shard_of(i)] = NULL;
    }
    if (weft_world_alive(m->ps.world, i)) {
        weft_world_kill(m->ps.world, i);
    }
    weft_world_kill(m->ps.world, member_host(m, i));
    drop_cut(server);
    server->state = SERVER_NONE;
}

void weft_swarm_server_start(struct swarm_member *m, uint32_t s)
{
    uint32_t i = s * SLOTS;
    while (i < (s + 1) * SLOTS && m->server[i].state != SERVER_NONE) {
        i++;
    }
    if (i == (s + 1) * SLOTS) { /* all slots have a process that has not exited */
        m->start_ns[s] = weft_world_now_ns(m->ps.world) + restart_pause_ns;
        return;
    }
    struct weft_shard *of_the_last = m->server[i].shard;
    m->start_ns[s] = m->replace_ns[s] = WEFT_NEVER;
    m->current[s] = i;
    m->server[i] = (struct swarm_server){.state = SERVER_JOINING,
                                         .incarnation = ++m->starts[s],
                                         .shard = of_the_last,
                                         .reader = {.shard = s}};
    const struct weft_member_client_config config = {.role = WEFT_ROLE_SERVER,
                                                     .member = 1 + s,
                                                     .incarnation = m->starts[s],
                                                     .rank = WEFT_MEMBER_NONE,
                                                     .first = s,
                                                     .span = 1};
    weft_swarm_client_start(m, i, &config);
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* The address is published only now. */
static void serve(struct swarm_member *m, uint32_t i, uint64_t now_ns)
{
    struct swarm_server *server = &m->server[i];
    uint32_t s = shard_of(i);
    struct weft_shard_config config = weft_swarm_ps_shard_config(&m->ps, s);
    weft_swarm_data_start(m, i, weft_rpc_name(WEFT_ROLE_SERVER, s),
                          weft_shard_expects_max(&config));
    weft_swarm_server_free(server); /* of the previous process, whose endpoint is freed */
    weft_status status =
        weft_shard_new(&config, weft_ep_msgr(weft_world_ep(m->ps.world, i)), &server->shard);
    WEFT_ASSERT(status == WEFT_OK);
    if (server->chosen != 0) {
        weft_saved_restore(m->log.records[server->chosen - 1].data, server->shard);
    }
    server->state = SERVER_SERVING;
    m->ps.shard[s] = server->shard;
    step_after(m, server, now_ns, checkpoint_ns);
    const struct weft_member_address address = {.port = (uint16_t)(SWARM_PORT + i)};
    weft_member_client_publish(m->client[i].client, &address);
    weft_world_wake(m->ps.world, member_host(m, i), now_ns);
}

/* The chosen record has data. Without the log's rules another process may prune it meanwhile. */
static void have_data(struct swarm_member *m, const struct swarm_server *server)
{
    if (server->chosen != 0 && m->log.records[server->chosen - 1].data == NULL) {
        weft_world_fail(m->ps.world, "shard %" PRIu32 ": record %" PRIu32 " was pruned",
                        server->reader.shard, server->chosen);
    }
}

static void choose(struct swarm_member *m, struct swarm_server *server)
{
    uint32_t s = server->reader.shard;
    server->chosen = weft_dirlog_choose(&m->log, s, server->reader.claim);
    server->number = server->chosen != 0 ? m->log.records[server->chosen - 1].number : 0;
    if (server->chosen < m->durable[s]) {
        weft_world_fail(m->ps.world,
                        "shard %" PRIu32 " restores record %" PRIu32 "; %" PRIu32
                        " was declared durable",
                        s, server->chosen, m->durable[s]);
    } else {
        have_data(m, server);
    }
}

static void restore_step(struct swarm_member *m, uint32_t i, uint64_t now_ns)
{
    struct swarm_server *server = &m->server[i];
    if (server->state == SERVER_READING) {
        server->state = SERVER_RESTORING;
        return;
    }
    bool claims = server->state == SERVER_CLAIMING;
    switch (weft_dirlog_link(&m->log, &server->reader,
                             claims ? WEFT_DIRLOG_CLAIM : WEFT_DIRLOG_RESTORED, server->number,
                             NULL)) {
    case WEFT_DIRLOG_TAKEN:
        step_after(m, server, now_ns, link_ns);
        break;
    case WEFT_DIRLOG_REPLACED:
        end(m, i);
        break;
    case WEFT_DIRLOG_LINKED:
        if (claims) {
            choose(m, server);
            server->state = SERVER_READING;
            step_after(m, server, now_ns, read_ns);
            break;
        }
        have_data(m, server);
        if (weft_world_wrong(m->ps.world)[0] == '\0') {
            serve(m, i, now_ns);
        }
        break;
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void begin_cut(struct swarm_member *m, struct swarm_server *server)
{
    server->cut = calloc(1, sizeof(*server->cut));
    WEFT_ASSERT(server->cut != NULL);
    weft_saved_init(server->cut, 2, m->ps.table.workers);
    weft_saved_begin(server->cut, server->shard);
    server->writes = WRITES_CUT;
}

static void give_up(struct swarm_member *m, struct swarm_server *server, uint64_t now_ns)
{
    weft_shard_cut_end(server->shard, false);
    drop_cut(server);
    step_after(m, server, now_ns, checkpoint_ns);
}

static void commit(struct swarm_member *m, uint32_t i, uint64_t now_ns)
{
    struct swarm_server *server = &m->server[i];
    enum weft_dirlog_try tried = weft_dirlog_link(&m->log, &server->reader, WEFT_DIRLOG_MANIFEST,
                                                  server->number + 1, server->cut);
    if (tried == WEFT_DIRLOG_REPLACED) {
        end(m, i);
        return;
    }
    if (tried == WEFT_DIRLOG_TAKEN) {
        step_after(m, server, now_ns, link_ns);
        return;
    }
    server->cut = NULL; /* owned by the log */
    server->writes = WRITES_NOTHING;
    server->number++;
    m->durable[shard_of(i)] = m->log.count;
    m->seen.checkpoints++;
    weft_shard_cut_end(server->shard, true);
    weft_shard_durable(server->shard);
    weft_world_wake(m->ps.world, i, now_ns); /* so that it is sent */
    weft_dirlog_prune(&m->log, shard_of(i), KEEP);
    step_after(m, server, now_ns, checkpoint_ns);
}

static void write_step(struct swarm_member *m, uint32_t i, uint64_t now_ns)
{
    struct swarm_server *server = &m->server[i];
    switch (server->writes) {
    case WRITES_NOTHING:
        begin_cut(m, server);
        break;
    case WRITES_CUT:
        if (weft_saved_take(server->cut, server->shard)) {
            server->writes = WRITES_FILE;
            step_after(m, server, now_ns, file_ns);
        } else if (!server->cut->begun) { /* out of memory for copies */
            drop_cut(server);
            step_after(m, server, now_ns, checkpoint_ns);
        }
        break;
    case WRITES_FILE:
        if (weft_prng_chance(&m->prng, m->full_ppm)) {
            m->seen.full++;
            give_up(m, server, now_ns);
        } else {
            server->writes = WRITES_MANIFEST;
            step_after(m, server, now_ns, link_ns);
        }
        break;
    case WRITES_MANIFEST:
        commit(m, i, now_ns);
        break;
    }
}

/* ---- events of a server ---------------------------------------------------------------------- */

void weft_swarm_server_tick(struct swarm_member *m, uint32_t i, uint64_t now_ns)
{
    struct swarm_server *server = &m->server[i];
    if (server->state == SERVER_NONE || now_ns < server->frozen_ns) {
        return;
    }
    if (server->frozen_ns != 0) {
        server->frozen_ns = 0;
        m->seen.thawed += m->current[shard_of(i)] != i;
    }
    enum weft_member_phase phase = weft_member_client_state(m->client[i].client)->phase;
    if (now_ns >= server->step_ns && server->state == SERVER_SERVING) {
        write_step(m, i, now_ns); /* before it learns that it was replaced */
    } else if (now_ns >= server->step_ns && server->state > SERVER_JOINING) {
        restore_step(m, i, now_ns);
    }
    if (server->state != SERVER_NONE &&
        (phase == WEFT_MEMBER_REPLACED || phase == WEFT_MEMBER_IS_REFUSED)) {
        end(m, i);
    } else if (server->state == SERVER_JOINING && phase == WEFT_MEMBER_JOINED) {
        server->state = SERVER_CLAIMING;
        step_after(m, server, now_ns, link_ns);
    }
}

void weft_swarm_server_freeze(struct swarm_member *m, uint32_t s, uint64_t until_ns)
{
    uint32_t i = m->current[s];
    if (m->server[i].state == SERVER_NONE) {
        return;
    }
    m->seen.frozen++;
    m->server[i].frozen_ns = until_ns;
    if (weft_world_alive(m->ps.world, i)) {
        weft_world_sleep(m->ps.world, i, until_ns);
    }
    weft_world_sleep(m->ps.world, member_host(m, i), until_ns);
}

void weft_swarm_server_kill(struct swarm_member *m, uint32_t s, uint64_t now_ns)
{
    if (m->server[m->current[s]].state != SERVER_NONE) {
        m->seen.killed++;
        end(m, m->current[s]);
        m->start_ns[s] = now_ns + restart_pause_ns;
    }
}

/* ---- the supervisor -------------------------------------------------------------------------- */

void weft_swarm_supervise(struct swarm_member *m, uint64_t now_ns)
{
    for (uint32_t s = 0; s < m->ps.shards; s++) {
        bool is_there = m->server[m->current[s]].state != SERVER_NONE;
        if (is_there && now_ns >= m->replace_ns[s]) {
            m->seen.replaced++;
            m->replace_ns[s] = WEFT_NEVER;
            weft_swarm_server_start(m, s);
        } else if (!is_there && m->start_ns[s] == WEFT_NEVER) { /* it exited by itself */
            m->start_ns[s] = now_ns + restart_pause_ns;
        } else if (now_ns >= m->start_ns[s]) {
            weft_swarm_server_start(m, s);
        }
    }
}
