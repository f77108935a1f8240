#include "ps/dirty_set.h"

#include "base/assert.h"
#include "ps/table.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_dirty_set_init(struct weft_dirty_set *dirty_set, uint16_t table, uint32_t rows_max)
{
    size_t words = WEFT_BITS_WORDS((size_t)rows_max);
    *dirty_set = (struct weft_dirty_set){.table = table, .all_dirty = true};
    dirty_set->live = calloc(words, sizeof(*dirty_set->live));
    dirty_set->dirty = calloc(words, sizeof(*dirty_set->dirty));
    dirty_set->cut = calloc(words, sizeof(*dirty_set->cut));
    dirty_set->pending = calloc(words, sizeof(*dirty_set->pending));
    dirty_set->removed = calloc(WEFT_DIRTY_SET_REMOVED_MAX, sizeof(*dirty_set->removed));
    if (dirty_set->live == NULL || dirty_set->removed == NULL || dirty_set->dirty == NULL ||
        dirty_set->cut == NULL || dirty_set->pending == NULL) {
        weft_dirty_set_fini(dirty_set);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_dirty_set_fini(struct weft_dirty_set *dirty_set)
{
    free(dirty_set->live);
    free(dirty_set->removed);
    free(dirty_set->dirty);
    free(dirty_set->cut);
    free(dirty_set->pending);
    *dirty_set = (struct weft_dirty_set){0};
}

void weft_dirty_set_cut(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                        bool whole, struct weft_cow_buffer *cow)
{
    WEFT_ASSERT(!dirty_set->is_cut);
    uint32_t rows = weft_table_slots(table);
    size_t words = WEFT_BITS_WORDS((size_t)rows);
    dirty_set->record_bytes = weft_table_record_bytes(table);
    dirty_set->is_whole = whole || dirty_set->all_dirty;
    for (size_t w = 0; w < words; w++) {
        dirty_set->cut[w] =
            dirty_set->live[w] & (dirty_set->is_whole ? UINT64_MAX : dirty_set->dirty[w]);
    }
    dirty_set->removed_count = dirty_set->is_whole ? 0 : dirty_set->removed_count;
    dirty_set->removed_cut = dirty_set->removed_count;
    memcpy(dirty_set->pending, dirty_set->cut, words * sizeof(*dirty_set->pending));
    memset(dirty_set->dirty, 0, words * sizeof(*dirty_set->dirty));
    dirty_set->rows = rows;
    dirty_set->cut_count = (uint32_t)weft_bits_count(dirty_set->cut, rows);
    dirty_set->emitted = dirty_set->cursor = 0;
    dirty_set->overrun = dirty_set->all_dirty = false;
    dirty_set->cow = cow;
    dirty_set->is_cut = true;
}

void weft_dirty_set_end(struct weft_dirty_set *dirty_set, bool kept)
{
    WEFT_ASSERT(dirty_set->is_cut);
    if (!kept && dirty_set->is_whole) {
        dirty_set->all_dirty = true;
    } else if (!kept) {
        for (size_t w = 0; w < WEFT_BITS_WORDS((size_t)dirty_set->rows); w++) {
            dirty_set->dirty[w] |= dirty_set->cut[w];
        }
    } else {
        dirty_set->kept_any = true;
        dirty_set->removed_count -= dirty_set->removed_cut;
        memmove(dirty_set->removed, dirty_set->removed + dirty_set->removed_cut,
                dirty_set->removed_count * sizeof(*dirty_set->removed));
    }
    dirty_set->is_cut = false;
    dirty_set->cow = NULL;
}

static void copy_aside(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                       uint32_t number)
{
    struct weft_cow_buffer *cow = dirty_set->cow;
    size_t entry_bytes = sizeof(uint64_t) + dirty_set->record_bytes;
    if (cow->bytes - cow->end < entry_bytes) {
        dirty_set->overrun = true;
        return;
    }
    uint64_t index = dirty_set->table;
    memcpy(cow->memory + cow->end, &index, sizeof(index));
    weft_table_record_read(table, number, cow->memory + cow->end + sizeof(index));
    cow->end += entry_bytes;
    cow->peak = cow->end > cow->peak ? cow->end : cow->peak;
}

void weft_dirty_set_change(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                           uint32_t number)
{
    weft_bits_set(dirty_set->dirty, number);
    if (dirty_set->is_cut && number < dirty_set->rows &&
        weft_bits_test(dirty_set->pending, number)) {
        weft_bits_clear(dirty_set->pending, number);
        if (!dirty_set->overrun) {
            copy_aside(dirty_set, table, number);
        }
    }
}

void weft_dirty_set_made(struct weft_dirty_set *dirty_set, uint32_t number)
{
    /* If the slot had a removed row, its record was already copied. */
    weft_bits_set(dirty_set->live, number);
    weft_bits_set(dirty_set->dirty, number);
}

void weft_dirty_set_remove(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                           uint32_t number)
{
    weft_dirty_set_change(dirty_set, table, number);
    weft_bits_clear(dirty_set->live, number);
    if (dirty_set->removed_count == WEFT_DIRTY_SET_REMOVED_MAX) {
        dirty_set->all_dirty = true;
        return;
    }
    dirty_set->removed[dirty_set->removed_count++] = weft_table_record_id(table, number);
}

uint32_t weft_dirty_set_take(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                             uint8_t *out, uint32_t max)
{
    uint32_t count = 0;
    while (count < max) {
        dirty_set->cursor =
            (uint32_t)weft_bits_next_one(dirty_set->pending, dirty_set->rows, dirty_set->cursor);
        if (dirty_set->cursor == dirty_set->rows) {
            break;
        }
        weft_table_record_read(table, dirty_set->cursor,
                               out + (size_t)count * dirty_set->record_bytes);
        weft_bits_clear(dirty_set->pending, dirty_set->cursor);
        count++;
    }
    dirty_set->emitted += count;
    return count;
}

void weft_dirty_set_attach(struct weft_table *table, struct weft_dirty_set *dirty_set)
{
    dirty_set->next = table->dirty_set;
    table->dirty_set = dirty_set;
}

static uint64_t cow_table(const struct weft_cow_buffer *cow)
{
    uint64_t table;
    memcpy(&table, cow->memory + cow->begin, sizeof(table));
    return table;
}

uint32_t weft_cow_buffer_take(struct weft_cow_buffer *cow, struct weft_dirty_set *dirty_sets,
                              uint8_t *out, size_t bytes, uint16_t *table_p)
{
    uint64_t table = cow_table(cow);
    struct weft_dirty_set *dirty_set = &dirty_sets[table];
    uint32_t count = 0;
    while (cow->begin < cow->end && cow_table(cow) == table &&
           bytes - (size_t)count * dirty_set->record_bytes >= dirty_set->record_bytes) {
        memcpy(out + (size_t)count * dirty_set->record_bytes,
               cow->memory + cow->begin + sizeof(table), dirty_set->record_bytes);
        cow->begin += sizeof(table) + dirty_set->record_bytes;
        count++;
    }
    if (cow->begin == cow->end) {
        cow->begin = cow->end = 0;
    }
    dirty_set->emitted += count;
    *table_p = (uint16_t)table;
    return count;
}
