/* The window of closed pushes of one worker to one table of one shard. It ensures that a push that
 * is resent, over a new connection or to a restored server, is applied once.
 *
 * A worker numbers its pushes to each table of each shard from 1. The tag carries the number's low
 * byte, so that it is known before chunk 0 arrives. The byte is sufficient, because a worker keeps
 * its outstanding numbers within WEFT_PUSH_WINDOW_SPAN of the oldest. 0 is no number.
 *
 * Numbers older than the window count as closed, which the span above guarantees.
 *
 * Source: docs/PROTOCOL.md section 7, "Resending".
 */
#ifndef WEFT_PS_PUSH_WINDOW_H
#define WEFT_PS_PUSH_WINDOW_H

#include "base/bits.h"
#include "rpc/head.h"

enum { WEFT_PUSH_WINDOW_SIZE = 1024, WEFT_PUSH_WINDOW_SPAN = 100 };

struct weft_push_window {
    uint64_t newest; /* largest number that was opened or closed; 0 = none */
    uint64_t closed[WEFT_PUSH_WINDOW_SIZE / 64];
    uint32_t clock; /* the last clock for which a chunk was applied */
    uint32_t reserved;
};

/* The number nearest to `newest` with this low byte. */
static inline uint64_t weft_push_window_number(const struct weft_push_window *window, uint8_t low)
{
    int8_t ahead = (int8_t)(low - (uint8_t)window->newest);
    return ahead < 0 && window->newest < (uint64_t)-ahead ? low : window->newest + (uint64_t)ahead;
}

/* The same with its low 32 bits; 0 = there is no such number. */
static inline uint64_t weft_push_window_number_of(const struct weft_push_window *window,
                                                  uint32_t low)
{
    int32_t ahead = (int32_t)(low - (uint32_t)window->newest);
    return ahead < 0 && window->newest < (uint64_t) - (int64_t)ahead
               ? low
               : window->newest + (uint64_t)(int64_t)ahead;
}

static inline void weft_push_window_open(struct weft_push_window *window, uint64_t number)
{
    for (uint64_t n = window->newest + 1;
         n <= number && n <= window->newest + WEFT_PUSH_WINDOW_SIZE; n++) {
        weft_bits_clear(window->closed, n % WEFT_PUSH_WINDOW_SIZE);
    }
    window->newest = number > window->newest ? number : window->newest;
}

static inline bool weft_push_window_test(const struct weft_push_window *window, uint64_t number)
{
    return number <= window->newest &&
           (window->newest - number >= WEFT_PUSH_WINDOW_SIZE ||
            weft_bits_test(window->closed, number % WEFT_PUSH_WINDOW_SIZE));
}

static inline void weft_push_window_close(struct weft_push_window *window, uint64_t number)
{
    weft_push_window_open(window, number);
    if (window->newest - number < WEFT_PUSH_WINDOW_SIZE) {
        weft_bits_set(window->closed, number % WEFT_PUSH_WINDOW_SIZE);
    }
}

/* The largest number up to which all are closed. */
static inline uint64_t weft_push_window_prefix(const struct weft_push_window *window)
{
    uint64_t number =
        window->newest < WEFT_PUSH_WINDOW_SIZE ? 0 : window->newest - WEFT_PUSH_WINDOW_SIZE + 1;
    number = number > 0 ? number - 1 : 0;
    while (number < window->newest && weft_push_window_test(window, number + 1)) {
        number++;
    }
    return number;
}

/* The same window as it is sent to the peer. */
static inline struct weft_rpc_pushes weft_push_window_pushes(const struct weft_push_window *window)
{
    struct weft_rpc_pushes pushes = {.newest = window->newest};
    for (uint64_t back = 0; back < WEFT_RPC_PUSHES_BITS && back < window->newest; back++) {
        uint64_t bit = weft_push_window_test(window, window->newest - back);
        pushes.closed[back / 64] |= bit << back % 64;
    }
    return pushes;
}

#endif
