#include "sched/timeline.h"

#include "base/assert.h"

#include <string.h>

__extension__ typedef unsigned __int128 u128;

/* Work in bit * ns/s: rate * duration is exact, and so is bytes * 8 * 10^9. */
static u128 work_of(uint64_t bytes)
{
    return (u128)bytes * (8 * WEFT_NS_PER_S);
}

/* ceil(work / divisor): divided by a rate, work gives a duration; divided by a duration, a rate.
 * UINT64_MAX (WEFT_NEVER) when it does not fit. */
static uint64_t work_div_ceil(u128 work, uint64_t divisor)
{
    if (work <= UINT64_MAX) { /* up to 2.3 GB, without the slow 128-bit division */
        return weft_div_ceil_u64((uint64_t)work, divisor);
    }
    u128 quotient = (work + divisor - 1) / divisor;
    return quotient >= UINT64_MAX ? UINT64_MAX : (uint64_t)quotient;
}

uint64_t weft_transfer_ns(uint64_t bytes, uint64_t rate_bps)
{
    return rate_bps == 0 ? WEFT_NEVER : work_div_ceil(work_of(bytes), rate_bps);
}

uint64_t weft_rate_bps(uint64_t bytes, uint64_t span_ns)
{
    return work_div_ceil(work_of(bytes), span_ns);
}

void weft_timeline_init(struct weft_timeline *line, uint64_t capacity_bps)
{
    line->capacity_bps = capacity_bps;
    line->count = 1;
    line->steps[0] = (struct weft_timeline_step){0};
}

static uint64_t residual_of(const struct weft_timeline *line, uint32_t step)
{
    uint64_t reserved_bps = line->steps[step].reserved_bps;
    return line->capacity_bps > reserved_bps ? line->capacity_bps - reserved_bps : 0;
}

/* The step that contains a time, searched from step `idx` on. */
static uint32_t step_at(const struct weft_timeline *line, uint32_t idx, uint64_t at_ns)
{
    while (idx + 1 < line->count && line->steps[idx + 1].from_ns <= at_ns) {
        idx++;
    }
    return idx;
}

uint64_t weft_timeline_residual(const struct weft_timeline *line, uint64_t at_ns)
{
    return residual_of(line, step_at(line, 0, at_ns));
}

uint64_t weft_timeline_peak(const struct weft_timeline *line, uint64_t from_ns)
{
    uint64_t peak_bps = 0;
    for (uint32_t i = step_at(line, 0, from_ns); i < line->count; i++) {
        peak_bps = weft_max_u64(peak_bps, line->steps[i].reserved_bps);
    }
    return peak_bps;
}

void weft_timeline_trim(struct weft_timeline *line, uint64_t now_ns)
{
    uint32_t first = step_at(line, 0, now_ns);
    if (first > 0) {
        line->count -= first;
        memmove(line->steps, line->steps + first, line->count * sizeof(line->steps[0]));
    }
    /* Earlier times are past and are neither reserved nor released any more. */
    line->steps[0].from_ns = weft_max_u64(line->steps[0].from_ns, now_ns);
}

/* ---- fit ------------------------------------------------------------------------------------- */

/* The rate of a path at a given time, and the time until which it is valid. step[i] is a step of
 * link i that begins at or before at_ns, or 0; it is advanced to the step that contains at_ns. */
static uint64_t path_rate(const struct weft_path *path, uint64_t at_ns, uint64_t cap_bps,
                          uint32_t *step, uint64_t *until_ns_p)
{
    uint64_t rate_bps = cap_bps, until_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < path->count; i++) {
        const struct weft_timeline *line = path->links[i];
        step[i] = step_at(line, step[i], at_ns);
        rate_bps = weft_min_u64(rate_bps, residual_of(line, step[i]));
        if (step[i] + 1 < line->count) {
            until_ns = weft_min_u64(until_ns, line->steps[step[i] + 1].from_ns);
        }
    }
    *until_ns_p = until_ns;
    return rate_bps;
}

/* Append [from, to) at a rate; false if the booking has no free piece. */
static bool add_piece(struct weft_booking *booking, uint64_t from_ns, uint64_t to_ns,
                      uint64_t rate_bps)
{
    if (booking->count > 0) {
        struct weft_booking_piece *last = &booking->pieces[booking->count - 1];
        if (last->to_ns == from_ns && last->rate_bps == rate_bps) {
            last->to_ns = to_ns;
            return true;
        }
        if (booking->count == WEFT_BOOKING_PIECES) {
            return false;
        }
    }
    booking->pieces[booking->count++] =
        (struct weft_booking_piece){.from_ns = from_ns, .to_ns = to_ns, .rate_bps = rate_bps};
    return true;
}

bool weft_path_fit(const struct weft_path *path, uint64_t bytes, uint64_t from_ns, uint64_t cap_bps,
                   struct weft_booking *booking_p)
{
    WEFT_ASSERT(bytes > 0 && path->count <= WEFT_PATH_LINKS_MAX);
    u128 left = work_of(bytes);
    uint32_t step[WEFT_PATH_LINKS_MAX] = {0};
    uint64_t at_ns = from_ns;
    booking_p->count = 0;
    for (;;) {
        uint64_t until_ns;
        uint64_t rate_bps = path_rate(path, at_ns, cap_bps, step, &until_ns);
        if (rate_bps == 0) {
            if (until_ns == WEFT_NEVER) {
                return false;
            }
            at_ns = until_ns;
            continue;
        }
        u128 can = (u128)rate_bps * (until_ns - at_ns);
        bool is_last = until_ns == WEFT_NEVER || left <= can;
        uint64_t to_ns = is_last ? weft_time_add(at_ns, work_div_ceil(left, rate_bps)) : until_ns;
        if (to_ns == WEFT_NEVER) {
            return false;
        }
        if (!add_piece(booking_p, at_ns, to_ns, rate_bps)) {
            /* Too fragmented from here: restart after the first piece. Terminates because the
             * residual is constant after the last step. */
            at_ns = booking_p->pieces[0].to_ns;
            left = work_of(bytes);
            booking_p->count = 0;
            memset(step, 0, sizeof(step));
            continue;
        }
        if (is_last) {
            booking_p->start_ns = booking_p->pieces[0].from_ns;
            booking_p->end_ns = to_ns;
            return true;
        }
        left -= can;
        at_ns = until_ns;
    }
}

