#include "io/event_ring.h"

#include "base/assert.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_event_ring_init(struct weft_event_ring *ring, uint32_t slots, uint32_t chunks_max)
{
    WEFT_ASSERT(slots >= 2 && (slots & (slots - 1)) == 0);
    *ring = (struct weft_event_ring){
        .slots = slots,
        .mask_words = (uint32_t)WEFT_BITS_WORDS((size_t)chunks_max),
    };
    ring->events = calloc(slots, sizeof(*ring->events));
    ring->masks = calloc((size_t)slots * ring->mask_words, sizeof(*ring->masks));
    if (ring->events == NULL || ring->masks == NULL) {
        weft_event_ring_fini(ring);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_event_ring_fini(struct weft_event_ring *ring)
{
    free(ring->events);
    free(ring->masks);
    ring->events = NULL;
    ring->masks = NULL;
}

bool weft_event_ring_has_room(struct weft_event_ring *ring)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    return tail - atomic_load(&ring->head) < ring->slots;
}

void weft_event_ring_push(struct weft_event_ring *ring, const struct weft_msg_event *event)
{
    WEFT_ASSERT(weft_event_ring_has_room(ring));
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t slot = tail & (ring->slots - 1);
    ring->events[slot] = *event;
    if (event->mask != NULL) {
        uint64_t *mask = ring->masks + (size_t)slot * ring->mask_words;
        size_t words = WEFT_BITS_WORDS((size_t)event->chunks);
        WEFT_ASSERT(words <= ring->mask_words);
        memcpy(mask, event->mask, words * sizeof(*mask));
        ring->events[slot].mask = mask;
    }
    atomic_store(&ring->tail, tail + 1);
}

/* Free the slot of the event that the last pop returned. */
static void return_lent(struct weft_event_ring *ring)
{
    if (ring->lent) {
        ring->lent = false;
        (void)atomic_fetch_add(&ring->head, 1);
    }
}

bool weft_event_ring_pop(struct weft_event_ring *ring, struct weft_msg_event *event_p)
{
    return_lent(ring);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == atomic_load(&ring->tail)) {
        return false;
    }
    *event_p = ring->events[head & (ring->slots - 1)];
    ring->lent = true;
    return true;
}

bool weft_event_ring_ready(struct weft_event_ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed) + ring->lent;
    return head != atomic_load(&ring->tail);
}
