/* Sleeping until a socket is readable, another thread wakes the sleeper, or a deadline passes.
 *
 * Why not a time limit with epoll_pwait2: each such sleep arms the processor's timer and disarms it
 * again, and in a virtual machine both are exits to the host: 12 of the 30 us of a round trip with
 * one row, measured. Here a timer (timerfd) stays armed across sleeps. It is set again only if the
 * deadline is earlier than the one that it is armed for, or if it would fire in the first quarter
 * of the sleep. Deadlines mostly move later (a probe timeout with each acknowledgement), so most
 * sleeps set no timer at all; the price is a wake-up when it fires too early, which the caller does
 * not see.
 *
 * Internal to src/io. One thread sleeps; weft_poller_wake: any thread, also a signal handler.
 */
#ifndef WEFT_IO_POLLER_H
#define WEFT_IO_POLLER_H

#include "base/status.h"
#include "base/units.h"

#include <stdatomic.h>
#include <stdbool.h>

struct weft_poller {
    int epoll_fd;
    int wake_fd;
    int timer_fd;
    uint64_t armed_ns; /* when the timer fires; WEFT_NEVER = it is not armed */
    /* For busy polling, which does not read wake_fd. A word of its own: beside flags, gcc would
     * read all of them with one load, which races with wake. */
    atomic_uint woken;
};

/* No descriptor is open; close is allowed. */
void weft_poller_init(struct weft_poller *poller);

/* After init: watch fd for reading; -1 = only deadlines and wakes.
 * Errors:  WEFT_IO, with errno set; close must still be called. */
weft_status weft_poller_open(struct weft_poller *poller, int fd);
void weft_poller_close(struct weft_poller *poller);

/* Sleep; until_ns on the clock of weft_clock_now_ns, > 0, WEFT_NEVER = no limit. Returns true when
 * a wake ended it. A signal ends it, too. */
bool weft_poller_wait(struct weft_poller *poller, uint64_t until_ns);

/* Sleep for ns nanoseconds without watching fd. True when a wake ended it; the wake is cleared. */
bool weft_poller_nap(struct weft_poller *poller, uint64_t ns);

/* Instead of a sleep, for a thread that waits for many pollers: epoll_fd becomes readable at
 * until_ns at the latest, sometimes earlier, or when fd is readable or a wake arrives. A wake that
 * arrived since the last call is cleared. until_ns as for weft_poller_wait, and in the
 * future. */
void weft_poller_prepare(struct weft_poller *poller, uint64_t until_ns);

/* True when a wake arrived since the last sleep or the last call of this; it is cleared. */
bool weft_poller_woken(struct weft_poller *poller);

/* The part of a wake that weft_poller_woken and busy polling see. */
void weft_poller_note_wake(struct weft_poller *poller);

/* End the current sleep, or the next one. */
void weft_poller_wake(struct weft_poller *poller);

#endif
