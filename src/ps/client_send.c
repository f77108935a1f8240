/* Passing a part to the transport: its head, its message, and the memory of its answer. */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "ps/aggregate.h"

uint64_t weft_ps_reply_until(const struct weft_ps_client *client, const struct ps_part *part)
{
    uint64_t deadline_ns = part->kind == WEFT_RPC_PULL && part->op != WEFT_PS_NONE
                               ? client->ops[part->op].deadline_ns
                               : WEFT_NEVER;
    return deadline_ns == WEFT_NEVER ? 0 : deadline_ns;
}

static weft_peer part_peer(const struct weft_ps_client *client, const struct ps_part *part)
{
    return ps_part_is_via(part) ? weft_ps_via_peer_of(client, part)
                                : client->ends[part->shard].peer;
}

weft_status weft_ps_part_expect(struct weft_ps_client *client, struct ps_part *part, uint8_t op,
                                uint32_t rpc_id)
{
    struct weft_msg_expect expect = {
        .peer = part_peer(client, part),
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = (uint8_t)(op | WEFT_RPC_REPLY_FLAG),
            .table = part->table,
            .number = rpc_id,
        }),
        .tag_mask = UINT64_MAX,
        .memory = part->reply,
        .memory_bytes = part->reply_bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .until_ns = weft_ps_reply_until(client, part),
        .user = WEFT_PS_USER | ps_part_index(client, part),
    };
    return client->msgr.ops->expect(client->msgr.self, &expect, &part->expect);
}

bool weft_ps_counts_updates(const struct ps_part *part, const struct ps_link *link)
{
    return part->kind == WEFT_RPC_PULL && part->rows > 0 && (link->can & WEFT_RPC_CAN_UPDATE) != 0;
}

/* True: the push has the tag of an update. False if it is sent to an aggregator, or if only its
 * head is sent, which opens no update. Also false if the shard passed the push's clock while this
 * worker was disconnected: the clock may be too old for the 8 bits in such a tag. */
static bool is_of_update(const struct ps_part *part, const struct ps_link *link)
{
    return part->kind == WEFT_RPC_PUSH && !ps_part_is_via(part) && !ps_part_head_only(part) &&
           part->clock > link->clock_passed && (link->can & WEFT_RPC_CAN_UPDATE) != 0;
}

/* In the head of a push to an aggregator: its piece, and the base, because the shard checks the
 * delay of the update when it opens in a sum. */
static uint32_t base_of(const struct ps_part *part, const struct ps_link *link)
{
    const uint32_t base = part->base & WEFT_RPC_BASE_MASK;
    const bool is_via = part->kind == WEFT_RPC_PUSH && ps_part_is_via(part);
    const bool has_base = (link->can & WEFT_RPC_CAN_UPDATE) != 0 && base != WEFT_RPC_BASE_NONE;
    return is_via ? weft_aggregate_piece_pack(part->piece, has_base ? 1 + base : 0) : 0;
}

static uint32_t flags_of(const struct weft_ps_client *client, const struct ps_part *part,
                         const struct ps_link *link, uint8_t id_bytes)
{
    bool keeps = part->keeps && (link->can & WEFT_RPC_CAN_LIST) != 0 && !ps_part_is_via(part);
    bool is_push = part->kind == WEFT_RPC_PUSH, is_table = part->kind == WEFT_RPC_TABLE;
    return (ps_part_resumes(part) ? WEFT_RPC_RESUME : 0) |
           (is_table && ps_log_on(client) ? WEFT_RPC_DURABLE : 0) |
           (id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS : 0) |
           (id_bytes == WEFT_RPC_ID_PACKED ? WEFT_RPC_PACKED_IDS : 0) |
           (keeps ? WEFT_RPC_KEEP_IDS : 0) |
           (weft_ps_counts_updates(part, link) ? WEFT_RPC_COUNT_UPDATES : 0) |
           (part->on_apply ? WEFT_RPC_ON_APPLY : 0) |
           (part->cut || (is_push && weft_ps_log_filling(client)) ? WEFT_RPC_CUT : 0);
}

/* True: the pull must be answered after the push with this rpc_id. */
static bool is_after(const struct weft_ps_client *client, const struct ps_part *part,
                     const struct ps_link *link, uint32_t *rpc_id_p)
{
    return part->kind == WEFT_RPC_PULL && !part->cut && part->op != WEFT_PS_NONE &&
           client->tables[part->table].spec.mode != WEFT_TABLE_BSP &&
           weft_ps_pushes_before(client, part, link, rpc_id_p) == 1;
}

/* The transport did not accept a pull, and then a push has passed it, which the pull must see: a
 * pull names only pushes before it, so it needs a new rpc_id. */
