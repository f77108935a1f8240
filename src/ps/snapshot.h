/* A snapshot of one shard: its tables, the clocks of the workers and the windows of their pushes,
 * each table as of one instant, taken while training continues.
 *
 * The counts of admission are copied whole at that instant, into the driver's memory.
 *
 * A polled stream. The driver requests a cut and lends memory for copies (weft_shard_cut_begin).
 * The shard cuts at the requested instant. The driver then takes records, a buffer at a time
 * (weft_shard_cut_take), and finally reports whether they are durable (weft_shard_cut_end).
 * Training never waits: the shard copies the rows that it is about to change, and if the memory for
 * that is exhausted, the snapshot fails and training continues.
 *
 *     weft_shard_cut_begin; after each batch of events, by weft_shard_cut_state:
 *         WAITING   nothing to do
 *         READY     weft_shard_cut_view; weft_shard_cut_take until it returns 0; weft_shard_cut_end
 *         FAILED    weft_shard_cut_end(false)
 *
 * The instant: a BSP table is cut at the boundary of the requested clock: the weights contain all
 * pushes of that clock and none of the next. This is the same state on every shard of a job. An SSP
 * or ASP table is cut together with the first BSP table; without BSP tables, when the slowest
 * worker has finished the requested clock. Its snapshot contains exactly the pushes and chunks in
 * the windows, but other shards are cut at other instants. With `now`, SSP and ASP tables are cut
 * at once, and BSP tables at their next boundary, which may be later.
 *
 * Not here: files and checksums (src/ckpt), and which checkpoint is valid (node/checkpoint.h).
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_PS_SNAPSHOT_H
#define WEFT_PS_SNAPSHOT_H

#include "ps/push_window.h"
#include "ps/retired.h"
#include "ps/shard.h"

enum weft_cut_state {
    WEFT_CUT_NONE,
    WEFT_CUT_WAITING, /* for its instant */
    WEFT_CUT_READY,   /* every table is cut */
    WEFT_CUT_FAILED,  /* see weft_shard_cut_why */
};

enum weft_cut_why {
    WEFT_CUT_GOOD,
    WEFT_CUT_NO_MEMORY, /* the memory lent was too small for the rows that changed before they were
                         * emitted, or for the counts of admission */
    WEFT_CUT_LATE,      /* a BSP table had passed the requested clock */
};

struct weft_cut_order {
    uint64_t number; /* of the checkpoint, for the journal (ps/shard_journal.h) */
    uint64_t cut;    /* another one for each cut with this number: an earlier one may have been
                      * abandoned; for the journal. 0 = there is only one */
    bool now;        /* do not wait for a clock */
    uint32_t clock;  /* else cut at the end of this clock */
    bool whole;      /* all rows; else those changed since the last kept cut */
    void *memory;    /* for copies of rows and of admission counts; 8-byte aligned */
    size_t bytes;
};

/* A push of which some chunks are applied. */
struct weft_cut_partial {
    uint32_t worker;
    uint16_t table;
    uint16_t reserved;
    uint64_t number;
    uint32_t chunks;
    uint32_t chunk_elems;
    uint64_t *mask; /* (chunks,) bits: applied */
};

/* One table of a cut. All pointers of a view belong to the shard, and are constant until
 * weft_shard_cut_end. */
struct weft_cut_table {
    bool present;
    struct weft_table_spec spec;
    uint32_t clock; /* minimum clock of the workers */
    uint32_t rows;  /* records that weft_shard_cut_take will return */
    uint32_t record_bytes;
    uint32_t *clocks;                /* (workers_max,) */
    struct weft_push_window *pushes; /* (workers_max,) */
    uint64_t rows_total;             /* in the table at the cut */
    const uint64_t *removed; /* (removed_count,): ids removed since the previous cut; some may be
                              * among the records, which apply afterwards */
    uint32_t removed_count;
    bool replaces; /* all rows are here, though the order was not for all: too many ids were removed
                    * to list them. Rows of earlier cuts are void */
    struct weft_admission_counts counted; /* admission counts of ids without a row; complete, also
                                           * in a delta */
};

struct weft_cut_view {
    uint32_t tables_max;
    uint32_t workers_max;
    bool whole;
    struct weft_cut_table *tables; /* (tables_max,) */
    uint64_t *incarnations;        /* (workers_max,); 0 = never connected */
    struct weft_retired *retired;  /* (workers_max,): processes that lost each rank */
    struct weft_cut_partial *partials;
    uint32_t partial_count;
};

/* Errors:  WEFT_STATE  a cut is in progress, or the shard was made without checkpoints.
 * Owns:    borrows order->memory until weft_shard_cut_end. */
weft_status weft_shard_cut_begin(struct weft_shard *shard, const struct weft_cut_order *order);

enum weft_cut_state weft_shard_cut_state(const struct weft_shard *shard);
enum weft_cut_why weft_shard_cut_why(const struct weft_shard *shard);

