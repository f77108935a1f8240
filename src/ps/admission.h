/* Which ids are worth a row: most features of click data are seen once and never again, and each
 * would cost a row of weights. An id is admitted when it has been pushed for the N-th time
 * ([ftrl13] section 4.1).
 *
 * Two ways to count, in memory of fixed size that the driver supplies:
 *   counter  a cell of 16 bytes for each id that waits: exact while the cells suffice; when they
 *            do not, the rarest of the next few is forgotten, and counted.
 *   Bloom    four bytes of `cells`, chosen by the hash; an id's count is their minimum, and only
 *            those at the minimum are raised. It is never too low, so nobody waits longer than N;
 *            with cells = 8 for each id ever pushed, and N = 2, it is too high for about one id in
 *            forty. Nothing is ever taken out of it: an id that was evicted is admitted at once.
 *
 * Source: [ftrl13]; raising the minimum only: Estan and Varghese, SIGCOMM 2002.
 */
#ifndef WEFT_PS_ADMISSION_H
#define WEFT_PS_ADMISSION_H

#include "rpc/table_spec.h"

struct weft_admission {
    /* private but for the counter */
    uint8_t kind; /* enum weft_table_admission */
    uint32_t threshold;
    uint32_t cells;
    uint32_t used; /* COUNTER: cells with an id */
    uint32_t hand; /* COUNTER: where one is forgotten next */
    void *memory;
    uint64_t forgotten; /* COUNTER: ids whose count was given up */
};

/* As the specification says; memory is still to come. */
void weft_admission_init(struct weft_admission *admission, const struct weft_table_spec *spec);

/* Memory that it wants; 0 when every id is admitted. */
size_t weft_admission_bytes(const struct weft_admission *admission);

/* Owns:    borrows memory (8-byte aligned, of weft_admission_bytes) for its life; clears it. */
void weft_admission_begin(struct weft_admission *admission, void *memory);

/* Count a push of id; true when it is admitted. hash = weft_mix64(id). Memory must be there. */
bool weft_admission_count(struct weft_admission *admission, uint64_t id, uint64_t hash);

/* The id has a row now: its count is not needed. */
void weft_admission_done(struct weft_admission *admission, uint64_t id, uint64_t hash);

/* ---- what a checkpoint keeps ------------------------------------------------------------------ */

struct weft_admission_counts {
    const uint64_t *ids;    /* COUNTER: (count,) */
    const uint32_t *counts; /* COUNTER: (count,), none 0 */
    uint32_t count;
    const uint8_t *filter; /* BLOOM: (cells,) */
    uint32_t cells;
};

/* Memory that a copy takes now; 0 when nothing is counted. */
size_t weft_admission_copy_bytes(const struct weft_admission *admission);

/* Shape:   memory (weft_admission_copy_bytes,), 8-byte aligned; *counts_p points into it.
 * Cost:    a walk over all cells. */
void weft_admission_copy(const struct weft_admission *admission, void *memory,
                         struct weft_admission_counts *counts_p);

/* COUNTER: the id was counted so often; the larger of two counts stays. Memory must be there. */
void weft_admission_restore_count(struct weft_admission *admission, uint64_t id, uint64_t hash,
                                  uint32_t count);

/* BLOOM: what another filter of as many cells has counted. The larger of two bytes stays: so no id
 * that one of them counted is counted less, whichever of several shards it lived on; ids that share
 * their bytes by chance are counted more, as in a filter for all of them. Adding the two up would be
 * as safe, and admit more too early. */
void weft_admission_restore_filter(struct weft_admission *admission, const uint8_t *filter);

#endif
