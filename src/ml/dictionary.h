/* Feature ids in a data set being read, numbered 0, 1, 2, ... in the order of their first
 * appearance.
 *
 * An open-addressing hash table from u64 to u32, at most half full. It exists while a data set is
 * read; afterwards the sorted list of ids is sufficient.
 */
#ifndef WEFT_ML_DICTIONARY_H
#define WEFT_ML_DICTIONARY_H

#include "base/status.h"
#include "base/units.h"

struct weft_ml_dictionary {
    uint64_t *ids;   /* by number */
    uint32_t *slots; /* number + 1, or 0 for a free slot */
    uint32_t count;
    uint32_t ids_capacity;
    uint64_t slot_count; /* a power of two, or 0 */
};

/* Return the number of an id; a new id gets the next number. A zeroed dictionary is empty. A lookup
 * of a known id never fails.
 *
 * Errors:  WEFT_NOMEM   no memory, or 2^31 different ids.
 */
weft_status weft_ml_dictionary_number(struct weft_ml_dictionary *dictionary, uint64_t id,
                                      uint32_t *number_p);

void weft_ml_dictionary_fini(struct weft_ml_dictionary *dictionary);

#endif
