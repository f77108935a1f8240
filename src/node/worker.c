/* Opening: a worker's endpoint and its connections to all shards.
 *
 * With connect_timeout_ns: the processes of a job start in any order, so a server that does not
 * answer yet is retried. An error that waiting does not cure, such as another job key or another
 * shard than in the list, fails at once. The client is created when all are up: for it, a peer that
 * is down is down permanently.
 */
#include "node/worker.h"

#include "io/clock.h"
#include "io/random.h"
#include "node/sched_link.h"
#include "node/worker_sched.h"
#include "ps/update.h"

#include <stdlib.h>

enum { PEERS_SPARE = 4 }; /* a closed connection keeps its slot for a moment */

static const uint64_t step_ns = 200 * WEFT_NS_PER_MS;
static const uint64_t unpark_ns = WEFT_NS_PER_S; /* least limit of unpark, and limit of settle */
static const uint64_t unpark_step_ns = 10 * WEFT_NS_PER_MS;
static const uint64_t settle_ns = 10 * WEFT_NS_PER_MS; /* at least */
/* The pause between attempts: a server may immediately refuse a rank that another process has. */
static const uint64_t retry_ns = 200 * WEFT_NS_PER_MS;

void weft_worker_config_default(struct weft_worker_config *config_p)
{
    *config_p = (struct weft_worker_config){.tau_max = WEFT_NEVER};
    weft_endpoint_config_default(&config_p->endpoint);
    config_p->endpoint.driver.udp.host = NULL;
    weft_ps_client_config_default(&config_p->client);
}

/* ---- the endpoint ---------------------------------------------------------------------------- */

/* Without security the wildcard would be refused before a server's address; the error about the
 * server's address is more helpful. */
static const char *bind_host(const struct weft_worker *worker,
                             const struct weft_worker_config *config, const char *hosts[])
{
    uint32_t count = worker->shards;
    for (uint32_t s = 0; s < worker->shards; s++) {
        hosts[s] = worker->servers[s].address.host;
    }
    if (config->scheduler != NULL) {
        hosts[count++] = config->scheduler->host;
    }
    const char *host = weft_udp_bind_towards(hosts, count);
    if (worker->security->mode != WEFT_MODE_NONE || worker->security->insecure_network) {
        return host;
    }
    return host[0] == ':' ? "::1" : "127.0.0.1";
}

static weft_status open_endpoint(struct weft_worker *worker,
                                 const struct weft_worker_config *config)
{
    struct weft_endpoint_config endpoint = config->endpoint;
    struct weft_udp_config *udp = &endpoint.driver.udp;
    bool reconnects = config->connect_timeout_ns > 0 || config->client.reconnect_ns > 0;
    const char **hosts = calloc(worker->shards + 1, sizeof(*hosts));
    if (hosts == NULL) {
        return weft_fail(&worker->error, WEFT_NOMEM, "no memory for the list of servers");
    }
    udp->host = udp->host != NULL ? udp->host : bind_host(worker, config, hosts);
    free(hosts);
    udp->loss.role = WEFT_ROLE_WORKER;
    udp->loss.rank = worker->rank;
    udp->ep.name = weft_rpc_name(WEFT_ROLE_WORKER, worker->rank);
    udp->ep.peers_max = worker->shards + (reconnects ? PEERS_SPARE : 0);
    udp->ep.peers_max += worker->has_via ? worker->via_total + PEERS_SPARE : 0;
    udp->ep.expects_max = weft_ps_client_expects_max(&config->client);
    if (config->scheduler != NULL) {
        udp->ep.peers_max += 2; /* and one closed connection */
        udp->ep.expects_max += WEFT_SCHED_LINK_EXPECTS;
    }
    worker->peer_timeout_ns = udp->ep.peer_timeout_ns;
    return weft_endpoint_open(&endpoint, &worker->endpoint, &worker->error);
}

