/* Which rows are hot in the next epoch: those with the most updates since the last choice.
 *
 * Counts of updates only rise, so what is compared is their difference. A row whose count fell was
 * evicted and came again; all of its count is new.
 *
 * Rows near the limit would come and go with every epoch, and each change means draining. So, with K the
 * room for rows and ranks from 0:
 *
 *     rank below 0.8 K    in
 *     rank from 1.2 K on  out
 *     between             as it was, but who was in gives way, last rank first, when K is not enough
 *     no updates          out
 *
 * The first choice, when nothing is in, has nothing to keep and takes the first K.
 *
 * Source: [imc20] section 4 (the rows with most updates); the two limits are weft's.
 */
#ifndef WEFT_AGG_HOT_SET_H
#define WEFT_AGG_HOT_SET_H

#include "base/units.h"

#include <stdbool.h>

struct weft_agg_candidate {
    uint64_t id;
    uint32_t before; /* updates at the last choice; 0 when not known then */
    uint32_t now;    /* updates */
    bool is_hot;     /* in the set; in: of this epoch, out: of the next */
};

struct weft_agg_hot_change {
    uint32_t hot; /* rows in the next set */
    uint32_t came;
    uint32_t left;
};

/* Sets is_hot of each candidate, and sorts them by rank: most new updates first, then by id. No two have
 * the same id. A row of this epoch that is not among them leaves the set, and is not counted in `left`.
 *
 * Shape:   candidates (count,).  Cost: O(count log count), no allocation. */
void weft_agg_hot_choose(struct weft_agg_candidate *candidates, uint32_t count, uint32_t room,
                         struct weft_agg_hot_change *change_p);

/* Is there reason for a new epoch? A change of one row is not worth draining all. */
static inline bool weft_agg_hot_changed(const struct weft_agg_hot_change *change, uint32_t least)
{
    return change->came + change->left >= least;
}

#endif
