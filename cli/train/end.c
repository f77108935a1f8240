/* Stopping the processes of `weft train`, above all after a failure or a signal: a server with
 * checkpoints finishes the one in progress and makes a last one, as under `weft run` (run/end.c).
 */
#define _GNU_SOURCE
#include "cli/train/internal.h"

#include "io/clock.h"

#include <stdio.h>

static const uint64_t check_interval_ns = 10 * WEFT_NS_PER_MS;

static void kill_servers(struct train *train)
{
    for (uint32_t s = 0; s < train->servers; s++) {
        train->supervisor.slots[s].grace_ns = 1;
    }
    fprintf(stderr, "weft train: signal %d (%s) again; killing the servers\n", train->interrupted,
            strsignal(train->interrupted));
}

/* Their messages about checkpoints are printed as during the run. */
static void stop_servers(struct train *train)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    uint64_t waited_ns = 0;
    /* The next signal counts from here. */
    uint64_t signal_ns = train->interrupted != 0 ? WEFT_RUN_SAME_SIGNAL_NS : 0;
    while (weft_supervisor_press(&train->supervisor, "server", waited_ns) > 0) {
        const bool was_interrupted = train->interrupted != 0;
        const uint32_t signals = train->signals;
        (void)weft_train_next_event(train, check_interval_ns);
        waited_ns = weft_max_u64(weft_clock_now_ns() - begun_ns, 1);
        if (train->signals != signals && waited_ns >= signal_ns) {
            if (was_interrupted) {
                kill_servers(train);
            }
            signal_ns = waited_ns + WEFT_RUN_SAME_SIGNAL_NS;
        }
    }
}

void weft_train_stop(struct train *train)
{
    if (train->checkpoints.directory != NULL) {
        /* They send nothing more, so that the servers' last checkpoints have it all. */
        weft_supervisor_stop(&train->supervisor, "worker");
        weft_supervisor_stop(&train->supervisor, "aggregator");
        stop_servers(train);
    }
    weft_supervisor_stop(&train->supervisor, NULL);
}
