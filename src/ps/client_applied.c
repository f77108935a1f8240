/* Pushes that an aggregator has acknowledged on apply, until their shard has committed them.
 *
 * The operation of such a push is done, and its memory is free. A record of it remains: for pulls
 * and clocks the push still counts as in flight, so a CLOCK follows the commits of its pushes, and
 * a pull sees them. COMMITTED from the aggregator ends the record.
 *
 * If COMMITTED reports that the push is lost, or the aggregator disconnects, the push may still be
 * in a sum on its way to the shard. Only the shard knows, and only after sums that arrive later are
 * refused. The client therefore resumes all tables of the shard, with a new session, as after a
 * broken connection, but on the connection that it has; if it is parked, it is reopened. The reply
 * to RESUME contains the pushes that the shard has. The others are lost and counted, as after a
 * restart of the shard (client_resume.c). Until then no push and no CLOCK is sent to the shard.
 *
 * A new session also voids the sums in which other pushes of this worker are, so the connection to
 * the aggregator is closed, too.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates".
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "ps/client_via_state.h"

#include <stdlib.h>

enum { APPLIED_MAX = 256 };

struct ps_applied {
    uint16_t table;
    uint32_t shard;
    uint32_t rpc_id;
    uint32_t clock;
    uint64_t number;
    uint64_t born;
    uint64_t sent_ns;
};

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_ps_applied_init(struct weft_ps_client *client)
{
    client->applied = calloc(APPLIED_MAX, sizeof(*client->applied));
    return client->applied != NULL ? WEFT_OK : WEFT_NOMEM;
}

void weft_ps_applied_fini(struct weft_ps_client *client)
{
    free(client->applied);
}

uint32_t weft_ps_client_applied(const struct weft_ps_client *client)
{
    return client->applied_count;
}

/* ---- the connection to the aggregator -------------------------------------------------------- */

bool weft_ps_applied_allowed(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    const struct ps_link *link = &client->links[(size_t)table * client->config.shards + shard];
    return (link->can & WEFT_RPC_CAN_ON_APPLY) != 0 && !ps_log_on(client);
}

void weft_ps_applied_expect(struct weft_ps_client *client, uint32_t index)
{
    struct ps_via *via = &client->vias[index];
    const struct weft_msg_expect expect = {
        .peer = via->peer,
        .sink = WEFT_SINK_EVENT,
        .tag = (uint64_t)(WEFT_RPC_COMMITTED | WEFT_RPC_REPLY_FLAG) << 56,
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory_bytes = WEFT_RPC_REPLY_BYTES,
        .count = UINT32_MAX,
        .timeout_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | WEFT_PS_USER_APPLIED | index,
    };
    if (!via->commits_expected) {
        via->commits_expected =
            client->msgr.ops->expect(client->msgr.self, &expect, &via->commits_expect) == WEFT_OK;
    }
}

bool weft_ps_applied_takes(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_via *via = &client->vias[part->via_index];
    return part->kind == WEFT_RPC_PUSH && via->links[part->table].applies &&
           via->commits_expected &&
           client->applied_count + client->applied_asked < APPLIED_MAX;
}

bool weft_ps_applied_holds(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    return client->vias != NULL &&
           (client->vias[shard].links[table].applies ||
            client->links[(size_t)table * client->config.shards + shard].applied > 0);
}

bool weft_ps_applied_settled(const struct weft_ps_client *client, uint32_t shard)
{
    const struct ps_via *via = &client->vias[shard];
    for (uint32_t i = 0; client->applied_asked > 0 && i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->on_apply && part->shard == shard && part->state == PART_FLYING) {
            return false;
        }
    }
    return via->applied == 0;
}

/* ---- records --------------------------------------------------------------------------------- */

void weft_ps_applied_add(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    WEFT_ASSERT(client->applied_count < APPLIED_MAX && part->in_air);
    client->applied[client->applied_count++] = (struct ps_applied){
        .table = part->table,
        .shard = part->shard,
        .rpc_id = part->rpc_id,
        .clock = part->clock,
        .number = part->number,
        .born = part->born,
        .sent_ns = part->via_sent_ns,
    };
    part->in_air = false; /* the record is */
    link->applied++;
    client->vias[part->shard].flying++;
    client->vias[part->shard].applied++;
    client->counters.via_applied++;
}

/* The record no longer waits for COMMITTED. */
static void take_out(struct weft_ps_client *client, uint32_t i)
{
    const struct ps_applied *applied = &client->applied[i];
    struct ps_link *link = ps_link_of(client, applied->table, applied->shard);
    struct ps_via *via = &client->vias[applied->shard];
    if (via->applied > 0) { /* else its connection has ended */
        via->applied--;
        via->flying--;
    }
    link->applied--;
    client->applied[i] = client->applied[--client->applied_count];
}

uint32_t weft_ps_applied_before(const struct weft_ps_client *client, const struct ps_part *part)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < client->applied_count; i++) {
        const struct ps_applied *applied = &client->applied[i];
        count += applied->table == part->table && applied->shard == part->shard &&
                 applied->born < part->born;
    }
    return count;
}

static void committed(struct weft_ps_client *client, uint32_t i)
{
    const struct ps_applied applied = client->applied[i];
    struct ps_link *link = ps_link_of(client, applied.table, applied.shard);
    take_out(client, i);
    weft_ps_number_closed(client, link, applied.clock, applied.number);
    link->pushes_flying--;
    link->flying_xor ^= applied.rpc_id;
    client->counters.via_committed++;
    ps_vouched(&client->ends[applied.shard], applied.sent_ns);
}

