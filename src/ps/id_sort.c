#include "ps/id_sort.h"

#include <stdbool.h>
#include <string.h>

enum {
    DIGIT = 8,       /* bits of a pass: clearing and adding up the counters costs as much as */
    DIGIT_MANY = 11, /* sorting about as many ids */
    MANY = 2048,
    MOVES = 4, /* of the insertion sort, for each id */
};

/* Turn the counters of a pass into the first positions of its digits. */
static void positions(uint32_t *counts, uint32_t digits)
{
    uint32_t at = 0;
    for (uint32_t d = 0; d < digits; d++) {
        const uint32_t count = counts[d];
        counts[d] = at;
        at += count;
    }
}

/* Sort by the 2 x digit bits from `low` on. */
static void sort_top(const uint64_t *ids, uint32_t count, uint32_t low, uint32_t digit,
                     struct weft_id_sort *half, struct weft_id_sort *whole)
{
    uint32_t first[1 << DIGIT_MANY], second[1 << DIGIT_MANY];
    const uint32_t mask = (UINT32_C(1) << digit) - 1;
    memset(first, 0, sizeof(*first) << digit);
    memset(second, 0, sizeof(*second) << digit);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bits = ids[i] >> low;
        first[bits & mask]++;
        second[bits >> digit & mask]++;
    }
    positions(first, mask + 1);
    positions(second, mask + 1);
    for (uint32_t i = 0; i < count; i++) {
        half[first[ids[i] >> low & mask]++] = (struct weft_id_sort){ids[i], i};
    }
    for (uint32_t i = 0; i < count; i++) {
        whole[second[half[i].id >> low >> digit & mask]++] = half[i];
    }
}

/* False: too many moves; `sorted` still has all ids. */
static bool insert(struct weft_id_sort *sorted, uint32_t count)
{
    uint64_t moves = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (sorted[i - 1].id <= sorted[i].id) {
            continue;
        }
        const struct weft_id_sort one = sorted[i];
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1].id > one.id; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = one;
        moves += i - at;
        if (moves > (uint64_t)MOVES * count) {
            return false;
        }
    }
    return true;
}

/* Sort by all bits in which the ids differ. */
static const struct weft_id_sort *sort_all(const uint64_t *ids, uint32_t count, uint64_t differ,
                                           struct weft_id_sort *from, struct weft_id_sort *to)
{
    for (uint32_t i = 0; i < count; i++) {
        from[i] = (struct weft_id_sort){ids[i], i};
    }
    for (uint32_t shift = 0; shift < 64; shift += DIGIT) {
        uint32_t counts[1 << DIGIT] = {0};
        if ((differ >> shift & 0xff) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            counts[from[i].id >> shift & 0xff]++;
        }
        positions(counts, 1 << DIGIT);
        for (uint32_t i = 0; i < count; i++) {
            to[counts[from[i].id >> shift & 0xff]++] = from[i];
        }
        struct weft_id_sort *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

const struct weft_id_sort *weft_ids_sort(const uint64_t *ids, uint32_t count,
                                         struct weft_id_sort *scratch)
{
    struct weft_id_sort *half = scratch, *whole = scratch + count;
    const uint32_t digit = count < MANY ? DIGIT : DIGIT_MANY;
    uint64_t differ = 0;
    for (uint32_t i = 0; i < count; i++) {
        differ |= ids[i] ^ ids[0];
    }
    const uint32_t top = differ == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(differ);
    const uint32_t low = top > 2 * digit ? top - 2 * digit : 0;
    sort_top(ids, count, low, digit, half, whole);
    return low == 0 || insert(whole, count) ? whole : sort_all(ids, count, differ, half, whole);
}
