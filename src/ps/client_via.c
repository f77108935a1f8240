/* Pushes and pulls through an aggregator (ps/aggregator.h).
 *
 * A push is sent to the aggregator of its shard, if one is connected and the push can be summed. It
 * stays open until the aggregator replies that the shard has committed it; only then is it closed,
 * and the following CLOCK may be sent. Otherwise it is sent directly to the shard, under its
 * number: after any other reply, when the aggregator disconnects or times out, or when the
 * connection to the shard breaks. The shard applies it once, whichever path it takes.
 *
 * The transport to the aggregator may still own the memory of a push that must be sent directly, or
 * is done. It owns the memory until SENT: the push waits in its queue for that, and the operation
 * is not done before. To shorten this, the connection is closed, and reopened after a pause.
 *
 * A pull is sent there, too, unless the aggregator already has its maximum number of this worker's
 * pulls. In that case, when it is resent, and after a reply other than OK, it is sent to the shard.
 * It contains the maximum age of its rows: the age of this worker's last push to the table and the
 * shard, so that it sees that push. While a push is in flight, pulls wait, as they would at the
 * shard; not in BSP, where they see no push of the clock in progress. The worker sends the
 * incarnation of its shard to the aggregator, and again when it changes.
 *
 * Clocks are in client_via_clock.c.
 *
 * A large push needs seconds to be sent, to wait for the other pushes of its sum, and for the sum
 * to be sent to the shard. An aggregator without replies is therefore asked for a table again, a
 * probe, which it answers at once. It is closed if it answers nothing, or no request for much
 * longer than requests took before.
 *
 * Never sent to an aggregator: pushes with a deadline, with a list, resent, or of a head only;
 * pulls with a deadline, or without rows.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates".
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "ps/client_via_state.h"

#include <stdlib.h>

/* An aggregator replies after its shard has, which depends on the network and on the other members
 * of a sum. So it has at least the first multiple of its recent reply time, and the second of the
 * time in which a push was sent to it: the others send as much, and then the aggregator does. Of
 * that time it has two more than members of a sum: it waits for the members one after the other,
 * and once more for one that is missing (flush_at in aggregator_group.c). */
enum { ANSWER_TIMES = 4, UPLOAD_TIMES = 8 };

/* Probes within via_timeout_ns. */
enum { PROBES = 3 };

/* Least time for COMMITTED. Closing the aggregator may lose pushes that it acknowledged on apply,
 * so a slow shard is no reason to; an aggregator that is dead or frozen answers no probe. */
static const uint64_t commit_patience_ns = 60 * WEFT_NS_PER_S;

static const uint64_t retry_pause_ns = WEFT_NS_PER_S;

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_ps_via_init(struct weft_ps_client *client)
{
    if (client->config.via_timeout_ns == 0) {
        return WEFT_OK;
    }
    client->via_total = weft_ps_vias(&client->config);
    client->vias = calloc(client->via_total, sizeof(*client->vias));
    struct ps_via_link *links =
        calloc((size_t)client->via_total * client->config.tables_max, sizeof(*links));
    if (client->vias == NULL || links == NULL ||
        weft_ps_applied_init(client) != WEFT_OK) {
        free(links);
        return WEFT_NOMEM;
    }
    for (uint32_t v = 0; v < client->via_total; v++) {
        client->vias[v].shard = v % client->config.shards;
        client->vias[v].links = links + (size_t)v * client->config.tables_max;
    }
    return WEFT_OK;
}

void weft_ps_via_fini(struct weft_ps_client *client)
{
    if (client->vias != NULL) {
        free(client->vias[0].links);
    }
    free(client->vias);
    weft_ps_applied_fini(client);
}

/* ---- the connection -------------------------------------------------------------------------- */

bool weft_ps_client_wants_via(const struct weft_ps_client *client, uint32_t via,
                              uint64_t *retry_ns_p)
{
    if (client->vias == NULL || client->vias[via].given ||
        client->ends[client->vias[via].shard].down) {
        return false;
    }
    *retry_ns_p = client->vias[via].retry_ns;
    return true;
}

void weft_ps_client_via(struct weft_ps_client *client, uint32_t index, weft_peer peer)
{
    struct ps_via *via = &client->vias[index];
    WEFT_ASSERT(!via->given);
    via->given = true;
    via->peer = peer;
}

