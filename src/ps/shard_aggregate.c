/* Aggregates: pushes summed by an aggregator. Each is received completely, in a buffer of its own,
 * because its loss bound is 0. shard_aggregate_apply.c then checks and applies it; here are the
 * buffers, the connections of aggregators, and the replies.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates". */
#include "ps/shard_aggregate.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_shard_aggregates_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    struct weft_shard_aggregates *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        return WEFT_NOMEM;
    }
    shard->aggregates = all;
    all->slot_count = config->aggregators_max * WEFT_AGGREGATE_SLOTS;
    all->sessions = calloc((size_t)config->tables_max * config->workers_max, sizeof(uint32_t));
    all->updates = calloc((size_t)config->tables_max * config->workers_max, sizeof(bool));
    /* malloc, not calloc: each element is written before it is read, and clearing would touch all
     * pages. */
    all->ids = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*all->ids));
    all->hashes = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*all->hashes));
    all->rows = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(struct weft_table_row *));
    all->aggregators = calloc(config->aggregators_max, sizeof(*all->aggregators));
    all->slots = calloc(all->slot_count, sizeof(*all->slots));
    if (all->sessions == NULL || all->updates == NULL || all->ids == NULL || all->hashes == NULL ||
        all->rows == NULL || all->aggregators == NULL || all->slots == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < all->slot_count; i++) {
        all->slots[i].memory = malloc(WEFT_AGGREGATE_BYTES_MAX);
        if (all->slots[i].memory == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_shard_aggregates_fini(struct weft_shard *shard)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL) {
        return;
    }
    for (uint32_t i = 0; all->slots != NULL && i < all->slot_count; i++) {
        free(all->slots[i].memory);
    }
    free(all->sessions);
    free(all->updates);
    free(all->ids);
    free(all->hashes);
    free(all->rows);
    free(all->aggregators);
    free(all->slots);
    free(all);
    shard->aggregates = NULL;
}

/* The members of an accepted message are alive and active: renew their leases. */
static void vouch(struct weft_shard *shard, const struct weft_aggregate_view *view, uint64_t at_ns,
                  uint64_t now_ns)
{
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        shard->workers[member.rank].vouched_ns = now_ns;
        weft_shard_record_member(shard, member.rank, at_ns);
    }
}

static uint32_t index_of(const struct weft_shard_aggregates *all,
                         const struct shard_aggregate *slot)
{
    return (uint32_t)(slot - all->slots) / WEFT_AGGREGATE_SLOTS;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void post(struct weft_shard *shard, struct shard_aggregate *slot)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t index = (uint32_t)(slot - all->slots);
    const struct shard_aggregator *from = &all->aggregators[index_of(all, slot)];
    WEFT_ASSERT(slot->state == AGGREGATE_IDLE);
    if (!from->up) {
        return;
    }
    const struct weft_msg_expect expect = {
        .peer = from->peer,
        .sink = WEFT_SINK_COPY,
        .tag = (uint64_t)WEFT_RPC_AGGREGATE << 56,
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = slot->memory,
        .memory_bytes = WEFT_AGGREGATE_BYTES_MAX,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_AGGREGATE + index,
    };
    if (shard->msgr.ops->expect(shard->msgr.self, &expect, &slot->expect) != WEFT_OK) {
        shard->counters.slots_unposted++;
        all->lacks = true;
        return;
    }
    slot->peer = from->peer;
    slot->state = AGGREGATE_POSTED;
}

static void release(struct weft_shard *shard, struct shard_aggregate *slot)
{
    shard->busy_count--;
    slot->state = AGGREGATE_IDLE;
    post(shard, slot);
}

static void unbind(struct weft_shard *shard, uint32_t aggregator)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    all->aggregators[aggregator].up = false;
    weft_shard_pulls_unbind(shard, aggregator);
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        struct shard_aggregate *slot = &all->slots[aggregator * WEFT_AGGREGATE_SLOTS + i];
        if (slot->state == AGGREGATE_POSTED) {
            (void)!shard->msgr.ops->cancel(shard->msgr.self, slot->expect);
            slot->state = AGGREGATE_IDLE;
        } else if (slot->state == AGGREGATE_OPEN) {
            slot->stale = true;
        } else if (slot->state == AGGREGATE_READY) {
            release(shard, slot);
        }
    }
}

