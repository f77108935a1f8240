/* A worker's socket and its connections to all shards.
 *
 * Patience: processes of a job are started in any order, so a server that does not answer yet is
 * asked again until connect_timeout_ns. What waiting does not mend - another job key, another shard
 * than the list says - ends it at once. Only when all shards are up the client is made: for it, a
 * peer that is down is down for good.
 */
#include "api/ps_internal.h"

#include "io/clock.h"
#include "io/random.h"
#include "obs/recorder.h"
#include "wire/packet.h"

#include <stdlib.h>
#include <string.h>

enum {
    PEERS_SPARE = 4, /* a connection that is given up keeps its place for a moment */
    ROWS_PER_RPC_MAX = 16384,
    RPC_BYTES_MAX =
        ROWS_PER_RPC_MAX * 264, /* the same for rows of 64 floats; fewer of longer ones */
};

static const uint64_t turn_ns = 200 * WEFT_NS_PER_MS;
/* From one connection to the next attempt: a server may end each at once, of a rank that another
 * process has meanwhile. */
static const uint64_t again_ns = 200 * WEFT_NS_PER_MS;

/* Of the last connect that failed in this thread: there is no ps to keep it. */
static _Thread_local struct weft_io_error connect_error;

/* ---- turning the crank ----------------------------------------------------------------------- */

static void note_up(struct ps_server *server, const struct weft_msg_event *event)
{
    server->is_up = true;
    server->is_down = server->is_away = false;
    server->name = event->name;
}

