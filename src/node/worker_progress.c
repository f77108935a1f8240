/* Progress: events to the client, and reconnections to servers that disappeared.
 *
 * The client keeps unfinished operations and requests a connection to the shard. This file makes
 * it: to the previous address, to the shard's current address in a job with a coordinator, or to
 * the shard's replica. A failed attempt is retried after a pause, which the client chooses, until
 * the client gives up.
 */
#include "io/clock.h"
#include "node/worker_sched.h"

#include <string.h>

/* Interval of checks for a server that is disconnected, and the pause when an attempt cannot
 * begin. */
static const uint64_t pause_ns = 100 * WEFT_NS_PER_MS;

static const uint64_t check_interval_ns = 200 * WEFT_NS_PER_MS;

static bool is_same(const struct weft_launch_address *a, const struct weft_launch_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* False: the process at the address of a shard that was away is not that shard. The client gives up
 *        the shard after its timeout. */
static bool note_up(struct weft_worker *worker, uint32_t s, const struct weft_msg_event *event)
{
    struct weft_worker_server *server = &worker->servers[s];
    if (server->is_away && event->name != weft_rpc_name(WEFT_ROLE_SERVER, s)) {
        return false;
    }
    server->is_up = true;
    server->is_down = server->is_away = false;
    server->name = event->name;
    server->incarnation = event->incarnation;
    return true;
}

static void note_down(struct weft_worker *worker, uint32_t s, const struct weft_msg_event *event)
{
    struct weft_worker_server *server = &worker->servers[s];
    bool waits = worker->client != NULL && weft_ps_client_waits(worker->client, s, event->down);
    if (waits) {
        server->is_away = worker->any_away = true;
        server->retry_ns = 0;
    } else {
        server->is_down = worker->any_down = true;
    }
    server->was_up = server->is_up;
    server->is_up = false;
    server->down = event->down;
    /* The endpoint reuses the peer number for the next connection, which may be another shard's. */
    server->peer = WEFT_PEER_ANY;
}

/* False: the event is not for the client. */
static bool note_peer(struct weft_worker *worker, const struct weft_msg_event *event)
{
    for (uint32_t s = 0; s < worker->shards; s++) {
        if (worker->servers[s].peer != event->peer) {
            continue;
        }
        if (event->type == WEFT_EVENT_PEER_DOWN) {
            note_down(worker, s, event);
        } else if (!note_up(worker, s, event)) {
            return false;
        }
    }
    return true;
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_worker *worker = arg;
    struct weft_msgr msgr = worker->endpoint.msgr;
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        if (worker->sched != NULL && weft_worker_sched_event(worker->sched, &event, now_ns)) {
            continue;
        }
        bool of_peer = event.type == WEFT_EVENT_PEER_UP || event.type == WEFT_EVENT_PEER_DOWN;
        if (of_peer && !note_peer(worker, &event)) {
            continue;
        }
        if (worker->client != NULL) {
            weft_ps_client_event(worker->client, &event, now_ns);
        }
    }
    if (worker->client != NULL) {
        weft_ps_client_progress(worker->client, now_ns);
    }
    if (worker->sched != NULL) {
        weft_worker_sched_progress(worker->sched, worker->client, now_ns);
    }
    if (worker->on_progress != NULL) {
        worker->on_progress(worker->arg, now_ns);
    }
}

/* ---- servers that are away ------------------------------------------------------------------- */

/* A replica that was not promoted closes a connection at once, while an attempt to reach a dead
 * server lasts for the whole peer timeout: three of four attempts are made at the replica. */
void weft_worker_select_address(struct weft_worker_server *server)
{
    enum { FIRST_EVERY = 4 };
    if (server->replica.port != 0) {
        const bool is_first = server->attempts++ % FIRST_EVERY == 0;
        server->address = is_first ? server->first : server->replica;
    }
}

static void connect_to(struct weft_worker *worker, uint32_t s, uint64_t now_ns)
{
    struct weft_worker_server *server = &worker->servers[s];
    if (worker->membership != NULL) {
        (void)weft_membership_locate(worker->membership, s, worker->shards, &server->address);
    }
    weft_worker_select_address(server);
    if (weft_endpoint_connect(&worker->endpoint, server->address.host, server->address.port,
                              &server->peer, &worker->error) != WEFT_OK ||
        weft_ps_client_reconnect(worker->client, s, server->peer, now_ns) != WEFT_OK) {
        server->peer = WEFT_PEER_ANY;
        server->retry_ns = now_ns + pause_ns;
    }
}

static void maintain_one(struct weft_worker *worker, uint32_t s, uint64_t now_ns)
{
    struct weft_worker_server *server = &worker->servers[s];
    uint64_t until_ns;
    if (weft_ps_client_parked(worker->client, s)) {
        server->until_ns = WEFT_NEVER; /* the client connects when needed */
    } else if (weft_ps_client_away(worker->client, s, &until_ns)) {
        server->until_ns = until_ns;
        if (now_ns >=
            weft_max_u64(server->retry_ns, weft_ps_client_reconnect_ns(worker->client, s))) {
            connect_to(worker, s, now_ns);
        }
    } else if (now_ns >= server->until_ns) { /* otherwise it is connecting */
        server->is_away = false;
        server->is_down = worker->any_down = true;
    }
}

