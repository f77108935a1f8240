/* One RPC of a worker: build its request, send it when its turn has come, take the answer.
 *
 * Turn: parts of one link go in the order in which they were queued. A BSP push of clock c + 1 may
 * go when the shard has begun that clock, which any answer tells; where nothing was asked, an empty
 * pull (the gate) asks. A pull names the push that must be closed before it; there is room for one
 * name, so with more pushes in flight it waits here.
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/layout.h"

/* ---- building -------------------------------------------------------------------------------- */

static size_t align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

size_t weft_ps_op_buffer_bytes(const struct weft_ps_client_config *config, uint32_t parts_per_op)
{
    size_t row_bytes = weft_table_row_push_bytes_max(config->dim_max);
    /* Two heads padded to elements, two alignments; or TABLE's body. */
    size_t elem_bytes = sizeof(uint64_t) + WEFT_RPC_BLOCK_FLOATS * sizeof(float);
    size_t part_bytes =
        WEFT_RPC_REQUEST_BYTES + WEFT_RPC_REPLY_BYTES + 2 * (elem_bytes + sizeof(uint64_t));
    static_assert(WEFT_RPC_SPEC_BYTES < WEFT_RPC_BLOCK_FLOATS * sizeof(float));
    size_t bytes = config->rows_per_op_max * row_bytes;
    bool lists = (config->can & WEFT_RPC_CAN_LIST) != 0;
    return bytes + (lists ? ps_listed_extra(bytes) : 0) +
           parts_per_op * (part_bytes + (lists ? ps_listed_extra(part_bytes) : 0));
}

static struct ps_part *part_add(struct weft_ps_client *client, uint32_t op_index,
                                const struct ps_list *list, uint32_t shard, const uint32_t *order,
                                uint32_t rows)
{
    struct ps_op *op = &client->ops[op_index];
    WEFT_ASSERT(op->parts < client->parts_per_op);
    struct ps_part *part = op->logged ? weft_ps_log_take(client)
                                      : &client->parts[op_index * client->parts_per_op + op->parts];
    op->log_first = op->parts++ == 0 ? (uint32_t)(part - client->parts) : op->log_first;
    *part = (struct ps_part){
        .kind = op->kind,
        .logged = op->logged,
        .table = list->table,
        .shard = shard,
        .op = op_index,
        .list = *list,
        .order = order,
        .rows = rows,
        .bound_ppm = op->bound_ppm,
        .clock = client->tables[list->table].clock,
        .iteration = client->tables[list->table].clock + 1,
    };
    return part;
}

void weft_ps_part_memory(struct weft_ps_client *client, struct ps_part *part,
                         uint32_t request_elems, uint16_t request_elem_bytes, uint32_t reply_bytes)
{
    struct ps_op *op = &client->ops[part->op];
    part->request_elems = request_elems;
    part->request_elem_bytes = request_elem_bytes;
    part->reply_bytes = reply_bytes;
    if (part->logged) {
        size_t request_bytes = align8((size_t)request_elems * request_elem_bytes);
        part->request = weft_ps_log_memory(client, request_bytes + align8(reply_bytes));
        part->reply = part->request + request_bytes;
        return;
    }
    part->request = op->buffer + op->buffer_used;
    op->buffer_used += align8((size_t)request_elems * request_elem_bytes);
    part->reply = op->buffer + op->buffer_used;
    op->buffer_used += align8(reply_bytes);
    WEFT_ASSERT(op->buffer_used <= weft_ps_op_buffer_bytes(&client->config, client->parts_per_op));
}

void weft_ps_part_trim(struct weft_ps_client *client, struct ps_part *part, size_t bytes,
                       size_t used)
{
    size_t now = align8(used), left = align8(bytes) - now;
    part->reply = part->request + now;
    if (part->logged) {
        weft_ps_log_give_back(client, left);
    } else {
        client->ops[part->op].buffer_used -= left;
    }
}

static uint32_t part_index(const struct weft_ps_client *client, const struct ps_part *part)
{
    return (uint32_t)(part - client->parts);
}

uint32_t weft_ps_part_table(struct weft_ps_client *client, uint32_t op, uint32_t shard)
{
    const struct ps_list none = {.table = client->ops[op].table};
    struct ps_part *part = part_add(client, op, &none, shard, NULL, 0);
    weft_ps_part_memory(client, part, WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES, 1,
                        WEFT_RPC_REPLY_BYTES);
    part->clock = 0;
    weft_table_spec_pack(&client->tables[part->table].spec, part->request + WEFT_RPC_REQUEST_BYTES);
    return part_index(client, part);
}

