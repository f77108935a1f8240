/* Handling of requests: PUSH (with shard_push.c), PULL, TABLE and LIST (with shard_list.c), from
 * the first chunk to the reply.
 *
 * A chunk is validated as a whole before any of it is applied; a refused chunk changes nothing and
 * is reported to the sender in DONE. The transport guarantees that each chunk arrives at most once;
 * this file does not check it again.
 *
 * Chunks may arrive before the head, which is in chunk 0. To apply a push, the connection (worker),
 * the tag (table, clock) and the grid (rows) suffice. The head is checked against these when it
 * arrives.
 */
#include "ps/shard_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/id_pack.h"
#include "ps/layout.h"
#include "ps/pull_ids.h"
#include "ps/values.h"

enum { LEADING_MAX = 254 }; /* critical chunks that DATA can name; core/msg.h */

static uint32_t slot_index(const struct weft_shard *shard, const struct shard_slot *slot)
{
    return (uint32_t)(slot - shard->slots);
}

static void refuse(struct weft_shard *shard, const struct weft_msg_event *event)
{
    shard->counters.chunks_refused++;
    shard->msgr.ops->refuse(shard->msgr.self, event->peer, event->seq);
}

/* ---- opening --------------------------------------------------------------------------------- */

uint8_t weft_shard_push_id_bytes(const struct weft_table *table, uint16_t elem_bytes)
{
    bool is_packed = elem_bytes == WEFT_RPC_ID_PACKED && weft_table_blocks(&table->spec) == 1;
    return elem_bytes == weft_table_push_elem_bytes(&table->spec, WEFT_RPC_ID_NARROW)
               ? WEFT_RPC_ID_NARROW
           : elem_bytes == weft_table_push_elem_bytes(&table->spec, WEFT_RPC_ID_WIDE)
               ? WEFT_RPC_ID_WIDE
           : is_packed ? WEFT_RPC_ID_PACKED
                       : 0;
}

/* The grid must have the head in chunk 0, and the element size of the table. */
static void check_grid(struct weft_shard *shard, struct shard_slot *slot,
                       const struct weft_msg_event *event)
{
    const struct weft_table *table = shard_table(shard, slot->table);
    uint32_t head_elems = shard_request_head_elems(event);
    bool packs = slot->op != WEFT_RPC_LIST; /* LIST is rare */
    if (event->total < head_elems || event->chunk_elems < head_elems) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return;
    }
    slot->rows = event->total - head_elems;
    if (slot->op == WEFT_RPC_TABLE) {
        bool fits = slot->rows == WEFT_RPC_SPEC_BYTES ||
                    slot->rows == WEFT_RPC_SPEC_BYTES + WEFT_RPC_PUSHES_BYTES;
        if (event->elem_bytes != 1 || !fits || event->chunks != 1) {
            shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        }
    } else if (table == NULL) {
        shard_slot_reject(slot, WEFT_RPC_UNKNOWN_TABLE);
    } else if (slot->op == WEFT_RPC_PUSH) {
        slot->id_bytes = weft_shard_push_id_bytes(table, event->elem_bytes);
        bool packed = slot->id_bytes == WEFT_RPC_ID_PACKED;
        if (slot->id_bytes == 0 ||
            event->chunk_elems > weft_shard_chunk_elems_max(slot->id_bytes) ||
            (!packed && slot->rows % weft_table_blocks(&table->spec) != 0)) {
            shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        }
        slot->rows = packed ? 0 : slot->rows;
    } else if (event->elem_bytes == WEFT_RPC_ID_PACKED && packs) {
        slot->id_bytes = WEFT_RPC_ID_PACKED;
        slot->rows = slot->rows_end = 0;
        memset(slot->came, 0,
               WEFT_BITS_WORDS((size_t)shard->config.rows_per_rpc_max) * sizeof(*slot->came));
    } else if (event->elem_bytes != WEFT_RPC_ID_NARROW && event->elem_bytes != WEFT_RPC_ID_WIDE) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    } else if (slot->rows > shard->config.rows_per_rpc_max) {
        shard_slot_reject(slot, WEFT_RPC_TOO_LARGE);
    } else {
        slot->id_bytes = (uint8_t)event->elem_bytes;
    }
}

