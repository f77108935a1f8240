/* A hash of 64-bit ids under a key: for tables in memory whose ids somebody else chooses. Who knows
 * the algorithm but not the key cannot choose ids that meet in one place.
 *
 *     p = (id ^ k0) * k1            128 bits
 *     q = (low(p) ^ k2) * (high(p) ^ k3)
 *     hash = low(q) ^ high(q)
 *
 * Why two multiplications: after one, the low bits of the product depend on the low bits of the id
 * alone, and for ids in an arithmetic progression the high ones climb in equal steps, so under some
 * keys whole progressions meet, and a clock shows when. The second multiplies the two halves with each
 * other, each masked by a word of the key: what was linear in the id is quadratic in it, and no
 * difference of two ids has a known effect. k1 is odd, so no two ids have the same low(p); its top bit
 * is set, so no more than two have the same high(p). So at most three of all ids make a factor zero, and
 * nobody knows which.
 *
 * What it is not: a MAC, or fit for output that others see. It is enough where they see only how long a
 * search took. Rejected: SipHash-1-3, which is made for more, at about five times the cost.
 *
 * Ids are dealt over shards by weft_mix64, which all ends compute: a shard can be made to get more ids
 * than others, but not longer searches.
 *
 * The function must not change: checkpoints have Bloom filters that were made with it.
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

/* From bytes that nobody can guess: of the operating system, or derived from a secret. Zeros are a
 * key like any other, but a known one: for tests and benchmarks. */
static inline struct weft_hash_key weft_hash_key(const uint8_t bytes[WEFT_HASH_KEY_BYTES])
{
    /* Of wyhash: so that zeros are not a weak key. */
    static const uint64_t masks[4] = {
        UINT64_C(0xa0761d6478bd642f), UINT64_C(0xe7037ed1a0b428db), UINT64_C(0x8ebc6af09c88c6e3),
        UINT64_C(0x589965cc75374cc3)};
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
