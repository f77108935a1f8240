/* CPU-bound processes during a measurement (--busy), as the workers of a training job are.
 *
 * Each is a loop of floating-point operations on registers, under the kernel's normal scheduling
 * policy: it takes processor time and next to no memory bandwidth. They are started before a
 * measurement and ended after it, and never outlive this program.
 */
#ifndef WEFT_CLI_PERF_BUSY_H
#define WEFT_CLI_PERF_BUSY_H

#include "job/supervisor.h"

enum { WEFT_PERF_BUSY_MAX = 256 };

struct weft_perf_busy {
    const char *verb;                  /* name in messages on standard error */
    struct weft_supervisor supervisor; /* count 0: there are none */
};

/* Start `count` of them, which may be 0. False: the reason is on standard error, and none runs. */
bool weft_perf_busy_start(struct weft_perf_busy *busy_p, const char *verb, uint32_t count);

/* End them and wait for their exit. False: one had ended early, as reported on standard error, so
 * the measurement is invalid. */
bool weft_perf_busy_end(struct weft_perf_busy *busy);

#endif