static uint32_t update_clock(const struct weft_shard *shard, const struct shard_slot *slot,
                             uint32_t number)
{
    bool known = slot->table < shard->config.tables_max;
    size_t at = known ? (size_t)slot->table * shard->config.workers_max + slot->worker : 0;
    return weft_rpc_update_clock(number, shard->clocks[at] + 1);
}

void weft_shard_request_open(struct weft_shard *shard, struct shard_slot *slot,
                             const struct weft_msg_event *event)
{
    WEFT_ASSERT(slot->state == SLOT_POSTED && slot->peer == event->peer);
    struct weft_rpc_tag tag;
    bool tag_good = weft_rpc_tag_unpack(event->tag, &tag);
    slot->update = slot->op == WEFT_RPC_PUSH && tag.op == WEFT_RPC_UPDATE;
    WEFT_ASSERT(tag.op == slot->op || slot->update);
    slot->update_open = false;
    slot->base = tag.number & WEFT_RPC_BASE_MASK;
    slot->state = SLOT_OPEN;
    slot->stale = slot->dead = slot->head_seen = false;
    slot->can = 0;
    slot->status = WEFT_RPC_OK;
    slot->table = tag.table;
    slot->clock = slot->update ? update_clock(shard, slot, tag.number) : tag.number;
    slot->rows = 0;
    slot->id_bytes = 0;
    weft_rpc_spans_clear(slot->spans);
    slot->proc_ns = slot->overlap_ns = slot->wait_ns = 0;
    if (!tag_good) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    }
    check_grid(shard, slot, event);
    slot->again = false;
    slot->number = 0;
    slot->partial = WEFT_SHARD_NONE;
    slot->list = 0;
    if (slot->op == WEFT_RPC_LIST) {
        weft_shard_list_open(shard, slot);
    }
    if (slot->op == WEFT_RPC_PUSH && !slot->dead) {
        weft_shard_dedup_open(shard, slot, tag.low, event);
    }
    /* The reply with LATE may be lost: refuse the push again while its update is open. */
    if (slot->update && !slot->dead && slot->again && weft_shard_update_is_late(shard, slot)) {
        shard_slot_reject(slot, WEFT_RPC_LATE);
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Chunk 0 of any request, even a refused one: without the head no reply is possible. */
static void read_head(struct weft_shard *shard, struct shard_slot *slot,
                      const struct weft_msg_event *event)
{
    size_t bytes = (size_t)event->elems * event->elem_bytes;
    if (weft_rpc_request_unpack(event->data, bytes, &slot->request) != WEFT_OK) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return;
    }
    slot->head_seen = true;
    if (!shard_slot_is_aggregators(shard, slot)) {
        weft_shard_rpc_seen(shard, slot->worker, slot->request.rpc_id);
    }
    /* The number of packed ids is known only when all chunks have arrived. */
    bool packed = slot->id_bytes == WEFT_RPC_ID_PACKED;
    uint32_t rows = slot->op == WEFT_RPC_TABLE ? 0 : packed ? slot->request.rows : slot->rows;
    uint32_t flags = slot->id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS
                     : packed                             ? WEFT_RPC_PACKED_IDS
                                                          : 0;
    const bool is_aggregators = shard_slot_is_aggregators(shard, slot);
    const uint32_t worker =
        is_aggregators ? slot->worker - shard->config.workers_max : slot->worker;
    uint32_t keep = weft_shard_takes_lists(shard) ? WEFT_RPC_KEEP_IDS : 0;
    uint32_t free_flags = slot->op == WEFT_RPC_TABLE  ? WEFT_RPC_RESUME | WEFT_RPC_DURABLE
                          : slot->op == WEFT_RPC_PUSH ? WEFT_RPC_CUT
                          : slot->op == WEFT_RPC_LIST || is_aggregators ? 0
                          : (slot->request.flags & WEFT_RPC_HOT) != 0
                              ? (rows == 0 ? WEFT_RPC_HOT : 0)
                          : rows == 0 ? WEFT_RPC_CUT | WEFT_RPC_COUNT_UPDATES
                                      : keep | WEFT_RPC_COUNT_UPDATES;
    if (slot->request.worker != worker) {
        shard_slot_reject(slot, WEFT_RPC_WRONG_WORKER);
    } else if (slot->request.rows != rows || (slot->request.flags & ~free_flags) != flags ||
               slot->request.rows_critical > (slot->op == WEFT_RPC_PULL ? rows : 0) ||
               (is_aggregators && slot->request.after_seq != 0) ||
               (slot->update && slot->request.need_clock != slot->clock) ||
               (slot->op == WEFT_RPC_PUSH && !slot->dead &&
                slot->request.after_seq != (uint32_t)slot->number)) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    } else if (slot->op == WEFT_RPC_PUSH && (slot->request.flags & WEFT_RPC_CUT) != 0 &&
               !slot->dead) {
        size_t at = (size_t)slot->table * shard->config.workers_max + slot->worker;
        weft_shard_want_cut(shard, (uint32_t)weft_min_u64(slot->clock, shard->clocks[at] + 1));
    }
}

