/* Clocks: ended by the worker; CLOCK is sent to each shard after the pushes of that clock. */
#include "ps/client_internal.h"

#include "base/assert.h"

void weft_ps_clocks_count(struct weft_ps_client *client)
{
    client->clocks_open = 0;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        const struct ps_table *table = &client->tables[t];
        for (uint32_t s = 0; table->state == TABLE_OPEN && s < client->config.shards; s++) {
            const struct ps_link *link = ps_link_of(client, (uint16_t)t, s);
            bool counts = !client->ends[s].down && !link->clock_refused;
            client->clocks_open += counts ? table->clock - link->clock_closed : 0;
        }
    }
}

void weft_ps_clock_refuse(struct weft_ps_client *client, struct ps_link *link, bool refused)
{
    client->clocks_refused += refused;
    client->clocks_refused -= link->clock_refused;
    link->clock_refused = refused;
    weft_ps_clocks_count(client);
}

bool weft_ps_clock_refused(const struct weft_ps_client *client,
                           struct weft_ps_clock_refusal *refusal_p)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    for (uint32_t i = 0; client->clocks_refused > 0 && i < links; i++) {
        const struct ps_link *link = &client->links[i];
        uint32_t shard = i % client->config.shards;
        if (!link->clock_refused || client->ends[shard].down || client->ends[shard].away) {
            continue;
        }
        *refusal_p = (struct weft_ps_clock_refusal){
            .table = (uint16_t)(i / client->config.shards),
            .shard = shard,
            .clock = link->clock_closed + 1,
            .status = !link->gone                    ? WEFT_STATE
                      : link->gone_status != WEFT_OK ? link->gone_status
                                                     : WEFT_DATA,
            .rpc_status = link->gone_rpc_status,
        };
        return true;
    }
    return false;
}

weft_status weft_ps_clock(struct weft_ps_client *client, uint16_t index, uint64_t now_ns)
{
    if (index >= client->config.tables_max || client->tables[index].state != TABLE_OPEN) {
        return WEFT_STATE;
    }
    struct ps_table *table = &client->tables[index];
    for (uint32_t s = 0; s < client->config.shards; s++) {
        const struct ps_link *link = ps_link_of(client, index, s);
        if (client->ends[s].down || link->clock_refused) {
            return WEFT_PEER;
        }
    }
    if (!weft_ps_clock_accepted(client, index)) {
        if (weft_ps_update_waited_for(client,
                                      index)) { /* its CLOCK may wait for other tables' ends */
            weft_ps_client_progress(client, now_ns);
        }
        return WEFT_AGAIN;
    }
    if (table->passed) {
        table->passed = false;
        return WEFT_OK;
    }
    table->clock++;
    weft_ps_update_clocked(client);
    weft_ps_pulls_in_time(client, index);
    client->clocks_open += client->config.shards;
    weft_ps_client_progress(client, now_ns);
    return WEFT_OK;
}

uint32_t weft_ps_clock_now(const struct weft_ps_client *client, uint16_t table)
{
    return table < client->config.tables_max ? client->tables[table].clock : 0;
}

bool weft_ps_clock_accepted(const struct weft_ps_client *client, uint16_t table)
{
    if (table >= client->config.tables_max) {
        return false;
    }
    const struct ps_link *links = &client->links[(size_t)table * client->config.shards];
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (links[s].clock_closed != client->tables[table].clock) {
            return false;
        }
    }
    return true;
}

/* The clock of the next CLOCK. A shard that lacks many clocks, because it was restored or this
 * worker connected late, gets one CLOCK for all clocks without unsent pushes. */
static uint32_t clock_next(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                           const struct ps_link *link)
{
    uint32_t next = link->clock_closed + 1, now = client->tables[table].clock;
    if (now <= next || link->pushes_open[0] > 0 || link->pushes_open[1] > 0) {
        return next;
    }
    uint32_t before = weft_ps_first_push_clock(client, table, shard) - 1;
    return before < now ? before : now;
}

void weft_ps_clock_send(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    uint16_t table = (uint16_t)(index / client->config.shards);
    uint32_t shard = index % client->config.shards;
    struct ps_link *link = &client->links[index];
    uint32_t clock = link->clock_closed + 1;
    const struct ps_shard_end *end = &client->ends[shard];
    if (link->clock_sending || link->clock_via || link->clock_refused || end->down || end->away ||
        link->resuming || clock > client->tables[table].clock || link->pushes_open[clock & 1] > 0 ||
        (client->updates != NULL && weft_ps_update_keeps_clock(client, table, shard, clock))) {
        return;
    }
    link->clock_said = clock_next(client, table, shard, link);
    if (link->clock_said == clock && weft_ps_via_takes_clock(client, table, shard, clock)) {
        client->counters.deferred += !weft_ps_via_clock(client, table, shard, clock, now_ns);
        return; /* not accepted: retried by the next progress, or PEER_DOWN follows */
    }
    if (!weft_ps_connection_goes(client, shard)) {
        return;
    }
    struct weft_rpc_request request = {
        .rpc_id = weft_ps_rpc_id(client, shard),
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
    };
    request.flags = link->clock_said > clock ? WEFT_RPC_UPTO : 0;
    weft_rpc_request_pack(&request, link->clock_request);
    struct weft_msg_send send = {
        .peer = client->ends[shard].peer,
        .base = link->clock_request,
        .total = 1,
        .elem_bytes = WEFT_RPC_REQUEST_BYTES,
        .priority = WEFT_RPC_PRIORITY_CLOCK,
        .shares = true,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_CLOCK, .table = table, .number = link->clock_said}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | WEFT_PS_USER_CLOCK | index,
    };
    uint64_t seq;
    /* Any other status: retried by the next progress, or PEER_DOWN follows. */
    link->clock_sending = client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) == WEFT_OK;
    client->counters.deferred += !link->clock_sending;
}

void weft_ps_clock_sent(struct weft_ps_client *client, uint32_t index,
                        const struct weft_msg_event *event)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    if (index >= links) {
        weft_ps_park_sent(client, index - links, event);
        return;
    }
    struct ps_link *link = &client->links[index];
    WEFT_ASSERT(link->clock_sending);
    link->clock_sending = false;
    if (event->outcome != WEFT_MSG_COMPLETE) {
        return; /* PEER_DOWN follows */
    }
    if (event->refused > 0) {
        weft_ps_clock_refuse(client, link, true);
        return;
    }
    weft_ps_clock_taken(client, index, link->clock_said);
}

void weft_ps_clock_taken(struct weft_ps_client *client, uint32_t index, uint32_t clock)
{
    struct ps_link *link = &client->links[index];
    uint32_t from = link->clock_closed;
    WEFT_ASSERT(clock > from);
    link->clock_closed = clock;
    client->clocks_open -= link->clock_closed - from;
    client->counters.clocks++;
    weft_ps_clock_moved(client, (uint16_t)(index / client->config.shards),
                        index % client->config.shards, from);
}
