/* Pushes that name a list of ids instead of sending the ids: layout, sending, and recovery when the
 * shard does not have the list.
 *
 * The request has chunks of values. Its contents, number and grid never change, so the chunks that
 * a shard has applied stay the same however often it is sent. Its ids are stored after it, for LIST
 * and for state kept by id (rows missing twice, lost gradients).
 *
 *     push -> UNKNOWN_LIST: nothing of this message was applied -> LIST -> the same push
 *     the connection broke: the shard that comes back may be another one -> LIST -> the same push
 *     LIST refused, or not granted, or the packets became too short -> the same rows with their ids
 *
 * The push remains one part, and LIST is sent for this part, so an answer to LIST cannot be
 * mistaken for that of another push. A shard has memory for one LIST per worker: only one push per
 * shard uses it at a time, from LIST to the end of the push. LIST is built when it is sent, in a
 * single buffer, so the client has one LIST in flight at a time. It waits for nothing else: a shard
 * answers LIST at once.
 *
 * A push with its ids is sent from the buffer of LIST, with bound 0, and its SENT is translated to
 * the chunks of the push. If the shard has begun the push in the original chunks, it could not tell
 * which rows it lacks, so the push is ended.
 *
 * The answer reports UNKNOWN_LIST, and SENT reports the chunks, in either order. All chunks of a
 * message whose list is unknown are refused. So SENT without a refusal is processed at once; with
 * one it is held until the answer arrives.
 *
 * Source: docs/PROTOCOL.md section 7, "Lists"; [li14] section 3.6, "Messages".
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/id_pack.h"
#include "ps/values.h"

#include <string.h>

/* A shard that reports UNKNOWN_LIST again after LIST violates the protocol. */
enum { TRIES_MAX = 4 };

/* After the list of a push was unknown, the next 2, 4, ... pushes of the link are sent with ids, so
 * that hardly any push is sent twice if shards evict lists before their use. */
enum { MISSES_MAX = 8 };

/* SENT, held until the answer determines its meaning. The mask follows. */
struct ps_held {
    struct weft_msg_event event;
};

/* Flag in the length of a chunk's ids: they are packed, as in pushes that are kept for long. */
#define IDS_PACKED UINT32_C(0x80000000)

/* ---- laying out ------------------------------------------------------------------------------ */

/* Every chunk but the last has chunk_bytes; the first contains the head and fewer rows. */
struct layout {
    uint32_t chunk_bytes;
    uint32_t first_rows;
    uint32_t rows;
    uint32_t chunks;
    uint64_t bytes;
};

enum { FIRST_OVERHEAD = WEFT_RPC_REQUEST_BYTES + WEFT_PS_LISTED_HEAD_BYTES };

/* False: no room for rows in this many bytes. */
static bool layout_of(uint32_t chunk_bytes, const struct weft_table_spec *spec, uint32_t rows,
                      struct layout *layout_p)
{
    const uint32_t most = weft_ps_chunk_rows_max(spec);
    const uint32_t least_bytes = FIRST_OVERHEAD + weft_table_push_block_bytes(spec);
    struct layout l = {.chunk_bytes = chunk_bytes};
    if (chunk_bytes < least_bytes) {
        return false;
    }
    l.rows = weft_table_push_blocks_within(spec, chunk_bytes - WEFT_PS_LISTED_HEAD_BYTES);
    l.rows = l.rows < most ? l.rows : most;
    uint32_t exact =
        WEFT_PS_LISTED_HEAD_BYTES + (uint32_t)weft_table_push_blocks_bytes(spec, l.rows);
    l.chunk_bytes = exact < least_bytes ? chunk_bytes : exact;
    l.first_rows = weft_table_push_blocks_within(spec, l.chunk_bytes - FIRST_OVERHEAD);
    l.first_rows = l.first_rows < rows ? l.first_rows : rows;
    uint32_t left = rows - l.first_rows, more = (uint32_t)weft_div_ceil_u64(left, l.rows);
    l.chunks = 1 + more;
    l.bytes = more == 0 ? FIRST_OVERHEAD + weft_table_push_blocks_bytes(spec, rows)
                        : (uint64_t)more * l.chunk_bytes + WEFT_PS_LISTED_HEAD_BYTES +
                              weft_table_push_blocks_bytes(spec, left - (more - 1) * l.rows);
    *layout_p = l;
    return true;
}