void weft_ps_client_via_failed(struct weft_ps_client *client, uint32_t via, uint64_t now_ns)
{
    client->vias[via].retry_ns = weft_time_add(now_ns, retry_pause_ns);
}

bool weft_ps_client_take_via_close(struct weft_ps_client *client, weft_peer *peer_p)
{
    for (uint32_t v = 0; v < client->via_total; v++) {
        struct ps_via *via = &client->vias[v];
        if (via->close && via->given) {
            via->close = false;
            *peer_p = via->peer;
            return true;
        }
    }
    for (uint32_t s = 0; client->vias != NULL && s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        if (end->park_close) {
            end->park_close = false;
            *peer_p = end->peer;
            return true;
        }
    }
    return false;
}

/* Send the part to its shard. The transport may still own its memory. */
static void go_direct(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    WEFT_ASSERT(part->state == PART_FLYING && ps_part_is_via(part));
    weft_ps_via_leave(client, part, ROUTE_DIRECT);
    if (part->answer == ANSWER_POSTED) {
        /* NOTFOUND: the transport has dropped it with the peer. */
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    part->answer = ANSWER_NONE;
    part->resent = true;
    ps_part_to(part, PART_QUEUED);
    client->counters.via_direct += part->kind == WEFT_RPC_PUSH;
    client->counters.via_pulls_direct += part->kind == WEFT_RPC_PULL;
    weft_ps_part_enqueue(client, index);
}

static void via_down(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    struct ps_via *via = &client->vias[index];
    via->given = via->up = via->close = false;
    via->retry_ns = weft_time_add(now_ns, retry_pause_ns);
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        struct ps_via_link *link = &via->links[t];
        if (link->expected) {
            (void)!client->msgr.ops->cancel(client->msgr.self, link->expect);
        }
        link->expected = link->applies = false;
        link->state = VIA_LINK_NONE;
        weft_ps_via_clock_down(client, index, (uint16_t)t);
    }
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->via_answering && part->via_index == index) {
            weft_ps_via_answer_over(client, i); /* its expectation ended with the peer */
        } else if (part->state == PART_FLYING && ps_part_is_via(part) && part->via_index == index &&
                   part->answer != ANSWER_CLOSED) {
            go_direct(client, i);
        }
    }
    weft_ps_applied_down(client, index);
}

bool weft_ps_via_peer(struct weft_ps_client *client, const struct weft_msg_event *event,
                      uint64_t now_ns)
{
    for (uint32_t v = 0; v < client->via_total; v++) {
        struct ps_via *via = &client->vias[v];
        if (!via->given || via->peer != event->peer) {
            continue;
        }
        if (event->type == WEFT_EVENT_PEER_DOWN) {
            client->counters.via_downs += via->up;
            via_down(client, v, now_ns);
        } else {
            if (event->incarnation != via->incarnation) {
                via->answer_ns = via->upload_ns = 0;
            }
            via->incarnation = event->incarnation;
            via->up =
                event->name == weft_rpc_aggregator_name(via->shard, (uint32_t)event->name & 0xff);
            via->close = !via->up;
        }
        return true;
    }
    return false;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool table_good(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    const struct ps_link *link = &client->links[(size_t)table * client->config.shards + shard];
    return client->tables[table].state == TABLE_OPEN && link->opened && !link->gone &&
           (link->can & WEFT_RPC_CAN_AGGREGATE) != 0 &&
           weft_aggregate_takes(&client->tables[table].spec);
}

static void table_ask(struct weft_ps_client *client, uint32_t index, uint16_t table,
                      uint64_t now_ns)
{
    struct ps_via *via = &client->vias[index];
    struct ps_via_link *link = &via->links[table];
    const uint32_t shard = via->shard;
    const uint64_t user = WEFT_PS_USER | WEFT_PS_USER_VIA | (table * client->via_total + index);
    const uint32_t rpc_id = weft_ps_rpc_id(client, shard);
    const uint32_t on_apply =
        weft_ps_applied_allowed(client, table, shard) ? WEFT_RPC_CAN_ON_APPLY : 0;
    const struct weft_msg_expect expect = {
        .peer = via->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_TABLE | WEFT_RPC_REPLY_FLAG, .table = table, .number = rpc_id}),
        .tag_mask = UINT64_MAX,
        .memory = link->reply,
        .memory_bytes = sizeof(link->reply),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = user,
    };
    const struct weft_rpc_request request = {.rpc_id = rpc_id,
                                             .worker = client->config.worker,
                                             .t0_ns = ps_clock_ns(client),
                                             .need_clock = WEFT_RPC_CAN_AGGREGATE | on_apply};
    weft_rpc_request_pack(&request, link->request);
    weft_table_spec_pack(&client->tables[table].spec, link->request + WEFT_RPC_REQUEST_BYTES);
    weft_aggregate_shard_pack(client->ends[shard].incarnation,
                              link->request + WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES);
    const struct weft_msg_send send = {
        .peer = via->peer,
        .base = link->request,
        .total = sizeof(link->request),
        .elem_bytes = 1,
        .priority = WEFT_RPC_PRIORITY_CLOCK, /* a probe does not wait for credit behind pushes */
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_RPC_TABLE, .table = table}),
        .deadline_ns = WEFT_NEVER,
        .user = user,
    };
    uint64_t seq;
    if (client->msgr.ops->expect(client->msgr.self, &expect, &link->expect) != WEFT_OK) {
        return;
    }
    if (client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)!client->msgr.ops->cancel(client->msgr.self, link->expect);
        return; /* retried by the next progress, or PEER_DOWN follows */
    }
    link->rpc_id = rpc_id;
    link->incarnation = client->ends[shard].incarnation;
    link->sending = link->expected = true;
    link->state = VIA_LINK_ASKED;
}

