#include "base/bits.h"

#include <string.h>

void weft_bits_fill(uint64_t *words, size_t bits)
{
    size_t whole = bits / 64;
    memset(words, 0xff, whole * sizeof(*words));
    if (bits % 64 != 0) {
        words[whole] = (UINT64_C(1) << (bits % 64)) - 1;
    }
}

size_t weft_bits_count(const uint64_t *words, size_t bits)
{
    size_t count = 0;
    size_t whole = bits / 64;
    for (size_t i = 0; i < whole; i++) {
        count += (size_t)__builtin_popcountll(words[i]);
    }
    if (bits % 64 != 0) {
        uint64_t mask = (UINT64_C(1) << (bits % 64)) - 1;
        count += (size_t)__builtin_popcountll(words[whole] & mask);
    }
    return count;
}

size_t weft_bits_nth_one(const uint64_t *words, size_t rank)
{
    size_t word_idx = 0;
    size_t count = (size_t)__builtin_popcountll(words[0]);
    while (rank >= count) {
        rank -= count;
        count = (size_t)__builtin_popcountll(words[++word_idx]);
    }
    uint64_t word = words[word_idx];
    for (; rank > 0; rank--) {
        word &= word - 1;
    }
    return word_idx * 64 + (size_t)__builtin_ctzll(word);
}
