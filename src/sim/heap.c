#include "sim/heap.h"

#include "base/assert.h"

#include <stdlib.h>

static bool before(const struct weft_sim_event *a, const struct weft_sim_event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

void weft_sim_heap_fini(struct weft_sim_heap *heap)
{
    free(heap->events);
    *heap = (struct weft_sim_heap){0};
}

void weft_sim_heap_push(struct weft_sim_heap *heap, uint64_t time_ns, uint32_t kind, uint32_t index,
                        void *object)
{
    if (heap->count == heap->capacity) {
        heap->capacity = heap->capacity == 0 ? 256 : heap->capacity * 2;
        heap->events = realloc(heap->events, heap->capacity * sizeof(*heap->events));
        WEFT_ASSERT(heap->events != NULL);
    }
    struct weft_sim_event event = {time_ns, heap->pushed++, kind, index, object};
    size_t at = heap->count++;
    while (at > 0 && before(&event, &heap->events[(at - 1) / 2])) {
        heap->events[at] = heap->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->events[at] = event;
}

bool weft_sim_heap_pop(struct weft_sim_heap *heap, struct weft_sim_event *event_p)
{
    if (heap->count == 0) {
        return false;
    }
    *event_p = heap->events[0];
    struct weft_sim_event last = heap->events[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count && before(&heap->events[child + 1], &heap->events[child])) {
            child++;
        }
        if (!before(&heap->events[child], &last)) {
            break;
        }
        heap->events[at] = heap->events[child];
        at = child;
    }
    heap->events[at] = last;
    return true;
}
