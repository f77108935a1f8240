/* A witness to the machine: when was a processor taken away from the whole of it?
 *
 * On each processor the kernel's perf clock interrupts every millisecond and writes down the time,
 * and a thread wakes every millisecond and does (cli/perf/sleeper.h). Neither another process nor a
 * network stack that works in soft interrupts can put off the first; the second goes on while the
 * processor is idle, when the first rests. When the next time of either is two milliseconds or more
 * away, the processor was not there: the host of this virtual machine had it. Such absences are the
 * machine's and not the network's.
 *
 * Threads: of one thread. It has threads of its own: a process that forks does so before.
 */
#ifndef WEFT_CLI_PERF_WITNESS_H
#define WEFT_CLI_PERF_WITNESS_H

#include <stdbool.h>
#include <stdint.h>

struct weft_perf_witness;

/* NULL: no right to watch processors (root, or perf_event_paranoid below 1), or no memory.
 * Owns:    gives; weft_perf_witness_free, which takes NULL. */
struct weft_perf_witness *weft_perf_witness_new(void);
void weft_perf_witness_free(struct weft_perf_witness *witness);

/* Take over what the kernel wrote; due every ten seconds at least, else its room is full, and what
 * it could not write is an absence. */
void weft_perf_witness_read(struct weft_perf_witness *witness);

/* True: between these times (CLOCK_MONOTONIC, both read already) no processor was away. */
bool weft_perf_witness_undisturbed(const struct weft_perf_witness *witness, uint64_t from_ns,
                                   uint64_t to_ns);

#endif
