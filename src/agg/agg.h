/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * What the parts of an aggregation box share: its configuration, and what became of each packet.
 *
 * src/agg is one source for three places: the kernel's program (bpf/aggregate.bpf.c), a host process
 * and the simulator. Its headers are freestanding: no C library, no memory of their own, no clock.
 * The caller owns the state and sees to it that one thread at a time has a slot or a bank; in the
 * kernel that is a spin lock in front of each.
 *
 * docs/AGGREGATION.md explains it; docs/PROTOCOL.md section 12 has the packets.
 */
#ifndef WEFT_AGG_AGG_H
#define WEFT_AGG_AGG_H

#include "wire/weft_wire.h"

#define WEFT_AGG_INLINE static inline __attribute__((always_inline))

/* A member is a bit of a word. */
enum { WEFT_AGG_MEMBERS_MAX = 64 };

/* index, which is below `count` (a power of two) already: said once more for the kernel's verifier,
 * which forgets what was compared in another register. The compiler would drop the mask. */
WEFT_AGG_INLINE uint32_t weft_agg_within(uint32_t index, uint32_t count)
{
#ifdef __bpf__
    __asm__ volatile("" : "+r"(index));
#endif
    return index & (count - 1);
}

enum weft_agg_policy {
    /* Acknowledged when the server has the sum: a box that dies loses nothing. Where it dies after the
     * server added the sum and before the ACK, workers send the same packets direct: they are added
     * twice, unless the server gets the numbers of the packets with the sum. The XDP box has nobody
     * yet who would send them. */
    WEFT_AGG_ON_COMMIT,
    WEFT_AGG_ON_APPLY, /* acknowledged when added: a box that dies loses what both sets held */
};

struct weft_agg_config {
    uint64_t members;     /* bit i: member i takes part in dense sums, and may send rows.
                           * Changes only together with dense_epoch */
    uint32_t dense_epoch; /* slots of another epoch start anew when a packet of this one comes */
    uint32_t slots;       /* dense slots in use */
    uint32_t banks;       /* banks of hot rows in use */
    uint16_t job;         /* packets of another one are dropped */
    uint8_t form;         /* WEFT_AGG_FLOAT32, or 0 for int32 */
    int8_t exponent;      /* of dense values, fixed for the epoch; 0 with float32 */
};

/* What a packet came to. Each packet has exactly one. */
enum weft_agg_verdict {
    WEFT_AGG_MALFORMED, /* dropped: not a packet that a worker may send */
    WEFT_AGG_FOREIGN,   /* dropped: another job, no such member, slot or bank */

    /* Dense slots. */
    WEFT_AGG_EPOCH,    /* dropped: not the epoch of the box */
    WEFT_AGG_STALE,    /* dropped: an earlier round; a duplicate that was delayed */
    WEFT_AGG_EARLY,    /* dropped: the round before it is not complete, so nobody may send this */
    WEFT_AGG_SUMMED,   /* added; others are missing */
    WEFT_AGG_WAITING,  /* duplicate of one that was added; others are missing: no answer */
    WEFT_AGG_COMPLETE, /* the last one: the result goes to all */
    WEFT_AGG_RESULT,   /* duplicate, the round is complete: the result goes to its sender */

    /* Hot rows: each is answered with the window, except AHEAD and PASSED. */
    WEFT_AGG_ADDED,
    WEFT_AGG_AGAIN,          /* duplicate: not added again */
    WEFT_AGG_PASSED,         /* dropped: before the window; its sender knows what became of it */
    WEFT_AGG_AHEAD,          /* dropped: beyond the window */
    WEFT_AGG_REFUSED_EPOCH,  /* of another hot set */
    WEFT_AGG_REFUSED_FORM,   /* no such block, or exponent or number format differ */
    WEFT_AGG_REFUSED_CLOSED, /* the bank takes nothing: it drains before an epoch ends */
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

/* Cumulative. In the kernel one for each processor. */
struct weft_agg_counts {
    uint64_t packets[WEFT_AGG_VERDICTS_ROOM]; /* by verdict */
    uint64_t values;                          /* added to a sum, or begun one */
    uint64_t voided; /* dense rounds whose sum cannot be used: members send their values direct */
};

WEFT_AGG_INLINE void weft_agg_count(struct weft_agg_counts *counts, uint8_t verdict)
{
    counts->packets[weft_agg_within(verdict, WEFT_AGG_VERDICTS_ROOM)]++;
}

#endif
