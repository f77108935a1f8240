/* Servers that went away, and come back: config.reconnect_timeout_ns.
 *
 * The client (ps/client.h) keeps what is unfinished and asks for a connection to the shard; here is
 * who makes it: to the address of before or, in a job with a coordinator, to where that says the
 * shard is now. An attempt that fails is made again after a pause, which the client chooses, until it
 * gives up.
 */
#include "api/ps_internal.h"

#include "io/clock.h"

#include <string.h>

/* How often to look, and how soon again where a connection cannot even begin. */
static const uint64_t pause_ns = 100 * WEFT_NS_PER_MS;

void weft_api_ps_note_away(struct weft_ps *ps, struct ps_server *server)
{
    server->is_away = true;
    server->again_ns = 0;
    ps->any_away = true;
}

/* The coordinator may know another address meanwhile. */
static void look_up(struct weft_ps *ps, uint32_t s)
{
    struct weft_member_state state;
    if (ps->membership.thread == NULL) {
        return;
    }
    weft_member_thread_state(ps->membership.thread, &state);
    if (state.list.count == ps->shards) {
        weft_resolve_member_host(&state.list.addresses[s], ps->servers[s].host);
        ps->servers[s].port = state.list.addresses[s].port;
    }
}

static weft_status connect_to(struct weft_ps *ps, struct ps_server *server)
{
    return weft_endpoint_connect(&ps->endpoint, server->host, server->port, &server->peer,
                                 &ps->error);
}

/* Given up: for good. */
static void end(struct weft_ps *ps, struct ps_server *server)
{
    server->is_away = false;
    server->is_down = true;
    ps->any_down = true;
}

static void look_after(struct weft_ps *ps, uint32_t s, uint64_t now_ns)
{
    struct ps_server *server = &ps->servers[s];
    uint64_t until_ns;
    if (!weft_ps_client_away(ps->client, s, &until_ns)) {
        /* Connecting, or given up. */
        if (now_ns >= server->away_until_ns) {
            end(ps, server);
        }
        return;
    }
    server->away_until_ns = until_ns;
    if (now_ns < weft_max_u64(server->again_ns, weft_ps_client_again_ns(ps->client, s))) {
        return;
    }
    look_up(ps, s);
    if (connect_to(ps, server) != WEFT_OK ||
        weft_ps_client_reconnect(ps->client, s, server->peer, now_ns) != WEFT_OK) {
        server->peer = WEFT_PEER_ANY;
        server->again_ns = now_ns + pause_ns;
    }
}

uint64_t weft_api_ps_reconnect(struct weft_ps *ps)
{
    uint64_t now_ns = weft_clock_now_ns();
    bool any = false;
    for (uint32_t s = 0; ps->any_away && s < ps->shards; s++) {
        if (ps->servers[s].is_away) {
            look_after(ps, s, now_ns);
        }
        any |= ps->servers[s].is_away;
    }
    ps->any_away = any;
    return any ? pause_ns : WEFT_NEVER;
}

bool weft_api_ps_is_shard(const struct weft_ps *ps, const struct weft_msg_event *event)
{
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (ps->servers[s].is_away && ps->servers[s].peer == event->peer) {
            return event->name == weft_rpc_name(WEFT_ROLE_SERVER, s);
        }
    }
    return true;
}
