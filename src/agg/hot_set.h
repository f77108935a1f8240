/* Selects the hot rows of the next epoch: those with the most updates since the last selection.
 *
 * Update counts only increase, so the differences are compared. If the count of a row decreased,
 * the row was evicted and recreated; its whole count is new.
 *
 * Without hysteresis, rows near the limit would enter and leave in every epoch, and each change
 * requires draining. With K the capacity in rows, and ranks from 0:
 *
 *     rank below 0.8 K    in
 *     rank from 1.2 K on  out
 *     between             unchanged; if K is exceeded, rows are removed, last rank first
 *     no updates          out
 *
 * The first selection starts from an empty set and selects the first K rows.
 *
 * Source: [imc20] section 4 (the rows with most updates); the two limits are weft's.
 */
#ifndef WEFT_AGG_HOT_SET_H
#define WEFT_AGG_HOT_SET_H

#include "base/units.h"

#include <stdbool.h>

struct weft_agg_candidate {
    uint64_t id;
    uint32_t before; /* updates at the last selection; 0 if not known then */
    uint32_t now;    /* updates */
    bool is_hot;     /* in the set; input: of this epoch, output: of the next */
};

struct weft_agg_hot_change {
    uint32_t hot; /* rows in the next set */
    uint32_t came;
    uint32_t left;
};

/* Set is_hot of each candidate, and sort the candidates by rank: most new updates first, then by
 * id. Ids must be distinct. A row of this epoch that is not a candidate leaves the set, and is not
 * counted in `left`.
 *
 * Shape:   candidates (count,).  Cost: O(count log count), no allocation. */
void weft_agg_hot_choose(struct weft_agg_candidate *candidates, uint32_t count, uint32_t room,
                         struct weft_agg_hot_change *change_p);

/* Whether the changes justify a new epoch. A change of one row does not justify draining all
 * rows. */
static inline bool weft_agg_hot_changed(const struct weft_agg_hot_change *change, uint32_t least)
{
    return change->came + change->left >= least;
}

#endif