static bool is_rival(struct weft_shard *shard, uint32_t number, uint64_t incarnation,
                     uint64_t now_ns)
{
    struct shard_aggregator *from = &shard->aggregates->aggregators[number];
    const uint64_t used_ns = shard->workers[shard->config.workers_max + number].request_ns;
    return from->up && from->incarnation != incarnation &&
           weft_aggregate_rival_refused(&from->rival_ns, used_ns, now_ns);
}

void weft_shard_aggregates_gauges(const struct weft_shard *shard, uint64_t since_ns,
                                  struct weft_shard_gauges *gauges_p)
{
    for (uint32_t i = 0; shard->aggregates != NULL && i < shard->config.aggregators_max; i++) {
        const bool up = shard->aggregates->aggregators[i].up;
        const uint64_t used_ns = shard->workers[shard->config.workers_max + i].request_ns;
        gauges_p->aggregators_connected += up;
        gauges_p->aggregators_active += up && used_ns >= since_ns && used_ns != 0;
    }
}

static bool peer_up(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t number = (uint32_t)event->name & 0xff;
    if (event->name != weft_rpc_aggregator_name(shard->config.shard, number) ||
        number >= shard->config.aggregators_max) {
        return false;
    }
    struct shard_aggregator *from = &all->aggregators[number];
    if (is_rival(shard, number, event->incarnation, now_ns)) {
        shard->counters.aggregators_refused++;
        weft_shard_refuse_peer(shard, event->peer);
        return true;
    }
    if (from->up) {
        if (from->incarnation == event->incarnation) {
            weft_shard_replace(shard, from->peer);
        } else {
            weft_shard_refuse_peer(shard, from->peer);
        }
        unbind(shard, number);
    }
    *from = (struct shard_aggregator){
        .up = true, .peer = event->peer, .incarnation = event->incarnation};
    weft_shard_pulls_bind(shard, number, event->peer);
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        struct shard_aggregate *slot = &all->slots[number * WEFT_AGGREGATE_SLOTS + i];
        if (slot->state == AGGREGATE_IDLE) {
            post(shard, slot);
        }
    }
    return true;
}

static void peer_down(struct weft_shard *shard, const struct weft_msg_event *event)
{
    for (uint32_t i = 0; i < shard->config.aggregators_max; i++) {
        const struct shard_aggregator *from = &shard->aggregates->aggregators[i];
        if (from->up && from->peer == event->peer) {
            unbind(shard, i);
        }
    }
}

/* Record a reply for each member with its share of the processing time. */
static void record(struct weft_shard *shard, uint16_t table, uint64_t at_ns,
                   const struct weft_aggregate_view *view, struct weft_rpc_reply *reply,
                   uint64_t departure_ns)
{
    shard->counters.aggregate_proc_ns += reply->ps_proc_ns;
    reply->ps_proc_ns /= view->members;
    for (uint32_t i = 0; i < view->members; i++) {
        struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        struct weft_rpc_reply own = *reply;
        own.rpc_id = member.rpc_id;
        const struct shard_slot push = {
            .op = WEFT_RPC_PUSH, .worker = member.rank, .table = table, .b_ns = at_ns};
        weft_shard_record_served(shard, &push, &own, departure_ns);
    }
}

/* A part of the time for an aggregate that is not arriving would make the others look faster. How
 * much of it has arrived is not known before its end; but its part is as large as that of others,
 * so if others that began later had as many bytes and have ended, its sender has stopped. True: one
 * is found to have stopped now, so the part of the aggregate that ends is not known. */
static bool find_stopped(struct weft_shard *shard, const struct shard_aggregate *ends,
                         uint64_t at_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    bool any = false;
    for (uint32_t i = 0; all->arriving > 0 && i < all->slot_count; i++) {
        struct shard_aggregate *other = &all->slots[i];
        if (other->state != AGGREGATE_OPEN || other->stopped || other->begun >= ends->begun) {
            continue;
        }
        other->passed += ends->bytes;
        if (other->passed >= other->bytes) {
            other->stopped = any = true;
            all->arriving--;
            (void)weft_shard_sum_ends(shard, at_ns);
        }
    }
    return any;
}

