#include "ps/pull_ids.h"

#include "base/bits.h"
#include "ps/id_pack.h"
#include "ps/layout.h"

enum weft_rpc_status weft_pull_ids_take(struct weft_pull_ids *pull,
                                        const struct weft_msg_event *event, uint32_t *first_p,
                                        uint32_t *count_p)
{
    const uint8_t *data = event->data;
    uint32_t head =
        event->chunk == 0 ? weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes) : 0;
    struct weft_ps_chunk_rows rows;
    if (!weft_ps_packed_rows(data, event->elems, head, NULL, &rows) || rows.list != 0) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (rows.first > pull->rows_max || rows.count > pull->rows_max - rows.first) {
        return WEFT_RPC_TOO_LARGE;
    }
    uint32_t end = rows.first + rows.count;
    if (weft_bits_next_one(pull->came, end, rows.first) < end ||
        !weft_ids_unpack(data + rows.ids_offset, rows.blocks_offset - rows.ids_offset, rows.count,
                         pull->ids + rows.first)) {
        return WEFT_RPC_BAD_REQUEST;
    }
    for (uint32_t i = rows.first, n; i < end; i += n) {
        n = (uint32_t)weft_min_u64(64 - i % 64, end - i);
        pull->came[i / 64] |= (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << i % 64;
    }
    pull->rows += rows.count;
    pull->rows_end = end > pull->rows_end ? end : pull->rows_end;
    *first_p = rows.first;
    *count_p = rows.count;
    return WEFT_RPC_OK;
}
