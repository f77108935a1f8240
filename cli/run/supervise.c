/* The supervisor of `weft run`: starts all places in their order, starts again what dies, ends all. */
#define _GNU_SOURCE
#include "cli/run/internal.h"

#include "cli/verbs.h"
#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static const uint64_t ready_patience_ns = 120 * WEFT_NS_PER_S;
static const uint64_t end_grace_ns = 3 * WEFT_NS_PER_S;

/* A last checkpoint takes as long as the disk does. */
static const uint64_t checkpoint_grace_ns = 120 * WEFT_NS_PER_S;

/* Before a process is started again, doubled each time: what fails at once must not spin. */
static const uint64_t restart_pause_ns = 50 * WEFT_NS_PER_MS;
enum { RESTART_DOUBLINGS = 5 };

/* A machine that stood still lets all leases lapse at once: who is there speaks again soon. Of the
 * lease. */
enum { REPLACE_AFTER_DIVISOR = 2 };

/* ---- events ---------------------------------------------------------------------------------- */

static void keep_ports(struct run *run, uint32_t server)
{
    char text[WEFT_JOB_SHARDS_MAX * 6 + 16] = "--ports=";
    for (uint32_t i = 0; i < run->shards_per_server; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%u", i > 0 ? "," : "",
                 run->ports[server * run->shards_per_server + i]);
    }
    if (!run->was_ready[server]) {
        /* The next process goes on from the checkpoints of this one. */
        run->was_ready[server] = true;
        weft_run_replace_last(&run->server_words[server], "--restarted");
        weft_arguments_add(&run->server_words[server], "%s", text);
        return;
    }
    weft_run_replace_last(&run->server_words[server], text);
}

static void note_ready(struct run *run, struct weft_place *place, const cJSON *message)
{
    const cJSON *ports = cJSON_GetObjectItemCaseSensitive(message, "ports");
    const cJSON *first = cJSON_GetArrayItem(ports, 0);
    uint16_t port = cJSON_IsNumber(first) ? (uint16_t)first->valuedouble : 0;
    place->is_ready = true;
    if (place == run_scheduler(run)) {
        char text[32];
        run->scheduler_port = port;
        memset(run->replace_ns, 0, sizeof(run->replace_ns)); /* it gives every lease anew */
        snprintf(text, sizeof(text), "--port=%u", port);
        weft_run_replace_last(&run->scheduler_words, text);
        return;
    }
    for (uint32_t i = 0; i < run->shards_per_server; i++) {
        const cJSON *item = cJSON_GetArrayItem(ports, (int)i);
        run->ports[place->rank * run->shards_per_server + i] =
            cJSON_IsNumber(item) ? (uint16_t)item->valuedouble : 0;
    }
    keep_ports(run, place->rank);
    for (uint32_t w = 0; w < run->workers; w++) {
        if (run_worker(run, w)->role != NULL) {
            weft_run_tell_servers(run, run_worker(run, w)); /* its next process */
        }
    }
}

/* The servers learn of it now, not when a connection has been silent for long. */
static void tell_death(struct run *run, uint32_t rank)
{
    for (uint32_t s = 0; s < run->servers; s++) {
        struct weft_place *server = run_server(run, s);
        if (server->pid != 0 && server->channel.fd >= 0) {
            (void)weft_channel_send(&server->channel, weft_deaths_event(rank));
        }
    }
}

/* A place whose process has died as often as it may: the end of the run, or of this worker alone. */
static void give_up(struct run *run, struct weft_place *place, bool is_worker, const char *how)
{
    const char *more = run->restarts > 0 ? ", once more than --restart allows" : "";
    if (is_worker && run->on_death == WEFT_DEATH_SHRINK && ++run->lost < run->workers) {
        place->is_finished = true;
        fprintf(stderr, "weft run: worker %u %s%s; the others go on\n", place->rank, how, more);
    } else if (run->error[0] == '\0') {
        snprintf(run->error, sizeof(run->error), "%s %u %s%s", place->role, place->rank, how, more);
    }
}

/* The coordinator has not heard of a server for its lease, or has heard of it again. */
static void note_lease(struct run *run, const cJSON *message, bool lapsed)
{
    uint32_t s = (uint32_t)weft_channel_number(message, "first") / run->shards_per_server;
    if (s >= run->servers ||
        run_server(run, s)->starts != (uint32_t)weft_channel_number(message, "incarnation")) {
        return; /* of a process that was replaced */
    }
    uint64_t patience_ns = run->lease_ms * WEFT_NS_PER_MS / REPLACE_AFTER_DIVISOR;
    run->replace_ns[s] = lapsed ? weft_clock_now_ns() + patience_ns : 0;
}

