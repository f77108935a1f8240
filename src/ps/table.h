/* One table of one shard: id -> row of weights, the optimizer's state and, for BSP, the sum of this
 * clock's gradients.
 *
 * Sparse tables find rows by an index of fixed size (ps/table_index.h); rows are made when they are
 * first pushed, or when they are admitted (ps/admission.h), and go when the specification says
 * which (ps/table_evict.c). Every u64 is a valid id, 2^64 - 1 included: the index holds row
 * numbers, so no id has to stand for "empty". A row that does not exist has the weights that it
 * would begin with: reading it does not make it.
 *
 * A dense table is a vector cut into rows of dim floats; row b, on shard b mod shards, is there
 * from the beginning, and its place is b div shards: no index, no admission, no eviction. Its BSP
 * mean is over the gradients that came for a block, not over W.
 *
 * Memory comes in slabs that the driver supplies when wants_slab says so: first what admission
 * counts in, then rows. Without a slab, new rows are refused and counted; old ones go on.
 *
 * Not here: who may push when (ps/shard.h), bytes of messages (rpc/table_spec.h).
 */
#ifndef WEFT_PS_TABLE_H
#define WEFT_PS_TABLE_H

#include "base/hash_key.h"
#include "ps/admission.h"
#include "ps/hot.h"
#include "ps/optimizer.h"
#include "ps/row_hooks.h"

/* Rows that a table of one shard can number; a specification may ask for more, and gets fewer. */
enum { WEFT_TABLE_ROWS_MAX = 1 << 29 };

/* What ids are hashed with, so that nobody can choose ids whose searches are long: bytes that nobody
 * can guess. Known to this process alone, but for the filter's, which all shards of a job share: filters
 * of several shards become one where a checkpoint is restored on another number of them. */
struct weft_table_keys {
    uint8_t index[WEFT_HASH_KEY_BYTES];
    uint8_t counter[WEFT_HASH_KEY_BYTES]; /* of a new table's admission; a restored one keeps its own */
    uint8_t filter[WEFT_HASH_KEY_BYTES];  /* the same; all zeros: the public hash */
};

/* What the table may become, whatever is declared. */
struct weft_table_limits {
    uint32_t rows_max; /* <= WEFT_TABLE_ROWS_MAX; memory for the index is taken at init */
    uint32_t dim_max;
    uint64_t slab_bytes; /* about so much is asked for at a time */
    uint64_t bytes_max;  /* of index, rows and admission; 0 = none, but admission takes no more than
                          * rows_max rows would */
    uint32_t shard;      /* this one */
    uint32_t shards;
    uint32_t hot_top;    /* rows with most updates that are known (ps/hot.h); 0 = none */
    struct weft_table_keys keys;
};

/* Cumulative. A row that was made and is not there was evicted or has expired. */
struct weft_table_counters {
    uint64_t rows_created;
    uint64_t rows_evicted; /* to make room: LRU, L2 */
    uint64_t rows_expired; /* TTL */
    uint64_t rows_refused; /* new rows for which there was no room */
    uint64_t unadmitted;   /* pushes of an id that has no row yet; their gradients were dropped */
    uint64_t not_finite;   /* elements clipped or dropped because a gradient was not finite */
};

