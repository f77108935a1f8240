/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * When the sums of a bank go to the server: a decision from what is known, no action. The first reason
 * that holds is the one that is named.
 *
 *   EPOCH       the hot set changes: nothing of the old one may stay
 *   CHECKPOINT  the server writes one, or asks for all
 *   CLOCK       a member ended its clock: the server must have its updates before it has its CLOCK
 *   PRESSURE    packets were refused because a sum would overflow
 *   COUNT       as many packets as were asked for
 *   AGE         the oldest packet has waited for so long
 *
 * A bank whose other set is still with the server cannot be flushed: BLOCKED, and the reason waits.
 */
#ifndef WEFT_AGG_FLUSH_H
#define WEFT_AGG_FLUSH_H

#include "agg/agg.h"

enum weft_agg_flush {
    WEFT_AGG_FLUSH_NONE,
    WEFT_AGG_FLUSH_EPOCH,
    WEFT_AGG_FLUSH_CHECKPOINT,
    WEFT_AGG_FLUSH_CLOCK,
    WEFT_AGG_FLUSH_PRESSURE,
    WEFT_AGG_FLUSH_COUNT,
    WEFT_AGG_FLUSH_AGE,
    WEFT_AGG_FLUSH_BLOCKED,
};

struct weft_agg_flush_rules {
    uint32_t packets_max; /* 0: no such rule */
    uint64_t age_ns_max;  /* UINT64_MAX: no such rule */
};

struct weft_agg_flush_state {
    uint64_t first_ns; /* when the first packet of the active set came */
    uint32_t packets;  /* in the active set */
    uint32_t refused;  /* REFUSED_RANGE since the last flush */
    bool draining;     /* the other set is with the server */
    bool epoch_ends;
    bool checkpoint;
    bool clock;
};

static inline enum weft_agg_flush weft_agg_flush_decide(const struct weft_agg_flush_rules *rules,
                                                        const struct weft_agg_flush_state *state,
                                                        uint64_t now_ns)
{
    enum weft_agg_flush why = WEFT_AGG_FLUSH_NONE;
    if (state->packets == 0) {
        return why;
    }
    if (state->epoch_ends) {
        why = WEFT_AGG_FLUSH_EPOCH;
    } else if (state->checkpoint) {
        why = WEFT_AGG_FLUSH_CHECKPOINT;
    } else if (state->clock) {
        why = WEFT_AGG_FLUSH_CLOCK;
    } else if (state->refused > 0) {
        why = WEFT_AGG_FLUSH_PRESSURE;
    } else if (rules->packets_max != 0 && state->packets >= rules->packets_max) {
        why = WEFT_AGG_FLUSH_COUNT;
    } else if (now_ns >= state->first_ns && now_ns - state->first_ns >= rules->age_ns_max) {
        why = WEFT_AGG_FLUSH_AGE;
    }
    return why != WEFT_AGG_FLUSH_NONE && state->draining ? WEFT_AGG_FLUSH_BLOCKED : why;
}

/* When age alone will decide; UINT64_MAX: never, or not before the server has the other set. */
static inline uint64_t weft_agg_flush_deadline(const struct weft_agg_flush_rules *rules,
                                               const struct weft_agg_flush_state *state)
{
    if (state->packets == 0 || state->draining ||
        rules->age_ns_max > UINT64_MAX - state->first_ns) {
        return UINT64_MAX;
    }
    return state->first_ns + rules->age_ns_max;
}

#endif
