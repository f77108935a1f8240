/* Fluid model of flows on virtual time: the bandwidth that each of many concurrent transfers gets
 * on its links. There are no packets, queues or losses. The model serves to study schedules at
 * sizes for which the packet level (sim/world.h) is too slow.
 *
 * A flow crosses two links: its source's uplink and its destination's downlink; the switch between
 * them does not block. At every moment
 *
 *   1. ranked flows, lowest rank first, each get the minimum of their limit and the remaining
 *      capacity of their links (a scheduler's grants: the earliest grant keeps its rate);
 *   2. the others share the remaining capacity max-min fairly, none above its limit (idealized
 *      TCP).
 *
 * A flow sends only data that has been released to it, in whole chunks. A cut-through aggregator
 * releases a chunk when it has received it from all its members.
 *
 * Everything is an integer, so a run is the same on every machine. Data is counted in nanobits
 * (10^-9 bit), because a rate in bit/s times a time in ns is a whole number of nanobits. At every
 * change an assertion checks that the sum of the rates on a link is at most its capacity.
 */
#ifndef WEFT_SIM_FLUID_H
#define WEFT_SIM_FLUID_H

#include "base/units.h"

#include <stdbool.h>

#define WEFT_FLUID_NO_LIMIT UINT64_MAX

/* 8 x 10^18 nanobits: the longest flow whose length fits 64 bits with headroom for additions. */
enum { WEFT_FLUID_BYTES_MAX = 1000000000 };

struct weft_fluid;

__extension__ typedef unsigned __int128 weft_fluid_nanobits;

struct weft_fluid_flow {
    uint32_t up;          /* link of its source */
    uint32_t down;        /* link of its destination */
    uint64_t bytes;       /* 1 to WEFT_FLUID_BYTES_MAX */
    uint64_t chunk_bytes; /* events occur at its multiples; 0 = one chunk */
    uint64_t limit_bps;   /* WEFT_FLUID_NO_LIMIT = none; 0 = paused */
    uint64_t rank;        /* 0 = fair sharing */
    uint64_t user;        /* the caller's */
};

struct weft_fluid_event {
    uint32_t flow;
    uint64_t user;
    uint64_t bytes; /* bytes arrived: a multiple of the chunk, or all */
    bool finished;  /* all bytes arrived; the flow no longer exists */
};

/* Running out of memory ends the process. Links start without capacity. */
struct weft_fluid *weft_fluid_new(uint32_t links);
void weft_fluid_free(struct weft_fluid *fluid);

/* Set the capacity of a link that is available to flows, from now on. */
void weft_fluid_set_capacity(struct weft_fluid *fluid, uint32_t link, uint64_t bps);
uint64_t weft_fluid_capacity(const struct weft_fluid *fluid, uint32_t link);

/* Start a flow with `released` bytes released. Its number is valid until it has finished. */
uint32_t weft_fluid_start(struct weft_fluid *fluid, const struct weft_fluid_flow *flow,
                          uint64_t released);
/* Set the total number of released bytes; it must not decrease. */
void weft_fluid_release(struct weft_fluid *fluid, uint32_t flow, uint64_t bytes);
void weft_fluid_limit(struct weft_fluid *fluid, uint32_t flow, uint64_t limit_bps, uint64_t rank);
/* Stop a flow now; the data that it has sent stays counted. */
void weft_fluid_stop(struct weft_fluid *fluid, uint32_t flow);

/* Current rate in bit/s. */
uint64_t weft_fluid_rate(struct weft_fluid *fluid, uint32_t flow);
/* Whole bytes not sent yet. */
uint64_t weft_fluid_left(const struct weft_fluid *fluid, uint32_t flow);

/* Time at which the next chunk of any flow completes if nothing changes; WEFT_NEVER = none. */
uint64_t weft_fluid_next_ns(struct weft_fluid *fluid);
/* Advance time to now_ns, which is at most weft_fluid_next_ns. Then poll the events. */
void weft_fluid_advance(struct weft_fluid *fluid, uint64_t now_ns);
/* Get the next event, in the order in which flows were started. */
bool weft_fluid_poll(struct weft_fluid *fluid, struct weft_fluid_event *event_p);

/* Totals in nanobits: data that flows sent over the link, and its capacity over time. */
weft_fluid_nanobits weft_fluid_carried(const struct weft_fluid *fluid, uint32_t link);
weft_fluid_nanobits weft_fluid_offered(const struct weft_fluid *fluid, uint32_t link);

#endif