struct weft_table {
    /* private; read through the functions */
    struct weft_table_limits limits;
    struct weft_table_spec spec;
    const struct weft_optimizer *optimizer;
    struct weft_table_counters counters;
    struct weft_admission admission;
    struct weft_hot hot;
    bool declared;
    uint32_t row_bytes; /* a multiple of 8 */
    uint32_t blocks;    /* of a row */
    uint32_t block_floats;
    bool counts;       /* BSP, a mean over contributors: each block counts its gradients of the clock */
    uint32_t slots_at; /* where a row's parts begin, in floats behind its header */
    uint32_t steps_at;
    uint32_t sums_at;
    uint32_t counts_at; /* counts: gradients of each block, behind its sum */
    uint32_t slab_rows_log2;
    uint32_t ahead_rows; /* weft_table_want_rows */
    uint32_t rows;       /* that exist */
    uint32_t rows_begun; /* places of slabs used so far; of these, rows exist or are free */
    uint32_t rows_limit;
    uint32_t free_head; /* number + 1 of a free place */
    uint32_t hand;      /* where eviction looks next */
    uint32_t slab_count;
    uint32_t slabs_max;
    uint32_t index_mask;     /* buckets in use - 1; grows with the rows */
    uint32_t index_mask_max; /* what rows_limit rows need, and there is memory for */
    uint32_t touched_head; /* rows with a gradient of this clock, newest first; number + 1 */
    uint32_t touched_count;
    uint32_t step_left;     /* rows that step_some still has to step */
    uint32_t step_next;     /* the next of them, as touched_head; or */
    uint32_t step_at;       /* the next place to look at */
    bool step_walks;        /* the latter: most places are to be stepped, and lie side by side */
    uint32_t step_averaged; /* W, as it was when stepping began */
    uint32_t now;          /* clock in progress; SSP, ASP: of the fastest worker but one, which no
                            * worker alone can move */
    uint32_t newest;       /* SSP, ASP: of the fastest */
    uint32_t averaged;     /* workers that take part; >= 1 */
    float fresh;           /* of the chunk being applied: weft_optimizer_block.fresh */
    struct weft_hash_key index_key;
    struct weft_table_bucket *index; /* (index_mask + 1,), in index_memory at a cache line */
    void *index_memory;
    uint8_t **slabs;       /* (slabs_max,) */
    struct weft_dirty_set
        *dirty_set; /* ps/dirty_set.h, the first; NULL: nobody makes checkpoints or has a
                                     * replica; borrowed */
    struct weft_divergence *divergence; /* ps/divergence.h; NULL: there is no replica; borrowed */
    const struct weft_row_hooks *hooks; /* NULL = none; borrowed */
    uint16_t number;                    /* that hooks are told */
};

struct weft_table_row; /* opaque; stable until it is evicted */

/* Owns:    allocates the index. Errors: WEFT_NOMEM; WEFT_INVALID  a limit is 0 or too large. */
weft_status weft_table_init(struct weft_table *table, const struct weft_table_limits *limits);
void weft_table_fini(struct weft_table *table);

/* Whoever owns the table has a say in steps and answers (ps/row_hooks.h), and is told this number.
 * Owns:    borrows hooks until fini. */
void weft_table_set_hooks(struct weft_table *table, const struct weft_row_hooks *hooks,
                          uint16_t number);

/* Give the table its shape; once.
 * Errors:  WEFT_INVALID  not valid, above dim_max, or not one row (of a dense table: not all) fits
 *                        the limits. */
weft_status weft_table_declare(struct weft_table *table, const struct weft_table_spec *spec);

/* ---- memory ---------------------------------------------------------------------------------- */

/* True when rows for less than half a slab, or fewer than were wanted, are left and the limit is not
 * reached; *bytes_p is what add_slab wants. */
bool weft_table_wants_slab(const struct weft_table *table, size_t *bytes_p);

/* From now on there shall be room for so many more rows: what comes at once may have that many new ones, and
 * half a slab was too little. */
void weft_table_want_rows(struct weft_table *table, uint32_t rows);

/* Owns:    borrows memory (8-byte aligned; need not be zero) until take_slab gives it back.
 * Errors:  WEFT_INVALID  too small. WEFT_STATE  not wanted. */
weft_status weft_table_add_slab(struct weft_table *table, void *memory, size_t bytes);

/* Gives back one slab, NULL when none is left. The rows in it are gone: only before fini. */
void *weft_table_take_slab(struct weft_table *table);

/* In use now: index, slabs, admission. */
uint64_t weft_table_bytes(const struct weft_table *table);

/* Rows that exist. */
uint32_t weft_table_rows(const struct weft_table *table);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* So many workers take part, fewer than the specification says; 0 counts as 1. */
void weft_table_set_averaged(struct weft_table *table, uint32_t workers);