/* The second reply has overtaken the first. */
static void committed_early(struct weft_ps_client *client, uint32_t index,
                            const struct weft_rpc_tag *tag, bool good)
{
    for (uint32_t i = 0; i < client->parts_total; i++) {
        struct ps_part *part = &client->parts[i];
        if (part->state == PART_FLYING && ps_part_is_via(part) && part->via_index == index &&
            part->kind == WEFT_RPC_PUSH && part->table == tag->table &&
            part->rpc_id == tag->number) {
            part->second = good ? SECOND_COMMITTED : SECOND_LOST;
        }
    }
}

void weft_ps_applied_event(struct weft_ps_client *client, const struct weft_msg_event *event)
{
    const uint32_t index = (uint32_t)event->user;
    struct weft_rpc_reply reply;
    struct weft_rpc_tag tag;
    if (event->type != WEFT_EVENT_CHUNK || index >= client->via_total) {
        return;
    }
    if (!weft_rpc_tag_unpack(event->tag, &tag) || event->total != 1 ||
        event->elem_bytes != WEFT_RPC_REPLY_BYTES ||
        weft_rpc_reply_unpack(event->data, WEFT_RPC_REPLY_BYTES, &reply) != WEFT_OK ||
        reply.rpc_id != tag.number) {
        client->counters.replies_malformed++;
        return;
    }
    struct ps_via *via = &client->vias[index];
    uint32_t i = 0;
    while (i < client->applied_count &&
           (client->applied[i].shard != via->shard || client->applied[i].table != tag.table ||
            client->applied[i].rpc_id != reply.rpc_id)) {
        i++;
    }
    weft_ps_via_heard(client, via);
    if (i == client->applied_count) {
        committed_early(client, index, &tag, reply.status == WEFT_RPC_OK);
    } else if (reply.status == WEFT_RPC_OK) {
        committed(client, i);
    } else {
        via->close = true; /* PEER_DOWN follows */
    }
}

/* ---- fences ---------------------------------------------------------------------------------- */

void weft_ps_applied_down(struct weft_ps_client *client, uint32_t index)
{
    struct ps_via *via = &client->vias[index];
    if (via->commits_expected) {
        (void)!client->msgr.ops->cancel(client->msgr.self, via->commits_expect);
        via->commits_expected = false;
    }
    client->ends[via->shard].fence_due |= via->applied > 0;
    via->flying -= via->applied;
    via->applied = 0;
}

void weft_ps_applied_away(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    end->fence_due = end->fencing = false;
    for (uint32_t i = client->applied_count; i-- > 0;) {
        if (client->applied[i].shard == shard) {
            client->vias[shard].close |= client->vias[shard].applied > 0;
            take_out(client, i);
        }
    }
}

bool weft_ps_applied_resumed(struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    struct ps_link *link = ps_link_of(client, table, shard);
    if (!end->fencing) {
        return false;
    }
    end->fencing = end->resuming > 0;
    for (uint32_t i = client->applied_count; i-- > 0;) {
        if (client->applied[i].shard == shard && client->applied[i].table == table) {
            link->pushes_flying--;
            link->flying_xor ^= client->applied[i].rpc_id;
            take_out(client, i);
        }
    }
    for (uint32_t i = 0; i < client->parts_total; i++) {
        struct ps_part *part = &client->parts[i];
        if (part->state == PART_QUEUED && part->kind == WEFT_RPC_PUSH && part->table == table &&
            part->shard == shard) {
            end->begun_open -= part->begun; /* counted again from the reply */
            part->begun = false;
        }
    }
    return true;
}

static void fence_begin(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        if (client->tables[t].state == TABLE_OPENING) {
            return; /* its TABLE has the old session */
        }
    }
    end->fence_due = false;
    end->fencing = true;
    end->session = end->session == UINT32_MAX ? 1 : end->session + 1;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        struct ps_link *link = ps_link_of(client, (uint16_t)t, shard);
        link->resuming = link->fence_due = link->opened && !link->gone;
        end->resuming += link->resuming;
    }
}

/* True: the shard has no open push and no CLOCK of this link, so its reply is up to date. A push
 * whose LIST is in flight will be sent, and counts as finished until it is queued. */
static bool is_quiet(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->state == PART_FLYING && part->kind == WEFT_RPC_PUSH && part->table == table &&
            part->shard == shard && (!part->request_closed || part->message == MESSAGE_LIST)) {
            return false;
        }
    }
    return !client->links[(size_t)table * client->config.shards + shard].clock_sending;
}

void weft_ps_applied_progress(struct weft_ps_client *client)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        if (end->down || end->away || (!end->fence_due && !end->fencing)) {
            continue;
        }
        end->wants_connection |= end->fence_due && end->park == PARK_PARKED;
        if (end->fence_due && end->park == PARK_NONE && end->resuming == 0) {
            fence_begin(client, s);
        }
        for (uint32_t t = 0; end->fencing && t < client->config.tables_max; t++) {
            struct ps_link *link = ps_link_of(client, (uint16_t)t, s);
            if (link->fence_due && is_quiet(client, (uint16_t)t, s)) {
                link->fence_due = false;
                weft_ps_resume_queue(client, (uint16_t)t, s);
            }
        }
    }
}
