/* The layout of the rows of a PUSH in its message. Both ends use this description:
 *
 *     chunk 0   | head, padded to head_elems elements | n ids | n blocks |
 *     others    | n ids | n blocks |
 *
 * with n = elements of the chunk, less head_elems in chunk 0. A block is min(dim, 256) floats. An
 * id is a u64, or a u32 if all ids of the message fit; the element size determines which. A float
 * is of the table's type (ps/values.h), and each block is encoded independently.
 *
 * With packed ids (ps/id_pack.h) an element is a byte, and each chunk contains its number of rows:
 *
 *     | head, in chunk 0 | first u32 | n u16 | bytes u16 | ids, so many bytes | n blocks | zeros |
 *
 * with first = index of the chunk's first row in the message. A PULL has no blocks. The blocks are
 * encoded together: with int8, short rows share a scale.
 *
 * A chunk of a PUSH may name a list of ids stored by the shard instead of the ids; its rows are
 * first .. first + n - 1 of the list:
 *
 *     | head, in chunk 0 | first u32 | n u16 | 0xffff u16 | list u32 | n blocks | zeros |
 *
 * Payload is little-endian, as is the host (asserted below).
 *
 * Source: docs/PROTOCOL.md section 7.
 */
#ifndef WEFT_PS_LAYOUT_H
#define WEFT_PS_LAYOUT_H

#include "rpc/head.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payload would need swapping");

/* The rows of one chunk, as offsets from its beginning. */
struct weft_ps_chunk_rows {
    uint32_t first; /* element of the message, counted from the end of the head */
    uint32_t count;
    size_t ids_offset;    /* count x id_bytes bytes */
    size_t blocks_offset; /* count x (elem_bytes - id_bytes) bytes; with packed ids, count blocks */
    uint32_t list;        /* the list that has the ids; 0 = they are in the chunk */
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

/* Bytes of the head of a chunk with packed ids, and of a chunk that names a list. */
enum { WEFT_PS_PACKED_HEAD_BYTES = 8, WEFT_PS_LISTED_HEAD_BYTES = 12 };

/* In place of the length of the ids; no chunk is that long. */
enum { WEFT_PS_LISTED = UINT16_MAX };

/* Most rows, and values in blocks, in a chunk of a PUSH of any layout, and its bytes with packed
 * ids. A packet with values of 4 bytes never has more: this many rows of 8 bytes, or values, fill a
 * TCP record. */
enum {
    WEFT_PS_CHUNK_ROWS_MAX = 8192,
    WEFT_PS_CHUNK_VALUES_MAX = 32768,
    WEFT_PS_PACKED_CHUNK_BYTES = 32768,
};

/* Are all blocks of a chunk encoded together? For types other than int8 the bytes are the same
 * either way. */
static inline bool ps_blocks_are_together(uint8_t type, uint32_t id_bytes)
{
    return type != WEFT_VALUE_INT8 || id_bytes == WEFT_RPC_ID_PACKED;
}

/* Most rows in a chunk of a PUSH of this table. With int8 the values must also fit the scratch
 * memory. */
static inline uint32_t weft_ps_chunk_rows_max(const struct weft_table_spec *spec)
{
    uint32_t most = WEFT_PS_CHUNK_VALUES_MAX / weft_table_block_floats(spec);
    return spec->push_values == WEFT_VALUE_FLOAT32 || most > WEFT_PS_CHUNK_ROWS_MAX
               ? WEFT_PS_CHUNK_ROWS_MAX
               : most;
}

/* The rows of one chunk with packed ids; the bytes are untrusted. A chunk may consist of the head
 * only. spec is NULL for a PULL, which has no blocks. False: inconsistent. The ids are not
 * checked. */
static inline bool weft_ps_packed_rows(const uint8_t *chunk, size_t bytes, uint32_t head_bytes,
                                       const struct weft_table_spec *spec,
                                       struct weft_ps_chunk_rows *rows_p)
{
    uint32_t first = 0, list = 0;
    uint16_t count = 0, ids_bytes = 0;
    size_t at = head_bytes;
    if (bytes != head_bytes || head_bytes == 0) {
        if (bytes < at + WEFT_PS_PACKED_HEAD_BYTES) {
            return false;
        }
        memcpy(&first, chunk + at, sizeof(first));
        memcpy(&count, chunk + at + 4, sizeof(count));
        memcpy(&ids_bytes, chunk + at + 6, sizeof(ids_bytes));
        at += WEFT_PS_PACKED_HEAD_BYTES;
    }
    if (ids_bytes == WEFT_PS_LISTED) {
        if (bytes < at + sizeof(list) || count == 0) {
            return false;
        }
        memcpy(&list, chunk + at, sizeof(list));
        at += sizeof(list);
        ids_bytes = 0;
        if (list == 0) {
            return false;
        }
    }
    *rows_p = (struct weft_ps_chunk_rows){.first = first,
                                          .count = count,
                                          .ids_offset = at,
                                          .blocks_offset = at + ids_bytes,
                                          .list = list};
    return rows_p->blocks_offset + (spec == NULL ? 0 : weft_table_push_blocks_bytes(spec, count)) <=
           bytes;
}

static inline void weft_ps_packed_head(uint8_t *at, uint32_t first, uint32_t count,
                                       size_t ids_bytes)
{
    uint16_t n = (uint16_t)count, bytes = (uint16_t)ids_bytes;
    memcpy(at, &first, sizeof(first));
    memcpy(at + 4, &n, sizeof(n));
    memcpy(at + 6, &bytes, sizeof(bytes));
}

static inline void weft_ps_listed_head(uint8_t *at, uint32_t first, uint32_t count, uint32_t list)
{
    weft_ps_packed_head(at, first, count, WEFT_PS_LISTED);
    memcpy(at + WEFT_PS_PACKED_HEAD_BYTES, &list, sizeof(list));
}

/* Load count unaligned ids from a message. */
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

/* Chunk size of a message that may lose chunks, for any packet size, so that a lost chunk does not
 * contain thousands of rows. It fits a packet of 1,472 bytes. */
enum { WEFT_PS_BOUND_CHUNK_BYTES = 1408 };

/* Elements per chunk, for packets of packet_elems elements. */
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