static void note_peer(struct weft_ps *ps, const struct weft_msg_event *event)
{
    for (uint32_t s = 0; s < ps->shards; s++) {
        struct ps_server *server = &ps->servers[s];
        if (server->peer != event->peer) {
            continue;
        }
        if (event->type == WEFT_EVENT_PEER_UP) {
            note_up(server, event);
        } else {
            server->was_up = server->is_up;
            if (ps->client != NULL && ps->reconnect_ns > 0 &&
                event->down != WEFT_DOWN_REPLACED) {
                weft_api_ps_note_away(ps, server);
            } else {
                ps->any_down = true;
                server->is_down = true;
            }
            server->is_up = false;
            server->down = event->down;
        }
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_ps *ps = arg;
    struct weft_msg_event event;
    while (ps->endpoint.msgr.ops->poll(ps->endpoint.msgr.self, &event)) {
        if (event.type == WEFT_EVENT_PEER_UP && !weft_api_ps_is_shard(ps, &event)) {
            continue; /* in time it is given up */
        }
        if (event.type == WEFT_EVENT_PEER_UP || event.type == WEFT_EVENT_PEER_DOWN) {
            note_peer(ps, &event);
        }
        if (ps->client != NULL) {
            weft_ps_client_event(ps->client, &event, now_ns);
        }
    }
    if (ps->client != NULL) {
        weft_ps_client_progress(ps->client, now_ns);
    }
    weft_api_ps_metrics_look(ps);
}

void weft_api_ps_step(struct weft_ps *ps, uint64_t timeout_ns)
{
    if (ps->any_away) {
        timeout_ns = weft_min_u64(timeout_ns, weft_api_ps_reconnect(ps));
    }
    uint64_t due_ns = ps->client != NULL ? weft_ps_client_deadline(ps->client) : WEFT_NEVER;
    if (due_ns != WEFT_NEVER) {
        uint64_t now_ns = weft_clock_now_ns();
        timeout_ns = weft_min_u64(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
    }
    if (weft_endpoint_has_thread(&ps->endpoint)) {
        timeout_ns = weft_api_ps_metrics_sleep(ps, timeout_ns);
    }
    weft_endpoint_step(&ps->endpoint, timeout_ns, handle, ps);
}

void weft_api_ps_flush(struct weft_ps *ps)
{
    weft_endpoint_flush(&ps->endpoint);
}

weft_status weft_api_ps_linger(struct weft_ps *ps, uint64_t most_ns, uint64_t *end_ns_p)
{
    uint64_t now_ns = weft_clock_now_ns();
    *end_ns_p = *end_ns_p == 0 ? weft_time_add(now_ns, ps->call_timeout_ns) : *end_ns_p;
    if (now_ns >= *end_ns_p) {
        weft_api_ps_step(ps, 0); /* who calls again and again with no time at all gets on, too */
        return weft_io_fail(&ps->error, WEFT_TIMEOUT,
                            "%s for call_timeout_ns; call again to go on waiting",
                            ps->any_away ? "a server is away"
                                         : "a clock has not arrived, or replay_bytes is full,");
    }
    uint64_t left_ns = *end_ns_p == WEFT_NEVER ? WEFT_NEVER : *end_ns_p - now_ns;
    weft_api_ps_step(ps, weft_min_u64(most_ns, left_ns));
    return WEFT_OK;
}

void weft_ps_progress(struct weft_ps *ps, uint64_t timeout_ns)
{
    weft_api_ps_step(ps, timeout_ns);
}

void weft_ps_idle(struct weft_ps *ps)
{
    weft_endpoint_idle(&ps->endpoint);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Without security the wildcard would be refused before the server's address, which says more. */
static const char *bind_host(const struct weft_ps *ps, const struct weft_ps_config *config)
{
    if (config->host != NULL) {
        return config->host;
    }
    const char *hosts[WEFT_PS_SHARDS_MAX];
    for (uint32_t s = 0; s < ps->shards; s++) {
        hosts[s] = ps->servers[s].host;
    }
    const char *host = weft_udp_bind_towards(hosts, ps->shards);
    if (config->security != WEFT_TRANSPORT_NONE) {
        return host;
    }
    return host[0] == ':' ? "::1" : "127.0.0.1";
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

static struct weft_ps_client_config client_config(const struct weft_ps *ps,
                                                  const struct weft_ps_config *config)
{
    uint32_t blocks = (config->dim_max + WEFT_RPC_BLOCK_FLOATS - 1) / WEFT_RPC_BLOCK_FLOATS;
    uint32_t row_bytes = blocks * (uint32_t)sizeof(uint64_t) + config->dim_max * 4;
    struct weft_ps_client_config client;
    weft_ps_client_config_default(&client);
    client.worker = ps->worker;
    client.shards = ps->shards;
    client.tables_max = config->tables_max;
    client.ops_max = config->ops_max;
    client.lists_per_op_max = config->lists_max;
    client.rows_per_op_max = config->rows_max;
    client.rows_per_rpc_max = (uint32_t)weft_min_u64(ROWS_PER_RPC_MAX, RPC_BYTES_MAX / row_bytes);
    client.dim_max = config->dim_max;
    client.missed_max = config->missed_max;
    weft_os_random(client.missed_key, sizeof(client.missed_key));
    client.reconnect_ns = config->reconnect_timeout_ns;
    client.replay_bytes = config->replay_bytes;
    client.clock_ns = clock_now;
    client.records = ps->records;
    return client;
}

enum weft_driver_kind weft_api_ps_driver_kind(const struct weft_ps_config *config)
{
    bool tcp = config->transport != NULL && strcmp(config->transport, "tcp") == 0;
    return tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
}

static void driver_config(const struct weft_ps *ps, const struct weft_ps_config *config,
                          const struct weft_ps_client_config *client,
                          struct weft_driver_config *driver_p)
{
    weft_driver_config_default(driver_p);
    driver_p->kind = weft_api_ps_driver_kind(config);
    struct weft_udp_config *udp = &driver_p->udp;
    udp->host = bind_host(ps, config);
    udp->busy_poll_us = (uint16_t)config->busy_poll_us;
    udp->loss = (struct weft_loss_config){.loss_ppm = config->inject_loss_ppm,
                                          .role = WEFT_ROLE_WORKER,
                                          .rank = ps->worker,
                                          .seed = config->inject_seed};
    udp->loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    udp->lockstep = WEFT_UDP_LOCKSTEP;
    udp->hold_ns = config->thread ? 0 : WEFT_UDP_HOLD_NS;
    udp->ep.confirm_later = config->thread ? 1 : 0; /* nobody turns the other between two calls */
    udp->ep.name = weft_rpc_name(WEFT_ROLE_WORKER, ps->worker);
    udp->ep.peers_max = ps->shards + PEERS_SPARE;
    udp->ep.expects_max = weft_ps_client_expects_max(client);
    udp->ep.peer_timeout_ns = config->peer_timeout_ns;
    udp->ep.keepalive_ns = config->keepalive_ns;
}

static weft_status open_endpoint(struct weft_ps *ps, const struct weft_ps_config *config)
{
    const struct weft_ps_client_config client = client_config(ps, config);
    if (weft_ps_client_expects_max(&client) > UINT16_MAX) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "ops_max x (lists_max x shards + rows_max / %u) + tables_max x shards "
                            "is more than 65535; lower one of them",
                            client.rows_per_rpc_max);
    }
    struct weft_endpoint_config endpoint = {.security = &ps->security, .thread = config->thread};
    driver_config(ps, config, &client, &endpoint.driver);
    return weft_endpoint_open(&endpoint, &ps->endpoint, &ps->error);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static weft_status connect_one(struct weft_ps *ps, struct ps_server *server)
{
    server->is_up = server->is_down = server->was_up = false;
    server->again_ns = weft_time_add(weft_clock_now_ns(), again_ns);
    weft_status status = weft_endpoint_connect(&ps->endpoint, server->host, server->port,
                                               &server->peer, &ps->error);
    if (status == WEFT_NOMEM) { /* the connections before are not forgotten yet */
        server->peer = WEFT_PEER_ANY;
        server->is_down = true;
        return WEFT_OK;
    }
    return status;
}

/* Who is it that answers at the place of shard s? */
static weft_status check_name(struct weft_ps *ps, uint32_t s)
{
    struct ps_server *server = &ps->servers[s];
    uint32_t shard = (uint32_t)server->name;
    if (server->name >> 32 != WEFT_ROLE_SERVER) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "what answers at %s:%u is no `weft server`; name the ports that it "
                            "prints",
                            server->host, server->port);
    }
    if (shard != s) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "%s:%u is shard %u, but stands at the place of shard %u in servers; "
                            "name the servers in the order of their shards, shard 0 first",
                            server->host, server->port, shard, s);
    }
    return WEFT_OK;
}

