/* Processes that have lost a rank to another one: they do not get it back.
 *
 * A process is named by its incarnation. Of each rank the last WEFT_RETIRED_MAX that lost it are
 * known one by one, of those before only a floor: the largest incarnation that was dropped from the
 * list. The smallest goes first, so every retired incarnation is in the list or not above the floor.
 * Incarnations grow with the time at which a process starts (docs/PROTOCOL.md section 2.2), so the
 * floor refuses nothing newer than the processes it stands for, unless a host's clock is behind by
 * more than the last WEFT_RETIRED_MAX processes of the rank took together.
 *
 * It is not a list of processes that are alive or dead; whoever is on it is refused either way.
 */
#ifndef WEFT_PS_RETIRED_H
#define WEFT_PS_RETIRED_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum { WEFT_RETIRED_MAX = 16 };

/* The layout of a row of workers.retired (docs/CHECKPOINTS.md). Zeros: nobody has lost the rank. */
struct weft_retired {
    uint64_t floor; /* incarnations from 1 to this one are retired */
    uint64_t incarnations[WEFT_RETIRED_MAX]; /* in no order; 0 = free */
};

static_assert(sizeof(struct weft_retired) == (1 + WEFT_RETIRED_MAX) * sizeof(uint64_t));

/* 0 is nobody's, and ignored. */
void weft_retired_add(struct weft_retired *retired, uint64_t incarnation);
bool weft_retired_has(const struct weft_retired *retired, uint64_t incarnation);

#endif
