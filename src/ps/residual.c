/* Error feedback: what a push lost is kept, by id, and added to the next push of that id.
 *
 * A push is gathered into the client's memory, where what is kept of its rows is added to them and
 * forgotten; when it is closed, the rows of the chunks that did not arrive are kept, with what had
 * been added. So at any time: sum of what was pushed = sum of what the shards took + sum of what is
 * kept, but for what the counters say was dropped, and pushes that failed or were refused.
 *
 * What was lost must not arrive by another way: those rows are zeros in the request, should it be
 * sent again to a shard that came back without it.
 *
 * Source: docs/PROTOCOL.md section 7, "Lost"; docs/API.md.
 */
#include "ps/client_internal.h"

#include "base/bits.h"

#include <string.h>

weft_status weft_ps_client_feedback(struct weft_ps_client *client, uint16_t index, void *memory,
                                    uint32_t rows_max)
{
    if (index >= client->config.tables_max || client->tables[index].state == TABLE_CLOSED) {
        return WEFT_STATE;
    }
    if (rows_max == 0 || rows_max > WEFT_ROW_STORE_MAX) {
        return WEFT_INVALID;
    }
    struct ps_table *table = &client->tables[index];
    weft_row_store_init(&table->kept, memory, rows_max, table->spec.dim,
                        client->config.missed_key);
    return WEFT_OK;
}

uint32_t weft_ps_client_kept(const struct weft_ps_client *client, uint16_t index, uint64_t *ids_p,
                             float *rows_p, uint32_t max)
{
    return index < client->config.tables_max
               ? weft_row_store_list(&client->tables[index].kept, ids_p, rows_p, max)
               : 0;
}

/* An element of a chunk of a PUSH. */
struct element {
    uint64_t id;
    uint8_t *floats; /* unaligned */
    uint32_t block;  /* of its row */
    uint32_t used;   /* floats that are no padding */
};

static struct element element_at(const struct weft_table_spec *spec, const struct ps_chunk *chunk,
                                 uint32_t i)
{
    struct element e = {.id = ps_chunk_id(chunk, i),
                        .floats = chunk->bytes + chunk->rows.blocks_offset + i * chunk->block_bytes,
                        .block = (chunk->rows.first + i) % weft_table_blocks(spec)};
    e.used = weft_table_block_used(spec, e.block);
    return e;
}

/* to[i] += from[i]; both unaligned. */
static void add_floats(void *to, const void *from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        float sum, more;
        memcpy(&sum, (uint8_t *)to + i * sizeof(float), sizeof(sum));
        memcpy(&more, (const uint8_t *)from + i * sizeof(float), sizeof(more));
        sum += more;
        memcpy((uint8_t *)to + i * sizeof(float), &sum, sizeof(sum));
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t blocks = weft_table_blocks(&table->spec);
    if (table->kept.count == 0) {
        return;
    }
    struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, true);
    for (uint32_t i = 0; table->kept.count > 0 && i < chunk.rows.count; i++) {
        struct element e = element_at(&table->spec, &chunk, i);
        const float *row = weft_row_store_find(&table->kept, e.id);
        if (row == NULL) {
            continue;
        }
        add_floats(e.floats, row + (size_t)e.block * weft_table_block_floats(&table->spec), e.used);
        client->counters.feedback_added++;
        if (e.block + 1 == blocks) { /* all blocks of a row are in the same push, in their order */
            weft_row_store_remove(&table->kept, e.id);
            client->counters.feedback_rows_now--;
        }
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool all_finite(const struct element *e)
{
    uint32_t not_finite = 0;
    for (uint32_t i = 0; i < e->used; i++) {
        uint32_t bits;
        memcpy(&bits, e->floats + i * sizeof(float), sizeof(bits));
        not_finite |= (bits & 0x7f800000) == 0x7f800000;
    }
    return not_finite == 0;
}

/* What is not finite would spoil the next push, too. */
static void keep(struct weft_ps_client *client, struct ps_table *table, const struct element *e)
{
    float *row = weft_row_store_find(&table->kept, e->id);
    if (row == NULL && all_finite(e)) {
        row = weft_row_store_add(&table->kept, e->id);
        if (row != NULL) {
            memset(row, 0, table->spec.dim * sizeof(*row));
            client->counters.feedback_rows_now++;
        }
    }
    if (row == NULL || !all_finite(e)) {
        client->counters.feedback_dropped++;
        return;
    }
    add_floats(row + (size_t)e->block * weft_table_block_floats(&table->spec), e->floats, e->used);
    client->counters.feedback_kept++;
}

static void chunk_lost(struct weft_ps_client *client, const struct ps_part *part, uint32_t index,
                       bool known)
{
    struct ps_table *table = &client->tables[part->table];
    struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, table->kept.rows_max > 0);
    for (uint32_t i = 0; table->kept.rows_max > 0 && i < chunk.rows.count; i++) {
        struct element e = element_at(&table->spec, &chunk, i);
        if (known) {
            keep(client, table, &e);
        } else {
            client->counters.feedback_dropped++;
        }
    }
    memset(chunk.bytes + chunk.rows.blocks_offset, 0, chunk.rows.count * chunk.block_bytes);
}

void weft_ps_residual_keep_all(struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->request_chunk_elems == 0) {
        return; /* its shard is gone: nothing was gathered */
    }
    for (uint32_t k = 0; k < ps_part_chunks(part); k++) {
        chunk_lost(client, part, k, true);
    }
}

void weft_ps_residual_keep(struct weft_ps_client *client, const struct ps_part *part,
                           const struct weft_msg_event *event)
{
    bool known = event->outcome != WEFT_MSG_UNKNOWN;
    if (event->mask == NULL) {
        return;
    }
    for (size_t chunk = weft_bits_next_zero(event->mask, event->chunks, 0); chunk < event->chunks;
         chunk = weft_bits_next_zero(event->mask, event->chunks, chunk + 1)) {
        chunk_lost(client, part, (uint32_t)chunk, known);
    }
}
