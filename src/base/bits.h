/* Bitmaps over uint64_t words: bit i is word i/64, value 1 << (i%64). */
#ifndef WEFT_BASE_BITS_H
#define WEFT_BASE_BITS_H

#include "base/units.h"

#include <stdbool.h>

#define WEFT_BITS_WORDS(bits) (((bits) + 63) / 64)

static inline bool weft_bits_test(const uint64_t *words, size_t bit)
{
    return (words[bit / 64] >> (bit % 64)) & 1;
}

static inline void weft_bits_set(uint64_t *words, size_t bit)
{
    words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline void weft_bits_clear(uint64_t *words, size_t bit)
{
    words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

/* Set bits [0, bits); the rest of the last word is cleared. */
void weft_bits_fill(uint64_t *words, size_t bits);

/* Number of ones among the first `bits` bits. */
size_t weft_bits_count(const uint64_t *words, size_t bits);

/* The one that has `rank` ones before it; there must be more than `rank` ones. */
size_t weft_bits_nth_one(const uint64_t *words, size_t rank);

/* First one (or zero) at or after `from`; `bits` when there is none. */
size_t weft_bits_next_one(const uint64_t *words, size_t bits, size_t from);
size_t weft_bits_next_zero(const uint64_t *words, size_t bits, size_t from);

#endif
