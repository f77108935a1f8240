/* Private state of a table, shared by table.c (lifecycle, memory, rows), table_index.c (looking up
 * a row), table_chunk.c (looking up many), table_evict.c (evicting rows), table_apply.c
 * (gradients), table_record.c (records) and hot.c (rows with the most updates). transfer.c and
 * transfer_cut.c also use it, to read rows. Internal to these files.
 *
 * A row in its slab:
 *
 *     struct weft_table_row (24 bytes) | weights (dim) | slots (slots x dim)
 *                                      | steps (blocks x steps) | sums (dim, BSP)
 *                                      | counts (blocks, where table->counts)
 */
#ifndef WEFT_PS_TABLE_INTERNAL_H
#define WEFT_PS_TABLE_INTERNAL_H

#include "ps/divergence.h"
#include "ps/table.h"
#include "ps/dirty_set.h"

#include <assert.h>

struct weft_table_row {
    uint64_t id;
    uint32_t number;       /* its slot number, and the flag bits below */
    uint32_t touched_next; /* 0: not touched; LAST; else number + 1 of the next touched row. In a
                            * free slot: number + 1 of the next free slot */
    uint32_t clock;        /* as in weft_table_view, like count */
    uint32_t count;
};

static_assert(sizeof(struct weft_table_row) == 24, "rows follow their header without a gap");

#define TABLE_ROW_LIVE     (UINT32_C(1) << 31) /* clear: the slot is free */
#define TABLE_ROW_PINNED   (UINT32_C(1) << 30) /* a chunk is about to change the row: do not evict
                                                * it */
#define TABLE_ROW_HOT      (UINT32_C(1) << 29) /* the slot is on the list of ps/hot.h, even if
                                                * free */
#define TABLE_ROW_NUMBER   (TABLE_ROW_HOT - 1)
#define TABLE_TOUCHED_LAST UINT32_MAX

static_assert(WEFT_TABLE_ROWS_MAX <= TABLE_ROW_HOT);

static inline struct weft_table_row *table_row_at(const struct weft_table *table, uint32_t number)
{
    uint8_t *slab = table->slabs[number >> table->slab_rows_log2];
    uint32_t place = number & ((UINT32_C(1) << table->slab_rows_log2) - 1);
    return (struct weft_table_row *)(slab + (size_t)place * table->row_bytes);
}

static inline uint32_t table_row_number(const struct weft_table_row *row)
{
    return row->number & TABLE_ROW_NUMBER;
}

static inline float *table_weights(const struct weft_table_row *row)
{
    return (float *)(uintptr_t)(row + 1);
}

static inline float *table_slots(const struct weft_table *table, const struct weft_table_row *row)
{
    return table_weights(row) + table->slots_at;
}

static inline float *table_steps(const struct weft_table *table, const struct weft_table_row *row)
{
    return table_weights(row) + table->steps_at;
}

static inline float *table_sums(const struct weft_table *table, const struct weft_table_row *row)
{
    return table_weights(row) + table->sums_at;
}

static inline float *table_counts(const struct weft_table *table, const struct weft_table_row *row)
{
    return table_weights(row) + table->counts_at;
}

static inline bool table_is_dense(const struct weft_table *table)
{
    return table->spec.kind == WEFT_TABLE_DENSE;
}

/* An expired row counts as absent, even before it is evicted, but not while its gradients wait for
 * a step. */
static inline bool table_row_expired(const struct weft_table *table,
                                     const struct weft_table_row *row)
{
    return table->spec.eviction == WEFT_EVICTION_TTL && row->touched_next == 0 &&
           row->clock < table->now && table->now - row->clock > table->spec.ttl;
}

/* Called before the checkpointed state of a row changes, and after a row is created. */
static inline void table_row_changes(const struct weft_table *table,
                                     const struct weft_table_row *row)
{
    for (struct weft_dirty_set *dirty_set = table->dirty_set; dirty_set != NULL;
         dirty_set = dirty_set->next) {
        weft_dirty_set_change(dirty_set, table, table_row_number(row));
    }
}

/* True: a checkpoint or a transfer to a replica of the table is in progress. */
static inline bool table_is_cut(const struct weft_table *table)
{
    bool is_cut = false;
    for (const struct weft_dirty_set *dirty_set = table->dirty_set; dirty_set != NULL;
         dirty_set = dirty_set->next) {
        is_cut |= dirty_set->is_cut;
    }
    return is_cut;
}

/* The sum of the squares of the changes. */
static inline double table_squares(const float *before, const float *after, uint32_t count)
{
    double squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        double by = (double)after[i] - before[i];
        squares += by * by;
    }
    return squares;
}

/* BSP: mark the row as having a gradient of this clock. */
static inline void table_touch(struct weft_table *table, struct weft_table_row *row)
{
    if (row->touched_next == 0) {
        row->touched_next = table->touched_head;
        table->touched_head = table_row_number(row) + 1;
        table->touched_count++;
    }
}

/* hot.c: add a row to the list; it must not be on it. */
void weft_table_hot_add(struct weft_table *table, struct weft_table_row *row);

/* True: the row's count has reached the threshold, and the row is not on the list. Two comparisons
 * without a branch: whether a row is hot is unpredictable. */
static inline uint32_t table_hot_reaches(const struct weft_table_row *row, uint64_t threshold)
{
    uint32_t is_unmarked = (row->number & TABLE_ROW_HOT) == 0;
    uint32_t reaches = row->count >= threshold;
    return is_unmarked & reaches;
}

/* Call after the row's count has grown. */
static inline void table_hot_look(struct weft_table *table, struct weft_table_row *row)
{
    if (__builtin_expect(table_hot_reaches(row, table->hot.threshold), 0)) {
        weft_table_hot_add(table, row);
    }
}

/* Set the row's count to a restored value. */
static inline void table_hot_restore(struct weft_table *table, struct weft_table_row *row,
                                     uint32_t count)
{
    table->hot.updates += (uint64_t)count - row->count;
    row->count = count;
    table_hot_look(table, row);
}

/* table.c */

/* The row of id, unless expired. hash = weft_table_hash, here and below. */
struct weft_table_row *weft_table_find_hashed(const struct weft_table *table, uint64_t id,
                                              uint64_t hash);
/* The row of id, created if absent. asks: for a push, so the id must be admitted; counts: the push
 * is counted for admission. *full_p is set if there was no room. */
struct weft_table_row *weft_table_obtain_hashed(struct weft_table *table, uint64_t id,
                                                uint64_t hash, bool asks, bool counts,
                                                bool *full_p);
/* Remove a live row from the index and free its slot. */
void weft_table_remove(struct weft_table *table, struct weft_table_row *row);

/* table_apply.c: weft_table_apply for any table, block by block. */
uint32_t weft_table_apply_any(struct weft_table *table, struct weft_table_row *const *rows,
                              uint32_t first, uint32_t count, const uint8_t *blocks);

/* table_evict.c */

/* Make room for one row; false if no row may be evicted. */
bool weft_table_evict_one(struct weft_table *table);
/* TTL: check the next few rows for expiry. */
void weft_table_sweep(struct weft_table *table);

#endif