static void post_again(struct weft_ps_client *client, struct ps_part *part,
                       const struct ps_link *link)
{
    uint32_t push;
    if (part->answer == ANSWER_POSTED && is_after(client, part, link, &push) &&
        (int32_t)(push - part->rpc_id) > 0) {
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
        part->answer = ANSWER_NONE;
    }
}

static void write_head(struct weft_ps_client *client, const struct ps_part *part,
                       const struct ps_link *link, const struct ps_message *message)
{
    bool is_pull = part->kind == WEFT_RPC_PULL, is_via = ps_part_is_via(part);
    uint32_t after_rpc_id;
    bool after = is_after(client, part, link, &after_rpc_id);
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec);
    bool is_table = part->kind == WEFT_RPC_TABLE;
    uint32_t session = client->vias != NULL ? client->ends[part->shard].session : 0;
    uint16_t can = client->config.can & (session > 0 ? WEFT_RPC_CAN_ALL : ~WEFT_RPC_CAN_AGGREGATE);
    struct weft_rpc_request request = {
        .rpc_id = part->rpc_id,
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .rows_critical = is_pull ? part->rows_critical : base_of(part, link),
        .after_seq = is_pull && is_via ? weft_ps_via_age(client, part)
                     : after           ? after_rpc_id
                     : is_table        ? session
                                       : (uint32_t)part->number,
        .need_clock = is_pull || is_of_update(part, link) ? part->clock
                      : is_table                          ? can
                      : is_via                            ? session
                                                          : 0,
        .reply_bound_ppm = is_pull  ? part->bound_ppm
                           : is_via ? weft_ps_update_sum(client, part)
                                    : 0,
        .rows = ps_part_head_only(part)       ? 0
                : part->kind == WEFT_RPC_PUSH ? part->rows * blocks
                                              : part->rows,
        .flags = flags_of(client, part, link, message->id_bytes),
    };
    weft_rpc_request_pack(&request, message->base);
}

/* The transport has the push: set the pace granted to its update. */
static void update_sent(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_pace *pace, uint64_t seq, uint64_t now_ns)
{
    part->seq = seq;
    part->paced = pace != NULL;
    if (pace != NULL) {
        weft_status status = client->msgr.ops->pace(
            client->msgr.self, client->ends[part->shard].peer, seq, pace, now_ns);
        WEFT_ASSERT(status == WEFT_OK || status == WEFT_NOTFOUND); /* its deadline has passed */
    }
    if (part->update != 0) {
        weft_ps_update_sending(client, part, now_ns);
    }
}

/* whole: no chunk may be missing. */
static weft_status message_send(struct weft_ps_client *client, struct ps_part *part,
                                const struct ps_message *message, bool whole, uint64_t now_ns)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    if (!ps_part_is_via(part) && !weft_ps_connection_goes(client, part->shard)) {
        return WEFT_AGAIN;
    }
    post_again(client, part, link);
    if (part->answer != ANSWER_POSTED) {
        /* Pulls may wait for a push by its rpc_id, so it keeps that while it waits for its list. */
        part->rpc_id = part->in_air ? part->rpc_id : weft_ps_rpc_id(client, part->shard);
        weft_status status = weft_ps_part_expect(client, part, part->kind, part->rpc_id);
        if (status != WEFT_OK) {
            return status == WEFT_NOMEM ? WEFT_AGAIN : status;
        }
        ps_part_posted(part);
    }
    write_head(client, part, link, message);
    bool is_push = part->kind == WEFT_RPC_PUSH;
    bool may_lose = is_push && !part->resent && !whole;
    const struct weft_msg_pace *pace = is_push && part->update != 0 && !ps_part_is_via(part)
                                           ? weft_ps_update_pace(client, part)
                                           : NULL;
    bool of_update = is_of_update(part, link);
    struct weft_msg_send send = {
        .peer = part_peer(client, part),
        .held = pace != NULL,
        .shares = part->kind == WEFT_RPC_PUSH || part->kind == WEFT_RPC_PULL,
        .base = message->base,
        .total = message->total,
        .elem_bytes = message->elem_bytes,
        .chunk_elems = message->chunk_elems,
        .priority =
            weft_ps_pull_is_ahead(client, part) ? WEFT_RPC_PRIORITY_AHEAD : WEFT_RPC_PRIORITY,
        .critical = 1,
        .bound_ppm = may_lose ? part->bound_ppm : 0,
        .stream = weft_rpc_stream(part->kind, part->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = of_update ? WEFT_RPC_UPDATE : part->kind,
            .table = part->table,
            .number = of_update ? weft_rpc_update_pack(part->clock, part->base) : part->clock,
            .low = (uint8_t)part->number,
        }),
        .deadline_ns = may_lose ? client->ops[part->op].deadline_ns : WEFT_NEVER,
        .user = WEFT_PS_USER | ps_part_index(client, part),
        .critical_mask = is_push && !whole ? weft_ps_push_critical(client, part) : NULL,
    };
    uint64_t seq;
    weft_status status = client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq);
    if (status == WEFT_OK) {
        ps_part_to(part, PART_FLYING);
        if (is_push) {
            ps_part_take_off(link, part);
            update_sent(client, part, pace, seq, now_ns);
        } else if (part->kind == WEFT_RPC_PULL && !ps_part_is_via(part)) {
            struct ps_shard_end *end = &client->ends[part->shard];
            part->is_ahead = weft_ps_pull_is_ahead(client, part);
            end->pulls_open++;
            end->pulls_asked++;
            end->pulls_ahead += part->is_ahead;
        }
    }
    return status;
}

