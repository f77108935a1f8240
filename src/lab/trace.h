/* Rates that change over time, from a file: what a link of a shared or wireless network does.
 *
 *     # seconds since the lab came up, host, rate, and which way (both when not said)
 *     0     h1 1gbit
 *     2.5   h1 100mbit
 *     2.5   h2 300mbit down
 *     10    repeat
 *
 * Times do not go down. Without a `repeat` line the last rates stay; with one, the file begins anew
 * at that time. A step takes effect some milliseconds late (a run of tc).
 */
#ifndef WEFT_LAB_TRACE_H
#define WEFT_LAB_TRACE_H

#include "lab/spec.h"

enum { WEFT_LAB_TRACE_STEPS_MAX = 100000 };

struct weft_lab_step {
    uint64_t at_ns; /* since the file's beginning */
    uint32_t host;
    struct weft_lab_link link; /* 0 = leave that way as it is */
};

struct weft_lab_trace {
    struct weft_lab_step *steps; /* in the order of time */
    size_t count;
    uint64_t repeat_ns; /* 0 = once */
};

/* Errors:  WEFT_IO    the file cannot be read.
 *          WEFT_DATA  a line is malformed; the text names it and says what it must be. */
[[nodiscard]] weft_status weft_lab_trace_read(const char *path, uint32_t hosts,
                                              struct weft_lab_trace *trace_p,
                                              struct weft_error *error);
void weft_lab_trace_free(struct weft_lab_trace *trace);

/* Where a play of the file is. */
struct weft_lab_play {
    const struct weft_lab_trace *trace;
    uint64_t start_ns; /* of this round */
    size_t next;
};

/* When the next step is due; WEFT_NEVER = the play is over. */
uint64_t weft_lab_play_deadline(const struct weft_lab_play *play);

/* The next step when it is due, and go on to the one after; NULL = not yet. */
const struct weft_lab_step *weft_lab_play_step(struct weft_lab_play *play, uint64_t now_ns);

#endif
