/* Requests with packed ids. Each chunk is filled as far as possible and packed independently, so
 * that it can be decoded alone. Also the rows of a chunk of any push, to process losses.
 *
 * Whether packing is shorter depends on the ids. So it is attempted in the memory of the plain
 * request, and abandoned as soon as it is not shorter.
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"

/* For the first chunk; less for the others. */
enum { CHUNK_OVERHEAD = WEFT_RPC_REQUEST_BYTES + WEFT_PS_PACKED_HEAD_BYTES };

/* A chunk being filled. */
struct filling {
    const struct ps_part *part;
    const struct weft_table_spec *spec; /* NULL for a PULL, which has no blocks */
    uint8_t *ids;
    size_t ids_bytes;
    size_t room; /* remaining bytes for ids and blocks */
    uint64_t before;
    uint32_t rows;
};

/* Copy the ids of rows from `first` on to out. */
static uint32_t ids_from(const struct ps_part *part, uint32_t first, uint64_t *out)
{
    uint32_t count = (uint32_t)weft_min_u64(WEFT_IDS_BLOCK, part->rows - first);
    const struct weft_ps_list *list = &part->list;
    if (part->order == NULL && list->ids != NULL) {
        memcpy(out, list->ids + first, count * sizeof(*out));
        return count;
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = ps_list_id(list, ps_part_row(part, first + i));
    }
    return count;
}

static size_t blocks_bytes(const struct filling *chunk, uint32_t rows)
{
    return chunk->spec == NULL ? 0 : weft_table_push_blocks_bytes(chunk->spec, rows);
}

/* Add a block of ids, with as many rows as fit; false: not all fitted. */
static bool block_add(struct filling *chunk, const uint64_t *ids, uint32_t count)
{
    uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX];
    bool all = true;
    while (count > 0) {
        uint32_t n;
        size_t bytes = weft_ids_pack_block(ids, count, chunk->before, block, &n);
        size_t needed =
            bytes + blocks_bytes(chunk, chunk->rows + n) - blocks_bytes(chunk, chunk->rows);
        if (needed <= chunk->room) {
            memcpy(chunk->ids + chunk->ids_bytes, block, bytes);
            chunk->ids_bytes += bytes;
            chunk->room -= needed;
            chunk->before = ids[n - 1];
            chunk->rows += n;
            return all;
        }
        all = false;
        count = (uint32_t)weft_min_u64(n * chunk->room / needed, n - 1);
    }
    return false;
}

/* Fill a chunk with rows from `first` on; returns their number. */
static uint32_t chunk_fill(struct filling *chunk, uint32_t first, uint32_t rows_max)
{
    uint64_t ids[WEFT_IDS_BLOCK];
    uint32_t left = chunk->part->rows - first;
    left = left < rows_max ? left : rows_max;
    while (chunk->rows < left) {
        uint32_t count = ids_from(chunk->part, first + chunk->rows, ids);
        uint32_t rest = left - chunk->rows;
        if (!block_add(chunk, ids, count < rest ? count : rest)) {
            break;
        }
    }
    return chunk->rows;
}

/* Returns the bytes of the whole request; 0: not shorter than bytes_max. */
static uint32_t lay_out(struct weft_ps_client *client, struct ps_part *part, uint32_t chunk_bytes,
                        uint32_t bytes_max)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    const bool is_push = part->kind == WEFT_RPC_PUSH;
    const size_t block_bytes = is_push ? weft_table_push_block_bytes(spec) : 0;
    uint32_t end = 0, most = 0, skip = WEFT_RPC_REQUEST_BYTES;
    for (uint32_t first = 0, begin = 0, n; first < part->rows; first += n, begin += chunk_bytes) {
        uint32_t overhead = skip + WEFT_PS_PACKED_HEAD_BYTES;
        uint8_t *at = part->request + begin + overhead;
        if (begin + overhead >= bytes_max) {
            return 0;
        }
        struct filling chunk = {.part = part, .spec = is_push ? spec : NULL, .ids = at};
        chunk.room = weft_min_u64(chunk_bytes, bytes_max - begin) - overhead;
        n = chunk_fill(&chunk, first, is_push ? weft_ps_chunk_rows_max(spec) : UINT16_MAX);
        const size_t plain = n * (part->list.id_bytes + block_bytes);
        const size_t bytes = chunk.ids_bytes + blocks_bytes(&chunk, n);
        if (n == 0 || (first + n < part->rows && plain < chunk_bytes - skip)) {
            return 0;
        }
        weft_ps_packed_head(at - WEFT_PS_PACKED_HEAD_BYTES, first, n, chunk.ids_bytes);
        if (is_push) {
            weft_ps_rows_blocks(part, spec, first, n, at + chunk.ids_bytes);
        }
        memset(at + bytes, 0, chunk.room);
        end = begin + overhead + (uint32_t)bytes;
        most = n > most ? n : most;
        skip = 0;
    }
    part->chunk_rows = (uint16_t)most;
    return end;
}

/* A push loses whole chunks, so with few chunks its bound would allow a loss only in some messages.
 * It has as many chunks as with plain ids, but no more than 2 / bound. */
uint32_t weft_ps_chunks_wanted(const struct ps_part *part, uint32_t plain_bytes)
{
    if (part->kind != WEFT_RPC_PUSH || part->bound_ppm == 0) {
        return 1;
    }
    uint64_t enough = weft_div_ceil_u64(2 * WEFT_PPM, part->bound_ppm);
    return (uint32_t)weft_min_u64(enough,
                                  weft_div_ceil_u64(plain_bytes, WEFT_PS_BOUND_CHUNK_BYTES));
}

