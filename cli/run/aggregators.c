/* Aggregators of `weft run`: processes of `weft aggregate`, in slots after those of the workers and
 * the replicas. They register with the coordinator, which assigns one to each worker
 * (WEFT_VIA=coordinator). A job does not depend on them: when one dies, workers send their pushes
 * to the servers until it runs again.
 */
#include "cli/run/internal.h"

#include <stdio.h>

int weft_run_check_aggregators(const struct weft_command *command,
                               const struct weft_run_options *options)
{
    if (options->aggregators == 0 && options->aggregator_args.count > 0) {
        return weft_options_usage(command, "--aggregator-options requires --aggregators");
    }
    if (options->aggregators > 0 && options->replicas > 0) {
        return weft_options_usage(command, "--aggregators cannot be combined with --replicas yet");
    }
    if (options->aggregators > 0 && weft_run_servers_have(options, "aggregators")) {
        return weft_options_usage(command, "--server-options has --aggregators, which the servers get "
                                           "from --aggregators: leave it out there");
    }
    return WEFT_OPTIONS_RUN;
}

bool weft_run_start_aggregators(struct run *run)
{
    for (uint32_t a = 0; a < run->options->aggregators; a++) {
        weft_run_make_aggregator(run, a);
        if (weft_run_start(run, run_aggregator(run, a)) != WEFT_OK) {
            return false;
        }
    }
    return true;
}

bool weft_run_is_aggregator(struct run *run, const struct weft_slot *slot)
{
    return slot >= run_aggregator(run, 0) &&
           slot < run_aggregator(run, run->options->aggregators);
}

void weft_run_aggregator_exit(struct run *run, struct weft_slot *slot, const char *how)
{
    if (weft_supervisor_restart(&run->supervisor, slot)) {
        fprintf(stderr, "weft run: aggregator %u %s; restart %u of %u\n", slot->rank, how,
                slot->starts, run->options->restarts);
    } else if (run_worker(run, 0)->role == NULL) {
        (void)weft_fail(&run->error, WEFT_PEER, "aggregator %u %s before the workers were started",
                        slot->rank, how);
    } else {
        fprintf(stderr, "weft run: aggregator %u %s; its workers push to the servers\n", slot->rank,
                how);
    }
}
