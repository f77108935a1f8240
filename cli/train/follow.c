/* `weft train --replicas --report`: follows a job of `weft run` for the report. The workers send
 * their events here, and wait for "go" and "test" as in a run without replicas (train.c). The
 * servers' counters are those of the processes that serve at the end: what a killed server had
 * counted is lost. */
#include "cli/train/internal.h"

#include "io/clock.h"

#include <string.h>

/* To the workers with ranks up to rank_max. */
static void send_word(struct weft_supervisor *supervisor, uint32_t rank_max, const char *word)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct weft_slot *slot = &supervisor->slots[i];
        if (slot->is_running && slot->role != NULL && strcmp(slot->role, "worker") == 0 &&
            slot->rank <= rank_max && slot->channel.fd >= 0) {
            /* A send to a process that has exited fails; its exit ends the run. */
            (void)weft_channel_send(&slot->channel, weft_channel_event(word));
        }
    }
}

static void begin(struct train *train, struct weft_supervisor *supervisor)
{
    train->results.begun_ns = weft_clock_now_ns();
    fprintf(train->progress, "training on %u rows, testing on %u; %u features\n",
            train->results.rows_train, train->results.rows_test, train->results.features);
    fflush(train->progress);
    send_word(supervisor, UINT32_MAX, "go");
}

static void note_resumed(struct train *train, const struct weft_slot *slot, const cJSON *message)
{
    const double lost = weft_channel_number(message, "pushes_lost");
    train->results.replication.pushes_lost += lost;
    fprintf(train->progress, "worker %u: reconnected to shard %.0f; %.0f pushes resent, %.0f lost\n",
            slot->rank, weft_channel_number(message, "shard"),
            weft_channel_number(message, "pushes_resent"), lost);
}

static void take(struct train *train, struct weft_supervisor *supervisor, struct weft_slot *slot,
                 const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "resumed") == 0) {
        note_resumed(train, slot, message);
        return;
    }
    if (strcmp(event, "unsaved") == 0) {
        (void)weft_fail(&train->unsaved, WEFT_IO, "%s", weft_channel_text(message, "text"));
        return;
    }
    if (train_is_scheduler(slot)) {
        cJSON_Delete(train->scheduler_report);
        train->scheduler_report =
            cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(message, "scheduler"), true);
        return;
    }
    if (weft_results_add(&train->results, slot, message, weft_clock_now_ns()) != WEFT_OK) {
        (void)weft_fail(&train->error, WEFT_PEER, "%s %u (pid %d) sent an unreadable \"%s\"",
                        slot->role, slot->rank, (int)slot->pid, event);
        return;
    }
    if (train_is_aggregator(slot)) {
        return;
    }
    if (train_is_server(slot)) {
        train->servers_done += strcmp(event, "done") == 0;
    } else if (strcmp(event, "ready") == 0) {
        if (++train->workers_ready == train->job.workers) {
            begin(train, supervisor);
        }
    } else if (strcmp(event, "epoch") == 0 &&
               weft_channel_number(message, "epoch") == train->job.epochs) {
        if (++train->last_epoch_workers == train->job.workers) {
            send_word(supervisor, 0, "test");
        }
    } else if (strcmp(event, "done") == 0) {
        train->workers_done++;
    }
    weft_results_show_epochs(&train->results, train->progress);
}

static void note(void *arg, struct weft_supervisor *supervisor, struct weft_slot *slot,
                 const cJSON *message)
{
    struct train *train = arg;
    train->output = supervisor;
    take(train, supervisor, slot, message);
    (void)fflush(train->progress);
    train->output = NULL;
}

void weft_train_follow(struct train *train, struct weft_run_watch *watch_p)
{
    *watch_p = (struct weft_run_watch){.arg = train, .message = note};
}

int weft_train_follow_end(struct train *train, const struct weft_run_watch *watch)
{
    train->results.replication.promotions = watch->promotions;
    train->results.replication.div_max = train->div_max;
    if (watch->scheduler_port != 0) {
        train->job.scheduler_address =
            (struct weft_launch_address){.host = "127.0.0.1", .port = watch->scheduler_port};
    }
    if (train->error.text[0] == '\0' &&
        (train->servers_done != train->servers || train->workers_done != train->job.workers)) {
        (void)weft_fail(&train->error, WEFT_PEER,
                        "%u of %u servers and %u of %u workers reported "
                        "their counters",
                        train->servers_done, train->servers, train->workers_done,
                        train->job.workers);
    }
    if (train->error.text[0] != '\0') {
        fprintf(stderr, "weft train: %s; no report was written\n", train->error.text);
        return WEFT_EXIT_FAILED;
    }
    return WEFT_EXIT_OK;
}
