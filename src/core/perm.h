/* Keyed pseudo-random permutation of [0, n): the order in which the chunks of a message are sent.
 *
 * A Feistel network over the next power of two, with cycle walking back into the domain (Black and
 * Rogaway, "Ciphers with arbitrary finite domains"). Chosen over a shuffle because it needs no
 * memory, and over affine or cyclic orders because those keep neighbours together, so a burst of
 * losses would fall on adjacent chunks. It is not a secret: an observer sees the order anyway.
 *
 * Source: docs/PROTOCOL.md section 6.
 */
#ifndef WEFT_CORE_PERM_H
#define WEFT_CORE_PERM_H

#include "base/units.h"

#include <stdbool.h>

struct weft_perm {
    uint64_t key;
    uint32_t n;
    uint8_t left_bits;
    uint8_t right_bits;
    bool plain;     /* for tests: a cyclic shift instead */
    uint32_t shift;
};

/* n in 1 .. 2^31. */
void weft_perm_init(struct weft_perm *perm, uint32_t n, uint64_t key);

/* For tests only: index + shift modulo n, which leaves neighbours together. shift < n. */
void weft_perm_init_plain(struct weft_perm *perm, uint32_t n, uint32_t shift);

/* Image of index < n; expected cost below two rounds of the network. */
uint32_t weft_perm_at(const struct weft_perm *perm, uint32_t index);

#endif
