/* Lists of ids that pushes name: kept from pulls, and one per worker that it has sent (LIST).
 *
 * A push names one list, in each of its chunks, so that each chunk can be decoded alone. The first
 * chunk that needs the list looks it up. If it exists, it is kept until the push's message is
 * closed. If not, nothing of this message is applied, the reply is UNKNOWN_LIST, and the push's
 * number stays open: the worker sends LIST, then resends the push. Chunks applied over an earlier
 * connection are in its mask.
 *
 * The list that a worker sends stays in the memory of its LIST slot until the next LIST; pulls do
 * not evict it. So after LIST a push never fails for lack of memory for its list.
 *
 * In the journal the ids follow the chunk that names them, so each record can also be replayed
 * alone.
 *
 * Source: docs/PROTOCOL.md section 7, "Lists". */
#include "ps/shard_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"

#include <stdlib.h>

/* Value of list_place for a list in the LIST slot, not in the worker's lists. */
enum { PLACE_GIVEN = WEFT_ID_LISTS_MAX };

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_shard_lists_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    if (!weft_shard_takes_lists(shard) || config->list_ids == 0) {
        return WEFT_OK;
    }
    shard->list_ids =
        calloc((size_t)config->workers_max * config->list_ids, sizeof(*shard->list_ids));
    if (shard->list_ids == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t w = 0; w < config->workers_max; w++) {
        weft_id_lists_init(&shard->workers[w].lists, shard->list_ids + (size_t)w * config->list_ids,
                           config->list_ids);
    }
    return WEFT_OK;
}

void weft_shard_lists_fini(struct weft_shard *shard)
{
    free(shard->list_ids);
}

void weft_shard_lists_forget(struct weft_shard *shard, uint32_t rank)
{
    weft_id_lists_clear(&shard->workers[rank].lists);
    shard->workers[rank].given = 0;
    for (uint32_t i = 0; i < shard->slots_per_worker; i++) {
        shard->slots[(size_t)rank * shard->slots_per_worker + i].list = 0;
    }
}

/* ---- storing lists --------------------------------------------------------------------------- */

void weft_shard_list_keep(struct weft_shard *shard, struct shard_slot *slot)
{
    if ((slot->request.flags & WEFT_RPC_KEEP_IDS) == 0) {
        return;
    }
    struct shard_worker *worker = &shard->workers[slot->worker];
    bool kept = weft_id_lists_keep(&worker->lists, slot->table, slot->request.rpc_id, slot->ids,
                                   slot->rows);
    if (worker->given == slot->request.rpc_id && worker->given_table == slot->table) {
        worker->given = 0; /* an older list of this name must not be found after the newer one is
                            * evicted */
    }
    slot->can = kept ? WEFT_RPC_CAN_LIST : 0;
    shard->counters.lists_stored += kept;
    shard->counters.lists_refused += !kept;
}

void weft_shard_list_open(struct weft_shard *shard, const struct shard_slot *slot)
{
    shard->workers[slot->worker].given = 0;
}

void weft_shard_list_given(struct weft_shard *shard, const struct shard_slot *slot)
{
    struct shard_worker *worker = &shard->workers[slot->worker];
    worker->given = slot->clock;
    worker->given_table = slot->table;
    worker->given_count = slot->rows;
    shard->counters.lists_received++;
}

/* ---- pushes with lists ----------------------------------------------------------------------- */

static struct shard_slot *given_slot(const struct weft_shard *shard, uint32_t rank)
{
    return &shard->slots[(size_t)(rank + 1) * shard->slots_per_worker - 1];
}

/* Look up the list named by the first chunk. False: not found. */
static bool list_find(struct weft_shard *shard, struct shard_slot *slot, uint32_t number)
{
    struct shard_worker *worker = &shard->workers[slot->worker];
    uint32_t place = weft_id_lists_find(&worker->lists, slot->table, number);
    if (place != WEFT_ID_LIST_NONE) {
        weft_id_lists_use(&worker->lists, place);
    } else if (worker->given == number && worker->given_table == slot->table) {
        place = PLACE_GIVEN;
    } else {
        return false;
    }
    slot->list = number;
    slot->list_place = place;
    return true;
}

/* The ids of its list; NULL: it was in the LIST slot, and was replaced by another LIST. */
static const uint64_t *list_at(const struct weft_shard *shard, const struct shard_slot *slot,
                               uint32_t *count_p)
{
    const struct shard_worker *worker = &shard->workers[slot->worker];
    if (slot->list_place != PLACE_GIVEN) {
        const struct weft_id_list *list = &worker->lists.list[slot->list_place];
        *count_p = list->count;
        return worker->lists.ids + list->at;
    }
    *count_p = worker->given_count;
    return worker->given == slot->list && worker->given_table == slot->table
               ? given_slot(shard, slot->worker)->ids
               : NULL;
}

static enum weft_rpc_status ids_behind(const struct weft_shard *shard,
                                       const struct shard_slot *slot, uint32_t count);

