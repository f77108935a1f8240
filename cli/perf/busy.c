#define _GNU_SOURCE /* SCHED_OTHER */
#include "cli/perf/busy.h"

#include "base/units.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STEPS = 1 << 20 };

static volatile double result; /* stored, so that the compiler keeps the loop */

/* Four chains of dependent operations, in registers, to keep several execution units busy. */
static int compute(void *context, const struct weft_slot *slot)
{
    pid_t parent = getppid();
    double a = 2;
    double b = 3;
    double c = 4;
    double d = 5;
    (void)context;
    (void)slot;
    (void)prctl(PR_SET_NAME, "weft-busy");
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    while (getppid() == parent) {
        for (int step = 0; step < STEPS; step++) {
            a = a * 0.999999 + 1e-6;
            b = b * 0.999999 + 1e-6;
            c = c * 0.999999 + 1e-6;
            d = d * 0.999999 + 1e-6;
        }
        result = a + b + c + d;
    }
    return 0;
}

bool weft_perf_busy_start(struct weft_perf_busy *busy_p, const char *verb, uint32_t count)
{
    static const struct weft_supervisor_policy policy = {.grace_ns = 0};
    struct weft_error error = {.text = ""};
    *busy_p = (struct weft_perf_busy){.verb = verb};
    if (count == 0) {
        return true;
    }
    bool good = weft_supervisor_init(&busy_p->supervisor, &policy, count, 0) == WEFT_OK;
    if (!good) {
        (void)weft_fail(&error, WEFT_IO, "%s", strerror(errno));
    }
    for (uint32_t i = 0; i < count && good; i++) {
        struct weft_slot *slot = &busy_p->supervisor.slots[i];
        slot->role = "busy process";
        slot->rank = i;
        slot->body = compute;
        good = weft_supervisor_start(&busy_p->supervisor, slot, &error) == WEFT_OK;
    }
    if (!good) {
        fprintf(stderr, "weft %s: cannot start %u busy processes: %s\n", verb, count, error.text);
        (void)weft_perf_busy_end(busy_p);
    }
    return good;
}

bool weft_perf_busy_end(struct weft_perf_busy *busy)
{
    struct weft_supervisor *supervisor = &busy->supervisor;
    struct weft_supervisor_event event = {.type = WEFT_SUPERVISOR_TIMEOUT};
    if (supervisor->count == 0) {
        return true;
    }
    weft_supervisor_next(supervisor, 0, &event);
    bool good = event.type != WEFT_SUPERVISOR_EXITED;
    if (!good) {
        char how[160];
        weft_slot_ending(event.slot, how, sizeof(how));
        fprintf(stderr, "weft %s: busy process %u %s during the measurement\n", busy->verb,
                event.slot->rank, how);
    }
    weft_supervisor_stop(supervisor, NULL);
    weft_supervisor_fini(supervisor);
    supervisor->count = 0;
    return good;
}