void weft_ps_via_heard(struct weft_ps_client *client, struct ps_via *via)
{
    const uint64_t now_ns = ps_clock_ns(client);
    via->answer_ns = weft_max_u64(via->answer_ns - via->answer_ns / 8,
                                  now_ns - weft_min_u64(via->replied_ns, now_ns));
    via->heard_ns = via->replied_ns = now_ns;
}

void weft_ps_via_table_event(struct weft_ps_client *client, const struct weft_msg_event *event)
{
    const uint32_t index = (uint32_t)event->user;
    const uint32_t tables_end = client->config.tables_max * client->via_total;
    if (index >= tables_end) {
        weft_ps_via_clock_event(client, (index - tables_end) % client->via_total,
                                (uint16_t)((index - tables_end) / client->via_total), event);
        return;
    }
    struct ps_via *via = &client->vias[index % client->via_total];
    struct ps_via_link *link = &via->links[index / client->via_total];
    struct weft_rpc_reply reply;
    if (event->type == WEFT_EVENT_SENT) {
        link->sending = false;
    } else if (event->type == WEFT_EVENT_RECEIVED && link->expected) {
        via->heard_ns = ps_clock_ns(client);
        if (link->state != VIA_LINK_ASKED) {
            link->expected = false; /* the reply to a probe */
            return;
        }
        bool good = event->outcome == WEFT_MSG_COMPLETE &&
                    weft_rpc_reply_unpack(link->reply, sizeof(link->reply), &reply) == WEFT_OK &&
                    reply.rpc_id == link->rpc_id && reply.status == WEFT_RPC_OK;
        link->expected = false;
        link->state = good ? VIA_LINK_OPEN : VIA_LINK_REFUSED;
        link->pulls = good ? reply.rows : 0;
        link->takes_clocks = good && (reply.can & WEFT_AGGREGATE_CAN_CLOCK) != 0;
        /* Pushes that a scheduler assigns to sums are acknowledged on commit. */
        link->applies =
            good && client->updates == NULL && (reply.can & WEFT_RPC_CAN_ON_APPLY) != 0;
    }
}

/* A link on which a probe can be sent, or NULL. */
static struct ps_via_link *probe_link(const struct weft_ps_client *client, const struct ps_via *via)
{
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        struct ps_via_link *link = &via->links[t];
        if (link->state == VIA_LINK_OPEN && !link->sending && !link->expected) {
            return link;
        }
    }
    return NULL;
}

