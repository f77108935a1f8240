/* Incoming pushes of workers. A complete push is added to a group (aggregator_group.c). */
#include "ps/aggregator_internal.h"

#include "ps/id_pack.h"
#include "ps/layout.h"
#include "ps/values.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_agg_pushes_init(struct weft_aggregator *agg)
{
    const struct weft_aggregator_config *config = &agg->config;
    agg->slot_count = config->workers_max * config->push_slots;
    agg->slots = calloc(agg->slot_count, sizeof(*agg->slots));
    if (agg->slots == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < agg->slot_count; i++) {
        agg->slots[i].rank = i / config->push_slots;
        /* pages are touched as rows arrive */
        agg->slots[i].memory = malloc(config->push_bytes_max);
        if (agg->slots[i].memory == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_agg_pushes_fini(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; agg->slots != NULL && i < agg->slot_count; i++) {
        free(agg->slots[i].memory);
    }
    free(agg->slots);
}

/* ---- memory for pushes ----------------------------------------------------------------------- */

static void slot_post(struct weft_aggregator *agg, struct agg_slot *slot)
{
    const struct agg_worker *worker = &agg->workers[slot->rank];
    if (!worker->up || agg->answer_free == AGG_NONE) {
        return; /* weft_agg_answer_free retries */
    }
    /* A push that is too large is answered with SEND_DIRECT. */
    if (!weft_agg_expect(agg, slot->rank, WEFT_RPC_PUSH, NULL, 0,
                         AGG_USER_PUSH | (uint32_t)(slot - agg->slots), &slot->expect)) {
        return;
    }
    slot->answer = weft_agg_answer_take(agg);
    slot->state = AGG_SLOT_POSTED;
}

/* keeps: another owner has the reply buffer now. */
static void slot_release(struct weft_aggregator *agg, struct agg_slot *slot, bool keeps)
{
    if (!keeps) {
        weft_agg_answer_free(agg, slot->answer);
    }
    slot->state = AGG_SLOT_IDLE;
    slot_post(agg, slot);
}

void weft_agg_pushes_post(struct weft_aggregator *agg, uint32_t rank)
{
    for (uint32_t i = 0; i < agg->config.push_slots; i++) {
        struct agg_slot *slot = &agg->slots[rank * agg->config.push_slots + i];
        if (slot->state == AGG_SLOT_IDLE) {
            slot_post(agg, slot);
        }
    }
}

void weft_agg_pushes_unbind(struct weft_aggregator *agg, uint32_t rank)
{
    for (uint32_t i = 0; i < agg->config.push_slots; i++) {
        struct agg_slot *slot = &agg->slots[rank * agg->config.push_slots + i];
        if (slot->state == AGG_SLOT_POSTED) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, slot->expect);
            slot_release(agg, slot, false);
        }
        slot->stale |= slot->state == AGG_SLOT_OPEN;
    }
}

/* ---- PUSH ------------------------------------------------------------------------------------ */

static void slot_kill(struct agg_slot *slot, uint64_t *why)
{
    slot->why = slot->dead ? slot->why : why;
    slot->dead = true;
}

static void push_open(struct weft_aggregator *agg, struct agg_slot *slot,
                      const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_rpc_tag tag;
    bool good = weft_rpc_tag_unpack(event->tag, &tag);
    slot->state = AGG_SLOT_OPEN;
    slot->dead = slot->head_seen = slot->stale = false;
    slot->rows = 0;
    slot->opened_ns = now_ns;
    slot->bytes = (uint64_t)event->total * event->elem_bytes;
    slot->table = tag.table;
    slot->clock = tag.number;
    slot->id_bytes = 0;
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
    if (!good || event->total < head_elems || event->chunk_elems < head_elems) {
        slot_kill(slot, &agg->counters.direct_form);
    } else if (tag.table >= agg->config.tables_max ||
               !weft_bits_test(agg->tables[tag.table].open, slot->rank)) {
        slot_kill(slot, &agg->counters.direct_table);
    } else {
        const struct weft_table_spec *spec = &agg->tables[tag.table].spec;
        slot->id_bytes = event->elem_bytes == WEFT_RPC_ID_PACKED ? WEFT_RPC_ID_PACKED
                         : event->elem_bytes == weft_table_push_elem_bytes(spec, WEFT_RPC_ID_NARROW)
                             ? WEFT_RPC_ID_NARROW
                         : event->elem_bytes == weft_table_push_elem_bytes(spec, WEFT_RPC_ID_WIDE)
                             ? WEFT_RPC_ID_WIDE
                             : 0;
        if (slot->id_bytes == 0) {
            slot_kill(slot, &agg->counters.direct_form);
        }
    }
}

