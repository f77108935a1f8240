/* A running 64-bit hash of a simulation: equal runs have equal hashes, in any build and on any
 * machine. Not cryptographic. Bytes are always read as little-endian.
 */
#ifndef WEFT_SIM_HASH_H
#define WEFT_SIM_HASH_H

#include "base/prng.h"

#include <string.h>

#define WEFT_SIM_HASH_INIT UINT64_C(0xcbf29ce484222325)

/* Add one number. The order matters: the state is multiplied before each addition. */
static inline uint64_t weft_sim_hash_u64(uint64_t hash, uint64_t value)
{
    return weft_mix64(hash * UINT64_C(0x100000001b3) ^ value);
}

static inline uint64_t weft_sim_hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    hash = weft_sim_hash_u64(hash, count);
    while (count > 0) {
        uint64_t word = 0;
        size_t take = count < 8 ? count : 8;
        memcpy(&word, at, take);
        if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
            word = __builtin_bswap64(word);
        }
        hash = weft_sim_hash_u64(hash, word);
        at += take;
        count -= take;
    }
    return hash;
}

#endif
