/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * What the DCTCP program in the kernel (bpf/dctcp.bpf.c) and user space share: the arithmetic of
 * the algorithm and the record that shows it. Freestanding, so that the unit tests compute with the
 * very functions that the kernel runs.
 *
 * Source: RFC 8257 section 3.3 (alpha, the cut of the window) and 4.2 (g = 1/16).
 */
#ifndef WEFT_LAB_DCTCP_BPF_H
#define WEFT_LAB_DCTCP_BPF_H

#include <linux/types.h>

/* alpha is a fraction in units of 2^-20. */
#define WEFT_DCTCP_ONE   (1u << 20)
#define WEFT_DCTCP_SHIFT 4 /* g = 2^-4 */

/* Packets; RFC 8257 has no floor of its own, RFC 5681 section 3.1 has this one. */
#define WEFT_DCTCP_CWND_MIN 2u

/* alpha after one observation window in which `delivered` packets were acknowledged, `marked` of
 * them on acknowledgements that echoed a mark: alpha (1 - g) + g F.
 *
 * The decay rounds up, so that alpha reaches zero without marks (RFC 8257 section 4.2 asks for
 * that); with every packet marked it stays at one. */
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
    WEFT_DCTCP_WINDOW = 1, /* an observation window ended: alpha was computed anew */
    WEFT_DCTCP_CUT = 2,    /* the kernel asked for a smaller window: marks, or a loss, then ... */
    WEFT_DCTCP_LOSS = 3,   /* ... this follows: it was halved */
};

/* One thing that happened to one connection. */
struct weft_dctcp_record {
    __u32 flow;      /* local port in the upper half, the peer's in the lower */
    __u32 what;      /* enum weft_dctcp_what */
    __u32 alpha_old; /* WINDOW; else the alpha that applied */
    __u32 alpha;
    __u32 delivered; /* WINDOW: packets of the window; else cwnd before, in packets */
    __u32 marked;    /* WINDOW: marked ones of them; else ssthresh after, in packets */
};

/* Since it was attached; all connections together. */
struct weft_dctcp_counts {
    __u64 connections; /* that negotiated ECN */
    __u64 without_ecn; /* that did not, and were handed to Reno */
    __u64 windows;
    __u64 cuts;   /* times the kernel asked for a smaller window, for marks or for a loss ... */
    __u64 losses; /* ... and those for a loss, which halve */
    __u64 acks;   /* sent early because the marks began or ended */
};

#define WEFT_DCTCP_RECORDS 1024u /* the latest are kept; a power of two */

/* The program's only variable. */
struct weft_dctcp_seen {
    struct weft_dctcp_counts counts;
    __u32 next; /* number of the next record; its place is that modulo WEFT_DCTCP_RECORDS */
    __u32 pad;
    struct weft_dctcp_record records[WEFT_DCTCP_RECORDS];
};

#endif
