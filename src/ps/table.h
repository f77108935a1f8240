/* One table of one shard: id -> row of weights, the optimizer's state and, for BSP, the sum of this
 * clock's gradients.
 *
 * Sparse tables find rows through an index (ps/table_index.h). A row is created by its first push,
 * or when it is admitted (ps/admission.h), and evicted by the rule of the specification
 * (ps/table_evict.c). Every u64 is a valid id, 2^64 - 1 included: the index stores row numbers, so
 * no id is reserved for "empty". A row that does not exist reads as its initial weights; reading
 * does not create it.
 *
 * A dense table is a vector divided into rows of dim floats. Row b is on shard b mod shards, exists
 * from the beginning, and has slot b div shards: no index, no admission, no eviction. Its BSP mean
 * is over the gradients received for a block, not over W.
 *
 * Memory consists of slabs that the driver supplies when wants_slab returns true: first for
 * admission counts, then for rows. Without a slab, new rows are refused and counted; existing rows
 * stay usable.
 *
 * Not here: when a worker may push (ps/shard.h), message formats (rpc/table_spec.h).
 */
#ifndef WEFT_PS_TABLE_H
#define WEFT_PS_TABLE_H

#include "base/hash_key.h"
#include "ps/admission.h"
#include "ps/hot.h"
#include "ps/optimizer.h"
#include "ps/row_hooks.h"

/* Most rows of a table on one shard; a specification may request more, and gets this many. */
enum { WEFT_TABLE_ROWS_MAX = 1 << 29 };

/* Secret random keys for hashing ids, so that no peer can choose ids that collide. Private to this
 * process, except the filter's key, which all shards of a job share: the filters of several shards
 * are merged when a checkpoint is restored on another number of shards. */
struct weft_table_keys {
    uint8_t index[WEFT_HASH_KEY_BYTES];
    uint8_t counter[WEFT_HASH_KEY_BYTES]; /* of a new table's admission; a restored table keeps its
                                           * key */
    uint8_t filter[WEFT_HASH_KEY_BYTES];  /* the same; all zeros: the public hash */
};

/* Limits of the table, independent of its specification. */
struct weft_table_limits {
    uint32_t rows_max; /* <= WEFT_TABLE_ROWS_MAX; memory for the index is allocated at init */
    uint32_t dim_max;
    uint64_t slab_bytes; /* approximate size of a requested slab */
    uint64_t bytes_max;  /* of index, rows and admission; 0 = no limit, but admission uses no more
                          * than rows_max rows would */
    uint32_t shard;      /* this one */
    uint32_t shards;
    uint32_t hot_top; /* most-updated rows to track (ps/hot.h); 0 = none */
    struct weft_table_keys keys;
};

/* Cumulative. A created row that no longer exists was evicted or has expired. */
struct weft_table_counters {
    uint64_t rows_created;
    uint64_t rows_evicted; /* to make room: LRU, L2 */
    uint64_t rows_expired; /* TTL */
    uint64_t rows_refused; /* new rows refused for lack of room */
    uint64_t unadmitted;   /* pushes of an id that has no row yet; their gradients were dropped */
    uint64_t not_finite;   /* elements clipped or dropped because a gradient was not finite */
};

/* The rows that one chunk evicts, for a journal; not those of TTL, which count as absent anyway. */
struct weft_table_evictions {
    uint64_t *ids; /* as many as the chunk has rows */
    uint32_t count;
};

/* How a chunk is replayed from a journal. */
struct weft_table_replay {
    bool is_on;
    bool is_bounded;    /* the dead process refused the chunk: */
    uint32_t rows_left; /* after it had created so many rows */
};