/* The process of a server's place does not react. It may be stopped, or wait for a disk: it is left
 * alone, for nobody can know that a kill ends it soon, and another one takes its shards at other
 * ports. When it wakes up it hears that it was replaced, and ends. */
static void replace(struct run *run, uint32_t s)
{
    struct weft_place *place = run_server(run, s);
    pid_t pid = place->pid;
    if (pid == 0) {
        return; /* it died meanwhile */
    }
    if (place->starts > run->restarts) {
        fprintf(stderr, "weft run: server %u (pid %d) has been silent for longer than its lease; it "
                        "is not replaced: --restart %u\n",
                s, (int)pid, run->restarts);
        return;
    }
    if (!weft_squad_retire(&run->squad, place)) {
        fprintf(stderr, "weft run: server %u (pid %d) has been silent for longer than its lease; it "
                        "is not replaced: %u replaced processes have not ended yet\n",
                s, (int)pid, run->servers);
        run->replace_ns[s] = weft_clock_now_ns() + run->lease_ms * WEFT_NS_PER_MS;
        return;
    }
    fprintf(stderr, "weft run: server %u (pid %d) has been silent for longer than its lease, and is "
                    "replaced; restart %u of %u\n",
            s, (int)pid, place->starts, run->restarts);
    weft_run_replace_last(&run->server_words[s], "--port=0");
    (void)weft_run_start(run, place); /* a failure is in run->error */
}

static void note_exit(struct run *run, struct weft_place *place, pid_t pid)
{
    char how[160];
    const struct weft_process process = {.wait_status = place->wait_status};
    if (place->is_retired) { /* its place is another one's */
        weft_process_ending(&process, how, sizeof(how));
        fprintf(stderr, "weft run: %s %u: the process that was replaced (pid %d) %s\n", place->role,
                place->rank, (int)pid, how);
        return;
    }
    if (strcmp(place->role, "server") == 0) {
        run->replace_ns[place->rank] = 0; /* its successor speaks */
    }
    bool is_worker = strcmp(place->role, "worker") == 0;
    if (is_worker && WIFEXITED(place->wait_status) && WEXITSTATUS(place->wait_status) == 0) {
        place->is_finished = true;
        return;
    }
    weft_process_ending(&process, how, sizeof(how));
    if (is_worker) {
        tell_death(run, place->rank);
    }
    if (place->starts > run->restarts || (is_worker && run->on_death == WEFT_DEATH_FAIL)) {
        give_up(run, place, is_worker, how);
        return;
    }
    uint32_t doublings =
        place->starts - 1 < RESTART_DOUBLINGS ? place->starts - 1 : RESTART_DOUBLINGS;
    run->restart_ns[place - run->squad.places] =
        weft_clock_now_ns() + (restart_pause_ns << doublings);
    fprintf(stderr, "weft run: %s %u %s; restart %u of %u\n", place->role, place->rank, how,
            place->starts, run->restarts);
}

static void note_message(struct run *run, struct weft_place *place, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "ready") == 0 && !place->is_retired) {
        note_ready(run, place, message);
        weft_run_metrics_note(&run->metrics, place, message);
    } else if (strcmp(event, "lapsed") == 0 || strcmp(event, "revived") == 0) {
        note_lease(run, message, strcmp(event, "lapsed") == 0);
    } else if (strcmp(event, "error") == 0 || strcmp(event, "checkpoint") == 0) {
        fprintf(stderr, "weft run: %s %u%s: %s\n", place->role, place->rank,
                place->is_retired ? " (replaced)" : "", weft_channel_text(message, "text"));
    }
}

/* Start what is due again, and replace what is silent; returns when the next one is due. */
static uint64_t restart_due(struct run *run)
{
    uint64_t next_ns = WEFT_NEVER;
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < run->squad.count; i++) {
        uint64_t *due_ns = &run->restart_ns[i];
        if (*due_ns == 0) {
            continue;
        }
        if (*due_ns <= now_ns) {
            *due_ns = 0;
            (void)weft_run_start(run, &run->squad.places[i]); /* a failure is in run->error */
        } else {
            next_ns = *due_ns < next_ns ? *due_ns : next_ns;
        }
    }
    for (uint32_t s = 0; s < run->servers; s++) {
        uint64_t due_ns = run->replace_ns[s];
        if (due_ns != 0 && due_ns <= now_ns) {
            run->replace_ns[s] = 0;
            replace(run, s);
            due_ns = run->replace_ns[s];
        }
        next_ns = due_ns != 0 && due_ns < next_ns ? due_ns : next_ns;
    }
    return next_ns;
}

