/* Lists of ids that one worker's pulls have named to a shard (key caching of [li14]): a push of the same
 * rows names the list instead of sending the ids again.
 *
 * A ring: the newest lists are there, as many as fit the memory and WEFT_ID_LISTS_MAX; the oldest makes
 * room. One that is in use stays; while it is the oldest, what does not fit is not kept.
 *
 * It is a cache: whoever asks for a list must be able to do without.
 *
 * Source: docs/PROTOCOL.md section 7, "Lists"; [li14] section 3.6.
 */
#ifndef WEFT_PS_LIST_STORE_H
#define WEFT_PS_LIST_STORE_H

#include <stdbool.h>
#include <stdint.h>

/* Two pulls of 256 tables: that of the next step may come before the push of this one. */
enum { WEFT_ID_LISTS_MAX = 512 };

#define WEFT_ID_LIST_NONE UINT32_MAX

struct weft_id_list {
    uint32_t number; /* its name, with the table; 0 = it has lost it to a later one */
    uint16_t table;
    uint16_t users; /* not dropped before they have left */
    uint32_t at;    /* of its first id */
    uint32_t count; /* at least 1 */
};

/* All zero: without memory, which keeps nothing. */
struct weft_id_lists {
    uint64_t *ids; /* (ids_max,) */
    uint32_t ids_max;
    uint32_t first; /* place of the oldest */
    uint32_t count;
    struct weft_id_list list[WEFT_ID_LISTS_MAX]; /* a ring of places */
};

/* Owns:    borrows ids. */
void weft_id_lists_init(struct weft_id_lists *lists, uint64_t *ids, uint32_t ids_max);

/* Keep a copy of the ids. False: there is no room; what had the same name is gone all the same.
 * Shape:   ids (count,).   Cost: O(count). */
bool weft_id_lists_keep(struct weft_id_lists *lists, uint16_t table, uint32_t number,
                        const uint64_t *ids, uint32_t count);

/* The place of a list, for struct weft_id_lists.list; WEFT_ID_LIST_NONE: it is not there. */
uint32_t weft_id_lists_find(const struct weft_id_lists *lists, uint16_t table, uint32_t number);

/* The list at a place is in use until it is left as often. */
void weft_id_lists_use(struct weft_id_lists *lists, uint32_t slot);
void weft_id_lists_leave(struct weft_id_lists *lists, uint32_t slot);

/* Drop all of them, in use or not. */
void weft_id_lists_clear(struct weft_id_lists *lists);

#endif
