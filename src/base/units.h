/* Units used by every layer: one unit per quantity.
 *
 * time         uint64_t nanoseconds from any fixed origin; WEFT_NEVER = never
 * data         bytes
 * rates        bits per second (_bps)
 * probabilities  parts per million (_ppm)
 */
#ifndef WEFT_BASE_UNITS_H
#define WEFT_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_NEVER UINT64_MAX

#define WEFT_NS_PER_US UINT64_C(1000)
#define WEFT_NS_PER_MS UINT64_C(1000000)
#define WEFT_NS_PER_S  UINT64_C(1000000000)

#define WEFT_PPM UINT32_C(1000000)

#define WEFT_ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t weft_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t weft_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a + b without overflow; WEFT_NEVER if the sum overflows or either is WEFT_NEVER. */
static inline uint64_t weft_time_add(uint64_t a, uint64_t b)
{
    return a > WEFT_NEVER - b ? WEFT_NEVER : a + b;
}

static inline uint64_t weft_div_ceil_u64(uint64_t n, uint64_t d)
{
    return n / d + (n % d != 0);
}

#endif
