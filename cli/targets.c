#include "cli/targets.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* The place of this rank, or the first that is free. */
static uint32_t place_of(const struct weft_targets *targets, const char *role, uint32_t rank)
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
    uint32_t i = place_of(targets, role, rank);
    if (strncmp(url, scheme, strlen(scheme)) != 0 || i == WEFT_TARGETS_MAX) {
        return;
    }
    const char *at = url + strlen(scheme);
    targets->list[i].role = role;
    targets->list[i].rank = rank;
    snprintf(targets->list[i].at, sizeof(targets->list[i].at), "%.*s", (int)strcspn(at, "/"), at);
    targets->count += i == targets->count;
}

char *weft_targets_json(const struct weft_targets *targets)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < targets->count; i++) {
        char rank[16];
        cJSON *group = cJSON_CreateObject();
        cJSON_AddItemToArray(cJSON_AddArrayToObject(group, "targets"),
                             cJSON_CreateString(targets->list[i].at));
        cJSON *labels = cJSON_AddObjectToObject(group, "labels");
        snprintf(rank, sizeof(rank), "%u", targets->list[i].rank);
        cJSON_AddStringToObject(labels, "role", targets->list[i].role);
        cJSON_AddStringToObject(labels, "rank", rank);
        cJSON_AddItemToArray(list, group);
    }
    char *text = cJSON_PrintUnformatted(list);
    cJSON_Delete(list);
    return text;
}

void weft_targets_add(const struct weft_metrics_options *options, struct weft_args *args)
{
    bool v6 = strchr(options->host, ':') != NULL;
    if (options->host[0] != '\0') {
        weft_args_add(args, "--metrics=%s%s%s:0", v6 ? "[" : "", options->host, v6 ? "]" : "");
    }
}