/* The clock that is in progress: never less than before. */
void weft_table_set_now(struct weft_table *table, uint32_t now);

/* The clock that the fastest worker is in, where it is not that of the rows: AdaDelay's. */
void weft_table_set_newest(struct weft_table *table, uint32_t newest);

/* What follows is the gradient of this clock, until the next begin. */
void weft_table_begin(struct weft_table *table, uint32_t clock);

/* ---- rows ------------------------------------------------------------------------------------ */

/* The weights that row id begins with. Shape: out (dim,). */
void weft_table_fill_initial(const struct weft_table_spec *spec, uint64_t id, float *out);

/* Is this shard the one on which row id lives? False too beyond the end of a dense table. */
bool weft_table_owns(const struct weft_table *table, uint64_t id);

/* The only shard of a sparse table: there is no id that lives elsewhere, and none need be looked at. */
static inline bool weft_table_owns_all(const struct weft_table *table)
{
    return table->spec.kind == WEFT_TABLE_SPARSE && table->limits.shards == 1;
}

/* Where the index has an id. Only this process knows: which shard has it is another hash's business. */
static inline uint64_t weft_table_hash(const struct weft_table *table, uint64_t id)
{
    return weft_hash_keyed(&table->index_key, id);
}

/* The row of id, NULL when there is none. */
struct weft_table_row *weft_table_find(const struct weft_table *table, uint64_t id);

/* The row of id, made when there is none, admitted or not; NULL, counted as refused, when there is
 * no room. Not a push: pushes are counted by obtain_chunk. */
struct weft_table_row *weft_table_obtain(struct weft_table *table, uint64_t id);

/* The rows of ids in whose order the rows lie in memory, but for a few breaks: those of keys that
 * are pushed again in the order in which they were made. No hash is computed and no index asked, and
 * memory is read in its order. True: rows_p holds all of them, as obtain_chunk would say. False says
 * nothing.
 *
 * Shape:   ids (count,); rows_p (count,). Cost: three look-ups when it is of no use. */
bool weft_table_lookup_run(const struct weft_table *table, const uint64_t *ids, uint32_t count,
                       struct weft_table_row **rows_p);

/* The rows of a chunk of a PUSH: NULL where the id is not admitted.
 *
 * Shape:   ids (count,); hashes (count,): weft_table_hash of each, unused where the table is dense;
 *          rows_p (count,).
 *          first: element of the message, so that blocks of one row count as one push.
 * Errors:  false: there was no room for a row. Rows made before it stay, as they began. */
bool weft_table_obtain_chunk(struct weft_table *table, const uint64_t *ids, const uint64_t *hashes,
                             uint32_t first, uint32_t count, struct weft_table_row **rows_p);

/* Weights of one row, (dim,). */
const float *weft_table_weights(const struct weft_table *table, const struct weft_table_row *row);

/* Copy the weights of id to out (dim,); false and the initial weights when there is no such row. */
bool weft_table_read(const struct weft_table *table, uint64_t id, float *out);

/* The same for all ids of a PULL; it is a use of the rows. Returns how many do not exist.
 * Shape:   ids (count,); row i at out + i x stride, zeros from dim to stride. */
uint32_t weft_table_read_all(struct weft_table *table, const uint64_t *ids, uint32_t count,
                             float *out, size_t stride);

/* ---- gradients ------------------------------------------------------------------------------- */

/* Apply a chunk of a PUSH: add up (BSP), or step now.
 * Shape:   rows (count,) of obtain_chunk, NULL = leave out; blocks (count, block_floats) float32,
 *          unaligned. Returns how many elements were applied. */
uint32_t weft_table_apply(struct weft_table *table, struct weft_table_row *const *rows,
                          uint32_t first, uint32_t count, const uint8_t *blocks);

/* The same of sums of gradients, for rows of one block that are all there: each is applied as one, and
 * counts as many.
 * Shape:   rows (count,), none NULL; sums (count, dim) float32; counts (count,) u16 >= 1; both
 *          unaligned. Returns the gradients in them. */