static uint64_t probe_at(const struct weft_ps_client *client, const struct ps_via *via)
{
    const uint64_t gap_ns = client->config.via_timeout_ns / PROBES;
    return !via->up || probe_link(client, via) == NULL
               ? WEFT_NEVER
               : weft_max_u64(weft_time_add(via->heard_ns, gap_ns), via->probe_ns);
}

/* When it is closed unless a reply comes. */
static uint64_t silent_at(const struct weft_ps_client *client, const struct ps_via *via)
{
    const uint64_t silent_ns = weft_time_add(via->heard_ns, client->config.via_timeout_ns);
    if (via->sending > 0) {
        return silent_ns;
    }
    uint64_t patience_ns = weft_max_u64(
        client->config.via_timeout_ns,
        weft_max_u64(ANSWER_TIMES * via->answer_ns,
                     weft_max_u64(UPLOAD_TIMES, via->members + 2) * via->upload_ns));
    if (via->applied > 0) {
        patience_ns = weft_max_u64(patience_ns, commit_patience_ns);
    }
    return weft_min_u64(silent_ns, weft_time_add(via->replied_ns, patience_ns));
}

static void probe(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    struct ps_via *via = &client->vias[index];
    struct ps_via_link *link = probe_link(client, via);
    via->probe_ns = weft_time_add(now_ns, client->config.via_timeout_ns / PROBES);
    table_ask(client, index, (uint16_t)(link - via->links), now_ns);
    link->state = VIA_LINK_OPEN;
}

void weft_ps_via_progress(struct weft_ps_client *client, uint64_t now_ns)
{
    for (uint32_t v = 0; v < client->via_total; v++) {
        struct ps_via *via = &client->vias[v];
        const uint32_t s = via->shard;
        if (via->up) {
            weft_ps_applied_expect(client, v);
        }
        for (uint32_t t = 0; via->up && t < client->config.tables_max; t++) {
            struct ps_via_link *link = &via->links[t];
            if (link->state == VIA_LINK_OPEN && link->incarnation != client->ends[s].incarnation) {
                link->state = VIA_LINK_NONE;
            }
            if (link->state == VIA_LINK_NONE && !link->sending && !link->expected &&
                table_good(client, (uint16_t)t, s) &&
                !ps_link_of(client, (uint16_t)t, s)->resuming) { /* else `can` is out of date */
                table_ask(client, v, (uint16_t)t, now_ns);
            }
        }
        if (via->flying + via->sending > 0 && now_ns >= silent_at(client, via)) {
            via->close = true; /* PEER_DOWN follows */
        } else if (via->flying + via->sending > 0 && now_ns >= probe_at(client, via)) {
            probe(client, v, now_ns);
        }
    }
    weft_ps_applied_progress(client);
}

uint64_t weft_ps_via_deadline(const struct weft_ps_client *client)
{
    uint64_t first_ns = WEFT_NEVER;
    for (uint32_t v = 0; v < client->via_total; v++) {
        const struct ps_via *via = &client->vias[v];
        if (via->flying + via->sending > 0 && !via->close) {
            first_ns = weft_min_u64(first_ns, silent_at(client, via));
            first_ns = weft_min_u64(first_ns, probe_at(client, via));
        }
    }
    return first_ns;
}

/* ---- pushes and pulls ------------------------------------------------------------------------ */

static bool is_open(const struct weft_ps_client *client, uint16_t table, uint32_t index)
{
    const struct ps_via *via = &client->vias[index];
    const uint32_t shard = via->shard;
    const struct ps_shard_end *end = &client->ends[shard];
    return via->up && !via->close && via->links[table].state == VIA_LINK_OPEN &&
           !end->fence_due && !end->fencing && table_good(client, table, shard);
}

/* Without a scheduler: the first aggregator of the shard; with one: the granted aggregator. */
bool weft_ps_via_open(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    return client->vias != NULL && client->updates == NULL && is_open(client, table, shard);
}

bool weft_ps_via_has_all(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    if (!weft_ps_via_open(client, table, shard)) {
        return false;
    }
    const struct ps_via_link *link = &client->vias[shard].links[table];
    return link->takes_clocks && link->pulls > 0;
}

bool weft_ps_via_has_pulls(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    return weft_ps_via_open(client, table, shard) && client->vias[shard].links[table].pulls > 0;
}

