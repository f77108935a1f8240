#include "core/bound.h"

#include <string.h>

/* The entry of this stream, moved to the front; a new entry replaces the least recently used
 * one. */
static struct weft_bound_stream *stream_at(struct weft_bounds *bounds, uint32_t stream)
{
    struct weft_bound_stream *used = bounds->used;
    uint32_t at = 0;
    while (used[at].chunk_elems != 0 && used[at].stream != stream) {
        if (++at == WEFT_BOUND_STREAMS_MAX) {
            used[--at].chunk_elems = 0;
        }
    }
    struct weft_bound_stream own = used[at];
    if (own.chunk_elems == 0) {
        own = (struct weft_bound_stream){.stream = stream};
    }
    memmove(used + 1, used, at * sizeof(*used));
    used[0] = own;
    return used;
}

uint32_t weft_bound_reserve(struct weft_bounds *bounds, const struct weft_msg_send *send,
                            uint32_t chunk_elems, uint32_t chunks)
{
    if (send->bound_ppm == 0) {
        return 0;
    }
    struct weft_bound_stream *s = stream_at(bounds, send->stream);
    if (s->chunk_elems != chunk_elems) { /* the grid has changed: convert, rounded down, so that the
                                          * bound is never exceeded */
        s->rest = s->chunk_elems == 0 ? 0 : s->rest * chunk_elems / s->chunk_elems;
        s->chunk_elems = chunk_elems;
    }
    /* Below 10^6 x 2^32 + 10^6 x 2^16. */
    const uint64_t chunk = (uint64_t)WEFT_PPM * chunk_elems;
    uint64_t parts = (uint64_t)send->bound_ppm * send->total + s->rest;
    s->rest = parts % chunk;
    uint64_t critical = weft_min_u64(send->critical, chunks); /* these chunks cannot be missing */
    return (uint32_t)weft_min_u64(parts / chunk, weft_min_u64(chunks - critical, chunks - 1));
}
