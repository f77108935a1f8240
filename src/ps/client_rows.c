/* Copies between the caller's rows and messages: a push gathers rows, a pull's answer is scattered
 * to them.
 *
 * If a part is its whole list in order - one shard, nothing missed before - both are plain memory
 * copies. Otherwise rows are copied one by one; for common row lengths the length of the copy is a
 * compile-time constant.
 */
#include "ps/client_internal.h"

#include "base/bits.h"
#include "ps/values.h"

/* True: all rows of the part are complete blocks, adjacent in the caller's memory. */
static bool rows_plain(const struct ps_part *part, const struct weft_table_spec *spec)
{
    return part->order == NULL && (uint64_t)part->rows * spec->dim <= part->list.floats &&
           weft_table_blocks(spec) * weft_table_block_floats(spec) == spec->dim;
}

bool weft_ps_rows_whole(const struct ps_part *part, const struct weft_table_spec *spec)
{
    return weft_table_blocks(spec) == 1 && part->list.floats >= (uint64_t)part->list.n * spec->dim;
}

static inline void copy_row(void *out, const void *from, uint32_t dim)
{
    if (dim == 1) {
        memcpy(out, from, sizeof(float));
    } else if (dim == 16) {
        memcpy(out, from, 16 * sizeof(float));
    } else {
        memcpy(out, from, dim * sizeof(float));
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

static void ids_narrow(uint8_t *out, const uint64_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)ids[i];
        memcpy(out + (size_t)i * sizeof(id), &id, sizeof(id));
    }
}

/* Write the ids of rows first .. first + count - 1 of the part. */
static void ids_put(const struct ps_part *part, uint32_t first, uint32_t count, uint8_t *out)
{
    const struct weft_ps_list *list = &part->list;
    if (part->order == NULL && list->ids != NULL && list->id_bytes == WEFT_RPC_ID_NARROW) {
        ids_narrow(out, list->ids + first, count);
    } else if (part->order == NULL && list->ids != NULL) {
        memcpy(out, list->ids + first, (size_t)count * sizeof(*list->ids));
    } else {
        for (uint32_t i = 0; i < count; i++) {
            weft_ps_store_id(out, list->id_bytes, i,
                             ps_list_id(list, ps_part_row(part, first + i)));
        }
    }
}

/* Any layout: several blocks per row, a vector that ends within a row. residual.c writes values
 * that are not float32, because it adds residuals to them. */
static void gather_any(const struct ps_part *part, const struct weft_table_spec *spec,
                       uint8_t *chunk, struct weft_ps_chunk_rows place)
{
    const struct weft_ps_list *list = &part->list;
    uint32_t blocks = weft_table_blocks(spec);
    const bool plain = spec->push_values == WEFT_VALUE_FLOAT32;
    size_t block_bytes = weft_table_push_block_bytes(spec);
    uint32_t r = place.first / blocks, block = place.first % blocks;
    for (uint32_t i = 0; i < place.count; i++) {
        uint32_t row = ps_part_row(part, r);
        uint8_t *out = chunk + place.blocks_offset + i * block_bytes;
        size_t at, used_bytes = (size_t)ps_list_used(list, spec, row, block, &at) * 4;
        weft_ps_store_id(chunk + place.ids_offset, list->id_bytes, i, ps_list_id(list, row));
        if (plain) {
            memcpy(out, list->values + at, used_bytes);
            memset(out + used_bytes, 0, block_bytes - used_bytes);
        }
        block = block + 1 == blocks ? 0 : block + 1;
        r += block == 0;
    }
}

void weft_ps_rows_gather(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint8_t *chunk, struct weft_ps_chunk_rows place)
{
    if (!weft_ps_rows_whole(part, spec)) {
        gather_any(part, spec, chunk, place);
        return;
    }
    ids_put(part, place.first, place.count, chunk + place.ids_offset);
    weft_ps_rows_blocks(part, spec, place.first, place.count, chunk + place.blocks_offset);
}

