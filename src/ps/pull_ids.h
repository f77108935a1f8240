/* Reassembly of the packed ids of a PULL from its chunks, which arrive in any order. Used by shards
 * and aggregators.
 *
 * Source: docs/PROTOCOL.md section 7, "Packed ids".
 */
#ifndef WEFT_PS_PULL_IDS_H
#define WEFT_PS_PULL_IDS_H

#include "core/msg.h"
#include "rpc/head.h"

struct weft_pull_ids {
    uint64_t *ids;  /* (rows_max,) */
    uint64_t *came; /* (rows_max,) bits: ids that have arrived; cleared when the message opens */
    uint32_t rows_max;
    uint32_t rows;     /* that have arrived */
    uint32_t rows_end; /* one past the last of them */
};

/* Add a chunk. Each chunk names its rows, and no row may be named twice. The chunk is untrusted
 * input.
 * Shape:   *first_p, *count_p: the rows of the chunk.
 * Errors:  WEFT_RPC_BAD_REQUEST, WEFT_RPC_TOO_LARGE: the chunk was not added. `ids` may have been
 *          written for rows that are not marked as arrived. */
enum weft_rpc_status weft_pull_ids_take(struct weft_pull_ids *pull,
                                        const struct weft_msg_event *event, uint32_t *first_p,
                                        uint32_t *count_p);

#endif