static bool lay_out(const struct weft_ps_client *client, const struct ps_part *part,
                    uint64_t plain_bytes, struct layout *layout_p)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    uint32_t packet_elems = weft_ps_packet_elems(client, part->shard, WEFT_RPC_ID_PACKED);
    uint32_t chunk_bytes = weft_ps_chunk_elems(packet_elems, WEFT_RPC_ID_PACKED,
                                               WEFT_RPC_REQUEST_BYTES, part->bound_ppm);
    chunk_bytes = (uint32_t)weft_min_u64(chunk_bytes, WEFT_PS_PACKED_CHUNK_BYTES);
    if (!layout_of(chunk_bytes, spec, part->rows, layout_p)) {
        return false;
    }
    uint32_t wanted = weft_ps_chunks_wanted(part, (uint32_t)plain_bytes);
    return layout_p->chunks >= wanted ||
           layout_of((uint32_t)(layout_p->bytes / wanted), spec, part->rows, layout_p);
}

/* First row of a chunk; its number of rows. */
static uint32_t chunk_first(const struct layout *l, uint32_t rows, uint32_t chunk, uint32_t *n_p)
{
    uint32_t first = chunk == 0 ? 0 : l->first_rows + (chunk - 1) * l->rows;
    uint32_t most = chunk == 0 ? l->first_rows : l->rows;
    *n_p = most < rows - first ? most : rows - first;
    return first;
}

static void fill(struct weft_ps_client *client, const struct ps_part *part, const struct layout *l)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    memset(part->request, 0, WEFT_RPC_REQUEST_BYTES);
    for (uint32_t k = 0, n; k < l->chunks; k++) {
        uint32_t first = chunk_first(l, part->rows, k, &n);
        uint8_t *chunk = part->request + (size_t)k * l->chunk_bytes;
        uint8_t *at = chunk + (k == 0 ? WEFT_RPC_REQUEST_BYTES : 0);
        weft_ps_listed_head(at, first, n, part->list_number);
        at += WEFT_PS_LISTED_HEAD_BYTES;
        weft_ps_rows_blocks(part, spec, first, n, at);
        at += weft_table_push_blocks_bytes(spec, n);
        if (k + 1 < l->chunks) {
            memset(at, 0, (size_t)(chunk + l->chunk_bytes - at));
        }
    }
}

static uint64_t id_at(const struct ps_part *part, uint32_t row)
{
    return ps_list_id(&part->list, ps_part_row(part, row));
}

/* Pack the ids of rows first .. first + n - 1. 0: not shorter than `most` bytes. */
static uint32_t pack_ids(const struct ps_part *part, uint32_t first, uint32_t n, uint8_t *out,
                         uint32_t most)
{
    uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX];
    uint64_t ids[WEFT_IDS_BLOCK], before = 0;
    uint32_t bytes = 0;
    for (uint32_t done = 0, taken; done < n; done += taken) {
        uint32_t count = (uint32_t)weft_min_u64(WEFT_IDS_BLOCK, n - done);
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = id_at(part, first + done + i);
        }
        uint32_t more = (uint32_t)weft_ids_pack_block(ids, count, before, block, &taken);
        if (bytes + more >= most) {
            return 0;
        }
        memcpy(out + bytes, block, more);
        bytes += more;
        before = ids[taken - 1];
    }
    return bytes;
}

/* Store the ids after the request. Returns their end. In a push that is kept until it is durable,
 * the ids of each chunk are packed if that is shorter, after their length. */
