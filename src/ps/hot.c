#include "ps/hot.h"

#include "base/assert.h"
#include "base/prefetch.h"
#include "base/units.h"
#include "ps/table_internal.h"

#include <stdlib.h>

/* Prefetch distance, in rows. */
enum { PREFETCH_ROWS = 16 };

weft_status weft_hot_init(struct weft_hot *hot, uint32_t top)
{
    *hot = (struct weft_hot){.top = top, .threshold = top > 0 ? 1 : UINT64_MAX};
    if (top == 0) {
        return WEFT_OK;
    }
    if (top > WEFT_HOT_TOP_MAX) {
        return WEFT_INVALID;
    }
    hot->slots = calloc(2 * (size_t)top, sizeof(*hot->slots));
    hot->counts = calloc(2 * (size_t)top, sizeof(*hot->counts));
    if (hot->slots == NULL || hot->counts == NULL) {
        weft_hot_fini(hot);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_hot_fini(struct weft_hot *hot)
{
    free(hot->slots);
    free(hot->counts);
    *hot = (struct weft_hot){0};
}

/* ---- the list -------------------------------------------------------------------------------- */

static const struct weft_table_row *listed_row(const struct weft_table *table, uint32_t i)
{
    const struct weft_hot *hot = &table->hot;
    if (i + PREFETCH_ROWS < hot->listed) {
        weft_prefetch(table_row_at(table, hot->slots[i + PREFETCH_ROWS]));
    }
    return table_row_at(table, hot->slots[i]);
}

/* 0 if the slot no longer has a row. */
static uint32_t updates_of(const struct weft_table *table, const struct weft_table_row *row)
{
    bool is_there = (row->number & TABLE_ROW_LIVE) != 0 && !table_row_expired(table, row);
    return is_there ? row->count : 0;
}

/* Number of counts at or above the threshold. */
static uint32_t reaching(const uint32_t *counts, uint32_t n, uint64_t threshold)
{
    uint32_t reach = 0, from = (uint32_t)threshold;
    for (uint32_t i = 0; i < n && threshold <= UINT32_MAX; i++) {
        reach += counts[i] >= from;
    }
    return reach;
}

/* The smallest threshold above the current one that at most `top` counts reach. A threshold above
 * the highest count would be reached by no row; rows that are pushed equally often reach the next
 * count together. */
static uint64_t next_threshold(const struct weft_hot *hot)
{
    uint64_t low = hot->threshold; /* invariant: reached by too many rows, or not allowed */
    uint32_t most = 0;
    for (uint32_t i = 0; i < hot->listed; i++) {
        most = hot->counts[i] > most ? hot->counts[i] : most;
    }
    uint64_t high = weft_max_u64(low, most) + 1;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (reaching(hot->counts, hot->listed, middle) <= hot->top) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

/* Keep the rows that reach the threshold, and of those just below as many as `top` has room for. */
static void keep(struct weft_table *table)
{
    struct weft_hot *hot = &table->hot;
    uint32_t reach = reaching(hot->counts, hot->listed, hot->threshold);
    uint32_t room = hot->top - reach, kept = 0;
    for (uint32_t i = 0; i < hot->listed; i++) {
        bool below = hot->counts[i] + UINT64_C(1) == hot->threshold && hot->counts[i] > 0;
        if (hot->counts[i] >= hot->threshold || (below && room > 0)) {
            room -= below;
            hot->slots[kept++] = hot->slots[i];
        } else {
            table_row_at(table, hot->slots[i])->number &= ~TABLE_ROW_HOT;
        }
    }
    hot->listed = kept;
}

static void rise(struct weft_table *table)
{
    struct weft_hot *hot = &table->hot;
    for (uint32_t i = 0; i < hot->listed; i++) {
        hot->counts[i] = updates_of(table, listed_row(table, i));
    }
    hot->threshold = next_threshold(hot);
    keep(table);
    hot->rises++;
}

void weft_table_hot_add(struct weft_table *table, struct weft_table_row *row)
{
    struct weft_hot *hot = &table->hot;
    if (hot->listed == 2 * hot->top) {
        rise(table);
        if (row->count < hot->threshold) {
            return; /* it is added once it reaches the threshold */
        }
    }
    WEFT_ASSERT(hot->listed < 2 * hot->top);
    row->number |= TABLE_ROW_HOT;
    hot->slots[hot->listed++] = table_row_number(row);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Fewer updates, or the same number and a larger id. */
static bool is_less(const struct weft_hot_row *a, const struct weft_hot_row *b)
{
    return a->updates != b->updates ? a->updates < b->updates : a->id > b->id;
}

/* A heap with the least at its root. */
static void sift_down(struct weft_hot_row *heap, uint32_t count, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && is_less(&heap[child + 1], &heap[child]);
        if (!is_less(&heap[child], &heap[at])) {
            return;
        }
        struct weft_hot_row row = heap[at];
        heap[at] = heap[child];
        heap[child] = row;
    }
}

static void sift_up(struct weft_hot_row *heap, uint32_t at)
{
    for (uint32_t parent; at > 0 && is_less(&heap[at], &heap[parent = (at - 1) / 2]); at = parent) {
        struct weft_hot_row row = heap[at];
        heap[at] = heap[parent];
        heap[parent] = row;
    }
}

/* Heapsort: repeatedly move the root after the rest, which results in descending order. */
static void sort(struct weft_hot_row *heap, uint32_t count)
{
    while (count > 1) {
        struct weft_hot_row least = heap[0];
        heap[0] = heap[--count];
        heap[count] = least;
        sift_down(heap, count, 0);
    }
}

uint32_t weft_table_hot(const struct weft_table *table, struct weft_hot_row *out, uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; max > 0 && i < table->hot.listed; i++) {
        const struct weft_table_row *row = listed_row(table, i);
        struct weft_hot_row entry = {.id = row->id, .updates = updates_of(table, row)};
        if (entry.updates == 0) {
            continue;
        }
        if (count < max) {
            out[count] = entry;
            sift_up(out, count++);
        } else if (is_less(&out[0], &entry)) {
            out[0] = entry;
            sift_down(out, count, 0);
        }
    }
    sort(out, count);
    return count;
}

uint32_t weft_table_hot_listed(const struct weft_table *table, struct weft_hot_row *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->hot.listed; i++) {
        const struct weft_table_row *row = listed_row(table, i);
        const uint32_t updates = updates_of(table, row);
        out[count] = (struct weft_hot_row){.id = row->id, .updates = updates};
        count += updates > 0;
    }
    return count;
}

void weft_table_hot_total(const struct weft_table *table, struct weft_hot_total *total_p)
{
    const struct weft_table_counters *counters = &table->counters;
    *total_p = (struct weft_hot_total){
        .updates = table->hot.updates,
        .rises = table->hot.rises,
        .exact = counters->rows_evicted == 0 && counters->rows_expired == 0 &&
                 counters->unadmitted == 0 && table->hot.removed == 0,
    };
}

uint64_t weft_table_hot_removed(const struct weft_table *table)
{
    uint64_t updates = table->hot.removed;
    const uint32_t slots = table->spec.eviction == WEFT_EVICTION_TTL ? table->rows_begun : 0;
    for (uint32_t number = 0; number < slots; number++) {
        const struct weft_table_row *row = table_row_at(table, number);
        const bool is_live = (row->number & TABLE_ROW_LIVE) != 0;
        updates += is_live && table_row_expired(table, row) ? row->count : 0;
    }
    return updates;
}