static bool pull_owns(const struct weft_shard *shard, struct shard_slot *slot, uint32_t first,
                      uint32_t count)
{
    const struct weft_table *table = shard_table(shard, slot->table);
    for (uint32_t i = 0; i < count && !weft_table_owns_all(table); i++) {
        if (!weft_table_owns(table, slot->ids[first + i])) {
            shard_slot_reject(slot, WEFT_RPC_WRONG_SHARD);
            return false;
        }
    }
    return true;
}

static bool pull_take_packed(struct weft_shard *shard, struct shard_slot *slot,
                             const struct weft_msg_event *event)
{
    struct weft_pull_ids pull = {.ids = slot->ids,
                                 .came = slot->came,
                                 .rows_max = shard->config.rows_per_rpc_max,
                                 .rows = slot->rows,
                                 .rows_end = slot->rows_end};
    uint32_t first, count;
    enum weft_rpc_status status = weft_pull_ids_take(&pull, event, &first, &count);
    if (status != WEFT_RPC_OK) {
        shard_slot_reject(slot, status);
        return false;
    }
    slot->rows = pull.rows;
    slot->rows_end = pull.rows_end;
    return pull_owns(shard, slot, first, count);
}

static bool pull_take(struct weft_shard *shard, struct shard_slot *slot,
                      const struct weft_msg_event *event)
{
    if (slot->id_bytes == WEFT_RPC_ID_PACKED) {
        return pull_take_packed(shard, slot, event);
    }
    uint32_t head = event->chunk == 0 ? shard_request_head_elems(event) : 0;
    uint32_t first =
        event->chunk == 0 ? 0 : event->chunk * event->chunk_elems - shard_request_head_elems(event);
    const uint8_t *data = event->data;
    uint32_t count = event->elems - head;
    WEFT_ASSERT(first + count <= shard->config.rows_per_rpc_max);
    weft_ps_load_ids(data + (size_t)head * slot->id_bytes, slot->id_bytes, count,
                     slot->ids + first);
    return pull_owns(shard, slot, first, count);
}

/* The list's number is in the tag. */
static bool list_take(struct weft_shard *shard, struct shard_slot *slot,
                      const struct weft_msg_event *event)
{
    if (!weft_shard_takes_lists(shard) || slot->clock == 0 || slot->rows == 0) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return false;
    }
    return pull_take(shard, slot, event);
}

static bool resumes(const struct shard_slot *slot)
{
    return slot->op == WEFT_RPC_TABLE && slot->head_seen &&
           (slot->request.flags & WEFT_RPC_RESUME) != 0;
}