static uint8_t *keep_ids(struct ps_part *part, const struct layout *l, uint8_t *out)
{
    const uint32_t id_bytes = part->plain_id_bytes;
    part->list_ids = out;
    if (!part->logged) {
        for (uint32_t r = 0; r < part->rows; r++) {
            weft_ps_store_id(out, id_bytes, r, id_at(part, r));
        }
        return out + (size_t)part->rows * id_bytes;
    }
    for (uint32_t k = 0, n; k < l->chunks; k++) {
        uint32_t first = chunk_first(l, part->rows, k, &n);
        uint32_t bytes = pack_ids(part, first, n, out + sizeof(bytes), n * id_bytes);
        uint32_t head = bytes | IDS_PACKED;
        if (bytes == 0) {
            head = bytes = n * id_bytes;
            for (uint32_t i = 0; i < n; i++) {
                weft_ps_store_id(out + sizeof(bytes), id_bytes, i, id_at(part, first + i));
            }
        }
        memcpy(out, &head, sizeof(head));
        out += sizeof(head) + bytes;
    }
    return out;
}

void weft_ps_listed_ids(const struct ps_part *part, uint32_t chunk,
                        const struct weft_ps_chunk_rows *rows, uint64_t *out)
{
    const uint32_t id_bytes = part->plain_id_bytes;
    if (!part->logged) {
        weft_ps_load_ids(part->list_ids + (size_t)rows->first * id_bytes, id_bytes, rows->count,
                         out);
        return;
    }
    const uint8_t *at = part->list_ids;
    uint32_t head;
    memcpy(&head, at, sizeof(head));
    for (uint32_t k = 0; k < chunk; k++) {
        at += sizeof(head) + (head & ~IDS_PACKED);
        memcpy(&head, at, sizeof(head));
    }
    at += sizeof(head);
    if ((head & IDS_PACKED) == 0) {
        weft_ps_load_ids(at, id_bytes, rows->count, out);
    } else {
        bool good = weft_ids_unpack(at, head & ~IDS_PACKED, rows->count, out);
        WEFT_ASSERT(good); /* packed by this client */
    }
}

bool weft_ps_listed_make(struct weft_ps_client *client, struct ps_part *part, uint32_t list)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    const struct ps_shard_end *end = &client->ends[part->shard];
    if (end->down || end->away || part->rows == 0 || weft_table_blocks(spec) > 1 ||
        !weft_ps_rows_whole(part, spec)) {
        return false;
    }
    const uint32_t id_bytes = part->list.id_bytes;
    const uint32_t elem_bytes = weft_table_push_elem_bytes(spec, part->list.id_bytes);
    const uint64_t plain_bytes =
        (uint64_t)(weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes) + part->rows) *
        elem_bytes;
    struct layout l;
    if (!lay_out(client, part, plain_bytes, &l) || l.bytes >= plain_bytes) {
        return false;
    }
    size_t ids_bytes = (size_t)part->rows * id_bytes + (part->logged ? l.chunks * 4 : 0);
    size_t held_bytes = sizeof(struct ps_held) + WEFT_BITS_WORDS((size_t)l.chunks) * 8;
    size_t most = ps_align8(l.bytes) + ps_align8(ids_bytes) + held_bytes;
    if (most > plain_bytes + ps_listed_extra(plain_bytes)) {
        return false; /* the packets are far too short */
    }
    weft_ps_part_memory(client, part, (uint32_t)most, 1, WEFT_RPC_REPLY_BYTES);
    part->listed = true;
    part->list_number = list;
    part->plain_id_bytes = part->list.id_bytes;
    part->list.id_bytes = WEFT_RPC_ID_PACKED;
    part->request_elems = (uint32_t)l.bytes;
    part->request_elem_bytes = WEFT_RPC_ID_PACKED;
    part->request_chunk_elems = (uint16_t)l.chunk_bytes;
    part->chunk_rows = (uint16_t)l.rows;
    fill(client, part, &l);
    uint8_t *ids_end = keep_ids(part, &l, part->request + ps_align8(l.bytes));
    part->list_held =
        (struct ps_held *)(void *)(part->request + ps_align8((size_t)(ids_end - part->request)));
    weft_ps_part_trim(client, part, most,
                      (size_t)((uint8_t *)part->list_held - part->request) + held_bytes);
    for (uint32_t k = 0; k < l.chunks; k++) {
        weft_ps_residual_add(client, part, k);
    }
    return true;
}

