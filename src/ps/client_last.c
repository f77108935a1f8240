/* The last received value of each row, for pulls whose output has no old values: a missed row is
 * set to it, or to the row's initial weights.
 *
 * Blocks of long rows are stored individually: a row of which only some blocks arrived has initial
 * weights in the others.
 */
#include "ps/client_internal.h"

#include <string.h>

weft_status weft_ps_client_remember(struct weft_ps_client *client, uint16_t index, void *memory,
                                    uint32_t rows_max)
{
    if (index >= client->config.tables_max || client->tables[index].state == TABLE_CLOSED) {
        return WEFT_STATE;
    }
    struct ps_table *table = &client->tables[index];
    if (rows_max == 0 || rows_max > WEFT_ROW_STORE_MAX) {
        return WEFT_INVALID;
    }
    weft_row_store_init(&table->last, memory, rows_max, table->spec.dim, client->config.missed_key);
    return WEFT_OK;
}

void weft_ps_last_put(struct weft_ps_client *client, struct ps_table *table, uint64_t id,
                      uint32_t offset, const void *floats, uint32_t count)
{
    struct weft_row_store *last = &table->last;
    float *row = weft_row_store_find(last, id);
    if (row == NULL) {
        client->counters.last_values_evicted += last->count == last->rows_max;
        row = weft_row_store_replace(last, id);
        if (count < last->dim) {
            weft_table_fill_initial(&table->spec, id, row);
        }
    }
    memcpy(row + offset, floats, count * sizeof(float));
}

/* Copy floats offset .. offset + count - 1 of a row to out. */
static void last_read(const struct ps_table *table, uint64_t id, uint32_t offset, float *out,
                      uint32_t count)
{
    const float *row = weft_row_store_find(&table->last, id);
    float initial[WEFT_RPC_DIM_MAX];
    if (row == NULL) {
        weft_table_fill_initial(&table->spec, id, initial);
        row = initial;
    }
    memcpy(out, row + offset, count * sizeof(float));
}

void weft_ps_last_fill(struct weft_ps_client *client, const struct ps_part *part, uint32_t r,
                       uint32_t block)
{
    const struct ps_table *table = &client->tables[part->table];
    if (!part->list.fill || !ps_op_lent(&client->ops[part->op])) {
        return;
    }
    uint32_t row = ps_part_row(part, r);
    size_t at, used = ps_list_used(&part->list, &table->spec, row, block, &at);
    last_read(table, ps_list_id(&part->list, row), block * weft_table_block_floats(&table->spec),
              part->list.out + at, (uint32_t)used);
}
