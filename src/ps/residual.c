/* Error feedback: what a push lost is kept, by id, and added to the next push of that id; so is what
 * rounding took from it, where the table's values are not float32.
 *
 * A push is gathered into the client's memory, where what is kept of its rows is added to them and
 * forgotten; when it is closed, the rows of the chunks that did not arrive are kept, with what had
 * been added. So at any time: sum of what was pushed = sum of what the shards took + sum of what is
 * kept, but for what the counters say was dropped, and pushes that failed or were refused. (To the
 * last bit, but for the rounding of the float32 additions themselves: what rounding to bf16 leaves is a
 * float32, see values.h.)
 *
 * Values are rounded once, when a push is made. Whatever happens to it later, it is the same bytes that
 * are sent again, and what they say is what is kept when they are lost.
 *
 * What was lost must not arrive by another way: those rows are zeros in the request, should it be
 * sent again to a shard that came back without it.
 *
 * Source: docs/PROTOCOL.md section 7, "Lost"; docs/API.md.
 */
#include "ps/client_internal.h"

#include "base/bits.h"
#include "ps/values.h"

#include <string.h>

/* Memory for rows of a table whose values are rounded, unless the user says how many. */
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
        20 + spec->dim * sizeof(float); /* of weft_row_store_bytes, at most */
    uint64_t rows = FEEDBACK_BYTES / row_bytes;
    if (spec->push_values == WEFT_VALUE_FLOAT32) {
        return 0;
    }
    if (spec->kind == WEFT_TABLE_DENSE) {
        rows = weft_min_u64(rows, weft_table_dense_rows(spec));
    }
    return (uint32_t)rows;
}

/* An element of a chunk of a PUSH. */
struct element {
    uint64_t id;
    uint8_t *values; /* unaligned, as the message has them */
    uint32_t block;  /* of its row */
    uint32_t used;   /* of them that are no padding */
};

static struct element element_at(const struct weft_table_spec *spec, const struct ps_chunk *chunk,
                                 uint32_t i)
{
    struct element e = {.id = ps_chunk_id(chunk, i),
                        .values = chunk->bytes + chunk->rows.blocks_offset + i * chunk->block_bytes,
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

/* out = gradient + kept where that is finite, else the gradient alone; kept = what is then left of it.
 * Returns whether anything was added. */
static bool add_kept(float *out, float *kept, uint32_t count)
{
    float sums[WEFT_RPC_BLOCK_FLOATS];
    for (uint32_t i = 0; i < count; i++) {
        sums[i] = out[i] + kept[i];
    }
    if (!all_finite(sums, count)) {
        return false; /* its chunk may be refused: nothing that is kept goes with it */
    }
    memcpy(out, sums, count * sizeof(*sums));
    memset(kept, 0, count * sizeof(*kept));
    return true;
}

/* values -= what was stored of them. Returns whether anything is left. What is not finite leaves nothing. */
static bool take_remainder(float *values, uint8_t type, const uint8_t *stored, uint32_t count)
{
    float sent[WEFT_RPC_BLOCK_FLOATS];
    bool any = false;
    weft_values_load(type, stored, count, sent);
    for (uint32_t i = 0; i < count; i++) {
        float rest = values[i] - sent[i];
        rest = rest - rest == 0 ? rest : 0;
        values[i] = rest;
        any |= rest != 0;
    }
    return any;
}

static bool all_zero(const float *row, uint32_t count)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < count; i++) {
        any |= row[i] != 0;
    }
    return any == 0;
}

/* Its row, made of zeros if it is not there; NULL: no room. */
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

static void kept_forget(struct weft_ps_client *client, struct ps_table *table, uint64_t id)
{
    weft_row_store_remove(&table->kept, id);
    client->counters.feedback_rows_now--;
}

/* One block of a row, rounded into its message: with what is kept of it, which becomes what rounding
 * leaves. Shape: values (block_floats,), zeros behind `used`. */
static void store_block(struct weft_ps_client *client, struct ps_table *table,
                        const struct element *e, float *values)
{
    const struct weft_table_spec *spec = &table->spec;
    const uint32_t floats = weft_table_block_floats(spec);
    float *row = weft_row_store_find(&table->kept, e->id);
    float *kept = row == NULL ? NULL : row + (size_t)e->block * floats;
    client->counters.feedback_added += kept != NULL && add_kept(values, kept, e->used);
    weft_values_store(spec->push_values, values, floats, e->values);
    if (take_remainder(values, spec->push_values, e->values, e->used)) {
        row = row != NULL ? row : kept_row(client, table, e->id);
        client->counters.residual_dropped += row == NULL;
        if (row != NULL) {
            add_floats(row + (size_t)e->block * floats, values, e->used);
        }
    }
    if (row != NULL && e->block + 1 == weft_table_blocks(spec) && all_zero(row, spec->dim)) {
        kept_forget(client, table, e->id);
    }
}

/* A chunk whose values are rounded: from the caller's memory, which is still lent. */
static void store_chunk(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    struct ps_table *table = &client->tables[part->table];
    const struct weft_table_spec *spec = &table->spec;
    const struct ps_list *list = &part->list;
    const uint32_t blocks = weft_table_blocks(spec), floats = weft_table_block_floats(spec);
    struct ps_chunk chunk = weft_ps_chunk_of(client, part, index, false);
    uint8_t *at = chunk.bytes + chunk.rows.blocks_offset;
    for (uint32_t i = 0; i < chunk.rows.count; i++, at += chunk.block_bytes) {
        float values[WEFT_RPC_BLOCK_FLOATS];
        const uint32_t element = chunk.rows.first + i, row = ps_part_row(part, element / blocks);
        struct element e = {.id = ps_list_id(list, row), .values = at, .block = element % blocks};
        size_t from, given = ps_list_used(list, spec, row, e.block, &from);
        e.used = weft_table_block_used(spec, e.block);
        memcpy(values, list->values + from, given * sizeof(*values));
        memset(values + given, 0, (floats - given) * sizeof(*values));
        store_block(client, table, &e, values);
    }
}

void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part, uint32_t index)
{
    struct ps_table *table = &client->tables[part->table];
    uint32_t blocks = weft_table_blocks(&table->spec);
    if (table->spec.push_values != WEFT_VALUE_FLOAT32) {
        store_chunk(client, part, index);
        return;
    }
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
        add_floats(e.values, row + (size_t)e.block * weft_table_block_floats(&table->spec), e.used);
        client->counters.feedback_added++;
        if (e.block + 1 == blocks) { /* all blocks of a row are in the same push, in their order */
            kept_forget(client, table, e.id);
        }
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

/* What is not finite would spoil the next push, too. */
static void keep(struct weft_ps_client *client, struct ps_table *table, const struct element *e)
{
    float values[WEFT_RPC_BLOCK_FLOATS];
    weft_values_load(table->spec.push_values, e->values, e->used, values);
    float *row = all_finite(values, e->used) ? kept_row(client, table, e->id) : NULL;
    if (row == NULL) {
        client->counters.feedback_dropped++;
        return;
    }
    add_floats(row + (size_t)e->block * weft_table_block_floats(&table->spec), values, e->used);
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