/* The part of the time up to the end of this aggregate; none if it had stopped. */
static struct shard_part part_ends(struct weft_shard *shard, struct shard_aggregate *slot,
                                   const struct weft_msg_event *event)
{
    if (slot->stopped) {
        return slot->since;
    }
    const struct shard_part until = weft_shard_sum_ends(shard, event->at_ns);
    shard->aggregates->arriving--;
    const bool is_whole = event->outcome == WEFT_MSG_COMPLETE && !slot->stale;
    return is_whole && find_stopped(shard, slot, event->at_ns) ? slot->since : until;
}

/* The arrival rate of the message is the rate of each update in it, and its size is reported for
 * each. */
static void measure(struct weft_shard *shard, const struct shard_aggregate *slot,
                    const struct weft_rpc_tag *tag, const struct weft_msg_event *event,
                    struct shard_part until, const struct weft_aggregate_view *view)
{
    const uint64_t first = weft_min_u64(event->chunk_elems, event->total);
    const struct shard_sum sum = {
        .updates = weft_aggregate_updates(view),
        .bytes = event->total, /* elements of one byte */
        .timed = event->total - first,
        .all = event->total - first + until.came - slot->since.came,
        .took_ns = until.ns - slot->since.ns,
    };
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        const struct shard_slot push =
            weft_shard_aggregate_push(shard, tag->table, tag->number, &member);
        if (!weft_aggregate_same_update(view, i)) {
            weft_shard_update_in_sum(shard, &push, &sum);
        }
    }
}

/* `rows` of the reply: the rank at fault plus 1; of a sum that was applied to a table with weights,
 * the t for the next ones. */
static uint32_t answer_rows(struct weft_shard *shard, uint16_t index, enum weft_rpc_status status,
                            const struct weft_aggregate_view *view, uint32_t refused)
{
    if (status != WEFT_RPC_OK) {
        return refused != UINT32_MAX ? refused + 1 : 0;
    }
    const struct weft_table *table = shard_table(shard, index);
    return !aggregate_is_ends(view) && weft_aggregate_weighs(&table->spec)
               ? weft_table_newest(table)
               : 0;
}

static void received(struct weft_shard *shard, struct shard_aggregate *slot,
                     const struct weft_msg_event *event, uint64_t now_ns)
{
    const uint64_t begin_ns = shard_clock_ns(shard);
    const struct shard_part until = part_ends(shard, slot, event);
    const size_t bytes = (size_t)event->total * event->elem_bytes;
    struct weft_rpc_tag tag;
    struct weft_rpc_request request;
    struct weft_aggregate_view view;
    uint32_t refused = UINT32_MAX; /* a rank; UINT32_MAX = none */
    if (event->outcome != WEFT_MSG_COMPLETE || slot->stale || event->received < event->chunks ||
        weft_rpc_request_unpack(slot->memory, bytes, &request) != WEFT_OK) {
        shard->counters.aggregates_refused++;
        release(shard, slot);
        return;
    }
    weft_shard_record_open(shard, shard->config.workers_max + index_of(shard->aggregates, slot),
                           event->at_ns);
    bool good = weft_rpc_tag_unpack(event->tag, &tag) && event->elem_bytes == 1;
    enum weft_rpc_status status =
        good ? weft_shard_aggregate_take(shard, &tag, slot->memory, bytes, false, &view, &refused,
                                         now_ns)
             : WEFT_RPC_BAD_REQUEST;
    const uint64_t end_ns = shard_clock_ns(shard);
    slot->table = tag.table;
    struct weft_rpc_reply reply = {
        .rpc_id = request.rpc_id,
        .status = (uint16_t)status,
        .t0_ns = request.t0_ns,
        .clock = weft_shard_clock(shard, tag.table),
        .ps_proc_ns = end_ns - begin_ns,
        .ps_queue_ns = begin_ns > event->at_ns ? begin_ns - event->at_ns : 0,
        .rows = answer_rows(shard, tag.table, status, &view, refused),
    };
    if (status == WEFT_RPC_OK) {
        vouch(shard, &view, event->at_ns, now_ns);
    }
    if (status == WEFT_RPC_OK && !aggregate_is_ends(&view)) {
        weft_shard_journal_aggregate(shard, &tag, slot->memory, bytes, &view);
        if ((request.flags & WEFT_RPC_CUT) != 0) {
            weft_shard_want_cut(shard, weft_shard_clock(shard, tag.table) + 1);
        }
        record(shard, tag.table, event->at_ns, &view, &reply, end_ns);
        measure(shard, slot, &tag, event, until, &view);
    }
    shard->counters.aggregates_refused += status != WEFT_RPC_OK;
    weft_rpc_reply_pack(&reply, slot->answer);
    slot->state = AGGREGATE_READY;
    shard->aggregates->ready = true;
    weft_shard_aggregate_send(shard, now_ns);
    weft_shard_wake(shard, now_ns);
}

