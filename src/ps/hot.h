/* Which rows of a table are updated most: [imc20]'s "updates per parameter", always on, and exact.
 *
 * A row counts its own updates in its header, in a cache line that the update writes anyway. What is
 * kept here is a list of the rows whose count has reached a threshold: a row comes onto it when an
 * update finds its count there and its mark (a bit beside its number) missing. When the list is
 * full, the threshold rises to where at most half of the list is left; where rows of one count are
 * more than that, some of them stay. So after each rise the list holds the `top` rows with most
 * updates, and whatever overtakes them later has to cross the threshold.
 *
 * Rejected: Space-Saving and count-min with a heap. Both pay a random access into memory of their
 * own for every update, or sample; and samples do not tell rank 1,000 from rank 1,010 until some 32
 * million of them were drawn.
 *
 *     Memory: 16 bytes x top for each table.  Cost: an addition and two comparisons an update;
 *     a rise reads 2 x top rows (0.3 to 1 ms for 20,000), and at least `top` rows came before it.
 *
 * What it is not: a count of ids without a row. A row that is evicted takes its count with it, an id
 * that is not admitted has none (docs/TABLES.md); `exact` says whether either happened. Blocks of
 * one row count once. Counts come back with a checkpoint and stay at 2^32 - 1.
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
    uint32_t *places; /* (2 x top,): numbers of the marked places, rows or free */
    uint32_t *counts; /* (2 x top,) scratch of a rise */
    uint32_t top;     /* 0: nothing is listed; updates are counted */
    uint32_t listed;
    uint64_t threshold; /* updates that put a row on the list */
    uint64_t updates;   /* of all rows, those that are gone included */
    uint64_t rises;
};

struct weft_hot_row {
    uint64_t id;
    uint32_t updates;
};

struct weft_hot_total {
    uint64_t updates; /* of all rows there ever were; what shares are of */
    uint64_t rises;   /* of the threshold */
    bool exact;       /* no row left, and no push was for an id without a row */
};

struct weft_table;

/* Owns:    allocates. top = 0: nothing is listed.  Errors: WEFT_INVALID top; WEFT_NOMEM. */
weft_status weft_hot_init(struct weft_hot *hot, uint32_t top);
void weft_hot_fini(struct weft_hot *hot);

/* The rows with most updates, most first, then by id; returns how many, at most `max`.
 * Shape:   out (max,). Complete up to the table's hot_top; beyond it only some are known. Where
 *          listed rows were evicted, rows that never reached the threshold are not known instead.
 * Cost:    O(2 x hot_top x log max), reading that many rows. */
uint32_t weft_table_hot(const struct weft_table *table, struct weft_hot_row *out, uint32_t max);

/* All rows that are known, in no order. Returns how many.
 * Shape:   out (2 x hot_top,). */
uint32_t weft_table_hot_listed(const struct weft_table *table, struct weft_hot_row *out);

void weft_table_hot_total(const struct weft_table *table, struct weft_hot_total *total_p);

#endif
