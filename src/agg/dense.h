/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * A dense slot: sums the values that all members send for it, in consecutive rounds.
 *
 * A slot has two sets, for even and odd rounds. A member sends its values for round r + 1 after it
 * received the result of round r. When the first packet of round r + 2 arrives, every member
 * therefore has the result of round r, and its set can be reused. Until then a member that lost the
 * result of round r can request it.
 *
 *   round of the packet   the set is                it is
 *   the set's             missing the member        added; the last one sends the result to all
 *   the set's             holding the member        duplicate: the result if complete, else nothing
 *   the set's + 2         complete                  the first of its round: replaces the sum
 *   the set's + 2         not complete              dropped: no member may have sent it
 *   lower                                           dropped: a delayed duplicate
 *   higher than + 2                                 dropped: no member may have sent it
 *
 * SwitchML has one bit instead of the round number, so it mistakes a duplicate delayed by two
 * rounds for a new packet and adds it again. The round number prevents that.
 *
 * A value that cannot be added (overflow, another exponent, another count) makes the round void:
 * the packet counts towards completion, the result has the flag DIRECT, and every member sends its
 * values directly to the server.
 *
 * Exponents are those of the epoch, or, in packets with the flag AGREED, of the round: each packet
 * names the exponent that its sender needs for its next values, and the sum has the largest of
 * them, with which all members then send these. The box takes a round's exponent from its first
 * packet.
 *
 * Rounds of an epoch begin at 0. They are compared modulo 2^32.
 *
 * Source: SwitchML (Sapio et al., NSDI 2021), the switch with packet loss; differs as described
 *          above.
 */
#ifndef WEFT_AGG_DENSE_H
#define WEFT_AGG_DENSE_H

#include "agg/add.h"
#include "agg/agg.h"

struct weft_agg_dense_set {
    uint64_t members; /* members whose values are in the sum; 0: the round has not begun */
    uint32_t round;
    uint16_t count;                     /* number of values in this round, set by its first
                                         * packet */
    uint8_t is_void;                    /* the sum must not be used */
    uint8_t form;        /* flags of the round's first packet; also the next field, with AGREED */
    int8_t exponent;     /* of the round */
    int8_t next;         /* the largest that a packet of the round has named */
    uint8_t reserved[6]; /* zero */
    uint32_t sums[WEFT_AGG_VALUES_MAX]; /* int32 in two's complement, or floats */
};

struct weft_agg_dense {
    uint32_t epoch;
    uint32_t begun; /* zero: nothing has been received for this slot, regardless of `epoch` */
    struct weft_agg_dense_set sets[2];
};

_Static_assert(sizeof(struct weft_agg_dense) == 8 + 2 * (24 + 4 * WEFT_AGG_VALUES_MAX),
               "one layout");

WEFT_AGG_INLINE struct weft_agg_outcome weft_agg_outcome(uint8_t verdict, uint8_t action)
{
    return (struct weft_agg_outcome){.verdict = verdict, .action = action};
}

WEFT_AGG_INLINE void weft_agg_dense_begin_round(struct weft_agg_dense_set *set, uint32_t round)
{
    set->members = 0;
    set->round = round;
    set->is_void = 0;
    set->next = WEFT_AGG_EXPONENT_MIN;
}

WEFT_AGG_INLINE void weft_agg_dense_begin_epoch(struct weft_agg_dense *slot, uint32_t epoch)
{
    slot->epoch = epoch;
    slot->begun = 1;
    for (uint32_t i = 0; i < 2; i++) {
        weft_agg_dense_begin_round(&slot->sets[i], i);
    }
}

