/* Where the time of a training step goes (sim/exchange.h, pattern "step"): the times of each
 * worker's messages, and how full the server's link is over the step. Also the order in which the
 * server replies: the worker first that needs the longest time after its reply, as ps/shard_wait.c
 * has it. */
#ifndef WEFT_SIM_STEP_TIMES_H
#define WEFT_SIM_STEP_TIMES_H

#include "base/units.h"

#include <stdbool.h>

enum {
    WEFT_STEP_WORKERS_MAX = 65, /* workers have numbers from 1 on */
    WEFT_STEP_BINS = 64,
    WEFT_STEP_BIN_NS = 4000000,
};

/* All since the begin of the step; mean over steps. */
struct weft_step_worker {
    uint64_t reply_ns;   /* the worker has its reply */
    uint64_t push_ns;    /* the server has the push, */
    uint64_t request_ns; /* the request of the next pull, */
    uint64_t clock_ns;   /* and CLOCK */
    uint64_t closed_ns;  /* the worker knows that the server has the push */
    uint32_t last;       /* steps in which its CLOCK was the last message */
};

/* Fraction of the server's link in use in each part of a step, of the steps that last so long. */
struct weft_step_bin {
    uint32_t up_ppm;   /* from the server */
    uint32_t down_ppm; /* to it */
    uint64_t ns; /* of all steps, in this part */
};

enum weft_step_mark {
    WEFT_STEP_REPLY,
    WEFT_STEP_PUSH,
    WEFT_STEP_REQUEST,
    WEFT_STEP_CLOCK,
    WEFT_STEP_CLOSED,
    WEFT_STEP_MARKS,
};

/* Zeroed = no steps yet. */
struct weft_step_times {
    uint64_t sums_ns[WEFT_STEP_WORKERS_MAX][WEFT_STEP_MARKS];
    uint32_t last[WEFT_STEP_WORKERS_MAX];
    uint64_t begun_ns[WEFT_STEP_WORKERS_MAX];  /* first packet of its last reply; 0 = not known */
    uint64_t return_ns[WEFT_STEP_WORKERS_MAX]; /* from there to its CLOCK; 0 = not known */
    uint32_t worker;                           /* of the last CLOCK */
    uint64_t bin_ns[WEFT_STEP_BINS];
    uint64_t up_bytes[WEFT_STEP_BINS];
    uint64_t down_bytes[WEFT_STEP_BINS];
    uint64_t step_ns; /* begin of the step */
    uint64_t seen_ns; /* time of the last counts of the link */
    uint64_t seen_up_bytes;
    uint64_t seen_down_bytes;
};

void weft_step_begin(struct weft_step_times *t, uint64_t now_ns);
void weft_step_mark(struct weft_step_times *t, uint32_t worker, enum weft_step_mark mark,
                    uint64_t now_ns);
/* The worker has acknowledged the whole reply. */
void weft_step_replied(struct weft_step_times *t, uint32_t worker, uint64_t begun_ns);
void weft_step_end(struct weft_step_times *t);
/* Bytes that the server's link has carried until now, cumulative. */
void weft_step_link(struct weft_step_times *t, uint64_t up_bytes, uint64_t down_bytes,
                    uint64_t now_ns);

/* Sort the workers 1 .. count, in order of their last reply, for the replies of the next step. */
void weft_step_order(const struct weft_step_times *t, uint32_t *workers, uint32_t count);

struct weft_step_worker weft_step_worker_of(const struct weft_step_times *t, uint32_t worker,
                                            uint32_t steps);
struct weft_step_bin weft_step_bin_of(const struct weft_step_times *t, uint32_t bin,
                                      uint64_t rate_bps);

#endif
