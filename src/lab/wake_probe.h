/* A thread bound to one processor that sleeps one period at a time and records when it woke.
 *
 * It complements perf's clock (lab/steal_monitor.h): the kernel stops that clock on an idle
 * processor, but still wakes threads that sleep there. If permitted, it runs at a real-time
 * priority above that of the measured process; soft interrupts still take precedence.
 *
 * Threads: new, next and free of one thread; the probe is another.
 */
#ifndef WEFT_LAB_WAKE_PROBE_H
#define WEFT_LAB_WAKE_PROBE_H

#include <stdint.h>

struct weft_wake_probe;

/* Wakes at phase_ns + k x period_ns (CLOCK_MONOTONIC). NULL: no memory, or no thread. If it is not
 * permitted to run on that processor, it never wakes.
 *
 * Owns:    gives; weft_wake_probe_free, which accepts NULL and waits for at most one period. */
struct weft_wake_probe *weft_wake_probe_new(int processor, uint64_t phase_ns, uint64_t period_ns);
void weft_wake_probe_free(struct weft_wake_probe *probe);

/* The next time at which it woke, ascending; WEFT_NEVER: none since. If 16,384 times have not
 * been read, the oldest are lost. */
uint64_t weft_wake_probe_next(struct weft_wake_probe *probe);

#endif
