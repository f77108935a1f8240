/* Error feedback: the gradients that a push loses are kept, by id, and added to the next push of
 * that id. So are the rounding errors, if the table's values are not float32.
 *
 * A push is gathered into the client's memory. The kept residuals of its rows are added there, and
 * removed from the store. When the push is closed, the rows of chunks that did not arrive are kept,
 * including the residuals. So at any time: sum of pushed gradients = sum applied by the shards +
 * sum kept, except for what the counters report as dropped, and for pushes that failed or were
 * refused. (This is exact except for the rounding of the float32 additions: the remainder of
 * rounding to bf16 or int8 is a float32, see values.h.)
 *
 * Values are rounded once, when a push is built, in slices that fit the L1 cache. The lookups of
 * kept residuals are a separate stage, so that their cache misses overlap. A resent push has the
 * same bytes, and if they are lost, the values that these bytes encode are kept.
 *
 * Lost rows that were kept must not arrive later: they are set to zero in the request, in case it
 * is resent to a shard that restarted without it.
 *
 * Source: docs/PROTOCOL.md section 7, "Lost chunks"; docs/API.md.
 */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/values.h"

#include <string.h>

/* Default memory for rows of a table whose values are rounded. */
enum { FEEDBACK_BYTES = 16 << 20 };

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
    weft_row_store_init(&table->kept, memory, rows_max, table->spec.dim, client->config.missed_key);
    return WEFT_OK;
}

uint32_t weft_ps_client_kept(const struct weft_ps_client *client, uint16_t index, uint64_t *ids_p,
                             float *rows_p, uint32_t max)
{
    return index < client->config.tables_max
               ? weft_row_store_list(&client->tables[index].kept, ids_p, rows_p, max)
               : 0;
}

uint32_t weft_ps_feedback_rows(const struct weft_table_spec *spec)
{
    const uint64_t row_bytes =
        20 + spec->dim * sizeof(float); /* upper bound of weft_row_store_bytes per row */
    uint64_t rows = FEEDBACK_BYTES / row_bytes;
    if (spec->push_values == WEFT_VALUE_FLOAT32) {
        return 0;
    }
    if (spec->kind == WEFT_TABLE_DENSE) {
        rows = weft_min_u64(rows, weft_table_dense_rows(spec));
    }
    return (uint32_t)rows;
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

static bool all_finite(const float *values, uint32_t count)
{
    uint32_t not_finite = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        not_finite |= (bits & 0x7f800000) == 0x7f800000;
    }
    return not_finite == 0;
}

static bool all_zero(const float *row, uint32_t count)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < count; i++) {
        any |= row[i] != 0;
    }
    return any == 0;
}

/* The kept row of id, created with zeros; NULL: no room. */
static float *kept_row(struct weft_ps_client *client, struct ps_table *table, uint64_t id)
{
    float *row = weft_row_store_find(&table->kept, id);
    if (row == NULL && table->kept.rows_max > 0) {
        row = weft_row_store_add(&table->kept, id);
        if (row != NULL) {
            memset(row, 0, table->spec.dim * sizeof(*row));
            client->counters.feedback_rows_now++;
        }
    }
    return row;
}

/* No effect if it is not stored. */
static void kept_forget(struct weft_ps_client *client, struct ps_table *table, uint64_t id)
{
    client->counters.feedback_rows_now -= table->kept.count;
    weft_row_store_remove(&table->kept, id);
    client->counters.feedback_rows_now += table->kept.count;
}

/* ---- sending, rounded ------------------------------------------------------------------------ */

/* Rows in a slice of a chunk; with int8, whole groups. */
static uint32_t slice_rows(const struct weft_table_spec *spec)
{
    const uint32_t floats = weft_table_block_floats(spec), group = weft_int8_group_blocks(floats);
    return PS_SLICE_VALUES / floats / group * group;
}

/* Shape of elements. If it is a compile-time constant - one float, the rows of a linear model - a
 * stage needs half the instructions. */
struct ps_shape {
    const struct weft_table_spec *spec;
    uint32_t blocks, floats;
};

static inline uint32_t used_of(struct ps_shape shape, uint32_t block)
{
    return shape.blocks == 1 ? shape.floats : weft_table_block_used(shape.spec, block);
}

static inline uint32_t block_after(struct ps_shape shape, uint32_t block)
{
    return block + 1 == shape.blocks ? 0 : block + 1;
}

/* Copy the caller's values, still borrowed, of `count` elements from `first` on. Shape: (count,
 * block_floats), padded with zeros. */
static void slice_gather(struct ps_slice *slice, const struct ps_part *part, struct ps_shape shape,
                         uint32_t first, uint32_t count)
{
    const struct weft_ps_list *list = &part->list;
    uint32_t r = first / shape.blocks, block = first % shape.blocks;
    float *values = slice->values;
    for (uint32_t i = 0; i < count; i++, values += shape.floats) {
        const uint32_t row = ps_part_row(part, r);
        size_t from;
        const size_t given = ps_list_used(list, shape.spec, row, block, &from);
        slice->ids[i] = ps_list_id(list, row);
        memcpy(values, list->values + from, given * sizeof(*values));
        memset(values + given, 0, (shape.floats - given) * sizeof(*values));
        block = block_after(shape, block);
        r += block == 0;
    }
}