uint32_t weft_ps_part_push(struct weft_ps_client *client, uint32_t op, const struct ps_list *list,
                           uint32_t shard, const uint32_t *order, uint32_t rows,
                           uint32_t list_number)
{
    struct ps_part *part = part_add(client, op, list, shard, order, rows);
    const struct ps_table *table = &client->tables[part->table];
    part->clock = table->clock + 1;
    if (list_number != 0 && weft_ps_listed_make(client, part, list_number)) {
        return part_index(client, part);
    }
    uint16_t elem_bytes = weft_table_push_elem_bytes(&table->spec, list->id_bytes);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes);
    uint32_t total = head_elems + rows * weft_table_blocks(&table->spec);
    if (client->ends[shard].down) {
        part->request = part->logged ? weft_ps_log_memory(client, 8) : NULL;
        return part_index(client, part); /* fails when it is queued */
    }
    weft_ps_part_memory(client, part, total, elem_bytes, WEFT_RPC_REPLY_BYTES);
    if (weft_ps_pack(client, part, total * elem_bytes)) {
        weft_ps_part_trim(client, part, (size_t)total * elem_bytes, part->request_elems);
        return part_index(client, part);
    }
    memset(part->request, 0, (size_t)head_elems * elem_bytes);
    uint32_t chunk_elems = weft_ps_chunk_elems(
        client->msgr.ops->chunk_elems(client->msgr.self, client->ends[shard].peer, elem_bytes),
        elem_bytes, head_elems, client->ops[op].bound_ppm);
    chunk_elems = (uint32_t)weft_min_u64(chunk_elems, weft_ps_chunk_rows_max(&table->spec));
    part->request_chunk_elems = (uint16_t)chunk_elems;
    for (uint32_t begin = 0, k = 0; begin < total; begin += chunk_elems, k++) {
        uint32_t elems = (uint32_t)weft_min_u64(chunk_elems, total - begin);
        uint8_t *chunk = part->request + (size_t)begin * elem_bytes;
        struct weft_ps_chunk_rows place =
            weft_ps_chunk_rows(elem_bytes, list->id_bytes, chunk_elems, head_elems, k, elems);
        weft_ps_rows_gather(part, &table->spec, chunk, place);
        weft_ps_residual_add(client, part, k);
    }
    return part_index(client, part);
}

static uint32_t pull_need_clock(const struct ps_table *table)
{
    uint32_t behind = table->spec.mode == WEFT_TABLE_BSP   ? 0
                      : table->spec.mode == WEFT_TABLE_SSP ? table->spec.staleness
                                                           : UINT32_MAX;
    return table->clock > behind ? table->clock - behind : 0;
}

uint32_t weft_ps_part_pull(struct weft_ps_client *client, uint32_t op, const struct ps_list *list,
                           uint32_t shard, const uint32_t *order, uint32_t rows)
{
    struct ps_part *part = part_add(client, op, list, shard, order, rows);
    const struct ps_table *table = &client->tables[part->table];
    part->clock = pull_need_clock(table) + list->ahead;
    part->iteration += list->ahead;
    uint16_t elem_bytes = weft_table_pull_elem_bytes(&table->spec);
    uint32_t reply_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes) +
                           rows * weft_table_blocks(&table->spec);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, list->id_bytes);
    weft_ps_part_memory(client, part, head_elems + rows, list->id_bytes, reply_elems * elem_bytes);
    if (!weft_ps_pack(client, part, (head_elems + rows) * list->id_bytes)) {
        weft_ps_rows_ids(part, part->request + (size_t)head_elems * list->id_bytes);
    }
    return part_index(client, part);
}

/* ---- sending --------------------------------------------------------------------------------- */

