/* How far a table's weights may be from those that its replica has: a bound that always holds, from
 * the steps that were really applied.
 *
 * Of each row it keeps the length of the way that its weights have gone, the sum of the norms of its
 * steps; the bound is the root of the sum of their squares over the rows. A row is never farther from
 * where it was than its way is long, so
 *
 *     |w - w'|  <=  sqrt(sum over rows of way^2)  <=  sum over pushes of |step|,
 *
 * the last by Minkowski's inequality: it is at most what one gets by adding up the norms of the pushes,
 * and it asks nothing of them, not even that a push names a row once.
 *
 * Steps are measured, not forecast: eta x |g| bounds no step of Adagrad or Adam.
 *
 * Two parts: steps since the last cut, and those of the cut whose rows are on their way to the replica.
 *
 * Not here: when a table is cut (ps/transfer.h).
 *
 * Thread:  the shard's. Makes no system call after init.
 *
 * Source: [mlfabric], "bounded divergence"; differs: docs/SCHEDULER.md, "Replicas".
 */
#ifndef WEFT_PS_DIVERGENCE_H
#define WEFT_PS_DIVERGENCE_H

#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

struct weft_divergence {
    uint32_t places; /* rows have numbers below it */
    float *since;    /* (places,): ways since the last cut */
    float *sent;     /* (places,): ways in the cut under way, else zero */
    uint32_t since_end; /* from here on all of since are zero; a table has room for many rows */
    uint32_t sent_end;
    double since_squares;
    double sent_squares;
    double later_squares; /* part of the squares of since that does not count yet */
};

/* Owns:    allocates memory for so many rows. Errors: WEFT_NOMEM: nothing is left. */
weft_status weft_divergence_init(struct weft_divergence *divergence, uint32_t places);
void weft_divergence_fini(struct weft_divergence *divergence);

/* The weights of the row at this place have moved: the sum of the squares of the changes. What is not
 * finite, or is very large, counts as very large. */
void weft_divergence_add(struct weft_divergence *divergence, uint32_t place, double squares);

/* The same of what cannot be cut now: it is not in the bound before weft_divergence_settle, or a cut. */
void weft_divergence_add_later(struct weft_divergence *divergence, uint32_t place, double squares);
void weft_divergence_settle(struct weft_divergence *divergence);

/* The rows are cut: what was counted so far goes with them. Not while a cut is under way. */
void weft_divergence_cut(struct weft_divergence *divergence);

/* The replica has the cut, or it will not get it: then its ways count again as they did. */
void weft_divergence_end(struct weft_divergence *divergence, bool kept);

/* The bound, >= 0, now; and of it what a cut would take along. */
double weft_divergence_now(const struct weft_divergence *divergence);
double weft_divergence_since(const struct weft_divergence *divergence);

#endif
