/* Where the rows of a PUSH lie in its message. Both ends use this one description:
 *
 *     chunk 0   | head, padded to head_elems elements | n ids | n blocks |
 *     others    | n ids | n blocks |
 *
 * with n = elements of the chunk, less head_elems in chunk 0. A block is min(dim, 256) floats, an
 * id u64, or u32 where all ids of the message fit; the size of an element tells which.
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
    size_t ids_offset;    /* count x id_bytes bytes */
    size_t blocks_offset; /* count x (elem_bytes - id_bytes) bytes */
};

/* elems: elements in the chunk; in chunk 0 at least head_elems, which is at most chunk_elems. */
static inline struct weft_ps_chunk_rows weft_ps_chunk_rows(uint16_t elem_bytes, uint32_t id_bytes,
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
    rows.blocks_offset = rows.ids_offset + (size_t)rows.count * id_bytes;
    return rows;
}

/* count ids, unaligned, from a message. */
static inline void weft_ps_load_ids(const uint8_t *at, uint32_t id_bytes, uint32_t count,
                                    uint64_t *ids)
{
    if (id_bytes == WEFT_RPC_ID_WIDE) {
        memcpy(ids, at, (size_t)count * sizeof(*ids));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id, at + (size_t)i * sizeof(id), sizeof(id));
        ids[i] = id;
    }
}

/* A message that may lose chunks has them so small whatever the packets are: a lost one must not
 * take thousands of rows with it. It is what a packet of 1,472 bytes holds. */
enum { WEFT_PS_BOUND_CHUNK_BYTES = 1408 };

/* Elements in a chunk, where the packets take packet_elems. */
static inline uint32_t weft_ps_chunk_elems(uint32_t packet_elems, uint16_t elem_bytes,
                                           uint32_t head_elems, uint32_t bound_ppm)
{
    uint32_t elems = WEFT_PS_BOUND_CHUNK_BYTES / elem_bytes;
    elems = elems > head_elems ? elems : head_elems;
    return bound_ppm > 0 && elems < packet_elems ? elems : packet_elems;
}

static inline void weft_ps_store_id(uint8_t *at, uint32_t id_bytes, uint32_t index, uint64_t id)
{
    /* Little-endian: the low half comes first. */
    memcpy(at + (size_t)index * id_bytes, &id, id_bytes);
}

#endif