void weft_ps_part_queue(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    struct ps_shard_end *end = &client->ends[part->shard];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    if (part->kind == WEFT_RPC_PUSH) {
        part->number = ++link->number;
        weft_ps_push_opened(client, part);
    }
    part->state = PART_QUEUED;
    part->expected = part->request_closed = part->reply_closed = false;
    part->counted = part->begun = false;
    part->via = part->via_sending = part->via_answering = part->via_pull = false;
    part->direct = part->failing = false;
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

/* A BSP push that is too early: ask the shard, once, to tell when its clock has begun. */
static void gate_ask(struct weft_ps_client *client, const struct ps_part *push)
{
    uint32_t index = client->gates_first + push->table * client->config.shards + push->shard;
    struct ps_part *gate = &client->parts[index];
    if (gate->state == PART_QUEUED || gate->state == PART_FLYING) {
        return;
    }
    gate->clock = push->clock - 1;
    client->counters.gates++;
    weft_ps_part_queue(client, index);
}

/* Pulls may wait at the server for this worker's own CLOCK. They must never take all of the
 * messages that may be unconfirmed, or that CLOCK, and the pushes before it, could not go. */
enum { PULLS_OPEN_MAX = WEFT_MSGS_MAX / 2 };

/* Pulls of the next clock wait at the server, in the memory that it has for this worker's pulls (of
 * four by default). They must leave some to those of this clock, and not go where there is none. */
enum { PULLS_AHEAD_MAX = 2, PULLS_ASKED_MAX = 4 };

/* A pull of a clock that this worker has not ended, or of which it has still to send pushes: when a shard
 * comes back without them, they are behind it in the queue, and may need a gate. Nothing has to wait for it. */
static bool is_ahead(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->list.ahead > 0 &&
           (part->clock > client->tables[part->table].clock ||
            weft_ps_first_push_clock(client, part->table, part->shard) <= part->clock);
}

void weft_ps_pulls_in_time(struct weft_ps_client *client, uint16_t table)
{
    for (uint32_t i = 0; i < client->gates_first; i++) {
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
    if (part->expected) {
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    weft_ps_part_done(client, part);
}

/* The pushes under way that a pull has to see; *rpc_ids_p: their rpc_ids, with one its own. One that went by
 * an aggregator, and now goes to the shard, went before those that were begun since: these wait for it here. */
static uint32_t pushes_before(const struct weft_ps_client *client, const struct ps_part *part,
                              const struct ps_link *link, uint32_t *rpc_ids_p)
{
    uint32_t count = 0;
    *rpc_ids_p = link->flying_xor;
    if (!part->direct) {
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
    return count;
}

static bool part_may_go(struct weft_ps_client *client, const struct ps_part *part,
                        const struct ps_link *link)
{
    uint32_t rpc_ids;
    if (part->kind == WEFT_RPC_PULL && client->ends[part->shard].pulls_open >= PULLS_OPEN_MAX) {
        return false;
    }
    if (ps_via_holds(part)) {
        return false; /* its memory is still another transport's */
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
    /* One whose list was given is waited for by others, as one that was begun. */
    if (part->begun || (end->list_part == part_index(client, part) && !part->list_first)) {
        return weft_ps_listed_may_go(client, part);
    }
    if (link->blocked_round == client->round ||
        (is_push && (end->begun_open > 0 || end->resuming > 0))) {
        return false;
    }
    uint8_t mode = client->tables[part->table].spec.mode;
    if (part->kind == WEFT_RPC_PULL && is_ahead(client, part)) {
        return end->pulls_ahead < PULLS_AHEAD_MAX && end->pulls_asked < PULLS_ASKED_MAX;
    }
    if (part->kind == WEFT_RPC_PULL) {
        /* An aggregator does not know which of its pushes are open. */
        return mode == WEFT_TABLE_BSP ||
               pushes_before(client, part, link, &rpc_ids) <=
                   (weft_ps_via_takes_pull(client, part) ? 0 : 1);
    }
    if (part->number > link->number_closed + WEFT_ONCE_SPAN ||
        part->clock > link->clock_closed + 2) {
        return false;
    }
    if (mode == WEFT_TABLE_BSP && link->clock_known + 1 < part->clock) {
        gate_ask(client, part);
        return false;
    }
    return weft_ps_listed_may_go(client, part);
}

/* When an answer is closed at the latest; 0 = never. */
static uint64_t reply_until(const struct weft_ps_client *client, const struct ps_part *part)
{
    uint64_t deadline_ns = part->kind == WEFT_RPC_PULL && part->op != WEFT_PS_NONE
                               ? client->ops[part->op].deadline_ns
                               : WEFT_NEVER;
    return deadline_ns == WEFT_NEVER ? 0 : deadline_ns;
}

static weft_peer part_peer(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->via ? weft_ps_via_peer_of(client, part) : client->ends[part->shard].peer;
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
        .until_ns = reply_until(client, part),
        .user = WEFT_PS_USER | part_index(client, part),
    };
    return client->msgr.ops->expect(client->msgr.self, &expect, &part->expect);
}

/* A pull of the model asks how many updates are in it. */
static bool counts_updates(const struct ps_part *part, const struct ps_link *link)
{
    return part->kind == WEFT_RPC_PULL && part->rows > 0 &&
           (link->can & WEFT_RPC_CAN_UPDATE) != 0;
}

/* Its tag is that of an update; a head alone opens none. A push of a clock that its shard passed over while
 * this worker was away may be too far back for the 8 bits of the clock in such a tag. */
static bool is_of_update(const struct ps_part *part, const struct ps_link *link)
{
    return part->kind == WEFT_RPC_PUSH && !part->head_only && part->clock > link->clock_passed &&
           (link->can & WEFT_RPC_CAN_UPDATE) != 0;
}

static uint32_t flags_of(const struct weft_ps_client *client, const struct ps_part *part,
                         const struct ps_link *link, uint8_t id_bytes)
{
    bool keeps = part->keeps && (link->can & WEFT_RPC_CAN_LIST) != 0 && !part->via;
    bool is_push = part->kind == WEFT_RPC_PUSH, is_table = part->kind == WEFT_RPC_TABLE;
    return (ps_part_resumes(part) ? WEFT_RPC_RESUME : 0) |
           (is_table && ps_log_on(client) ? WEFT_RPC_DURABLE : 0) |
           (id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS : 0) |
           (id_bytes == WEFT_RPC_ID_PACKED ? WEFT_RPC_PACKED_IDS : 0) |
           (keeps ? WEFT_RPC_KEEP_IDS : 0) | (counts_updates(part, link) ? WEFT_RPC_COUNT_UPDATES : 0) |
           (part->cut || (is_push && weft_ps_log_filling(client)) ? WEFT_RPC_CUT : 0);
}

static void write_head(struct weft_ps_client *client, const struct ps_part *part,
                       const struct ps_link *link, const struct ps_message *message)
{
    bool is_pull = part->kind == WEFT_RPC_PULL;
    uint32_t after_rpc_id;
    bool after = is_pull && !part->cut && part->op != WEFT_PS_NONE &&
                 client->tables[part->table].spec.mode != WEFT_TABLE_BSP &&
                 pushes_before(client, part, link, &after_rpc_id) == 1;
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec);
    bool is_table = part->kind == WEFT_RPC_TABLE;
    uint32_t session = client->vias != NULL ? client->ends[part->shard].session : 0;
    uint16_t can = client->config.can & (session > 0 ? WEFT_RPC_CAN_ALL : ~WEFT_RPC_CAN_AGGREGATE);
    struct weft_rpc_request request = {
        .rpc_id = part->rpc_id,
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .rows_must = is_pull ? part->rows_must : 0,
        .after_seq = is_pull && part->via ? weft_ps_via_age(client, part)
                      : after    ? after_rpc_id
                      : is_table ? session
                                 : (uint32_t)part->number,
        .need_clock = is_pull || is_of_update(part, link) ? part->clock
                      : is_table                          ? can
                      : part->via                         ? session
                                                          : 0,
        .reply_bound_ppm = is_pull ? part->bound_ppm : 0,
        .rows = part->head_only               ? 0
                : part->kind == WEFT_RPC_PUSH ? part->rows * blocks
                                              : part->rows,
        .flags = flags_of(client, part, link, message->id_bytes),
    };
    weft_rpc_request_pack(&request, message->base);
}

/* The transport has the push: let it go as its update was granted. */
static void update_sent(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_pace *pace, uint64_t seq, uint64_t now_ns)
{
    part->seq = seq;
    part->paced = pace != NULL;
    if (pace != NULL) {
        weft_status status = client->msgr.ops->pace(
            client->msgr.self, client->ends[part->shard].peer, seq, pace, now_ns);
        WEFT_ASSERT(status == WEFT_OK || status == WEFT_NOTFOUND); /* its deadline is over */
    }
    if (part->update != 0) {
        weft_ps_update_sending(client, part, now_ns);
    }
}

/* whole: none of it may be missing. */
static weft_status message_send(struct weft_ps_client *client, struct ps_part *part,
                                const struct ps_message *message, bool whole, uint64_t now_ns)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    if (!part->expected) {
        /* Pulls may wait for a push by its name: it keeps it while it waits for its list. */
        part->rpc_id = part->in_air ? part->rpc_id : weft_ps_rpc_id(client, part->shard);
        weft_status status = weft_ps_part_expect(client, part, part->kind, part->rpc_id);
        if (status != WEFT_OK) {
            return status == WEFT_NOMEM ? WEFT_AGAIN : status;
        }
        part->expected = true;
    }
    write_head(client, part, link, message);
    bool is_push = part->kind == WEFT_RPC_PUSH;
    bool may_lose = is_push && !part->resent && !whole;
    const struct weft_msg_pace *pace =
        is_push && part->update != 0 ? weft_ps_update_pace(client, part) : NULL;
    bool of_update = is_of_update(part, link);
    struct weft_msg_send send = {
        .peer = part_peer(client, part),
        .held = pace != NULL,
        .base = message->base,
        .total = message->total,
        .elem_bytes = message->elem_bytes,
        .chunk_elems = message->chunk_elems,
        .priority = is_ahead(client, part) ? WEFT_RPC_PRIORITY_AHEAD : WEFT_RPC_PRIORITY,
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
        .user = WEFT_PS_USER | part_index(client, part),
        .critical_mask = is_push && !whole ? weft_ps_push_critical(client, part) : NULL,
    };
    uint64_t seq;
    weft_status status = client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq);
    if (status == WEFT_OK) {
        part->state = PART_FLYING;
        if (is_push) {
            ps_part_take_off(link, part);
            update_sent(client, part, pace, seq, now_ns);
        } else if (part->kind == WEFT_RPC_PULL && !part->via) {
            struct ps_shard_end *end = &client->ends[part->shard];
            part->is_ahead = is_ahead(client, part);
            end->pulls_open++;
            end->pulls_asked++;
            end->pulls_ahead += part->is_ahead;
        }
    }
    return status;
}

static weft_status part_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_message message = {
        .base = part->request,
        .total = part->request_elems,
        .elem_bytes = part->request_elem_bytes,
        .chunk_elems = part->request_chunk_elems,
        .id_bytes = part->list.id_bytes,
    };
    if (part->head_only) {
        /* In one chunk, which fits where the chunks that were laid out may not. */
        message.total = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, part->request_elem_bytes);
        message.chunk_elems = (uint16_t)message.total;
    }
    part->via = weft_ps_via_takes(client, part);
    part->via_pull = part->via && part->kind == WEFT_RPC_PULL;
    weft_status status = message_send(client, part, &message, part->head_only, now_ns);
    if (status != WEFT_OK && part->via) { /* the aggregator takes no more now */
        if (part->expected) {
            (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
        }
        part->expected = part->via = part->via_pull = false;
        part->direct = true;
        status = message_send(client, part, &message, part->head_only, now_ns);
    }
    if (status == WEFT_OK && part->via) {
        weft_ps_via_went(client, part, now_ns);
    }
    if (status == WEFT_OK && !part->head_only) {
        part->ids_chunk_elems = 0; /* what its shard has begun is of these chunks */
    }
    return status;
}

