/* Which pushes of one worker to one table of one shard are applied: the window by which a push
 * that is sent again, over a new connection or to a restored server, counts once.
 *
 * A worker numbers its pushes to each table of each shard from 1. The number's low byte travels in
 * the tag, so that it is known before chunk 0 is; a worker keeps the numbers that it has
 * outstanding within WEFT_ONCE_SPAN of the oldest, which makes the byte enough. 0 is no number.
 *
 * Numbers more than the window behind the newest count as closed: with the span above they are.
 *
 * Source: docs/PROTOCOL.md section 7, "Resending".
 */
#ifndef WEFT_PS_ONCE_H
#define WEFT_PS_ONCE_H

#include "base/bits.h"
#include "rpc/head.h"

enum { WEFT_ONCE_WINDOW = 1024, WEFT_ONCE_SPAN = 100 };

struct weft_once {
    uint64_t newest; /* largest number that was opened or closed; 0 = none */
    uint64_t closed[WEFT_ONCE_WINDOW / 64];
    uint32_t clock; /* the last for which a chunk was applied */
    uint32_t reserved;
};

/* The number nearest to `newest` with this low byte. */
static inline uint64_t weft_once_number(const struct weft_once *once, uint8_t low)
{
    int8_t ahead = (int8_t)(low - (uint8_t)once->newest);
    return ahead < 0 && once->newest < (uint64_t)-ahead ? low : once->newest + (uint64_t)ahead;
}

/* The same with its low 32 bits; 0 = there is no such number. */
static inline uint64_t weft_once_number_of(const struct weft_once *once, uint32_t low)
{
    int32_t ahead = (int32_t)(low - (uint32_t)once->newest);
    return ahead < 0 && once->newest < (uint64_t)-(int64_t)ahead
               ? low
               : once->newest + (uint64_t)(int64_t)ahead;
}

static inline void weft_once_open(struct weft_once *once, uint64_t number)
{
    for (uint64_t n = once->newest + 1; n <= number && n <= once->newest + WEFT_ONCE_WINDOW; n++) {
        weft_bits_clear(once->closed, n % WEFT_ONCE_WINDOW);
    }
    once->newest = number > once->newest ? number : once->newest;
}

static inline bool weft_once_test(const struct weft_once *once, uint64_t number)
{
    return number <= once->newest && (once->newest - number >= WEFT_ONCE_WINDOW ||
                                      weft_bits_test(once->closed, number % WEFT_ONCE_WINDOW));
}

static inline void weft_once_close(struct weft_once *once, uint64_t number)
{
    weft_once_open(once, number);
    if (once->newest - number < WEFT_ONCE_WINDOW) {
        weft_bits_set(once->closed, number % WEFT_ONCE_WINDOW);
    }
}

/* The largest number up to which all are closed. */
static inline uint64_t weft_once_prefix(const struct weft_once *once)
{
    uint64_t number = once->newest < WEFT_ONCE_WINDOW ? 0 : once->newest - WEFT_ONCE_WINDOW + 1;
    number = number > 0 ? number - 1 : 0;
    while (number < once->newest && weft_once_test(once, number + 1)) {
        number++;
    }
    return number;
}

/* The same window as it is told to the other end. */
static inline struct weft_rpc_pushes weft_once_pushes(const struct weft_once *once)
{
    struct weft_rpc_pushes pushes = {.newest = once->newest};
    for (uint64_t back = 0; back < WEFT_RPC_PUSHES_BITS && back < once->newest; back++) {
        uint64_t bit = weft_once_test(once, once->newest - back);
        pushes.closed[back / 64] |= bit << back % 64;
    }
    return pushes;
}

#endif
