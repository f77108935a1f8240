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

/* Number of bits set among the first `bits` bits. */
size_t weft_bits_count(const uint64_t *words, size_t bits);

/* Index of the set bit that has `rank` set bits below it. Requires more than `rank` set bits. */
size_t weft_bits_nth_one(const uint64_t *words, size_t rank);

/* Helper of the next two functions. flip: 0, or all bits set. */
static inline size_t weft_bits_next_(const uint64_t *words, size_t bits, size_t from, uint64_t flip)
{
    if (from >= bits) {
        return bits;
    }
    size_t word_idx = from / 64;
    uint64_t word = (words[word_idx] ^ flip) & (UINT64_MAX << (from % 64));
    while (word == 0) {
        word_idx++;
        if (word_idx * 64 >= bits) {
            return bits;
        }
        word = words[word_idx] ^ flip;
    }
    size_t bit = word_idx * 64 + (size_t)__builtin_ctzll(word);
    return bit < bits ? bit : bits;
}

/* First set (or clear) bit at or after `from`; `bits` if there is none. */
static inline size_t weft_bits_next_one(const uint64_t *words, size_t bits, size_t from)
{
    return weft_bits_next_(words, bits, from, 0);
}

static inline size_t weft_bits_next_zero(const uint64_t *words, size_t bits, size_t from)
{
    return weft_bits_next_(words, bits, from, UINT64_MAX);
}

#endif
