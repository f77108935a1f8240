#include "sim/round_times.h"

#include "base/units.h"

#include <stdlib.h>

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* The smallest time such that at least `percent` of the times do not exceed it. */
static uint64_t nearest_rank(const uint64_t *sorted, uint64_t count, uint64_t percent)
{
    return sorted[weft_max_u64(weft_div_ceil_u64(count * percent, 100), 1) - 1];
}

struct weft_sim_times weft_sim_times_of(uint64_t *times_ns, uint64_t count)
{
    uint64_t sum_ns = 0;
    if (count == 0) {
        return (struct weft_sim_times){0};
    }
    for (uint64_t i = 0; i < count; i++) {
        sum_ns += times_ns[i];
    }
    qsort(times_ns, count, sizeof(*times_ns), compare_u64);
    return (struct weft_sim_times){
        .p50_ns = nearest_rank(times_ns, count, 50),
        .p99_ns = nearest_rank(times_ns, count, 99),
        .max_ns = times_ns[count - 1],
        .mean_ns = sum_ns / count,
    };
}
