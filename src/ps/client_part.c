/* One RPC of a worker, a part of an operation: built with its request, and completed.
 *
 * In between: client_queue.c (order of sending), client_send.c (send), client_sent.c (the request
 * is closed), client_reply.c (the answer).
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "ps/layout.h"

#include <string.h>

/* ---- building -------------------------------------------------------------------------------- */

size_t weft_ps_op_buffer_bytes(const struct weft_ps_client_config *config, uint32_t parts_per_op)
{
    size_t row_bytes = weft_table_row_push_bytes_max(config->dim_max);
    /* Two heads padded to elements and two alignments; or the body of TABLE. */
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
                                const struct weft_ps_list *list, uint32_t shard,
                                const uint32_t *order, uint32_t rows)
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
        size_t request_bytes = ps_align8((size_t)request_elems * request_elem_bytes);
        part->request = weft_ps_log_memory(client, request_bytes + ps_align8(reply_bytes));
        part->reply = part->request + request_bytes;
        return;
    }
    part->request = op->buffer + op->buffer_used;
    op->buffer_used += ps_align8((size_t)request_elems * request_elem_bytes);
    part->reply = op->buffer + op->buffer_used;
    op->buffer_used += ps_align8(reply_bytes);
    WEFT_ASSERT(op->buffer_used <= weft_ps_op_buffer_bytes(&client->config, client->parts_per_op));
}

void weft_ps_part_trim(struct weft_ps_client *client, struct ps_part *part, size_t bytes,
                       size_t used)
{
    size_t now = ps_align8(used), left = ps_align8(bytes) - now;
    part->reply = part->request + now;
    if (part->logged) {
        weft_ps_log_give_back(client, left);
    } else {
        client->ops[part->op].buffer_used -= left;
    }
}

uint32_t weft_ps_part_table(struct weft_ps_client *client, uint32_t op, uint32_t shard)
{
    const struct weft_ps_list none = {.table = client->ops[op].table};
    struct ps_part *part = part_add(client, op, &none, shard, NULL, 0);
    weft_ps_part_memory(client, part, WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES, 1,
                        WEFT_RPC_REPLY_BYTES);
    part->clock = 0;
    weft_table_spec_pack(&client->tables[part->table].spec, part->request + WEFT_RPC_REQUEST_BYTES);
    return ps_part_index(client, part);
}

uint32_t weft_ps_part_push(struct weft_ps_client *client, uint32_t op,
                           const struct weft_ps_list *list, uint32_t shard, const uint32_t *order,
                           uint32_t rows, uint32_t list_number)
{
    struct ps_part *part = part_add(client, op, list, shard, order, rows);
    const struct ps_table *table = &client->tables[part->table];
    part->clock = table->clock + 1;
    if (list_number != 0 && weft_ps_listed_make(client, part, list_number)) {
        return ps_part_index(client, part);
    }
    uint16_t elem_bytes = weft_table_push_elem_bytes(&table->spec, list->id_bytes);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes);
    uint32_t total = head_elems + rows * weft_table_blocks(&table->spec);
    if (client->ends[shard].down) {
        part->request = part->logged ? weft_ps_log_memory(client, 8) : NULL;
        return ps_part_index(client, part); /* will fail when it is queued */
    }
    weft_ps_part_memory(client, part, total, elem_bytes, WEFT_RPC_REPLY_BYTES);
    if (weft_ps_pack(client, part, total * elem_bytes)) {
        weft_ps_part_trim(client, part, (size_t)total * elem_bytes, part->request_elems);
        return ps_part_index(client, part);
    }
    memset(part->request, 0, (size_t)head_elems * elem_bytes);
    uint32_t chunk_elems = weft_ps_chunk_elems(weft_ps_packet_elems(client, shard, elem_bytes),
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
    return ps_part_index(client, part);
}

static uint32_t pull_need_clock(const struct ps_table *table)
{
    uint32_t behind = table->spec.mode == WEFT_TABLE_BSP   ? 0
                      : table->spec.mode == WEFT_TABLE_SSP ? table->spec.staleness
                                                           : UINT32_MAX;
    return table->clock > behind ? table->clock - behind : 0;
}

uint32_t weft_ps_part_pull(struct weft_ps_client *client, uint32_t op,
                           const struct weft_ps_list *list, uint32_t shard, const uint32_t *order,
                           uint32_t rows)
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
    return ps_part_index(client, part);
}

/* ---- ending ---------------------------------------------------------------------------------- */

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

/* Upper bound of the elements in refused chunks; the first and the last chunk have fewer. */
static uint32_t refused_elems(const struct ps_part *part)
{
    uint64_t of_chunk =
        part->list.id_bytes == WEFT_RPC_ID_PACKED ? part->chunk_rows : part->request_chunk_elems;
    return (uint32_t)weft_min_u64(part->refused * of_chunk, part->delivered);
}

/* Elements that the shard refused count as not delivered, as if the network had lost them. The part
 * has one refusal, so they are subtracted once. */