static void read_head(struct weft_aggregator *agg, struct agg_slot *slot,
                      const struct weft_msg_event *event)
{
    const size_t bytes = (size_t)event->elems * event->elem_bytes;
    if (weft_rpc_request_unpack(event->data, bytes, &slot->request) != WEFT_OK ||
        slot->request.worker != slot->rank) {
        slot_kill(slot, &agg->counters.direct_form);
        return;
    }
    slot->head_seen = true;
    if (slot->request.need_clock == 0 || slot->request.after_seq == 0 ||
        slot->request.rows_critical >> 24 > WEFT_PS_PIECES_MAX) {
        slot_kill(slot, &agg->counters.direct_form); /* no session, no push number, or no piece */
    }
}

/* Number of rows that the memory of a push has room for. */
static uint32_t rows_max_of(const struct weft_aggregator *agg, const struct weft_table_spec *spec)
{
    return agg->config.push_bytes_max / (uint32_t)(sizeof(uint64_t) + sizeof(float) * spec->dim);
}

static uint8_t *values_of(const struct weft_aggregator *agg, const struct agg_slot *slot)
{
    return slot->memory + sizeof(uint64_t) * rows_max_of(agg, &agg->tables[slot->table].spec);
}

/* Append the rows of a chunk. False: malformed, or not summable. */
static bool take_rows(const struct weft_aggregator *agg, struct agg_slot *slot,
                      const struct weft_msg_event *event, const struct weft_table_spec *spec,
                      struct weft_ps_chunk_rows rows)
{
    const uint8_t *data = event->data;
    const size_t block_bytes = sizeof(float) * spec->dim;
    uint64_t *ids = (uint64_t *)slot->memory + slot->rows;
    if (slot->id_bytes != WEFT_RPC_ID_PACKED) {
        weft_ps_load_ids(data + rows.ids_offset, slot->id_bytes, rows.count, ids);
    } else if (!weft_ids_unpack(data + rows.ids_offset, rows.blocks_offset - rows.ids_offset,
                                rows.count, ids)) {
        return false;
    }
    memcpy(values_of(agg, slot) + slot->rows * block_bytes, data + rows.blocks_offset,
           rows.count * block_bytes);
    slot->rows += rows.count;
    return weft_values_finite(data + rows.blocks_offset, (size_t)rows.count * spec->dim);
}

static void push_chunk(struct weft_aggregator *agg, struct agg_slot *slot,
                       const struct weft_msg_event *event, uint64_t now_ns)
{
    if (event->chunk == 0) {
        read_head(agg, slot, event);
    }
    if (slot->dead || slot->stale) {
        return;
    }
    if (slot->head_seen) {
        weft_agg_sum_heard(agg, slot->table, slot->request.reply_bound_ppm, now_ns);
    }
    const struct weft_table_spec *spec = &agg->tables[slot->table].spec;
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
    struct weft_ps_chunk_rows rows;
    if (slot->id_bytes != WEFT_RPC_ID_PACKED) {
        rows = weft_ps_chunk_rows(event->elem_bytes, slot->id_bytes, event->chunk_elems, head_elems,
                                  event->chunk, event->elems);
    } else if (!weft_ps_packed_rows(event->data, event->elems, event->chunk == 0 ? head_elems : 0,
                                    spec, &rows)) {
        slot_kill(slot, &agg->counters.direct_form);
        return;
    }
    if (rows.list != 0 || rows.count > WEFT_PS_CHUNK_ROWS_MAX) {
        slot_kill(slot, &agg->counters.direct_form);
    } else if (slot->rows + rows.count > rows_max_of(agg, spec) ||
               slot->rows + rows.count > WEFT_AGGREGATE_COUNT_MAX) {
        slot_kill(slot, &agg->counters.direct_large);
    } else if (!take_rows(agg, slot, event, spec, rows)) {
        slot_kill(slot, &agg->counters.direct_form);
    }
}

