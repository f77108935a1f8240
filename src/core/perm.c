#include "core/perm.h"

#include "base/assert.h"
#include "base/prng.h"

void weft_perm_init(struct weft_perm *perm, uint32_t n, uint64_t key)
{
    WEFT_ASSERT(n >= 1 && n <= UINT32_C(1) << 31);
    if (n == 1) { /* most messages of a parameter server have one chunk */
        weft_perm_init_plain(perm, n, 0);
        return;
    }
    unsigned bits = 32 - (unsigned)__builtin_clz(n - 1);
    *perm = (struct weft_perm){
        .n = n,
        .inputs = UINT32_C(1) << bits,
        .shift = (uint8_t)((bits + 1) / 2),
    };
    for (int i = 0; i < WEFT_PERM_STEPS; i++) {
        key += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t mixed = weft_mix64(key);
        perm->times[i] = (uint32_t)mixed | 1; /* odd: invertible modulo a power of two */
        perm->plus[i] = (uint32_t)(mixed >> 32);
    }
}

void weft_perm_init_plain(struct weft_perm *perm, uint32_t n, uint32_t from)
{
    WEFT_ASSERT(n >= 1 && from < n);
    *perm = (struct weft_perm){.n = n, .inputs = n, .from = from, .plain = true};
}

/* Multiplication propagates bits upwards; the shift mixes the upper half into the lower one. */
static inline uint32_t perm_mix(const struct weft_perm *perm, uint32_t x)
{
    for (int i = 0; i < WEFT_PERM_STEPS; i++) {
        x = (x * perm->times[i] + perm->plus[i]) & (perm->inputs - 1);
        x ^= x >> perm->shift;
    }
    return x;
}

static inline uint32_t plain_image(const struct weft_perm *perm, uint32_t x)
{
    x += perm->from; /* below 2 n */
    return x < perm->n ? x : x - perm->n;
}

/* Inputs in order. Images of n and above are skipped without a branch, which would be
 * unpredictable. */
void weft_perm_refill(struct weft_perm *perm)
{
    uint32_t count = 0;
    while (count == 0) {
        uint32_t left = perm->inputs - perm->input;
        WEFT_ASSERT(left > 0);
        uint32_t group = left < WEFT_PERM_AHEAD ? left : WEFT_PERM_AHEAD;
        for (uint32_t i = 0; i < group; i++) {
            uint32_t image =
                perm->plain ? plain_image(perm, perm->input + i) : perm_mix(perm, perm->input + i);
            perm->ahead[count] = image;
            count += image < perm->n;
        }
        perm->input += group;
    }
    perm->ahead_at = 0;
    perm->ahead_count = (uint8_t)count;
}