struct weft_table {
    /* private; use the functions to read it */
    struct weft_table_limits limits;
    struct weft_table_spec spec;
    const struct weft_optimizer *optimizer;
    struct weft_table_counters counters;
    struct weft_admission admission;
    struct weft_hot hot;
    bool declared;
    uint32_t row_bytes; /* a multiple of 8 */
    uint32_t blocks;    /* per row */
    uint32_t block_floats;
    bool counts;       /* BSP with a mean over contributors: each block counts its gradients of the
                        * clock */
    uint32_t slots_at; /* offsets of a row's parts, in floats after its header */
    uint32_t steps_at;
    uint32_t sums_at;
    uint32_t counts_at; /* with `counts`: number of gradients of each block, after the sums */
    uint32_t slab_rows_log2;
    uint32_t ahead_rows; /* weft_table_want_rows */
    uint32_t rows;       /* existing rows */
    uint32_t rows_begun; /* slots used so far; each has a row or is free */
    uint32_t rows_limit;
    uint32_t free_head; /* number + 1 of a free slot */
    uint32_t hand;      /* eviction examines this slot next */
    uint32_t slab_count;
    uint32_t slabs_max;
    uint32_t index_mask;     /* buckets in use - 1; grows with the number of rows */
    uint32_t index_mask_max; /* its limit: allocated for rows_limit rows */
    uint32_t touched_head;   /* rows with a gradient of this clock, newest first; number + 1 */
    uint32_t touched_count;
    uint32_t step_left;     /* rows still to be stepped by step_some */
    uint32_t step_next;     /* list order: the next row, as touched_head */
    uint32_t step_at;       /* memory order: the next slot to examine */
    bool step_walks;        /* memory order is used, because a large part of the slots must be
                             * stepped */
    uint32_t step_averaged; /* W when stepping began */
    uint32_t now;           /* clock in progress; SSP, ASP: that of the second fastest worker, so
                             * that no single worker can advance it */
    uint32_t newest;        /* SSP, ASP: clock of the fastest worker */
    uint32_t averaged;      /* number of member workers; >= 1 */
    float fresh;            /* weft_optimizer_block.fresh for the chunk being applied */
    struct weft_hash_key index_key;
    struct weft_table_bucket *index; /* (index_mask + 1,), in index_memory, aligned to a cache
                                      * line */
    void *index_memory;
    uint8_t **slabs;                  /* (slabs_max,) */
    struct weft_dirty_set *dirty_set; /* ps/dirty_set.h, the first; NULL: neither checkpoints nor a
                                       * replica; borrowed */
    struct weft_divergence *divergence; /* ps/divergence.h; NULL: no replica; borrowed */
    const struct weft_row_hooks *hooks; /* NULL = none; borrowed */
    uint16_t number;                    /* table number passed to hooks */
    struct weft_table_evictions *evictions; /* evicted rows are added here; NULL = nowhere;
                                             * borrowed */
    struct weft_table_replay replay;
};

struct weft_table_row; /* opaque; stable until it is evicted */

/* Owns:    allocates the index. Errors: WEFT_NOMEM; WEFT_INVALID  a limit is 0 or too large. */
weft_status weft_table_init(struct weft_table *table, const struct weft_table_limits *limits);
void weft_table_fini(struct weft_table *table);

/* Set the owner's hooks for steps and replies (ps/row_hooks.h); they receive this table number.
 * Owns:    borrows hooks until fini. */
void weft_table_set_hooks(struct weft_table *table, const struct weft_row_hooks *hooks,
                          uint16_t number);

/* Set the table's specification; once.
 * Errors:  WEFT_INVALID  not valid, above dim_max, or the limits do not allow one row (of a dense
 *          table: all rows). */
weft_status weft_table_declare(struct weft_table *table, const struct weft_table_spec *spec);

/* ---- memory ---------------------------------------------------------------------------------- */

/* True if admission has no memory yet; or if room is left for less than half a slab of rows, or for
 * fewer than weft_table_want_rows, and the limit is not reached; or if a dense table lacks rows.
 * *bytes_p: size for add_slab. */
bool weft_table_wants_slab(const struct weft_table *table, size_t *bytes_p);

/* Number of rows that can be created without another slab. */
uint32_t weft_table_room(const struct weft_table *table);

/* From now on keep room for this many more rows, because one request may contain that many new
 * ones, and half a slab was too little. */
void weft_table_want_rows(struct weft_table *table, uint32_t rows);

/* Owns:    borrows memory (8-byte aligned; need not be zero) until take_slab gives it back.
 * Errors:  WEFT_INVALID  too small. WEFT_STATE  not wanted. */
weft_status weft_table_add_slab(struct weft_table *table, void *memory, size_t bytes);

/* Returns one slab; NULL when none is left. Its rows are lost, so call it only before fini. */
void *weft_table_take_slab(struct weft_table *table);

/* Bytes in use: index, slabs, admission. */
uint64_t weft_table_bytes(const struct weft_table *table);

/* Number of existing rows. */
uint32_t weft_table_rows(const struct weft_table *table);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Set the number of member workers, if fewer than in the specification; 0 counts as 1. */
void weft_table_set_averaged(struct weft_table *table, uint32_t workers);

/* Set the clock in progress; it never decreases. */
void weft_table_set_now(struct weft_table *table, uint32_t now);

