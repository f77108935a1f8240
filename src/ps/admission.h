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

#include "base/hash_key.h"
#include "rpc/table_spec.h"

struct weft_admission {
    /* private but for the counter and the key */
    uint8_t kind; /* enum weft_table_admission */
    uint32_t threshold;
    uint32_t cells;
    uint32_t used; /* COUNTER: cells with an id */
    uint32_t hand; /* COUNTER: where one is forgotten next */
    bool begun;    /* something was counted */
    void *memory;
    uint64_t forgotten; /* COUNTER: ids whose count was given up */
    uint8_t key[WEFT_HASH_KEY_BYTES];
    struct weft_hash_key hash_key; /* of that, unless it is all zeros */
    bool keyed;
};

/* As the specification says; memory is still to come. The key says which cells and bytes are an id's;
 * all zeros: weft_mix64 does, as it did before there were keys. */
void weft_admission_init(struct weft_admission *admission, const struct weft_table_spec *spec,
                         const uint8_t key[WEFT_HASH_KEY_BYTES]);

/* Memory that it wants; 0 when every id is admitted. */
size_t weft_admission_bytes(const struct weft_admission *admission);

/* Owns:    borrows memory (8-byte aligned, of weft_admission_bytes) for its life; clears it. */
void weft_admission_begin(struct weft_admission *admission, void *memory);

/* Count a push of id; true when it is admitted. Memory must be there. */
bool weft_admission_count(struct weft_admission *admission, uint64_t id);

/* The id has a row now: its count is not needed. */
void weft_admission_done(struct weft_admission *admission, uint64_t id);

/* ---- what a checkpoint keeps ------------------------------------------------------------------ */

struct weft_admission_counts {
    uint8_t key[WEFT_HASH_KEY_BYTES]; /* what follows was counted under */
    uint32_t hand;          /* COUNTER: where one is forgotten next */
    const uint64_t *ids;    /* COUNTER: (count,), such that put back in this order, under this key and
                             * into as many empty cells, each gets the cell that it had */
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

/* What follows was counted under this key. COUNTER: taken as long as nothing is counted, so that the
 * same ids are forgotten as would have been; later, and when it is all zeros, left: ids go to where the
 * key of this process has them.
 * Errors:  WEFT_EXISTS  BLOOM: there is a filter, of another key. */
weft_status weft_admission_restore_key(struct weft_admission *admission,
                                       const uint8_t key[WEFT_HASH_KEY_BYTES]);

/* COUNTER: the id was counted so often; the larger of two counts stays. Memory must be there. */
void weft_admission_restore_count(struct weft_admission *admission, uint64_t id, uint32_t count);

/* COUNTER: behind the last count. */
void weft_admission_restore_hand(struct weft_admission *admission, uint32_t hand);

/* BLOOM: what another filter of as many cells, under the same key, has counted. The larger of two
 * bytes stays: so no id that one of them counted is counted less, whichever of several shards it lived
 * on; ids that share their bytes by chance are counted more, as in a filter for all of them. Adding the
 * two up would be as safe, and admit more too early. */
void weft_admission_restore_filter(struct weft_admission *admission, const uint8_t *filter);

#endif
