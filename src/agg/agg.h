/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Definitions shared by the parts of an aggregation box: its configuration, and the verdict on each
 * packet.
 *
 * src/agg is one source for three users: the kernel's program (bpf/aggregate.bpf.c), a host process
 * and the simulator. Its headers are freestanding: no C library, no allocation, no clock. The
 * caller owns the state and ensures that only one thread at a time accesses a slot or a bank; in
 * the kernel each is protected by a spin lock.
 *
 * See docs/AGGREGATION.md for the design and docs/PROTOCOL.md section 12 for the packets.
 */
#ifndef WEFT_AGG_AGG_H
#define WEFT_AGG_AGG_H

#include "wire/weft_wire.h"

#define WEFT_AGG_INLINE static inline __attribute__((always_inline))

/* Each member is one bit of a 64-bit word. */
enum { WEFT_AGG_MEMBERS_MAX = 64 };

/* Mask an index that is already below `count` (a power of two). The kernel's verifier needs the
 * mask, because it loses the result of a comparison made in another register. The compiler would
 * remove a plain mask. */
WEFT_AGG_INLINE uint32_t weft_agg_within(uint32_t index, uint32_t count)
{
#ifdef __bpf__
    __asm__ volatile("" : "+r"(index));
#endif
    return index & (count - 1);
}

enum weft_agg_policy {
    /* Acknowledged when the server has the sum: if the box fails, nothing is lost. If it fails
     * after the server added the sum and before the ACK, workers send the same packets directly,
     * and they are added twice unless the server receives the packet numbers with the sum. The XDP
     * box has no component yet that sends them. */
    WEFT_AGG_ON_COMMIT,
    WEFT_AGG_ON_APPLY, /* acknowledged when added: if the box fails, both of its sets are lost */
};

struct weft_agg_config {
    uint64_t members;     /* bit i: member i takes part in dense sums, and may send rows. Changes
                           * only together with dense_epoch */
    uint32_t dense_epoch; /* a slot of another epoch is reset when a packet of this epoch arrives */
    uint32_t slots;       /* dense slots in use */
    uint32_t banks;       /* banks of hot rows in use */
    uint16_t job;         /* packets of another job are dropped */
    uint8_t form;         /* WEFT_AGG_FLOAT32, or 0 for int32 */
    int8_t exponent;      /* of dense values, fixed for the epoch; 0 with float32 */
};

/* The outcome of a packet. Each packet has exactly one. */
enum weft_agg_verdict {
    WEFT_AGG_MALFORMED, /* dropped: not a valid packet from a worker */
    WEFT_AGG_FOREIGN,   /* dropped: another job, or an unknown member, slot or bank */

    /* Dense slots. */
    WEFT_AGG_EPOCH,    /* dropped: epoch differs from the epoch of the box */
    WEFT_AGG_STALE,    /* dropped: an earlier round; a delayed duplicate */
    WEFT_AGG_EARLY,    /* dropped: the round two before it is not complete, so no correct member
                        * sends this */
    WEFT_AGG_SUMMED,   /* added; the round is not complete */
    WEFT_AGG_WAITING,  /* duplicate of an added packet; the round is not complete: no reply */
    WEFT_AGG_COMPLETE, /* the last packet of the round: the result goes to all members */
    WEFT_AGG_RESULT,   /* duplicate, the round is complete: the result goes to its sender */

    /* Hot rows: the reply to each is an ACK of the window, except for AHEAD and PASSED. */
    WEFT_AGG_ADDED,
    WEFT_AGG_AGAIN,          /* duplicate: not added again */
    WEFT_AGG_PASSED,         /* dropped: below the window; its sender already knows the outcome */
    WEFT_AGG_AHEAD,          /* dropped: above the window */
    WEFT_AGG_REFUSED_EPOCH,  /* of another hot set */
    WEFT_AGG_REFUSED_FORM,   /* no such block, or the exponent or number format differs */
    WEFT_AGG_REFUSED_CLOSED, /* the bank accepts no packets: it drains before an epoch ends */
    WEFT_AGG_REFUSED_RANGE,  /* a sum would overflow, or a float is not finite */

    WEFT_AGG_VERDICTS,
};

enum { WEFT_AGG_VERDICTS_ROOM = 32 }; /* a power of two */

_Static_assert((int)WEFT_AGG_VERDICTS <= (int)WEFT_AGG_VERDICTS_ROOM,
               "every verdict has a counter");

enum weft_agg_action { WEFT_AGG_DROP, WEFT_AGG_ANSWER, WEFT_AGG_ANSWER_ALL };

struct weft_agg_outcome {
    uint8_t verdict; /* enum weft_agg_verdict */
    uint8_t action;  /* enum weft_agg_action */
};

/* Cumulative. In the kernel there is one struct per CPU. */
struct weft_agg_counts {
    uint64_t packets[WEFT_AGG_VERDICTS_ROOM]; /* by verdict */
    uint64_t values;                          /* added to a sum, or starting one */
    uint64_t voided; /* dense rounds whose sum cannot be used: members send their values directly to
                      * the server */
};

WEFT_AGG_INLINE void weft_agg_count(struct weft_agg_counts *counts, uint8_t verdict)
{
    counts->packets[weft_agg_within(verdict, WEFT_AGG_VERDICTS_ROOM)]++;
}

#endif
