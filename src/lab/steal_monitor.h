/* Detects when a processor was taken away from the whole machine.
 *
 * On each processor the kernel's perf clock records the time every millisecond from an interrupt,
 * and a thread wakes every millisecond and does the same (lab/wake_probe.h). The first is not
 * delayed by other processes or by network processing in soft interrupts; the second continues
 * while the processor is idle, when the first stops. If neither records a time for two milliseconds
 * or more, the processor was not running: the hypervisor of this virtual machine had it. Such
 * absences are caused by the machine and not by the network.
 *
 * Threads: used by one thread. It starts threads: a process that forks must do so before.
 */
#ifndef WEFT_LAB_STEAL_MONITOR_H
#define WEFT_LAB_STEAL_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

struct weft_steal_monitor;

/* NULL: no permission to monitor processors (root, or perf_event_paranoid below 1), or no memory.
 * Owns:    gives; weft_steal_monitor_free, which accepts NULL. */
struct weft_steal_monitor *weft_steal_monitor_new(void);
void weft_steal_monitor_free(struct weft_steal_monitor *monitor);

/* Read the kernel's records. Required at least every ten seconds; otherwise the buffer is full,
 * and the time that is not recorded counts as an absence. */
void weft_steal_monitor_read(struct weft_steal_monitor *monitor);

/* True: between these times (CLOCK_MONOTONIC, both already read) no processor was away. */
bool weft_steal_monitor_undisturbed(const struct weft_steal_monitor *monitor, uint64_t from_ns,
                                    uint64_t to_ns);

#endif