uint64_t weft_table_apply_sums(struct weft_table *table, struct weft_table_row *const *rows,
                               uint32_t count, const uint8_t *sums, const uint8_t *counts);

/* BSP: add gradients of `block` to the row's sum. Shape: gradient (weft_table_block_used,). */
void weft_table_accumulate(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                           const float *gradient);

/* SSP, ASP: one optimizer step for `block` now. */
void weft_table_step(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                     const float *gradient);

/* BSP: one optimizer step for every row that was accumulated into; sums are zero again.
 * Returns their number. */
uint32_t weft_table_step_all(struct weft_table *table);

/* The same in slices: after step_begin, step_some until it is done. In between, nothing may be
 * accumulated, and what is read is of either clock. The result does not depend on the slices.
 * Returns the rows stepped, at most max; weft_table_stepping: are there more? */
void weft_table_step_begin(struct weft_table *table);
uint32_t weft_table_step_some(struct weft_table *table, uint32_t max);
bool weft_table_stepping(const struct weft_table *table);

/* ---- all rows: for checkpoints --------------------------------------------------------------- */

/* All that there is of one row. */
struct weft_table_view {
    uint64_t id;
    uint32_t clock;       /* in progress when it was last pushed (LRU: or pulled) */
    uint32_t count;       /* gradients that reached its first block; stays at 2^32 - 1 */
    const float *weights; /* (dim,) */
    const float *state;   /* (weft_table_state_floats,): the optimizer's slots, then its steps */
    const float *sums;    /* (weft_table_sums_floats,): of the unfinished clock; NULL = none */
};

/* Floats in a view's arrays; both depend on the specification alone. */
uint32_t weft_table_state_floats(const struct weft_table *table);
uint32_t weft_table_sums_floats(const struct weft_table *table);

/* The next row; false at the end. *cursor is 0 at first. A row that exists all the while is seen
 * exactly once, as it is at that moment; one made or evicted meanwhile may be seen or not.
 * Owns:    the view's arrays are the table's and are valid until it is changed. */
bool weft_table_next(const struct weft_table *table, uint32_t *cursor,
                     struct weft_table_view *view_p);

/* Put a row of a checkpoint in; a row of a dense table is replaced. Admission is not asked.
 * Owns:    copies the view's arrays.
 * Errors:  WEFT_NOMEM   no room, and none is made: add a slab. WEFT_EXISTS  there is such a row.
 *          WEFT_INVALID sums for a table that is not BSP, or not a row of this shard. */
weft_status weft_table_restore(struct weft_table *table, const struct weft_table_view *view);

/* ---- records: a row as checkpoints keep it (table_record.c) ----------------------------------
 *
 *     id u64 | clock u32 | count u32 | weights (dim) | optimizer's state (weft_table_state_floats)
 *
 * all in the machine's order, which is little-endian. clock and count as in a view.
 */
enum { WEFT_TABLE_RECORD_HEAD = 16 };

/* Places that rows may have; they have numbers from 0. */
uint32_t weft_table_slots(const struct weft_table *table);

/* No gradient of this clock is waiting for its step. */
bool weft_table_settled(const struct weft_table *table);

/* Of one record of a declared table. */
uint32_t weft_table_record_bytes(const struct weft_table *table);

/* Shape: out (weft_table_record_bytes,). A row must be at this place. */
void weft_table_record_read(const struct weft_table *table, uint32_t number, uint8_t *out);
uint64_t weft_table_record_id(const struct weft_table *table, uint32_t number);

/* Make the record's row, or overwrite it.
 * Errors:  WEFT_AGAIN  a slab is wanted first. WEFT_NOMEM  no room for a new row, at the table's
 *          limit also not by eviction. */
weft_status weft_table_record_write(struct weft_table *table, const uint8_t *record);

/* Remove the row of id, if there is one. Not while gradients wait in it. */
void weft_table_record_remove(struct weft_table *table, uint64_t id);

#endif
