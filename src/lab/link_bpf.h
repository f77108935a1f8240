/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Burst losses, computed by bpf/link.bpf.c in the kernel and by the unit tests in user space.
 *
 * Gilbert's model with total loss in the bad state: a link is good or bad; while it is bad, every
 * packet is lost. Before each packet the state may change: good to bad with probability p, bad to
 * good with r. The mean burst then has 1 / r packets, and the fraction p / (p + r) is lost.
 *
 * Source: E. N. Gilbert, "Capacity of a Burst-Noise Channel", Bell System Technical Journal 39
 * (1960), with h = 0.
 */
#ifndef WEFT_LAB_LINK_BPF_H
#define WEFT_LAB_LINK_BPF_H

#include <linux/types.h>

/* Probabilities in units of 2^-32. */
struct weft_gilbert {
    __u32 to_bad;
    __u32 to_good;
};

/* True if the next packet is lost. `bad` is the state, 0 at first; `lot` is a uniform 32-bit
 * number. */
static inline int weft_gilbert_lost(const struct weft_gilbert *g, __u32 *bad, __u32 lot)
{
    if (*bad) {
        if (lot < g->to_good) {
            *bad = 0;
        }
    } else if (lot < g->to_bad) {
        *bad = 1;
    }
    return *bad != 0;
}

#endif