enum weft_rpc_status weft_shard_table_open(struct weft_shard *shard,
                                           const struct weft_table_spec *spec, uint32_t rank)
{
    if (spec->table >= shard->config.tables_max || spec->workers > shard->config.workers_max) {
        return WEFT_RPC_BAD_SPEC;
    }
    const struct weft_table *table = shard_table(shard, spec->table);
    if (table == NULL && weft_table_declare(&shard->tables[spec->table], spec) != WEFT_OK) {
        return WEFT_RPC_BAD_SPEC;
    }
    if (table != NULL && !weft_table_spec_equal(&table->spec, spec) &&
        !weft_shard_respec(shard, spec)) {
        return WEFT_RPC_SPEC_MISMATCH;
    }
    shard->restored[spec->table] = false;
    weft_shard_member_join(shard, spec->table, rank);
    return WEFT_RPC_OK;
}

static bool table_take(struct weft_shard *shard, struct shard_slot *slot,
                       const struct weft_msg_event *event)
{
    struct weft_table_spec spec;
    const uint8_t *body = (const uint8_t *)event->data + WEFT_RPC_REQUEST_BYTES;
    struct weft_rpc_pushes theirs;
    if ((slot->rows > WEFT_RPC_SPEC_BYTES) != resumes(slot) ||
        (resumes(slot) && weft_rpc_pushes_unpack(body + WEFT_RPC_SPEC_BYTES, &theirs) != WEFT_OK)) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return false;
    }
    if (weft_table_spec_unpack(slot->table, body, WEFT_RPC_SPEC_BYTES, &spec) != WEFT_OK) {
        shard_slot_reject(slot, WEFT_RPC_BAD_SPEC);
        return false;
    }
    bool wants_durable = (slot->request.flags & WEFT_RPC_DURABLE) != 0;
    if (wants_durable && shard->durable_upto == NULL) {
        shard_slot_reject(slot, WEFT_RPC_NOT_DURABLE);
        return false;
    }
    enum weft_rpc_status status = weft_shard_table_open(shard, &spec, slot->worker);
    if (status != WEFT_RPC_OK) {
        shard_slot_reject(slot, status);
        return false;
    }
    weft_shard_journal_table(shard, slot->table, slot->worker, body,
                             resumes(slot) ? body + WEFT_RPC_SPEC_BYTES : NULL);
    slot->can = slot->request.need_clock & shard->config.can;
    slot->can &= weft_shard_takes_lists(shard) ? WEFT_RPC_CAN_ALL : ~WEFT_RPC_CAN_LIST;
    slot->can &= weft_shard_takes_aggregates(shard) ? WEFT_RPC_CAN_ALL : ~WEFT_RPC_CAN_AGGREGATE;
    slot->can &= weft_shard_hot_takes(shard, slot->table) ? WEFT_RPC_CAN_ALL : ~WEFT_RPC_CAN_HOT;
    slot->can &= shard->config.rows_per_rpc_max >= WEFT_RPC_ROWS_LONG ? WEFT_RPC_CAN_ALL
                                                                      : ~WEFT_RPC_CAN_LONG;
    slot->can &= weft_shard_takes_aggregates(shard) && shard->journal == NULL
                     ? WEFT_RPC_CAN_ALL
                     : ~WEFT_RPC_CAN_ON_APPLY;
    weft_shard_aggregate_session(shard, slot);
    shard->workers[slot->worker].wants_durable |= wants_durable;
    shard->durable_upto_unsent |= wants_durable;
    if (resumes(slot)) {
        shard_slot_note(slot, weft_shard_dedup_resume(shard, slot->table, slot->worker, &theirs));
    }
    return true;
}

