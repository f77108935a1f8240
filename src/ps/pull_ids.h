/* The packed ids of a PULL, as its chunks come, in any order: for whoever answers it.
 *
 * Source: docs/PROTOCOL.md section 7, "Packed ids".
 */
#ifndef WEFT_PS_PULL_IDS_H
#define WEFT_PS_PULL_IDS_H

#include "core/msg.h"
#include "rpc/head.h"

struct weft_pull_ids {
    uint64_t *ids;  /* (rows_max,) */
    uint64_t *came; /* (rows_max,) bits: which of them are there; cleared when the message opens */
    uint32_t rows_max;
    uint32_t rows;     /* that are there */
    uint32_t rows_end; /* behind the last of them */
};

/* Take a chunk: each says which rows it has, and none may be said twice. What is in it is the network's.
 * Shape:   *first_p, *count_p: the rows that it had.
 * Errors:  WEFT_RPC_BAD_REQUEST, WEFT_RPC_TOO_LARGE: nothing of it was taken but, perhaps, ids of rows that
 *          are not counted as there. */
enum weft_rpc_status weft_pull_ids_take(struct weft_pull_ids *pull,
                                        const struct weft_msg_event *event, uint32_t *first_p,
                                        uint32_t *count_p);

#endif
