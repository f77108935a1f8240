/* Rule 7 for pushes: a row whose gradients were missing in the last two pushes that contained it is
 * critical in the next one, and so is its chunk.
 *
 * Rows are identified by id, because every push of a sparse table has other rows, and the rows of a
 * dense table move to other chunks when the packets of the path become shorter. The ids of a dense
 * table are ranges of its vector. The ids are read from the request, which exists until SENT. While
 * nothing is missing, no lookup is needed.
 *
 * The same rule applies to pulls: their rows are requested first (client_split.c), and the request
 * contains the number of rows that must arrive.
 *
 * Source: docs/PROTOCOL.md section 6, rule 7, and section 7.
 */
#include "ps/client_internal.h"

#include "base/bits.h"

static bool has_twice(const struct weft_ps_missed *missed, const struct ps_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->rows.count; i++) {
        if (weft_ps_missed_twice(missed, ps_chunk_id(chunk, i))) {
            return true;
        }
    }
    return false;
}

const uint64_t *weft_ps_push_critical(struct weft_ps_client *client, const struct ps_part *part)
{
    const struct weft_ps_missed *missed = &client->tables[part->table].push_missed;
    if (part->request_chunk_elems == 0) {
        return NULL;
    }
    uint32_t chunks = ps_part_chunks(part);
    if (missed->twice_count == 0 || part->bound_ppm == 0 || chunks > WEFT_PS_CHUNKS_MAX) {
        return NULL;
    }
    memset(client->critical, 0, WEFT_BITS_WORDS((size_t)chunks) * sizeof(*client->critical));
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        struct ps_chunk rows = weft_ps_chunk_of(client, part, chunk, true);
        if (has_twice(missed, &rows)) {
            weft_bits_set(client->critical, chunk);
        }
    }
    return client->critical;
}

static bool chunk_came(const struct weft_msg_event *event, uint32_t chunk)
{
    return event->mask != NULL && weft_bits_test(event->mask, chunk);
}

/* Process each row once, at its last block: either the missing rows, or those that arrived
 * whole. */
static void note_rows(struct weft_ps_client *client, const struct ps_part *part,
                      const struct weft_msg_event *event, bool missing)
{
    struct weft_ps_missed *missed = &client->tables[part->table].push_missed;
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec), block = 0;
    bool came = true;
    for (uint32_t chunk = 0; chunk < ps_part_chunks(part); chunk++) {
        struct ps_chunk rows = weft_ps_chunk_of(client, part, chunk, true);
        for (uint32_t i = 0; i < rows.rows.count; i++) {
            came = came && chunk_came(event, chunk);
            if (++block < blocks) {
                continue;
            }
            uint64_t id = ps_chunk_id(&rows, i);
            if (missing && !came) {
                client->counters.missed_ids_dropped += !weft_ps_missed_add(missed, id);
            } else if (!missing && came && !weft_ps_missed_now(missed, id)) {
                weft_ps_missed_remove(missed, id);
            }
            block = 0;
            came = true;
        }
    }
}

/* Missing rows first: an id may occur in the push several times, and is missing if any occurrence
 * is. */
void weft_ps_push_note(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event)
{
    struct weft_ps_missed *missed = &client->tables[part->table].push_missed;
    if (event->mask == NULL || event->outcome == WEFT_MSG_UNKNOWN) {
        return;
    }
    weft_ps_missed_begin(missed);
    if (event->received < event->chunks) {
        note_rows(client, part, event, true);
    }
    if (missed->count > 0) {
        note_rows(client, part, event, false);
    }
}

void weft_ps_push_note_all(struct weft_ps_client *client, const struct ps_part *part)
{
    static const struct weft_msg_event nothing = {.mask = NULL};
    if (part->request_chunk_elems == 0) {
        return; /* the shard is down: nothing was gathered */
    }
    weft_ps_missed_begin(&client->tables[part->table].push_missed);
    note_rows(client, part, &nothing, true);
}
