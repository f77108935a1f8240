/* Seeded pseudo-random numbers: xoshiro256** seeded by splitmix64 (Blackman and Vigna, public
 * domain algorithms). Not for keys. The generator is always passed as an argument, so that a run
 * can be repeated from one seed; `weft_prng_split` derives an independent stream from (seed,
 * label).
 */
#ifndef WEFT_BASE_PRNG_H
#define WEFT_BASE_PRNG_H

#include "base/units.h"

#include <stdbool.h>

struct weft_prng {
    uint64_t state[4];
};

/* The finalizer of splitmix64: a good 64-bit mixer for hashing integers. */
static inline uint64_t weft_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline void weft_prng_init(struct weft_prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        prng->state[i] = weft_mix64(seed);
    }
}

/* Derive an independent stream for each (seed, label). */
static inline void weft_prng_split(struct weft_prng *prng, uint64_t seed, uint64_t label)
{
    weft_prng_init(prng, weft_mix64(seed ^ weft_mix64(label + UINT64_C(0x9e3779b97f4a7c15))));
}

static inline uint64_t weft_prng_u64(struct weft_prng *prng)
{
    uint64_t *s = prng->state;
    uint64_t x = s[1] * 5;
    uint64_t result = ((x << 7) | (x >> 57)) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* Uniform in [0, n); n > 0. Multiply-shift; the bias is n / 2^64, which is negligible here. */
static inline uint64_t weft_prng_below(struct weft_prng *prng, uint64_t n)
{
    return (uint64_t)((__extension__(unsigned __int128) weft_prng_u64(prng) * n) >> 64);
}

/* Uniform in [lo, hi], both ends included. */
static inline uint64_t weft_prng_range(struct weft_prng *prng, uint64_t lo, uint64_t hi)
{
    uint64_t span = hi - lo;
    return span == UINT64_MAX ? weft_prng_u64(prng) : lo + weft_prng_below(prng, span + 1);
}

/* True with probability ppm / 10^6. */
static inline bool weft_prng_chance(struct weft_prng *prng, uint32_t ppm)
{
    return weft_prng_below(prng, WEFT_PPM) < ppm;
}

#endif
