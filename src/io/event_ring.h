/* A bounded ring of message events from one thread to another, with room for each event's mask.
 * One producer, one consumer, no locks.
 */
#ifndef WEFT_IO_EVENT_RING_H
#define WEFT_IO_EVENT_RING_H

#include "core/msg.h"

#include <stdatomic.h>

struct weft_event_ring {
    uint32_t slots;      /* power of two */
    uint32_t mask_words; /* room of each slot */
    struct weft_msg_event *events;
    uint64_t *masks;
    bool lent; /* consumer's: the event at head was popped and its mask may still be read */
    /* Each index is written by one thread only, and has a cache line of its own. */
    _Alignas(64) atomic_uint head; /* next to pop; free-running */
    _Alignas(64) atomic_uint tail; /* next to push */
};

/* Errors:  WEFT_NOMEM. */
weft_status weft_event_ring_init(struct weft_event_ring *ring, uint32_t slots, uint32_t chunks_max);
void weft_event_ring_fini(struct weft_event_ring *ring);

/* Producer: is there room for one more? Once true, it stays true until the next push. */
bool weft_event_ring_has_room(struct weft_event_ring *ring);

/* Producer: copy an event and its mask in. There must be room. */
void weft_event_ring_push(struct weft_event_ring *ring, const struct weft_msg_event *event);

/* Consumer: the oldest event; its mask is valid until the next call. False when empty. */
bool weft_event_ring_pop(struct weft_event_ring *ring, struct weft_msg_event *event_p);

/* Consumer: is there an event to pop? */
bool weft_event_ring_ready(struct weft_event_ring *ring);

#endif
