/* The bandwidth of one link over time: its capacity, and how much of it is reserved from when to
 * when.
 *
 * The reserved rate is a step function of time; the residual R(t) is capacity - reserved, never
 * below zero. A transfer takes min R(t) over the links of its path, from the first instant at which
 * that is above zero, until its bytes have passed (its *booking*). Integers only: rates in bit/s
 * and time in ns give work in bit * ns/s, which is exact in 128 bits, so every machine computes the
 * same plan.
 *
 * What it is not: a model of packets or of queues, and it does not know what really happened on the
 * link; the planner corrects it when reports come.
 *
 * Fixed memory: WEFT_TIMELINE_STEPS steps for each link. A reservation that needs more is refused
 * and changes nothing; two for each piece of a booking are kept beyond these, for cutting one that
 * is given back. Steps before "now" are dropped by weft_timeline_trim.
 *
 * Source: [mlfabric] Fig. 4 (the time at which a transfer ends over a residual that varies).
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

/* No link is faster: 10 Tbit/s. What claims more is a wrong report. */
#define WEFT_TIMELINE_BPS_MAX UINT64_C(10000000000000)

struct weft_timeline_step {
    uint64_t from_ns; /* holds until the next step's from_ns, the last one forever */
    uint64_t reserved_bps;
};

struct weft_timeline {
    uint64_t capacity_bps; /* may change at any time; reservations stay */
    uint32_t count;        /* steps in use, at least 1; steps[0] begins at the last trim */
    /* from_ns ascending; steps[0].from_ns = 0 */
    struct weft_timeline_step steps[WEFT_TIMELINE_STEPS + 2 * WEFT_BOOKING_PIECES];
};

/* Constant rate over [from_ns, to_ns). */
struct weft_booking_piece {
    uint64_t from_ns;
    uint64_t to_ns;
    uint64_t rate_bps;
};

/* When which bytes of a transfer are sent: pieces in order of time, with gaps where the rate is
 * zero. Rate times duration over all pieces is at least the bytes, and less than one ns of the last
 * piece above them. */
struct weft_booking {
    uint64_t start_ns; /* pieces[0].from_ns */
    uint64_t end_ns;   /* the last piece's to_ns */
    uint32_t count;    /* 0 = no booking */
    struct weft_booking_piece pieces[WEFT_BOOKING_PIECES];
};

/* The links that a transfer passes. */
struct weft_path {
    uint32_t count;
    struct weft_timeline *links[WEFT_PATH_LINKS_MAX];
};

void weft_timeline_init(struct weft_timeline *line, uint64_t capacity_bps);

/* Residual rate at a time. */
uint64_t weft_timeline_residual(const struct weft_timeline *line, uint64_t at_ns);

/* Largest reserved rate at any time from from_ns on. */
uint64_t weft_timeline_peak(const struct weft_timeline *line, uint64_t from_ns);

/* Forget steps that ended at or before now_ns. */
void weft_timeline_trim(struct weft_timeline *line, uint64_t now_ns);

/* Find when `bytes` pass over the path if they may start at from_ns, at not more than cap_bps.
 *
 * A residual in more pieces than a booking holds is not used: the start moves to where the rest of
 * it has few enough. Owns:    *booking_p is written on success. Returns false when they never pass
 * (a link without capacity), or later than any time. bytes > 0. Cost:    O(steps of the links). */
bool weft_path_fit(const struct weft_path *path, uint64_t bytes, uint64_t from_ns, uint64_t cap_bps,
                   struct weft_booking *booking_p);

/* Reserve a booking on all links of a path.
 * Returns false, with nothing changed, when a link has no steps left. */
bool weft_path_reserve(const struct weft_path *path, const struct weft_booking *booking);

/* Give back what a reserved booking holds from from_ns on (0 = all of it). It must be reserved on
 * this path. Cutting may need steps: when there are none, nothing is given back, which is safe, and
 * false is returned. Never so when bookings are given back whole in the reverse of the order in
 * which they were reserved. */
bool weft_path_release(const struct weft_path *path, const struct weft_booking *booking,
                       uint64_t from_ns);

/* Bytes that a booking has sent before a time, not more than `bytes`. */
uint64_t weft_booking_sent(const struct weft_booking *booking, uint64_t bytes, uint64_t until_ns);

/* The time that bytes take at a constant rate, rounded up; WEFT_NEVER at rate 0. */
uint64_t weft_transfer_ns(uint64_t bytes, uint64_t rate_bps);

/* The rate at which bytes take not more than a time > 0, rounded up. */
uint64_t weft_rate_bps(uint64_t bytes, uint64_t span_ns);

#endif
