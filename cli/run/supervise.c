/* Process supervision of `weft run`: starts the processes in order, restarts failed ones, stops
 * all. */
#define _GNU_SOURCE
#include "cli/run/internal.h"

#include "io/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const uint64_t ready_patience_ns = 120 * WEFT_NS_PER_S;

/* The death of a server or of the coordinator ends the run after this time, in which workers that
 * have finished their work can exit. */
static const uint64_t gone_patience_ns = WEFT_NS_PER_S;

/* At the end of an interrupted run, for output whose reader is slow. */
static const uint64_t last_output_ns = WEFT_NS_PER_S;

/* After a stall of the whole host all leases expire at once, but running processes renew theirs
 * soon. Wait for this fraction of the lease. */
enum { REPLACE_AFTER_DIVISOR = 2 };

/* ---- events ---------------------------------------------------------------------------------- */

static void keep_ports(struct run *run, uint32_t server)
{
    char text[WEFT_JOB_SHARDS_MAX * 6 + 16] = "--ports=";
    for (uint32_t i = 0; i < run->options->shards_per_server; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%u", i > 0 ? "," : "",
                 run->ports[server * run->options->shards_per_server + i]);
    }
    struct weft_args *args = &run_server(run, server)->args;
    if (!run->was_ready[server]) {
        /* The next process continues from the checkpoints of this one. */
        run->was_ready[server] = true;
        weft_args_set(args, args->count - 1, "--restarted");
        weft_args_add(args, "%s", text);
        return;
    }
    weft_args_set(args, args->count - 1, "%s", text);
}

static void note_ready(struct run *run, struct weft_slot *slot, const cJSON *message)
{
    uint32_t shards = run->options->shards_per_server;
    slot->is_ready = true;
    if (slot == run_coordinator(run)) {
        weft_channel_ports(message, &run->coordinator_port, 1);
        /* a restarted coordinator grants every lease again */
        memset(run->replace_ns, 0, sizeof(run->replace_ns));
        weft_args_set(&slot->args, slot->args.count - 1, "--port=%u", run->coordinator_port);
        return;
    }
    if (weft_run_is_aggregator(run, slot)) {
        weft_run_aggregator_ready(run, slot, message);
        return;
    }
    if (weft_run_is_scheduler(run, slot)) {
        weft_run_scheduler_ready(run, message);
        return;
    }
    weft_channel_ports(message, run->ports + slot->rank * shards, shards);
    keep_ports(run, slot->rank);
    for (uint32_t w = 0; w < run->options->workers; w++) {
        if (run_worker(run, w)->role != NULL) {
            weft_run_set_servers(run, run_worker(run, w)); /* for its next process */
        }
    }
}

/* Notify the servers now, long before a connection times out. */
static void notify_death(struct run *run, uint32_t rank)
{
    for (uint32_t s = 0; s < run->options->servers; s++) {
        struct weft_slot *server = run_server(run, s);
        if (server->is_running && server->channel.fd >= 0) {
            (void)weft_channel_send(&server->channel, weft_deaths_event(rank));
        }
    }
}

/* Workers that have everything acknowledged do not need the servers or the coordinator any more.
 * The death of one of these then loses nothing, unless a server was to write a last
 * checkpoint. */
static bool may_be_complete(struct run *run)
{
    return run_worker(run, run->options->workers - 1)->starts > 0 &&
           !weft_run_servers_have(run->options, "checkpoint");
}

/* A slot's restarts are used up: the end of the run, or of this worker only. */
static void give_up(struct run *run, struct weft_slot *slot, bool is_worker, const char *how)
{
    const char *more = run->options->restarts > 0 ? ", once more than --restart allows" : "";
    if (is_worker && run->gone.text[0] != '\0') { /* an effect of that */
        run->error = run->error.text[0] == '\0' ? run->gone : run->error;
    } else if (!is_worker && run->gone.text[0] != '\0') { /* not the first one */
        weft_run_say(run, "%s %u %s%s", slot->role, slot->rank, how, more);
    } else if (!is_worker && may_be_complete(run)) {
        (void)weft_fail(&run->gone, WEFT_PEER, "%s %u %s%s", slot->role, slot->rank, how, more);
        run->give_up_ns = weft_clock_now_ns() + gone_patience_ns;
    } else if (is_worker && run->options->on_death == WEFT_DEATH_SHRINK &&
               ++run->lost < run->options->workers) {
        slot->is_done = true;
        weft_run_say(run, "worker %u %s%s; the others continue", slot->rank, how, more);
    } else if (run->error.text[0] == '\0') {
        (void)weft_fail(&run->error, WEFT_PEER, "%s %u %s%s", slot->role, slot->rank, how, more);
    }
}

