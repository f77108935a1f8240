/* A snapshot of one shard: its tables, the clocks of the workers and the windows of their pushes,
 * each table as of one instant, taken while training goes on.
 *
 * What admission has counted is copied whole at the instant, into the memory lent.
 *
 * A polled stream. The driver asks for a cut and lends memory for copies (weft_shard_cut_begin); the
 * shard cuts when the time has come; the driver then takes records, a buffer at a time
 * (weft_shard_cut_take), and at last says whether they are safe (weft_shard_cut_end). Nothing of it
 * waits: a shard under load copies aside the rows that it is about to change, and when the memory
 * lent for that is used up, the snapshot fails and training goes on.
 *
 *     weft_shard_cut_begin; after each batch of events, by weft_shard_cut_state:
 *         WAITING   nothing to do       READY   weft_shard_cut_view, then weft_shard_cut_take until
 *         it says END                   FAILED  weft_shard_cut_end(false)
 *
 * The instant: a BSP table is cut at the boundary of the clock asked for, when all pushes of that
 * clock are in the weights and none of the next; that is the same on every shard of a job. An SSP
 * or ASP table is cut when the first BSP table is; where there is none, when the slowest worker has
 * finished the clock asked for. It holds exactly what the windows say, push by push and chunk by
 * chunk, but another shard's instant is another one. Cutting `now` cuts SSP and ASP tables at once
 * and BSP tables when they are at a boundary, which may be later.
 *
 * Not here: files, checksums (src/ckpt), and which checkpoint counts (cli).
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
    WEFT_CUT_NO_MEMORY, /* more rows changed before they were emitted than the memory lent holds, or
                         * it does not hold what admission has counted */
    WEFT_CUT_LATE,      /* a BSP table had passed the clock asked for */
};

struct weft_cut_order {
    uint64_t number; /* of the checkpoint, for the journal (ps/shard_journal.h) */
    bool now;        /* do not wait for a clock */
    uint32_t clock;  /* else cut at the end of this clock */
    bool whole;      /* all rows; else those changed since the last cut that was kept */
    void *memory;    /* for copies of rows, and of admission's counts; 8-byte aligned */
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

/* One table of a cut. All pointers of a view are the shard's, constant until weft_shard_cut_end. */
struct weft_cut_table {
    bool present;
    struct weft_table_spec spec;
    uint32_t clock; /* minimum of the workers */
    uint32_t rows;  /* records that will come */
    uint32_t record_bytes;
    uint32_t *clocks;         /* (workers_max,) */
    struct weft_push_window *pushes; /* (workers_max,) */
    uint64_t rows_total;      /* in the table at the cut */
    const uint64_t *removed; /* (removed_count,): ids gone since the cut that this is based on; some
                               * may be among the records again, which come after */
    uint32_t removed_count;
    struct weft_admission_counts counted; /* of ids that have no row yet; all, also in a delta */
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

/* Take records of one table. Rows copied aside come first; the order says nothing.
 * Shape:   out (bytes,), at least one record of the largest table.
 * Returns the number of records of table *table_p; 0: look at the state, READY means END.
 * Cost:    a copy of at most `bytes`, and a walk over the set of rows. */
uint32_t weft_shard_cut_take(struct weft_shard *shard, void *out, size_t bytes, uint16_t *table_p);

/* The records are safe, or not: then their rows belong to the next cut, too. Any state but NONE. */
void weft_shard_cut_end(struct weft_shard *shard, bool kept);

/* The last cut that was kept belongs to a checkpoint that counts now: a server would come back with it.
 * Workers that keep their pushes are told. Where a checkpoint counts with its files: right after
 * weft_shard_cut_end(true). */
void weft_shard_durable(struct weft_shard *shard);

/* A worker that keeps its pushes has little room left, or a program asks for a checkpoint, which shall
 * have this clock: begin a cut, as soon as it can be where one process has all shards, else of this
 * clock. False while there is no such wish, or a cut is being taken; one that waits for its instant
 * may be given up for it. A cut that is not kept is wished again. */
bool weft_shard_cut_wanted(const struct weft_shard *shard, uint32_t *clock_p);

/* The checkpoint that programs wait for will not be made: they are told this, NOT_KEPT for instance. */
void weft_shard_cut_refused(struct weft_shard *shard, enum weft_rpc_status status);

/* Bytes of the memory lent that were in use at most; for reports, before weft_shard_cut_end. */
size_t weft_shard_cut_peak(const struct weft_shard *shard);

/* ---- restoring -------------------------------------------------------------------------------
 *
 * Before the first worker connects: tables, then rows, clocks and windows, in this order.
 */

/* Errors:  WEFT_EXISTS  the table is there. WEFT_INVALID  beyond this shard's limits. */
weft_status weft_shard_restore_table(struct weft_shard *shard, const struct weft_table_spec *spec);

/* Records as weft_shard_cut_take gave them, of any number of shards: those of other shards are
 * passed over. A later record of an id replaces an earlier one.
 * Shape:   records (count, record_bytes of the table).
 * Errors:  WEFT_AGAIN   a slab is wanted: add it, and go on behind *used_p.
 *          WEFT_NOMEM   rows_max is reached, and the table evicts no row.
 *          *used_p records were used in each case. */
weft_status weft_shard_restore_rows(struct weft_shard *shard, uint16_t table, const void *records,
                                    uint32_t count, uint32_t *used_p);

/* What a delta tells is gone; before its rows. */
void weft_shard_restore_removed(struct weft_shard *shard, uint16_t table, const uint64_t *ids,
                                uint32_t count);

/* What admission has counted, of any number of shards: ids of other shards are passed over, and of
 * two counts the larger stays (ps/admission.h). A table whose specification asks for another kind
 * of admission takes nothing of it.
 * Errors:  WEFT_AGAIN  a slab is wanted: add it, and call again.
 *          WEFT_INVALID  a filter of another size. WEFT_EXISTS  there is a filter of another key. */
weft_status weft_shard_restore_counted(struct weft_shard *shard, uint16_t table,
                                       const struct weft_admission_counts *counted);

/* Clocks finished. Shape: clocks (count,), count <= workers_max. */
void weft_shard_restore_clocks(struct weft_shard *shard, uint16_t table, const uint32_t *clocks,
                               uint32_t count);

/* The same where the number of shards changed: a rank's largest clock of all the files counts. */
void weft_shard_restore_clocks_max(struct weft_shard *shard, uint16_t table, const uint32_t *clocks,
                                   uint32_t count);

/* Windows, for the same number of shards and this very shard only. Shape: pushes (count,). */
void weft_shard_restore_pushes(struct weft_shard *shard, uint16_t table,
                               const struct weft_push_window *pushes, uint32_t count);
void weft_shard_restore_incarnations(struct weft_shard *shard, const uint64_t *incarnations,
                                     uint32_t count);
/* Shape: retired (count,). A checkpoint of an earlier release has none. */
void weft_shard_restore_retired(struct weft_shard *shard, const struct weft_retired *retired,
                                uint32_t count);
/* Errors:  WEFT_INVALID  it does not fit: beyond limits. */
weft_status weft_shard_restore_partial(struct weft_shard *shard,
                                       const struct weft_cut_partial *partial);

#endif
