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

static struct element element_at(const struct ps_part *part, const struct weft_table_spec *spec,
                                 uint8_t *chunk, struct weft_ps_chunk_rows place, uint32_t i)
{
    size_t block_bytes = (size_t)weft_table_block_floats(spec) * sizeof(float);
    struct element e = {.floats = chunk + place.blocks_offset + i * block_bytes,
                        .block = (place.first + i) % weft_table_blocks(spec)};
    e.used = weft_table_block_used(spec, e.block);
    weft_ps_load_ids(chunk + place.ids_offset + (size_t)i * part->list.id_bytes,
                     part->list.id_bytes, 1, &e.id);
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

void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part, uint8_t *chunk,
                          struct weft_ps_chunk_rows place)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t blocks = weft_table_blocks(&table->spec);
    for (uint32_t i = 0; table->kept.count > 0 && i < place.count; i++) {
        struct element e = element_at(part, &table->spec, chunk, place, i);
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

static void chunk_lost(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event, uint32_t chunk, bool known)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t head = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
    uint64_t begin = (uint64_t)chunk * event->chunk_elems;
    uint32_t elems = (uint32_t)weft_min_u64(event->chunk_elems, event->total - begin);
    uint8_t *bytes = part->request + begin * event->elem_bytes;
    struct weft_ps_chunk_rows place = weft_ps_chunk_rows(
        event->elem_bytes, part->list.id_bytes, event->chunk_elems, head, chunk, elems);
    for (uint32_t i = 0; table->kept.rows_max > 0 && i < place.count; i++) {
        struct element e = element_at(part, &table->spec, bytes, place, i);
        if (known) {
            keep(client, table, &e);
        } else {
            client->counters.feedback_dropped++;
        }
    }
    memset(bytes + place.blocks_offset, 0,
           place.count * ((size_t)event->elem_bytes - part->list.id_bytes));
}

void weft_ps_residual_keep_all(struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->request_chunk_elems == 0) {
        return; /* its shard is gone: nothing was gathered */
    }
    const struct weft_msg_event grid = {.total = part->request_elems,
                                        .elem_bytes = part->request_elem_bytes,
                                        .chunk_elems = part->request_chunk_elems};
    for (uint32_t k = 0; (uint64_t)k * grid.chunk_elems < grid.total; k++) {
        chunk_lost(client, part, &grid, k, true);
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
        chunk_lost(client, part, event, (uint32_t)chunk, known);
    }
}