/* One event, or the passing of until_ns; false when the run is over. */
static bool turn(struct run *run, uint64_t until_ns)
{
    struct weft_squad_event event;
    uint64_t next_ns = restart_due(run);
    uint64_t now_ns = weft_clock_now_ns();
    next_ns = until_ns < next_ns ? until_ns : next_ns;
    uint64_t timeout_ns = next_ns == WEFT_NEVER ? WEFT_NEVER
                          : next_ns > now_ns    ? next_ns - now_ns
                                                : 0;
    if (run->error[0] != '\0') {
        return false;
    }
    weft_run_metrics_look(&run->metrics, &run->squad);
    weft_squad_next(&run->squad, timeout_ns, &event);
    switch (event.type) {
    case WEFT_SQUAD_MESSAGE:
        note_message(run, event.place, event.object);
        cJSON_Delete(event.object);
        break;
    case WEFT_SQUAD_EXITED:
        note_exit(run, event.place, event.pid);
        break;
    case WEFT_SQUAD_SIGNAL:
        run->interrupted = event.signal;
        break;
    case WEFT_SQUAD_TIMEOUT:
        break;
    }
    return run->interrupted == 0 && run->error[0] == '\0';
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool await_ready(struct run *run, uint32_t first, uint32_t count)
{
    uint64_t until_ns = weft_clock_now_ns() + ready_patience_ns;
    for (;;) {
        uint32_t ready = 0;
        for (uint32_t i = first; i < first + count; i++) {
            ready += run->squad.places[i].is_ready;
        }
        if (ready == count) {
            return true;
        }
        if (weft_clock_now_ns() >= until_ns) {
            snprintf(run->error, sizeof(run->error), "%u of %u %ss were ready in time", ready,
                     count, run->squad.places[first].role);
            return false;
        }
        if (!turn(run, until_ns)) {
            return false;
        }
    }
}

static bool start_all(struct run *run)
{
    weft_run_make_scheduler(run);
    if (weft_run_start(run, run_scheduler(run)) != WEFT_OK || !await_ready(run, 0, 1)) {
        return false;
    }
    for (uint32_t s = 0; s < run->servers; s++) {
        weft_run_make_server(run, s);
        if (weft_run_start(run, run_server(run, s)) != WEFT_OK) {
            return false;
        }
    }
    if (!await_ready(run, 1, run->servers)) {
        return false;
    }
    for (uint32_t w = 0; w < run->workers; w++) {
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
        for (uint32_t w = 0; w < run->workers; w++) {
            finished += run_worker(run, w)->is_finished;
        }
        if (finished == run->workers) {
            return true;
        }
        if (!turn(run, WEFT_NEVER)) {
            return false;
        }
    }
}

static bool start_metrics(struct run *run)
{
    char error[WEFT_HTTP_ERROR_BYTES];
    if (weft_run_metrics_start(&run->metrics, &run->metrics_options, run->folder, error) !=
        WEFT_OK) {
        snprintf(run->error, sizeof(run->error), "%s", error);
        return false;
    }
    if (run->metrics.metrics.http != NULL) {
        fprintf(stderr, "weft run: metrics: %s\n", run->metrics.metrics.url);
    }
    return true;
}

int weft_run_all(struct run *run)
{
    bool good = start_metrics(run) && start_all(run) && supervise(run);
    weft_run_metrics_stop(&run->metrics);
    weft_squad_end(&run->squad, "worker", end_grace_ns);
    weft_squad_end(&run->squad, "server",
                   run_has_checkpoints(run) ? checkpoint_grace_ns : end_grace_ns);
    weft_squad_end(&run->squad, NULL, end_grace_ns);
    if (run->interrupted != 0) {
        fprintf(stderr, "weft run: interrupted by signal %d (%s); all processes were ended\n",
                run->interrupted, strsignal(run->interrupted));
    } else if (!good) {
        fprintf(stderr, "weft run: %s; all processes were ended\n", run->error);
    } else {
        fprintf(stderr, "weft run: all %u workers have finished\n", run->workers - run->lost);
    }
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
