/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The receive window of one worker at one bank: 256 numbers from a base that is a multiple of 64,
 * with four bits each: whether a packet with that number was received, whether it was refused, and,
 * for each of the two sets of sums, whether it is in that set and not committed by the server yet.
 *
 * Only the worker advances the base (`from`: all lower numbers are settled). The box therefore
 * keeps the state of a packet until its sender knows it, and a lost acknowledgement can be
 * requested again. A number below the base is a delayed duplicate and is dropped.
 *
 * A refused packet is marked as received, too. Its sender sends its rows directly to the server, so
 * a duplicate that arrives later, when there is room, must not be added.
 */
#ifndef WEFT_AGG_WINDOW_H
#define WEFT_AGG_WINDOW_H

#include "agg/agg.h"

struct weft_agg_window {
    uint32_t base;
    uint32_t reserved; /* zero */
    uint64_t came[WEFT_AGG_WINDOW_WORDS];
    uint64_t refused[WEFT_AGG_WINDOW_WORDS]; /* subset of `came` */
    uint64_t held[2][WEFT_AGG_WINDOW_WORDS]; /* subset of `came`: in that set of sums, not
                                              * committed */
};

enum weft_agg_window_state {
    WEFT_AGG_WINDOW_NEW,
    WEFT_AGG_WINDOW_OLD,
    WEFT_AGG_WINDOW_PASSED,
    WEFT_AGG_WINDOW_AHEAD
};

/* Number n is bit n % 64 of word (n / 64) % 4: a ring, so moving the base moves no bits. */
static inline uint32_t weft_agg_window_word(uint32_t number)
{
    return (number >> 6) & (WEFT_AGG_WINDOW_WORDS - 1);
}

static inline uint64_t weft_agg_window_bit(uint32_t number)
{
    return UINT64_C(1) << (number & 63);
}

/* Advance the window: the worker has settled all numbers below `from`. The base stays below a word
 * of which a packet is missing or not committed. */
static inline void weft_agg_window_advance(struct weft_agg_window *w, uint32_t from)
{
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        uint32_t word = weft_agg_window_word(w->base);
        uint64_t settled = w->came[word] & ~w->held[0][word] & ~w->held[1][word];
        if ((int32_t)(from - w->base) < 64 || settled != UINT64_MAX) {
            break;
        }
        w->came[word] = 0;
        w->refused[word] = 0;
        w->base += 64;
    }
}

static inline enum weft_agg_window_state weft_agg_window_look(const struct weft_agg_window *w,
                                                              uint32_t number)
{
    uint32_t above = number - w->base;
    if (above >= WEFT_AGG_WINDOW) {
        return (int32_t)above < 0 ? WEFT_AGG_WINDOW_PASSED : WEFT_AGG_WINDOW_AHEAD;
    }
    bool came = (w->came[weft_agg_window_word(number)] & weft_agg_window_bit(number)) != 0;
    return came ? WEFT_AGG_WINDOW_OLD : WEFT_AGG_WINDOW_NEW;
}

static inline void weft_agg_window_refuse(struct weft_agg_window *w, uint32_t number)
{
    uint32_t word = weft_agg_window_word(number);
    w->came[word] |= weft_agg_window_bit(number);
    w->refused[word] |= weft_agg_window_bit(number);
}

/* hold: the set that contains the packet must be committed first. */
static inline void weft_agg_window_take(struct weft_agg_window *w, uint32_t number, bool hold,
                                        uint32_t set)
{
    uint32_t word = weft_agg_window_word(number);
    w->came[word] |= weft_agg_window_bit(number);
    if (hold) {
        w->held[weft_agg_within(set, 2)][word] |= weft_agg_window_bit(number);
    }
}

/* The set is committed or abandoned. In the second case its packets are refused retroactively. */
static inline void weft_agg_window_settle(struct weft_agg_window *w, uint32_t set, bool committed)
{
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        if (!committed) {
            w->refused[i] |= w->held[weft_agg_within(set, 2)][i];
        }
        w->held[weft_agg_within(set, 2)][i] = 0;
    }
}

/* Content of an ACK: bits in order of number, starting at the base. */
struct weft_agg_ack {
    uint32_t base;
    uint64_t added[WEFT_AGG_WINDOW_WORDS];   /* added, and committed if the policy requires it */
    uint64_t refused[WEFT_AGG_WINDOW_WORDS]; /* not added, and never will be: send them directly to
                                              * the server */
};

static inline void weft_agg_window_ack(const struct weft_agg_window *w, struct weft_agg_ack *ack_p)
{
    ack_p->base = w->base;
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        uint32_t word = (weft_agg_window_word(w->base) + i) & (WEFT_AGG_WINDOW_WORDS - 1);
        uint64_t open = w->held[0][word] | w->held[1][word] | w->refused[word];
        ack_p->added[i] = w->came[word] & ~open;
        ack_p->refused[i] = w->refused[word];
    }
}

#endif