static weft_status connect_timeout(struct weft_ps *ps, uint32_t s)
{
    const struct ps_server *server = &ps->servers[s];
    char hint[WEFT_UDP_UNREACHED_BYTES];
    (void)weft_api_ps_hint(ps, hint);
    return weft_io_fail(
        &ps->error, WEFT_TIMEOUT,
        "no server answers at %s:%u (shard %u of %u); start `weft server` there, or "
        "correct servers, or wait longer (connect_timeout_ns)%s%s",
        server->host, server->port, s, ps->shards, hint[0] != '\0' ? "; " : "", hint);
}

/* A connection that did not come about, or broke before all were there: why, or once more. */
static weft_status connect_again(struct weft_ps *ps, uint32_t s)
{
    struct ps_server *server = &ps->servers[s];
    char hint[WEFT_UDP_UNREACHED_BYTES];
    if (server->down == WEFT_DOWN_REPLACED) {
        return weft_api_ps_gone(ps, s);
    }
    if (server->was_up && weft_clock_now_ns() < server->again_ns) {
        return WEFT_OK;
    }
    if (!server->was_up && weft_api_ps_hint(ps, hint)) {
        return weft_io_fail(&ps->error, WEFT_PEER, "the server at %s:%u lets nobody in: %s",
                            server->host, server->port, hint);
    }
    return connect_one(ps, server);
}

/* Look at all shards once; *waiting_p is one that is not up yet, or `shards`. */
static weft_status connect_look(struct weft_ps *ps, uint32_t *waiting_p)
{
    weft_status status = WEFT_OK;
    *waiting_p = ps->shards;
    for (uint32_t s = ps->shards; status == WEFT_OK && s-- > 0;) {
        if (ps->servers[s].is_up) {
            status = check_name(ps, s);
        } else {
            *waiting_p = s;
            status = ps->servers[s].is_down ? connect_again(ps, s) : WEFT_OK;
        }
    }
    return status;
}