/* The coordinator reported that a server's lease expired, or that it was renewed. */
static void note_lease(struct run *run, const cJSON *message, bool expired)
{
    uint32_t s = (uint32_t)weft_channel_number(message, "first") / run->options->shards_per_server;
    if (s >= run->options->servers ||
        run_server(run, s)->starts != (uint32_t)weft_channel_number(message, "incarnation")) {
        return; /* of a process that was replaced */
    }
    uint64_t patience_ns = run->options->lease_ms * WEFT_NS_PER_MS / REPLACE_AFTER_DIVISOR;
    run->replace_ns[s] = expired ? weft_clock_now_ns() + patience_ns : 0;
}

/* The process of a server's slot does not respond. It may be stopped or wait for a disk. A kill
 * might not take effect soon, so it is left alone and a new process serves its shards on other
 * ports. When the old process continues, it detects that it was replaced, and exits. */
static void replace(struct run *run, uint32_t s)
{
    struct weft_slot *slot = run_server(run, s);
    pid_t pid = slot->pid;
    if (!slot->is_running) {
        return; /* it has died meanwhile */
    }
    if (run->options->on_server_death == WEFT_RUN_PROMOTE) {
        /* Its replica did not receive from it either, and a new process would start empty. */
        weft_run_say(run,
                     "the lease of server %u (pid %d) has expired; it is not replaced, "
                     "because its replica may be behind",
                     s, (int)pid);
        return;
    }
    if (slot->starts > run->options->restarts) {
        weft_run_say(run,
                     "the lease of server %u (pid %d) has expired; it is not replaced: "
                     "--restart %u",
                     s, (int)pid, run->options->restarts);
        return;
    }
    if (!weft_supervisor_retire(&run->supervisor, slot)) {
        weft_run_say(run,
                     "the lease of server %u (pid %d) has expired; it is not replaced: "
                     "%u replaced processes have not exited yet",
                     s, (int)pid, run->options->servers);
        run->replace_ns[s] = weft_clock_now_ns() + run->options->lease_ms * WEFT_NS_PER_MS;
        return;
    }
    weft_run_say(run,
                 "the lease of server %u (pid %d) has expired; it is replaced; restart "
                 "%u of %u",
                 s, (int)pid, slot->starts, run->options->restarts);
    weft_args_set(&slot->args, slot->args.count - 1, "--port=0");
    (void)weft_run_start(run, slot); /* run->error has a failure */
}

static void note_exit(struct run *run, struct weft_slot *slot)
{
    char how[160];
    weft_slot_ending(slot, how, sizeof(how));
    if (slot->is_retired) { /* another process has its slot */
        weft_run_say(run, "%s %u: the process that was replaced (pid %d) %s", slot->role,
                     slot->rank, (int)slot->pid, how);
        return;
    }
    weft_run_metrics_gone(&run->metrics, slot);
    if (weft_run_replica_exit(run, slot, how)) {
        return;
    }
    if (weft_run_is_aggregator(run, slot)) {
        weft_run_aggregator_exit(run, slot, how);
        return;
    }
    if (weft_run_is_scheduler(run, slot)) {
        weft_run_scheduler_exit(run, how);
        return;
    }
    if (strcmp(slot->role, "server") == 0) {
        run->replace_ns[slot->rank] = 0; /* its successor has started */
        if (weft_run_promote(run, slot->rank, how)) {
            return;
        }
    }
    bool is_worker = strcmp(slot->role, "worker") == 0;
    if (is_worker && slot->wait_status == 0) {
        slot->is_done = true;
        return;
    }
    if (is_worker) {
        notify_death(run, slot->rank);
    }
    if ((is_worker && run->options->on_death == WEFT_DEATH_FAIL) ||
        !weft_supervisor_restart(&run->supervisor, slot)) {
        give_up(run, slot, is_worker, how);
        return;
    }
    weft_run_say(run, "%s %u %s; restart %u of %u", slot->role, slot->rank, how, slot->starts,
                 run->options->restarts);
}

