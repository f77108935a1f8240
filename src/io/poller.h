/* Sleeping until a socket is readable, a wake from another thread, or a moment, whichever is first.
 *
 * Why not a time limit with epoll_pwait2: each such sleep programs the processor's timer and takes
 * it back, and in a virtual machine both are exits to the host: 12 of the 30 us of a round trip
 * with one row, measured. Here a timer (timerfd) stays armed while sleeps come and go, and is set
 * anew only when the moment lies before the one that it is armed for. Deadlines mostly move away
 * (a probe timeout with each acknowledgement), so most sleeps touch no timer at all; the price is
 * a needless look when it fires too early, which the caller does not see.
 *
 * Internal to this folder. One thread sleeps; weft_sleeper_wake: any thread, also a signal handler.
 */
#ifndef WEFT_IO_SLEEPER_H
#define WEFT_IO_SLEEPER_H

#include "base/status.h"
#include "base/units.h"

#include <stdatomic.h>
#include <stdbool.h>

struct weft_sleeper {
    int epoll_fd;
    int wake_fd;
    int timer_fd;
    uint64_t armed_ns; /* the timer's moment; WEFT_NEVER = it is not armed */
    /* For looking at the socket instead of sleeping, when nobody looks at wake_fd. A word of its
     * own: beside flags, gcc would read all of them with one load, which races with wake. */
    atomic_uint woken;
};

/* Nothing is open; close is fine. */
void weft_sleeper_init(struct weft_sleeper *sleeper);

/* After init: watch fd for reading; -1 = nothing but time and wakes.
 * Errors:  WEFT_IO, with errno set; close is due all the same. */
weft_status weft_sleeper_open(struct weft_sleeper *sleeper, int fd);
void weft_sleeper_close(struct weft_sleeper *sleeper);

/* Sleep; until_ns on the clock of weft_clock_now_ns, > 0, WEFT_NEVER = as long as it takes.
 * Returns true when a wake ended it. A signal ends it, too. */
bool weft_sleeper_sleep(struct weft_sleeper *sleeper, uint64_t until_ns);

/* Sleep for ns nanoseconds without looking at fd. True when a wake ended it; it is taken off. */
bool weft_sleeper_nap(struct weft_sleeper *sleeper, uint64_t ns);

/* Instead of a sleep, for a thread that waits for many: epoll_fd turns readable at until_ns at the
 * latest, now and then earlier, or when there is something to take or a wake. A wake that came since
 * the last call is taken off. until_ns as for sleep, and not past. */
void weft_sleeper_prepare(struct weft_sleeper *sleeper, uint64_t until_ns);

/* True when a wake came since the last sleep or call of this: it is taken off. */
bool weft_sleeper_woken(struct weft_sleeper *sleeper);

/* The half of a wake that weft_sleeper_woken and busy polling see. */
void weft_sleeper_note_wake(struct weft_sleeper *sleeper);

/* End the sleep that goes on, or the next one. */
void weft_sleeper_wake(struct weft_sleeper *sleeper);

#endif
