/* Where the rows of a PUSH lie in its message. Both ends use this one description:
 *
 *     chunk 0   | head, padded to head_elems elements | n ids (u64) | n blocks |
 *     others    | n ids (u64) | n blocks |
 *
 * with n = elements of the chunk, less head_elems in chunk 0. A block is min(dim, 256) floats.
 * Payload is little-endian, which is also how this host keeps it (asserted below).
 *
 * Source: docs/PROTOCOL.md section 7.
 */
#ifndef WEFT_PS_LAYOUT_H
#define WEFT_PS_LAYOUT_H

#include "rpc/head.h"

#include <assert.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payload would need swapping");

/* The rows of one chunk, as offsets from its beginning. */
struct weft_ps_chunk_rows {
    uint32_t first; /* element of the message, counted from behind the head */
    uint32_t count;
    size_t ids_offset;    /* count x 8 bytes */
    size_t blocks_offset; /* count x (elem_bytes - 8) bytes */
};

/* elems: elements in the chunk; in chunk 0 at least head_elems, which is at most chunk_elems. */
static inline struct weft_ps_chunk_rows weft_ps_chunk_rows(uint16_t elem_bytes,
                                                           uint32_t chunk_elems,
                                                           uint32_t head_elems, uint32_t chunk,
                                                           uint32_t elems)
{
    uint32_t head = chunk == 0 ? head_elems : 0;
    struct weft_ps_chunk_rows rows = {
        .first = chunk == 0 ? 0 : chunk * chunk_elems - head_elems,
        .count = elems - head,
        .ids_offset = (size_t)head * elem_bytes,
    };
    rows.blocks_offset = rows.ids_offset + (size_t)rows.count * 8;
    return rows;
}

static inline uint64_t weft_ps_load_u64(const void *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static inline void weft_ps_store_u64(void *at, uint64_t value)
{
    memcpy(at, &value, sizeof(value));
}

#endif
