/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The receive window of one worker at one bank: 256 numbers from a base that is a multiple of 64, and
 * for each whether a packet with that number came, whether it was refused, and whether the sum that it
 * is in is still on its way to the server.
 *
 * The base moves when the worker says so (`from`: all below are settled), never by itself. So the box
 * forgets what became of a packet only when its sender knows it, and an acknowledgement that is
 * lost can be asked for again. A number below the base is a delayed duplicate and is dropped.
 *
 * A refused packet is marked, too. Its sender sends those rows to the server itself; a
 * duplicate that arrives later, when there would be room, must not be added as well.
 */
#ifndef WEFT_AGG_WINDOW_H
#define WEFT_AGG_WINDOW_H

#include "agg/agg.h"

struct weft_agg_window {
    uint32_t base;
    uint32_t reserved; /* zero */
    uint64_t came[WEFT_AGG_WINDOW_WORDS];
    uint64_t refused[WEFT_AGG_WINDOW_WORDS]; /* among came */
    uint64_t held[2][WEFT_AGG_WINDOW_WORDS]; /* among came: in that set of sums, not committed */
};

enum weft_agg_place {
    WEFT_AGG_PLACE_NEW,
    WEFT_AGG_PLACE_OLD,
    WEFT_AGG_PLACE_PASSED,
    WEFT_AGG_PLACE_AHEAD
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

/* Numbers below `from` are settled at the worker. Words of which the box knows otherwise stay. */
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

static inline enum weft_agg_place weft_agg_window_look(const struct weft_agg_window *w,
                                                       uint32_t number)
{
    uint32_t above = number - w->base;
    if (above >= WEFT_AGG_WINDOW) {
        return (int32_t)above < 0 ? WEFT_AGG_PLACE_PASSED : WEFT_AGG_PLACE_AHEAD;
    }
    bool came = (w->came[weft_agg_window_word(number)] & weft_agg_window_bit(number)) != 0;
    return came ? WEFT_AGG_PLACE_OLD : WEFT_AGG_PLACE_NEW;
}

static inline void weft_agg_window_refuse(struct weft_agg_window *w, uint32_t number)
{
    uint32_t word = weft_agg_window_word(number);
    w->came[word] |= weft_agg_window_bit(number);
    w->refused[word] |= weft_agg_window_bit(number);
}

/* hold: the set of sums that it went into has to be committed first. */
static inline void weft_agg_window_take(struct weft_agg_window *w, uint32_t number, bool hold,
                                        uint32_t set)
{
    uint32_t word = weft_agg_window_word(number);
    w->came[word] |= weft_agg_window_bit(number);
    if (hold) {
        w->held[weft_agg_within(set, 2)][word] |= weft_agg_window_bit(number);
    }
}

/* The set is committed, or given up: then its packets are refused after the fact. */
static inline void weft_agg_window_settle(struct weft_agg_window *w, uint32_t set, bool committed)
{
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        if (!committed) {
            w->refused[i] |= w->held[weft_agg_within(set, 2)][i];
        }
        w->held[weft_agg_within(set, 2)][i] = 0;
    }
}

/* What an ACK says: bits in order of number, from the base on. */
struct weft_agg_ack {
    uint32_t base;
    uint64_t added[WEFT_AGG_WINDOW_WORDS];   /* added, and committed where that is waited for */
    uint64_t refused[WEFT_AGG_WINDOW_WORDS]; /* not added, and never will be: send them direct */
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
