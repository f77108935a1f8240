/* The hot set of a table at a shard: the reply that contains it, and the lookup structure that a
 * worker builds from the reply.
 *
 * The reply to a PULL with HOT has elements of one byte:
 *
 *     | head, 56 bytes: rows = ids that follow | epoch: u32 | period, ms: u32 | ids, packed |
 *
 * No ids follow if the worker already has the set of this epoch; epoch 0 means that no set exists.
 *
 * Not here: the selection (agg/hot_set.h, shard_hot.c), and the choice between shard and aggregator
 * (client_hot.c).
 *
 * Source: docs/PROTOCOL.md section 7, "Hot rows". */
#ifndef WEFT_PS_HOT_ROWS_H
#define WEFT_PS_HOT_ROWS_H

#include "base/hash_key.h"
#include "base/status.h"
#include "ps/id_pack.h"
#include "rpc/head.h"

enum {
    WEFT_HOT_ROWS_MAX = 65536, /* ids in a set: packed, 16 bytes each at most, so 1 MiB, which is as
                                * much as weft_ids_unpack accepts */
    WEFT_HOT_HEAD_BYTES = 8,
};

/* Maximum length of a reply with this many ids. */
static inline size_t weft_hot_reply_bytes_max(uint32_t rows)
{
    return WEFT_RPC_REPLY_BYTES + WEFT_HOT_HEAD_BYTES + 16 * (size_t)rows +
           WEFT_IDS_BLOCK_BYTES_MAX;
}

/* Write the reply after its head. Returns the number of bytes written.
 * Shape:   ids (count,), ascending; out has weft_hot_reply_bytes_max(count) less the head. */
size_t weft_hot_reply_pack(uint32_t epoch, uint32_t period_ms, const uint64_t *ids, uint32_t count,
                           uint8_t *out);

/* Hash set with open addressing, at most half full. */
struct weft_hot_set {
    struct weft_hash_key key;
    uint64_t *slots;    /* of the hash table (mask + 1,); 0 = free */
    uint64_t *unpacked; /* (rows_max,) scratch; borrowed */
    uint32_t mask;
    uint32_t rows_max;
    uint32_t rows;
    uint32_t epoch; /* 0 = no set */
    bool has_zero;  /* the set contains id 0 */
};

/* key: random, so that a peer cannot choose ids that collide.
 * Owns:    allocates; borrows unpacked until fini.
 * Errors:  WEFT_NOMEM; WEFT_INVALID  rows_max is 0 or above WEFT_HOT_ROWS_MAX. */
weft_status weft_hot_set_init(struct weft_hot_set *set, uint32_t rows_max, uint64_t *unpacked,
                              const uint8_t key[WEFT_HASH_KEY_BYTES]);
void weft_hot_set_fini(struct weft_hot_set *set);

/* Empty the set: epoch 0. */
void weft_hot_set_clear(struct weft_hot_set *set);

/* Store the set of a reply. bytes: the reply after its head; rows: from the head. *changed_p: the
 * epoch has changed.
 * Errors:  WEFT_PROTO  malformed: nothing changed.   WEFT_NOMEM  more than rows_max: likewise. */
weft_status weft_hot_set_take(struct weft_hot_set *set, uint32_t rows, const uint8_t *bytes,
                              size_t size, uint32_t *period_ms_p, bool *changed_p);

static inline bool weft_hot_set_has(const struct weft_hot_set *set, uint64_t id)
{
    if (id == 0) {
        return set->has_zero;
    }
    uint32_t at = (uint32_t)weft_hash_keyed(&set->key, id) & set->mask;
    while (set->slots[at] != 0 && set->slots[at] != id) {
        at = (at + 1) & set->mask;
    }
    return set->slots[at] == id;
}

#endif
