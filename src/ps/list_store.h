/* Key caching of [li14]: a shard keeps the lists of ids of one worker's pulls. A push of the same
 * rows names the list instead of sending the ids again.
 *
 * A ring of the newest lists, limited by its memory and by WEFT_ID_LISTS_MAX. The oldest list is
 * evicted first. A list in use is not evicted; while it is the oldest, a list that does not fit is
 * not kept.
 *
 * It is a cache: callers must handle a missing list.
 *
 * Source: docs/PROTOCOL.md section 7, "Lists"; [li14] section 3.6.
 */
#ifndef WEFT_PS_LIST_STORE_H
#define WEFT_PS_LIST_STORE_H

#include <stdbool.h>
#include <stdint.h>

/* Two pulls of 256 tables: the next step's pull may arrive before this step's push. */
enum { WEFT_ID_LISTS_MAX = 512 };

#define WEFT_ID_LIST_NONE UINT32_MAX

struct weft_id_list {
    uint32_t number; /* its name within the table; 0 = a later list has the name */
    uint16_t table;
    uint16_t users; /* references; not evicted while > 0 */
    uint32_t at;    /* index of its first id in `ids` */
    uint32_t count; /* at least 1 */
};

/* All zeros: no memory, so no list is kept. */
struct weft_id_lists {
    uint64_t *ids; /* (ids_max,) */
    uint32_t ids_max;
    uint32_t first; /* slot of the oldest */
    uint32_t count;
    struct weft_id_list list[WEFT_ID_LISTS_MAX]; /* a ring */
};

/* Owns:    borrows ids. */
void weft_id_lists_init(struct weft_id_lists *lists, uint64_t *ids, uint32_t ids_max);

/* Keep a copy of the ids. False: there is no room. An older list of the same name is dropped in
 * either case.
 * Shape:   ids (count,).   Cost: O(count). */
bool weft_id_lists_keep(struct weft_id_lists *lists, uint16_t table, uint32_t number,
                        const uint64_t *ids, uint32_t count);

/* The index of a list in struct weft_id_lists.list; WEFT_ID_LIST_NONE: not found. */
uint32_t weft_id_lists_find(const struct weft_id_lists *lists, uint16_t table, uint32_t number);

/* Add and drop a reference to a list. */
void weft_id_lists_use(struct weft_id_lists *lists, uint32_t slot);
void weft_id_lists_leave(struct weft_id_lists *lists, uint32_t slot);

/* Drop all of them, in use or not. */
void weft_id_lists_clear(struct weft_id_lists *lists);

#endif