static void watch(struct run *run, struct weft_slot *slot, const cJSON *message)
{
    struct weft_run_watch *watch = run->options->watch;
    if (watch != NULL) {
        watch->message(watch->arg, &run->supervisor, slot, message);
    }
}

static void note_message(struct run *run, struct weft_slot *slot, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (weft_run_replica_message(run, slot, message)) {
        return;
    }
    if (strcmp(slot->role, "worker") == 0 && strcmp(event, "error") != 0) {
        watch(run, slot, message);
        return;
    }
    if (strcmp(event, "ready") == 0 && !slot->is_retired) {
        note_ready(run, slot, message);
        weft_run_metrics_note(&run->metrics, slot, message);
    } else if (strcmp(event, "expired") == 0 || strcmp(event, "reclaimed") == 0) {
        note_lease(run, message, strcmp(event, "expired") == 0);
    } else {
        (void)weft_run_print(run, slot, message);
    }
}

/* Replace servers whose lease expired. Returns the time of the next replacement. */
static uint64_t replace_due(struct run *run)
{
    uint64_t next_ns = WEFT_NEVER;
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t s = 0; s < run->options->servers; s++) {
        if (run->replace_ns[s] != 0 && run->replace_ns[s] <= now_ns) {
            run->replace_ns[s] = 0;
            replace(run, s);
        }
        next_ns = run->replace_ns[s] != 0 ? weft_min_u64(next_ns, run->replace_ns[s]) : next_ns;
    }
    return next_ns;
}