void weft_ps_rows_blocks(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint32_t first, uint32_t count, uint8_t *out)
{
    const struct weft_ps_list *list = &part->list;
    size_t row_bytes = (size_t)spec->dim * sizeof(float);
    if (spec->push_values != WEFT_VALUE_FLOAT32) {
        return; /* residual.c writes them */
    }
    if (part->order == NULL) {
        memcpy(out, list->values + (size_t)first * spec->dim, count * row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t row = part->order[first + i];
        copy_row(out + i * row_bytes, list->values + row * spec->dim, spec->dim);
    }
}

void weft_ps_rows_ids(const struct ps_part *part, uint8_t *out)
{
    ids_put(part, 0, part->rows, out);
}

/* ---- in -------------------------------------------------------------------------------------- */

void weft_ps_missed_note(struct weft_ps_client *client, struct ps_table *table, uint64_t id)
{
    uint32_t before = table->missed.count;
    if (!weft_ps_missed_add(&table->missed, id)) {
        client->counters.missed_ids_dropped++;
    }
    client->counters.missed_ids += table->missed.count - before;
}

/* Row r of the part arrived. Only the first rows of the part were missed when it was requested; a
 * row that another answer has missed since is requested first once more, which is harmless. */
static void missed_remove(struct weft_ps_client *client, struct ps_table *table,
                          const struct ps_part *part, uint32_t r)
{
    if (r < part->rows_first) {
        client->counters.missed_ids -= table->missed.count;
        weft_ps_missed_remove(&table->missed, ps_list_id(&part->list, ps_part_row(part, r)));
        client->counters.missed_ids += table->missed.count;
    }
}

/* Any layout, row by row, block by block. */
static void scatter_any(struct weft_ps_client *client, const struct ps_part *part,
                        const struct weft_msg_event *event)
{
    struct ps_table *table = &client->tables[part->table];
    const struct weft_ps_list *list = &part->list;
    uint32_t blocks = weft_table_blocks(&table->spec);
    uint32_t elem_bytes = event->elem_bytes;
    uint32_t element = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes);
    uint32_t chunk = element / event->chunk_elems, in_chunk = element % event->chunk_elems;
    for (uint32_t r = 0; r < part->rows; r++) {
        uint32_t row = ps_part_row(part, r);
        bool came = true;
        for (uint32_t b = 0; b < blocks; b++, element++, in_chunk++) {
            if (in_chunk == event->chunk_elems) {
                in_chunk = 0;
                chunk++;
            }
            if (!weft_bits_test(event->mask, chunk)) {
                weft_ps_last_fill(client, part, r, b);
                came = false;
                continue;
            }
            size_t at, used = ps_list_used(list, &table->spec, row, b, &at);
            weft_values_load(table->spec.pull_values, part->reply + (size_t)element * elem_bytes,
                             used, list->out + at);
            if (table->last.rows_max > 0) {
                weft_ps_last_put(client, table, ps_list_id(list, row),
                                 b * weft_table_block_floats(&table->spec), list->out + at,
                                 (uint32_t)used);
            }
        }
        if (came) {
            missed_remove(client, table, part, r);
        } else {
            weft_ps_row_missed(client, part, r);
            weft_ps_missed_note(client, table, ps_list_id(list, row));
        }
    }
}

/* Copy rows r .. end - 1 of the part, of `dim` values each, to the caller's memory. */
static void rows_load(const struct ps_part *part, uint8_t type, uint32_t dim, const uint8_t *rows,
                      uint32_t r, uint32_t end)
{
    const size_t row_bytes = weft_blocks_bytes(type, dim, 1);
    if (part->order == NULL) {
        weft_values_load(type, rows + r * row_bytes, (size_t)(end - r) * dim,
                         part->list.out + (size_t)r * dim);
        return;
    }
    for (uint32_t i = r; i < end; i++) {
        float *out = part->list.out + (size_t)part->order[i] * dim;
        if (type == WEFT_VALUE_FLOAT32) {
            copy_row(out, rows + i * row_bytes, dim);
        } else {
            weft_values_load(type, rows + i * row_bytes, dim, out);
        }
    }
}

/* Whole rows r .. end - 1 of the part arrived. */
static void rows_came(struct weft_ps_client *client, const struct ps_part *part,
                      const uint8_t *rows, uint32_t r, uint32_t end)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t dim = table->spec.dim;
    rows_load(part, table->spec.pull_values, dim, rows, r, end);
    for (uint32_t i = r; table->last.rows_max > 0 && i < end; i++) {
        uint32_t row = ps_part_row(part, i);
        weft_ps_last_put(client, table, ps_list_id(&part->list, row), 0,
                         part->list.out + (size_t)row * dim, dim);
    }
    for (uint32_t i = r; i < end && i < part->rows_first; i++) {
        missed_remove(client, table, part, i);
    }
}

/* The row of an element, if each element after the head is a row; at most `rows`. */
static uint32_t row_of(size_t element, uint32_t head, uint32_t rows)
{
    return element > head ? (uint32_t)weft_min_u64(element - head, rows) : 0;
}

/* A row is an element: everything between two missing chunks is copied at once. */
static void scatter_whole(struct weft_ps_client *client, const struct ps_part *part,
                          const struct weft_msg_event *event, const uint8_t *rows)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t head = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, event->elem_bytes);
    uint32_t r = 0;
    for (size_t chunk = weft_bits_next_zero(event->mask, event->chunks, 0); chunk < event->chunks;
         chunk = weft_bits_next_zero(event->mask, event->chunks, chunk + 1)) {
        uint32_t begin = row_of(chunk * event->chunk_elems, head, part->rows);
        uint32_t end = row_of((chunk + 1) * event->chunk_elems, head, part->rows);
        rows_came(client, part, rows, r, begin);
        for (r = begin; r < end; r++) {
            weft_ps_row_missed(client, part, r);
            weft_ps_last_fill(client, part, r, 0);
            weft_ps_missed_note(client, table, ps_list_id(&part->list, ps_part_row(part, r)));
        }
    }
    rows_came(client, part, rows, r, part->rows);
}

void weft_ps_rows_scatter(struct weft_ps_client *client, const struct ps_part *part,
                          const struct weft_msg_event *event)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    weft_ps_missed_begin(&client->tables[part->table].missed);
    const uint8_t *rows =
        part->reply +
        (size_t)weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, event->elem_bytes) * event->elem_bytes;
    if (weft_ps_rows_whole(part, spec)) {
        scatter_whole(client, part, event, rows);
    } else if (event->received == event->chunks && rows_plain(part, spec)) {
        rows_came(client, part, rows, 0, part->rows);
    } else {
        scatter_any(client, part, event);
    }
}
