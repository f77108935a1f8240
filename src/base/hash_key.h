/* A keyed hash of 64-bit ids, for in-memory tables whose ids are chosen by a peer. A peer that
 * knows the algorithm but not the key cannot choose ids that collide.
 *
 *     p = (id ^ k0) * k1            128 bits
 *     q = (low(p) ^ k2) * (high(p) ^ k3)
 *     hash = low(q) ^ high(q)
 *
 * Why two multiplications: after one, the low bits of the product depend on the low bits of the id
 * alone, and for ids in an arithmetic progression the high bits grow in equal steps. So under some
 * keys whole progressions collide, and timing reveals it. The second multiplies the two halves with
 * each other, each masked by a word of the key: a value linear in the id becomes quadratic, and no
 * difference of two ids has a known effect. k1 is odd, so no two ids have the same low(p); its top
 * bit is set, so no more than two have the same high(p). So at most three of all ids make a factor
 * zero, and they are unknown without the key.
 *
 * Not a MAC, and not for output that a peer can see. It is sufficient if a peer can only measure
 * the time of a lookup. Rejected: SipHash-1-3, whose guarantees are stronger, at about five times
 * the cost.
 *
 * Ids are assigned to shards by weft_mix64, which has no key. So a peer can direct more ids to one
 * shard, but cannot make its lookups longer.
 *
 * The function must not change: checkpoints contain Bloom filters built with it.
 *
 * Source: wyhash's wyhash64 (Wang Yi, public domain), its constants replaced by the key.
 */
#ifndef WEFT_BASE_HASH_KEY_H
#define WEFT_BASE_HASH_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { WEFT_HASH_KEY_BYTES = 32 };

struct weft_hash_key {
    uint64_t word[4];
};

/* Make a key from unpredictable bytes: from the operating system, or derived from a secret. Zero
 * bytes give a valid but known key, for tests and benchmarks. */
static inline struct weft_hash_key weft_hash_key(const uint8_t bytes[WEFT_HASH_KEY_BYTES])
{
    /* The constants of wyhash; with them zero bytes do not give a weak key. */
    static const uint64_t masks[4] = {UINT64_C(0xa0761d6478bd642f), UINT64_C(0xe7037ed1a0b428db),
                                      UINT64_C(0x8ebc6af09c88c6e3), UINT64_C(0x589965cc75374cc3)};
    struct weft_hash_key key;
    for (int i = 0; i < 4; i++) {
        key.word[i] = 0;
        for (int b = 7; b >= 0; b--) {
            key.word[i] = key.word[i] << 8 | bytes[8 * i + b];
        }
        key.word[i] ^= masks[i];
    }
    key.word[1] |= UINT64_C(1) << 63 | 1;
    return key;
}

static inline uint64_t weft_hash_keyed(const struct weft_hash_key *key, uint64_t id)
{
    __extension__ typedef unsigned __int128 u128;
    u128 p = (u128)(id ^ key->word[0]) * key->word[1];
    u128 q = (u128)((uint64_t)p ^ key->word[2]) * ((uint64_t)(p >> 64) ^ key->word[3]);
    return (uint64_t)q ^ (uint64_t)(q >> 64);
}

/* All bytes are zero. */
static inline bool weft_hash_key_is_zero(const uint8_t bytes[WEFT_HASH_KEY_BYTES])
{
    static const uint8_t zeros[WEFT_HASH_KEY_BYTES];
    return memcmp(bytes, zeros, sizeof(zeros)) == 0;
}

#endif
