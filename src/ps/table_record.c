/* Rows as records of a checkpoint. */
#include "base/assert.h"
#include "ps/table_internal.h"

#include <string.h>

/* Weights, slots and steps are contiguous. */
static size_t kept_bytes(const struct weft_table *table)
{
    return sizeof(float) * table->sums_at;
}

uint32_t weft_table_slots(const struct weft_table *table)
{
    return table->rows_begun;
}

bool weft_table_settled(const struct weft_table *table)
{
    return table->touched_head == TABLE_TOUCHED_LAST && table->step_left == 0;
}

uint32_t weft_table_record_bytes(const struct weft_table *table)
{
    return (uint32_t)(WEFT_TABLE_RECORD_HEAD + kept_bytes(table));
}

uint64_t weft_table_record_id(const struct weft_table *table, uint32_t number)
{
    return table_row_at(table, number)->id;
}

void weft_table_record_read(const struct weft_table *table, uint32_t number, uint8_t *out)
{
    const struct weft_table_row *row = table_row_at(table, number);
    WEFT_ASSERT((row->number & TABLE_ROW_LIVE) != 0);
    memcpy(out, &row->id, sizeof(row->id));
    memcpy(out + 8, &row->clock, sizeof(row->clock));
    memcpy(out + 12, &row->count, sizeof(row->count));
    memcpy(out + WEFT_TABLE_RECORD_HEAD, table_weights(row), kept_bytes(table));
}

weft_status weft_table_record_write(struct weft_table *table, const uint8_t *record)
{
    uint64_t id;
    memcpy(&id, record, sizeof(id));
    struct weft_table_row *row = weft_table_find(table, id);
    if (row == NULL) {
        size_t bytes;
        /* Request memory first: a full table would evict other rows of the checkpoint. */
        if (weft_table_wants_slab(table, &bytes)) {
            return WEFT_AGAIN;
        }
        row = weft_table_obtain(table, id);
    }
    if (row == NULL) {
        return WEFT_NOMEM;
    }
    table_row_changes(table, row);
    memcpy(&row->clock, record + 8, sizeof(row->clock));
    uint32_t count;
    memcpy(&count, record + 12, sizeof(count));
    table_hot_restore(table, row, count);
    memcpy(table_weights(row), record + WEFT_TABLE_RECORD_HEAD, kept_bytes(table));
    return WEFT_OK;
}

void weft_table_record_remove(struct weft_table *table, uint64_t id)
{
    struct weft_table_row *row = weft_table_find(table, id);
    if (row != NULL && !table_is_dense(table)) {
        weft_table_remove(table, row);
    }
}

void weft_table_clear(struct weft_table *table, uint32_t shard, uint32_t shards)
{
    for (uint32_t number = 0; number < table->rows_begun && !table_is_dense(table); number++) {
        struct weft_table_row *row = table_row_at(table, number);
        if ((row->number & TABLE_ROW_LIVE) != 0 && weft_table_shard_of(row->id, shards) == shard) {
            weft_table_remove(table, row);
        }
    }
}
