/* Measures whether the processors were available. tests/lab/judge.sh runs it beside each
 * measurement.
 *
 *   steal_monitor runs until SIGTERM; prints "ready", then
 *                "late N longest N stolen N waiting N"
 *
 * On each processor that it may use, a thread of ordinary priority sleeps a millisecond at a time.
 *
 *   late      sum of the threads' lateness, per thousand of the time. Less than 4 ms is ignored: an
 *             idle virtual machine is often that late
 *   longest   the maximum lateness of any thread, in ms
 *   stolen    per thousand of the processors' time: time stolen by the hypervisor
 *   waiting   mean number of runnable processes per processor, in hundredths
 */
#include "base/units.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_NS = 1000000, ALLOWED_NS = 4000000, SAMPLE_MS = 10 };

static atomic_bool stop;

/* State of one processor. */
struct sleeper {
    pthread_t thread;
    int processor;
    uint64_t late_ns;
    uint64_t longest_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * WEFT_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void *measure_lateness(void *arg)
{
    struct sleeper *sleeper = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)sleeper->processor, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    (void)prctl(PR_SET_TIMERSLACK, 1);
    while (!stop) {
        uint64_t due_ns = now_ns() + SLEEP_NS;
        struct timespec until = {(time_t)(due_ns / WEFT_NS_PER_S), (long)(due_ns % WEFT_NS_PER_S)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        uint64_t late_ns = now_ns() - due_ns;
        sleeper->late_ns += late_ns > ALLOWED_NS ? late_ns : 0;
        sleeper->longest_ns = weft_max_u64(sleeper->longest_ns, late_ns);
    }
    return NULL;
}

/* From /proc/stat: stolen time and total time, in ticks, and the number of runnable processes. */
struct machine {
    unsigned long long stolen;
    unsigned long long all;
    unsigned running;
};

static struct machine read_machine(void)
{
    struct machine machine = {0};
    char line[8192];
    FILE *file = fopen("/proc/stat", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long t[8] = {0};
        if (sscanf(line, "cpu  %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) == 8) {
            machine.stolen = t[7];
            for (int i = 0; i < 8; i++) {
                machine.all += t[i];
            }
        }
        (void)sscanf(line, "procs_running %u", &machine.running);
    }
    if (file != NULL) {
        fclose(file);
    }
    return machine;
}

/* Sample until the signal. Returns the mean number of other runnable processes, in hundredths. */
static uint64_t watch(const sigset_t *signals)
{
    struct timespec tick = {.tv_nsec = SAMPLE_MS * 1000000L};
    uint64_t samples = 0;
    uint64_t running = 0;
    while (sigtimedwait(signals, NULL, &tick) < 0) {
        unsigned others = read_machine().running;
        running += others > 0 ? others - 1 : 0;
        samples++;
    }
    return samples > 0 ? running * 100 / samples : 0;
}

int main(void)
{
    static struct sleeper sleepers[CPU_SETSIZE];
    cpu_set_t set;
    sigset_t signals;
    size_t count = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* also in the threads; the signal stays pending until
                                             * watch() */
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof(set), &set);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct machine before = read_machine();
    uint64_t start_ns = now_ns();
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        struct sleeper *sleeper = &sleepers[count];
        sleeper->processor = processor;
        count += CPU_ISSET((size_t)processor, &set) &&
                 pthread_create(&sleeper->thread, NULL, measure_lateness, sleeper) == 0;
    }
    puts("ready");
    fflush(stdout);
    uint64_t running = watch(&signals);
    stop = true;
    uint64_t late_ns = 0;
    uint64_t longest_ns = 0;
    for (size_t i = 0; i < count; i++) {
        pthread_join(sleepers[i].thread, NULL);
        late_ns += sleepers[i].late_ns;
        longest_ns = weft_max_u64(longest_ns, sleepers[i].longest_ns);
    }
    uint64_t all_ns = weft_max_u64((now_ns() - start_ns) * count, 1);
    struct machine after = read_machine();
    uint64_t ticks = weft_max_u64(after.all - before.all, 1);
    printf("late %llu longest %llu stolen %llu waiting %llu\n",
           (unsigned long long)(late_ns * 1000 / all_ns),
           (unsigned long long)(longest_ns / WEFT_NS_PER_MS),
           (unsigned long long)((after.stolen - before.stolen) * 1000 / ticks),
           (unsigned long long)(running / weft_max_u64(count, 1)));
    return 0;
}
