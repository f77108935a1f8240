/* Admission of ids to a table. Most features of click data occur once, and each would cost a row of
 * weights. An id is admitted with its N-th push ([ftrl13] section 4.1).
 *
 * Two methods, in memory of fixed size that the driver supplies:
 *   COUNTER  a cell of 16 bytes for each id that is not admitted yet. Exact while the cells
 *            suffice. Otherwise the rarest of the next few ids is forgotten, and counted.
 *   BLOOM    four bytes of `cells`, chosen by the hash. An id's count is their minimum, and only
 *            the bytes at the minimum are incremented. The count is never too low, so no id needs
 *            more than N pushes. With 8 cells for each id ever pushed, and N = 2, it is too high
 *            for about one id in forty. Ids are never removed: an evicted id is admitted at once.
 *
 * Source: [ftrl13]; raising the minimum only: Estan and Varghese, SIGCOMM 2002. */
#ifndef WEFT_PS_ADMISSION_H
#define WEFT_PS_ADMISSION_H

#include "base/hash_key.h"
#include "rpc/table_spec.h"

struct weft_admission {
    /* private, except `forgotten` and `key` */
    uint8_t kind; /* enum weft_table_admission */
    uint32_t threshold;
    uint32_t cells;
    uint32_t used; /* COUNTER: cells with an id */
    uint32_t hand; /* COUNTER: the next search for a rare id begins at this cell */
    bool begun;    /* a push was counted */
    void *memory;
    uint64_t forgotten; /* COUNTER: ids whose count was discarded */
    uint8_t key[WEFT_HASH_KEY_BYTES];
    struct weft_hash_key hash_key; /* derived from `key`, unless it is all zeros */
    bool keyed;
};

/* Initialize from the specification; weft_admission_begin supplies the memory. key: of the hash
 * that maps ids to cells; all zeros: weft_mix64, as in releases without keys. */
void weft_admission_init(struct weft_admission *admission, const struct weft_table_spec *spec,
                         const uint8_t key[WEFT_HASH_KEY_BYTES]);

/* Bytes of memory required; 0 when every id is admitted. */
size_t weft_admission_bytes(const struct weft_admission *admission);

/* Owns:    borrows memory (8-byte aligned, of weft_admission_bytes) for its life; clears it. */
void weft_admission_begin(struct weft_admission *admission, void *memory);

/* Count a push of id; true if the id is admitted. Call weft_admission_begin first. */
bool weft_admission_count(struct weft_admission *admission, uint64_t id);

/* The id has a row: drop its count. */
void weft_admission_done(struct weft_admission *admission, uint64_t id);

/* ---- checkpoints ------------------------------------------------------------------ */

struct weft_admission_counts {
    uint8_t key[WEFT_HASH_KEY_BYTES]; /* the key of the counts below */
    uint32_t hand;                    /* COUNTER: as in struct weft_admission */
    const uint64_t *ids;    /* COUNTER: (count,), in an order such that restoring them with this key
                             * into as many empty cells puts each into its old cell */
    const uint32_t *counts; /* COUNTER: (count,), none 0 */
    uint32_t count;
    const uint8_t *filter; /* BLOOM: (cells,) */
    uint32_t cells;
};

/* Bytes of memory that a copy requires now; 0 when nothing is counted. */
size_t weft_admission_copy_bytes(const struct weft_admission *admission);

/* Shape:   memory (weft_admission_copy_bytes,), 8-byte aligned; *counts_p points into it.
 * Cost:    a walk over all cells. */
void weft_admission_copy(const struct weft_admission *admission, void *memory,
                         struct weft_admission_counts *counts_p);

/* The key of the counts that are restored next. COUNTER: adopted while nothing is counted, so that
 * the same ids are evicted as without the restart. Later, or if it is all zeros, it is ignored: the
 * key of this process maps the ids to cells.
 * Errors:  WEFT_EXISTS  BLOOM: there is a filter, of another key. */
weft_status weft_admission_restore_key(struct weft_admission *admission,
                                       const uint8_t key[WEFT_HASH_KEY_BYTES]);

/* COUNTER: restore the count of an id. Of two counts the larger is kept. Call weft_admission_begin
 * first. */
void weft_admission_restore_count(struct weft_admission *admission, uint64_t id, uint32_t count);

/* COUNTER: restore the hand, after the last count. */
void weft_admission_restore_hand(struct weft_admission *admission, uint32_t hand);

/* BLOOM: merge another filter with the same number of cells and the same key. Of two bytes the
 * larger is kept, so no id has a lower count than in either filter, whichever shard held it. Ids
 * that share bytes by chance have higher counts, as in one filter for all of them. The sum of the
 * bytes would be as safe, but would admit more ids too early. */
void weft_admission_restore_filter(struct weft_admission *admission, const uint8_t *filter);

#endif