/* Set the clock of the fastest worker, for AdaDelay; it may differ from the clock of the rows. */
void weft_table_set_newest(struct weft_table *table, uint32_t newest);

/* Until the next begin, applied gradients belong to this clock. */
void weft_table_begin(struct weft_table *table, uint32_t clock);

/* The clock in progress of the fastest worker, as far as known here. */
uint32_t weft_table_newest(const struct weft_table *table);

/* AdaDelay's a for a gradient of this clock. */
float weft_table_fresh(const struct weft_table *table, uint32_t clock);

/* As weft_table_begin, for sums of gradients of several clocks. fresh: AdaDelay's a of the sum. */
void weft_table_begin_sums(struct weft_table *table, float fresh);

/* ---- rows ------------------------------------------------------------------------------------ */

/* The initial weights of row id. Shape: out (dim,). */
void weft_table_fill_initial(const struct weft_table_spec *spec, uint64_t id, float *out);

/* Does row id belong to this shard? Also false beyond the end of a dense table. */
bool weft_table_owns(const struct weft_table *table, uint64_t id);

/* True for the only shard of a sparse table: every id belongs to it, so ids need no check. */
static inline bool weft_table_owns_all(const struct weft_table *table)
{
    return table->spec.kind == WEFT_TABLE_SPARSE && table->limits.shards == 1;
}

/* Hash of an id for the index, with a key private to this process. Another hash selects the
 * shard. */
static inline uint64_t weft_table_hash(const struct weft_table *table, uint64_t id)
{
    return weft_hash_keyed(&table->index_key, id);
}

/* The row of id; NULL: none. */
struct weft_table_row *weft_table_find(const struct weft_table *table, uint64_t id);

/* The row of id, created if it does not exist, admitted or not. NULL, and counted as refused, if
 * there is no room. Not for pushes: obtain_chunk counts those. */
struct weft_table_row *weft_table_obtain(struct weft_table *table, uint64_t id);

/* Look up ids whose rows are in memory in the same order, except for a few breaks, as when keys are
 * pushed repeatedly in the order of their creation. Computes no hashes, does not use the index, and
 * reads memory sequentially. True: rows_p has all rows, as obtain_chunk would return. False: no
 * result.
 *
 * Shape:   ids (count,); rows_p (count,).
 * Cost:    at most two lookups, and one more for every 32 rows found in order. */
bool weft_table_lookup_run(const struct weft_table *table, const uint64_t *ids, uint32_t count,
                           struct weft_table_row **rows_p);

/* The rows of a chunk of a PUSH; NULL for an id that is not admitted.
 *
 * Shape:   ids (count,); hashes (count,): weft_table_hash of each, unused where the table is dense;
 *          rows_p (count,). first: index of the first element in the message, so that blocks of one
 *          row count as one push.
 * Errors:  false: no room for a row. Rows created before it stay, with initial weights. */
bool weft_table_obtain_chunk(struct weft_table *table, const uint64_t *ids, const uint64_t *hashes,
                             uint32_t first, uint32_t count, struct weft_table_row **rows_p);

/* Evict the row of id, as the process did whose journal is replayed. No effect if there is no such
 * row, if the table evicts none to make room, or if the row has gradients of an unfinished
 * clock. */
void weft_table_evict(struct weft_table *table, uint64_t id);

/* The weights of a row, (dim,). */
const float *weft_table_weights(const struct weft_table *table, const struct weft_table_row *row);

/* Copy the weights of id to out (dim,); false, and the initial weights, if the row does not
 * exist. */
bool weft_table_read(const struct weft_table *table, uint64_t id, float *out);

/* The same for all ids of a PULL; counts as a use of the rows. Returns the number of rows that do
 * not exist.
 * Shape:   ids (count,); row i at out + i x stride, zeros from dim to stride. */
uint32_t weft_table_read_all(struct weft_table *table, const uint64_t *ids, uint32_t count,
                             float *out, size_t stride);

/* ---- gradients ------------------------------------------------------------------------------- */

/* Apply a chunk of a PUSH: add to the sums (BSP), or step now.
 * Shape:   rows (count,) of obtain_chunk, NULL = skip; blocks (count, block_floats) float32,
 *          unaligned. Returns the number of elements applied. */
uint32_t weft_table_apply(struct weft_table *table, struct weft_table_row *const *rows,
                          uint32_t first, uint32_t count, const uint8_t *blocks);

