/* The one clock of a process: CLOCK_MONOTONIC in nanoseconds. All times that drivers hand to the
 * layers come from here, so the times of several threads are comparable.
 *
 * The kernel stamps arriving packets with CLOCK_REALTIME; weft_clock_map moves such a stamp to the
 * monotonic clock. It does not follow steps of the real-time clock between an arrival and its
 * conversion: an impossible result is replaced by `now`.
 */
#ifndef WEFT_IO_CLOCK_H
#define WEFT_IO_CLOCK_H

#include "base/units.h"

#include <time.h>

uint64_t weft_clock_now_ns(void);

/* CPU time of all threads of the process, user and system. */
uint64_t weft_clock_cpu_ns(void);

/* Difference of the two clocks at one moment; refresh it once for each batch of packets. */
struct weft_clock_map {
    int64_t realtime_ahead_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
};

/* Read both clocks; returns the monotonic time, so a batch needs no further reading.
 * Cost:    two clock readings, no system call where the kernel offers them in user space. */
uint64_t weft_clock_map_refresh(struct weft_clock_map *map_p);

/* Convert a real-time stamp to the monotonic clock: at most now_ns. A stamp of zero, in the future,
 * or more than a second old (the clock was set in between) gives now_ns. */
uint64_t weft_clock_map_stamp(const struct weft_clock_map *map, const struct timespec *stamp,
                              uint64_t now_ns);

/* Let timers of the calling thread fire within 1 ns instead of Linux's default 50 us. A kernel that
 * refuses leaves timers late, not wrong. */
void weft_clock_timers_exact(void);

#endif
