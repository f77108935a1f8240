/* Random loss on purpose, to show what bounded loss does on a network that loses nothing.
 *
 * One decision for each datagram that reaches the socket, whatever it holds, drawn from a stream of
 * its own for each (seed, role, rank): the same seed drops the same n-th datagrams of each process.
 * (Which datagram is the n-th depends on timing, so two runs on sockets are alike, not equal; the
 * simulator's are.)
 */
#ifndef WEFT_IO_UDP_INJECT_LOSS_H
#define WEFT_IO_UDP_INJECT_LOSS_H

#include "base/prng.h"

struct weft_inject_loss_config {
    uint32_t loss_ppm; /* 0 = off; <= 10^6 */
    uint32_t role;     /* role and rank of this process: its stream */
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
