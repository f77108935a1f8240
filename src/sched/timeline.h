/* The bandwidth of one link over time: its capacity, and the reserved part of it in each time
 * interval.
 *
 * The reserved rate is a step function of time; the residual R(t) is capacity - reserved, never
 * below zero. A transfer uses min R(t) over the links of its path, from the first instant at which
 * that is positive, until its bytes are sent (its *booking*). All arithmetic is in integers: rates
 * in bit/s and time in ns give work in bit * ns/s, which is exact in 128 bits, so every machine
 * computes the same plan.
 *
 * It is not a model of packets or queues, and does not observe the link; the planner corrects it
 * when reports arrive.
 *
 * Fixed memory: WEFT_TIMELINE_STEPS steps for each link. A reservation that needs more is refused
 * and changes nothing. Two additional steps per piece of a booking are reserved for splitting a
 * booking that is released. weft_timeline_trim drops steps in the past.
 *
 * Source: [mlfabric] Fig. 4 (completion time of a transfer over a varying residual).
 */
#ifndef WEFT_SCHED_TIMELINE_H
#define WEFT_SCHED_TIMELINE_H

#include "base/units.h"

#include <stdbool.h>

enum {
    WEFT_TIMELINE_STEPS = 64,
    WEFT_BOOKING_PIECES = 8,
    WEFT_PATH_LINKS_MAX = 4,
};

/* Upper bound of a link's rate: 10 Tbit/s. A report of a higher rate is invalid. */
#define WEFT_TIMELINE_BPS_MAX UINT64_C(10000000000000)

struct weft_timeline_step {
    uint64_t from_ns; /* a step is valid until the next step's from_ns, the last one forever */
    uint64_t reserved_bps;
};

struct weft_timeline {
    uint64_t capacity_bps; /* may change at any time; reservations are kept */
    uint32_t count;        /* steps in use, at least 1; steps[0] begins at the last trim */
    /* from_ns ascending */
    struct weft_timeline_step steps[WEFT_TIMELINE_STEPS + 2 * WEFT_BOOKING_PIECES];
};

/* Constant rate over [from_ns, to_ns). */
struct weft_booking_piece {
    uint64_t from_ns;
    uint64_t to_ns;
    uint64_t rate_bps;
};

/* The sending schedule of a transfer: pieces in order of time, with gaps where the rate is zero.
 * The sum of rate times duration is at least the bytes, and exceeds them by less than one ns of the
 * last piece. */
struct weft_booking {
    uint64_t start_ns; /* pieces[0].from_ns */
    uint64_t end_ns;   /* the last piece's to_ns */
    uint32_t count;    /* 0 = no booking */
    struct weft_booking_piece pieces[WEFT_BOOKING_PIECES];
};

/* The links on the path of a transfer. */
struct weft_path {
    uint32_t count;
    struct weft_timeline *links[WEFT_PATH_LINKS_MAX];
};

void weft_timeline_init(struct weft_timeline *line, uint64_t capacity_bps);

/* Residual rate at a given time. */
uint64_t weft_timeline_residual(const struct weft_timeline *line, uint64_t at_ns);

/* Largest reserved rate at any time from from_ns on. */
uint64_t weft_timeline_peak(const struct weft_timeline *line, uint64_t from_ns);

/* Drop steps that ended at or before now_ns. */
void weft_timeline_trim(struct weft_timeline *line, uint64_t now_ns);

/* Find the earliest booking of `bytes` on the path that starts at or after from_ns, at a rate of at
 * most cap_bps.
 *
 * If the residual has more pieces than a booking can hold, the start is delayed until the remaining
 * pieces fit. Returns false, with *booking_p undefined, if the transfer never completes (a link
 * without capacity) or its end exceeds the range of time.
 *
 * Units:   bytes > 0.
 * Cost:    O(steps of the links). */
bool weft_path_fit(const struct weft_path *path, uint64_t bytes, uint64_t from_ns, uint64_t cap_bps,
                   struct weft_booking *booking_p);

/* Reserve a booking on all links of a path.
 * Returns false, with nothing changed, if a link has no steps left. */
bool weft_path_reserve(const struct weft_path *path, const struct weft_booking *booking);

/* Release the part of a reserved booking from from_ns on (0 = all of it). It must be reserved on
 * this path. Splitting may need steps: if none are left, nothing is released, which is safe, and
 * false is returned. This never happens if whole bookings are released in the reverse order of
 * reservation. */
bool weft_path_release(const struct weft_path *path, const struct weft_booking *booking,
                       uint64_t from_ns);

/* Bytes of a booking sent before a given time, at most `bytes`. */
uint64_t weft_booking_sent(const struct weft_booking *booking, uint64_t bytes, uint64_t until_ns);

/* Transmission time of the bytes at a constant rate, rounded up; WEFT_NEVER at rate 0. */
uint64_t weft_transfer_ns(uint64_t bytes, uint64_t rate_bps);

/* The lowest rate at which the bytes are sent within span_ns > 0, rounded up. */
uint64_t weft_rate_bps(uint64_t bytes, uint64_t span_ns);

#endif