/* ---- LIST ------------------------------------------------------------------------------------ */

bool weft_ps_listed_may_go(const struct weft_ps_client *client, const struct ps_part *part)
{
    uint32_t holder = client->ends[part->shard].list_part;
    if (ps_listed_goes_with_ids(part)) {
        return client->list_part == WEFT_PS_NONE;
    }
    return part->list_step != LIST_BEFORE ||
           (client->list_part == WEFT_PS_NONE &&
            (holder == WEFT_PS_NONE || holder == ps_part_index(client, part)));
}

/* Returns the number of elements. */
static uint32_t list_build(struct weft_ps_client *client, const struct ps_part *part)
{
    const uint32_t id_bytes = part->plain_id_bytes;
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, id_bytes);
    const struct weft_rpc_request request = {
        .rpc_id = part->list_rpc_id,
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .rows = part->rows,
        .flags = id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS : 0,
    };
    uint8_t *out = client->list_request;
    memset(out, 0, (size_t)head_elems * id_bytes);
    weft_rpc_request_pack(&request, out);
    out += (size_t)head_elems * id_bytes;
    for (uint32_t k = 0; k < ps_part_chunks(part); k++) {
        struct ps_chunk chunk = weft_ps_chunk_of(client, part, k, true);
        for (uint32_t i = 0; i < chunk.rows.count; i++) {
            weft_ps_store_id(out, id_bytes, chunk.rows.first + i, chunk.ids[i]);
        }
    }
    return head_elems + part->rows;
}

bool weft_ps_listed_with_ids(struct weft_ps_client *client, struct ps_part *part,
                             struct ps_message *message_p)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    const uint32_t id_bytes = part->plain_id_bytes;
    const uint16_t elem_bytes = weft_table_push_elem_bytes(spec, id_bytes);
    const size_t block_bytes = elem_bytes - id_bytes;
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes);
    const uint32_t total = head_elems + part->rows;
    uint32_t chunk_elems = weft_ps_packet_elems(client, part->shard, elem_bytes);
    chunk_elems = (uint32_t)weft_min_u64(chunk_elems, weft_ps_chunk_rows_max(spec));
    chunk_elems = part->begun ? part->ids_chunk_elems : chunk_elems;
    if (chunk_elems < head_elems) {
        return false;
    }
    WEFT_ASSERT(client->list_part == WEFT_PS_NONE);
    uint8_t *out = client->list_request;
    memset(out, 0, (size_t)head_elems * elem_bytes);
    for (uint32_t k = 0; k < ps_part_chunks(part); k++) {
        struct ps_chunk chunk = weft_ps_chunk_of(client, part, k, true);
        for (uint32_t i = 0; i < chunk.rows.count; i++) {
            uint32_t elem = head_elems + chunk.rows.first + i, place = elem / chunk_elems;
            uint32_t begin = place * chunk_elems;
            struct weft_ps_chunk_rows to =
                weft_ps_chunk_rows(elem_bytes, id_bytes, chunk_elems, head_elems, place,
                                   (uint32_t)weft_min_u64(chunk_elems, total - begin));
            uint32_t at = chunk.rows.first + i - to.first;
            uint8_t *bytes = out + (size_t)begin * elem_bytes;
            weft_ps_store_id(bytes + to.ids_offset, id_bytes, at, chunk.ids[i]);
            weft_blocks_take(spec->push_values, spec->dim, chunk.bytes + chunk.rows.blocks_offset,
                             i, bytes + to.blocks_offset + at * block_bytes);
        }
    }
    *message_p = (struct ps_message){.base = out,
                                     .total = total,
                                     .elem_bytes = elem_bytes,
                                     .chunk_elems = (uint16_t)chunk_elems,
                                     .id_bytes = (uint8_t)id_bytes};
    return true;
}