void weft_shard_aggregate_send(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL || (!all->ready && !all->lacks)) {
        return;
    }
    const bool lacks = all->lacks, holds = weft_transfer_holds_answers(shard);
    all->lacks = false;
    all->ready &= holds;
    for (uint32_t i = 0; i < all->slot_count; i++) {
        struct shard_aggregate *slot = &all->slots[i];
        if (slot->state == AGGREGATE_IDLE && lacks) {
            post(shard, slot);
        }
        if (slot->state != AGGREGATE_READY || holds) {
            continue;
        }
        struct weft_rpc_reply reply;
        weft_status parsed = weft_rpc_reply_unpack(slot->answer, sizeof(slot->answer), &reply);
        WEFT_ASSERT(parsed == WEFT_OK);
        const struct weft_msg_send send = {
            .peer = slot->peer,
            .base = slot->answer,
            .total = 1,
            .elem_bytes = WEFT_RPC_REPLY_BYTES,
            .priority = WEFT_RPC_PRIORITY,
            .critical = 1,
            .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
                .op = WEFT_RPC_AGGREGATE | WEFT_RPC_REPLY_FLAG,
                .table = slot->table,
                .number = reply.rpc_id,
            }),
            .deadline_ns = WEFT_NEVER,
            .user = WEFT_SHARD_USER_AGGREGATE + i,
        };
        uint64_t seq;
        weft_status status = shard->msgr.ops->send(shard->msgr.self, &send, now_ns, &seq);
        if (status == WEFT_OK) {
            slot->state = AGGREGATE_SENDING;
        } else if (status == WEFT_AGAIN) {
            all->ready = true;
        } else {
            release(shard, slot);
        }
    }
}

bool weft_shard_aggregate_event(struct weft_shard *shard, const struct weft_msg_event *event,
                                uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL) {
        return false;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        return peer_up(shard, event, now_ns);
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        peer_down(shard, event);
        return false;
    }
    if (event->user < WEFT_SHARD_USER_AGGREGATE) {
        return false;
    }
    struct shard_aggregate *slot = &all->slots[event->user - WEFT_SHARD_USER_AGGREGATE];
    if (event->type == WEFT_EVENT_OPEN) {
        WEFT_ASSERT(slot->state == AGGREGATE_POSTED);
        slot->state = AGGREGATE_OPEN;
        slot->stale = slot->stopped = false;
        slot->since = weft_shard_sum_begins(shard, event->at_ns);
        slot->begun = ++all->begun;
        slot->bytes = (uint64_t)event->total * event->elem_bytes;
        slot->passed = 0;
        all->arriving++;
        shard->workers[shard->config.workers_max + index_of(all, slot)].request_ns = now_ns;
        shard->busy_count++;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(shard, slot, event, now_ns);
    } else if (event->type == WEFT_EVENT_SENT) {
        WEFT_ASSERT(slot->state == AGGREGATE_SENDING);
        release(shard, slot);
    }
    return true;
}
