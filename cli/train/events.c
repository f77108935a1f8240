/* Events of the processes of `weft train`, and their exits. */
#include "cli/train/internal.h"

#include "io/clock.h"

#include <sys/wait.h>

static void note_scheduler(struct train *train, const struct weft_slot *slot, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    struct weft_launch_address *address = &train->job.scheduler_address;
    if (strcmp(event, "ready") == 0) {
        weft_channel_ports(message, &address->port, 1);
        weft_train_metrics_note(&train->metrics, slot, message);
        train->schedulers_ready++;
    } else if (strcmp(event, "done") == 0) {
        const cJSON *report = cJSON_GetObjectItemCaseSensitive(message, "scheduler");
        cJSON_Delete(train->scheduler_report);
        train->scheduler_report = report != NULL ? cJSON_Duplicate(report, true) : NULL;
    }
}

static void note_message(struct train *train, struct weft_slot *slot, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "error") == 0) {
        if (train->error.text[0] == '\0') {
            (void)weft_fail(&train->error, WEFT_PEER, "%s %u (pid %d): %s", slot->role, slot->rank,
                            (int)slot->pid, weft_channel_text(message, "text"));
        }
        return;
    }
    if (strcmp(event, "resumed") == 0) {
        fprintf(train->progress,
                "worker %u: reconnected to shard %.0f; %.0f pushes resent, %.0f lost\n", slot->rank,
                weft_channel_number(message, "shard"),
                weft_channel_number(message, "pushes_resent"),
                weft_channel_number(message, "pushes_lost"));
        return;
    }
    if (strcmp(event, "unsaved") == 0) {
        (void)weft_fail(&train->unsaved, WEFT_IO, "%s", weft_channel_text(message, "text"));
        return;
    }
    if (strcmp(event, "checkpoint") == 0) {
        fprintf(train->progress, "server %u: %s\n", slot->rank, weft_channel_text(message, "text"));
        fflush(train->progress);
        return;
    }
    if (train_is_scheduler(slot)) {
        note_scheduler(train, slot, message);
        return;
    }
    if (weft_results_add(&train->results, slot, message, weft_clock_now_ns()) != WEFT_OK) {
        (void)weft_fail(&train->error, WEFT_PEER, "%s %u (pid %d) sent an unreadable \"%s\"",
                        slot->role, slot->rank, (int)slot->pid, event);
        return;
    }
    weft_train_metrics_note(&train->metrics, slot, message);
    if (strcmp(event, "ready") == 0) {
        if (train_is_aggregator(slot)) {
            weft_channel_ports(message, train->aggregator_ports[slot->rank],
                               train->servers * train->shards_per_server);
            train->aggregators_ready++;
        } else if (train_is_server(slot)) {
            /* Servers become ready in any order; the shards of each have fixed positions. */
            uint32_t shards = train->shards_per_server;
            weft_channel_ports(message, train->ports + slot->rank * shards, shards);
            train->servers_ready++;
        } else {
            train->workers_ready++;
        }
    } else if (strcmp(event, "done") == 0) {
        train->servers_done += train_is_server(slot);
        train->workers_done += !train_is_server(slot) && !train_is_aggregator(slot);
    } else if (strcmp(event, "check") == 0) {
        weft_until_log_show(&train->results.until, train->progress);
    } else if (strcmp(event, "epoch") == 0) {
        train->last_epoch_workers += weft_channel_number(message, "epoch") == train->job.epochs;
    }
    weft_results_show_epochs(&train->results, train->progress);
}

/* An exit is expected after "done"; a server sends that only when told to stop. A failed aggregator
 * loses nothing, so the run continues without it. */
static void note_exit(struct train *train, struct weft_slot *slot)
{
    weft_train_metrics_gone(&train->metrics, slot);
    if (train_is_aggregator(slot) && train->aggregators_ready == train->aggregators) {
        train->aggregators_ended++;
        if (slot->wait_status != 0) {
            char ending[128];
            weft_slot_ending(slot, ending, sizeof(ending));
            fprintf(train->progress,
                    "aggregator (pid %d) %s; workers push to the servers directly\n",
                    (int)slot->pid, ending);
        }
        return;
    }
    if (slot->wait_status == 0 && slot->is_done) {
        return;
    }
    if (train_is_scheduler(slot) && train->schedulers_ready > 0) {
        char ending[128];
        weft_slot_ending(slot, ending, sizeof(ending));
        fprintf(train->progress, "scheduler (pid %d) %s; workers push without it\n", (int)slot->pid,
                ending);
        fflush(train->progress);
        return;
    }
    if (WIFSIGNALED(slot->wait_status)) {
        train->killed = train->killed != NULL ? train->killed : slot;
    } else {
        train->ended = train->ended != NULL ? train->ended : slot;
    }
}

/* True if a process exited unexpectedly or reported an error, or if a signal requests
 * termination. */
static bool in_trouble(const struct train *train)
{
    return train->error.text[0] != '\0' || train->killed != NULL || train->ended != NULL ||
           train->interrupted != 0;
}

void weft_train_take_signal(struct train *train, int signal)
{
    const uint64_t now_ns = weft_clock_now_ns();
    if (train->signals == 0 ||
        now_ns >= weft_time_add(train->signal_ns, WEFT_RUN_SAME_SIGNAL_NS)) {
        train->signals++;
        train->signal_ns = now_ns;
    }
    train->interrupted = signal;
}

bool weft_train_next_event(struct train *train, uint64_t timeout_ns)
{
    struct weft_supervisor_event event;
    weft_supervisor_next(&train->supervisor, timeout_ns, &event);
    switch (event.type) {
    case WEFT_SUPERVISOR_MESSAGE:
        event.slot->is_done |= strcmp(weft_channel_text(event.object, "event"), "done") == 0;
        note_message(train, event.slot, event.object);
        cJSON_Delete(event.object);
        break;
    case WEFT_SUPERVISOR_EXITED:
        note_exit(train, event.slot);
        break;
    case WEFT_SUPERVISOR_SIGNAL:
        weft_train_take_signal(train, event.signal);
        break;
    case WEFT_SUPERVISOR_DUE: /* no restarts are requested */
    case WEFT_SUPERVISOR_TIMEOUT:
        return false;
    }
    return true;
}

weft_status weft_train_await(struct train *train, const uint32_t *count, uint32_t wanted,
                             uint64_t patience_ns, const char *what)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), patience_ns);
    while (*count < wanted && !in_trouble(train)) {
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= until_ns) {
            return weft_fail(&train->error, WEFT_TIMEOUT, "only %u of %u %s in time", *count,
                             wanted, what);
        }
        (void)weft_train_next_event(train, until_ns == WEFT_NEVER ? WEFT_NEVER : until_ns - now_ns);
    }
    return in_trouble(train) ? WEFT_PEER : WEFT_OK;
}

void weft_train_send(struct train *train, const char *role, uint32_t rank_max, const char *word)
{
    for (uint32_t i = 0; i < train->supervisor.count; i++) {
        struct weft_slot *slot = &train->supervisor.slots[i];
        if (slot->is_running && strcmp(slot->role, role) == 0 && slot->rank <= rank_max &&
            slot->channel.fd >= 0) {
            /* A send to a process that has exited fails; its exit is reported separately. */
            (void)weft_channel_send(&slot->channel, weft_channel_event(word));
        }
    }
}
