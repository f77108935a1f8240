#include "cli/perf/figures.h"

#include <stdlib.h>

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rank_ms(const uint64_t *sorted_ns, size_t count, size_t percent)
{
    return (double)sorted_ns[(count * percent + 99) / 100 - 1] / 1e6;
}

struct weft_perf_summary weft_perf_summarize(uint64_t *values_ns, size_t count)
{
    if (count == 0) {
        return (struct weft_perf_summary){0};
    }
    double sum_ns = 0;
    qsort(values_ns, count, sizeof(*values_ns), compare_u64);
    for (size_t i = 0; i < count; i++) {
        sum_ns += (double)values_ns[i];
    }
    return (struct weft_perf_summary){
        .mean_ms = sum_ns / (double)count / 1e6,
        .p50_ms = rank_ms(values_ns, count, 50),
        .p90_ms = rank_ms(values_ns, count, 90),
        .p99_ms = rank_ms(values_ns, count, 99),
        .max_ms = rank_ms(values_ns, count, 100),
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
