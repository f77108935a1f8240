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
    weft_supervisor_say(&train->supervisor,
                        "weft train: signal %d (%s) again; killing the servers\n",
                        train->interrupted, strsignal(train->interrupted));
}

/* Stop the processes of a role before the servers. What they report is of no use any more. */
static void stop_role(struct train *train, const char *role)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    uint64_t waited_ns = 0;
    while (weft_supervisor_press(&train->supervisor, role, waited_ns) > 0) {
        struct weft_supervisor_event event;
        const uint32_t signals = train->signals;
        weft_supervisor_next(&train->supervisor, check_interval_ns, &event);
        waited_ns = weft_max_u64(weft_clock_now_ns() - begun_ns, 1);
        if (event.type == WEFT_SUPERVISOR_MESSAGE) {
            cJSON_Delete(event.object);
        } else if (event.type == WEFT_SUPERVISOR_SIGNAL) {
            weft_train_take_signal(train, event.signal);
        }
        if (train->signals != signals && signals > 0) {
            kill_servers(train);
        }
    }
}

/* Their messages about checkpoints are printed as during the run. */
static void stop_servers(struct train *train)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    uint64_t waited_ns = 0;
    while (weft_supervisor_press(&train->supervisor, "server", waited_ns) > 0) {
        const uint32_t signals = train->signals;
        (void)weft_train_next_event(train, check_interval_ns);
        waited_ns = weft_max_u64(weft_clock_now_ns() - begun_ns, 1);
        if (train->signals != signals && signals > 0) {
            kill_servers(train);
        }
    }
}

void weft_train_stop(struct train *train)
{
    if (train->checkpoints.directory != NULL) {
        /* They send nothing more, so that the servers' last checkpoints have it all. */
        stop_role(train, "worker");
        stop_role(train, "aggregator");
        stop_servers(train);
    }
    weft_supervisor_stop(&train->supervisor, NULL);
}
