/* Keyed pseudo-random permutation of [0, n): the order in which the chunks of a message are sent.
 *
 * An invertible mix of b bits, 2^b being the next power of two, is applied to 0, 1, 2, ...; images
 * of n and above are skipped. One step is x -> (x * odd + k) mod 2^b, then x ^= x >> ceil(b / 2);
 * both are invertible. Five steps with independent keys pass the statistical tests of the unit
 * test; four steps narrowly fail. A Feistel network of six rounds passes too, at three times the
 * cost. Cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains") would give
 * random access, which is not needed, and would cost an unpredictable branch.
 *
 * A shuffle would need memory. Affine and cyclic orders keep neighbours together, so that a burst
 * of losses would hit adjacent chunks. The order is not secret, because every packet contains its
 * chunk number.
 *
 * Source: docs/PROTOCOL.md section 6; the step is that of hash finalizers such as murmur3's.
 */
#ifndef WEFT_CORE_PERM_H
#define WEFT_CORE_PERM_H

#include "base/assert.h"
#include "base/units.h"

#include <stdbool.h>

enum {
    WEFT_PERM_STEPS = 5,
    WEFT_PERM_AHEAD = 16, /* images computed at a time, so that the processor can overlap them */
};

struct weft_perm {
    uint32_t n;
    uint32_t inputs; /* 2^b */
    uint32_t input;  /* next input of the mix */
    uint32_t taken;  /* images returned by weft_perm_next */
    uint32_t from;   /* plain: the first image */
    uint32_t times[WEFT_PERM_STEPS];
    uint32_t plus[WEFT_PERM_STEPS];
    uint8_t shift;
    uint8_t ahead_at; /* ahead[ahead_at .. ahead_count) are the next images */
    uint8_t ahead_count;
    bool plain; /* the vector's order, or a cyclic shift of it */
    uint32_t ahead[WEFT_PERM_AHEAD];
};

/* n in 1 .. 2^31. */
void weft_perm_init(struct weft_perm *perm, uint32_t n, uint64_t key);

/* The order (index + from) modulo n, which keeps neighbours together: for messages of which no
 * chunk may be missing. from < n. */
void weft_perm_init_plain(struct weft_perm *perm, uint32_t n, uint32_t from);

/* Compute the next images; weft_perm_peek and weft_perm_next call it when `ahead` is empty. */
void weft_perm_refill(struct weft_perm *perm);

/* The next image, without advancing. Requires that fewer than n images were taken. The mix is
 * applied at most 2 n times for n images. */
static inline uint32_t weft_perm_peek(struct weft_perm *perm)
{
    WEFT_ASSERT(perm->taken < perm->n);
    if (perm->ahead_at == perm->ahead_count) {
        weft_perm_refill(perm);
    }
    return perm->ahead[perm->ahead_at];
}

/* Return the next image and advance. */
static inline uint32_t weft_perm_next(struct weft_perm *perm)
{
    uint32_t image = weft_perm_peek(perm);
    perm->ahead_at++;
    perm->taken++;
    return image;
}

#endif
