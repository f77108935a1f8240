/* One sparse table of one shard: u64 id -> row of dim weights, optimizer state and, for BSP, the
 * sum of this clock's gradients.
 *
 * The index is of fixed size, made for rows_max at init (at most 2/3 full); rows lie in slabs that
 * the driver supplies when wants_slab says so. Without a slab, new rows are refused and counted;
 * old ones go on. Rows are never removed. Every u64 is a valid id, 2^64 - 1 included: the index
 * holds row numbers, so no id has to stand for "empty". A row that does not exist has the weights
 * that it would begin with: reading it does not make it.
 *
 * Not here: who may push when (ps/shard.h), bytes of messages (rpc/table_spec.h).
 */
#ifndef WEFT_PS_TABLE_H
#define WEFT_PS_TABLE_H

#include "ps/optimizer.h"

struct weft_table {
    /* private; read through the functions */
    struct weft_table_spec spec;
    const struct weft_optimizer *optimizer;
    bool declared;
    uint32_t row_bytes; /* a multiple of 8 */
    uint32_t slab_rows_log2;
    uint32_t rows;
    uint32_t rows_max;
    uint32_t slab_count;
    uint32_t slabs_max;
    uint32_t index_mask;
    uint32_t touched_head; /* rows with a gradient of this clock, newest first; number + 1 */
    uint32_t now;          /* clock in progress, of the fastest worker */
    float fresh;           /* of the chunk being applied: weft_optimizer_block.fresh */
    uint64_t slab_bytes;
    uint64_t rows_refused;
    uint64_t *index; /* (index_mask + 1,): high half of the hash << 32 | row number + 1 */
    uint8_t **slabs; /* (slabs_max,) */
};

struct weft_table_row; /* opaque; stable until fini */

/* Memory for any table of up to rows_max rows and dim_max floats in slabs of about slab_bytes.
 * Owns:    allocates the index. Errors: WEFT_NOMEM; WEFT_INVALID  a limit is 0 or too large. */
weft_status weft_table_init(struct weft_table *table, uint32_t rows_max, uint32_t dim_max,
                            uint64_t slab_bytes);
void weft_table_fini(struct weft_table *table);

/* Give the table its shape; once.  Errors: WEFT_INVALID  not valid or above dim_max. */
weft_status weft_table_declare(struct weft_table *table, const struct weft_table_spec *spec);

/* True when rows for less than half a slab are left and rows_max is not reached; *bytes_p is what
 * add_slab wants. */
bool weft_table_wants_slab(const struct weft_table *table, size_t *bytes_p);

/* Owns:    borrows memory (8-byte aligned; need not be zero) until take_slab gives it back.
 * Errors:  WEFT_INVALID  too small. WEFT_STATE  not wanted. */
weft_status weft_table_add_slab(struct weft_table *table, void *memory, size_t bytes);

/* Gives back one slab, NULL when none is left. The rows in it are gone: only before fini. */
void *weft_table_take_slab(struct weft_table *table);

/* The row of id, NULL when there is none. */
struct weft_table_row *weft_table_find(const struct weft_table *table, uint64_t id);

/* The clock that is in progress: never less than before. */
void weft_table_set_now(struct weft_table *table, uint32_t now);

/* What follows is the gradient of this clock, until the next begin. */
void weft_table_begin(struct weft_table *table, uint32_t clock);

/* The row of id, made when there is none; NULL, counted, when there is no room. */
struct weft_table_row *weft_table_obtain(struct weft_table *table, uint64_t id);

/* Weights of one row, (dim,). */
const float *weft_table_weights(const struct weft_table *table, const struct weft_table_row *row);

/* BSP: add gradients of `block` to the row's sum. Shape: gradient (weft_table_block_used,). */
void weft_table_accumulate(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                           const float *gradient);

/* SSP, ASP: one optimizer step for `block` now. */
void weft_table_step(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                     const float *gradient);

/* BSP: one optimizer step for every row that was accumulated into; sums are zero again.
 * Returns their number. */
uint32_t weft_table_step_all(struct weft_table *table);

/* Copy the weights of id to out (dim,); false and the initial weights when there is no such row. */
bool weft_table_read(const struct weft_table *table, uint64_t id, float *out);

/* ---- all rows: for checkpoints --------------------------------------------------------------- */

/* All that there is of one row. */
struct weft_table_view {
    uint64_t id;
    uint32_t clock;       /* in progress when it was last changed */
    uint32_t count;       /* gradients that reached its first block; stays at 2^32 - 1 */
    const float *weights; /* (dim,) */
    const float *state;   /* (weft_table_state_floats,): the optimizer's slots, then its steps */
    const float *sums;    /* (weft_table_sums_floats,): of the unfinished clock; NULL = none */
};

/* Floats in a view's arrays; both depend on the specification alone. */
uint32_t weft_table_state_floats(const struct weft_table *table);
uint32_t weft_table_sums_floats(const struct weft_table *table);

/* The next row; false at the end. *cursor is 0 at first. Rows that are made or changed meanwhile
 * may be seen as they were or as they are; those that are not are seen exactly once.
 * Owns:    the view's arrays are the table's and are valid until it is changed. */
bool weft_table_next(const struct weft_table *table, uint32_t *cursor,
                     struct weft_table_view *view_p);

/* Put a row of a checkpoint in.
 * Owns:    copies the view's arrays.
 * Errors:  WEFT_NOMEM   no room: add a slab. WEFT_EXISTS  there is such a row.
 *          WEFT_INVALID sums for a table that is not BSP. */
weft_status weft_table_restore(struct weft_table *table, const struct weft_table_view *view);

#endif