weft_status weft_ps_list_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns)
{
    struct ps_shard_end *end = &client->ends[part->shard];
    WEFT_ASSERT(client->list_part == WEFT_PS_NONE);
    if (part->answer != ANSWER_POSTED) {
        part->list_rpc_id = weft_ps_rpc_id(client, part->shard);
        weft_status status = weft_ps_part_expect(client, part, WEFT_RPC_LIST, part->list_rpc_id);
        if (status != WEFT_OK) {
            return status == WEFT_NOMEM ? WEFT_AGAIN : status;
        }
        ps_part_posted(part);
    }
    const struct weft_msg_send send = {
        .peer = end->peer,
        .base = client->list_request,
        .total = list_build(client, part),
        .elem_bytes = part->plain_id_bytes,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .stream = weft_rpc_stream(WEFT_RPC_LIST, part->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_LIST, .table = part->table, .number = part->list_number}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | ps_part_index(client, part),
    };
    uint64_t seq;
    weft_status status = client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq);
    if (status == WEFT_OK) {
        ps_part_to(part, PART_FLYING);
        ps_part_message_to(part, MESSAGE_LIST);
        part->list_bad = false;
        part->list_status = WEFT_RPC_OK;
        client->list_part = end->list_part = ps_part_index(client, part);
        client->counters.lists_sent++;
        /* Pulls sent meanwhile wait for the push. */
        part->rpc_id = part->in_air ? part->rpc_id : weft_ps_rpc_id(client, part->shard);
        ps_part_take_off(ps_link_of(client, part->table, part->shard), part);
    }
    return status;
}

void weft_ps_list_void(struct weft_ps_client *client, struct ps_part *part, weft_status status,
                       uint16_t rpc_status)
{
    weft_ps_note_status(client, part, status, rpc_status);
    client->counters.rpcs_failed += status != WEFT_OK;
    client->counters.rpcs_refused += rpc_status != WEFT_RPC_OK;
    if (part->counted) { /* as if it had arrived before the shard disconnected */
        weft_ps_part_missed(client, part);
        ps_part_rows_to(part, ROWS_NEVER);
        weft_ps_list_drop(client, part);
        client->counters.pushes_lost++;
    } else {
        weft_ps_push_void(client, part);
    }
}

void weft_ps_list_drop(struct weft_ps_client *client, struct ps_part *part)
{
    if (part->list_step == LIST_BEFORE && part->answer == ANSWER_POSTED) {
        /* The transport had no slot for LIST. */
        (void)!client->msgr.ops->cancel(client->msgr.self, part->expect);
        part->answer = ANSWER_NONE;
    }
    part->list_step = LIST_THERE;
}

/* True: its deadline has passed, and it was not sent before a broken connection. */
static bool is_late(const struct weft_ps_client *client, const struct ps_part *part)
{
    return part->op != WEFT_PS_NONE && client->ops[part->op].expired && !part->resent;
}

/* Neither LIST nor the push is in flight: queue the push. */
static void requeue(struct weft_ps_client *client, struct ps_part *part)
{
    part->answer = ANSWER_NONE;
    part->request_closed = false;
    ps_part_to(part, PART_QUEUED);
    if (is_late(client, part) && !ps_part_head_only(part)) {
        weft_ps_push_void(client, part);
    }
    weft_ps_part_enqueue(client, ps_part_index(client, part));
}

/* LIST is closed and answered. */
static void list_over(struct weft_ps_client *client, struct ps_part *part)
{
    client->list_part = WEFT_PS_NONE;
    ps_part_message_to(part, MESSAGE_OWN);
    part->list_given = true;
    client->counters.replies_malformed += part->list_bad;
    bool refused = !part->list_bad && part->list_status != WEFT_RPC_OK;
    part->list_step = refused && !part->begun ? LIST_NONE : LIST_THERE;
    if (part->list_bad || (part->list_status != WEFT_RPC_OK && part->begun)) {
        weft_ps_list_void(client, part, part->list_bad ? WEFT_PROTO : WEFT_OK, part->list_status);
    }
    requeue(client, part);
}

void weft_ps_list_sent(struct weft_ps_client *client, uint32_t index,
                       const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (event->outcome == WEFT_MSG_UNKNOWN && client->config.reconnect_ns > 0) {
        return; /* PEER_DOWN follows, and requeues it */
    }
    part->request_closed = true;
    if (part->answer == ANSWER_CLOSED) {
        list_over(client, part);
    }
}

