/* The end of `weft run`: aggregators, servers and the scheduler are told to stop. Their last
 * messages are printed or passed on: the outcome of the last checkpoint, and for `weft train` the
 * counters.
 *
 * A server that does not exit is killed after its grace period, which is long where it may be
 * writing a checkpoint. A second signal ends the wait. */
#define _GNU_SOURCE
#include "cli/run/internal.h"

#include "io/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static const uint64_t check_interval_ns = 10 * WEFT_NS_PER_MS;
static const uint64_t last_message_ns = 30 * WEFT_NS_PER_S;

void weft_run_say(struct run *run, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    text = weft_job_need(vasprintf(&text, format, list) < 0 ? NULL : text);
    va_end(list);
    weft_supervisor_say(&run->supervisor, "weft run: %s\n", text);
    free(text);
}

bool weft_run_print(struct run *run, const struct weft_slot *slot, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "error") != 0 && strcmp(event, "checkpoint") != 0) {
        return false;
    }
    weft_run_say(run, "%s %u%s: %s", slot->role, slot->rank, slot->is_retired ? " (replaced)" : "",
                 weft_channel_text(message, "text"));
    return true;
}

/* Errors in a run that has failed are mostly effects of the failure. */
static void note_message(struct run *run, const struct weft_supervisor_event *event, bool good)
{
    const char *name = weft_channel_text(event->object, "event");
    struct weft_run_watch *watch = run->options->watch;
    const char *role = event->slot->role;
    if (strcmp(role, "server") != 0 && strcmp(role, "aggregator") != 0 &&
        strcmp(role, "scheduler") != 0) {
        return;
    }
    if (good && !event->slot->is_retired && watch != NULL && strcmp(name, "done") == 0) {
        watch->message(watch->arg, &run->supervisor, event->slot, event->object);
    } else if (good || strcmp(name, "checkpoint") == 0) {
        (void)weft_run_print(run, event->slot, event->object);
    }
}

/* `when`: it ended "before" it was told to stop, or "when". */
static void note_exit(struct run *run, const struct weft_slot *slot, bool good, const char *when)
{
    char how[160];
    if (!good || strcmp(slot->role, "server") != 0 || slot->is_retired || slot->wait_status == 0) {
        return;
    }
    weft_slot_ending(slot, how, sizeof(how));
    if (weft_run_servers_have(run->options, "checkpoint")) {
        (void)weft_fail(&run->error, WEFT_PEER,
                        "all workers have finished, but server %u %s %s it was told to stop, and "
                        "its last checkpoint may be missing",
                        slot->rank, how, when);
    } else {
        weft_run_say(run, "server %u %s %s it was told to stop", slot->rank, how, when);
    }
}

/* A server that died and waits for its restart. */
static void note_absent(struct run *run, const struct weft_slot *slot)
{
    if (!slot->is_running && slot->wait_status != 0 && run->error.text[0] == '\0' &&
        weft_run_servers_have(run->options, "checkpoint")) {
        (void)weft_fail(&run->error, WEFT_PEER,
                        "all workers have finished, but server %u has died and was not running "
                        "again, and its last checkpoint may be missing",
                        slot->rank);
    }
}

bool weft_run_take_signal(struct run *run, int signal)
{
    const uint64_t now_ns = weft_clock_now_ns();
    if (run->interrupted != 0 && now_ns < weft_time_add(run->signal_ns, WEFT_RUN_SAME_SIGNAL_NS)) {
        return false;
    }
    run->interrupted = signal;
    run->signal_ns = now_ns;
    return true;
}

/* Also those that were replaced and still run. */
static void kill_servers(struct run *run, int signal)
{
    bool is_any = false;
    for (uint32_t i = 0; i < run->supervisor.count; i++) {
        struct weft_slot *slot = &run->supervisor.slots[i];
        if (slot->role != NULL && strcmp(slot->role, "server") == 0) {
            slot->grace_ns = 1;
            is_any |= slot->is_running;
        }
    }
    if (!is_any) {
        return;
    }
    weft_run_say(run, "signal %d (%s) again; killing the servers", signal, strsignal(signal));
}

/* graces: each server's grace_ns before the signal. */
static void note_signal(struct run *run, int signal, uint64_t waited_ns, const uint64_t *graces)
{
    const bool again = run->interrupted != 0;
    if (!weft_run_take_signal(run, signal)) {
        return;
    }
    if (again) {
        kill_servers(run, signal);
        return;
    }
    for (uint32_t s = 0; s < run->options->servers; s++) {
        struct weft_slot *slot = run_server(run, s);
        const uint64_t own_ns = graces[s] != 0 ? graces[s] : run->supervisor.policy.grace_ns;
        slot->grace_ns =
            weft_min_u64(weft_max_u64(slot->grace_ns, own_ns), weft_time_add(waited_ns, own_ns));
    }
}

void weft_run_end_servers(struct run *run, bool good)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    uint64_t graces[WEFT_JOB_SHARDS_MAX], waited_ns = 0;
    for (uint32_t s = 0; s < run->options->servers; s++) {
        struct weft_slot *slot = run_server(run, s);
        graces[s] = slot->grace_ns;
        if (good) {
            note_absent(run, slot);
        }
        if (good && run->options->watch != NULL && run->interrupted == 0) {
            slot->grace_ns = weft_max_u64(slot->grace_ns, last_message_ns);
        }
    }
    while (weft_supervisor_press(&run->supervisor, "server", waited_ns) > 0) {
        struct weft_supervisor_event event;
        weft_supervisor_next(&run->supervisor, check_interval_ns, &event);
        waited_ns = weft_max_u64(weft_clock_now_ns() - begun_ns, 1);
        if (event.type == WEFT_SUPERVISOR_MESSAGE) {
            note_message(run, &event, good);
            cJSON_Delete(event.object);
        } else if (event.type == WEFT_SUPERVISOR_EXITED) {
            note_exit(run, event.slot, good, "when");
        } else if (event.type == WEFT_SUPERVISOR_SIGNAL) {
            note_signal(run, event.signal, waited_ns, graces);
        }
    }
}

void weft_run_end_role(struct run *run, const char *role, bool good)
{
    const uint64_t begun_ns = weft_clock_now_ns();
    uint64_t waited_ns = 0;
    while (weft_supervisor_press(&run->supervisor, role, waited_ns) > 0) {
        struct weft_supervisor_event event;
        weft_supervisor_next(&run->supervisor, check_interval_ns, &event);
        waited_ns = weft_max_u64(weft_clock_now_ns() - begun_ns, 1);
        if (event.type == WEFT_SUPERVISOR_SIGNAL) {
            const bool again = run->interrupted != 0;
            if (weft_run_take_signal(run, event.signal) && again) {
                kill_servers(run, event.signal);
            }
        } else if (event.type == WEFT_SUPERVISOR_EXITED) {
            note_exit(run, event.slot, good, "before"); /* a server's */
        } else if (event.type == WEFT_SUPERVISOR_MESSAGE) {
            note_message(run, &event, good);
            cJSON_Delete(event.object);
        }
    }
}
