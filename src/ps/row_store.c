#include "ps/row_store.h"

#include "base/prefetch.h"
#include "base/prng.h"

#include <string.h>

static uint32_t heads_for(uint32_t rows_max)
{
    uint32_t heads = 16;
    while (heads < rows_max) {
        heads *= 2;
    }
    return heads;
}

size_t weft_row_store_bytes(uint32_t rows_max, uint32_t dim)
{
    size_t row_bytes = sizeof(uint64_t) + sizeof(uint32_t) + dim * sizeof(float);
    return rows_max * row_bytes + heads_for(rows_max) * sizeof(uint32_t);
}

void weft_row_store_init(struct weft_row_store *store, void *memory, uint32_t rows_max,
                         uint32_t dim, const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    uint32_t heads = heads_for(rows_max);
    *store = (struct weft_row_store){
        .key = weft_hash_key(key), .rows_max = rows_max, .dim = dim, .mask = heads - 1};
    store->ids = memory;
    store->heads = (uint32_t *)(void *)(store->ids + rows_max);
    store->next = store->heads + heads;
    store->rows = (float *)(void *)(store->next + rows_max);
    memset(store->heads, 0, heads * sizeof(*store->heads));
}

/* Pointer to the link to the id's slot, or to the end of its chain. */
static uint32_t *link_of(const struct weft_row_store *store, uint64_t id)
{
    uint32_t *link = &store->heads[weft_hash_keyed(&store->key, id) & store->mask];
    while (*link != 0 && store->ids[*link - 1] != id) {
        link = &store->next[*link - 1];
    }
    return link;
}

static float *row_at(const struct weft_row_store *store, uint32_t slot)
{
    return store->rows + (size_t)slot * store->dim;
}

float *weft_row_store_find(const struct weft_row_store *store, uint64_t id)
{
    if (store->count == 0) {
        return NULL;
    }
    uint32_t link = *link_of(store, id);
    return link == 0 ? NULL : row_at(store, link - 1);
}

/* Prefetch the heads, then the slots, then the rows, each this many ids ahead of the next stage. */
enum { FIND_GROUP = 16 };

void weft_row_store_find_all(const struct weft_row_store *store, const uint64_t *ids, size_t count,
                             float **rows_p)
{
    uint32_t *head[FIND_GROUP];
    for (size_t i = 0; store->count == 0 && i < count; i++) {
        rows_p[i] = NULL;
    }
    for (size_t first = 0, n; store->count > 0 && first < count; first += n) {
        n = count - first < FIND_GROUP ? count - first : FIND_GROUP;
        for (size_t i = 0; i < n; i++) {
            head[i] = &store->heads[weft_hash_keyed(&store->key, ids[first + i]) & store->mask];
            weft_prefetch(head[i]);
        }
        for (size_t i = 0; i < n; i++) {
            const uint32_t slot = *head[i];
            if (slot != 0) {
                weft_prefetch(&store->ids[slot - 1]);
                weft_prefetch_to_write(row_at(store, slot - 1));
            }
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t link = *head[i];
            while (link != 0 && store->ids[link - 1] != ids[first + i]) {
                link = store->next[link - 1];
            }
            rows_p[first + i] = link == 0 ? NULL : row_at(store, link - 1);
        }
    }
}

float *weft_row_store_add(struct weft_row_store *store, uint64_t id)
{
    if (store->count == store->rows_max) {
        return NULL;
    }
    uint32_t slot = store->free > 0 ? store->free - 1 : store->begun++;
    store->free = store->free > 0 ? store->next[slot] : 0;
    uint32_t *head = &store->heads[weft_hash_keyed(&store->key, id) & store->mask];
    store->ids[slot] = id;
    store->next[slot] = *head;
    *head = slot + 1;
    store->count++;
    return row_at(store, slot);
}

float *weft_row_store_replace(struct weft_row_store *store, uint64_t id)
{
    if (store->count == store->rows_max) {
        weft_row_store_remove(store, store->ids[store->hand]);
        store->hand = store->hand + 1 == store->rows_max ? 0 : store->hand + 1;
    }
    return weft_row_store_add(store, id);
}

void weft_row_store_remove(struct weft_row_store *store, uint64_t id)
{
    uint32_t *link = store->rows_max > 0 ? link_of(store, id) : NULL;
    if (link == NULL || *link == 0) {
        return;
    }
    uint32_t slot = *link - 1;
    *link = store->next[slot];
    store->next[slot] = store->free;
    store->free = slot + 1;
    store->count--;
}

uint32_t weft_row_store_list(const struct weft_row_store *store, uint64_t *ids_p, float *rows_p,
                             uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t head = 0; store->count > 0 && head <= store->mask && count < max; head++) {
        for (uint32_t link = store->heads[head]; link != 0 && count < max;
             link = store->next[link - 1]) {
            ids_p[count] = store->ids[link - 1];
            if (rows_p != NULL) {
                memcpy(rows_p + (size_t)count * store->dim, row_at(store, link - 1),
                       store->dim * sizeof(*rows_p));
            }
            count++;
        }
    }
    return store->count;
}
