/* Flows as fluids on virtual time: what each of many concurrent transfers gets of the links it
 * crosses. No packets, no queues, no loss: the model for questions about schedules, at sizes where
 * the packet level (sim/world.h) is too slow.
 *
 * A flow crosses two links: its source's uplink and its destination's downlink; the switch between
 * them does not block. At every moment
 *
 *   1. ranked flows, lowest rank first, each get the least of their limit and what is left of
 *      their links (a scheduler's grants: what was granted first keeps its rate);
 *   2. the others share what is left max-min fairly, none above its limit (TCP, idealized).
 *
 * A flow sends only what has been released to it, in whole chunks: an aggregator that cuts through
 * releases a chunk when it has that chunk of all its members.
 *
 * Everything is an integer, so a run is the same on every machine. Data is counted in nanobits
 * (10^-9 bit), for a rate in bit/s times a time in ns is a whole number of them. At every change the
 * rates on a link are added up: an assertion says that their sum is at most its capacity.
 */
#ifndef WEFT_SIM_FLUID_H
#define WEFT_SIM_FLUID_H

#include "base/units.h"

#include <stdbool.h>

#define WEFT_FLUID_NO_LIMIT UINT64_MAX

/* 8 x 10^18 nanobits: the longest flow whose length fits 64 bits with room to add. */
enum { WEFT_FLUID_BYTES_MAX = 1000000000 };

struct weft_fluid;

__extension__ typedef unsigned __int128 weft_fluid_nanobits;

struct weft_fluid_flow {
    uint32_t up;          /* link of its source */
    uint32_t down;        /* link of its destination */
    uint64_t bytes;       /* 1 to WEFT_FLUID_BYTES_MAX */
    uint64_t chunk_bytes; /* events come at its multiples; 0 = one chunk */
    uint64_t limit_bps;   /* WEFT_FLUID_NO_LIMIT = none; 0 = it waits */
    uint64_t rank;        /* 0 = shares fairly */
    uint64_t user;        /* the caller's */
};

struct weft_fluid_event {
    uint32_t flow;
    uint64_t user;
    uint64_t bytes; /* that have arrived: a multiple of the chunk, or all */
    bool finished;  /* all have, and the flow is gone */
};

/* Lack of memory ends the process. All links begin without capacity. */
struct weft_fluid *weft_fluid_new(uint32_t links);
void weft_fluid_free(struct weft_fluid *fluid);

/* What our flows may use of the link from now on. */
void weft_fluid_set_capacity(struct weft_fluid *fluid, uint32_t link, uint64_t bps);
uint64_t weft_fluid_capacity(const struct weft_fluid *fluid, uint32_t link);

/* A flow that may send `released` bytes. Its number is of use until it has finished. */
uint32_t weft_fluid_start(struct weft_fluid *fluid, const struct weft_fluid_flow *flow,
                          uint64_t released);
/* It may send so many bytes in all; never fewer than before. */
void weft_fluid_release(struct weft_fluid *fluid, uint32_t flow, uint64_t bytes);
void weft_fluid_limit(struct weft_fluid *fluid, uint32_t flow, uint64_t limit_bps, uint64_t rank);
/* It ends here; what it has sent stays counted. */
void weft_fluid_stop(struct weft_fluid *fluid, uint32_t flow);

/* In bit/s, as things stand now. */
uint64_t weft_fluid_rate(struct weft_fluid *fluid, uint32_t flow);
/* Whole bytes that it has yet to send. */
uint64_t weft_fluid_left(const struct weft_fluid *fluid, uint32_t flow);

/* When the next chunk of any flow is whole if nothing changes; WEFT_NEVER = not by itself. */
uint64_t weft_fluid_next_ns(struct weft_fluid *fluid);
/* Let time pass until now_ns, which is at most weft_fluid_next_ns. Events are then there. */
void weft_fluid_advance(struct weft_fluid *fluid, uint64_t now_ns);
/* The next event, in the order in which flows were started. */
bool weft_fluid_poll(struct weft_fluid *fluid, struct weft_fluid_event *event_p);

/* Since the beginning, in nanobits: what our flows sent over the link, and what they could have. */
weft_fluid_nanobits weft_fluid_carried(const struct weft_fluid *fluid, uint32_t link);
weft_fluid_nanobits weft_fluid_offered(const struct weft_fluid *fluid, uint32_t link);

#endif