static void push_add(struct weft_aggregator *agg, struct agg_slot *slot, uint64_t now_ns)
{
    const struct agg_member member = {
        .push = {.rank = slot->rank,
                 .session = slot->request.need_clock,
                 .incarnation = agg->workers[slot->rank].incarnation,
                 .number = slot->request.after_seq,
                 .rpc_id = slot->request.rpc_id,
                 .clock = slot->clock,
                 .base = slot->request.rows_critical & WEFT_RPC_BASE_MASK},
        .answer = slot->answer,
    };
    const struct agg_input input = {
        .table = slot->table,
        .clock = slot->clock,
        .rank = slot->rank,
        .wants_cut = (slot->request.flags & WEFT_RPC_CUT) != 0,
        .sum = slot->request.reply_bound_ppm,
        .piece = slot->request.reply_bound_ppm != 0 ? slot->request.rows_critical >> 24 : 0,
        .member = &member,
        .members = 1,
        .rows = slot->rows,
        .count_max = slot->rows,
        .bytes = slot->bytes,
        .arrival_ns = now_ns - weft_min_u64(slot->opened_ns, now_ns),
        .ids = (const uint64_t *)slot->memory,
        .values = values_of(agg, slot),
    };
    if (weft_agg_group_has(agg, &input)) {
        slot_kill(slot, &agg->counters.direct_form);
    } else if (!weft_agg_group_add(agg, &input, now_ns)) {
        slot_kill(slot, &agg->counters.direct_large);
    }
}

static void push_closed(struct weft_aggregator *agg, struct agg_slot *slot,
                        const struct weft_msg_event *event, uint64_t now_ns)
{
    if (event->outcome != WEFT_MSG_COMPLETE || slot->stale || !slot->head_seen) {
        slot_release(agg, slot, false); /* the sender no longer waits, or violated the protocol */
        return;
    }
    struct agg_answer *answer = &agg->answers[slot->answer];
    answer->rank = slot->rank;
    answer->life = agg->workers[slot->rank].life;
    answer->op = WEFT_RPC_PUSH;
    answer->table = slot->table;
    answer->rpc_id = slot->request.rpc_id;
    answer->t0_ns = slot->request.t0_ns;
    answer->pushes = 1;
    answer->rows = slot->dead ? slot->request.rows : slot->rows;
    answer->message_bytes = slot->bytes;
    answer->arrival_ns = event->at_ns;
    agg->counters.pushes_in++;
    if (!slot->dead && !agg_takes_sums(agg, slot->table)) {
        slot_kill(slot, &agg->counters.direct_shard);
    }
    if (!slot->dead) {
        push_add(agg, slot, now_ns);
    }
    if (!slot->dead && agg->config.on_apply && (slot->request.flags & WEFT_RPC_ON_APPLY) != 0) {
        weft_agg_answer_first(agg, slot->answer);
    }
    if (slot->dead) {
        (*slot->why)++;
        agg->counters.pushes_direct++;
        weft_agg_record_direct(agg, slot->answer, slot->why);
        weft_agg_answer(agg, slot->answer, WEFT_RPC_SEND_DIRECT, NULL);
    }
    slot_release(agg, slot, true);
}

void weft_agg_push_event(struct weft_aggregator *agg, uint32_t index,
                         const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_slot *slot = &agg->slots[index];
    if (event->type == WEFT_EVENT_OPEN) {
        push_open(agg, slot, event, now_ns);
    } else if (event->type == WEFT_EVENT_CHUNK) {
        push_chunk(agg, slot, event, now_ns);
    } else {
        push_closed(agg, slot, event, now_ns);
    }
}
