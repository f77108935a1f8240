/* The pacer: a token bucket at the congestion controller's rate (pacer.c). Internal to src/core. */
#ifndef WEFT_CORE_PACER_H
#define WEFT_CORE_PACER_H

#include "core/limits.h"

struct peer;
struct weft_ep;

struct pacer {
    int64_t tokens_bytes;          /* in the bucket; below 0: it owes */
    uint64_t tokens_ns;            /* last refilled */
    uint64_t until_ns;             /* it keeps the peer until */
};

/* Empty, and filling from now on. */
static inline void pacer_restart(struct pacer *c, uint64_t now_ns)
{
    c->tokens_bytes = 0;
    c->tokens_ns = now_ns;
}
/* It is asked again: it does not keep the peer until then. */
static inline void pacer_wake(struct pacer *c)
{
    c->until_ns = WEFT_NEVER;
}
/* A packet was sent; without a rate none is counted. */
static inline void pacer_spend(struct pacer *c, uint64_t rate_bps, uint32_t bytes)
{
    c->tokens_bytes -= rate_bps == 0 ? 0 : bytes;
}

void weft_core_pacer_refill(struct peer *p, uint64_t now_ns);
/* May a packet of so many bytes go now? If not, the peer's pacer wakes when it may. */
bool weft_core_pacer_allows(struct peer *p, uint32_t bytes, uint64_t now_ns);
uint64_t weft_core_time_of(uint64_t rate_bps, uint64_t bytes);

#endif
