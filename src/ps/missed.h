/* A bounded set of ids of one table whose rows a worker failed to pull, or to push, the last time
 * or the last two times.
 *
 * Open addressing with linear probing, at most half full. Removal shifts later entries back, so
 * there are no tombstones, and it costs as much as a lookup.
 *
 * While any row is missing, every id of every message is looked up several times, and hardly any is
 * found. Therefore a Bloom filter with one hash, which costs one multiplication, rejects most ids
 * first. It is rebuilt when many of its bits belong to removed ids. A peer that chooses the ids can
 * defeat the filter; lookups then cost as much as without it, because the table uses a keyed hash.
 *
 * Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.
 */
#ifndef WEFT_PS_MISSED_H
#define WEFT_PS_MISSED_H

#include "base/hash_key.h"
#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

/* Bits, 16 KB. Rare ids stay in the set until the next request for them: thousands are usual. */
enum { WEFT_PS_MISSED_FILTER_LOG = 17 };

struct weft_ps_missed {
    struct weft_hash_key key;
    uint64_t *ids;   /* (mask + 1,) */
    uint64_t *used;  /* bitmap of the same slots: every u64 is a valid id */
    uint64_t *twice; /* bitmap: added again by a later message, without a removal */
    uint32_t *added; /* per slot: the message that added it last */
    uint32_t message;
    uint32_t twice_count;
    uint32_t mask;
    uint32_t count;
    uint32_t count_max;
    uint32_t removed; /* since the filter was built */
    uint64_t filter[(1 << WEFT_PS_MISSED_FILTER_LOG) / 64];
};

/* key: random, so that a peer cannot choose ids that collide. Errors: WEFT_NOMEM; WEFT_INVALID
 * count_max above 2^28. 0 is allowed: nothing is stored. */
weft_status weft_ps_missed_init(struct weft_ps_missed *missed, uint32_t count_max,
                                const uint8_t key[WEFT_HASH_KEY_BYTES]);
void weft_ps_missed_fini(struct weft_ps_missed *missed);

bool weft_ps_missed_has(const struct weft_ps_missed *missed, uint64_t id);

/* True: added by at least two messages since its last removal. */
bool weft_ps_missed_twice(const struct weft_ps_missed *missed, uint64_t id);

/* Begin a new message. An id that occurs several times in one message counts once. */
void weft_ps_missed_begin(struct weft_ps_missed *missed);

/* True: added since weft_ps_missed_begin. */
bool weft_ps_missed_now(const struct weft_ps_missed *missed, uint64_t id);

/* False: no room. */
bool weft_ps_missed_add(struct weft_ps_missed *missed, uint64_t id);

void weft_ps_missed_remove(struct weft_ps_missed *missed, uint64_t id);

#endif
