#include "io/clock.h"

#include "base/assert.h"

#include <sys/prctl.h>

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t;
    int rc = clock_gettime(clock, &t);
    WEFT_ASSERT(rc == 0);
    return (uint64_t)t.tv_sec * WEFT_NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t weft_clock_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t weft_clock_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t weft_clock_map_refresh(struct weft_clock_map *map_p)
{
    /* Read real time first: a preemption between the two readings makes stamps look late, which the
     * limit at `now` corrects, and never early. */
    uint64_t realtime_ns = read_ns(CLOCK_REALTIME);
    uint64_t now_ns = read_ns(CLOCK_MONOTONIC);
    map_p->realtime_ahead_ns = (int64_t)(realtime_ns - now_ns);
    return now_ns;
}

uint64_t weft_clock_map_stamp(const struct weft_clock_map *map, const struct timespec *stamp,
                              uint64_t now_ns)
{
    if (stamp->tv_sec <= 0) {
        return now_ns;
    }
    uint64_t realtime_ns = (uint64_t)stamp->tv_sec * WEFT_NS_PER_S + (uint64_t)stamp->tv_nsec;
    uint64_t at_ns = realtime_ns - (uint64_t)map->realtime_ahead_ns;
    /* Unsigned: an arrival in the future gives a huge age, and is handled in the same way. */
    return now_ns - at_ns > WEFT_NS_PER_S ? now_ns : at_ns;
}

void weft_clock_timers_exact(void)
{
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}