/* With its ids, as a push that was sent before: all of it must arrive. */
static weft_status ids_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_message message;
    if (client->list_part != WEFT_PS_NONE) {
        return WEFT_AGAIN; /* its place is taken */
    }
    if (!weft_ps_listed_with_ids(client, part, &message)) {
        return WEFT_INVALID;
    }
    weft_status status = message_send(client, part, &message, true, now_ns);
    if (status == WEFT_OK) {
        part->with_ids = part->resent = true;
        part->ids_chunk_elems = message.chunk_elems;
        client->list_part = part_index(client, part);
    }
    return status;
}

/* A push that names a list: the list first, where its shard may not have it; with its ids, where the
 * shard will not have the list, or the chunks as they are; else nothing of it. */
static weft_status listed_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    weft_status status = WEFT_INVALID;
    if (!ps_listed_goes_with_ids(part)) {
        bool can = (link->can & WEFT_RPC_CAN_LIST) != 0;
        status = !part->list_first ? part_send(client, part, now_ns)
                 : can             ? weft_ps_list_send(client, part, now_ns)
                                   : WEFT_INVALID;
    }
    if (status == WEFT_INVALID) {
        weft_ps_list_drop(client, part);
        part->list_none = true;
        status = ids_send(client, part, now_ns);
    }
    if (status == WEFT_INVALID) {
        weft_ps_list_void(client, part, WEFT_UNSUPPORTED, WEFT_RPC_OK);
        status = part_send(client, part, now_ns);
    }
    return status;
}

/* A pull behind it does not wait for it: in BSP it sees nothing of it before its clock is over. */
static bool waits_for_grant(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->kind == WEFT_RPC_PUSH && part->update != 0 &&
           client->tables[part->table].spec.mode == WEFT_TABLE_BSP &&
           !weft_ps_update_may_go(client, part);
}

