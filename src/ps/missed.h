/* The ids of one table whose rows a worker asked for and did not get, or pushed in vain, the last
 * time or the last two times: a bounded set.
 *
 * Open addressing with linear probing, half full at most; removal shifts back what follows, so
 * there are no tombstones and the cost stays that of a lookup.
 *
 * As long as any row is missing all ids of every message are looked up, several times, and hardly any is
 * found. So a bitmap of hashes that costs one multiplication says first which are not: a Bloom filter
 * with one hash. It is made anew when many of its bits are of ids that have gone. Whoever chooses the ids
 * can make it useless, and then the keyed hash is what there was.
 *
 * Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.
 */
#ifndef WEFT_PS_MISSED_H
#define WEFT_PS_MISSED_H

#include "base/hash_key.h"
#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

/* Bits, 16 KB. Rare ids stay in the set until they are asked for again: thousands are usual. */
enum { WEFT_PS_MISSED_FILTER_LOG = 17 };

struct weft_ps_missed {
    struct weft_hash_key key;
    uint64_t *ids;   /* (mask + 1,) */
    uint64_t *used;  /* bitmap of the same places: every u64 is a valid id */
    uint64_t *twice; /* bitmap: added again, of a later message, without a removal */
    uint32_t *added; /* of the same places: the message of which it was added last */
    uint32_t message;
    uint32_t twice_count;
    uint32_t mask;
    uint32_t count;
    uint32_t count_max;
    uint32_t removed; /* since the filter was made */
    uint64_t filter[(1 << WEFT_PS_MISSED_FILTER_LOG) / 64];
};

/* key: bytes that who chooses the ids cannot guess.
 * Errors: WEFT_NOMEM; WEFT_INVALID  count_max above 2^28. 0 is allowed: it forgets everything. */
weft_status weft_ps_missed_init(struct weft_ps_missed *missed, uint32_t count_max,
                                const uint8_t key[WEFT_HASH_KEY_BYTES]);
void weft_ps_missed_fini(struct weft_ps_missed *missed);

bool weft_ps_missed_has(const struct weft_ps_missed *missed, uint64_t id);

/* It was added of at least two messages since it was last removed. */
bool weft_ps_missed_twice(const struct weft_ps_missed *missed, uint64_t id);

/* What is added from here on is of another message: an id may be in one several times, and counts
 * once. */
void weft_ps_missed_begin(struct weft_ps_missed *missed);

/* It was added since weft_ps_missed_begin. */
bool weft_ps_missed_now(const struct weft_ps_missed *missed, uint64_t id);

/* False when there was no room. */
bool weft_ps_missed_add(struct weft_ps_missed *missed, uint64_t id);

void weft_ps_missed_remove(struct weft_ps_missed *missed, uint64_t id);

#endif
