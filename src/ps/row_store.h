/* Rows of floats by id, in a worker: values it has seen, gradients it has still to push. Bounded.
 *
 * Chains from a table of heads; places of the rows are used one after the other, then those given
 * back. It allocates nothing: the memory is the caller's. Ids are hashed under a key (base/hash_key.h):
 * they may be drawn from data that others have made.
 */
#ifndef WEFT_PS_ROW_STORE_H
#define WEFT_PS_ROW_STORE_H

#include "base/hash_key.h"
#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>

struct weft_row_store {
    struct weft_hash_key key;
    uint32_t rows_max; /* 0 = it holds nothing */
    uint32_t dim;
    uint32_t count;
    uint32_t begun;  /* places that were in use at some time */
    uint32_t free;   /* of these, the first free one + 1 */
    uint32_t hand;   /* the place that is given up next */
    uint32_t mask;   /* heads - 1 */
    uint32_t *heads; /* place + 1; 0 = none */
    uint32_t *next;  /* (rows_max,) the same, along a chain or the free ones */
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

/* NULL: it is not there. What these return is valid until the next add or remove. */
float *weft_row_store_find(const struct weft_row_store *store, uint64_t id);

/* The rows of so many ids: as find of each, but they wait for memory together.
 * Shape:   ids, rows_p (count,). */
void weft_row_store_find_all(const struct weft_row_store *store, const uint64_t *ids, size_t count,
                             float **rows_p);

/* A row for an id that is not there; its floats are what was in the memory. NULL: no room. */
float *weft_row_store_add(struct weft_row_store *store, uint64_t id);

/* The same; without room, in the place of the row that was put there longest ago. rows_max >= 1. */
float *weft_row_store_replace(struct weft_row_store *store, uint64_t id);

/* So many ids, and (rows_p != NULL) their rows, at most max. Returns how many rows there are. */
uint32_t weft_row_store_list(const struct weft_row_store *store, uint64_t *ids_p, float *rows_p,
                             uint32_t max);

/* Nothing when it is not there. */
void weft_row_store_remove(struct weft_row_store *store, uint64_t id);

#endif
