/* Processes whose rank was given to another process. They are refused the rank from then on.
 *
 * A process is named by its incarnation. For each rank the list has the last WEFT_RETIRED_MAX
 * processes that lost it. Older ones are covered by a floor: the largest incarnation that was
 * dropped from the list. The smallest is dropped first, so every retired incarnation is in the list
 * or not above the floor. Incarnations grow with the time at which a process starts
 * (docs/PROTOCOL.md section 2.2), so the floor refuses nothing newer than the processes it stands
 * for, unless a host's clock is behind by more than the last WEFT_RETIRED_MAX processes of the rank
 * took together.
 *
 * The list does not say whether a process is alive. A process on it is refused in either case.
 */
#ifndef WEFT_PS_RETIRED_H
#define WEFT_PS_RETIRED_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum { WEFT_RETIRED_MAX = 16 };

/* The layout of a row of workers.retired (docs/CHECKPOINTS.md). Zeros: no process has lost the
 * rank. */
struct weft_retired {
    uint64_t floor;                          /* incarnations from 1 to this one are retired */
    uint64_t incarnations[WEFT_RETIRED_MAX]; /* unordered; 0 = free */
};

static_assert(sizeof(struct weft_retired) == (1 + WEFT_RETIRED_MAX) * sizeof(uint64_t));

/* Incarnation 0 names no process, and is ignored. */
void weft_retired_add(struct weft_retired *retired, uint64_t incarnation);
bool weft_retired_has(const struct weft_retired *retired, uint64_t incarnation);

#endif