/* Returns how long a sleep may last. */
static uint64_t maintain(struct weft_worker *worker)
{
    uint64_t now_ns = weft_clock_now_ns();
    bool any = false, any_wanted = false;
    for (uint32_t s = 0; s < worker->shards; s++) {
        if (worker->servers[s].is_away) {
            maintain_one(worker, s, now_ns);
        }
        any |= worker->servers[s].is_away;
        any_wanted |= worker->servers[s].is_away && !weft_ps_client_parked(worker->client, s);
    }
    worker->any_away = any;
    return any_wanted ? pause_ns : WEFT_NEVER;
}

/* Connect to aggregators. Nothing waits for them. Returns the maximum sleep of the step in ns. */
static uint64_t maintain_via(struct weft_worker *worker)
{
    uint64_t now_ns = weft_clock_now_ns(), sleep_ns = WEFT_NEVER, attempt_ns;
    weft_peer peer;
    while (weft_ps_client_take_via_close(worker->client, &peer)) {
        weft_endpoint_disconnect(&worker->endpoint, peer);
    }
    for (uint32_t v = 0; v < worker->via_total; v++) {
        struct weft_launch_address *via = &worker->vias[v];
        struct weft_error error;
        if (!weft_ps_client_wants_via(worker->client, v, &attempt_ns)) {
            continue;
        }
        if (now_ns < attempt_ns) {
            sleep_ns = weft_min_u64(sleep_ns, attempt_ns - now_ns);
        } else if (worker->via_coordinator &&
                   !weft_membership_aggregator(worker->membership, v, worker->shards, via)) {
            /* no address: retry after a pause */
            weft_ps_client_via_failed(worker->client, v, now_ns);
        } else if (weft_endpoint_connect(&worker->endpoint, via->host, via->port, &peer, &error) ==
                   WEFT_OK) {
            weft_ps_client_via(worker->client, v, peer);
        } else {
            weft_ps_client_via_failed(worker->client, v, now_ns);
            sleep_ns = weft_min_u64(sleep_ns, pause_ns);
        }
    }
    return sleep_ns;
}

/* Connected or connecting. */
static bool is_at_address(const struct weft_worker *worker, uint32_t s)
{
    const struct weft_worker_server *server = &worker->servers[s];
    uint64_t until_ns;
    if (server->is_up) {
        return true;
    }
    return !server->is_down && server->peer != WEFT_PEER_ANY &&
           (worker->client == NULL || !weft_ps_client_away(worker->client, s, &until_ns));
}

/* The coordinator reports another address for a shard: another process has its slot, and the
 * connected one is dead or cut off, which no outstanding request would show. An attempt to reach a
 * dead process would last for the whole peer timeout. Compare the address itself, not whether it
 * has changed since the last check: it may have changed twice, or before the first check. */
static void look_for_moves(struct weft_worker *worker, uint64_t now_ns)
{
    for (uint32_t s = 0; s < worker->shards; s++) {
        const struct weft_worker_server *server = &worker->servers[s];
        struct weft_launch_address now;
        if (is_at_address(worker, s) &&
            weft_membership_locate(worker->membership, s, worker->shards, &now) &&
            !is_same(&server->address, &now)) {
            weft_endpoint_disconnect(&worker->endpoint, server->peer);
        }
    }
    worker->check_ns = weft_time_add(now_ns, check_interval_ns);
}

/* Returns how long a sleep may last. */
static uint64_t maintain_moves(struct weft_worker *worker)
{
    uint64_t now_ns = weft_clock_now_ns();
    /* Before there is a client, every peer that goes down is reconnected. */
    bool may_connect = worker->client == NULL || worker->reconnect_ns > 0;
    if (worker->membership == NULL || !may_connect) {
        return WEFT_NEVER;
    }
    if (now_ns >= worker->check_ns) {
        look_for_moves(worker, now_ns);
    }
    return worker->check_ns - now_ns;
}

void weft_worker_progress(struct weft_worker *worker, uint64_t timeout_ns)
{
    if (worker->any_away) {
        timeout_ns = weft_min_u64(timeout_ns, maintain(worker));
    }
    timeout_ns = weft_min_u64(timeout_ns, maintain_moves(worker));
    if (worker->has_via && worker->client != NULL) {
        timeout_ns = weft_min_u64(timeout_ns, maintain_via(worker));
    }
    if (worker->sched != NULL) {
        timeout_ns = weft_min_u64(timeout_ns, weft_worker_sched_maintain(worker->sched, worker));
    }
    uint64_t due_ns = worker->client != NULL ? weft_ps_client_deadline(worker->client) : WEFT_NEVER;
    if (due_ns != WEFT_NEVER) {
        uint64_t now_ns = weft_clock_now_ns();
        timeout_ns = weft_min_u64(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
    }
    weft_endpoint_step(&worker->endpoint, timeout_ns, handle, worker);
}
