/* The send queue of a shard.
 *
 * Parts of one link are sent in the order in which they were queued. A BSP push of clock c + 1 may
 * be sent when the shard has begun that clock, which every reply reports. Without an outstanding
 * request the client sends an empty pull, the clock probe, to learn it. A pull names a push that
 * must be closed before it. It can name only one, so with more pushes in flight the pull waits
 * here. */
#include "ps/client_internal.h"

#include "base/assert.h"

void weft_ps_part_queue(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    struct ps_shard_end *end = &client->ends[part->shard];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    if (part->kind == WEFT_RPC_PUSH) {
        part->number = ++link->number;
        weft_ps_push_opened(client, part);
    }
    ps_part_to(part, PART_QUEUED);
    part->answer = ANSWER_NONE;
    part->request_closed = false;
    part->counted = part->begun = false;
    part->route = ROUTE_OPEN;
    part->on_apply = false;
    part->via_sending = part->via_answering = part->via_pull = part->failing = false;
    part->born = ps_part_resumes(part) ? 0 : ++client->born;
    if (end->down || link->gone) {
        weft_ps_part_fail(client, index, WEFT_PEER);
        return;
    }
    if (client->updates != NULL && part->kind == WEFT_RPC_PUSH) {
        weft_ps_update_join(client, part);
    }
    weft_ps_part_enqueue(client, index);
}

void weft_ps_part_enqueue(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    struct ps_shard_end *end = &client->ends[part->shard];
    uint32_t before = end->queue_tail;
    if (before != WEFT_PS_NONE && client->parts[before].born > part->born) {
        before = WEFT_PS_NONE;
        for (uint32_t i = end->queue_head; client->parts[i].born < part->born;
             i = client->parts[i].next) {
            before = i;
        }
    }
    uint32_t *place = before == WEFT_PS_NONE ? &end->queue_head : &client->parts[before].next;
    part->next = *place;
    *place = index;
    end->queue_tail = part->next == WEFT_PS_NONE ? index : end->queue_tail;
}

void weft_ps_push_opened(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    link->pushes_open[part->clock & 1] += part->clock <= link->clock_closed + 2;
}

/* A BSP push is too early: send one clock probe, to which the shard replies when the clock has
 * begun. */
static void clock_probe_send(struct weft_ps_client *client, const struct ps_part *push)
{
    uint32_t index = client->clock_probes_first + push->table * client->config.shards + push->shard;
    struct ps_part *probe = &client->parts[index];
    if (probe->state == PART_QUEUED || probe->state == PART_FLYING) {
        return;
    }
    probe->clock = push->clock - 1;
    client->counters.clock_probes++;
    weft_ps_part_queue(client, index);
}

/* Pulls may wait at the server for this worker's own CLOCK. They must not use all unacknowledged
 * messages that the transport allows; otherwise that CLOCK and the pushes before it could not be
 * sent. */
enum { PULLS_OPEN_MAX = WEFT_MSGS_MAX / 2 };

/* Pulls of the next clock wait at the server in this worker's pull slots, four by default. They
 * must leave slots for pulls of this clock, and are not sent if no slot is free. */
enum { PULLS_AHEAD_MAX = 2, PULLS_ASKED_MAX = 4 };

bool weft_ps_pull_is_ahead(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->list.ahead > 0 &&
           (part->clock > client->tables[part->table].clock ||
            weft_ps_first_push_clock(client, part->table, part->shard) <= part->clock);
}

void weft_ps_pulls_in_time(struct weft_ps_client *client, uint16_t table)
{
    for (uint32_t i = 0; i < client->clock_probes_first; i++) {
        struct ps_part *part = &client->parts[i];
        if (part->state == PART_FLYING && part->is_ahead && part->table == table) {
            part->is_ahead = false;
            client->ends[part->shard].pulls_ahead--;
        }
    }
}

void weft_ps_part_withdraw(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    struct ps_shard_end *end = &client->ends[part->shard];
    uint32_t before = WEFT_PS_NONE;
    WEFT_ASSERT(part->state == PART_QUEUED && part->kind == WEFT_RPC_PULL);
    for (uint32_t i = end->queue_head; i != index; i = client->parts[i].next) {
        before = i;
    }
    *(before == WEFT_PS_NONE ? &end->queue_head : &client->parts[before].next) = part->next;
    end->queue_tail = end->queue_tail == index ? before : end->queue_tail;
    if (part->answer == ANSWER_POSTED) {
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    weft_ps_part_done(client, part);
}

uint32_t weft_ps_pushes_before(const struct weft_ps_client *client, const struct ps_part *part,
                               const struct ps_link *link, uint32_t *rpc_ids_p)
{
    uint32_t count = 0;
    *rpc_ids_p = link->flying_xor;
    if (part->route != ROUTE_DIRECT) {
        return link->pushes_flying;
    }
    *rpc_ids_p = 0;
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *push = &client->parts[i];
        if (push->in_air && push->kind == WEFT_RPC_PUSH && push->table == part->table &&
            push->shard == part->shard && push->born < part->born) {
            *rpc_ids_p ^= push->rpc_id;
            count++;
        }
    }
    return count + weft_ps_applied_before(client, part);
}

