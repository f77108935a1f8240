/* A chunk of a PUSH: validated as a whole, then applied directly from the receive buffer. */
#include "ps/shard_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"
#include "ps/layout.h"
#include "ps/values.h"

/* Checked for each chunk, because clocks advance meanwhile. */
enum weft_rpc_status weft_shard_push_allowed(const struct weft_shard *shard,
                                             const struct shard_slot *slot,
                                             const struct weft_table *table)
{
    if (slot->worker >= table->spec.workers) {
        return WEFT_RPC_WRONG_WORKER;
    }
    if (!weft_shard_member_counts(shard, slot->table, slot->worker)) {
        return WEFT_RPC_STALE_CLOCK;
    }
    if (slot->clock > WEFT_RPC_CLOCK_MAX) {
        return WEFT_RPC_BAD_REQUEST;
    }
    size_t at = (size_t)slot->table * shard->config.workers_max + slot->worker;
    if (slot->clock <= shard->clocks[at]) {
        return WEFT_RPC_STALE_CLOCK;
    }
    if (table->spec.mode == WEFT_TABLE_BSP && slot->clock != shard->clock_min[slot->table] + 1) {
        return WEFT_RPC_EARLY_CLOCK;
    }
    return WEFT_RPC_OK;
}

/* The rows of one chunk in the receive buffer. Values that are not float32 are decoded to `values`
 * by load_values. */
struct push_chunk {
    const uint8_t *ids;
    uint32_t id_bytes;
    size_t ids_bytes; /* of all ids, if packed */
    const uint8_t *blocks;
    uint32_t first;
    uint32_t count;
    uint32_t block_bytes; /* of float32, the type after load_values */
    struct weft_ps_chunk_rows rows;
};

/* False: a chunk with packed ids that is inconsistent, or has more rows than any sender uses. */
static bool chunk_of(const struct shard_slot *slot, const struct weft_table *table,
                     const struct weft_msg_event *event, struct push_chunk *chunk_p)
{
    const bool packed = slot->id_bytes == WEFT_RPC_ID_PACKED;
    const uint32_t head_elems = shard_request_head_elems(event);
    const uint8_t *data = event->data;
    struct weft_ps_chunk_rows rows;
    if (!packed) {
        rows = weft_ps_chunk_rows(event->elem_bytes, slot->id_bytes, event->chunk_elems, head_elems,
                                  event->chunk, event->elems);
    } else if (!weft_ps_packed_rows(data, event->elems, event->chunk == 0 ? head_elems : 0,
                                    &table->spec, &rows)) {
        return false;
    }
    if (rows.count > WEFT_PS_CHUNK_ROWS_MAX ||
        (table->spec.push_values != WEFT_VALUE_FLOAT32 &&
         (uint64_t)rows.count * table->block_floats > WEFT_PS_CHUNK_VALUES_MAX)) {
        return false;
    }
    *chunk_p = (struct push_chunk){
        .ids = data + rows.ids_offset,
        .id_bytes = slot->id_bytes,
        .ids_bytes = rows.blocks_offset - rows.ids_offset,
        .blocks = data + rows.blocks_offset,
        .first = packed ? 0 : rows.first, /* packed: a row is a block */
        .count = rows.count,
        .block_bytes = (uint32_t)sizeof(float) * table->block_floats,
        .rows = rows,
    };
    return true;
}

/* Load its ids into chunk_ids. Returns WEFT_RPC_OK, or the error. */
static enum weft_rpc_status load_ids(struct weft_shard *shard, struct shard_slot *slot,
                                     const struct push_chunk *chunk)
{
    if (chunk->rows.list != 0) {
        return weft_shard_list_ids(shard, slot, &chunk->rows);
    }
    if (chunk->id_bytes == WEFT_RPC_ID_PACKED) {
        return weft_ids_unpack(chunk->ids, chunk->ids_bytes, chunk->count, shard->chunk_ids)
                   ? WEFT_RPC_OK
                   : WEFT_RPC_BAD_REQUEST;
    }
    weft_ps_load_ids(chunk->ids, chunk->id_bytes, chunk->count, shard->chunk_ids);
    return WEFT_RPC_OK;
}

/* Decode its values to float32. False: invalid encoding. */
static bool load_values(struct weft_shard *shard, const struct weft_table *table,
                        struct push_chunk *chunk)
{
    const uint8_t type = table->spec.push_values;
    const uint32_t floats = table->block_floats;
    if (type == WEFT_VALUE_FLOAT32) {
        return true;
    }
    const uint32_t together = ps_blocks_are_together(type, chunk->id_bytes) ? chunk->count : 1;
    const size_t bytes = weft_blocks_bytes(type, floats, together);
    const uint8_t *from = chunk->blocks;
    for (uint32_t i = 0; i < chunk->count; i += together, from += bytes) {
        if (!weft_blocks_load(type, floats, from, together, shard->values + (size_t)i * floats)) {
            return false;
        }
    }
    chunk->blocks = (const uint8_t *)shard->values;
    return true;
}

