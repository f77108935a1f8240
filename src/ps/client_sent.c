/* The request of a part is closed: count what arrived. */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"

/* Number of elements received according to the mask of a message, without its head. */
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

/* Number of rows that arrived of a push with packed ids. */
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

/* Bytes saved by `blocks` blocks that arrived. The blocks of one message are counted as encoded
 * together if those of a chunk are, so at most one scale per chunk is not counted. */
static uint64_t value_bytes_saved(const struct weft_table_spec *spec, bool is_push, bool together,
                                  uint64_t blocks)
{
    const uint64_t plain = blocks * weft_table_block_floats(spec) * sizeof(float);
    return plain - (!is_push   ? blocks * weft_table_pull_block_bytes(spec)
                    : together ? weft_table_push_blocks_bytes(spec, blocks)
                               : blocks * weft_table_push_block_bytes(spec));
}

void weft_ps_count_flow(struct weft_ps_client *client, struct ps_part *part,
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
    /* It was answered, so the chunk with its head had arrived; but who answered, its shard or the
     * aggregator, died before it confirmed the last chunks. */
    const bool unconfirmed = event->outcome == WEFT_MSG_UNKNOWN && part->answer == ANSWER_CLOSED;
    const bool passed = unconfirmed && part->refusal == REFUSAL_PASSED;
    if (passed) { /* which chunks the shard refused is not known: some, or all */
        got = 0;
        is_short = true;
        weft_ps_part_missed(client, part);
    } else if (unconfirmed && (part->bound_ppm == 0 || event->chunks == 1)) {
        got = sent;
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
    if (is_push && is_short && !passed) {
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
    if (part->message == MESSAGE_LIST) {
        weft_ps_list_sent(client, index, event);
        return;
    }
    client->ends[part->shard].pulls_open -= part->kind == WEFT_RPC_PULL;
    if (event->outcome == WEFT_MSG_WITHDRAWN) {
        weft_ps_update_withdrawn(client, index);
        return;
    }
    if (event->outcome == WEFT_MSG_UNKNOWN && client->config.reconnect_ns > 0 &&
        (part->answer != ANSWER_CLOSED || part->list_doubt == DOUBT_UNKNOWN)) {
        return; /* PEER_DOWN follows, which requeues it */
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
    if (!part->counted) { /* otherwise the lost rows are zeros in the request */
        part->refused = event->refused;
        weft_ps_push_note(client, part, event);
        weft_ps_count_flow(client, part, event, WEFT_RPC_REQUEST_BYTES);
        part->counted = true;
    }
}

void weft_ps_push_sent(struct weft_ps_client *client, uint32_t index,
                       const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (!ps_part_head_only(part)) {
        part->refused = event->refused;
    }
    if (part->kind == WEFT_RPC_PUSH) {
        weft_ps_push_count(client, part, event);
        if (event->outcome == WEFT_MSG_SHORT) {
            client->counters.deadlines_expired++;
            bool headless = event->mask == NULL || !weft_bits_test(event->mask, 0);
            if (headless && part->answer != ANSWER_CLOSED) {
                weft_ps_push_headless(client, index);
                return;
            }
        }
        weft_ps_push_closed(client, part);
    }
    part->request_closed = true;
    if (part->answer == ANSWER_CLOSED) {
        weft_ps_part_done(client, part);
    }
}
