/* The pacer: a token bucket at the congestion controller's rate (pacer.c). Internal to src/core. */
#ifndef WEFT_CORE_PACER_H
#define WEFT_CORE_PACER_H

#include "core/limits.h"

struct peer;
struct weft_ep;

struct pacer {
    int64_t tokens_bytes; /* in the bucket; negative = overdrawn */
    uint64_t tokens_ns;   /* time of the last refill */
    uint64_t until_ns;    /* no packet may be sent to the peer before this time; WEFT_NEVER = one
                           * may be sent now */
};

/* Empty the bucket, and refill it from now on. */
static inline void pacer_restart(struct pacer *c, uint64_t now_ns)
{
    c->tokens_bytes = 0;
    c->tokens_ns = now_ns;
}
/* Clear the waiting time, before the next attempt to send. */
static inline void pacer_wake(struct pacer *c)
{
    c->until_ns = WEFT_NEVER;
}
/* A packet was sent: remove its bytes from the bucket. Without a rate, packets are not counted. */
static inline void pacer_spend(struct pacer *c, uint64_t rate_bps, uint32_t bytes)
{
    c->tokens_bytes -= rate_bps == 0 ? 0 : bytes;
}

void weft_core_pacer_refill(struct peer *p, uint64_t now_ns);
/* True if a packet of this length may be sent now. Otherwise sets until_ns to the time when it
 * may be sent. */
bool weft_core_pacer_allows(struct peer *p, uint32_t bytes, uint64_t now_ns);
/* Transmission time of these bytes at this rate. */
uint64_t weft_core_time_of(uint64_t rate_bps, uint64_t bytes);

#endif
