/* Mean and nearest ranks. */
#ifndef WEFT_CLI_PERF_FIGURES_H
#define WEFT_CLI_PERF_FIGURES_H

#include <stddef.h>

struct weft_perf_summary {
    double mean_ms;
    double p50_ms; /* the smallest time that half of the values do not exceed; likewise the
                    * others */
    double p90_ms;
    double p99_ms;
    double max_ms;
};

/* Sorts the values. All zeros when there are none. */
struct weft_perf_summary weft_perf_summarize(double *values_ms, size_t count);

/* The nearest rank: the smallest of the (count,) sorted values that this percentage of them does
 * not exceed. */
double weft_perf_rank(const double *sorted, size_t count, size_t percent);

/* The mean of the middle two when the count is even; sorts; 0 when there is none. */
double weft_perf_median(double *values, size_t count);

#endif
