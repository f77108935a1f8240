/* The event queue of the simulator: a binary heap ordered by (time, insertion number).
 *
 * The insertion number makes the order total: on every machine, two events at the same nanosecond
 * occur in the order in which they were scheduled. Events cannot be canceled. The owner of an event
 * that may become obsolete checks its own state when the event occurs.
 */
#ifndef WEFT_SIM_HEAP_H
#define WEFT_SIM_HEAP_H

#include "base/units.h"

#include <stdbool.h>

struct weft_sim_event {
    uint64_t time_ns;
    uint64_t order; /* set by push */
    uint32_t kind;  /* the caller's */
    uint32_t index; /* the caller's: a link or a host */
    void *object;   /* the caller's; the caller of pop owns it */
};

struct weft_sim_heap {
    struct weft_sim_event *events;
    size_t count;
    size_t capacity;
    uint64_t pushed;
};

/* A zeroed struct is an empty heap. fini frees the array, not the objects. */
void weft_sim_heap_fini(struct weft_sim_heap *heap);

/* Grows as needed. Running out of memory ends the process, because a simulation cannot continue
 * without the event. */
void weft_sim_heap_push(struct weft_sim_heap *heap, uint64_t time_ns, uint32_t kind, uint32_t index,
                        void *object);

/* Remove the earliest event; false if there is none. */
bool weft_sim_heap_pop(struct weft_sim_heap *heap, struct weft_sim_event *event_p);

/* Time of the earliest event; WEFT_NEVER if there is none. */
static inline uint64_t weft_sim_heap_next_ns(const struct weft_sim_heap *heap)
{
    return heap->count == 0 ? WEFT_NEVER : heap->events[0].time_ns;
}

#endif
