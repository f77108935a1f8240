/* A thread that is bound to one processor, sleeps a period at a time and writes down when it woke.
 *
 * What perf's clock does not tell (lab/steal_monitor.h): the kernel lets that rest on a processor
 * that is idle, but wakes who sleeps there. It runs at a real-time priority above that of what is
 * measured, where it may; soft interrupts still go before it.
 *
 * Threads: new, next and free of one thread; the probe is another.
 */
#ifndef WEFT_LAB_WAKE_PROBE_H
#define WEFT_LAB_WAKE_PROBE_H

#include <stdint.h>

struct weft_wake_probe;

/* Wakes at phase_ns + k x period_ns (CLOCK_MONOTONIC). NULL: no memory, no thread. Where it may not
 * run on that processor it never wakes.
 *
 * Owns:    gives; weft_wake_probe_free, which takes NULL and waits for a period at most. */
struct weft_wake_probe *weft_wake_probe_new(int processor, uint64_t phase_ns, uint64_t period_ns);
void weft_wake_probe_free(struct weft_wake_probe *probe);

/* The next time at which it woke, rising; WEFT_NEVER: it has not since. Where nobody asked for
 * 16,384 the oldest are lost. */
uint64_t weft_wake_probe_next(struct weft_wake_probe *probe);

#endif