/* Sums of gradients, of rows of one block in a table without admission and eviction. Each sum is
 * applied as one gradient, and counts as counts[i] gradients. All can be applied if obtain_sums
 * returned true; nothing may change the table in between. Rows are found again in a cache if they
 * are obtained when their sums are applied, some at a time. obtain_sums obtains them only if there
 * may be no room for all, and has the table keep room for as many from then on.
 *
 * Shape:   ids (count,); sums (count, dim) float32 and counts (count,) u16 >= 1, both unaligned;
 *          hashes (count,) and rows (count,): scratch, unchanged between the two calls.
 *          apply_sums returns the total number of gradients.
 * Errors:  false: no room for a row. Rows created before it stay, with initial weights. */
bool weft_table_obtain_sums(struct weft_table *table, const uint64_t *ids, uint32_t count,
                            uint64_t *hashes, struct weft_table_row **rows);
uint64_t weft_table_apply_sums(struct weft_table *table, const uint64_t *ids, uint32_t count,
                               const uint8_t *sums, const uint8_t *counts, uint64_t *hashes,
                               struct weft_table_row **rows);

/* BSP: add gradients of `block` to the row's sum. Shape: gradient (weft_table_block_used,). */
void weft_table_accumulate(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                           const float *gradient);

/* SSP, ASP: one optimizer step for `block` now. */
void weft_table_step(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                     const float *gradient);

/* BSP: one optimizer step for every row with a sum; sums are zero afterwards. Returns the number of
 * rows. */
uint32_t weft_table_step_all(struct weft_table *table);

/* The same in slices: step_begin, then step_some until done. In between, nothing may be
 * accumulated, and a read row may be of either clock. The result does not depend on the slices.
 * Returns the number of rows stepped, at most max; weft_table_stepping: are more left? */
void weft_table_step_begin(struct weft_table *table);
uint32_t weft_table_step_some(struct weft_table *table, uint32_t max);
bool weft_table_stepping(const struct weft_table *table);

/* ---- all rows: for checkpoints --------------------------------------------------------------- */

/* All data of one row. */
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

/* The next row; false at the end. *cursor is 0 at first. A row that exists during the whole
 * iteration is returned exactly once, in its state at that moment; a row created or evicted
 * meanwhile may be returned or not.
 * Owns:    the view's arrays belong to the table, and are valid until it changes. */
bool weft_table_next(const struct weft_table *table, uint32_t *cursor,
                     struct weft_table_view *view_p);

/* Insert a row of a checkpoint; a row of a dense table is replaced. Admission does not apply.
 * Owns:    copies the view's arrays.
 * Errors:  WEFT_NOMEM   no room, and no row is evicted: add a slab. WEFT_EXISTS  the row exists.
 *          WEFT_INVALID sums for a table that is not BSP, or not a row of this shard. */
weft_status weft_table_restore(struct weft_table *table, const struct weft_table_view *view);

/* ---- records (table_record.c) ----------------------------------------------------------------
 *
 * The format of a row in checkpoints:
 *
 *     id u64 | clock u32 | count u32 | weights (dim) | optimizer's state (weft_table_state_floats)
 *
 * all in host byte order, which is little-endian. clock and count as in a view.
 */
enum { WEFT_TABLE_RECORD_HEAD = 16 };

/* Number of row slots, numbered from 0. */
uint32_t weft_table_slots(const struct weft_table *table);

/* True: no gradient of this clock waits for its step. */
bool weft_table_settled(const struct weft_table *table);

/* Size of one record of a declared table. */
uint32_t weft_table_record_bytes(const struct weft_table *table);

/* Shape: out (weft_table_record_bytes,). The slot must have a row. */
void weft_table_record_read(const struct weft_table *table, uint32_t number, uint8_t *out);
uint64_t weft_table_record_id(const struct weft_table *table, uint32_t number);

/* Create the record's row, or overwrite it.
 * Errors:  WEFT_AGAIN  a slab is required first. WEFT_NOMEM  no room for a new row, and at the
 *          table's limit none by eviction either. */
weft_status weft_table_record_write(struct weft_table *table, const uint8_t *record);

/* Remove the row of id, if it exists. It must have no gradients that wait for a step. */
void weft_table_record_remove(struct weft_table *table, uint64_t id);

/* Remove all rows that belong to shard `shard` of `shards`, expired ones, too; none of a dense
 * table. They must have no gradients that wait for a step. */
void weft_table_clear(struct weft_table *table, uint32_t shard, uint32_t shards);

#endif