bool weft_worker_via_parse(const char *text, struct weft_launch_address *via_p, uint32_t shards)
{
    uint32_t count;
    if (weft_launch_servers_parse(text, via_p, shards, &count) != NULL || count == 0 ||
        (count != 1 && count != shards) ||
        (count == 1 && via_p[0].port + shards - 1 > UINT16_MAX)) {
        return false;
    }
    for (uint32_t s = count; s < shards; s++) {
        via_p[s] = via_p[0];
        via_p[s].port = (uint16_t)(via_p[0].port + s);
    }
    return true;
}

/* Shape: via_p (count, shards). False: an element of the list is not an aggregator's address.
 *        `copy` is overwritten. */
static bool vias_parse(char *copy, struct weft_launch_address *via_p, uint32_t shards)
{
    for (char *one = strsep(&copy, "/"); one != NULL; one = strsep(&copy, "/")) {
        if (!weft_worker_via_parse(one, via_p, shards)) {
            return false;
        }
        via_p += shards;
    }
    return true;
}

static weft_status via_by_coordinator(struct weft_worker_config *config_p, const char *option,
                                      struct weft_error *error)
{
    if (config_p->scheduler != NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "%s is coordinator, which may name another aggregator for each worker, "
                         "and a scheduler plans with a list that all workers have: give the "
                         "addresses, or leave out the scheduler",
                         option);
    }
    if (config_p->membership == NULL || config_p->membership->thread == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "%s is coordinator, and this job has none: start `weft coordinator` and "
                         "name it (--coordinator HOST:PORT or WEFT_COORDINATOR), or give the "
                         "HOST:PORT of the aggregator",
                         option);
    }
    config_p->via_coordinator = true;
    return WEFT_OK;
}

