#include "ps/missed.h"

#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

enum { REMOVED_MAX = 512 }; /* most stale bits, beyond the number of ids */

weft_status weft_ps_missed_init(struct weft_ps_missed *missed, uint32_t count_max,
                                const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    if (count_max > UINT32_C(1) << 28) {
        return WEFT_INVALID;
    }
    uint32_t size = 64;
    while (size / 2 < count_max) {
        size *= 2;
    }
    *missed = (struct weft_ps_missed){
        .key = weft_hash_key(key), .mask = size - 1, .count_max = count_max};
    missed->ids = calloc(size, sizeof(*missed->ids));
    missed->used = calloc(WEFT_BITS_WORDS(size), sizeof(*missed->used));
    missed->twice = calloc(WEFT_BITS_WORDS(size), sizeof(*missed->twice));
    missed->added = calloc(size, sizeof(*missed->added));
    if (missed->ids == NULL || missed->used == NULL || missed->twice == NULL ||
        missed->added == NULL) {
        weft_ps_missed_fini(missed);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_ps_missed_fini(struct weft_ps_missed *missed)
{
    free(missed->ids);
    free(missed->used);
    free(missed->twice);
    free(missed->added);
    *missed = (struct weft_ps_missed){0};
}

static uint32_t home(const struct weft_ps_missed *missed, uint64_t id)
{
    return (uint32_t)weft_hash_keyed(&missed->key, id) & missed->mask;
}

/* The filter bit of an id: Fibonacci hashing. */
static uint32_t filter_bit(uint64_t id)
{
    return (uint32_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> (64 - WEFT_PS_MISSED_FILTER_LOG));
}

/* False: id is not in the set. */
static bool maybe(const struct weft_ps_missed *missed, uint64_t id)
{
    return weft_bits_test(missed->filter, filter_bit(id));
}

static void filter_renew(struct weft_ps_missed *missed)
{
    size_t size = (size_t)missed->mask + 1;
    memset(missed->filter, 0, sizeof(missed->filter));
    missed->removed = 0;
    for (size_t at = weft_bits_next_one(missed->used, size, 0); at < size;
         at = weft_bits_next_one(missed->used, size, at + 1)) {
        weft_bits_set(missed->filter, filter_bit(missed->ids[at]));
    }
}

/* The slot of id, or the free slot for it. */
static uint32_t probe(const struct weft_ps_missed *missed, uint64_t id)
{
    uint32_t at = home(missed, id);
    while (weft_bits_test(missed->used, at) && missed->ids[at] != id) {
        at = (at + 1) & missed->mask;
    }
    return at;
}

bool weft_ps_missed_has(const struct weft_ps_missed *missed, uint64_t id)
{
    return missed->count > 0 && maybe(missed, id) &&
           weft_bits_test(missed->used, probe(missed, id));
}

bool weft_ps_missed_twice(const struct weft_ps_missed *missed, uint64_t id)
{
    if (missed->twice_count == 0 || !maybe(missed, id)) {
        return false;
    }
    uint32_t at = probe(missed, id);
    return weft_bits_test(missed->used, at) && weft_bits_test(missed->twice, at);
}

static void twice_put(struct weft_ps_missed *missed, uint32_t at, bool twice)
{
    if (twice) {
        weft_bits_set(missed->twice, at);
    } else {
        weft_bits_clear(missed->twice, at);
    }
}

void weft_ps_missed_begin(struct weft_ps_missed *missed)
{
    missed->message++;
    if (missed->removed > REMOVED_MAX + missed->count) {
        filter_renew(missed);
    }
}

bool weft_ps_missed_now(const struct weft_ps_missed *missed, uint64_t id)
{
    if (!maybe(missed, id)) {
        return false;
    }
    uint32_t at = probe(missed, id);
    return weft_bits_test(missed->used, at) && missed->added[at] == missed->message;
}

bool weft_ps_missed_add(struct weft_ps_missed *missed, uint64_t id)
{
    uint32_t at = probe(missed, id);
    if (weft_bits_test(missed->used, at)) {
        bool again = missed->added[at] != missed->message;
        missed->twice_count += again && !weft_bits_test(missed->twice, at);
        twice_put(missed, at, again || weft_bits_test(missed->twice, at));
        missed->added[at] = missed->message;
        return true;
    }
    if (missed->count == missed->count_max) {
        return false;
    }
    missed->ids[at] = id;
    missed->added[at] = missed->message;
    weft_bits_set(missed->used, at);
    weft_bits_set(missed->filter, filter_bit(id));
    missed->count++;
    return true;
}

void weft_ps_missed_remove(struct weft_ps_missed *missed, uint64_t id)
{
    if (!maybe(missed, id)) {
        return;
    }
    uint32_t hole = probe(missed, id);
    if (!weft_bits_test(missed->used, hole)) {
        return;
    }
    missed->count--;
    missed->removed++;
    missed->twice_count -= weft_bits_test(missed->twice, hole);
    for (uint32_t at = (hole + 1) & missed->mask; weft_bits_test(missed->used, at);
         at = (at + 1) & missed->mask) {
        /* Move an entry back if its home is at or before the hole. */
        uint32_t from_home = (at - home(missed, missed->ids[at])) & missed->mask;
        if (from_home >= ((at - hole) & missed->mask)) {
            missed->ids[hole] = missed->ids[at];
            missed->added[hole] = missed->added[at];
            twice_put(missed, hole, weft_bits_test(missed->twice, at));
            hole = at;
        }
    }
    weft_bits_clear(missed->used, hole);
    weft_bits_clear(missed->twice, hole);
}
