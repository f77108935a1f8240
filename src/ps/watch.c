#include "ps/watch.h"

#include "base/assert.h"
#include "ps/table.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_table_watch_init(struct weft_table_watch *watch, uint16_t table,
                                  uint32_t rows_max)
{
    size_t words = WEFT_BITS_WORDS((size_t)rows_max);
    *watch = (struct weft_table_watch){.table = table, .all_dirty = true};
    watch->live = calloc(words, sizeof(*watch->live));
    watch->dirty = calloc(words, sizeof(*watch->dirty));
    watch->cut = calloc(words, sizeof(*watch->cut));
    watch->pending = calloc(words, sizeof(*watch->pending));
    watch->removed = calloc(WEFT_WATCH_REMOVED_MAX, sizeof(*watch->removed));
    if (watch->live == NULL || watch->removed == NULL || watch->dirty == NULL || watch->cut == NULL || watch->pending == NULL) {
        weft_table_watch_fini(watch);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_table_watch_fini(struct weft_table_watch *watch)
{
    free(watch->live);
    free(watch->removed);
    free(watch->dirty);
    free(watch->cut);
    free(watch->pending);
    *watch = (struct weft_table_watch){0};
}

void weft_table_watch_cut(struct weft_table_watch *watch, const struct weft_table *table,
                          bool whole, struct weft_spill *spill)
{
    WEFT_ASSERT(!watch->is_cut);
    uint32_t rows = weft_table_places(table);
    size_t words = WEFT_BITS_WORDS((size_t)rows);
    watch->record_bytes = weft_table_record_bytes(table);
    watch->is_whole = whole || watch->all_dirty;
    for (size_t w = 0; w < words; w++) {
        watch->cut[w] = watch->live[w] & (watch->is_whole ? UINT64_MAX : watch->dirty[w]);
    }
    watch->removed_count = watch->is_whole ? 0 : watch->removed_count;
    watch->removed_cut = watch->removed_count;
    memcpy(watch->pending, watch->cut, words * sizeof(*watch->pending));
    memset(watch->dirty, 0, words * sizeof(*watch->dirty));
    watch->rows = rows;
    watch->cut_count = (uint32_t)weft_bits_count(watch->cut, rows);
    watch->emitted = watch->cursor = 0;
    watch->overrun = watch->all_dirty = false;
    watch->spill = spill;
    watch->is_cut = true;
}

void weft_table_watch_end(struct weft_table_watch *watch, bool kept)
{
    WEFT_ASSERT(watch->is_cut);
    if (!kept && watch->is_whole) {
        watch->all_dirty = true;
    } else if (!kept) {
        for (size_t w = 0; w < WEFT_BITS_WORDS((size_t)watch->rows); w++) {
            watch->dirty[w] |= watch->cut[w];
        }
    } else {
        watch->removed_count -= watch->removed_cut;
        memmove(watch->removed, watch->removed + watch->removed_cut,
                watch->removed_count * sizeof(*watch->removed));
    }
    watch->is_cut = false;
    watch->spill = NULL;
}

static void copy_aside(struct weft_table_watch *watch, const struct weft_table *table,
                       uint32_t number)
{
    struct weft_spill *spill = watch->spill;
    size_t entry_bytes = sizeof(uint64_t) + watch->record_bytes;
    if (spill->bytes - spill->end < entry_bytes) {
        watch->overrun = true;
        return;
    }
    uint64_t index = watch->table;
    memcpy(spill->memory + spill->end, &index, sizeof(index));
    weft_table_record_read(table, number, spill->memory + spill->end + sizeof(index));
    spill->end += entry_bytes;
    spill->peak = spill->end > spill->peak ? spill->end : spill->peak;
}

void weft_table_watch_change(struct weft_table_watch *watch, const struct weft_table *table,
                             uint32_t number)
{
    weft_bits_set(watch->dirty, number);
    if (watch->is_cut && number < watch->rows && weft_bits_test(watch->pending, number)) {
        weft_bits_clear(watch->pending, number);
        if (!watch->overrun) {
            copy_aside(watch, table, number);
        }
    }
}

void weft_table_watch_made(struct weft_table_watch *watch, uint32_t number)
{
    /* At the place of one that was taken away, if any: copied aside by then. */
    weft_bits_set(watch->live, number);
    weft_bits_set(watch->dirty, number);
}

void weft_table_watch_remove(struct weft_table_watch *watch, const struct weft_table *table,
                             uint32_t number)
{
    weft_table_watch_change(watch, table, number);
    weft_bits_clear(watch->live, number);
    if (watch->removed_count == WEFT_WATCH_REMOVED_MAX) {
        watch->all_dirty = true;
        return;
    }
    watch->removed[watch->removed_count++] = weft_table_record_id(table, number);
}

uint32_t weft_table_watch_take(struct weft_table_watch *watch, const struct weft_table *table,
                               uint8_t *out, uint32_t max)
{
    uint32_t count = 0;
    while (count < max) {
        watch->cursor = (uint32_t)weft_bits_next_one(watch->pending, watch->rows, watch->cursor);
        if (watch->cursor == watch->rows) {
            break;
        }
        weft_table_record_read(table, watch->cursor, out + (size_t)count * watch->record_bytes);
        weft_bits_clear(watch->pending, watch->cursor);
        count++;
    }
    watch->emitted += count;
    return count;
}

void weft_table_watch_attach(struct weft_table *table, struct weft_table_watch *watch)
{
    watch->next = table->watch;
    table->watch = watch;
}

static uint64_t spill_table(const struct weft_spill *spill)
{
    uint64_t table;
    memcpy(&table, spill->memory + spill->begin, sizeof(table));
    return table;
}

uint32_t weft_spill_take(struct weft_spill *spill, struct weft_table_watch *watches, uint8_t *out,
                         size_t bytes, uint16_t *table_p)
{
    uint64_t table = spill_table(spill);
    struct weft_table_watch *watch = &watches[table];
    uint32_t count = 0;
    while (spill->begin < spill->end && spill_table(spill) == table &&
           bytes - (size_t)count * watch->record_bytes >= watch->record_bytes) {
        memcpy(out + (size_t)count * watch->record_bytes,
               spill->memory + spill->begin + sizeof(table), watch->record_bytes);
        spill->begin += sizeof(table) + watch->record_bytes;
        count++;
    }
    if (spill->begin == spill->end) {
        spill->begin = spill->end = 0;
    }
    watch->emitted += count;
    *table_p = (uint16_t)table;
    return count;
}