weft_status weft_worker_via_read(struct weft_worker_config *config_p, const char *option,
                                 const char *text, struct weft_launch_address **via_p,
                                 struct weft_error *error)
{
    const bool is_planned = config_p->scheduler != NULL;
    const uint32_t shards = config_p->client.shards;
    const uint32_t timeout_ms =
        is_planned ? WEFT_WORKER_VIA_PLANNED_MS : WEFT_WORKER_VIA_TIMEOUT_MS;
    *via_p = NULL;
    config_p->client.via_timeout_ns = timeout_ms * WEFT_NS_PER_MS;
    if (strcmp(text, "coordinator") == 0) {
        return via_by_coordinator(config_p, option, error);
    }
    uint32_t count = 1;
    for (const char *at = text; *at != '\0'; at++) {
        count += *at == '/';
    }
    if (count > (is_planned ? WEFT_SCHED_AGGREGATORS_MAX : 1)) {
        return weft_fail(error, WEFT_INVALID,
                         "%s names %u aggregators; it may name %d with a scheduler, and 1 without",
                         option, count, (int)WEFT_SCHED_AGGREGATORS_MAX);
    }
    char *copy = strdup(text);
    *via_p = calloc((size_t)count * shards, sizeof(**via_p));
    if (copy == NULL || *via_p == NULL) {
        free(copy);
        return weft_fail(error, WEFT_NOMEM, "no memory for the list of aggregators");
    }
    const bool is_good = vias_parse(copy, *via_p, shards);
    free(copy);
    if (!is_good) {
        return weft_fail(error, WEFT_INVALID,
                         "%s is \"%.80s\"; it must be the HOST:PORT that `weft aggregate` prints, "
                         "or one for each of the %u shards; with a scheduler several of these with "
                         "/ between them",
                         option, text, shards);
    }
    config_p->via = *via_p;
    config_p->client.aggregators = count;
    return WEFT_OK;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static weft_status connect_one(struct weft_worker *worker, uint32_t s)
{
    struct weft_worker_server *server = &worker->servers[s];
    const struct weft_launch_address *address = &server->address;
    if (worker->membership != NULL) { /* it may have moved since the list was written */
        (void)weft_membership_locate(worker->membership, s, worker->shards, &server->address);
    }
    weft_worker_select_address(server);
    server->is_up = server->is_down = server->was_up = false;
    server->retry_ns = weft_time_add(weft_clock_now_ns(), retry_ns);
    weft_status status = weft_endpoint_connect(&worker->endpoint, address->host, address->port,
                                               &server->peer, &worker->error);
    if (status == WEFT_NOMEM) { /* earlier connections are not freed yet */
        server->peer = WEFT_PEER_ANY;
        server->is_down = true;
        return WEFT_OK;
    }
    return status;
}

/* Errors:  WEFT_INVALID  the connected process is not the shard with that index in the list. */
static weft_status check_name(struct weft_worker *worker, uint32_t s)
{
    const struct weft_worker_server *server = &worker->servers[s];
    uint32_t shard = (uint32_t)server->name;
    if (server->name >> 32 != WEFT_ROLE_SERVER) {
        return weft_fail(&worker->error, WEFT_INVALID,
                         "the process at %s:%u is not a `weft server`; name the ports that it "
                         "prints",
                         server->address.host, server->address.port);
    }
    if (shard != s) {
        return weft_fail(&worker->error, WEFT_INVALID,
                         "%s:%u is shard %u, but number %u in the list of servers; name the "
                         "servers in the order of their shards, shard 0 first",
                         server->address.host, server->address.port, shard, s);
    }
    return WEFT_OK;
}

static weft_status timed_out(struct weft_worker *worker, uint32_t s)
{
    const struct weft_launch_address *address = &worker->servers[s].address;
    char hint[WEFT_SECURITY_HINT_BYTES];
    (void)weft_worker_hint(worker, hint);
    return weft_fail(&worker->error, WEFT_TIMEOUT,
                     "no server answers at %s:%u (shard %u of %u); start `weft server` there, "
                     "or correct the list of servers, or wait longer%s%s",
                     address->host, address->port, s, worker->shards, hint[0] != '\0' ? "; " : "",
                     hint);
}

/* A connection failed, or broke before all were up: report the reason, or retry. */
static weft_status reconnect(struct weft_worker *worker, uint32_t s)
{
    struct weft_worker_server *server = &worker->servers[s];
    char hint[WEFT_SECURITY_HINT_BYTES];
    if (server->down == WEFT_DOWN_REPLACED) {
        return weft_worker_gone(worker, s);
    }
    if (server->was_up && weft_clock_now_ns() < server->retry_ns) {
        return WEFT_OK;
    }
    if (!server->was_up && weft_worker_hint(worker, hint)) {
        return weft_fail(&worker->error, WEFT_PEER,
                         "the server at %s:%u refused the connection: %s", server->address.host,
                         server->address.port, hint);
    }
    return connect_one(worker, s);
}

/* Check all shards once; *waiting_p is one that is not up yet, or `shards`. */
static weft_status connect_due(struct weft_worker *worker, uint32_t *waiting_p)
{
    weft_status status = WEFT_OK;
    *waiting_p = worker->shards;
    for (uint32_t s = worker->shards; status == WEFT_OK && s-- > 0;) {
        if (worker->servers[s].is_up) {
            status = check_name(worker, s);
        } else {
            *waiting_p = s;
            status = worker->servers[s].is_down ? reconnect(worker, s) : WEFT_OK;
        }
    }
    return status;
}

static weft_status connect_all(struct weft_worker *worker, uint64_t timeout_ns)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    weft_status status = WEFT_OK;
    for (uint32_t s = 0; status == WEFT_OK && s < worker->shards; s++) {
        status = connect_one(worker, s);
    }
    while (status == WEFT_OK && timeout_ns > 0) {
        uint32_t waiting;
        status = connect_due(worker, &waiting);
        if (status != WEFT_OK || waiting == worker->shards) {
            /* A peer that went down meanwhile is up now. */
            worker->any_down = worker->any_down && status != WEFT_OK;
            break;
        }
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= end_ns) {
            return timed_out(worker, waiting);
        }
        weft_worker_progress(worker, weft_min_u64(step_ns, end_ns - now_ns));
    }
    return status;
}

