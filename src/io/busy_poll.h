/* Looking at the sockets for a while before a sleep, as long as that pays.
 *
 * Why: a sleep is ended by an interrupt and a switch of threads: 5 us on bare metal, up to 50 in a
 * virtual machine whose processor has halted meanwhile. Where the next datagram comes sooner than
 * that, it is cheaper to wait for it awake.
 *
 * When it does not pay: nothing comes, and the looking costs. So when few of the last looks found
 * something, the next are left out but for one in PROBE_EVERY. Few is well below half: two ends that
 * both stop looking make each other late, and then neither finds anything.
 *
 * Others who need this processor, such as the rank that would send what is awaited: each turn of the
 * loop yields to them (sched_yield). A process that computes would keep the processor for its whole
 * slice, several ms, and whoever has yielded is not woken before its end, as a sleeper would be. A
 * turn that took so long ends the looking for a while, and for longer each time.
 *
 * Internal to this folder. One thread.
 */
#ifndef WEFT_IO_BUSY_POLL_H
#define WEFT_IO_BUSY_POLL_H

#include "base/units.h"
#include "io/clock.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_BUSY_POLL_ALL = 256, /* share of the looks that found something: all of them */
    WEFT_BUSY_POLL_FEW = 40,
    WEFT_BUSY_POLL_PROBE_EVERY = 16,
};

struct weft_busy_poll {
    uint64_t ns;        /* of a look; 0 = never */
    uint64_t off_until; /* the processor belongs to others */
    uint64_t off_ns;    /* how long that was taken for so, the last time */
    uint64_t end_ns;    /* of the look that is under way */
    uint64_t turn_ns;   /* when its last turn began */
    uint32_t share;     /* in WEFT_BUSY_POLL_ALL, of the last few looks */
    uint32_t left_out;
};

static inline void weft_busy_poll_init(struct weft_busy_poll *poll, uint64_t ns)
{
    *poll = (struct weft_busy_poll){.ns = ns, .share = WEFT_BUSY_POLL_ALL};
}

/* Before a sleep until then: is a look worth it? It has begun if so. */
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
    poll->turn_ns = now_ns;
    poll->end_ns = weft_min_u64(until_ns, now_ns + poll->ns);
    return now_ns < poll->end_ns;
}

/* After a turn that found nothing: one more? */
static inline bool weft_busy_poll_again(struct weft_busy_poll *poll)
{
    static const uint64_t taken_away_ns = WEFT_NS_PER_MS;
    static const uint64_t off_min_ns = 10 * WEFT_NS_PER_MS, off_max_ns = 10 * WEFT_NS_PER_S;
    (void)sched_yield();
    uint64_t now_ns = weft_clock_now_ns();
    if (now_ns - poll->turn_ns >= taken_away_ns) {
        bool long_ago = now_ns - poll->off_until >= 4 * poll->off_ns;
        uint64_t off_ns = long_ago ? off_min_ns : weft_max_u64(2 * poll->off_ns, off_min_ns);
        poll->off_ns = weft_min_u64(off_ns, off_max_ns);
        poll->off_until = now_ns + poll->off_ns;
        return false;
    }
    poll->turn_ns = now_ns;
    return now_ns < poll->end_ns;
}

/* The look is over. */
static inline void weft_busy_poll_end(struct weft_busy_poll *poll, bool found)
{
    poll->share -= poll->share / 4;
    poll->share += found ? WEFT_BUSY_POLL_ALL / 4 : 0;
}

#endif
