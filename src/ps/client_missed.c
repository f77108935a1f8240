/* Rule 7 for pushes: a row whose gradients were missing in the last two pushes that had it becomes
 * critical in the next one, and with it the chunk that it is in.
 *
 * By id, for the rows of a sparse table are others in every push, and those of a dense table lie
 * elsewhere when the packets of the path become shorter; the ids of a dense table are ranges of its
 * vector. The ids are read from the request itself, which is there until SENT whoever made it.
 * While nothing is missing there is nothing to look up.
 *
 * Pulls have the same rule: their rows are asked for first (client.c), and the shard is told how
 * many of them must not be missing.
 *
 * Source: docs/PROTOCOL.md section 6, rule 7, and section 7.
 */
#include "ps/client_internal.h"

#include "base/bits.h"

/* The ids of one chunk of a push, as they lie there. */
struct ids {
    const uint8_t *at;
    uint32_t count;
};

static struct ids ids_of(const struct ps_part *part, uint32_t chunk)
{
    uint32_t elem_bytes = part->request_elem_bytes, chunk_elems = part->request_chunk_elems;
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, part->request_elem_bytes);
    uint32_t first = chunk * chunk_elems;
    uint32_t elems = (uint32_t)weft_min_u64(chunk_elems, part->request_elems - first);
    struct weft_ps_chunk_rows rows = weft_ps_chunk_rows(
        part->request_elem_bytes, part->list.id_bytes, chunk_elems, head_elems, chunk, elems);
    return (struct ids){part->request + (size_t)first * elem_bytes + rows.ids_offset, rows.count};
}

static uint64_t id_at(const struct ps_part *part, struct ids ids, uint32_t i)
{
    uint64_t id;
    weft_ps_load_ids(ids.at + (size_t)i * part->list.id_bytes, part->list.id_bytes, 1, &id);
    return id;
}

static uint32_t chunks_of(const struct ps_part *part)
{
    return (uint32_t)weft_div_ceil_u64(part->request_elems, part->request_chunk_elems);
}

static bool has_twice(const struct weft_ps_missed *missed, const struct ps_part *part,
                      struct ids ids)
{
    for (uint32_t i = 0; i < ids.count; i++) {
        if (weft_ps_missed_twice(missed, id_at(part, ids, i))) {
            return true;
        }
    }
    return false;
}

const uint64_t *weft_ps_push_critical(struct weft_ps_client *client, const struct ps_part *part)
{
    const struct weft_ps_missed *missed = &client->tables[part->table].push_missed;
    uint32_t chunks = chunks_of(part);
    if (missed->twice_count == 0 || part->bound_ppm == 0 || chunks > WEFT_PS_CHUNKS_MAX) {
        return NULL;
    }
    memset(client->critical, 0, WEFT_BITS_WORDS((size_t)chunks) * sizeof(*client->critical));
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        if (has_twice(missed, part, ids_of(part, chunk))) {
            weft_bits_set(client->critical, chunk);
        }
    }
    return client->critical;
}

static bool chunk_came(const struct weft_msg_event *event, uint32_t chunk)
{
    return event->mask != NULL && weft_bits_test(event->mask, chunk);
}

/* Each row once, when its last block was looked at: the missing ones, or those that came whole. */
static void note_rows(struct weft_ps_client *client, const struct ps_part *part,
                      const struct weft_msg_event *event, bool missing)
{
    struct weft_ps_missed *missed = &client->tables[part->table].push_missed;
    uint32_t blocks = weft_table_blocks(&client->tables[part->table].spec), block = 0;
    bool came = true;
    for (uint32_t chunk = 0; chunk < chunks_of(part); chunk++) {
        struct ids ids = ids_of(part, chunk);
        for (uint32_t i = 0; i < ids.count; i++) {
            came = came && chunk_came(event, chunk);
            if (++block < blocks) {
                continue;
            }
            uint64_t id = id_at(part, ids, i);
            if (missing && !came) {
                client->counters.missed_forgotten += !weft_ps_missed_add(missed, id);
            } else if (!missing && came && !weft_ps_missed_now(missed, id)) {
                weft_ps_missed_remove(missed, id);
            }
            block = 0;
            came = true;
        }
    }
}

/* The missing ones first: an id may be in the push several times, and is missing if any is. */
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
        return; /* its shard is gone: nothing was gathered */
    }
    weft_ps_missed_begin(&client->tables[part->table].push_missed);
    note_rows(client, part, &nothing, true);
}