/* A pull that has to see a push which is not let go for want of its clock's end. */
static bool ends_update(const struct weft_ps_client *client, const struct ps_part *part,
                        const struct ps_link *link)
{
    return client->updates != NULL && part->kind == WEFT_RPC_PULL && part->op != WEFT_PS_NONE &&
           link->blocked_round == client->round && !is_ahead(client, part);
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
            bool passes = is_ahead(client, part) || waits_for_grant(client, part);
            link->blocked_round = passes ? link->blocked_round : client->round;
            before = index;
            index = part->next;
            continue;
        }
        bool by_list = part->listed && !part->head_only;
        weft_status status =
            by_list ? listed_send(client, part, now_ns) : part_send(client, part, now_ns);
        if (status == WEFT_PEER && client->config.reconnect_ns > 0) {
            return; /* PEER_DOWN comes */
        }
        if (status == WEFT_AGAIN) {
            client->counters.again++;
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

/* ---- closing --------------------------------------------------------------------------------- */

void weft_ps_note_status(struct weft_ps_client *client, const struct ps_part *part,
                         weft_status status, uint16_t rpc_status)
{
    if (part->op == WEFT_PS_NONE) {
        return;
    }
    struct weft_ps_result *result = &client->ops[part->op].result;
    bool first = result->status == WEFT_OK && result->rpc_status == WEFT_RPC_OK;
    if (first && (status != WEFT_OK || rpc_status != WEFT_RPC_OK)) {
        result->status = status;
        result->rpc_status = rpc_status;
        result->shard = part->shard;
    }
}

/* Elements in the chunks refused, at most; those of the last and of the first are fewer. */
static uint32_t refused_elems(const struct ps_part *part)
{
    uint64_t of_chunk =
        part->list.id_bytes == WEFT_RPC_ID_PACKED ? part->chunk_rows : part->request_chunk_elems;
    return (uint32_t)weft_min_u64(part->refused * of_chunk, part->delivered);
}

/* A push of a clock that its shard ended without this worker: what was refused for that is absent, as
 * if it had been lost on the way. */
static void count_passed(struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->op != WEFT_PS_NONE && part->refused > 0) {
        struct weft_ps_result *result = &client->ops[part->op].result;
        result->elements_delivered -= refused_elems(part);
        result->rpcs_short += !part->is_short;
    }
}

void weft_ps_part_done(struct weft_ps_client *client, struct ps_part *part)
{
    part->state = PART_DONE;
    if (part->update != 0) {
        weft_ps_update_part_done(client, part);
    }
    if (part->passed) {
        count_passed(client, part);
    }
    if (part->late && part->op != WEFT_PS_NONE) {
        client->ops[part->op].result.elements_delivered -= part->delivered;
    }
    if (part->op != WEFT_PS_NONE) {
        weft_ps_op_part_done(client, part->op);
    } else if (part->logged) {
        client->again_open--;
    }
    if (part->logged) {
        part->op = WEFT_PS_NONE;
        weft_ps_log_done(client, part);
    }
}

/* A push stops counting as open when its message is closed, or will never be sent. */
void weft_ps_push_closed(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_shard_end *end = &client->ends[part->shard];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    bool counts = part->clock <= link->clock_closed + 2;
    WEFT_ASSERT(!counts || link->pushes_open[part->clock & 1] > 0);
    link->pushes_open[part->clock & 1] -= counts;
    if (part->update_open) {
        weft_ps_update_closed(client, part);
    }
    end->begun_open -= part->begun;
    end->list_part = end->list_part == part_index(client, part) ? WEFT_PS_NONE : end->list_part;
    part->begun = false;
    weft_once_close(&link->closed, part->number);
    while (link->number_closed < link->number &&
           weft_once_test(&link->closed, link->number_closed + 1)) {
        link->number_closed++;
    }
    if (client->vias != NULL) {
        link->pushed_ns = ps_clock_ns(client);
    }
    if (part->in_air) {
        link->pushes_flying--;
        link->flying_xor ^= part->rpc_id;
        part->in_air = false;
    }
}

