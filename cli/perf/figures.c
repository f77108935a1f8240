#include "cli/perf/figures.h"

#include <stdlib.h>

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft_perf_rank(const double *sorted, size_t count, size_t percent)
{
    return sorted[(count * percent + 99) / 100 - 1];
}

struct weft_perf_summary weft_perf_summarize(double *values_ms, size_t count)
{
    double sum_ms = 0;
    for (size_t i = 0; i < count; i++) {
        sum_ms += values_ms[i];
    }
    qsort(values_ms, count, sizeof(*values_ms), compare_double);
    return count == 0 ? (struct weft_perf_summary){0}
                      : (struct weft_perf_summary){
                            .mean_ms = sum_ms / (double)count,
                            .p50_ms = weft_perf_rank(values_ms, count, 50),
                            .p90_ms = weft_perf_rank(values_ms, count, 90),
                            .p99_ms = weft_perf_rank(values_ms, count, 99),
                            .max_ms = values_ms[count - 1],
                        };
}

double weft_perf_median(double *values, size_t count)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof(*values), compare_double);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
