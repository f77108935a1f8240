#include "metrics/targets.h"

#include "base/utf8.h"
#include "metrics/target_file.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

void weft_targets_init(struct weft_targets *targets)
{
    memset(targets, 0, sizeof(*targets));
    pthread_mutex_init(&targets->lock, NULL);
}

/* Its place in the list; count = it has none. Behind the lock. */
static uint32_t find(const struct weft_targets *targets, const char *role, uint32_t rank)
{
    uint32_t i = 0;
    while (i < targets->count &&
           (targets->list[i].rank != rank || strcmp(targets->list[i].role, role) != 0)) {
        i++;
    }
    return i;
}

void weft_targets_set(struct weft_targets *targets, const char *role, uint32_t rank,
                      const char *url)
{
    static const char scheme[] = "http://";
    const char *at = url + strlen(scheme);
    if (strncmp(url, scheme, strlen(scheme)) != 0) {
        return;
    }
    pthread_mutex_lock(&targets->lock);
    uint32_t i = find(targets, role, rank);
    if (i < WEFT_TARGETS_MAX) {
        struct weft_target *target = &targets->list[i];
        *target = (struct weft_target){.role = role, .rank = rank};
        snprintf(target->at, sizeof(target->at), "%.*s", (int)strcspn(at, "/"), at);
        targets->count += i == targets->count;
    }
    pthread_mutex_unlock(&targets->lock);
}

void weft_targets_drop(struct weft_targets *targets, const char *role, uint32_t rank)
{
    pthread_mutex_lock(&targets->lock);
    uint32_t i = find(targets, role, rank);
    if (i < targets->count) {
        targets->count--;
        memmove(&targets->list[i], &targets->list[i + 1],
                (targets->count - i) * sizeof(targets->list[0]));
    }
    pthread_mutex_unlock(&targets->lock);
}

static void add_group(cJSON *list, const struct weft_target *target)
{
    char rank[16];
    cJSON *group = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(group, "targets"), cJSON_CreateString(target->at));
    cJSON *labels = cJSON_AddObjectToObject(group, "labels");
    snprintf(rank, sizeof(rank), "%u", target->rank);
    cJSON_AddStringToObject(labels, "role", target->role);
    cJSON_AddStringToObject(labels, "rank", rank);
    cJSON_AddItemToArray(list, group);
}

/* Argument of weft_targets_parse for a worker's file. */
struct worker {
    cJSON *list;
    uint32_t rank;
};

static void add_worker(void *arg, const char *at)
{
    const struct worker *worker = arg;
    struct weft_target target = {.role = "worker", .rank = worker->rank};
    snprintf(target.at, sizeof(target.at), "%s", at);
    add_group(worker->list, &target);
}

char *weft_targets_json(struct weft_targets *targets)
{
    cJSON *list = cJSON_CreateArray();
    pthread_mutex_lock(&targets->lock);
    for (uint32_t i = 0; i < targets->count; i++) {
        add_group(list, &targets->list[i]);
    }
    for (uint32_t rank = 0; targets->folder != NULL && rank < targets->workers; rank++) {
        char text[WEFT_TARGET_FILE_BYTES];
        struct worker worker = {list, rank};
        if (weft_target_file_read(targets->folder, "worker", rank, text)) {
            weft_targets_parse(text, add_worker, &worker);
        }
    }
    pthread_mutex_unlock(&targets->lock);
    char *text = cJSON_PrintUnformatted(list);
    cJSON_Delete(list);
    if (text != NULL) {
        weft_utf8_repair(text); /* lists of other programs may have any bytes */
    }
    return text;
}

void weft_targets_parse(const char *text, void (*add)(void *arg, const char *at), void *arg)
{
    const cJSON *group, *name;
    cJSON *list = cJSON_Parse(text);
    cJSON_ArrayForEach(group, list)
    {
        cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(group, "targets"))
        {
            /* Addresses only: a list from another program must not name local files. */
            if (cJSON_IsString(name) && strchr(name->valuestring, '/') == NULL &&
                strchr(name->valuestring, ':') != NULL) {
                add(arg, name->valuestring);
            }
        }
    }
    cJSON_Delete(list);
}
