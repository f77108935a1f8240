/* The rows of a table that changed, and their old contents, for a snapshot (ps/snapshot.h) of the
 * table.
 *
 * Rows are identified by slot number. Before a row's state changes for the first time after the
 * cut, its record is copied (copy on write), unless it was already emitted. So the stream of the
 * snapshot has every row as of the cut, while training continues. The same hook marks the row as
 * changed since the cut; the next delta emits the marked rows.
 *
 * Four bitmaps with a bit per slot: `live`, the slot has a row; `dirty`, changed or created since
 * the last cut; `cut`, in the cut in progress; `pending`, in `cut`, unchanged since, and not
 * emitted yet. An abandoned cut returns its rows to `dirty`. The ids of removed rows are recorded
 * for the next delta; if there are more than WEFT_DIRTY_SET_REMOVED_MAX, the next cut is whole.
 *
 * The state of a row is its weights and its optimizer's slots. It needs no sums: those of BSP are
 * zero at the boundary of a clock, where a BSP table is cut.
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
 * shard. It never wraps: it is reset whenever the stream has emitted all of it. */
struct weft_cow_buffer {
    uint8_t *memory; /* the driver's, while a snapshot is in progress; 8-byte aligned */
    size_t bytes;
    size_t begin; /* of the records not emitted yet */
    size_t end;
    size_t peak;
};

struct weft_dirty_set {
    struct weft_dirty_set
        *next; /* next dirty set of the table (checkpoint, replica); NULL = none */
    uint16_t table;
    uint32_t record_bytes; /* weft_table_record_bytes of the table, once it is declared */
    uint64_t *live;        /* (rows_max,) bits, each of the four */
    uint64_t *dirty;
    uint64_t *cut;
    uint64_t *pending;
    bool is_cut;      /* a cut is in progress */
    bool is_whole;    /* the cut has all rows */
    bool all_dirty;   /* the next cut must be whole: no cut was kept yet, or too many rows were
                       * removed */
    bool kept_any;    /* a cut was kept */
    bool overrun;     /* the copy-on-write buffer was full: the cut is lost */
    uint32_t cursor;  /* lower bound of the numbers of pending rows */
    uint32_t rows;    /* in the table when it was cut */
    uint32_t emitted; /* rows of the cut emitted so far, of cut_count */
    uint32_t cut_count;
    struct weft_cow_buffer *cow;
    uint64_t *removed; /* (WEFT_DIRTY_SET_REMOVED_MAX,): ids removed since the last kept cut */
    uint32_t removed_count;
    uint32_t removed_cut; /* of these, reported by the cut in progress */
};

/* Owns:    allocates the sets for rows_max rows. Errors: WEFT_NOMEM. */
weft_status weft_dirty_set_init(struct weft_dirty_set *dirty_set, uint16_t table,
                                uint32_t rows_max);
void weft_dirty_set_fini(struct weft_dirty_set *dirty_set);

/* Cut now: whole = all rows, else those changed since the last cut.
 * Owns:    borrows cow until weft_dirty_set_end. */
void weft_dirty_set_cut(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                        bool whole, struct weft_cow_buffer *cow);

/* True: the cut in progress has all rows, and the order was for changed rows only. The ids removed
 * since the last kept cut are not all known, so rows of earlier cuts that are not in this one are
 * void. */
static inline bool weft_dirty_set_replaces(const struct weft_dirty_set *dirty_set,
                                           bool ordered_whole)
{
    return dirty_set->is_whole && !ordered_whole && dirty_set->kept_any;
}

/* End the cut. kept: it is durable; otherwise its rows count as changed again. */
void weft_dirty_set_end(struct weft_dirty_set *dirty_set, bool kept);

/* Called by the table before it changes the state of row `number`. Cost: two bits, and a copy of
 * the record the first time after a cut. */
void weft_dirty_set_change(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                           uint32_t number);

/* Called after a row is created, and before a row is removed. */
void weft_dirty_set_made(struct weft_dirty_set *dirty_set, uint32_t number);
void weft_dirty_set_remove(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                           uint32_t number);

/* From now on the table reports changes to this dirty set, too.
 * Owns:    borrows dirty_set until the table's last change. */
void weft_dirty_set_attach(struct weft_table *table, struct weft_dirty_set *dirty_set);

/* Take the next copied records, up to a change of table.
 * Shape:   dirty_sets: of all tables; out (bytes,), at least one record. The copy-on-write buffer
 *          is not empty. */
uint32_t weft_cow_buffer_take(struct weft_cow_buffer *cow, struct weft_dirty_set *dirty_sets,
                              uint8_t *out, size_t bytes, uint16_t *table_p);

/* Take up to `max` records of pending rows from the table. Shape: out (max, record_bytes). Returns
 * how many; fewer than max: no further rows. */
uint32_t weft_dirty_set_take(struct weft_dirty_set *dirty_set, const struct weft_table *table,
                             uint8_t *out, uint32_t max);

#endif
