#include "lab/wake_probe.h"

#include "base/units.h"
#include "lab/clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    ROOM = 16384,
    PRIORITY = 2, /* a measured process at real-time priority has 1: weft perf --realtime */
};

struct weft_wake_probe {
    pthread_t thread;
    int processor;
    uint64_t due_ns;
    uint64_t period_ns;
    atomic_bool stop;
    uint64_t taken;       /* times that were read */
    _Atomic uint64_t put; /* times that were written */
    _Atomic uint64_t times_ns[ROOM];
};

static bool bind_to(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    const struct sched_param priority = {.sched_priority = PRIORITY};
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
        return false;
    }
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
    (void)prctl(PR_SET_TIMERSLACK, 1);
    return true;
}

static void *sleep_and_note(void *arg)
{
    struct weft_wake_probe *s = arg;
    bool bound = bind_to(s->processor);
    while (bound && !atomic_load(&s->stop)) {
        const struct timespec until = {(time_t)(s->due_ns / WEFT_NS_PER_S),
                                       (long)(s->due_ns % WEFT_NS_PER_S)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        uint64_t now_ns = weft_lab_now_ns();
        uint64_t put = atomic_load_explicit(&s->put, memory_order_relaxed);
        atomic_store_explicit(&s->times_ns[put % ROOM], now_ns, memory_order_relaxed);
        atomic_store_explicit(&s->put, put + 1, memory_order_release);
        uint64_t late_ns = now_ns > s->due_ns ? now_ns - s->due_ns : 0;
        s->due_ns += s->period_ns * (late_ns / s->period_ns + 1);
    }
    return NULL;
}

struct weft_wake_probe *weft_wake_probe_new(int processor, uint64_t phase_ns, uint64_t period_ns)
{
    struct weft_wake_probe *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->processor = processor;
    s->due_ns = phase_ns;
    s->period_ns = period_ns;
    /* Signals are for the caller's threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&s->thread, NULL, sleep_and_note, s) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) {
        free(s);
        return NULL;
    }
    return s;
}

void weft_wake_probe_free(struct weft_wake_probe *probe)
{
    if (probe != NULL) {
        atomic_store(&probe->stop, true);
        (void)pthread_join(probe->thread, NULL);
        free(probe);
    }
}

uint64_t weft_wake_probe_next(struct weft_wake_probe *probe)
{
    uint64_t put = atomic_load_explicit(&probe->put, memory_order_acquire);
    if (put - probe->taken > ROOM) { /* half: an entry being read is never being written */
        probe->taken = put - ROOM / 2;
    }
    return probe->taken == put ? WEFT_NEVER
                               : atomic_load_explicit(&probe->times_ns[probe->taken++ % ROOM],
                                                      memory_order_relaxed);
}
