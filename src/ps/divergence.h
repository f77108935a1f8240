/* An upper bound on the distance between a table's weights and those of its replica. It always
 * holds, because it is computed from the steps that were applied.
 *
 * For each row it stores the length of the path of its weights: the sum of the norms of its steps.
 * The bound is the root of the sum of the squares of these lengths over the rows. The distance of a
 * row from its old position is at most the length of its path, so
 *
 *     |w - w'|  <=  sqrt(sum over rows of path^2)  <=  sum over pushes of |step|,
 *
 * the last by Minkowski's inequality. The bound is at most the sum of the norms of the pushes, and
 * requires nothing of them: a push may even name a row several times.
 *
 * Steps are measured, not predicted: eta x |g| is not a bound on a step of Adagrad or Adam.
 *
 * A *cut* is a snapshot of a table for its replica; ps/transfer.h decides when it is taken. There
 * are two parts: the steps since the last cut, and the steps of the cut whose rows are being sent
 * to the replica.
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
    uint32_t slots;     /* all row numbers are smaller */
    float *since;       /* (slots,): lengths of paths since the last cut */
    float *sent;        /* (slots,): lengths in the cut in progress, else zero */
    uint32_t since_end; /* `since` is zero from here on; a table may have many unused slots */
    uint32_t sent_end;
    double since_squares;
    double sent_squares;
    double later_squares; /* part of the squares of `since` that is not in the bound yet */
};

/* Owns:    allocates memory for so many rows. Errors: WEFT_NOMEM: nothing stays allocated. */
weft_status weft_divergence_init(struct weft_divergence *divergence, uint32_t slots);
void weft_divergence_fini(struct weft_divergence *divergence);

/* The weights of the row at this slot have changed; squares = the sum of the squares of the
 * changes. A value that is not finite, or is very large, counts as very large. */
void weft_divergence_add(struct weft_divergence *divergence, uint32_t slot, double squares);

/* The same for a change in the middle of a clock, when the table cannot be cut: it enters the bound
 * at weft_divergence_settle, to be called when a cut is possible again, or at the cut itself. */
void weft_divergence_add_later(struct weft_divergence *divergence, uint32_t slot, double squares);
void weft_divergence_settle(struct weft_divergence *divergence);

/* The rows are cut: the lengths counted so far become those of the cut. Not while a cut is in
 * progress. */
void weft_divergence_cut(struct weft_divergence *divergence);

/* kept: the replica has the cut. Otherwise the replica will not receive it, and its lengths count
 * as before the cut. */
void weft_divergence_end(struct weft_divergence *divergence, bool kept);

/* The current bound, >= 0; and the part of it that a cut would contain. */
double weft_divergence_now(const struct weft_divergence *divergence);
double weft_divergence_since(const struct weft_divergence *divergence);

#endif
