/* The clock of this folder: CLOCK_MONOTONIC in nanoseconds. */
#ifndef WEFT_LAB_CLOCK_H
#define WEFT_LAB_CLOCK_H

#include "base/units.h"

#include <stdint.h>
#include <time.h>

static inline uint64_t weft_lab_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * WEFT_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