/* Add to the sum of the set, or start it. Returns true if the values could not be added. */
WEFT_AGG_INLINE bool weft_agg_dense_sum(struct weft_agg_dense_set *set,
                                        const struct weft_agg_config *config,
                                        const struct weft_wire_agg *packet, const uint8_t *values,
                                        const uint8_t *end)
{
    bool first = set->members == 0;
    bool agreed = packet->flags == WEFT_AGG_AGREED;
    if (first) {
        set->count = packet->count;
        set->form = packet->flags;
        set->exponent = agreed ? packet->exponent : config->exponent;
    }
    if (packet->count != set->count || packet->exponent != set->exponent ||
        packet->flags != set->form || config->form != (agreed ? 0 : packet->flags)) {
        return true;
    }
#ifdef __bpf__
    /* Floats are not supported here: their bits would be added as integers. */
    if (config->form != 0) {
        return true;
    }
#else
    if (config->form == WEFT_AGG_FLOAT32) {
        uint32_t bad = first ? weft_agg_real_check(values, packet->count)
                             : weft_agg_real_try(set->sums, values, packet->count);
        if (bad != 0) {
            return true;
        }
        if (!first) {
            weft_agg_real_add(set->sums, values, packet->count);
            return false;
        }
    }
#endif
    if (first) {
        weft_agg_set(set->sums, values, end, packet->count, WEFT_AGG_VALUES_MAX);
        return false;
    }
    return weft_agg_add(set->sums, values, end, packet->count, WEFT_AGG_VALUES_MAX) >> 31;
}

/* Process a DENSE packet from a configured member, for this slot and the current epoch.
 *
 * Owns:    borrows values until return. Thread: the holder of the slot's lock.
 * Gives:   ANSWER and ANSWER_ALL: send weft_agg_dense_answer's packet. */
WEFT_AGG_INLINE struct weft_agg_outcome
weft_agg_dense_receive(struct weft_agg_dense *slot, const struct weft_agg_config *config,
                       const struct weft_wire_agg *packet, const uint8_t *values,
                       const uint8_t *end, struct weft_agg_counts *counts)
{
    if (packet->epoch != config->dense_epoch) {
        return weft_agg_outcome(WEFT_AGG_EPOCH, WEFT_AGG_DROP);
    }
    if (!slot->begun || slot->epoch != packet->epoch) {
        weft_agg_dense_begin_epoch(slot, packet->epoch);
    }
    struct weft_agg_dense_set *set = &slot->sets[packet->number & 1];
    uint64_t bit = UINT64_C(1) << (weft_agg_within(packet->member, WEFT_AGG_MEMBERS_MAX));
    int32_t later = (int32_t)(packet->number - set->round);
    if (later < 0) {
        return weft_agg_outcome(WEFT_AGG_STALE, WEFT_AGG_DROP);
    }
    if (later > 0) {
        if (later != 2 || set->members != config->members) {
            return weft_agg_outcome(WEFT_AGG_EARLY, WEFT_AGG_DROP);
        }
        weft_agg_dense_begin_round(set, packet->number);
    }
    if (set->members & bit) {
        return set->members == config->members ? weft_agg_outcome(WEFT_AGG_RESULT, WEFT_AGG_ANSWER)
                                               : weft_agg_outcome(WEFT_AGG_WAITING, WEFT_AGG_DROP);
    }
    if (packet->flags == WEFT_AGG_AGREED && packet->next > set->next) {
        set->next = packet->next;
    }
    if (!set->is_void) {
        if (weft_agg_dense_sum(set, config, packet, values, end)) {
            set->is_void = 1;
            counts->voided++;
        } else {
            counts->values += packet->count;
        }
    }
    set->members |= bit;
    return set->members == config->members
               ? weft_agg_outcome(WEFT_AGG_COMPLETE, WEFT_AGG_ANSWER_ALL)
               : weft_agg_outcome(WEFT_AGG_SUMMED, WEFT_AGG_DROP);
}

/* Write the result of a round over the packet that requested it: the head in *packet (`member`
 * remains the sender), the sums at values. The lengths do not change. */
WEFT_AGG_INLINE void weft_agg_dense_answer(const struct weft_agg_dense *slot,
                                           const struct weft_agg_config *config,
                                           struct weft_wire_agg *packet, uint8_t *values,
                                           const uint8_t *end)
{
    const struct weft_agg_dense_set *set = &slot->sets[packet->number & 1];
    bool agreed = set->form == WEFT_AGG_AGREED;
    packet->kind = WEFT_AGG_SUM;
    packet->exponent = agreed ? set->exponent : config->exponent;
    packet->flags = agreed ? WEFT_AGG_AGREED : config->form;
    packet->next = agreed ? set->next : 0;
    if (set->is_void || set->count != packet->count) {
        packet->flags |= WEFT_AGG_DIRECT;
        return;
    }
    weft_agg_get(set->sums, values, end, packet->count, WEFT_AGG_VALUES_MAX);
}

#endif
