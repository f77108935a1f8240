/* The transfer scheduler of `weft run`: a process of `weft scheduler`, in the slot after those of
 * the aggregators, or one that runs already. A job does not depend on it: while it does not
 * run, workers push without grants. */
#include "cli/run/internal.h"

#include "cli/node_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Use the environment variable WEFT_SCHEDULER as the default of --scheduler, which is passed to
 * workers and servers: of the two only workers read the variable themselves. */
int weft_run_settle_scheduler(const struct weft_command *command, struct weft_run_options *options)
{
    struct weft_launch_address address;
    uint32_t count;
    const char *text = getenv("WEFT_SCHEDULER");
    if (options->scheduler != NULL && strcmp(options->scheduler, "off") == 0) {
        options->scheduler = NULL;
        (void)unsetenv("WEFT_SCHEDULER");
        return WEFT_OPTIONS_RUN;
    }
    if (options->scheduler != NULL || text == NULL || text[0] == '\0' ||
        weft_run_servers_have(options, "scheduler")) {
        return WEFT_OPTIONS_RUN;
    }
    if (weft_launch_servers_parse(text, &address, 1, &count) != NULL || count != 1) {
        return weft_options_usage(
            command,
            "WEFT_SCHEDULER is \"%.80s\"; it must be the HOST:PORT printed by "
            "`weft scheduler`, with a numeric host; --scheduler off ignores it",
            text);
    }
    options->scheduler = text;
    return WEFT_OPTIONS_RUN;
}

int weft_run_check_scheduler(const struct weft_command *command,
                             const struct weft_run_options *options)
{
    struct weft_launch_address address;
    if (options->scheduler != NULL && weft_run_servers_have(options, "scheduler")) {
        return weft_options_usage(command,
                                  "--server-options has --scheduler, which the servers get "
                                  "from --scheduler: leave it out there");
    }
    if (options->scheduler_args.count > 0 &&
        (options->scheduler == NULL || strcmp(options->scheduler, "on") != 0)) {
        return weft_options_usage(command, "--scheduler-options requires --scheduler on");
    }
    return options->scheduler == NULL || strcmp(options->scheduler, "on") == 0
               ? WEFT_OPTIONS_RUN
               : weft_scheduler_address(command, options->scheduler, &address);
}

bool weft_run_start_scheduler(struct run *run)
{
    if (!run_has_own_scheduler(run)) {
        return true;
    }
    weft_run_make_scheduler(run);
    return weft_run_start(run, run_scheduler(run)) == WEFT_OK;
}

bool weft_run_is_scheduler(struct run *run, const struct weft_slot *slot)
{
    return run_has_own_scheduler(run) && slot == run_scheduler(run);
}

void weft_run_scheduler_ready(struct run *run, const cJSON *message)
{
    struct weft_args *args = &run_scheduler(run)->args;
    weft_channel_ports(message, &run->scheduler_port, 1);
    if (run->options->watch != NULL) {
        run->options->watch->scheduler_port = run->scheduler_port;
    }
    weft_args_set(args, args->count - 1, "--port=%u", run->scheduler_port);
}

void weft_run_scheduler_exit(struct run *run, const char *how)
{
    struct weft_slot *slot = run_scheduler(run);
    if (weft_supervisor_restart(&run->supervisor, slot)) {
        weft_run_say(run, "scheduler %s; restart %u of %u", how, slot->starts,
                     run->options->restarts);
    } else if (run->scheduler_port == 0) {
        (void)weft_fail(&run->error, WEFT_PEER, "the scheduler %s before it was ready", how);
    } else {
        weft_run_say(run, "scheduler %s; workers push without it", how);
    }
}

void weft_run_scheduler_address(const struct run *run, char *text, size_t bytes)
{
    text[0] = '\0';
    if (run_has_own_scheduler(run)) {
        snprintf(text, bytes, "127.0.0.1:%u", run->scheduler_port);
    } else if (run->options->scheduler != NULL) {
        snprintf(text, bytes, "%s", run->options->scheduler);
    }
}
