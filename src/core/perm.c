#include "core/perm.h"

#include "base/assert.h"
#include "base/prng.h"

/* Small domains have few bits to mix, so they get more rounds; both numbers were chosen by the
 * uniformity test (tests/unit/test_core_perm.c). */
enum { ROUNDS_SMALL = 12, ROUNDS = 6, SMALL_BITS = 8 };

void weft_perm_init(struct weft_perm *perm, uint32_t n, uint64_t key)
{
    WEFT_ASSERT(n >= 1 && n <= UINT32_C(1) << 31);
    unsigned bits = n == 1 ? 0 : 32 - (unsigned)__builtin_clz(n - 1);
    perm->key = weft_mix64(key + UINT64_C(0x9e3779b97f4a7c15));
    perm->n = n;
    perm->left_bits = (uint8_t)(bits / 2);
    perm->right_bits = (uint8_t)(bits - bits / 2);
    perm->plain = false;
}

void weft_perm_init_plain(struct weft_perm *perm, uint32_t n, uint32_t shift)
{
    *perm = (struct weft_perm){.n = n, .plain = true, .shift = shift};
}

/* One pass through the network: halves take turns, so they may differ in width. */
static uint32_t perm_once(const struct weft_perm *perm, uint32_t x)
{
    uint32_t left_mask = (UINT32_C(1) << perm->left_bits) - 1;
    uint32_t right_mask = (UINT32_C(1) << perm->right_bits) - 1;
    uint32_t left = x >> perm->right_bits;
    uint32_t right = x & right_mask;
    int rounds = perm->left_bits + perm->right_bits <= SMALL_BITS ? ROUNDS_SMALL : ROUNDS;
    uint64_t key = perm->key;
    for (int round = 0; round < rounds; round += 2) {
        key += UINT64_C(0x9e3779b97f4a7c15);
        right ^= (uint32_t)(weft_mix64(key ^ left) >> 32) & right_mask;
        key += UINT64_C(0x9e3779b97f4a7c15);
        left ^= (uint32_t)(weft_mix64(key ^ right) >> 32) & left_mask;
    }
    return left << perm->right_bits | right;
}

uint32_t weft_perm_at(const struct weft_perm *perm, uint32_t index)
{
    if (perm->plain) {
        return (uint32_t)(((uint64_t)index + perm->shift) % perm->n);
    }
    uint32_t x = index;
    do {
        x = perm_once(perm, x);
    } while (x >= perm->n);
    return x;
}
