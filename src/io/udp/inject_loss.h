/* Injected random loss, to show the effect of bounded loss on a network that loses nothing.
 *
 * One decision for each datagram that reaches the socket, whatever its content, drawn from a random
 * stream of its own for each (seed, role, rank): the same seed drops the same n-th datagrams of
 * each process. (Which datagram is the n-th depends on timing, so two runs on sockets are similar,
 * not equal; in the simulator they are equal.)
 */
#ifndef WEFT_IO_UDP_INJECT_LOSS_H
#define WEFT_IO_UDP_INJECT_LOSS_H

#include "base/prng.h"

struct weft_inject_loss_config {
    uint32_t loss_ppm; /* 0 = off; <= 10^6 */
    uint32_t role;     /* role and rank of this process select its stream */
    uint32_t rank;
    uint64_t seed;
};

struct weft_inject_loss {
    uint32_t loss_ppm;
    struct weft_prng prng;
};

void weft_inject_loss_init(struct weft_inject_loss *inject,
                           const struct weft_inject_loss_config *config);

/* True when the next datagram is to be dropped. */
static inline bool weft_inject_loss_next(struct weft_inject_loss *inject)
{
    return inject->loss_ppm > 0 && weft_prng_chance(&inject->prng, inject->loss_ppm);
}

#endif