static weft_status connect_all(struct weft_ps *ps)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), ps->connect_timeout_ns);
    weft_status status = WEFT_OK;
    for (uint32_t s = 0; status == WEFT_OK && s < ps->shards; s++) {
        status = connect_one(ps, &ps->servers[s]);
    }
    while (status == WEFT_OK) {
        uint32_t waiting;
        status = connect_look(ps, &waiting);
        if (status != WEFT_OK || waiting == ps->shards) {
            break;
        }
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= end_ns) {
            return connect_timeout(ps, waiting);
        }
        weft_api_ps_step(ps, weft_min_u64(turn_ns, end_ns - now_ns));
    }
    return status;
}

static weft_status make_client(struct weft_ps *ps, const struct weft_ps_config *config)
{
    weft_peer *peers = calloc(ps->shards, sizeof(*peers));
    if (peers == NULL) {
        return weft_io_fail(&ps->error, WEFT_NOMEM, "no memory for the list of servers");
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        peers[s] = ps->servers[s].peer;
    }
    const struct weft_ps_client_config client = client_config(ps, config);
    weft_status status = weft_ps_client_new(&client, ps->endpoint.msgr, peers, &ps->client);
    free(peers);
    if (status == WEFT_NOMEM) {
        return weft_io_fail(&ps->error, status,
                            "no memory for %u operations of %u rows of %u floats; lower ops_max, "
                            "rows_max or dim_max",
                            config->ops_max, config->rows_max, config->dim_max);
    }
    return status == WEFT_OK ? status
                             : weft_io_fail(&ps->error, status, "%s", weft_status_text(status));
}

static weft_status ps_init(struct weft_ps *ps, const struct weft_ps_config *config)
{
    ps->worker = config->worker;
    ps->workers = config->workers;
    ps->tables_max = config->tables_max;
    ps->dim_max = config->dim_max;
    ps->ops_max = config->ops_max;
    ps->rows_max = config->rows_max;
    ps->lists_max = config->lists_max;
    ps->connect_timeout_ns = config->connect_timeout_ns;
    ps->call_timeout_ns = config->call_timeout_ns;
    ps->reconnect_ns = config->reconnect_timeout_ns;
    ps->replay_bytes = config->replay_bytes;
    ps->tables = calloc(config->tables_max, sizeof(*ps->tables));
    ps->tickets = calloc(config->ops_max, sizeof(*ps->tickets));
    if (ps->tables == NULL || ps->tickets == NULL) {
        return weft_io_fail(&ps->error, WEFT_NOMEM, "no memory for %u tables and %u operations",
                            config->tables_max, config->ops_max);
    }
    weft_status missed = weft_api_ps_missed_begin(ps, config->rows_max);
    if (missed != WEFT_OK) {
        return missed;
    }
    ps->missed.rows = 0;
    const struct weft_api_security security = {config->security, config->key_file, config->key};
    bool joins = ps->membership.launch.coordinator_port != 0;
    weft_status status =
        joins ? WEFT_OK
              : weft_api_ps_servers_parse(config->servers, &ps->servers, &ps->shards, &ps->error);
    if (status == WEFT_OK) {
        status = weft_api_security_load(&security, &ps->security, &ps->error);
    }
    if (status == WEFT_OK && joins) {
        status = weft_api_ps_join(ps, config);
    }
    if (status == WEFT_OK) {
        status = open_endpoint(ps, config);
    }
    if (status == WEFT_OK) {
        status = connect_all(ps);
    }
    if (status == WEFT_OK) {
        status = weft_api_ps_records_open(ps, config->records);
    }
    return status == WEFT_OK ? make_client(ps, config) : status;
}

/* ---- the public functions -------------------------------------------------------------------- */