/* ---- the client ------------------------------------------------------------------------------ */

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

/* 0 = connections are not parked: a program whose endpoint has a progress thread may call nothing
 * for longer than any lease, for example while it evaluates a model, and stays alive while
 * connected. */
static uint64_t park_lease_ns(const struct weft_worker *worker,
                              const struct weft_worker_config *config)
{
    const uint64_t most_ns = WEFT_RPC_PARK_MS_MAX * WEFT_NS_PER_MS;
    return config->endpoint.thread ? 0 : weft_min_u64(2 * worker->peer_timeout_ns, most_ns);
}

/* Pass the connections established before the client existed to it: without their incarnations it
 * would send no pull through an aggregator, and park no connection. */
static void client_hears(struct weft_worker *worker)
{
    for (uint32_t s = 0; s < worker->shards; s++) {
        const struct weft_worker_server *server = &worker->servers[s];
        const struct weft_msg_event up = {.type = WEFT_EVENT_PEER_UP,
                                          .peer = server->peer,
                                          .name = server->name,
                                          .incarnation = server->incarnation};
        if (server->is_up) {
            weft_ps_client_event(worker->client, &up, weft_clock_now_ns());
        }
    }
}

static weft_status make_client(struct weft_worker *worker, const struct weft_worker_config *config)
{
    struct weft_ps_client_config client = config->client;
    weft_peer *peers = calloc(worker->shards, sizeof(*peers));
    if (peers == NULL) {
        return weft_fail(&worker->error, WEFT_NOMEM, "no memory for the list of servers");
    }
    for (uint32_t s = 0; s < worker->shards; s++) {
        peers[s] = worker->servers[s].peer;
    }
    client.clock_ns = clock_now;
    client.park_lease_ns = park_lease_ns(worker, config);
    client.park_pause_ns = WEFT_NS_PER_S;
    if (config->scheduler != NULL && client.update_bytes_min == 0) {
        client.update_bytes_min = WEFT_PS_UPDATE_BYTES_MIN;
    }
    weft_os_random(client.missed_key, sizeof(client.missed_key));
    weft_status status = weft_ps_client_new(&client, worker->endpoint.msgr, peers, &worker->client);
    free(peers);
    if (status == WEFT_OK) {
        client_hears(worker);
    }
    if (status == WEFT_NOMEM) {
        return weft_fail(&worker->error, status,
                         "no memory for %u operations of %u rows of %u floats; lower one of "
                         "these",
                         client.ops_max, client.rows_per_op_max, client.dim_max);
    }
    return status == WEFT_OK ? status
                             : weft_fail(&worker->error, status, "parameter-server client: %s",
                                         weft_status_text(status));
}

static weft_status make_sched(struct weft_worker *worker, const struct weft_worker_config *config)
{
    if (config->scheduler == NULL) {
        return WEFT_OK;
    }
    weft_status status = weft_worker_sched_new(config, worker->endpoint.msgr, &worker->sched);
    return status == WEFT_OK
               ? status
               : weft_fail(&worker->error, status,
                           "the scheduler plans at most %d workers and %d shards; "
                           "here: worker %u of %u, %u shards: %s",
                           (int)WEFT_SCHED_WORKERS_MAX, (int)WEFT_SCHED_SHARDS_MAX, worker->rank,
                           config->workers, worker->shards, weft_status_text(status));
}

const struct weft_sched_daemon_counters *weft_worker_sched(const struct weft_worker *worker)
{
    return worker->sched != NULL ? weft_worker_sched_counters(worker->sched) : NULL;
}