/* Handle one event, or wait until until_ns; false when the run is over. */
static bool turn(struct run *run, uint64_t until_ns)
{
    struct weft_supervisor_event event;
    until_ns = weft_min_u64(until_ns, replace_due(run));
    uint64_t now_ns = weft_clock_now_ns();
    if (run->gone.text[0] != '\0') {
        until_ns = weft_min_u64(until_ns, run->give_up_ns);
        if (now_ns >= run->give_up_ns && run->error.text[0] == '\0') {
            run->error = run->gone;
        }
    }
    if (run->error.text[0] != '\0') {
        return false;
    }
    weft_run_metrics_update(&run->metrics, &run->supervisor);
    weft_supervisor_next(&run->supervisor,
                         until_ns == WEFT_NEVER ? WEFT_NEVER
                         : until_ns > now_ns    ? until_ns - now_ns
                                                : 0,
                         &event);
    switch (event.type) {
    case WEFT_SUPERVISOR_MESSAGE:
        note_message(run, event.slot, event.object);
        cJSON_Delete(event.object);
        break;
    case WEFT_SUPERVISOR_EXITED:
        note_exit(run, event.slot);
        break;
    case WEFT_SUPERVISOR_DUE:
        (void)weft_run_start(run, event.slot); /* run->error has a failure */
        break;
    case WEFT_SUPERVISOR_SIGNAL:
        (void)weft_run_take_signal(run, event.signal);
        break;
    case WEFT_SUPERVISOR_TIMEOUT:
        break;
    }
    return run->interrupted == 0 && run->error.text[0] == '\0';
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool await_ready(struct run *run, uint32_t first, uint32_t count)
{
    uint64_t until_ns = weft_clock_now_ns() + ready_patience_ns;
    for (;;) {
        uint32_t ready = 0;
        for (uint32_t i = first; i < first + count; i++) {
            ready += run->supervisor.slots[i].is_ready;
        }
        if (ready == count) {
            return true;
        }
        if (weft_clock_now_ns() >= until_ns) {
            (void)weft_fail(&run->error, WEFT_TIMEOUT, "only %u of %u %ss were ready in time",
                            ready, count, run->supervisor.slots[first].role);
            return false;
        }
        if (!turn(run, until_ns)) {
            return false;
        }
    }
}

static bool start_all(struct run *run)
{
    weft_run_make_coordinator(run);
    if (weft_run_start(run, run_coordinator(run)) != WEFT_OK || !await_ready(run, 0, 1)) {
        return false;
    }
    if (!weft_run_start_scheduler(run) ||
        (run_has_own_scheduler(run) &&
         !await_ready(run, (uint32_t)(run_scheduler(run) - run->supervisor.slots), 1))) {
        return false;
    }
    for (uint32_t s = 0; s < run->options->servers; s++) {
        weft_run_make_server(run, s);
        if (weft_run_start(run, run_server(run, s)) != WEFT_OK) {
            return false;
        }
    }
    if (!await_ready(run, 1, run->options->servers)) {
        return false;
    }
    for (uint32_t s = 0; run->options->replicas > 0 && s < run->options->servers; s++) {
        weft_run_start_replica(run, s);
    }
    const uint32_t aggregators = run->options->aggregators;
    if (!weft_run_start_aggregators(run) ||
        !await_ready(run, (uint32_t)(run_aggregator(run, 0) - run->supervisor.slots),
                     aggregators)) {
        return false;
    }
    for (uint32_t w = 0; w < run->options->workers; w++) {
        weft_run_make_worker(run, w);
        if (weft_run_start(run, run_worker(run, w)) != WEFT_OK) {
            return false;
        }
    }
    return true;
}

static bool supervise(struct run *run)
{
    for (;;) {
        uint32_t finished = 0;
        for (uint32_t w = 0; w < run->options->workers; w++) {
            finished += run_worker(run, w)->is_done;
        }
        if (finished == run->options->workers) {
            return true;
        }
        if (!turn(run, WEFT_NEVER)) {
            return false;
        }
    }
}

static bool start_metrics(struct run *run)
{
    if (weft_run_metrics_start(&run->metrics, &run->options->metrics, run->folder, &run->error) !=
        WEFT_OK) {
        return false;
    }
    if (run->metrics.metrics.http != NULL) {
        weft_run_say(run, "metrics: %s", run->metrics.metrics.url);
    }
    return true;
}

/* False: a part of the processes' output, or this program's last message, found no reader. */
static bool finish_output(struct run *run)
{
    const uint64_t patience_ns = run->interrupted != 0 ? last_output_ns : WEFT_NEVER;
    const bool ended = weft_supervisor_finish_output(&run->supervisor, patience_ns) == 0;
    const int lost = weft_supervisor_lost(&run->supervisor);
    if (lost != 0) {
        weft_run_say(run, "cannot write all output of the processes: %s", strerror(lost));
    }
    return ended && lost == 0;
}

int weft_run_all(struct run *run)
{
    bool good = start_metrics(run) && start_all(run) && supervise(run);
    weft_run_metrics_stop(&run->metrics);
    weft_run_end_role(run, "worker", good);
    weft_run_end_role(run, "aggregator", good); /* its sums are sent to the servers */
    weft_run_end_servers(run, good);
    weft_run_end_role(run, "scheduler", good); /* servers report to it */
    weft_supervisor_stop(&run->supervisor, NULL);
    good = good && run->interrupted == 0 && run->error.text[0] == '\0';
    if (run->interrupted != 0) {
        if (run->error.text[0] != '\0') {
            weft_run_say(run, "%s", run->error.text);
        }
        weft_run_say(run, "interrupted by signal %d (%s); stopped all processes", run->interrupted,
                     strsignal(run->interrupted));
    } else if (!good) {
        weft_run_say(run, "%s; stopped all processes", run->error.text);
    } else {
        if (run->gone.text[0] != '\0') {
            weft_run_say(run, "%s, at the end of the last worker's work; nothing is missing",
                         run->gone.text);
        }
        weft_run_say(run, "all %u workers have finished", run->options->workers - run->lost);
    }
    good = finish_output(run) && good;
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