enum weft_rpc_status weft_shard_list_ids(struct weft_shard *shard, struct shard_slot *slot,
                                         const struct weft_ps_chunk_rows *rows)
{
    if (slot->ids_behind != NULL) {
        return ids_behind(shard, slot, rows->count);
    }
    if (!weft_shard_takes_lists(shard) || slot->number == 0 ||
        (slot->list != 0 && slot->list != rows->list)) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (slot->list == 0 && !list_find(shard, slot, rows->list)) {
        return WEFT_RPC_UNKNOWN_LIST;
    }
    uint32_t count;
    const uint64_t *ids = list_at(shard, slot, &count);
    if (ids == NULL) {
        return WEFT_RPC_UNKNOWN_LIST;
    }
    if (rows->first > count || rows->count > count - rows->first ||
        (slot->head_seen && slot->request.rows != count)) {
        return WEFT_RPC_BAD_REQUEST;
    }
    memcpy(shard->chunk_ids, ids + rows->first, rows->count * sizeof(*ids));
    return WEFT_RPC_OK;
}

void weft_shard_list_leave(struct weft_shard *shard, struct shard_slot *slot)
{
    if (slot->list != 0 && slot->list_place != PLACE_GIVEN) {
        weft_id_lists_leave(&shard->workers[slot->worker].lists, slot->list_place);
    }
    slot->list = 0;
}

/* ---- the journal ----------------------------------------------------------------------------- */

/*     | id bytes: 1 packed, 4, 8: u32 | bytes that follow: u32 | ids | */
enum { BEHIND_HEAD_BYTES = 8 };
static_assert(WEFT_SHARD_IDS_BEHIND_MAX ==
              BEHIND_HEAD_BYTES + WEFT_PS_CHUNK_ROWS_MAX * sizeof(uint64_t));

/* Pack the ids and return their bytes; 0: not shorter than `most`. */
static size_t pack_below(const uint64_t *ids, uint32_t count, uint8_t *out, size_t most)
{
    uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX];
    uint64_t before = 0;
    size_t bytes = 0;
    for (uint32_t done = 0, n; done < count; done += n) {
        uint32_t left = count - done;
        size_t more = weft_ids_pack_block(ids + done, left < WEFT_IDS_BLOCK ? left : WEFT_IDS_BLOCK,
                                          before, block, &n);
        if (bytes + more >= most) { /* unordered ids take up to 25 bytes each */
            return 0;
        }
        memcpy(out + bytes, block, more);
        bytes += more;
        before = ids[done + n - 1];
    }
    return bytes;
}

size_t weft_shard_list_write(const uint64_t *ids, uint32_t count, uint8_t *out)
{
    uint64_t all = 0;
    WEFT_ASSERT(count >= 1 && count <= WEFT_PS_CHUNK_ROWS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        all |= ids[i];
    }
    uint32_t id_bytes = all <= UINT32_MAX ? WEFT_RPC_ID_NARROW : WEFT_RPC_ID_WIDE;
    uint32_t bytes = (uint32_t)pack_below(ids, count, out + BEHIND_HEAD_BYTES, count * id_bytes);
    if (bytes > 0) {
        id_bytes = WEFT_RPC_ID_PACKED;
    } else {
        bytes = count * id_bytes;
        for (uint32_t i = 0; i < count; i++) {
            weft_ps_store_id(out + BEHIND_HEAD_BYTES, id_bytes, i, ids[i]);
        }
    }
    memcpy(out, &id_bytes, sizeof(id_bytes));
    memcpy(out + sizeof(id_bytes), &bytes, sizeof(bytes));
    WEFT_ASSERT(BEHIND_HEAD_BYTES + bytes <= WEFT_SHARD_IDS_BEHIND_MAX);
    return BEHIND_HEAD_BYTES + bytes;
}

static enum weft_rpc_status ids_behind(const struct weft_shard *shard,
                                       const struct shard_slot *slot, uint32_t count)
{
    const uint8_t *at = slot->ids_behind;
    uint32_t id_bytes, bytes;
    if (slot->ids_behind_bytes < BEHIND_HEAD_BYTES) {
        return WEFT_RPC_BAD_REQUEST;
    }
    memcpy(&id_bytes, at, sizeof(id_bytes));
    memcpy(&bytes, at + sizeof(id_bytes), sizeof(bytes));
    at += BEHIND_HEAD_BYTES;
    if (bytes > slot->ids_behind_bytes - BEHIND_HEAD_BYTES) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (id_bytes == WEFT_RPC_ID_PACKED) {
        return weft_ids_unpack(at, bytes, count, shard->chunk_ids) ? WEFT_RPC_OK
                                                                   : WEFT_RPC_BAD_REQUEST;
    }
    if ((id_bytes != WEFT_RPC_ID_NARROW && id_bytes != WEFT_RPC_ID_WIDE) ||
        bytes != count * id_bytes) {
        return WEFT_RPC_BAD_REQUEST;
    }
    weft_ps_load_ids(at, id_bytes, count, shard->chunk_ids);
    return WEFT_RPC_OK;
}