void weft_shard_request_chunk(struct weft_shard *shard, struct shard_slot *slot,
                              const struct weft_msg_event *event)
{
    WEFT_ASSERT(slot->state == SLOT_OPEN);
    if (slot->stale) {
        refuse(shard, event);
        return;
    }
    uint64_t begin_ns = shard_clock_ns(shard);
    if (event->chunk == 0) {
        read_head(shard, slot, event);
    }
    bool taken =
        !slot->dead && (slot->op == WEFT_RPC_PUSH   ? weft_shard_push_take(shard, slot, event)
                        : slot->op == WEFT_RPC_PULL ? pull_take(shard, slot, event)
                        : slot->op == WEFT_RPC_LIST ? list_take(shard, slot, event)
                                                    : table_take(shard, slot, event));
    if (!taken) {
        refuse(shard, event);
    }
    weft_rpc_spans_add(slot->spans, begin_ns, shard_clock_ns(shard));
}

/* ---- replies --------------------------------------------------------------------------------- */

/* The reply to TABLE contains the worker's clock: the clocks that it has finished here. */
static uint32_t reply_clock(const struct weft_shard *shard, const struct shard_slot *slot)
{
    return slot->op == WEFT_RPC_TABLE && slot->status == WEFT_RPC_OK
               ? shard->clocks[(size_t)slot->table * shard->config.workers_max + slot->worker]
               : 0;
}

static uint16_t reply_chunk_elems(const struct weft_shard *shard, const struct shard_slot *slot,
                                  uint32_t bound_ppm)
{
    uint16_t elem_bytes = slot->answer_elem_bytes;
    return (uint16_t)weft_ps_chunk_elems(
        shard->msgr.ops->chunk_elems(shard->msgr.self, slot->peer, elem_bytes), elem_bytes,
        weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes), bound_ppm);
}

/* Rule 7 of docs/PROTOCOL.md section 6: the first rows, which the worker has missed twice in a row,
 * are critical. */
static void must_arrive(struct weft_shard *shard, const struct shard_slot *slot,
                        struct weft_msg_send *send)
{
    const struct weft_table_spec *spec = &shard->tables[slot->table].spec;
    uint64_t elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, send->elem_bytes) +
                     (uint64_t)slot->request.rows_critical * weft_table_blocks(spec);
    uint64_t must = weft_div_ceil_u64(elems, send->chunk_elems);
    uint64_t chunks = weft_div_ceil_u64(send->total, send->chunk_elems);
    send->critical = (uint8_t)weft_min_u64(must, LEADING_MAX);
    if (must > LEADING_MAX && chunks <= WEFT_SHARD_CHUNKS_MAX) {
        memset(shard->critical, 0, WEFT_BITS_WORDS(chunks) * sizeof(*shard->critical));
        weft_bits_fill(shard->critical, must);
        send->critical_mask = shard->critical;
    }
}

static bool counts_updates(const struct shard_slot *slot)
{
    return slot->op == WEFT_RPC_PULL && slot->status == WEFT_RPC_OK &&
           (slot->request.flags & WEFT_RPC_COUNT_UPDATES) != 0;
}

/* True: the reply has more than a head. */
static bool is_hot_set(const struct shard_slot *slot)
{
    return slot->op == WEFT_RPC_PULL && slot->status == WEFT_RPC_OK &&
           (slot->request.flags & WEFT_RPC_HOT) != 0;
}

