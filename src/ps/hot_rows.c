#include "ps/hot_rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- the reply ------------------------------------------------------------------------------- */

size_t weft_hot_reply_pack(uint32_t epoch, uint32_t period_ms, const uint64_t *ids, uint32_t count,
                           uint8_t *out)
{
    size_t bytes = WEFT_HOT_HEAD_BYTES;
    uint64_t before = 0;
    memcpy(out, &epoch, sizeof(epoch));
    memcpy(out + sizeof(epoch), &period_ms, sizeof(period_ms));
    for (uint32_t done = 0, taken; done < count; done += taken) {
        uint32_t left = count - done;
        bytes += weft_ids_pack_block(ids + done, left < WEFT_IDS_BLOCK ? left : WEFT_IDS_BLOCK,
                                     before, out + bytes, &taken);
        before = ids[done + taken - 1];
    }
    return bytes;
}

/* ---- the set --------------------------------------------------------------------------------- */

weft_status weft_hot_set_init(struct weft_hot_set *set, uint32_t rows_max, uint64_t *unpacked,
                              const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    if (rows_max == 0 || rows_max > WEFT_HOT_ROWS_MAX) {
        return WEFT_INVALID;
    }
    uint32_t slots = 2;
    while (slots < 2 * rows_max) {
        slots *= 2;
    }
    *set = (struct weft_hot_set){.key = weft_hash_key(key),
                                 .slots = calloc(slots, sizeof(*set->slots)),
                                 .unpacked = unpacked,
                                 .mask = slots - 1,
                                 .rows_max = rows_max};
    return set->slots == NULL ? WEFT_NOMEM : WEFT_OK;
}

void weft_hot_set_fini(struct weft_hot_set *set)
{
    free(set->slots);
    *set = (struct weft_hot_set){0};
}

void weft_hot_set_clear(struct weft_hot_set *set)
{
    if (set->rows > 0) { /* else its memory may never have been touched */
        memset(set->slots, 0, ((size_t)set->mask + 1) * sizeof(*set->slots));
    }
    set->rows = set->epoch = 0;
    set->has_zero = false;
}

static void add(struct weft_hot_set *set, uint64_t id)
{
    if (id == 0) {
        set->has_zero = true;
        return;
    }
    uint32_t at = (uint32_t)weft_hash_keyed(&set->key, id) & set->mask;
    while (set->slots[at] != 0 && set->slots[at] != id) {
        at = (at + 1) & set->mask;
    }
    set->slots[at] = id;
}

weft_status weft_hot_set_take(struct weft_hot_set *set, uint32_t rows, const uint8_t *bytes,
                              size_t size, uint32_t *period_ms_p, bool *changed_p)
{
    uint32_t epoch, period_ms;
    if (size < WEFT_HOT_HEAD_BYTES) {
        return WEFT_PROTO;
    }
    memcpy(&epoch, bytes, sizeof(epoch));
    memcpy(&period_ms, bytes + sizeof(epoch), sizeof(period_ms));
    if (rows > set->rows_max) {
        return WEFT_NOMEM;
    }
    bool is_same = epoch == set->epoch;
    if (((is_same || epoch == 0) && rows > 0) ||
        !weft_ids_unpack(bytes + WEFT_HOT_HEAD_BYTES, size - WEFT_HOT_HEAD_BYTES, rows,
                         set->unpacked)) {
        return WEFT_PROTO;
    }
    *period_ms_p = period_ms;
    *changed_p = !is_same;
    if (!is_same) {
        weft_hot_set_clear(set);
        for (uint32_t i = 0; i < rows; i++) {
            add(set, set->unpacked[i]);
        }
        set->rows = rows;
        set->epoch = epoch;
    }
    return WEFT_OK;
}
