#include "sim/step_times.h"

void weft_step_begin(struct weft_step_times *t, uint64_t now_ns)
{
    t->step_ns = now_ns;
    for (uint32_t i = 0; i < WEFT_STEP_WORKERS_MAX; i++) {
        t->begun_ns[i] = 0;
    }
}

/* The mean of the last value and of those before it, in equal parts. */
static void return_note(struct weft_step_times *t, uint32_t worker, uint64_t now_ns)
{
    uint64_t *mean_ns = &t->return_ns[worker];
    if (t->begun_ns[worker] > 0) {
        uint64_t ns = now_ns - t->begun_ns[worker];
        *mean_ns = *mean_ns == 0 ? ns : (*mean_ns + ns) / 2;
    }
}

void weft_step_mark(struct weft_step_times *t, uint32_t worker, enum weft_step_mark mark,
                    uint64_t now_ns)
{
    t->sums_ns[worker][mark] += now_ns - t->step_ns;
    if (mark == WEFT_STEP_CLOCK) {
        t->worker = worker;
        return_note(t, worker, now_ns);
    }
}

void weft_step_replied(struct weft_step_times *t, uint32_t worker, uint64_t begun_ns)
{
    if (begun_ns >= t->step_ns) { /* the DONE of a reply of the step before may come late */
        t->begun_ns[worker] = begun_ns;
    }
}

void weft_step_end(struct weft_step_times *t)
{
    t->last[t->worker]++;
}

void weft_step_link(struct weft_step_times *t, uint64_t up_bytes, uint64_t down_bytes,
                    uint64_t now_ns)
{
    uint64_t since_ns = t->seen_ns > t->step_ns ? t->seen_ns - t->step_ns : 0;
    uint64_t bin = since_ns / WEFT_STEP_BIN_NS;
    if (bin < WEFT_STEP_BINS && now_ns > t->seen_ns) {
        t->bin_ns[bin] += now_ns - t->seen_ns;
        t->up_bytes[bin] += up_bytes - t->seen_up_bytes;
        t->down_bytes[bin] += down_bytes - t->seen_down_bytes;
    }
    t->seen_ns = now_ns;
    t->seen_up_bytes = up_bytes;
    t->seen_down_bytes = down_bytes;
}

void weft_step_order(const struct weft_step_times *t, uint32_t *workers, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t worker = workers[i];
        uint32_t at = i;
        while (at > 0 && t->return_ns[workers[at - 1]] < t->return_ns[worker]) {
            workers[at] = workers[at - 1];
            at--;
        }
        workers[at] = worker;
    }
}

struct weft_step_worker weft_step_worker_of(const struct weft_step_times *t, uint32_t worker,
                                            uint32_t steps)
{
    const uint64_t *sums_ns = t->sums_ns[worker];
    uint64_t n = weft_max_u64(steps, 1);
    return (struct weft_step_worker){
        .reply_ns = sums_ns[WEFT_STEP_REPLY] / n,
        .push_ns = sums_ns[WEFT_STEP_PUSH] / n,
        .request_ns = sums_ns[WEFT_STEP_REQUEST] / n,
        .clock_ns = sums_ns[WEFT_STEP_CLOCK] / n,
        .closed_ns = sums_ns[WEFT_STEP_CLOSED] / n,
        .last = t->last[worker],
    };
}

static uint32_t use_ppm(uint64_t bytes, uint64_t ns, uint64_t rate_bps)
{
    uint64_t most = ns / 1000 * (rate_bps / 8000) / 1000;
    return most == 0 ? 0 : (uint32_t)(bytes * WEFT_PPM / most);
}

struct weft_step_bin weft_step_bin_of(const struct weft_step_times *t, uint32_t bin,
                                      uint64_t rate_bps)
{
    return (struct weft_step_bin){
        .up_ppm = use_ppm(t->up_bytes[bin], t->bin_ns[bin], rate_bps),
        .down_ppm = use_ppm(t->down_bytes[bin], t->bin_ns[bin], rate_bps),
        .ns = t->bin_ns[bin],
    };
}