void weft_ps_list_reply(struct weft_ps_client *client, uint32_t index,
                        const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (event->outcome != WEFT_MSG_COMPLETE && event->sender_gone) {
        return; /* only if the shard is down: PEER_DOWN follows */
    }
    struct weft_rpc_reply reply;
    bool good = event->outcome == WEFT_MSG_COMPLETE && event->elem_bytes == WEFT_RPC_REPLY_BYTES &&
                event->total == 1 && weft_ps_reply_head(part, event, part->list_rpc_id, &reply);
    part->answer = ANSWER_CLOSED;
    part->list_bad = !good;
    part->list_status = good ? reply.status : WEFT_RPC_OK;
    if (part->request_closed) {
        list_over(client, part);
    }
}

void weft_ps_list_used(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_rpc_reply *reply)
{
    if (part->keeps && (reply->can & WEFT_RPC_CAN_LIST) != 0) {
        weft_ps_known_kept(client, part);
        client->counters.lists_stored++;
    }
    if (!part->listed || ps_part_head_only(part) || part->message == MESSAGE_IDS ||
        part->op == WEFT_PS_NONE) {
        return;
    }
    uint64_t plain = (uint64_t)part->rows * part->plain_id_bytes;
    client->counters.pushes_listed++;
    if (!part->list_given) {
        client->counters.list_bytes_saved +=
            plain - weft_min_u64(plain, ps_part_chunks(part) * sizeof(uint32_t));
        ps_link_of(client, part->table, part->shard)->list_misses = 0;
    }
}

/* ---- UNKNOWN_LIST ---------------------------------------------------------------------------- */

/* The event as if no chunk had arrived. */
static struct weft_msg_event nothing_came(struct weft_ps_client *client,
                                          const struct weft_msg_event *event)
{
    struct weft_msg_event nothing = *event;
    WEFT_ASSERT(event->chunks <= WEFT_PS_CHUNKS_MAX);
    memset(client->critical, 0, WEFT_BITS_WORDS((size_t)event->chunks) * sizeof(uint64_t));
    nothing.mask = client->critical;
    nothing.received = nothing.refused = 0;
    return nothing;
}

static void list_missed(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    client->counters.lists_unknown++;
    weft_ps_known_drop(client, part->table, part->shard, part->list_number);
    if (!part->list_given) {
        link->list_misses += link->list_misses < MISSES_MAX;
        link->list_pause = UINT32_C(1) << link->list_misses;
    }
}

/* Both SENT and UNKNOWN_LIST have arrived. */
static void unknown(struct weft_ps_client *client, struct ps_part *part,
                    const struct weft_msg_event *event)
{
    part->list_doubt = DOUBT_NONE;
    list_missed(client, part);
    if (event->outcome == WEFT_MSG_UNKNOWN) {
        weft_ps_part_fail(client, ps_part_index(client, part), WEFT_PEER);
        return;
    }
    if (event->outcome ==
        WEFT_MSG_SHORT) { /* by its deadline: the shard has closed it without applying anything */
        struct weft_msg_event nothing = nothing_came(client, event);
        weft_ps_push_sent(client, ps_part_index(client, part), &nothing);
        return;
    }
    part->list_step = LIST_BEFORE;
    if (++part->list_tries >= TRIES_MAX) {
        weft_ps_list_void(client, part, WEFT_PROTO, WEFT_RPC_OK);
    }
    requeue(client, part);
}

bool weft_ps_listed_lost(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event, struct weft_msg_event *event_p)
{
    bool headless = event->mask == NULL || !weft_bits_test(event->mask, 0);
    if (!part->listed || ps_part_head_only(part) || event->outcome != WEFT_MSG_SHORT || !headless ||
        event->refused == 0 || event->refused < event->received) {
        return false;
    }
    *event_p = nothing_came(client, event);
    return true;
}

/* SENT of a push that was sent with its ids: translate it to the chunks that name a list. None may
 * be missing. */