/* READY only. */
const struct weft_cut_view *weft_shard_cut_view(const struct weft_shard *shard);

/* Take records of one table. Copied rows come first; the order has no meaning. Returns the number
 * of records of table *table_p. 0: check the state; READY means the end.
 * Shape:   out (bytes,), at least one record of the largest table.
 * Cost:    a copy of at most `bytes`, and a scan of the bitmap of rows. */
uint32_t weft_shard_cut_take(struct weft_shard *shard, void *out, size_t bytes, uint16_t *table_p);

/* End the cut. kept: the records are durable; otherwise their rows are in the next cut, too. In any
 * state but NONE. */
void weft_shard_cut_end(struct weft_shard *shard, bool kept);

/* The last kept cut is now in a valid checkpoint, from which a server would restart. Reports this
 * to the workers that keep their pushes. If a checkpoint is valid once its files are written, call
 * this right after weft_shard_cut_end(true). */
void weft_shard_durable(struct weft_shard *shard);

/* A worker that keeps its pushes is running out of memory, or a program requests a checkpoint that
 * contains this clock: begin a cut. If one process has all shards, cut as soon as possible,
 * otherwise at this clock. False: no request, or a cut is in progress; a cut that still waits for
 * its instant may be abandoned for the request. If the cut is not kept, the request is repeated. */
bool weft_shard_cut_wanted(const struct weft_shard *shard, uint32_t *clock_p);

/* The requested checkpoint will not be made: reply to the requests with this status, for instance
 * NOT_KEPT. */
void weft_shard_cut_refused(struct weft_shard *shard, enum weft_rpc_status status);

/* Peak use of the memory lent, in bytes; for reports, before weft_shard_cut_end. */
size_t weft_shard_cut_peak(const struct weft_shard *shard);

/* ---- restoring -------------------------------------------------------------------------------
 *
 * Call these before the first worker connects: tables, then rows, clocks and windows, in this
 * order.
 */

/* Errors:  WEFT_EXISTS  the table exists. WEFT_INVALID  beyond this shard's limits. */
weft_status weft_shard_restore_table(struct weft_shard *shard, const struct weft_table_spec *spec);

/* Records of weft_shard_cut_take from any number of shards; those of other shards are skipped. A
 * later record of an id replaces an earlier one.
 * Shape:   records (count, record_bytes of the table).
 * Errors:  WEFT_AGAIN   a slab is required: add it, and continue after *used_p.
 *          WEFT_NOMEM   rows_max is reached, and the table evicts no row. *used_p: records used,
 *          also after an error. */
weft_status weft_shard_restore_rows(struct weft_shard *shard, uint16_t table, const void *records,
                                    uint32_t count, uint32_t *used_p);

/* Remove all rows of shard `of_shard` of `shards`: a cut that replaces the table follows. Call it
 * before its rows. A dense table keeps its rows, because the cut has all of them. */
void weft_shard_restore_clear(struct weft_shard *shard, uint16_t table, uint32_t of_shard,
                              uint32_t shards);

/* Remove the rows that a delta lists as removed. Call it before its rows. */
void weft_shard_restore_removed(struct weft_shard *shard, uint16_t table, const uint64_t *ids,
                                uint32_t count);

/* Admission counts from any number of shards; ids of other shards are skipped, and of two counts
 * the larger is kept (ps/admission.h). Ignored if the table's specification has another kind of
 * admission.
 * Errors:  WEFT_AGAIN  a slab is required: add it, and call again.
 *          WEFT_INVALID  a filter of another size. WEFT_EXISTS  the table has a filter with another
 *          key. */
weft_status weft_shard_restore_counted(struct weft_shard *shard, uint16_t table,
                                       const struct weft_admission_counts *counted);

/* Clocks finished. Shape: clocks (count,), count <= workers_max. */
void weft_shard_restore_clocks(struct weft_shard *shard, uint16_t table, const uint32_t *clocks,
                               uint32_t count);

/* The same if the number of shards changed: a rank's largest clock in all files is used. */
void weft_shard_restore_clocks_max(struct weft_shard *shard, uint16_t table, const uint32_t *clocks,
                                   uint32_t count);

/* Push windows; only for the same number of shards and the same shard. Shape: pushes (count,). */
void weft_shard_restore_pushes(struct weft_shard *shard, uint16_t table,
                               const struct weft_push_window *pushes, uint32_t count);
void weft_shard_restore_incarnations(struct weft_shard *shard, const uint64_t *incarnations,
                                     uint32_t count);
/* Shape: retired (count,). Checkpoints of earlier releases have none. */
void weft_shard_restore_retired(struct weft_shard *shard, const struct weft_retired *retired,
                                uint32_t count);
/* Errors:  WEFT_INVALID  beyond limits. */
weft_status weft_shard_restore_partial(struct weft_shard *shard,
                                       const struct weft_cut_partial *partial);

#endif
