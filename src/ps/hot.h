/* The most-updated rows of a table: "updates per parameter" of [imc20]; always on, and exact.
 *
 * A row counts its own updates in its header, in a cache line that the update writes anyway. This
 * object keeps a list of the rows whose count has reached a threshold. An update adds a row to it
 * if its count has reached the threshold and its mark (a bit beside its number) is not set. When
 * the list is full, the threshold is raised so that at most half of the list remains; if more rows
 * than that have the same count, some of them remain. So after each rise the list has the `top`
 * rows with most updates, and a row that overtakes them later must cross the threshold.
 *
 * Rejected: Space-Saving, and count-min with a heap. Both cost a random access into separate memory
 * for every update, or must sample; and sampling cannot distinguish rank 1,000 from rank 1,010
 * before about 32 million samples.
 *
 *     Memory: 16 bytes x top for each table.  Cost: an addition and two comparisons an update; a
 *     rise reads 2 x top rows (0.3 to 1 ms for 20,000), once per at least `top` added rows.
 *
 * Not here: counts of ids without a row. The count of a removed row (evicted or expired) is lost,
 * and `removed` is the sum of these counts: a count is never too high, and all counts together are
 * too low by that sum. The pushes of an id that is not admitted (docs/TABLES.md) are in neither.
 * `exact` reports whether either happened. Blocks of one row
 * count once. Counts are restored from checkpoints and saturate at 2^32 - 1.
 *
 * Source: [imc20] section 4, Fig. 10.
 */
#ifndef WEFT_PS_HOT_H
#define WEFT_PS_HOT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_HOT_TOP_MAX = 1 << 24 };

struct weft_hot {
    /* private */
    uint32_t *slots; /* (2 x top,): numbers of the marked row slots, in use or free */
    uint32_t *counts; /* (2 x top,) scratch of a rise */
    uint32_t top;     /* 0: nothing is listed; updates are counted */
    uint32_t listed;
    uint64_t threshold; /* count at which a row is added to the list */
    uint64_t updates;   /* of all rows, removed ones included */
    uint64_t removed;   /* updates that removed rows had */
    uint64_t rises;
};

struct weft_hot_row {
    uint64_t id;
    uint32_t updates;
};

struct weft_hot_total {
    uint64_t updates; /* of all rows, removed ones included; the denominator of shares */
    uint64_t rises;   /* of the threshold */
    bool exact;       /* no row was removed, and no push was for an id without a row */
};

struct weft_table;

/* Owns:    allocates. top = 0: nothing is listed.  Errors: WEFT_INVALID top; WEFT_NOMEM. */
weft_status weft_hot_init(struct weft_hot *hot, uint32_t top);
void weft_hot_fini(struct weft_hot *hot);

/* The rows with most updates, in descending order, then by id. Returns their number, at most `max`.
 * Complete up to the table's hot_top; incomplete beyond. If listed rows were evicted, rows below
 * the threshold that would replace them are missing.
 * Shape:   out (max,).
 * Cost:    O(2 x hot_top x log max), reading that many rows. */
uint32_t weft_table_hot(const struct weft_table *table, struct weft_hot_row *out, uint32_t max);

/* All listed rows, unordered. Returns their number.
 * Shape:   out (2 x hot_top,). */
uint32_t weft_table_hot_listed(const struct weft_table *table, struct weft_hot_row *out);

void weft_table_hot_total(const struct weft_table *table, struct weft_hot_total *total_p);

/* Updates of removed rows, and of rows that have expired: with the counts of all other rows they
 * are all updates. Not only listed rows: one that has expired may have left the list since.
 * Cost:    with eviction by TTL it reads the header of every row, a cache line each; else O(1). */
uint64_t weft_table_hot_removed(const struct weft_table *table);

#endif