weft_status weft_worker_open(struct weft_worker *worker, const struct weft_worker_config *config)
{
    uint32_t shards = config->client.shards;
    *worker = (struct weft_worker){
        .servers = calloc(shards, sizeof(*worker->servers)),
        .via_total = shards * (config->client.aggregators > 1 ? config->client.aggregators : 1),
        .shards = shards,
        .rank = config->client.worker,
        .reconnect_ns = config->client.reconnect_ns,
        .security = config->endpoint.security,
        .membership = config->membership,
        .has_via = config->client.via_timeout_ns > 0,
        .via_coordinator = config->via_coordinator,
        .on_progress = config->on_progress,
        .arg = config->arg,
    };
    worker->vias = calloc(worker->via_total, sizeof(*worker->vias));
    if (worker->servers == NULL || worker->vias == NULL) {
        return weft_fail(&worker->error, WEFT_NOMEM, "no memory for the list of servers");
    }
    if (worker->has_via && !worker->via_coordinator) {
        memcpy(worker->vias, config->via, worker->via_total * sizeof(*worker->vias));
    }
    for (uint32_t s = 0; s < shards; s++) {
        worker->servers[s].address = worker->servers[s].first = config->servers[s];
        if (config->replicas != NULL) {
            worker->servers[s].replica = config->replicas[s];
        }
    }
    weft_status status = open_endpoint(worker, config);
    if (status == WEFT_OK) {
        status = connect_all(worker, config->connect_timeout_ns);
    }
    status = status == WEFT_OK ? make_client(worker, config) : status;
    return status == WEFT_OK ? make_sched(worker, config) : status;
}

/* Reopen the parked connections whose servers answer. Wait for as long as for a reply over any
 * connection: a busy host may need seconds, and a rank that merely stops sending is declared dead
 * when its lease ends. Do not wait longer than any lease lasts, because the peer timeout may be
 * WEFT_NEVER. The same for pushes that an aggregator has acknowledged on apply: the server would
 * refuse their sum once this worker has ended. False: there was nothing to wait for. */
static bool unpark(struct weft_worker *worker)
{
    if (!worker->has_via || worker->client == NULL) {
        return false;
    }
    bool any = false;
    uint64_t now_ns = weft_clock_now_ns();
    const uint64_t most_ns = WEFT_RPC_PARK_MS_MAX * WEFT_NS_PER_MS;
    const uint64_t end_ns = weft_time_add(
        now_ns, weft_min_u64(weft_max_u64(unpark_ns, worker->peer_timeout_ns), most_ns));
    while ((weft_ps_client_unpark(worker->client, now_ns) ||
            weft_ps_client_applied(worker->client) > 0) &&
           now_ns < end_ns) {
        any = true;
        weft_worker_progress(worker, unpark_step_ns);
        now_ns = weft_clock_now_ns();
    }
    return any;
}

/* An endpoint sends no IDLE to a peer with an exchange in progress, and the server's reply to
 * RESUME may not be acknowledged completely. Make progress for as long as connecting took. */
static void settle(struct weft_worker *worker, uint64_t span_ns)
{
    const uint64_t end_ns = weft_time_add(weft_clock_now_ns(), weft_max_u64(span_ns, settle_ns));
    for (uint64_t now_ns = 0; now_ns < end_ns; now_ns = weft_clock_now_ns()) {
        weft_worker_progress(worker, settle_ns / 10);
    }
}

void weft_worker_idle(struct weft_worker *worker)
{
    const uint64_t begin_ns = weft_clock_now_ns();
    if (unpark(worker)) {
        settle(worker, weft_min_u64(weft_clock_now_ns() - begin_ns, unpark_ns));
    }
    if (worker->client != NULL) {
        weft_ps_client_park_again(worker->client);
    }
    weft_endpoint_idle(&worker->endpoint);
}

void weft_worker_close(struct weft_worker *worker)
{
    worker->on_progress = NULL;
    (void)unpark(worker); /* so that their servers are notified of its end */
    /* The endpoint borrows the client's memory, so it is freed first. */
    weft_endpoint_close(&worker->endpoint);
    weft_ps_client_free(worker->client);
    weft_worker_sched_free(worker->sched);
    worker->sched = NULL;
    free(worker->servers);
    free(worker->vias);
    worker->vias = NULL;
    worker->client = NULL;
    worker->servers = NULL;
    worker->shards = 0;
}
