/* A worker's bounded store of rows of floats by id: values received, gradients still to be pushed.
 *
 * A hash table with chaining. Slots are used in order, then freed slots are reused. It allocates
 * nothing: the caller supplies the memory. Ids are hashed with a key (base/hash_key.h), because
 * they may come from untrusted data.
 */
#ifndef WEFT_PS_ROW_STORE_H
#define WEFT_PS_ROW_STORE_H

#include "base/hash_key.h"
#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>

struct weft_row_store {
    struct weft_hash_key key;
    uint32_t rows_max; /* 0 = always empty */
    uint32_t dim;
    uint32_t count;
    uint32_t begun;  /* slots used so far */
    uint32_t free;   /* of these, the first free slot + 1 */
    uint32_t hand;   /* the slot to evict next */
    uint32_t mask;   /* heads - 1 */
    uint32_t *heads; /* slot + 1; 0 = none */
    uint32_t *next;  /* (rows_max,) slot + 1: next in the chain, or in the list of free slots */
    uint64_t *ids;   /* (rows_max,) */
    float *rows;     /* (rows_max, dim) */
};

enum { WEFT_ROW_STORE_MAX = 1 << 28 };

/* Bytes for rows_max rows. */
size_t weft_row_store_bytes(uint32_t rows_max, uint32_t dim);

/* Shape:   1 <= rows_max <= WEFT_ROW_STORE_MAX.
 * Owns:    borrows memory (8-byte aligned; need not be zero), of that many bytes. */
void weft_row_store_init(struct weft_row_store *store, void *memory, uint32_t rows_max,
                         uint32_t dim, const uint8_t key[WEFT_HASH_KEY_BYTES]);

/* NULL: not found. Returned pointers are valid until the next add or remove. */
float *weft_row_store_find(const struct weft_row_store *store, uint64_t id);

/* The same for several ids, with their memory accesses overlapped.
 * Shape:   ids, rows_p (count,). */
void weft_row_store_find_all(const struct weft_row_store *store, const uint64_t *ids, size_t count,
                             float **rows_p);

/* Add a row for an id that is not stored; its floats are uninitialized. NULL: no room. */
float *weft_row_store_add(struct weft_row_store *store, uint64_t id);

/* The same; without room it replaces the oldest row. rows_max >= 1. */
float *weft_row_store_replace(struct weft_row_store *store, uint64_t id);

/* Copy at most max ids and, if rows_p != NULL, their rows. Returns the number of stored rows. */
uint32_t weft_row_store_list(const struct weft_row_store *store, uint64_t *ids_p, float *rows_p,
                             uint32_t max);

/* No effect if it is not stored. */
void weft_row_store_remove(struct weft_row_store *store, uint64_t id);

#endif
