/* Aggregators of `weft run`: processes of `weft aggregate`, in slots after those of the workers and
 * the replicas. They register with the coordinator, which assigns one to each worker
 * (WEFT_VIA=coordinator); with a scheduler workers have the list of all. A job does not depend on
 * them: when one dies, workers send their pushes to the servers until it runs again.
 */
#include "cli/run/internal.h"

#include "sched/wire.h"

#include <stdio.h>

int weft_run_check_aggregators(const struct weft_command *command,
                               const struct weft_run_options *options)
{
    if (options->aggregators == 0 && options->aggregator_args.count > 0) {
        return weft_options_usage(command, "--aggregator-options requires --aggregators");
    }
    if (options->scheduler != NULL && options->aggregators > WEFT_SCHED_AGGREGATORS_MAX) {
        return weft_options_usage(command,
                                  "--aggregators %u is too many with --scheduler, which plans "
                                  "with at most %d",
                                  options->aggregators, (int)WEFT_SCHED_AGGREGATORS_MAX);
    }
    if (options->aggregators > 0 && weft_run_servers_have(options, "aggregators")) {
        return weft_options_usage(command,
                                  "--server-options has --aggregators, which the servers get "
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
    return slot >= run_aggregator(run, 0) && slot < run_aggregator(run, run->options->aggregators);
}

void weft_run_aggregator_exit(struct run *run, struct weft_slot *slot, const char *how)
{
    if (weft_supervisor_restart(&run->supervisor, slot)) {
        weft_run_say(run, "aggregator %u %s; restart %u of %u", slot->rank, how, slot->starts,
                     run->options->restarts);
    } else if (run_worker(run, 0)->role == NULL) {
        (void)weft_fail(&run->error, WEFT_PEER, "aggregator %u %s before the workers were started",
                        slot->rank, how);
    } else {
        weft_run_say(run, "aggregator %u %s; its workers push to the servers", slot->rank, how);
    }
}

void weft_run_aggregator_ready(struct run *run, struct weft_slot *slot, const cJSON *message)
{
    static const char option[] = "--ports=";
    const uint32_t shards = run->options->servers * run->options->shards_per_server;
    const uint32_t last = slot->args.count - 1;
    uint16_t *ports = run->aggregator_ports[slot->rank];
    char text[WEFT_JOB_SHARDS_MAX * 6 + sizeof(option)] = "--ports=";
    if (run->options->scheduler == NULL) {
        return; /* the coordinator sends its address to the workers */
    }
    weft_channel_ports(message, ports, shards);
    for (uint32_t s = 0; s < shards; s++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%u", s > 0 ? "," : "", ports[s]);
    }
    if (strncmp(slot->args.list[last], option, strlen(option)) == 0) {
        weft_args_set(&slot->args, last, "%s", text);
    } else {
        weft_args_add(&slot->args, "%s", text);
    }
}

void weft_run_set_via(struct run *run, struct weft_slot *worker)
{
    const uint32_t shards = run->options->servers * run->options->shards_per_server;
    static char text[WEFT_SCHED_AGGREGATORS_MAX * WEFT_JOB_SHARDS_MAX * 24];
    size_t used = 0;
    if (run->options->scheduler == NULL) {
        weft_slot_setenv(worker, "WEFT_VIA", "coordinator");
        return;
    }
    for (uint32_t a = 0; a < run->options->aggregators; a++) {
        for (uint32_t s = 0; s < shards; s++) {
            const char *separator = s > 0 ? "," : a > 0 ? "/" : "";
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s127.0.0.1:%u", separator,
                                     run->aggregator_ports[a][s]);
        }
    }
    weft_slot_setenv(worker, "WEFT_VIA", "%s", text);
}
