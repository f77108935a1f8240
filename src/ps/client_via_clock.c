/* Clocks through an aggregator.
 *
 * A CLOCK is sent there after its pushes, unless a scheduler routes the pushes. It is closed when
 * the aggregator replies that the shard has accepted it. Like a push it is sent directly to the
 * shard if that fails, or if the connection to the shard breaks: a CLOCK that the aggregator still
 * has then belongs to an old session. A CLOCK for several clocks is also sent directly.
 *
 * Source: docs/PROTOCOL.md section 7, "Clocks by way of an aggregator".
 */
#include "ps/client_via_state.h"

/* ---- without an answer ----------------------------------------------------------------------- */

static struct ps_link *link_of_clock(const struct weft_ps_client *client, uint32_t via,
                                     uint16_t table)
{
    return &client->links[(size_t)table * client->config.shards + client->vias[via].shard];
}

/* Send it directly to the shard. */
static void clock_direct(struct weft_ps_client *client, uint32_t index, uint16_t table)
{
    struct ps_via_clock *clock = &client->vias[index].links[table].clock;
    if (clock->state == VIA_CLOCK_ASKED) {
        link_of_clock(client, index, table)->clock_via = false;
        clock->direct = clock->clock;
        client->counters.via_clocks_direct++;
    }
}

void weft_ps_via_clock_down(struct weft_ps_client *client, uint32_t index, uint16_t table)
{
    struct ps_via *via = &client->vias[index];
    struct ps_via_clock *clock = &via->links[table].clock;
    if (clock->state != VIA_CLOCK_NONE) {
        /* NOTFOUND: the transport has dropped it with the peer. */
        (void)!client->msgr.ops->cancel(client->msgr.self, clock->expect);
        clock_direct(client, index, table);
        clock->state = VIA_CLOCK_NONE;
        via->flying--;
    }
}

void weft_ps_via_clocks_void(struct weft_ps_client *client, uint32_t shard)
{
    for (uint32_t v = shard; v < client->via_total; v += client->config.shards) {
        for (uint32_t t = 0; t < client->config.tables_max; t++) {
            clock_direct(client, v, (uint16_t)t);
            struct ps_via_clock *clock = &client->vias[v].links[t].clock;
            clock->state = clock->state == VIA_CLOCK_ASKED ? VIA_CLOCK_VOID : clock->state;
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void clock_answered(struct weft_ps_client *client, uint32_t index, uint16_t table,
                           const struct weft_msg_event *event)
{
    struct ps_via *via = &client->vias[index];
    struct ps_via_clock *clock = &via->links[table].clock;
    struct weft_rpc_reply reply;
    const bool good =
        clock->state == VIA_CLOCK_ASKED && event->outcome == WEFT_MSG_COMPLETE &&
        weft_rpc_reply_unpack(clock->reply, sizeof(clock->reply), &reply) == WEFT_OK &&
        reply.rpc_id == clock->rpc_id && reply.status == WEFT_RPC_OK;
    if (!good) {
        clock_direct(client, index, table);
    }
    clock->state = VIA_CLOCK_NONE;
    via->flying--;
    weft_ps_via_heard(client, via);
    if (good) {
        struct ps_link *link = link_of_clock(client, index, table);
        link->clock_via = false;
        client->counters.via_clocks_taken++;
        ps_vouched(&client->ends[via->shard], clock->sent_ns);
        weft_ps_clock_taken(client, (uint32_t)(link - client->links), clock->clock);
    }
}

void weft_ps_via_clock_event(struct weft_ps_client *client, uint32_t index, uint16_t table,
                             const struct weft_msg_event *event)
{
    struct ps_via *via = &client->vias[index];
    struct ps_via_clock *clock = &via->links[table].clock;
    if (event->type == WEFT_EVENT_SENT) {
        clock->sending = false;
        via->sending--;
        if (event->outcome != WEFT_MSG_UNKNOWN) {
            via->heard_ns = via->replied_ns = ps_clock_ns(client);
        }
    } else if (event->type == WEFT_EVENT_RECEIVED && clock->state != VIA_CLOCK_NONE) {
        clock_answered(client, index, table, event);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool weft_ps_via_takes_clock(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                             uint32_t clock)
{
    if (!weft_ps_via_open(client, table, shard)) {
        return false;
    }
    const struct ps_via_link *link = &client->vias[shard].links[table];
    return link->takes_clocks && link->clock.state == VIA_CLOCK_NONE && !link->clock.sending &&
           link->clock.direct != clock;
}

bool weft_ps_via_clock(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                       uint32_t number, uint64_t now_ns)
{
    struct ps_via *via = &client->vias[shard];
    struct ps_via_clock *clock = &via->links[table].clock;
    const uint32_t rpc_id = weft_ps_rpc_id(client, shard);
    const uint64_t user = WEFT_PS_USER | WEFT_PS_USER_VIA |
                          ((client->config.tables_max + table) * client->via_total + shard);
    const struct weft_rpc_request request = {
        .rpc_id = rpc_id,
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .need_clock = client->ends[shard].session,
    };
    const struct weft_msg_expect expect = {
        .peer = via->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_CLOCK | WEFT_RPC_REPLY_FLAG, .table = table, .number = rpc_id}),
        .tag_mask = UINT64_MAX,
        .memory = clock->reply,
        .memory_bytes = sizeof(clock->reply),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = user,
    };
    weft_rpc_request_pack(&request, clock->request);
    const struct weft_msg_send send = {
        .peer = via->peer,
        .base = clock->request,
        .total = 1,
        .elem_bytes = WEFT_RPC_REQUEST_BYTES,
        .priority = WEFT_RPC_PRIORITY_CLOCK,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_CLOCK, .table = table, .number = number}),
        .deadline_ns = WEFT_NEVER,
        .user = user,
    };
    uint64_t seq;
    if (client->msgr.ops->expect(client->msgr.self, &expect, &clock->expect) != WEFT_OK) {
        return false;
    }
    if (client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)!client->msgr.ops->cancel(client->msgr.self, clock->expect);
        return false;
    }
    ps_via_begun(via, now_ns);
    via->flying++;
    via->sending++;
    clock->sending = true;
    clock->state = VIA_CLOCK_ASKED;
    clock->clock = number;
    clock->sent_ns = now_ns;
    clock->rpc_id = rpc_id;
    client->links[(size_t)table * client->config.shards + shard].clock_via = true;
    client->counters.via_clocks++;
    return true;
}