/* The head is written last, because it contains the times in the shard until departure. */
static weft_status reply_send(struct weft_shard *shard, struct shard_slot *slot, uint64_t now_ns)
{
    bool rows = slot->op == WEFT_RPC_PULL &&
                (slot->answer_elems > 1 || slot->answer_elem_bytes != WEFT_RPC_REPLY_BYTES);
    uint64_t departure_ns = shard_clock_ns(shard);
    uint64_t inside_ns = shard_since(departure_ns, slot->b_ns);
    struct weft_rpc_reply reply = {
        .rpc_id = slot->request.rpc_id,
        .status = slot->status,
        .can = slot->status == WEFT_RPC_OK ? slot->can : 0,
        .t0_ns = slot->request.t0_ns,
        /* A reply may wait for the transport while clocks advance. */
        .clock = rows ? slot->version : weft_shard_clock(shard, slot->table),
        .rows = counts_updates(slot) || is_hot_set(slot) ? slot->opened
                : rows                                   ? slot->request.rows
                                                         : reply_clock(shard, slot),
        .ps_proc_ns = slot->proc_ns,
        .ps_overlap_ns = slot->overlap_ns,
        .ps_wait_ns = slot->wait_ns,
        .ps_queue_ns = shard_since(shard_since(inside_ns, slot->proc_ns), slot->wait_ns),
    };
    weft_rpc_reply_pack(&reply, slot->answer);
    struct weft_msg_send send = {
        .peer = slot->peer,
        .base = slot->answer,
        .total = slot->answer_elems,
        .elem_bytes = slot->answer_elem_bytes,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .shares = true,
        .cut = rows, /* the worker may have set a deadline */
        .bound_ppm = rows ? slot->request.reply_bound_ppm : 0,
        .stream = weft_rpc_stream((uint8_t)(slot->op | WEFT_RPC_REPLY_FLAG), slot->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = (uint8_t)(slot->op | WEFT_RPC_REPLY_FLAG),
            .table = slot->table,
            .number = reply.rpc_id,
        }),
        .deadline_ns = WEFT_NEVER,
        .user = slot_index(shard, slot),
        .prefetch = slot,
    };
    if (send.bound_ppm > 0) {
        send.chunk_elems = reply_chunk_elems(shard, slot, send.bound_ppm);
        must_arrive(shard, slot, &send);
    }
    uint64_t seq;
    weft_status status = shard->msgr.ops->send(shard->msgr.self, &send, now_ns, &seq);
    if (status == WEFT_OK) {
        weft_shard_record_served(shard, slot, &reply, departure_ns);
    }
    return status;
}