void weft_ps_part_wait(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    bool flew = part->state == PART_FLYING, is_push = part->kind == WEFT_RPC_PUSH;
    if (part->failing) {
        return; /* it ends when its memory comes back */
    }
    if (part->via_sending && part->reply_closed) {
        if (!ps_log_on(client) || !is_push) {
            return; /* its shard has it; it is done when its memory comes back */
        }
        part->reply_closed = false; /* what comes back may not have it */
    }
    if (part->via) {
        weft_ps_via_recall(client, part);
    }
    if (ps_via_holds(part)) {
        weft_ps_via_close(client, part->shard);
    }
    weft_ps_unpack(client, part);
    if (part->expected && !part->reply_closed) {
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    /* Of a push that names a list: LIST was answered, or that the list is unknown. */
    bool answered = part->reply_closed && !part->list_flying && !part->list_unknown;
    if (flew && answered) {
        if (is_push && !part->request_closed) {
            weft_ps_push_closed(client, part);
        }
        weft_ps_part_done(client, part);
        return;
    }
    if (flew && !is_push && part->op != WEFT_PS_NONE && client->ops[part->op].late) {
        weft_ps_part_done(client, part); /* nobody waits for its answer, which will not come */
        return;
    }
    if (is_push && part->request_closed && !part->list_flying) {
        weft_ps_push_opened(client, part); /* confirmed, but perhaps not by what comes back */
    }
    part->expected = part->request_closed = part->reply_closed = part->begun = false;
    part->is_ahead = false; /* whoever calls counts anew */
    part->resent |= flew && !part->list_flying;
    part->head_only = part->voided;
    weft_ps_listed_reset(client, part);
    if (part->op == WEFT_PS_NONE && !is_push) {
        part->clock = 0; /* a gate: what comes back may be far from the clock that it asked for */
    }
    if (flew) {
        part->state = PART_QUEUED;
        weft_ps_part_enqueue(client, index);
        client->counters.pushes_again += is_push;
        ps_link_of(client, part->table, part->shard)->resumed.pushes_again += is_push;
    }
}

void weft_ps_part_fail(struct weft_ps_client *client, uint32_t index, weft_status status)
{
    struct ps_part *part = &client->parts[index];
    if (part->via) {
        weft_ps_via_recall(client, part);
    }
    if (ps_via_holds(part)) {
        if (!part->reply_closed) {
            part->failing = true;
            part->state = PART_FLYING;
        }
        weft_ps_via_close(client, part->shard);
        return;
    }
    if (part->expected && !part->reply_closed) {
        /* NOTFOUND: the transport has dropped it with the peer. */
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    if (part->kind == WEFT_RPC_PUSH && (!part->request_closed || part->list_flying)) {
        weft_ps_push_closed(client, part);
    }
    weft_ps_listed_reset(client, part);
    if (part->kind == WEFT_RPC_PULL && part->state == PART_FLYING && !part->via_pull) {
        client->ends[part->shard].pulls_open -= !part->request_closed;
        if (!part->reply_closed) {
            ps_pull_answered(&client->ends[part->shard], part);
        }
    }
    client->counters.rpcs_failed++;
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    weft_ps_note_status(client, part, link->gone ? link->gone_status : status,
                        link->gone_rpc_status);
    if (part->kind == WEFT_RPC_PULL) {
        weft_ps_pull_missed(client, part);
    } else if (!part->counted) {
        weft_ps_part_missed(client, part);
    }
    weft_ps_part_done(client, part);
}

/* Elements that the mask of a message covers, without its head. */
static uint32_t delivered(const struct weft_msg_event *event, uint32_t head_elems)
{
    if (event->mask == NULL || event->chunks == 0) {
        return 0;
    }
    uint64_t elems = (uint64_t)weft_bits_count(event->mask, event->chunks) * event->chunk_elems;
    if (weft_bits_test(event->mask, event->chunks - 1)) {
        elems -= (uint64_t)event->chunks * event->chunk_elems - event->total;
    }
    return (uint32_t)(weft_bits_test(event->mask, 0) ? elems - head_elems : elems);
}

/* Rows that came of a push with packed ids. */
static uint32_t delivered_rows(struct weft_ps_client *client, const struct ps_part *part,
                               const struct weft_msg_event *event)
{
    uint32_t rows = event->mask == NULL ? 0 : part->rows;
    for (size_t chunk = 0; rows > 0 && event->received < event->chunks && chunk < event->chunks;
         chunk++) {
        bool came = weft_bits_test(event->mask, chunk);
        rows -= came ? 0 : weft_ps_chunk_of(client, part, (uint32_t)chunk, false).rows.count;
    }
    return rows;
}

/* Of so many blocks that arrived. Those of one message count as encoded together where those of a chunk
 * are: a scale too few for each chunk at most. */
static uint64_t value_bytes_saved(const struct weft_table_spec *spec, bool is_push, bool together,
                                  uint64_t blocks)
{
    const uint64_t plain = blocks * weft_table_block_floats(spec) * sizeof(float);
    return plain - (!is_push   ? blocks * weft_table_pull_block_bytes(spec)
                    : together ? weft_table_push_blocks_bytes(spec, blocks)
                               : blocks * weft_table_push_block_bytes(spec));
}

static void count_flow(struct weft_ps_client *client, struct ps_part *part,
                       const struct weft_msg_event *event, uint32_t head_bytes)
{
    bool is_push = part->kind == WEFT_RPC_PUSH;
    struct weft_ps_flow *flow = is_push ? &client->counters.push : &client->counters.pull;
    struct weft_ps_result *result = &client->ops[part->op].result;
    uint32_t head_elems = weft_rpc_head_elems(head_bytes, event->elem_bytes);
    bool packed = is_push && part->list.id_bytes == WEFT_RPC_ID_PACKED;
    uint32_t sent = packed ? part->rows : event->total - head_elems;
    uint32_t got = packed ? delivered_rows(client, part, event) : delivered(event, head_elems);
    bool is_short = event->received < event->chunks;
    if (event->outcome == WEFT_MSG_UNKNOWN && part->bound_ppm == 0 && part->reply_closed) {
        got = sent; /* it was answered, but its shard died before it confirmed the last chunks */
        is_short = false;
    }
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    client->counters.value_bytes_saved += value_bytes_saved(spec, is_push, packed, got);
    part->delivered = got;
    part->is_short = is_short;
    flow->messages++;
    flow->messages_short += is_short;
    flow->elements_sent += sent;
    flow->elements_delivered += got;
    flow->chunks_refused += event->refused;
    result->elements_sent += sent;
    result->elements_delivered += got;
    result->rpcs_short += is_short;
    result->chunks_refused += event->refused;
    if (is_push && (is_short || event->refused > 0)) {
        weft_ps_push_missed(client, part, event);
    }
    if (is_push && is_short) {
        weft_ps_residual_keep(client, part, event);
    }
}

void weft_ps_part_sent(struct weft_ps_client *client, uint32_t index,
                       const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    struct weft_msg_event lost;
    if (part->via_sending) {
        weft_ps_via_sent(client, index, event);
        return;
    }
    WEFT_ASSERT(part->state == PART_FLYING && !part->request_closed);
    if (part->list_flying) {
        weft_ps_list_sent(client, index, event);
        return;
    }
    client->ends[part->shard].pulls_open -= part->kind == WEFT_RPC_PULL;
    if (event->outcome == WEFT_MSG_WITHDRAWN) {
        weft_ps_update_withdrawn(client, index);
        return;
    }
    if (event->outcome == WEFT_MSG_UNKNOWN && client->config.reconnect_ns > 0 &&
        (!part->reply_closed || part->list_unknown)) {
        return; /* PEER_DOWN follows: then it waits to be sent again */
    }
    if (weft_ps_listed_sent(client, index, event)) {
        return;
    }
    bool is_lost = weft_ps_listed_lost(client, part, event, &lost);
    weft_ps_push_sent(client, index, is_lost ? &lost : event);
}

void weft_ps_push_count(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event)
{
    if (!part->counted) { /* else only zeros stand for what was lost then */
        part->refused = event->refused;
        weft_ps_push_note(client, part, event);
        count_flow(client, part, event, WEFT_RPC_REQUEST_BYTES);
        part->counted = true;
    }
}

void weft_ps_push_sent(struct weft_ps_client *client, uint32_t index,
                       const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (!part->head_only) {
        part->refused = event->refused;
    }
    if (part->kind == WEFT_RPC_PUSH) {
        weft_ps_push_count(client, part, event);
        if (event->outcome == WEFT_MSG_SHORT) {
            client->counters.late++;
            bool headless = event->mask == NULL || !weft_bits_test(event->mask, 0);
            if (headless && !part->reply_closed) {
                weft_ps_push_headless(client, index);
                return;
            }
        }
        weft_ps_push_closed(client, part);
    }
    part->request_closed = true;
    if (part->reply_closed) {
        weft_ps_part_done(client, part);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* An answer with rows must have exactly the grid that was asked for. */
static bool rows_match(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    uint16_t elem_bytes = weft_table_pull_elem_bytes(spec);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes);
    return event->elem_bytes == elem_bytes && event->chunk_elems >= head_elems &&
           event->total == head_elems + part->rows * weft_table_blocks(spec);
}

bool weft_ps_reply_head(const struct ps_part *part, const struct weft_msg_event *event,
                        uint32_t rpc_id, struct weft_rpc_reply *reply_p)
{
    size_t chunk0_bytes =
        (size_t)weft_min_u64(event->chunk_elems, event->total) * event->elem_bytes;
    return event->mask != NULL && weft_bits_test(event->mask, 0) &&
           weft_rpc_reply_unpack(part->reply, chunk0_bytes, reply_p) == WEFT_OK &&
           reply_p->rpc_id == rpc_id;
}

/* Returns false when the answer makes no sense. */
static bool take_answer(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event, struct weft_rpc_reply *reply_p)
{
    if (!weft_ps_reply_head(part, event, part->rpc_id, reply_p)) {
        return false;
    }
    bool good = reply_p->status == WEFT_RPC_OK;
    if (ps_part_resumes(part) && good) {
        struct weft_rpc_pushes theirs;
        return event->elem_bytes == 1 &&
               event->total == WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES &&
               weft_rpc_pushes_unpack(part->reply + WEFT_RPC_REPLY_BYTES, &theirs) == WEFT_OK;
    }
    bool rows_wanted = part->kind == WEFT_RPC_PULL && part->rows > 0 && good;
    if (!rows_wanted) {
        return event->elem_bytes == WEFT_RPC_REPLY_BYTES && event->total == 1;
    }
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    bool counts = counts_updates(part, link);
    if ((!counts && reply_p->rows != part->rows) || !rows_match(client, part, event)) {
        return false;
    }
    if (counts) {
        weft_ps_update_told(client, part->shard, reply_p->rows);
    }
    if (ps_op_lent(&client->ops[part->op])) {
        weft_ps_rows_scatter(client, part, event);
    }
    count_flow(client, part, event, WEFT_RPC_REPLY_BYTES);
    return true;
}

static void write_down(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                       const struct weft_rpc_latency *latency)
{
    weft_record_put_rpc(
        client->config.records, part->table,
        &(struct weft_record_rpc){
            .worker = client->config.worker,
            .server = part->shard,
            .rpc = part->rpc_id,
            .iteration = part->iteration,
            .rows = part->rows,
            .status = reply->status,
            .kind = part->kind,
            .t0_ns = reply->t0_ns,
            .t1_ns = event->at_ns,
            .request_bytes = (uint64_t)part->request_elems * part->request_elem_bytes,
            .reply_bytes = (uint64_t)event->total * event->elem_bytes,
            .latency = *latency,
        });
}

static void record(struct weft_ps_client *client, const struct ps_part *part,
                   const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                   const struct weft_rpc_latency *latency)
{
    if (part->op == WEFT_PS_NONE || part->kind == WEFT_RPC_TABLE || part->cut) {
        return;
    }
    uint64_t total_ns = event->at_ns > reply->t0_ns ? event->at_ns - reply->t0_ns : 0;
    write_down(client, part, event, reply, latency);
    struct weft_ps_latencies *all =
        part->kind == WEFT_RPC_PUSH ? &client->push_latencies : &client->pull_latencies;
    weft_hist_add(&all->w_proc, latency->w_proc_ns);
    weft_hist_add(&all->w_queue, latency->w_queue_ns);
    weft_hist_add(&all->ps_proc, latency->ps_proc_ns);
    weft_hist_add(&all->ps_queue, latency->ps_queue_ns);
    weft_hist_add(&all->ps_wait, latency->ps_wait_ns);
    weft_hist_add(&all->n_tx, latency->n_tx_ns);
    weft_hist_add(&all->total, total_ns);
}

/* After a break the shard had ended the push's clock without this worker. */
static bool was_passed(const struct ps_link *link, const struct ps_part *part,
                       const struct weft_rpc_reply *reply)
{
    return part->kind == WEFT_RPC_PUSH && reply->status == WEFT_RPC_STALE_CLOCK &&
           part->clock <= link->clock_passed;
}

/* Its shard applied nothing of it, as if the scheduler had dropped it. */
static void refused_late(struct weft_ps_client *client, struct ps_part *part)
{
    part->late = true;
    weft_ps_update_late(client, part);
    weft_ps_part_missed(client, part);
    weft_ps_residual_keep_all(client, part); /* zeros where it was kept as lost */
    client->counters.pushes_late++;
    if (part->op != WEFT_PS_NONE) {
        client->ops[part->op].result.rpcs_dropped++;
    }
}

static void answered(struct weft_ps_client *client, struct ps_part *part,
                     const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                     uint64_t taken_ns)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    part->passed = was_passed(link, part, reply);
    client->counters.pushes_passed += part->passed && part->op != WEFT_PS_NONE;
    link->clock_known = reply->clock > link->clock_known ? reply->clock : link->clock_known;
    if (part->kind == WEFT_RPC_TABLE && reply->status == WEFT_RPC_OK) {
        link->opened = true;
        link->can = reply->can & client->config.can;
        link->clock_closed = reply->rows;
    }
    if (reply->status == WEFT_RPC_OK) {
        weft_ps_list_used(client, part, reply);
    }
    client->counters.rpcs_refused += reply->status != WEFT_RPC_OK && !part->passed;
    client->counters.pushes_lost +=
        part->op == WEFT_PS_NONE && part->logged && reply->status != WEFT_RPC_OK;
    bool is_late = part->kind == WEFT_RPC_PUSH && reply->status == WEFT_RPC_LATE;
    if (is_late) {
        refused_late(client, part);
    }
    weft_ps_note_status(client, part, WEFT_OK,
                        part->passed || is_late ? WEFT_RPC_OK : reply->status);
    if (reply->status != WEFT_RPC_OK) {
        weft_ps_pull_missed(client, part);
    }
    struct weft_rpc_latency latency =
        weft_rpc_latency_make(reply, event->at_ns, taken_ns, ps_clock_ns(client));
    record(client, part, event, reply, &latency);
    if (part->op != WEFT_PS_NONE) {
        struct weft_ps_result *result = &client->ops[part->op].result;
        bool good = result->status == WEFT_OK && result->rpc_status == WEFT_RPC_OK;
        result->latency = latency;
        result->shard = good ? part->shard : result->shard;
        result->clock = reply->clock < result->clock ? reply->clock : result->clock;
    }
}

/* Rows that came by the deadline, but not what says how long it all took. */
static void take_headless(struct weft_ps_client *client, struct ps_part *part,
                          const struct weft_msg_event *event)
{
    if (!rows_match(client, part, event)) {
        weft_ps_pull_missed(client, part); /* it was no answer with rows */
        return;
    }
    if (ps_op_lent(&client->ops[part->op])) {
        weft_ps_rows_scatter(client, part, event);
    }
    count_flow(client, part, event, WEFT_RPC_REPLY_BYTES);
}

void weft_ps_part_reply(struct weft_ps_client *client, uint32_t index,
                        const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (part->via_answering) {
        weft_ps_via_answer_over(client, index);
        return;
    }
    WEFT_ASSERT(part->state == PART_FLYING && !part->reply_closed);
    if (part->list_flying) {
        weft_ps_list_reply(client, index, event);
        return;
    }
    bool gone = event->outcome != WEFT_MSG_COMPLETE && event->sender_gone;
    if (gone && (client->config.reconnect_ns > 0 || part->via)) {
        part->expected &= !part->via;
        return; /* only because the shard has gone: PEER_DOWN follows */
    }
    /* A shard ends no answer before it is whole, or as whole as its bound wants. */
    bool is_short = event->outcome != WEFT_MSG_COMPLETE;
    bool may_be_short = reply_until(client, part) != 0;
    uint64_t taken_ns = ps_clock_ns(client);
    struct weft_rpc_reply reply;
    part->reply_closed = true;
    if (part->kind == WEFT_RPC_PULL) {
        ps_pull_answered(&client->ends[part->shard], part);
    }
    if (gone) {
        /* Less than the bound promises: nothing of it is used, the rows keep their old values. */
        client->counters.rpcs_failed++;
        weft_ps_note_status(client, part, WEFT_PEER, WEFT_RPC_OK);
        weft_ps_pull_missed(client, part);
    } else if (is_short && may_be_short && !weft_bits_test(event->mask, 0)) {
        take_headless(client, part, event);
    } else if (ps_part_resumes(part)) {
        bool good = !is_short && take_answer(client, part, event, &reply);
        client->counters.replies_bad += !good;
        weft_ps_resume_answered(client, part, good ? &reply : NULL);
    } else if ((!is_short || may_be_short) && take_answer(client, part, event, &reply)) {
        if (part->listed && !part->head_only && !part->with_ids &&
            reply.status == WEFT_RPC_UNKNOWN_LIST) {
            weft_ps_listed_unknown(client, index, &reply);
            return;
        }
        if (part->via && reply.status != WEFT_RPC_OK) {
            weft_ps_via_answered(client, index, false);
            return;
        }
        answered(client, part, event, &reply, taken_ns);
        if (part->via) {
            weft_ps_via_answered(client, index, true);
            return;
        }
    } else if (part->via) {
        client->counters.replies_bad++;
        weft_ps_via_answered(client, index, false);
        return;
    } else {
        client->counters.replies_bad++;
        weft_ps_note_status(client, part, WEFT_PROTO, WEFT_RPC_OK);
        weft_ps_pull_missed(client, part);
    }
    if (part->held) {
        weft_ps_listed_answered(client, index);
    } else if (part->request_closed) {
        weft_ps_part_done(client, part);
    }
}
