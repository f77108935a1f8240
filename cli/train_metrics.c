#include "cli/train_metrics.h"

#include <stdio.h>
#include <string.h>

static void add_train(void *arg, struct weft_exposition *text)
{
    struct weft_train_metrics *train = arg;
    pthread_mutex_lock(&train->lock);
    weft_exposition_family(text, "weft_train_processes", "gauge",
                           "Processes of the job that said that they are ready.");
    weft_exposition_u64(text, "weft_train_processes", "role=\"server\"", train->servers_ready);
    weft_exposition_u64(text, "weft_train_processes", "role=\"worker\"", train->workers_ready);
    weft_exposition_family(text, "weft_train_epochs_total", "counter",
                           "Epochs finished, of all workers together.");
    weft_exposition_u64(text, "weft_train_epochs_total", NULL, train->epochs);
    pthread_mutex_unlock(&train->lock);
}

/* Prometheus' HTTP service discovery. */
static char *list_targets(void *arg)
{
    struct weft_train_metrics *train = arg;
    cJSON *list = cJSON_CreateArray();
    pthread_mutex_lock(&train->lock);
    for (uint32_t i = 0; i < train->count; i++) {
        char rank[16];
        cJSON *group = cJSON_CreateObject();
        cJSON_AddItemToArray(cJSON_AddArrayToObject(group, "targets"),
                             cJSON_CreateString(train->targets[i].at));
        cJSON *labels = cJSON_AddObjectToObject(group, "labels");
        snprintf(rank, sizeof(rank), "%u", train->targets[i].rank);
        cJSON_AddStringToObject(labels, "role", train->targets[i].role);
        cJSON_AddStringToObject(labels, "rank", rank);
        cJSON_AddItemToArray(list, group);
    }
    pthread_mutex_unlock(&train->lock);
    char *text = cJSON_PrintUnformatted(list);
    cJSON_Delete(list);
    return text;
}

weft_status weft_train_metrics_start(struct weft_train_metrics *train,
                                     const struct weft_metrics_options *options,
                                     char error_p[WEFT_HTTP_ERROR_BYTES])
{
    const struct weft_metrics_source source = {
        .role = "train", .arg = train, .families = add_train, .targets = list_targets};
    pthread_mutex_init(&train->lock, NULL);
    return weft_metrics_start(&train->metrics, options, &source, error_p);
}

void weft_train_metrics_stop(struct weft_train_metrics *train)
{
    weft_metrics_stop(&train->metrics);
}

void weft_train_metrics_add(const struct weft_metrics_options *options,
                            struct weft_arguments *arguments)
{
    if (options->host[0] != '\0') {
        bool v6 = strchr(options->host, ':') != NULL;
        weft_arguments_add(arguments, "--metrics=%s%s%s:0", v6 ? "[" : "", options->host,
                           v6 ? "]" : "");
    }
}

/* "http://127.0.0.1:9101/metrics" -> "127.0.0.1:9101" */
static void add_target(struct weft_train_metrics *train, const struct weft_process *process,
                       const char *url)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, strlen(scheme)) == 0 && train->count < WEFT_TRAIN_METRICS_MAX) {
        const char *at = url + strlen(scheme);
        train->targets[train->count].role = process->role;
        train->targets[train->count].rank = process->rank;
        snprintf(train->targets[train->count].at, sizeof(train->targets[0].at), "%.*s",
                 (int)strcspn(at, "/"), at);
        train->count++;
    }
}

void weft_train_metrics_note(struct weft_train_metrics *train, const struct weft_process *process,
                             const cJSON *message)
{
    if (train->metrics.http == NULL) {
        return;
    }
    const char *event = weft_channel_text(message, "event");
    bool is_ready = strcmp(event, "ready") == 0;
    pthread_mutex_lock(&train->lock);
    train->epochs += strcmp(event, "epoch") == 0;
    if (is_ready) {
        bool server = strcmp(process->role, "server") == 0;
        train->servers_ready += server;
        train->workers_ready += !server;
        add_target(train, process, weft_channel_text(message, "metrics"));
    }
    pthread_mutex_unlock(&train->lock);
}
