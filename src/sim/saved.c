#include "sim/saved.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { COW_BYTES = 4 << 20, TAKE_BYTES = 1 << 16 };

static void *get(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

void weft_saved_init(struct weft_saved *saved, uint32_t tables_max, uint32_t workers_max)
{
    *saved = (struct weft_saved){.tables_max = tables_max, .workers_max = workers_max};
    saved->tables = get(tables_max, sizeof(*saved->tables));
    saved->incarnations = get(workers_max, sizeof(*saved->incarnations));
    saved->retired = get(workers_max, sizeof(*saved->retired));
    for (uint32_t t = 0; t < tables_max; t++) {
        saved->tables[t].clocks = get(workers_max, sizeof(uint32_t));
        saved->tables[t].pushes = get(workers_max, sizeof(struct weft_push_window));
    }
}

static void partials_drop(struct weft_saved *saved)
{
    for (uint32_t i = 0; i < saved->partial_count; i++) {
        free(saved->partials[i].mask);
    }
    free(saved->partials);
    saved->partials = NULL;
    saved->partial_count = 0;
}

void weft_saved_fini(struct weft_saved *saved)
{
    partials_drop(saved);
    for (uint32_t t = 0; saved->tables != NULL && t < saved->tables_max; t++) {
        free(saved->tables[t].clocks);
        free(saved->tables[t].pushes);
        free(saved->tables[t].records);
    }
    free(saved->tables);
    free(saved->incarnations);
    free(saved->retired);
    free(saved->cow_memory);
    *saved = (struct weft_saved){0};
}

/* ---- taking checkpoints ---------------------------------------------------------------------- */

void weft_saved_begin(struct weft_saved *saved, struct weft_shard *shard)
{
    if (saved->begun) {
        return;
    }
    saved->cow_memory = saved->cow_memory != NULL ? saved->cow_memory : get(COW_BYTES, 1);
    const struct weft_cut_order order = {.number = ++saved->ordered,
                                         .now = true,
                                         .whole = true,
                                         .memory = saved->cow_memory,
                                         .bytes = COW_BYTES};
    weft_status status = weft_shard_cut_begin(shard, &order);
    WEFT_ASSERT(status == WEFT_OK);
    saved->begun = true;
}

static void copy_partials(struct weft_saved *saved, const struct weft_cut_view *view)
{
    partials_drop(saved);
    saved->partials = get(view->partial_count + 1, sizeof(*saved->partials));
    saved->partial_count = view->partial_count;
    for (uint32_t i = 0; i < view->partial_count; i++) {
        const struct weft_cut_partial *from = &view->partials[i];
        size_t words = WEFT_BITS_WORDS((size_t)from->chunks);
        saved->partials[i] = *from;
        saved->partials[i].mask = get(words, sizeof(uint64_t));
        memcpy(saved->partials[i].mask, from->mask, words * sizeof(uint64_t));
    }
}

static void copy_view(struct weft_saved *saved, const struct weft_cut_view *view)
{
    memcpy(saved->incarnations, view->incarnations, saved->workers_max * sizeof(uint64_t));
    memcpy(saved->retired, view->retired, saved->workers_max * sizeof(*saved->retired));
    copy_partials(saved, view);
    for (uint32_t t = 0; t < saved->tables_max; t++) {
        const struct weft_cut_table *from = &view->tables[t];
        struct weft_saved_table *to = &saved->tables[t];
        to->present = from->present;
        to->count = 0;
        if (!from->present) {
            continue;
        }
        to->spec = from->spec;
        to->record_bytes = from->record_bytes;
        memcpy(to->clocks, from->clocks, saved->workers_max * sizeof(*to->clocks));
        memcpy(to->pushes, from->pushes, saved->workers_max * sizeof(*to->pushes));
        free(to->records);
        to->records = get((size_t)from->rows + 1, from->record_bytes);
    }
}

bool weft_saved_poll(struct weft_saved *saved, struct weft_shard *shard)
{
    if (!weft_saved_take(saved, shard)) {
        return false;
    }
    weft_shard_cut_end(shard, true);
    return true;
}

bool weft_saved_take(struct weft_saved *saved, struct weft_shard *shard)
{
    if (!saved->begun || weft_shard_cut_state(shard) == WEFT_CUT_WAITING) {
        return false;
    }
    saved->begun = false;
    if (weft_shard_cut_state(shard) == WEFT_CUT_FAILED) {
        weft_shard_cut_end(shard, false);
        return false;
    }
    const struct weft_cut_view *view = weft_shard_cut_view(shard);
    copy_view(saved, view);
    uint8_t *buffer = get(TAKE_BYTES, 1);
    uint16_t t;
    uint32_t count;
    while ((count = weft_shard_cut_take(shard, buffer, TAKE_BYTES, &t)) > 0) {
        struct weft_saved_table *to = &saved->tables[t];
        WEFT_ASSERT(to->count + count <= view->tables[t].rows);
        memcpy(to->records + (size_t)to->count * to->record_bytes, buffer,
               (size_t)count * to->record_bytes);
        to->count += count;
    }
    free(buffer);
    WEFT_ASSERT(weft_shard_cut_state(shard) == WEFT_CUT_READY);
    saved->present = true;
    saved->number = saved->ordered;
    return true;
}

/* ---- restoring ------------------------------------------------------------------------------- */

static void give_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        weft_status status = weft_shard_add_slab(shard, table, get(bytes, 1), bytes);
        WEFT_ASSERT(status == WEFT_OK);
    }
}

static void restore_table(const struct weft_saved_table *from, struct weft_shard *shard,
                          uint32_t workers_max)
{
    uint16_t t = from->spec.table;
    weft_status status = weft_shard_restore_table(shard, &from->spec);
    WEFT_ASSERT(status == WEFT_OK);
    for (uint32_t used = 0, done = 0; done < from->count; done += used) {
        status = weft_shard_restore_rows(
            shard, t, from->records + (size_t)done * from->record_bytes, from->count - done, &used);
        WEFT_ASSERT(status == WEFT_OK || status == WEFT_AGAIN);
        give_slabs(shard);
    }
    weft_shard_restore_clocks(shard, t, from->clocks, workers_max);
    weft_shard_restore_pushes(shard, t, from->pushes, workers_max);
}

void weft_saved_restore(struct weft_saved *saved, struct weft_shard *shard)
{
    saved->begun = false;
    if (!saved->present) {
        return;
    }
    for (uint32_t t = 0; t < saved->tables_max; t++) {
        if (saved->tables[t].present) {
            restore_table(&saved->tables[t], shard, saved->workers_max);
        }
    }
    weft_shard_restore_incarnations(shard, saved->incarnations, saved->workers_max);
    weft_shard_restore_retired(shard, saved->retired, saved->workers_max);
    for (uint32_t i = 0; i < saved->partial_count; i++) {
        weft_status status = weft_shard_restore_partial(shard, &saved->partials[i]);
        WEFT_ASSERT(status == WEFT_OK);
    }
}
