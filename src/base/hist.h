/* Histogram of nanoseconds (or any u64) with bounded relative error: log-linear buckets, 32 to an
 * octave, so a quantile is at most 3.2 % above the true value. Fixed size, no allocation; two
 * histograms can be added. Source: the layout of HdrHistogram.
 */
#ifndef WEFT_BASE_HIST_H
#define WEFT_BASE_HIST_H

#include "base/units.h"

enum {
    WEFT_HIST_SUB_BITS = 5,
    WEFT_HIST_BUCKETS = (64 - WEFT_HIST_SUB_BITS + 1) << WEFT_HIST_SUB_BITS
};

struct weft_hist {
    uint64_t count;
    uint64_t sum; /* sum of the recorded values; wraps after 2^64 */
    uint64_t max;
    uint64_t buckets[WEFT_HIST_BUCKETS];
};

void weft_hist_add(struct weft_hist *hist, uint64_t value);
void weft_hist_merge(struct weft_hist *into, const struct weft_hist *from);

/* Upper edge of the bucket that holds the nearest-rank quantile, never above the largest recorded
 * value; 0 when empty. quantile_ppm in [0, 10^6]. */
uint64_t weft_hist_quantile(const struct weft_hist *hist, uint32_t quantile_ppm);

/* Number of recorded values below 2^log2. */
uint64_t weft_hist_below_log2(const struct weft_hist *hist, uint32_t log2);

/* The largest value that is counted in buckets[bucket]; for plots of the whole distribution. */
uint64_t weft_hist_upper_edge(size_t bucket);

#endif