/* As lay_out, with at least this many chunks; *chunk_bytes_p may be reduced. */
static uint32_t lay_out_in(struct weft_ps_client *client, struct ps_part *part, uint32_t chunks,
                           uint32_t *chunk_bytes_p, uint32_t bytes_max)
{
    uint32_t bytes = lay_out(client, part, *chunk_bytes_p, bytes_max);
    if (bytes == 0 || weft_div_ceil_u64(bytes, *chunk_bytes_p) >= chunks) {
        return bytes;
    }
    /* More chunk heads make the request longer, so it has at least this many chunks. */
    *chunk_bytes_p = bytes / chunks;
    return *chunk_bytes_p > CHUNK_OVERHEAD ? lay_out(client, part, *chunk_bytes_p, bytes_max) : 0;
}

bool weft_ps_pack(struct weft_ps_client *client, struct ps_part *part, uint32_t bytes_max)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    const struct ps_shard_end *end = &client->ends[part->shard];
    const bool is_push = part->kind == WEFT_RPC_PUSH;
    if ((link->can & WEFT_RPC_CAN_PACK) == 0 || part->rows == 0 || end->down || end->away ||
        (is_push && (weft_table_blocks(spec) > 1 || !weft_ps_rows_whole(part, spec)))) {
        return false;
    }
    uint32_t packet_elems = weft_ps_packet_elems(client, part->shard, WEFT_RPC_ID_PACKED);
    uint32_t chunk_bytes = weft_ps_chunk_elems(
        packet_elems, WEFT_RPC_ID_PACKED, WEFT_RPC_REQUEST_BYTES, is_push ? part->bound_ppm : 0);
    chunk_bytes = (uint32_t)weft_min_u64(chunk_bytes, WEFT_PS_PACKED_CHUNK_BYTES);
    if (chunk_bytes <= CHUNK_OVERHEAD) {
        return false;
    }
    uint32_t bytes =
        lay_out_in(client, part, weft_ps_chunks_wanted(part, bytes_max), &chunk_bytes, bytes_max);
    if (bytes == 0) {
        return false;
    }
    client->counters.packed++;
    memset(part->request, 0, WEFT_RPC_REQUEST_BYTES);
    part->plain_id_bytes = part->list.id_bytes;
    part->list.id_bytes = WEFT_RPC_ID_PACKED;
    part->request_elems = bytes;
    part->request_elem_bytes = WEFT_RPC_ID_PACKED;
    part->request_chunk_elems = (uint16_t)chunk_bytes;
    for (uint32_t k = 0; is_push && k < ps_part_chunks(part); k++) {
        weft_ps_residual_add(client, part, k);
    }
    return true;
}

void weft_ps_unpack(struct weft_ps_client *client, struct ps_part *part)
{
    if (part->kind != WEFT_RPC_PULL || part->list.id_bytes != WEFT_RPC_ID_PACKED) {
        return;
    }
    for (uint32_t k = 0; k < ps_part_chunks(part); k++) {
        const uint32_t begin = k * part->request_chunk_elems;
        const uint8_t *bytes = part->request + begin;
        struct weft_ps_chunk_rows rows;
        bool good = weft_ps_packed_rows(
                        bytes, weft_min_u64(part->request_chunk_elems, part->request_elems - begin),
                        k == 0 ? WEFT_RPC_REQUEST_BYTES : 0, NULL, &rows) &&
                    weft_ids_unpack(bytes + rows.ids_offset, rows.blocks_offset - rows.ids_offset,
                                    rows.count, client->unpacked + rows.first);
        WEFT_ASSERT(good); /* made here */
    }
    const uint32_t id_bytes = part->plain_id_bytes;
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, id_bytes);
    memset(part->request, 0, (size_t)head_elems * id_bytes);
    for (uint32_t r = 0; r < part->rows; r++) {
        weft_ps_store_id(part->request + (size_t)head_elems * id_bytes, id_bytes, r,
                         client->unpacked[r]);
    }
    part->list.id_bytes = (uint8_t)id_bytes;
    part->request_elems = head_elems + part->rows;
    part->request_elem_bytes = (uint16_t)id_bytes;
    part->request_chunk_elems = 0;
}

struct ps_chunk weft_ps_chunk_of(struct weft_ps_client *client, const struct ps_part *part,
                                 uint32_t index, bool with_ids)
{
    const uint32_t elem_bytes = part->request_elem_bytes, chunk_elems = part->request_chunk_elems;
    const uint32_t begin = index * chunk_elems;
    const uint32_t elems = (uint32_t)weft_min_u64(chunk_elems, part->request_elems - begin);
    struct ps_chunk chunk = {.bytes = part->request + (size_t)begin * elem_bytes,
                             .id_bytes = part->list.id_bytes};
    if (part->list.id_bytes != WEFT_RPC_ID_PACKED) {
        chunk.rows = weft_ps_chunk_rows((uint16_t)elem_bytes, part->list.id_bytes, chunk_elems,
                                        weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes),
                                        index, elems);
        return chunk;
    }
    const struct weft_table_spec *spec =
        part->kind == WEFT_RPC_PUSH ? &client->tables[part->table].spec : NULL;
    bool good = weft_ps_packed_rows(chunk.bytes, elems, index == 0 ? WEFT_RPC_REQUEST_BYTES : 0,
                                    spec, &chunk.rows);
    if (with_ids && part->listed) {
        chunk.ids = client->unpacked;
        weft_ps_listed_ids(part, index, &chunk.rows, client->unpacked);
    } else if (with_ids) {
        chunk.ids = client->unpacked;
        good = good && weft_ids_unpack(chunk.bytes + chunk.rows.ids_offset,
                                       chunk.rows.blocks_offset - chunk.rows.ids_offset,
                                       chunk.rows.count, client->unpacked);
    }
    WEFT_ASSERT(good); /* made here */
    return chunk;
}
