/* Which rows of a table changed, and what they held before: what a snapshot (ps/snapshot.h) needs
 * of a table.
 *
 * Rows are known by their number. Before a row's state changes for the first time after the cut,
 * its record is copied aside (copy on write), unless it was emitted by then; so the stream of the
 * snapshot shows every row as of the cut, while training goes on. The same hook marks the row as
 * changed since the cut, which is what the next delta emits.
 *
 * Four sets, a bit for each row that the table may have: `live`, there is a row; `dirty`, changed or
 * made since the last cut; `cut`, those of the cut under way; `pending`, those of `cut` that lie unchanged in the table and
 * are not emitted yet. An abandoned cut gives its rows back to `dirty`. Rows that go are remembered
 * by id, so that a delta can tell; with more than WEFT_DIRTY_SET_REMOVED_MAX the next cut is whole.
 *
 * The state of a row is its weights and its optimizer's slots, nothing else: BSP's sums are zero at
 * the boundary of a clock, where a BSP table is cut.
 *
 * Not here: when a table is cut (ps/snapshot.h), files (src/ckpt).
 */
#ifndef WEFT_PS_DIRTY_SET_H
#define WEFT_PS_DIRTY_SET_H

#include "base/bits.h"
#include "base/status.h"

struct weft_table;

enum { WEFT_DIRTY_SET_REMOVED_MAX = 65536 };

/* Records of rows that changed before they were emitted, oldest first; shared by the tables of a
 * shard. It never wraps: it is empty again each time the stream has caught up with it. */
struct weft_cow_buffer {
    uint8_t *memory; /* the driver's, while a snapshot is in progress; 8-byte aligned */
    size_t bytes;
    size_t begin; /* of what is not emitted yet */
    size_t end;
    size_t peak;
};

struct weft_dirty_set {
    struct weft_dirty_set
        *next; /* of the table's others: a checkpoint's, a replica's; NULL = none */
    uint16_t table;
    uint32_t record_bytes; /* weft_table_record_bytes of the table, once it is declared */
    uint64_t *live;        /* (rows_max,) bits, each of the four */
    uint64_t *dirty;
    uint64_t *cut;
    uint64_t *pending;
    bool is_cut;           /* a cut is in progress */
    bool is_whole;         /* it is of all rows */
    bool all_dirty;        /* the next cut must be whole: nothing was kept yet, or too many rows went */
    bool overrun;          /* the copy-on-write buffer was full: the cut is lost */
    uint32_t cursor;       /* no pending row has a smaller number */
    uint32_t rows;         /* in the table when it was cut */
    uint32_t emitted;      /* rows of the cut that left; the end is cut_count */
    uint32_t cut_count;
    struct weft_cow_buffer *cow;
    uint64_t *removed; /* (WEFT_DIRTY_SET_REMOVED_MAX,): ids, since the last cut that was kept */
    uint32_t removed_count;
    uint32_t removed_cut; /* those that the cut under way tells */
};

/* Owns:    allocates the sets for rows_max rows. Errors: WEFT_NOMEM. */
weft_status weft_dirty_set_init(struct weft_dirty_set *dirty_set, uint16_t table,
                                  uint32_t rows_max);
void weft_dirty_set_fini(struct weft_dirty_set *dirty_set);

/* Cut now: whole = all rows, else those changed since the last cut.
 * Owns:    borrows cow until weft_dirty_set_end. */
void weft_dirty_set_cut(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                          bool whole, struct weft_cow_buffer *cow);

/* The cut is kept (it is safe on disk), or was lost: then its rows count as changed. */
void weft_dirty_set_end(struct weft_dirty_set *dirty_set, bool kept);

/* Called by the table before it changes the state of row `number`. Cost: two bits; a
 * copy of the record the first time after a cut. */
void weft_dirty_set_change(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                             uint32_t number);

/* Called when a row was made, and before one is taken away. */
void weft_dirty_set_made(struct weft_dirty_set *dirty_set, uint32_t number);
void weft_dirty_set_remove(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                             uint32_t number);

/* The table tells this one, too, from now on. Owns: borrows dirty_set until it is not changed any more. */
void weft_dirty_set_attach(struct weft_table *table, struct weft_dirty_set *dirty_set);

/* The records copied aside that come next, as far as they are of one table.
 * Shape:   dirty_sets: of all tables; out (bytes,), at least one record. The copy-on-write buffer is not empty. */
uint32_t weft_cow_buffer_take(struct weft_cow_buffer *cow, struct weft_dirty_set *dirty_sets,
                              uint8_t *out, size_t bytes, uint16_t *table_p);

/* Take up to `max` records of rows that lie in the table still. Shape: out (max, record_bytes).
 * Returns how many; fewer than max = none is left. */
uint32_t weft_dirty_set_take(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                               uint8_t *out, uint32_t max);

#endif
