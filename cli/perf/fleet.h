/* The coordinator's side of the participants of a run: it starts them, sends them events, waits for
 * theirs, and ends them in every case: no participant outlives its coordinator. */
#ifndef WEFT_CLI_PERF_FLEET_H
#define WEFT_CLI_PERF_FLEET_H

#include "cli/perf/agent.h"
#include "job/supervisor.h"

struct weft_perf_fleet {
    const struct weft_perf_job *job;
    struct weft_perf_shared *shared;
    struct weft_security security; /* with the key that is passed to the participants */
    struct weft_supervisor supervisor;
    struct weft_error error; /* the first failure: participant and reason */
};

enum weft_perf_heard {
    WEFT_PERF_ALL,         /* every participant sent the event */
    WEFT_PERF_TOO_LONG,    /* not all within the time */
    WEFT_PERF_INTERRUPTED, /* weft_stop_requested */
    WEFT_PERF_BROKEN,      /* one failed or ended: fleet->error */
};

/* Start all of them and wait until they are open. False: fleet->error; call weft_perf_fleet_end in
 * any case. */
bool weft_perf_fleet_start(const struct weft_perf_job *job, const struct weft_security *security,
                           struct weft_perf_fleet *fleet_p);

/* Send the message to all of them.   Owns: takes. */
void weft_perf_fleet_say(struct weft_perf_fleet *fleet, cJSON *message);

/* Wait until all have sent this event from now on, or until until_ns. */
enum weft_perf_heard weft_perf_fleet_recv(struct weft_perf_fleet *fleet, const char *event,
                                          uint64_t until_ns);

/* Let them check their results and end; kill those that do not end within a few seconds; reap all.
 * False: one of them failed (fleet->error). */
bool weft_perf_fleet_end(struct weft_perf_fleet *fleet);

#endif
