/* Records which of the latest RPCs of a worker are closed, by rpc_id. Ids are consecutive. An id
 * below the window counts as closed, because a worker has far fewer open RPCs. */
#ifndef WEFT_RPC_WINDOW_H
#define WEFT_RPC_WINDOW_H

#include "base/bits.h"

enum { WEFT_RPC_WINDOW = 1024 };

struct weft_rpc_window {
    uint32_t newest; /* largest id marked, modulo 2^32; 0 = none yet */
    uint64_t closed[WEFT_RPC_WINDOW / 64];
};

static inline bool weft_rpc_window_test(const struct weft_rpc_window *window, uint32_t id)
{
    int32_t ahead = (int32_t)(id - window->newest);
    if (window->newest == 0 || ahead > 0) {
        return false;
    }
    return ahead <= -WEFT_RPC_WINDOW || weft_bits_test(window->closed, id % WEFT_RPC_WINDOW);
}

static inline void weft_rpc_window_mark(struct weft_rpc_window *window, uint32_t id)
{
    int32_t ahead = window->newest == 0 ? WEFT_RPC_WINDOW : (int32_t)(id - window->newest);
    if (ahead <= -WEFT_RPC_WINDOW) {
        return;
    }
    for (int32_t i = 0; i < ahead && i < WEFT_RPC_WINDOW; i++) {
        weft_bits_clear(window->closed, (id - (uint32_t)i) % WEFT_RPC_WINDOW);
    }
    window->newest = ahead > 0 ? id : window->newest;
    weft_bits_set(window->closed, id % WEFT_RPC_WINDOW);
}

#endif