uint32_t weft_ps_client_vias_open(const struct weft_ps_client *client)
{
    const uint32_t shards = client->config.shards;
    uint32_t open = 0;
    if (weft_ps_updates_too_long(client)) {
        return 0;
    }
    for (uint32_t a = 0; a * shards < client->via_total; a++) {
        bool any = false, all = true;
        for (uint32_t t = 0; t < client->config.tables_max; t++) {
            for (uint32_t s = 0; client->tables[t].state == TABLE_OPEN && s < shards; s++) {
                any = true;
                all &= is_open(client, (uint16_t)t, a * shards + s);
            }
        }
        open |= (uint32_t)(any && all) << a;
    }
    return open;
}

bool weft_ps_via_any(const struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    for (uint32_t v = shard; v < client->via_total; v += client->config.shards) {
        if (is_open(client, table, v)) {
            return true;
        }
    }
    return false;
}

uint32_t weft_ps_via_index(const struct weft_ps_client *client, const struct ps_part *part)
{
    const uint32_t hop = part->update != 0 ? weft_ps_update_hop(client, part) : 0;
    return (hop > 0 ? hop - 1 : 0) * client->config.shards + part->shard;
}

bool weft_ps_via_takes_pull(const struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->kind != WEFT_RPC_PULL || part->route == ROUTE_DIRECT || part->is_cold ||
        part->answer == ANSWER_POSTED || part->resent || part->cut || part->op == WEFT_PS_NONE ||
        part->rows == 0 || client->ops[part->op].deadline_ns != WEFT_NEVER ||
        !weft_ps_via_open(client, part->table, part->shard)) {
        return false;
    }
    const struct ps_via *via = &client->vias[part->shard];
    const struct ps_via_link *link = &via->links[part->table];
    /* Pulls of the next clock wait there, and leave some slots to those of this clock. */
    const bool ahead = part->clock > client->tables[part->table].clock;
    const uint32_t most = ahead ? (link->pulls + 1) / 2 : link->pulls;
    return via->pulls < most && link->incarnation != 0 &&
           link->incarnation == client->ends[part->shard].incarnation;
}

uint32_t weft_ps_via_age(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_link *link =
        &client->links[(size_t)part->table * client->config.shards + part->shard];
    const uint64_t now_ns = ps_clock_ns(client);
    if (client->tables[part->table].spec.mode == WEFT_TABLE_BSP || link->pushed_ns == 0) {
        return UINT32_MAX;
    }
    uint64_t age_ns = now_ns > link->pushed_ns ? now_ns - link->pushed_ns : 0;
    age_ns -= age_ns / 1024; /* the aggregator's clock may be slower */
    return (uint32_t)weft_min_u64(age_ns / WEFT_NS_PER_US, UINT32_MAX - 1);
}

bool weft_ps_via_too_long(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->rows > weft_aggregate_rows_max(client->tables[part->table].spec.dim);
}

/* A new session would void its sum. */
static bool waits_for_session(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_shard_end *end = &client->ends[part->shard];
    return end->park != PARK_NONE && end->wants_connection &&
           client->vias[weft_ps_via_index(client, part)].links[part->table].applies;
}

bool weft_ps_via_takes(const struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->kind == WEFT_RPC_PULL) {
        return weft_ps_via_takes_pull(client, part);
    }
    return part->kind == WEFT_RPC_PUSH && part->route != ROUTE_DIRECT && !part->is_cold &&
           !weft_ps_via_too_long(client, part) && part->answer != ANSWER_POSTED &&
           !part->resent && !part->listed && !ps_part_head_only(part) && !part->begun &&
           part->op != WEFT_PS_NONE &&
           client->ops[part->op].deadline_ns == WEFT_NEVER && client->vias != NULL &&
           (client->updates == NULL || weft_ps_update_hop(client, part) > 0) &&
           is_open(client, part->table, weft_ps_via_index(client, part)) &&
           !waits_for_session(client, part);
}

weft_peer weft_ps_via_peer_of(const struct weft_ps_client *client, const struct ps_part *part)
{
    return client->vias[part->via_index].peer;
}