static bool part_may_go(struct weft_ps_client *client, const struct ps_part *part,
                        const struct ps_link *link)
{
    uint32_t rpc_ids;
    if (part->kind == WEFT_RPC_PULL && client->ends[part->shard].pulls_open >= PULLS_OPEN_MAX) {
        return false;
    }
    if (ps_via_holds(part)) {
        return false; /* the transport to an aggregator still owns its memory */
    }
    if (link->resuming && !ps_part_resumes(part)) {
        return false;
    }
    bool is_push = part->kind == WEFT_RPC_PUSH;
    if (is_push && part->update != 0 && !weft_ps_update_may_go(client, part)) {
        return false;
    }
    if ((part->op == WEFT_PS_NONE && !is_push) || part->kind == WEFT_RPC_TABLE) {
        return true;
    }
    const struct ps_shard_end *end = &client->ends[part->shard];
    /* Other parts wait for a push whose list was sent, as for a push that was begun. */
    if (part->begun ||
        (end->list_part == ps_part_index(client, part) && part->list_step != LIST_BEFORE)) {
        return weft_ps_listed_may_go(client, part);
    }
    if (link->blocked_round == client->round ||
        (is_push && (end->begun_open > 0 || end->resuming > 0))) {
        return false;
    }
    uint8_t mode = client->tables[part->table].spec.mode;
    if (part->kind == WEFT_RPC_PULL && weft_ps_pull_is_ahead(client, part)) {
        return end->pulls_ahead < PULLS_AHEAD_MAX && end->pulls_asked < PULLS_ASKED_MAX;
    }
    if (part->kind == WEFT_RPC_PULL) {
        /* An aggregator does not know which of its pushes are open. */
        const bool waits_here = weft_ps_via_takes_pull(client, part) ||
                                weft_ps_applied_holds(client, part->table, part->shard);
        bool in_turn = mode == WEFT_TABLE_BSP ||
                       weft_ps_pushes_before(client, part, link, &rpc_ids) <= (waits_here ? 0 : 1);
        return in_turn && weft_ps_read_may_go(client, part);
    }
    if (part->number > link->number_closed + WEFT_PUSH_WINDOW_SPAN ||
        part->clock > link->clock_closed + 2) {
        return false;
    }
    if (mode == WEFT_TABLE_BSP && link->clock_known + 1 < part->clock) {
        clock_probe_send(client, part);
        return false;
    }
    return weft_ps_listed_may_go(client, part);
}

/* True: a push that waits for its grant. Later pulls need not wait for it: in BSP they see none of
 * it before the end of its clock. */
static bool waits_for_grant(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->kind == WEFT_RPC_PUSH && part->update != 0 &&
           client->tables[part->table].spec.mode == WEFT_TABLE_BSP &&
           !weft_ps_update_may_go(client, part);
}

/* True: a pull waits for a push whose update waits for the end of its clock. */
static bool ends_update(const struct weft_ps_client *client, const struct ps_part *part,
                        const struct ps_link *link)
{
    return client->updates != NULL && part->kind == WEFT_RPC_PULL && part->op != WEFT_PS_NONE &&
           link->blocked_round == client->round && !weft_ps_pull_is_ahead(client, part);
}

void weft_ps_shard_send(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns)
{
    struct ps_shard_end *end = &client->ends[shard];
    uint32_t before = WEFT_PS_NONE, index = end->queue_head;
    while (index != WEFT_PS_NONE) {
        struct ps_part *part = &client->parts[index];
        struct ps_link *link = ps_link_of(client, part->table, shard);
        if (!part_may_go(client, part, link)) {
            if (ends_update(client, part, link)) {
                (void)weft_ps_update_waited_for(client, part->table);
            }
            bool passes = weft_ps_pull_is_ahead(client, part) || waits_for_grant(client, part) ||
                          weft_ps_read_holds(client, part);
            link->blocked_round = passes ? link->blocked_round : client->round;
            before = index;
            index = part->next;
            continue;
        }
        bool by_list = part->listed && !ps_part_head_only(part);
        weft_status status = by_list ? weft_ps_listed_send(client, part, now_ns)
                                     : weft_ps_part_send(client, part, now_ns);
        if (status == WEFT_PEER && client->config.reconnect_ns > 0) {
            return; /* PEER_DOWN follows */
        }
        if (status == WEFT_AGAIN) {
            client->counters.deferred++;
            return;
        }
        uint32_t next = part->next;
        if (before == WEFT_PS_NONE) {
            end->queue_head = next;
        } else {
            client->parts[before].next = next;
        }
        end->queue_tail = next == WEFT_PS_NONE ? before : end->queue_tail;
        if (status != WEFT_OK) {
            weft_ps_part_fail(client, index, status == WEFT_INVALID ? WEFT_UNSUPPORTED : WEFT_PEER);
        }
        index = next;
    }
}
