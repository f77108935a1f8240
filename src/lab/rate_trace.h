/* Rates that change over time, from a file, as on a link of a shared or wireless network.
 *
 *     # seconds since the start of the lab, host, rate, and direction (both if omitted)
 *     0     h1 1gbit
 *     2.5   h1 100mbit
 *     2.5   h2 300mbit down
 *     10    repeat
 *
 * Times do not decrease. Without a `repeat` line the last rates stay; with one, the file restarts
 * at that time. A step takes effect some milliseconds late (a run of tc).
 */
#ifndef WEFT_LAB_RATE_TRACE_H
#define WEFT_LAB_RATE_TRACE_H

#include "lab/spec.h"

enum { WEFT_LAB_RATE_TRACE_STEPS_MAX = 100000 };

struct weft_lab_step {
    uint64_t at_ns; /* since the start of the file */
    uint32_t host;
    struct weft_lab_link link; /* 0 = this direction is unchanged */
};

struct weft_lab_rate_trace {
    struct weft_lab_step *steps; /* ordered by time */
    size_t count;
    uint64_t repeat_ns; /* 0 = once */
};

/* Errors:  WEFT_IO    the file cannot be read.
 *          WEFT_DATA  a line is malformed; the text names it and has the expected form. */
[[nodiscard]] weft_status weft_lab_rate_trace_read(const char *path, uint32_t hosts,
                                                   struct weft_lab_rate_trace *trace_p,
                                                   struct weft_error *error);
/* A hash of the steps. */
uint64_t weft_lab_rate_trace_hash(const struct weft_lab_rate_trace *trace);
void weft_lab_rate_trace_free(struct weft_lab_rate_trace *trace);

/* The position in a trace that is being played. */
struct weft_lab_play {
    const struct weft_lab_rate_trace *trace;
    uint64_t start_ns; /* of this repetition */
    size_t next;
};

/* When the next step is due; WEFT_NEVER = the trace has ended. */
uint64_t weft_lab_play_deadline(const struct weft_lab_play *play);

/* Return the next step if it is due, and advance; NULL = not yet. */
const struct weft_lab_step *weft_lab_play_step(struct weft_lab_play *play, uint64_t now_ns);

#endif
