/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Decides when the sums of a bank are sent to the server. A pure function of its arguments; the
 * first reason that applies is returned.
 *
 *   EPOCH       the hot set changes: sums of the old set must be flushed
 *   CHECKPOINT  the server writes a checkpoint, or requests all sums
 *   CLOCK       a member ended its clock: the server must receive its updates before its CLOCK
 *   PRESSURE    packets were refused because a sum would overflow
 *   COUNT       packets_max is reached
 *   AGE         the oldest packet is at least age_ns_max old
 *
 * A bank cannot be flushed while its other set is being committed: the result is BLOCKED, and the
 * caller asks again when the set is committed.
 */
#ifndef WEFT_AGG_FLUSH_H
#define WEFT_AGG_FLUSH_H

#include "agg/agg.h"

enum weft_agg_flush {
    WEFT_AGG_FLUSH_NONE,
    WEFT_AGG_FLUSH_EPOCH,
    WEFT_AGG_FLUSH_CHECKPOINT,
    WEFT_AGG_FLUSH_CLOCK,
    WEFT_AGG_FLUSH_MEMORY,
    WEFT_AGG_FLUSH_COUNT,
    WEFT_AGG_FLUSH_AGE,
    WEFT_AGG_FLUSH_BLOCKED,
};

struct weft_agg_flush_rules {
    uint32_t packets_max; /* 0: disabled */
    uint64_t age_ns_max;  /* UINT64_MAX: disabled */
};

struct weft_agg_flush_state {
    uint64_t first_ns; /* arrival of the first packet of the active set */
    uint32_t packets;  /* in the active set */
    uint32_t refused;  /* REFUSED_RANGE since the last flush */
    bool draining;     /* the other set was sent and is not committed yet */
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
        why = WEFT_AGG_FLUSH_MEMORY;
    } else if (rules->packets_max != 0 && state->packets >= rules->packets_max) {
        why = WEFT_AGG_FLUSH_COUNT;
    } else if (now_ns >= state->first_ns && now_ns - state->first_ns >= rules->age_ns_max) {
        why = WEFT_AGG_FLUSH_AGE;
    }
    return why != WEFT_AGG_FLUSH_NONE && state->draining ? WEFT_AGG_FLUSH_BLOCKED : why;
}

/* Time at which AGE applies; UINT64_MAX: never, or not before the other set is committed. */
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