/* Number of used floats of element i; the rest of its block is padding. */
static uint32_t used_of(const struct weft_table *table, const struct push_chunk *chunk, uint32_t i)
{
    return weft_table_block_used(&table->spec, (chunk->first + i) % table->blocks);
}

static bool chunk_finite(const struct weft_table *table, const struct push_chunk *chunk)
{
    if (table->block_floats * table->blocks == table->spec.dim) {
        return weft_values_finite(chunk->blocks, (size_t)chunk->count * table->block_floats);
    }
    for (uint32_t i = 0; i < chunk->count; i++) {
        const uint8_t *block = chunk->blocks + (size_t)i * chunk->block_bytes;
        if (!weft_values_finite(block, used_of(table, chunk, i))) {
            return false;
        }
    }
    return true;
}

static bool all_here(const struct weft_shard *shard, const struct weft_table *table,
                     const struct push_chunk *chunk)
{
    const bool hashed = table->spec.kind == WEFT_TABLE_SPARSE;
    const uint32_t shards = table->limits.shards, here = table->limits.shard;
    bool all = true;
    for (uint32_t i = 0; i < chunk->count && !weft_table_owns_all(table); i++) {
        uint64_t id = shard->chunk_ids[i];
        all &= hashed ? weft_table_shard_of(id, shards) == here : weft_table_owns(table, id);
    }
    return all;
}

static void hash_ids(struct weft_shard *shard, const struct weft_table *table,
                     const struct push_chunk *chunk)
{
    /* a local copy: the compiler may assume that no store changes it */
    const struct weft_hash_key key = table->index_key;
    for (uint32_t i = 0; i < chunk->count; i++) {
        shard->chunk_hashes[i] = weft_hash_keyed(&key, shard->chunk_ids[i]);
    }
}

/* Check a chunk completely before any of it is applied; its rows are returned in chunk_rows. Rows
 * created before the table was full stay, with initial weights. */
static enum weft_rpc_status validate(struct weft_shard *shard, struct weft_table *table,
                                     const struct push_chunk *chunk)
{
    /* Existing rows belong to this shard, so no further check is needed. */
    bool found = weft_table_lookup_run(table, shard->chunk_ids, chunk->count, shard->chunk_rows);
    if (!found && !all_here(shard, table, chunk)) {
        return WEFT_RPC_WRONG_SHARD;
    }
    if (table->spec.not_finite == WEFT_NOT_FINITE_REJECT && !chunk_finite(table, chunk)) {
        return WEFT_RPC_NOT_FINITE;
    }
    if (!found && table->spec.kind == WEFT_TABLE_SPARSE) {
        hash_ids(shard, table, chunk);
    }
    if (!found && !weft_table_obtain_chunk(table, shard->chunk_ids, shard->chunk_hashes,
                                           chunk->first, chunk->count, shard->chunk_rows)) {
        shard->counters.rows_refused++;
        return WEFT_RPC_FULL;
    }
    return WEFT_RPC_OK;
}

/* The same; the journal learns which rows were evicted, or says it. */
static enum weft_rpc_status find_rows(struct weft_shard *shard, const struct shard_slot *slot,
                                      struct weft_table *table, const struct push_chunk *chunk)
{
    weft_table_begin(table, slot->clock);
    weft_shard_journal_watch(shard, table);
    enum weft_rpc_status status = validate(shard, table, chunk);
    weft_shard_journal_unwatch(shard, table);
    return status;
}

/* Skip rows with a value that is not finite. */
static void drop_not_finite(struct weft_shard *shard, struct weft_table *table,
                            const struct push_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->count; i++) {
        const uint8_t *block = chunk->blocks + (size_t)i * chunk->block_bytes;
        if (!weft_values_finite(block, used_of(table, chunk, i))) {
            shard->chunk_rows[i] = NULL;
            table->counters.not_finite++;
        }
    }
}

/* Sum of the squares of the applied values. */
static double chunk_squares(const struct weft_shard *shard, const struct weft_table *table,
                            const struct push_chunk *chunk)
{
    double sum = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const uint8_t *block = chunk->blocks + (size_t)i * chunk->block_bytes;
        uint32_t used = shard->chunk_rows[i] == NULL ? 0 : used_of(table, chunk, i);
        for (uint32_t k = 0; k < used; k++) {
            float value;
            memcpy(&value, block + k * sizeof(value), sizeof(value));
            sum += (double)value * value;
        }
    }
    return sum;
}