/* The same if all rows are complete blocks. */
static inline void slice_gather_whole(struct ps_slice *slice, const struct ps_part *part,
                                      struct ps_shape shape, uint32_t first, uint32_t count)
{
    const struct weft_ps_list *list = &part->list;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t row = ps_part_row(part, first + i);
        slice->ids[i] = ps_list_id(list, row);
        memcpy(slice->values + (size_t)i * shape.floats, list->values + (size_t)row * shape.floats,
               shape.floats * sizeof(*slice->values));
    }
}

/* values += kept, and kept = 0, if all sums are finite. Otherwise nothing changes: the chunk may be
 * refused, and kept residuals must not be lost with it. Returns whether they were added. */
static inline bool add_kept(float *restrict values, float *restrict kept, uint32_t count)
{
    uint32_t not_finite = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float sum = values[i] + kept[i];
        not_finite |= !(sum - sum == 0);
    }
    if (not_finite != 0) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        values[i] += kept[i];
        kept[i] = 0;
    }
    return true;
}

/* Add the kept residuals of the slice's elements. */
static inline void slice_add(struct weft_ps_client *client, struct ps_shape shape, uint32_t first,
                             uint32_t count)
{
    struct ps_slice *slice = client->slice;
    uint32_t block = first % shape.blocks;
    uint64_t added = 0;
    for (uint32_t i = 0; i < count; i++) {
        float *row = slice->kept[i];
        added += row != NULL && add_kept(slice->values + (size_t)i * shape.floats,
                                         row + (size_t)block * shape.floats, used_of(shape, block));
        block = block_after(shape, block);
    }
    client->counters.feedback_added += added;
}

/* Encode the slice, and store the rounding errors in `values`; 0 for values that are not finite. */
static void slice_encode(struct ps_slice *slice, const struct weft_table_spec *spec, bool together,
                         uint32_t count, uint8_t *out)
{
    const uint32_t floats = weft_table_block_floats(spec), at_once = together ? count : 1;
    const size_t bytes = weft_blocks_bytes(spec->push_values, floats, at_once);
    for (uint32_t i = 0; i < count; i += at_once, out += bytes) {
        const size_t at = (size_t)i * floats;
        weft_blocks_store(spec->push_values, floats, slice->values + at, at_once, out);
        bool good = weft_blocks_load(spec->push_values, floats, out, at_once, slice->sent + at);
        WEFT_ASSERT(good); /* made here */
    }
    for (uint32_t i = 0; i < count * floats; i++) {
        const float rest = slice->values[i] - slice->sent[i];
        slice->values[i] = rest - rest == 0 ? rest : 0;
    }
}

/* Keep the rounding errors. Rows are added first and removed last: in between they do not move, and
 * an id may occur twice in the slice. */
static inline void slice_keep(struct weft_ps_client *client, struct ps_table *table,
                              struct ps_shape shape, uint32_t first, uint32_t count)
{
    struct ps_slice *slice = client->slice;
    uint32_t block = first % shape.blocks, to_forget = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float *rest = slice->values + (size_t)i * shape.floats;
        const uint32_t used = used_of(shape, block);
        float *row = slice->kept[i];
        if (!all_zero(rest, used)) {
            row = row != NULL ? row : kept_row(client, table, slice->ids[i]);
            client->counters.residual_dropped += row == NULL;
            if (row != NULL) {
                add_floats(row + (size_t)block * shape.floats, rest, used);
            }
        } else if (row != NULL && block + 1 == shape.blocks) {
            slice->ids[to_forget] = slice->ids[i];
            slice->kept[to_forget++] = row;
        }
        block = block_after(shape, block);
    }
    for (uint32_t i = 0; i < to_forget; i++) {
        if (all_zero(slice->kept[i], shape.spec->dim)) {
            kept_forget(client, table, slice->ids[i]);
        }
    }
}

/* Encode one slice: add the kept residuals, round, keep the rounding errors. */
static inline void slice_store(struct weft_ps_client *client, const struct ps_part *part,
                               struct ps_shape shape, bool together, uint32_t first, uint32_t count,
                               uint8_t *out)
{
    struct ps_table *table = &client->tables[part->table];
    if (weft_ps_rows_whole(part, shape.spec)) {
        slice_gather_whole(client->slice, part, shape, first, count);
    } else {
        slice_gather(client->slice, part, shape, first, count);
    }
    weft_row_store_find_all(&table->kept, client->slice->ids, count, client->slice->kept);
    slice_add(client, shape, first, count);
    slice_encode(client->slice, shape.spec, together, count, out);
    slice_keep(client, table, shape, first, count);
}