weft_status weft_ps_part_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_message message = {
        .base = part->request,
        .total = part->request_elems,
        .elem_bytes = part->request_elem_bytes,
        .chunk_elems = part->request_chunk_elems,
        .id_bytes = part->list.id_bytes,
    };
    if (ps_part_head_only(part)) {
        /* As one chunk, which fits even if the chunks of the layout do not. */
        message.total = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, part->request_elem_bytes);
        message.chunk_elems = (uint16_t)message.total;
    }
    if (!ps_via_holds(part)) {
        part->via_index = weft_ps_via_index(client, part);
    }
    if (weft_ps_via_takes(client, part)) {
        ps_part_route_to(part, ROUTE_VIA);
    }
    part->via_pull = ps_part_is_via(part) && part->kind == WEFT_RPC_PULL;
    part->on_apply = ps_part_is_via(part) && weft_ps_applied_takes(client, part);
    part->second = SECOND_NONE;
    weft_status status = message_send(client, part, &message, ps_part_head_only(part), now_ns);
    if (status != WEFT_OK && ps_part_is_via(part)) { /* the transport to the aggregator is full */
        if (part->answer == ANSWER_POSTED) {
            (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
        }
        part->answer = ANSWER_NONE;
        ps_part_route_to(part, ROUTE_DIRECT);
        part->via_pull = part->on_apply = false;
        status = message_send(client, part, &message, ps_part_head_only(part), now_ns);
    }
    if (status == WEFT_OK && ps_part_is_via(part)) {
        weft_ps_via_went(client, part, now_ns);
    }
    if (status == WEFT_OK && !ps_part_head_only(part)) {
        part->ids_chunk_elems = 0; /* the shard has begun the push in these chunks */
    }
    return status;
}

/* Send with ids, like a push that was sent before: all of it must arrive. */
static weft_status ids_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_message message;
    if (client->list_part != WEFT_PS_NONE) {
        return WEFT_AGAIN; /* the LIST buffer is in use */
    }
    if (!weft_ps_listed_with_ids(client, part, &message)) {
        return WEFT_INVALID;
    }
    weft_status status = message_send(client, part, &message, true, now_ns);
    if (status == WEFT_OK) {
        ps_part_message_to(part, MESSAGE_IDS);
        part->resent = true;
        part->ids_chunk_elems = message.chunk_elems;
        client->list_part = ps_part_index(client, part);
    }
    return status;
}

/* Send a push that names a list: first the list, if the shard may lack it. With its ids, if the
 * shard will not accept the list. If neither is possible, the push is voided. */
weft_status weft_ps_listed_send(struct weft_ps_client *client, struct ps_part *part,
                                uint64_t now_ns)
{
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    weft_status status = WEFT_INVALID;
    if (!weft_ps_connection_goes(client, part->shard)) {
        return WEFT_AGAIN;
    }
    if (!ps_listed_goes_with_ids(part)) {
        bool can = (link->can & WEFT_RPC_CAN_LIST) != 0;
        status = part->list_step != LIST_BEFORE ? weft_ps_part_send(client, part, now_ns)
                 : can                          ? weft_ps_list_send(client, part, now_ns)
                                                : WEFT_INVALID;
    }
    if (status == WEFT_INVALID) {
        weft_ps_list_drop(client, part);
        part->list_step = LIST_NONE;
        status = ids_send(client, part, now_ns);
    }
    if (status == WEFT_INVALID) {
        weft_ps_list_void(client, part, WEFT_UNSUPPORTED, WEFT_RPC_OK);
        status = weft_ps_part_send(client, part, now_ns);
    }
    return status;
}
