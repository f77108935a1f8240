#include "base/hist.h"

/* Values below 32 have a bucket each. Above, bucket = octave x 32 + the five bits after the
 * leading one. */
static size_t hist_bucket(uint64_t value)
{
    if (value < (UINT64_C(1) << WEFT_HIST_SUB_BITS)) {
        return (size_t)value;
    }
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - WEFT_HIST_SUB_BITS;
    return ((size_t)(shift + 1) << WEFT_HIST_SUB_BITS) +
           (size_t)((value >> shift) & ((UINT64_C(1) << WEFT_HIST_SUB_BITS) - 1));
}

uint64_t weft_hist_upper_edge(size_t bucket)
{
    size_t octave = bucket >> WEFT_HIST_SUB_BITS;
    if (octave == 0) {
        return bucket;
    }
    unsigned shift = (unsigned)octave - 1;
    uint64_t sub = (bucket & ((1u << WEFT_HIST_SUB_BITS) - 1)) + (1u << WEFT_HIST_SUB_BITS);
    return (sub << shift) + ((UINT64_C(1) << shift) - 1);
}

void weft_hist_add(struct weft_hist *hist, uint64_t value)
{
    hist->count++;
    hist->sum += value;
    hist->max = weft_max_u64(hist->max, value);
    hist->buckets[hist_bucket(value)]++;
}

void weft_hist_merge(struct weft_hist *into, const struct weft_hist *from)
{
    into->count += from->count;
    into->sum += from->sum;
    into->max = weft_max_u64(into->max, from->max);
    for (size_t i = 0; i < WEFT_HIST_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

uint64_t weft_hist_quantile(const struct weft_hist *hist, uint32_t quantile_ppm)
{
    uint64_t rank =
        (uint64_t)((__extension__(unsigned __int128) hist->count * quantile_ppm + WEFT_PPM - 1) /
                   WEFT_PPM);
    rank = weft_max_u64(rank, 1);
    uint64_t seen = 0;
    for (size_t i = 0; i < WEFT_HIST_BUCKETS; i++) {
        seen += hist->buckets[i];
        if (hist->buckets[i] != 0 && seen >= rank) {
            return weft_min_u64(weft_hist_upper_edge(i), hist->max);
        }
    }
    return hist->max;
}

uint64_t weft_hist_below_log2(const struct weft_hist *hist, uint32_t log2)
{
    size_t end = log2 < 64 ? hist_bucket(UINT64_C(1) << log2) : WEFT_HIST_BUCKETS;
    uint64_t below = 0;
    for (size_t i = 0; i < end; i++) {
        below += hist->buckets[i];
    }
    return below;
}
