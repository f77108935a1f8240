/* Sorting ids with the indexes of their rows.
 *
 * A radix sort by the highest bits in which the ids differ, just enough of them for ids that are
 * spread evenly: two passes, also for ids of 64 random bits. An insertion sort orders the few that
 * are equal in these bits. If there are many, as of ids in clusters, it stops, and a radix sort
 * over all bits that differ follows. The cost is at most 10 passes for any ids.
 */
#ifndef WEFT_PS_ID_SORT_H
#define WEFT_PS_ID_SORT_H

#include <stdint.h>

struct weft_id_sort {
    uint64_t id;
    uint32_t row;
};

/* Sort ids, ascending; equal ids in the order of their indexes.
 *
 * Shape:   ids (count,); scratch (2, count).
 * Returns: (count,) in scratch: each id and its index in `ids`. */
const struct weft_id_sort *weft_ids_sort(const uint64_t *ids, uint32_t count,
                                         struct weft_id_sort *scratch);

#endif