static void count_refusal(struct weft_ps_client *client, const struct ps_part *part)
{
    struct weft_ps_result *result = &client->ops[part->op].result;
    if (part->refusal == REFUSAL_LATE) {
        result->elements_delivered -= part->delivered;
    } else if (part->refusal == REFUSAL_PASSED && part->refused > 0) {
        result->elements_delivered -= refused_elems(part);
        result->rpcs_short += !part->is_short;
    }
}

void weft_ps_part_done(struct weft_ps_client *client, struct ps_part *part)
{
    ps_part_to(part, PART_DONE);
    if (part->update != 0) {
        weft_ps_update_part_done(client, part);
    }
    if (part->op != WEFT_PS_NONE) {
        count_refusal(client, part);
    }
    if (part->op != WEFT_PS_NONE) {
        weft_ps_op_part_done(client, part->op);
    } else if (part->logged) {
        client->resent_open--;
    }
    if (part->logged) {
        part->op = WEFT_PS_NONE;
        weft_ps_log_done(client, part);
    }
}

void weft_ps_number_closed(struct weft_ps_client *client, struct ps_link *link, uint32_t clock,
                           uint64_t number)
{
    bool counts = clock <= link->clock_closed + 2;
    WEFT_ASSERT(!counts || link->pushes_open[clock & 1] > 0);
    link->pushes_open[clock & 1] -= counts;
    weft_push_window_close(&link->closed, number);
    while (link->number_closed < link->number &&
           weft_push_window_test(&link->closed, link->number_closed + 1)) {
        link->number_closed++;
    }
    if (client->vias != NULL) {
        link->pushed_ns = ps_clock_ns(client);
    }
}

/* A push stops counting as open when its message is closed, or will never be sent. */
void weft_ps_push_closed(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_shard_end *end = &client->ends[part->shard];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    if (part->update_open) {
        weft_ps_update_closed(client, part);
    }
    end->begun_open -= part->begun;
    end->list_part = end->list_part == ps_part_index(client, part) ? WEFT_PS_NONE : end->list_part;
    part->begun = false;
    weft_ps_number_closed(client, link, part->clock, part->number);
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
        return; /* it ends when the transport returns its memory */
    }
    if (part->via_sending && part->answer == ANSWER_CLOSED) {
        if (!ps_log_on(client) || !is_push) {
            return; /* its shard has it; it is done when the transport returns its memory */
        }
        part->answer = ANSWER_NONE; /* a restarted shard may not have the push */
    }
    if (ps_part_is_via(part)) {
        weft_ps_via_recall(client, part);
    }
    if (ps_via_holds(part)) {
        weft_ps_via_close(client, part);
    }
    weft_ps_unpack(client, part);
    if (part->answer == ANSWER_POSTED) {
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    /* If the push names a list, the closed answer may be that to LIST, or UNKNOWN_LIST. */
    bool answered = part->answer == ANSWER_CLOSED && part->message != MESSAGE_LIST &&
                    part->list_doubt != DOUBT_UNKNOWN;
    if (flew && answered) {
        if (is_push && !part->request_closed) {
            weft_ps_push_closed(client, part);
        }
        weft_ps_part_done(client, part);
        return;
    }
    if (flew && !is_push && part->op != WEFT_PS_NONE && client->ops[part->op].late) {
        weft_ps_part_done(client, part); /* no operation waits for its answer, which will not
                                          * arrive */
        return;
    }
    if (is_push && part->request_closed && part->message != MESSAGE_LIST) {
        weft_ps_push_opened(client, part); /* acknowledged, but a restarted shard may lack it */
    }
    part->answer = ANSWER_NONE;
    part->request_closed = part->begun = false;
    part->is_ahead = false; /* the caller recounts */
    part->resent |= flew && part->message != MESSAGE_LIST;
    ps_part_rows_to(part, ROWS_GO);
    weft_ps_listed_reset(client, part);
    if (part->op == WEFT_PS_NONE && !is_push) {
        part->clock = 0; /* a clock probe: a restarted shard may be far from the requested clock */
    }
    if (flew) {
        ps_part_to(part, PART_QUEUED);
        weft_ps_part_enqueue(client, index);
        client->counters.pushes_resent += is_push;
        ps_link_of(client, part->table, part->shard)->resumed.pushes_resent += is_push;
    }
}

void weft_ps_part_fail(struct weft_ps_client *client, uint32_t index, weft_status status)
{
    struct ps_part *part = &client->parts[index];
    if (ps_part_is_via(part)) {
        weft_ps_via_recall(client, part);
    }
    if (ps_via_holds(part)) {
        if (part->answer != ANSWER_CLOSED) {
            part->failing = true;
            ps_part_to(part, PART_FLYING);
        }
        weft_ps_via_close(client, part);
        return;
    }
    if (part->answer == ANSWER_POSTED) {
        /* NOTFOUND: the transport has dropped it with the peer. */
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
    }
    if (part->kind == WEFT_RPC_PUSH && (!part->request_closed || part->message == MESSAGE_LIST)) {
        weft_ps_push_closed(client, part);
    }
    weft_ps_listed_reset(client, part);
    if (part->kind == WEFT_RPC_PULL && part->state == PART_FLYING && !part->via_pull) {
        client->ends[part->shard].pulls_open -= !part->request_closed;
        if (part->answer != ANSWER_CLOSED) {
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