/* ---- reserve and release --------------------------------------------------------------------- */

/* Whether a step begins at this time. */
static bool has_step(const struct weft_timeline *line, uint64_t at_ns)
{
    return line->steps[step_at(line, 0, at_ns)].from_ns == at_ns;
}

/* Split a step at this time; returns the index of the new step. Requires a free step. */
static uint32_t split_at(struct weft_timeline *line, uint64_t at_ns)
{
    uint32_t idx = step_at(line, 0, at_ns);
    if (line->steps[idx].from_ns == at_ns) {
        return idx;
    }
    WEFT_ASSERT(line->count < WEFT_ARRAY_COUNT(line->steps) && line->steps[idx].from_ns < at_ns);
    memmove(line->steps + idx + 2, line->steps + idx + 1,
            (line->count - idx - 1) * sizeof(line->steps[0]));
    line->steps[idx + 1] = (struct weft_timeline_step){
        .from_ns = at_ns, .reserved_bps = line->steps[idx].reserved_bps};
    line->count++;
    return idx + 1;
}

static void join_equal(struct weft_timeline *line)
{
    uint32_t kept = 1;
    for (uint32_t i = 1; i < line->count; i++) {
        if (line->steps[i].reserved_bps != line->steps[kept - 1].reserved_bps) {
            line->steps[kept++] = line->steps[i];
        }
    }
    line->count = kept;
}

/* Clip a piece to [from_ns, ...) and to the part that is not past on this link; false = empty. */
static bool clip(const struct weft_timeline *line, const struct weft_booking_piece *piece,
                 uint64_t from_ns, struct weft_booking_piece *part_p)
{
    *part_p = *piece;
    part_p->from_ns = weft_max_u64(weft_max_u64(piece->from_ns, from_ns), line->steps[0].from_ns);
    return part_p->from_ns < part_p->to_ns;
}

/* Maximum number of steps that the booking from from_ns on would add to a link. */
static uint32_t steps_needed(const struct weft_timeline *line, const struct weft_booking *booking,
                             uint64_t from_ns)
{
    uint32_t needed = 0;
    uint64_t last_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < booking->count; i++) {
        struct weft_booking_piece part;
        if (!clip(line, &booking->pieces[i], from_ns, &part)) {
            continue;
        }
        needed += part.from_ns != last_ns && !has_step(line, part.from_ns);
        needed += !has_step(line, part.to_ns);
        last_ns = part.to_ns;
    }
    return needed;
}

static bool has_room(const struct weft_path *path, const struct weft_booking *booking,
                     uint64_t from_ns, uint32_t steps_max)
{
    for (uint32_t i = 0; i < path->count; i++) {
        const struct weft_timeline *line = path->links[i];
        if (line->count + steps_needed(line, booking, from_ns) > steps_max) {
            return false;
        }
    }
    return true;
}

static void change(struct weft_timeline *line, const struct weft_booking *booking, uint64_t from_ns,
                   bool is_release)
{
    for (uint32_t i = 0; i < booking->count; i++) {
        struct weft_booking_piece part;
        if (!clip(line, &booking->pieces[i], from_ns, &part)) {
            continue;
        }
        uint32_t first = split_at(line, part.from_ns), end = split_at(line, part.to_ns);
        for (uint32_t s = first; s < end; s++) {
            uint64_t *reserved_bps = &line->steps[s].reserved_bps;
            WEFT_ASSERT(!is_release || *reserved_bps >= part.rate_bps);
            *reserved_bps += is_release ? 0 - part.rate_bps : part.rate_bps;
        }
    }
    join_equal(line);
}

bool weft_path_reserve(const struct weft_path *path, const struct weft_booking *booking)
{
    if (!has_room(path, booking, 0, WEFT_TIMELINE_STEPS)) {
        return false;
    }
    for (uint32_t i = 0; i < path->count; i++) {
        change(path->links[i], booking, 0, false);
    }
    return true;
}

bool weft_path_release(const struct weft_path *path, const struct weft_booking *booking,
                       uint64_t from_ns)
{
    /* Only a release may use the additional steps. */
    if (!has_room(path, booking, from_ns, WEFT_ARRAY_COUNT(path->links[0]->steps))) {
        return false;
    }
    for (uint32_t i = 0; i < path->count; i++) {
        change(path->links[i], booking, from_ns, true);
    }
    return true;
}

uint64_t weft_booking_sent(const struct weft_booking *booking, uint64_t bytes, uint64_t until_ns)
{
    u128 work = 0;
    for (uint32_t i = 0; i < booking->count; i++) {
        const struct weft_booking_piece *piece = &booking->pieces[i];
        if (piece->from_ns < until_ns) {
            work += (u128)piece->rate_bps * (weft_min_u64(piece->to_ns, until_ns) - piece->from_ns);
        }
    }
    u128 sent = work / (8 * WEFT_NS_PER_S);
    return sent > bytes ? bytes : (uint64_t)sent;
}