weft_status weft_ps_connect(const struct weft_ps_config *config, struct weft_ps **ps_p)
{
    struct weft_ps_config ours;
    struct weft_launch launch;
    if (config == NULL || ps_p == NULL) {
        return weft_io_fail(&connect_error, WEFT_INVALID,
                            "config or ps_p is NULL; fill a config with weft_ps_config_init");
    }
    weft_status status = weft_api_ps_config_read(config, &ours, &launch, &connect_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ps *ps = calloc(1, sizeof(*ps));
    if (ps == NULL) {
        return weft_io_fail(&connect_error, WEFT_NOMEM, "no memory for a connection");
    }
    ps->membership.launch = launch;
    status = ps_init(ps, &ours);
    if (status != WEFT_OK) {
        connect_error = ps->error;
        weft_ps_close(ps);
        return status;
    }
    weft_api_ps_metrics_open(ps, ours.metrics);
    *ps_p = ps;
    return WEFT_OK;
}

static void end(struct weft_ps *ps, bool done)
{
    weft_api_ps_metrics_close(ps);
    /* The endpoint borrows the client's memory, so it goes first. */
    weft_endpoint_close(&ps->endpoint);
    weft_ps_client_free(ps->client);
    weft_recorder_free(ps->recorder);
    weft_api_ps_leave(ps, done);
    weft_security_fini(&ps->security);
    free(ps->servers);
    weft_api_ps_tables_free(ps);
    free(ps->tables);
    free(ps->tickets);
    free(ps->missed.bits);
    free(ps);
}

void weft_ps_close(struct weft_ps *ps)
{
    if (ps != NULL) {
        end(ps, ps->client != NULL && !ps->any_down && weft_api_ps_is_flushed(ps));
    }
}

void weft_ps_give_up(struct weft_ps *ps)
{
    if (ps != NULL) {
        end(ps, false);
    }
}

const char *weft_ps_error(const struct weft_ps *ps)
{
    return ps != NULL ? ps->error.text : connect_error.text;
}

uint32_t weft_ps_worker(const struct weft_ps *ps)
{
    return ps->worker;
}

uint32_t weft_ps_workers(const struct weft_ps *ps)
{
    return ps->workers;
}

uint32_t weft_ps_shards(const struct weft_ps *ps)
{
    return ps->shards;
}

void weft_ps_counters_get(struct weft_ps *ps, struct weft_ps_counters *counters_p)
{
    const struct weft_ps_client_counters *client = weft_ps_client_counters(ps->client);
    struct weft_driver_counters driver;
    weft_endpoint_counters(&ps->endpoint, &driver);
    const struct weft_ps_counters ours = {
        .push_messages = client->push.messages,
        .push_messages_short = client->push.messages_short,
        .push_elements_sent = client->push.elements_sent,
        .push_elements_delivered = client->push.elements_delivered,
        .push_chunks_refused = client->push.chunks_refused,
        .pull_messages = client->pull.messages,
        .pull_messages_short = client->pull.messages_short,
        .pull_elements_sent = client->pull.elements_sent,
        .pull_elements_delivered = client->pull.elements_delivered,
        .missed_now = client->missed_now,
        .missed_forgotten = client->missed_forgotten,
        .clocks = client->clocks,
        .requests_refused = client->rpcs_refused,
        .requests_failed = client->rpcs_failed,
        .answers_bad = client->replies_bad,
        .datagrams_sent = driver.socket.datagrams_sent,
        .datagrams_received = driver.socket.datagrams_received,
        .bytes_sent = driver.socket.bytes_sent,
        .bytes_received = driver.socket.bytes_received,
        .retransmitted_packets = driver.ep.retransmitted_packets,
        .lost_packets = driver.ep.lost_packets,
        .injected_drops = driver.socket.injected_drops,
        .servers_away = client->shards_away,
        .pushes_again = client->pushes_again,
        .pushes_lost = client->pushes_lost,
        .pushes_durable = client->pushes_durable,
        .replay_bytes_now = client->replay_bytes_now,
        .pushes_passed = client->pushes_passed,
        .late = client->late,
        .last_forgotten = client->last_forgotten,
        .feedback_rows_now = client->feedback_rows_now,
        .feedback_kept = client->feedback_kept,
        .feedback_added = client->feedback_added,
        .feedback_dropped = client->feedback_dropped,
    };
    weft_api_ps_counters_out(counters_p, &ours);
}
