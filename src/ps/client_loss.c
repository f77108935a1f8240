/* The rows of an operation that did not arrive whole: one bit per row, for the caller. */
#include "ps/client_internal.h"

#include "base/bits.h"

void weft_ps_row_missed(struct weft_ps_client *client, const struct ps_part *part, uint32_t r)
{
    struct ps_op *op = &client->ops[part->op];
    uint32_t row = part->list.at + ps_part_row(part, r);
    op->result.rows_missed += !weft_bits_test(op->missed, row);
    weft_bits_set(op->missed, row);
}

void weft_ps_part_missed(struct weft_ps_client *client, const struct ps_part *part)
{
    for (uint32_t r = 0; part->op != WEFT_PS_NONE && r < part->rows; r++) {
        weft_ps_row_missed(client, part, r);
    }
}

void weft_ps_pull_missed(struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->kind != WEFT_RPC_PULL || part->op == WEFT_PS_NONE) {
        return;
    }
    weft_ps_part_missed(client, part);
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec);
    for (uint32_t r = 0; part->list.fill && r < part->rows; r++) {
        for (uint32_t b = 0; b < blocks; b++) {
            weft_ps_last_fill(client, part, r, b);
        }
    }
}

void weft_ps_push_missed(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event)
{
    if (event->mask == NULL || event->refused == event->received) {
        weft_ps_part_missed(client, part);
        return;
    }
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec);
    for (size_t chunk = weft_bits_next_zero(event->mask, event->chunks, 0); chunk < event->chunks;
         chunk = weft_bits_next_zero(event->mask, event->chunks, chunk + 1)) {
        struct ps_chunk lost = weft_ps_chunk_of(client, part, (uint32_t)chunk, false);
        uint64_t end = (uint64_t)lost.rows.first + lost.rows.count;
        for (uint32_t r = lost.rows.first / blocks; r < weft_div_ceil_u64(end, blocks); r++) {
            weft_ps_row_missed(client, part, r);
        }
    }
}

const uint64_t *weft_ps_op_missed(const struct weft_ps_client *client, weft_ps_op index,
                                  uint32_t *rows_p)
{
    const struct ps_op *op = &client->ops[index];
    *rows_p = op->rows;
    return op->result.rows_missed > 0 ? op->missed : NULL;
}
