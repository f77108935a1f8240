#include "ps/list_store.h"

#include "base/assert.h"

#include <string.h>

void weft_id_lists_init(struct weft_id_lists *lists, uint64_t *ids, uint32_t ids_max)
{
    *lists = (struct weft_id_lists){.ids = ids, .ids_max = ids_max};
}

static uint32_t slot_of(const struct weft_id_lists *lists, uint32_t i)
{
    return (lists->first + i) % WEFT_ID_LISTS_MAX;
}

/* Index for this many ids without evicting a list; UINT32_MAX: none. */
static uint32_t room(const struct weft_id_lists *lists, uint32_t count)
{
    if (lists->count == 0) {
        return 0;
    }
    const struct weft_id_list *newest = &lists->list[slot_of(lists, lists->count - 1)];
    uint32_t begin = lists->list[lists->first].at, end = newest->at + newest->count;
    if (newest->at < begin) { /* it has wrapped */
        return begin - end >= count ? end : UINT32_MAX;
    }
    return lists->ids_max - end >= count ? end : begin >= count ? 0 : UINT32_MAX;
}

bool weft_id_lists_keep(struct weft_id_lists *lists, uint16_t table, uint32_t number,
                        const uint64_t *ids, uint32_t count)
{
    uint32_t same = weft_id_lists_find(lists, table, number);
    if (same != WEFT_ID_LIST_NONE) {
        lists->list[same].number = 0;
    }
    if (count == 0 || count > lists->ids_max) {
        return false;
    }
    uint32_t at = UINT32_MAX;
    while (lists->count == WEFT_ID_LISTS_MAX || (at = room(lists, count)) == UINT32_MAX) {
        if (lists->list[lists->first].users > 0) {
            return false;
        }
        lists->first = slot_of(lists, 1);
        lists->count--;
    }
    memcpy(lists->ids + at, ids, count * sizeof(*ids));
    lists->list[slot_of(lists, lists->count++)] =
        (struct weft_id_list){.number = number, .table = table, .at = at, .count = count};
    return true;
}

uint32_t weft_id_lists_find(const struct weft_id_lists *lists, uint16_t table, uint32_t number)
{
    for (uint32_t i = lists->count; number != 0 && i > 0; i--) { /* usually one of the newest */
        uint32_t slot = slot_of(lists, i - 1);
        if (lists->list[slot].number == number && lists->list[slot].table == table) {
            return slot;
        }
    }
    return WEFT_ID_LIST_NONE;
}

void weft_id_lists_use(struct weft_id_lists *lists, uint32_t slot)
{
    WEFT_ASSERT(lists->list[slot].users < UINT16_MAX);
    lists->list[slot].users++;
}

void weft_id_lists_leave(struct weft_id_lists *lists, uint32_t slot)
{
    WEFT_ASSERT(lists->list[slot].users > 0);
    lists->list[slot].users--;
}

void weft_id_lists_clear(struct weft_id_lists *lists)
{
    lists->first = lists->count = 0;
}