void weft_shard_send_ready(struct weft_shard *shard, uint64_t now_ns)
{
    /* Try each once: a worker whose connection accepts nothing now must not block the others. */
    struct shard_queue later = {WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    uint32_t index;
    if (shard->ready.head == WEFT_SHARD_NONE || weft_transfer_holds_answers(shard)) {
        return;
    }
    while ((index = weft_shard_queue_pop(shard, &shard->ready)) != WEFT_SHARD_NONE) {
        struct shard_slot *slot = &shard->slots[index];
        weft_status status = reply_send(shard, slot, now_ns);
        if (status == WEFT_AGAIN) {
            weft_shard_queue_push(shard, &later, index);
        } else if (status == WEFT_OK) {
            shard->counters.replies++;
            shard->counters.by_status[slot->status]++;
            slot->state = SLOT_SENDING;
        } else {
            shard->counters.replies_failed++;
            weft_shard_slot_release(shard, index);
        }
    }
    shard->ready = later;
}

void weft_shard_answer_head(struct weft_shard *shard, struct shard_slot *slot)
{
    slot->answer_elems = 1;
    slot->answer_elem_bytes = WEFT_RPC_REPLY_BYTES;
    slot->state = SLOT_READY;
    weft_shard_queue_push(shard, &shard->ready, slot_index(shard, slot));
}

/* Reply with the head, and the record of the worker's pushes to this table. */
static void answer_resume(struct weft_shard *shard, struct shard_slot *slot)
{
    struct weft_rpc_pushes pushes = weft_shard_dedup_pushes(shard, slot);
    weft_rpc_pushes_pack(&pushes, slot->answer + WEFT_RPC_REPLY_BYTES);
    slot->answer_elems = WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES;
    slot->answer_elem_bytes = 1;
    slot->state = SLOT_READY;
    weft_shard_queue_push(shard, &shard->ready, slot_index(shard, slot));
}

/* True: a row fits one packet to this worker, and the head fits chunk 0. False: reply with a head
 * only. */
static bool answer_fits(struct weft_shard *shard, const struct shard_slot *slot,
                        uint16_t elem_bytes, uint32_t head_elems)
{
    return shard->msgr.ops->chunk_elems(shard->msgr.self, slot->peer, elem_bytes) >= head_elems;
}

/* Write the rows of a PULL to the reply, in the encoding of the table. Returns the number of rows
 * that do not exist. */
static uint32_t answer_rows(struct weft_shard *shard, struct weft_table *table,
                            const struct shard_slot *slot, uint8_t *out)
{
    const uint32_t stride = weft_table_blocks(&table->spec) * table->block_floats;
    const size_t row_bytes =
        weft_table_blocks(&table->spec) * weft_table_pull_block_bytes(&table->spec);
    const uint32_t most = WEFT_PS_CHUNK_VALUES_MAX / stride;
    uint32_t absent = 0;
    if (table->spec.pull_values == WEFT_VALUE_FLOAT32) {
        return weft_table_read_all(table, slot->ids, slot->rows, (float *)(void *)out, stride);
    }
    for (uint32_t first = 0, n; first < slot->rows; first += n, out += n * row_bytes) {
        n = (uint32_t)weft_min_u64(most, slot->rows - first);
        absent += weft_table_read_all(table, slot->ids + first, n, shard->values, stride);
        weft_values_store(table->spec.pull_values, shard->values, (size_t)n * stride, out);
    }
    return absent;
}

void weft_shard_answer_pull(struct weft_shard *shard, struct shard_slot *slot)
{
    uint64_t begin_ns = shard_clock_ns(shard);
    struct weft_table *table = shard_table(shard, slot->table);
    uint16_t elem_bytes = weft_table_pull_elem_bytes(&table->spec);
    uint32_t blocks = weft_table_blocks(&table->spec);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes);
    slot->opened = (uint32_t)shard->counters.updates_opened;
    slot->version = shard->clock_min[slot->table];
    if (slot->rows == 0) {
        weft_shard_answer_head(shard, slot);
        return;
    }
    if (!answer_fits(shard, slot, elem_bytes, head_elems)) {
        shard_slot_note(slot, WEFT_RPC_TOO_LARGE);
        weft_shard_answer_head(shard, slot);
        return;
    }
    uint8_t *out = slot->answer + (size_t)head_elems * elem_bytes;
    memset(slot->answer, 0, (size_t)(out - slot->answer));
    weft_shard_list_keep(shard, slot);
    shard->counters.rows_pulled += slot->rows;
    shard->counters.rows_absent += answer_rows(shard, table, slot, out);
    slot->answer_elems = head_elems + slot->rows * blocks;
    slot->answer_elem_bytes = elem_bytes;
    slot->proc_ns += shard_since(shard_clock_ns(shard), begin_ns);
    slot->state = SLOT_READY;
    weft_shard_queue_push(shard, &shard->ready, slot_index(shard, slot));
}

/* ---- closing --------------------------------------------------------------------------------- */

/* A PULL with HOT is complete; it waits for no clock. */
static void hot_closed(struct weft_shard *shard, struct shard_slot *slot, uint64_t now_ns)
{
    uint64_t begin_ns = shard_clock_ns(shard);
    if (slot->dead || !weft_shard_hot_answer(shard, slot, now_ns)) {
        weft_shard_answer_head(shard, slot);
        return;
    }
    slot->proc_ns += shard_since(shard_clock_ns(shard), begin_ns);
    slot->state = SLOT_READY;
    weft_shard_queue_push(shard, &shard->ready, slot_index(shard, slot));
}

