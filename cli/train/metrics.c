#include "cli/train/metrics.h"

#include <string.h>

static void add_train(void *arg, struct weft_exposition *text)
{
    struct weft_train_metrics *train = arg;
    pthread_mutex_lock(&train->targets.lock);
    weft_exposition_family(text, "weft_train_processes", "gauge",
                           "Processes of the job that have become ready, including those that "
                           "have ended.");
    weft_exposition_u64(text, "weft_train_processes", "role=\"server\"", train->servers_ready);
    weft_exposition_u64(text, "weft_train_processes", "role=\"worker\"", train->workers_ready);
    weft_exposition_one(text, "weft_train_epochs_total", "counter",
                        "Epochs finished, summed over all workers.", train->epochs);
    pthread_mutex_unlock(&train->targets.lock);
}

weft_status weft_train_metrics_start(struct weft_train_metrics *train,
                                     const struct weft_metrics_options *options,
                                     struct weft_error *error)
{
    const struct weft_metrics_source source = {
        .role = "train", .arg = train, .families = add_train, .targets = &train->targets};
    weft_targets_init(&train->targets);
    return weft_metrics_start(&train->metrics, options, &source, error);
}

void weft_train_metrics_stop(struct weft_train_metrics *train)
{
    weft_metrics_stop(&train->metrics);
}

void weft_train_metrics_note(struct weft_train_metrics *train, const struct weft_slot *slot,
                             const cJSON *message)
{
    if (train->metrics.http == NULL) {
        return;
    }
    const char *event = weft_channel_text(message, "event");
    bool is_ready = strcmp(event, "ready") == 0;
    bool is_server = strcmp(slot->role, "server") == 0;
    pthread_mutex_lock(&train->targets.lock);
    train->epochs += strcmp(event, "epoch") == 0;
    train->servers_ready += is_ready && is_server;
    train->workers_ready += is_ready && strcmp(slot->role, "worker") == 0;
    pthread_mutex_unlock(&train->targets.lock);
    if (is_ready) {
        weft_targets_set(&train->targets, slot->role, slot->rank,
                         weft_channel_text(message, "metrics"));
    }
}

void weft_train_metrics_gone(struct weft_train_metrics *train, const struct weft_slot *slot)
{
    if (train->metrics.http != NULL) {
        weft_targets_drop(&train->targets, slot->role, slot->rank);
    }
}
