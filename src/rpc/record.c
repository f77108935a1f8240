#include "rpc/record.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_record_ring_new(uint32_t slots, struct weft_record_ring **ring_p)
{
    WEFT_ASSERT(slots >= 2 && (slots & (slots - 1)) == 0);
    struct weft_record_ring *ring = aligned_alloc(_Alignof(struct weft_record_ring), sizeof(*ring));
    /* Two records never share a cache line. Zeroed, so that what is written down of a record's
     * unused bytes is nobody's memory. */
    struct weft_record *records = aligned_alloc(64, (size_t)slots * sizeof(*records));
    if (ring == NULL || records == NULL) {
        free(ring);
        free(records);
        return WEFT_NOMEM;
    }
    memset(ring, 0, sizeof(*ring));
    memset(records, 0, (size_t)slots * sizeof(*records));
    ring->slots = slots;
    ring->records = records;
    *ring_p = ring;
    return WEFT_OK;
}

void weft_record_ring_free(struct weft_record_ring *ring)
{
    if (ring != NULL) {
        free(ring->records);
        free(ring);
    }
}

const struct weft_record *weft_record_ring_peek(struct weft_record_ring *ring, uint32_t *count_p)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t waiting = atomic_load_explicit(&ring->tail, memory_order_acquire) - head;
    uint32_t at = head & (ring->slots - 1);
    *count_p = (uint32_t)weft_min_u64(waiting, ring->slots - at);
    return &ring->records[at];
}

void weft_record_ring_take(struct weft_record_ring *ring, uint32_t count)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + count, memory_order_release);
}

uint64_t weft_record_ring_dropped(const struct weft_record_ring *ring)
{
    return atomic_load_explicit(&ring->dropped, memory_order_relaxed);
}
