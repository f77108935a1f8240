/* When was a processor taken away from the whole machine?
 *
 * On each processor the kernel's perf clock interrupts every millisecond and writes down the time,
 * and a thread wakes every millisecond and does (lab/wake_probe.h). Neither another process nor a
 * network stack that works in soft interrupts can put off the first; the second goes on while the
 * processor is idle, when the first rests. When the next time of either is two milliseconds or more
 * away, the processor was not there: the host of this virtual machine had it. Such absences are the
 * machine's and not the network's.
 *
 * Threads: of one thread. It has threads of its own: a process that forks does so before.
 */
#ifndef WEFT_LAB_STEAL_MONITOR_H
#define WEFT_LAB_STEAL_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

struct weft_steal_monitor;

/* NULL: no right to watch processors (root, or perf_event_paranoid below 1), or no memory.
 * Owns:    gives; weft_steal_monitor_free, which takes NULL. */
struct weft_steal_monitor *weft_steal_monitor_new(void);
void weft_steal_monitor_free(struct weft_steal_monitor *monitor);

/* Take over what the kernel wrote; due every ten seconds at least, else its room is full, and what
 * it could not write is an absence. */
void weft_steal_monitor_read(struct weft_steal_monitor *monitor);

/* True: between these times (CLOCK_MONOTONIC, both read already) no processor was away. */
bool weft_steal_monitor_undisturbed(const struct weft_steal_monitor *monitor, uint64_t from_ns,
                                    uint64_t to_ns);

#endif