/* A chunk whose values are rounded. */
static void store_chunk(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    const struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, false);
    const bool together = ps_blocks_are_together(spec->push_values, chunk.id_bytes);
    const uint32_t blocks = weft_table_blocks(spec), floats = weft_table_block_floats(spec);
    uint8_t *out = chunk.bytes + chunk.rows.blocks_offset;
    for (uint32_t at = 0, n; at < chunk.rows.count; at += n) {
        const uint32_t first = chunk.rows.first + at;
        n = (uint32_t)weft_min_u64(slice_rows(spec), chunk.rows.count - at);
        if (spec->dim == 1) {
            slice_store(client, part, (struct ps_shape){spec, 1, 1}, together, first, n, out);
        } else {
            slice_store(client, part, (struct ps_shape){spec, blocks, floats}, together, first, n,
                        out);
        }
        out += together ? weft_blocks_bytes(spec->push_values, floats, n)
                        : (size_t)n * weft_table_push_block_bytes(spec);
    }
}

/* ---- sending, float32 ------------------------------------------------------------------------ */

static void add_chunk(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    struct ps_table *table = &client->tables[part->table];
    const uint32_t blocks = weft_table_blocks(&table->spec);
    const uint32_t floats = weft_table_block_floats(&table->spec);
    struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, true);
    uint8_t *values = chunk.bytes + chunk.rows.blocks_offset;
    for (uint32_t i = 0; table->kept.count > 0 && i < chunk.rows.count; i++) {
        const uint64_t id = ps_chunk_id(&chunk, i);
        const float *row = weft_row_store_find(&table->kept, id);
        const uint32_t block = (chunk.rows.first + i) % blocks;
        if (row == NULL) {
            continue;
        }
        add_floats(values + (size_t)i * floats * sizeof(float), row + (size_t)block * floats,
                   weft_table_block_used(&table->spec, block));
        client->counters.feedback_added++;
        if (block + 1 == blocks) { /* all blocks of a row are in the same push, in order */
            kept_forget(client, table, id);
        }
    }
}

void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    const struct ps_table *table = &client->tables[part->table];
    if (table->spec.push_values != WEFT_VALUE_FLOAT32) {
        store_chunk(client, part, index);
    } else if (table->kept.count > 0) {
        add_chunk(client, part, index);
    }
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Decode element i of a chunk of the message. Shape: out (block_floats,). */
static void element_load(const struct weft_table_spec *spec, const struct ps_chunk *chunk,
                         uint32_t i, float *out)
{
    const uint8_t type = spec->push_values;
    const uint32_t floats = weft_table_block_floats(spec);
    const uint8_t *from = chunk->bytes + chunk->rows.blocks_offset;
    uint8_t alone[WEFT_RPC_BLOCK_FLOATS * sizeof(float)];
    if (ps_blocks_are_together(type, chunk->id_bytes)) {
        weft_blocks_take(type, floats, from, i, alone);
        from = alone;
    } else {
        from += (size_t)i * weft_table_push_block_bytes(spec);
    }
    bool good = weft_blocks_load(type, floats, from, 1, out);
    WEFT_ASSERT(good); /* made here */
}

/* A value that is not finite would spoil the next push, too. */
static void keep(struct weft_ps_client *client, struct ps_table *table,
                 const struct ps_chunk *chunk, uint32_t i)
{
    const struct weft_table_spec *spec = &table->spec;
    const uint32_t block = (chunk->rows.first + i) % weft_table_blocks(spec);
    const uint32_t used = weft_table_block_used(spec, block);
    float values[WEFT_RPC_BLOCK_FLOATS];
    element_load(spec, chunk, i, values);
    float *row = all_finite(values, used) ? kept_row(client, table, ps_chunk_id(chunk, i)) : NULL;
    if (row == NULL) {
        client->counters.feedback_dropped++;
        return;
    }
    add_floats(row + (size_t)block * weft_table_block_floats(spec), values, used);
    client->counters.feedback_stored++;
}

static void chunk_lost(struct weft_ps_client *client, const struct ps_part *part, uint32_t index,
                       bool known)
{
    struct ps_table *table = &client->tables[part->table];
    const struct weft_table_spec *spec = &table->spec;
    struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, table->kept.rows_max > 0);
    for (uint32_t i = 0; table->kept.rows_max > 0 && i < chunk.rows.count; i++) {
        if (known) {
            keep(client, table, &chunk, i);
        } else {
            client->counters.feedback_dropped++;
        }
    }
    const bool together = ps_blocks_are_together(spec->push_values, chunk.id_bytes);
    memset(chunk.bytes + chunk.rows.blocks_offset, 0,
           together ? weft_table_push_blocks_bytes(spec, chunk.rows.count)
                    : (size_t)chunk.rows.count * weft_table_push_block_bytes(spec));
}

void weft_ps_residual_keep_all(struct weft_ps_client *client, const struct ps_part *part)
{
    if (part->request_chunk_elems == 0) {
        return; /* the shard is down: nothing was gathered */
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