void weft_ps_via_went(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_via *via = &client->vias[part->via_index];
    ps_via_begun(via, now_ns);
    via->flying++;
    via->sending++;
    via->pulls += part->via_pull;
    const uint32_t sum = part->kind == WEFT_RPC_PUSH ? weft_ps_update_sum(client, part) : 0;
    if (sum > 0) {
        via->members = (uint32_t)weft_max_u64(via->members, weft_aggregate_sum_members(sum));
    }
    client->applied_asked += part->on_apply;
    part->via_sending = true;
    part->via_sent_ns = now_ns;
    client->counters.via_pushes += part->kind == WEFT_RPC_PUSH;
    client->counters.via_pulls += part->via_pull;
}

void weft_ps_via_leave(struct weft_ps_client *client, struct ps_part *part, enum ps_part_route to)
{
    client->vias[part->via_index].flying--;
    client->vias[part->via_index].pulls -= part->via_pull;
    client->applied_asked -= part->on_apply;
    part->on_apply = false;
    ps_part_route_to(part, to);
}

void weft_ps_via_recall(struct weft_ps_client *client, struct ps_part *part)
{
    weft_ps_via_leave(client, part, ROUTE_DIRECT);
    part->via_answering =
        part->answer == ANSWER_POSTED &&
        client->msgr.ops->cancel(client->msgr.self, part->expect) == WEFT_NOTFOUND;
    part->answer = part->answer == ANSWER_POSTED ? ANSWER_NONE : part->answer;
    client->vias[part->via_index].close = true; /* otherwise the aggregator would keep an answer
                                                 * that is never received */
}

/* The transport has returned its memory. */
static void settle(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    if (part->failing && !ps_via_holds(part)) {
        part->failing = false;
        weft_ps_part_fail(client, index, WEFT_PEER);
    }
}

void weft_ps_via_answer_over(struct weft_ps_client *client, uint32_t index)
{
    client->parts[index].via_answering = false;
    settle(client, index);
}

void weft_ps_via_close(struct weft_ps_client *client, const struct ps_part *part)
{
    client->vias[part->via_index].close = true;
}

void weft_ps_via_sent(struct weft_ps_client *client, uint32_t index,
                      const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    part->via_sending = false;
    struct ps_via *via = &client->vias[part->via_index];
    via->sending--;
    if (event->outcome != WEFT_MSG_UNKNOWN) { /* the aggregator has received it, so it is alive */
        const uint64_t now_ns = ps_clock_ns(client);
        via->heard_ns = via->replied_ns = now_ns;
        if (part->kind == WEFT_RPC_PUSH && event->begun_ns != 0) {
            via->upload_ns = weft_max_u64(via->upload_ns - via->upload_ns / 8,
                                          now_ns - weft_min_u64(event->begun_ns, now_ns));
        }
        weft_ps_update_at_hop(client, part);
    }
    if (part->failing) {
        settle(client, index);
        return;
    }
    if (part->kind == WEFT_RPC_PUSH &&
        (event->outcome != WEFT_MSG_UNKNOWN || part->answer == ANSWER_CLOSED)) {
        weft_ps_push_count(client, part, event);
    }
    if (part->state == PART_FLYING && part->answer == ANSWER_CLOSED) {
        weft_ps_part_done(client, part);
    }
}

void weft_ps_via_answered(struct weft_ps_client *client, uint32_t index, bool committed)
{
    struct ps_part *part = &client->parts[index];
    struct ps_via *via = &client->vias[part->via_index];
    weft_ps_via_heard(client, via);
    if (!committed) {
        go_direct(client, index);
        return;
    }
    weft_ps_via_leave(client, part, ROUTE_OPEN);
    if (part->kind == WEFT_RPC_PUSH) {
        client->counters.via_committed++;
        ps_vouched(&client->ends[part->shard], part->via_sent_ns);
        weft_ps_push_closed(client, part);
    } else {
        client->counters.via_answered++;
    }
    part->request_closed = true;
    if (!part->via_sending) {
        weft_ps_part_done(client, part);
    }
}

void weft_ps_via_applied(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    if (part->second == SECOND_COMMITTED) {
        weft_ps_via_answered(client, index, true);
        return;
    }
    weft_ps_via_heard(client, &client->vias[part->via_index]);
    weft_ps_via_leave(client, part, ROUTE_OPEN);
    weft_ps_applied_add(client, part);
    part->request_closed = true;
    if (!part->via_sending) {
        weft_ps_part_done(client, part);
    }
}
