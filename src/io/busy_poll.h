/* Busy polling: polling the sockets for a while before a sleep, as long as that saves time.
 *
 * Why: a sleep is ended by an interrupt and a switch of threads: 5 us on bare metal, up to 50 in a
 * virtual machine whose processor has halted meanwhile. If the next datagram arrives sooner, it is
 * cheaper to poll for it.
 *
 * If nothing arrives, polling only costs CPU time. So if few of the last polls found something,
 * only one in PROBE_EVERY of the next polls is made. The threshold is well below half: two ends
 * that both stop polling delay each other, and then neither finds anything.
 *
 * Other threads may need this processor, such as the rank whose message is awaited: each round of
 * the loop yields to them (sched_yield). A process that computes would keep the processor for its
 * whole slice, several ms: a thread that has yielded is not scheduled before the slice ends, unlike
 * one that wakes from a sleep. A round that took so long ends busy polling for a while, and for
 * longer each time.
 *
 * Internal to src/io. One thread.
 */
#ifndef WEFT_IO_BUSY_POLL_H
#define WEFT_IO_BUSY_POLL_H

#include "base/units.h"
#include "io/clock.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_BUSY_POLL_ALL = 256, /* the share of polls that found something when all did */
    WEFT_BUSY_POLL_FEW = 40,
    WEFT_BUSY_POLL_PROBE_EVERY = 16,
};

struct weft_busy_poll {
    uint64_t ns;        /* length of a poll; 0 = no busy polling */
    uint64_t off_until; /* other threads need the processor until then */
    uint64_t off_ns;    /* the last such pause */
    uint64_t end_ns;    /* of the current poll */
    uint64_t round_ns;  /* when its last round began */
    uint32_t share;     /* of WEFT_BUSY_POLL_ALL: an average over the last polls */
    uint32_t left_out;
};

static inline void weft_busy_poll_init(struct weft_busy_poll *poll, uint64_t ns)
{
    *poll = (struct weft_busy_poll){.ns = ns, .share = WEFT_BUSY_POLL_ALL};
}

/* Before a sleep until until_ns: true when a poll begins instead. */
static inline bool weft_busy_poll_begin(struct weft_busy_poll *poll, uint64_t until_ns)
{
    if (poll->ns == 0) {
        return false;
    }
    uint64_t now_ns = weft_clock_now_ns();
    bool few = poll->share < WEFT_BUSY_POLL_FEW;
    if (now_ns < poll->off_until || (few && ++poll->left_out < WEFT_BUSY_POLL_PROBE_EVERY)) {
        return false;
    }
    poll->left_out = 0;
    poll->round_ns = now_ns;
    poll->end_ns = weft_min_u64(until_ns, now_ns + poll->ns);
    return now_ns < poll->end_ns;
}

/* After a round that found nothing: true when another follows. */
static inline bool weft_busy_poll_again(struct weft_busy_poll *poll)
{
    static const uint64_t taken_away_ns = WEFT_NS_PER_MS;
    static const uint64_t off_min_ns = 10 * WEFT_NS_PER_MS, off_max_ns = 10 * WEFT_NS_PER_S;
    (void)sched_yield();
    uint64_t now_ns = weft_clock_now_ns();
    if (now_ns - poll->round_ns >= taken_away_ns) {
        bool long_ago = now_ns - poll->off_until >= 4 * poll->off_ns;
        uint64_t off_ns = long_ago ? off_min_ns : weft_max_u64(2 * poll->off_ns, off_min_ns);
        poll->off_ns = weft_min_u64(off_ns, off_max_ns);
        poll->off_until = now_ns + poll->off_ns;
        return false;
    }
    poll->round_ns = now_ns;
    return now_ns < poll->end_ns;
}

/* The poll is over. */
static inline void weft_busy_poll_end(struct weft_busy_poll *poll, bool found)
{
    poll->share -= poll->share / 4;
    poll->share += found ? WEFT_BUSY_POLL_ALL / 4 : 0;
}

#endif