static void pull_closed(struct weft_shard *shard, struct shard_slot *slot,
                        const struct weft_msg_event *event)
{
    /* Lost ids: the bound of a PULL must be 0. An after_seq after the request itself could never be
     * satisfied. */
    int32_t ahead = (int32_t)(slot->request.after_seq - slot->request.rpc_id);
    if (event->received < event->chunks || (slot->request.after_seq != 0 && ahead >= 0)) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    }
    /* No row was named twice, so these are rows 0 .. rows - 1. */
    if (slot->id_bytes == WEFT_RPC_ID_PACKED &&
        (slot->rows != slot->request.rows || slot->rows_end != slot->request.rows)) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    }
    bool asks = (slot->request.flags & WEFT_RPC_CUT) != 0;
    if (asks && shard->snapshot == NULL) {
        shard_slot_reject(slot, WEFT_RPC_NO_CHECKPOINTS);
    }
    if (slot->dead) {
        weft_shard_answer_head(shard, slot);
    } else if (asks) {
        weft_shard_cut_ask(shard, slot);
    } else if (weft_shard_pull_allowed(shard, slot)) {
        weft_shard_answer_pull(shard, slot);
    } else {
        shard->counters.waits++;
        slot->state = SLOT_WAITING;
        slot->wait_begin_ns = shard_clock_ns(shard);
        weft_shard_queue_push(shard, &shard->waiting, slot_index(shard, slot));
    }
}

static void list_closed(struct weft_shard *shard, struct shard_slot *slot,
                        const struct weft_msg_event *event)
{
    if (event->received < event->chunks) { /* the bound must be 0 */
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
    }
    if (slot->status == WEFT_RPC_OK) {
        weft_shard_list_given(shard, slot);
    }
    weft_shard_answer_head(shard, slot);
}

static void count_closed(struct weft_shard *shard, const struct shard_slot *slot, bool is_short)
{
    shard->counters.pushes += slot->op == WEFT_RPC_PUSH;
    shard->counters.pulls += slot->op == WEFT_RPC_PULL;
    shard->counters.tables += slot->op == WEFT_RPC_TABLE;
    shard->counters.requests_short += is_short;
    shard->counters.requests_stale += slot->stale;
}

void weft_shard_request_closed(struct weft_shard *shard, struct shard_slot *slot,
                               const struct weft_msg_event *event, uint64_t now_ns)
{
    WEFT_ASSERT(slot->state == SLOT_OPEN);
    bool is_short = event->outcome != WEFT_MSG_COMPLETE;
    count_closed(shard, slot, is_short);
    bool is_push = slot->op == WEFT_RPC_PUSH;
    /* Nothing was applied; the worker sends the list, then resends the push. */
    bool lacks_list = is_push && slot->status == WEFT_RPC_UNKNOWN_LIST && !is_short && !slot->stale;
    if (is_push) {
        weft_shard_list_leave(shard, slot);
    }
    if (lacks_list) {
        weft_shard_dedup_later(shard, slot);
        shard->counters.lists_unknown++;
    } else if (is_push && !slot->stale && (slot->head_seen || is_short)) {
        /* SHORT also closes it if the worker abandoned it, but not if the connection ended. */
        weft_shard_dedup_closed(shard, slot, is_short && event->sender_gone);
    }
    if (slot->stale || !slot->head_seen || (is_short && !is_push)) {
        weft_shard_slot_release(shard, slot_index(shard, slot));
        return;
    }
    slot->b_ns = event->at_ns;
    weft_rpc_spans_split(slot->spans, slot->b_ns, &slot->overlap_ns, &slot->proc_ns);
    if (is_push) {
        if (!lacks_list) {
            weft_rpc_window_mark(&shard->workers[slot->worker].closed, slot->request.rpc_id);
        }
        weft_shard_answer_head(shard, slot);
        weft_shard_wake(shard, now_ns); /* also sends the reply */
        return;
    }
    if (slot->op == WEFT_RPC_PULL && (slot->request.flags & WEFT_RPC_HOT) != 0) {
        hot_closed(shard, slot, now_ns);
    } else if (slot->op == WEFT_RPC_PULL) {
        pull_closed(shard, slot, event);
    } else if (slot->op == WEFT_RPC_LIST) {
        list_closed(shard, slot, event);
    } else if (resumes(slot) && slot->status == WEFT_RPC_OK) {
        answer_resume(shard, slot);
    } else {
        weft_shard_answer_head(shard, slot);
    }
    weft_shard_send_ready(shard, now_ns);
}