bool weft_shard_push_take(struct weft_shard *shard, struct shard_slot *slot,
                          const struct weft_msg_event *event)
{
    struct weft_table *table = shard_table(shard, slot->table);
    if (weft_shard_dedup_chunk(shard, slot, event->chunk)) {
        shard->counters.chunks_duplicate++;
        return true;
    }
    enum weft_rpc_status status = weft_shard_push_allowed(shard, slot, table);
    if (status == WEFT_RPC_OK && slot->update && !slot->update_open) {
        status = weft_shard_update_open(shard, slot);
    }
    if (status == WEFT_RPC_STALE_CLOCK) {
        shard_slot_note(slot, status); /* the refusal is final, but other chunks may be
                                        * duplicates */
        return false;
    }
    if (status != WEFT_RPC_OK) {
        shard_slot_reject(slot, status);
        return false;
    }
    struct push_chunk chunk;
    status = chunk_of(slot, table, event, &chunk) ? WEFT_RPC_OK : WEFT_RPC_BAD_REQUEST;
    status = status == WEFT_RPC_OK ? load_ids(shard, slot, &chunk) : status;
    if (status != WEFT_RPC_OK) {
        shard_slot_reject(slot, status);
        return false;
    }
    if (!load_values(shard, table, &chunk)) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return false;
    }
    const uint32_t listed = chunk.rows.list != 0 ? chunk.count : 0;
    status = find_rows(shard, slot, table, &chunk);
    if (status != WEFT_RPC_OK) {
        if (status == WEFT_RPC_FULL) {
            weft_shard_journal_refused(shard, slot, event, listed);
        }
        shard_slot_note(slot, status);
        return false;
    }
    if (table->spec.not_finite == WEFT_NOT_FINITE_DROP) {
        drop_not_finite(shard, table, &chunk);
    }
    shard->counters.chunks_applied++;
    shard->counters.elements_applied +=
        weft_table_apply(table, shard->chunk_rows, chunk.first, chunk.count, chunk.blocks);
    if (slot->update) {
        weft_shard_update_applied(shard, slot, chunk_squares(shard, table, &chunk));
    }
    weft_shard_dedup_applied(shard, slot, event->chunk);
    shard->counters.ids_by_list += listed;
    weft_shard_journal_chunk(shard, slot, event, listed);
    return true;
}

/* The checks that OPEN and the connection made when the chunk first arrived. */
static bool replay_fits(const struct weft_table *table, const struct shard_slot *slot,
                        const struct weft_msg_event *event)
{
    uint32_t head_elems = slot->id_bytes != 0 ? shard_request_head_elems(event) : 0;
    uint64_t before = (uint64_t)event->chunk * event->chunk_elems;
    return slot->id_bytes != 0 && event->chunk_elems >= head_elems &&
           event->chunk_elems <= weft_shard_chunk_elems_max(slot->id_bytes) &&
           event->chunk < event->chunks && event->elems <= event->chunk_elems &&
           event->elems >= 1 && event->total >= head_elems &&
           before + event->elems <= event->total &&
           (event->chunk > 0 || event->elems >= head_elems) &&
           (slot->id_bytes == WEFT_RPC_ID_PACKED ||
            (event->total - head_elems) % weft_table_blocks(&table->spec) == 0);
}

static struct shard_slot replay_slot(const struct weft_shard *shard,
                                     const struct weft_shard_replayed *push)
{
    const struct weft_msg_event *event = &push->event;
    return (struct shard_slot){
        .op = WEFT_RPC_PUSH,
        .partial = WEFT_SHARD_NONE,
        .table = push->table,
        .worker = push->worker,
        .number = push->number,
        .clock = push->clock,
        .ids_behind = (const uint8_t *)event->data + (size_t)event->elems * event->elem_bytes,
        .ids_behind_bytes = push->behind_bytes,
        .id_bytes = weft_shard_push_id_bytes(shard_table(shard, push->table), event->elem_bytes)};
}

bool weft_shard_push_replay(struct weft_shard *shard, const struct weft_shard_replayed *push)
{
    struct shard_slot slot = replay_slot(shard, push);
    if (!replay_fits(shard_table(shard, push->table), &slot, &push->event)) {
        return false;
    }
    weft_shard_dedup_begin(shard, &slot, &push->event);
    return !slot.dead && weft_shard_push_take(shard, &slot, &push->event);
}

bool weft_shard_push_replay_refused(struct weft_shard *shard,
                                    const struct weft_shard_replayed *push)
{
    struct weft_table *table = shard_table(shard, push->table);
    struct shard_slot slot = replay_slot(shard, push);
    struct push_chunk chunk;
    if (!replay_fits(table, &slot, &push->event) || !chunk_of(&slot, table, &push->event, &chunk) ||
        load_ids(shard, &slot, &chunk) != WEFT_RPC_OK || !load_values(shard, table, &chunk)) {
        return false;
    }
    return find_rows(shard, &slot, table, &chunk) == WEFT_RPC_FULL;
}

uint32_t weft_shard_push_rows(const struct weft_shard *shard,
                              const struct weft_shard_replayed *push)
{
    const struct weft_table *table = shard_table(shard, push->table);
    const struct shard_slot slot = replay_slot(shard, push);
    struct push_chunk chunk;
    return replay_fits(table, &slot, &push->event) && chunk_of(&slot, table, &push->event, &chunk)
               ? chunk.count
               : 0;
}