static void with_ids_sent(struct weft_ps_client *client, struct ps_part *part,
                          const struct weft_msg_event *event)
{
    const uint32_t chunks = ps_part_chunks(part);
    const bool came = event->outcome == WEFT_MSG_COMPLETE || part->answer == ANSWER_CLOSED;
    struct weft_msg_event same = *event;
    uint64_t *mask = (uint64_t *)(void *)(part->list_held + 1);
    memset(mask, 0, WEFT_BITS_WORDS((size_t)chunks) * sizeof(*mask));
    if (came) {
        weft_bits_fill(mask, chunks);
    }
    same.mask = mask;
    same.total = part->request_elems;
    same.elem_bytes = part->request_elem_bytes;
    same.chunk_elems = part->request_chunk_elems;
    same.chunks = chunks;
    same.received = came ? chunks : 0;
    same.refused = came ? (uint32_t)weft_min_u64(event->refused, chunks) : 0;
    client->list_part = WEFT_PS_NONE;
    weft_ps_push_sent(client, ps_part_index(client, part), &same);
}

bool weft_ps_listed_sent(struct weft_ps_client *client, uint32_t index,
                         const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (!part->listed || ps_part_head_only(part)) {
        return false;
    }
    if (part->message == MESSAGE_IDS) {
        with_ids_sent(client, part, event);
        return true;
    }
    if (part->list_doubt == DOUBT_UNKNOWN) {
        unknown(client, part, event);
        return true;
    }
    part->sent_unknown = event->outcome == WEFT_MSG_UNKNOWN;
    bool answer_comes = event->mask != NULL && weft_bits_test(event->mask, 0);
    if (event->refused == 0 || part->answer == ANSWER_CLOSED || !answer_comes ||
        part->sent_unknown) {
        return false;
    }
    struct ps_held *held = part->list_held;
    uint64_t *mask = (uint64_t *)(void *)(held + 1);
    WEFT_ASSERT(event->chunks == ps_part_chunks(part));
    held->event = *event;
    memcpy(mask, event->mask, WEFT_BITS_WORDS((size_t)event->chunks) * sizeof(*mask));
    held->event.mask = mask;
    part->list_doubt = DOUBT_SENT;
    return true;
}

void weft_ps_listed_unknown(struct weft_ps_client *client, uint32_t index,
                            const struct weft_rpc_reply *reply)
{
    struct ps_part *part = &client->parts[index];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    link->clock_known = reply->clock > link->clock_known ? reply->clock : link->clock_known;
    if (part->request_closed) { /* its shard died meanwhile; or UNKNOWN_LIST although it refused
                                 * nothing */
        client->counters.replies_malformed += !part->sent_unknown;
        client->counters.rpcs_failed += part->sent_unknown;
        weft_ps_note_status(client, part, part->sent_unknown ? WEFT_PEER : WEFT_PROTO, WEFT_RPC_OK);
        weft_ps_part_done(client, part);
        return;
    }
    bool was_sent = part->list_doubt == DOUBT_SENT;
    part->list_doubt = DOUBT_UNKNOWN;
    if (was_sent) {
        const struct weft_msg_event event = part->list_held->event;
        unknown(client, part, &event);
    }
}

void weft_ps_listed_answered(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    if (part->list_doubt == DOUBT_SENT) {
        const struct weft_msg_event event = part->list_held->event;
        part->list_doubt = DOUBT_NONE;
        weft_ps_push_sent(client, index, &event);
    }
}

void weft_ps_listed_reset(struct weft_ps_client *client, struct ps_part *part)
{
    const uint32_t index = ps_part_index(client, part);
    part->in_air = false;
    ps_part_message_to(part, MESSAGE_OWN);
    part->list_given = part->sent_unknown = false;
    part->list_doubt = DOUBT_NONE;
    part->list_tries = 0;
    part->list_step = part->listed && !ps_part_head_only(part) ? LIST_BEFORE : LIST_THERE;
    client->list_part = client->list_part == index ? WEFT_PS_NONE : client->list_part;
}
