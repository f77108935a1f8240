/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Shared by the DCTCP program in the kernel (bpf/dctcp.bpf.c) and user space: the arithmetic of the
 * algorithm and its trace record. Freestanding, so that the unit tests use the same functions as
 * the kernel.
 *
 * Source: RFC 8257 section 3.3 (alpha, the cut of the window) and 4.2 (g = 1/16).
 */
#ifndef WEFT_LAB_DCTCP_BPF_H
#define WEFT_LAB_DCTCP_BPF_H

#include <linux/types.h>

/* alpha is a fraction in units of 2^-20. */
#define WEFT_DCTCP_ONE   (1u << 20)
#define WEFT_DCTCP_SHIFT 4 /* g = 2^-4 */

/* Packets. RFC 8257 does not specify a minimum; this one is from RFC 5681 section 3.1. */
#define WEFT_DCTCP_CWND_MIN 2u

/* alpha after one observation window in which `delivered` packets were acknowledged, `marked` of
 * them on acknowledgements that echoed a mark: alpha (1 - g) + g F.
 *
 * The decay rounds up, so that alpha reaches zero without marks (required by RFC 8257 section
 * 4.2); if every packet is marked, it stays at one. */
static inline __u32 weft_dctcp_alpha_next(__u32 alpha, __u32 delivered, __u32 marked)
{
    alpha -= (alpha >> WEFT_DCTCP_SHIFT) + ((alpha & ((1u << WEFT_DCTCP_SHIFT) - 1)) != 0);
    if (marked == 0 || delivered == 0) {
        return alpha;
    }
    if (marked > delivered) {
        marked = delivered;
    }
    alpha += (__u32)(((__u64)marked << (20 - WEFT_DCTCP_SHIFT)) / delivered);
    return alpha < WEFT_DCTCP_ONE ? alpha : WEFT_DCTCP_ONE;
}

/* The window after a mark: cwnd (1 - alpha / 2), in packets. */
static inline __u32 weft_dctcp_cut(__u32 cwnd, __u32 alpha)
{
    __u32 cut = (__u32)(((__u64)cwnd * alpha) >> 21);
    __u32 left = cwnd - cut;
    return left > WEFT_DCTCP_CWND_MIN ? left : WEFT_DCTCP_CWND_MIN;
}

enum weft_dctcp_what {
    WEFT_DCTCP_WINDOW = 1, /* an observation window ended: alpha was recomputed */
    WEFT_DCTCP_CUT = 2,    /* the kernel requested a smaller window: for marks, or for a loss,
                            * then ... */
    WEFT_DCTCP_LOSS = 3,   /* ... this record follows: it was halved */
};

/* One event of one connection. */
struct weft_dctcp_record {
    __u32 flow;      /* local port in the upper half, the peer's in the lower */
    __u32 what;      /* enum weft_dctcp_what */
    __u32 alpha_old; /* WINDOW; else the alpha that applied */
    __u32 alpha;
    __u32 delivered; /* WINDOW: packets of the window; else cwnd before, in packets */
    __u32 marked;    /* WINDOW: marked ones of them; else ssthresh after, in packets */
};

/* Since it was attached; totals of all connections. */
struct weft_dctcp_counts {
    __u64 connections; /* with ECN negotiated */
    __u64 without_ecn; /* without, passed to Reno */
    __u64 windows;
    __u64 cuts;   /* requests of the kernel for a smaller window, for marks or for a loss ... */
    __u64 losses; /* ... and those for a loss, which halve */
    __u64 acks;   /* sent early because marks started or ended */
};

#define WEFT_DCTCP_RECORDS 1024u /* the latest ones are stored; a power of two */

/* The program's only variable. */
struct weft_dctcp_seen {
    struct weft_dctcp_counts counts;
    __u32 next; /* number of the next record; its index is that modulo WEFT_DCTCP_RECORDS */
    __u32 pad;
    struct weft_dctcp_record records[WEFT_DCTCP_RECORDS];
};

#endif
