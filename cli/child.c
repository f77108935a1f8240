#include "cli/child.h"

#include "base/utf8.h"
#include "cli/options.h"

#include <stdio.h>

int weft_child_exit(struct weft_channel *channel, const char *verb, weft_status status,
                    const struct weft_error *error)
{
    if (status == WEFT_OK) {
        return WEFT_EXIT_OK;
    }
    if (channel->fd >= 0) {
        cJSON *event = weft_channel_event("error");
        cJSON_AddStringToObject(event, "text", error->text);
        (void)weft_channel_send(channel, event);
    } else {
        fprintf(stderr, "weft %s: %s\n", verb, error->text);
    }
    return status == WEFT_UNSUPPORTED ? WEFT_EXIT_USAGE : WEFT_EXIT_FAILED;
}

cJSON *weft_child_ready(const uint16_t *ports, uint32_t count, const char *metrics)
{
    cJSON *event = weft_channel_event("ready");
    cJSON *list = cJSON_AddArrayToObject(event, "ports");
    for (uint32_t i = 0; i < count; i++) {
        cJSON_AddItemToArray(list, cJSON_CreateNumber(ports[i]));
    }
    if (metrics[0] != '\0') {
        cJSON_AddStringToObject(event, "metrics", metrics);
    }
    return event;
}

void weft_child_report(struct weft_channel *channel, cJSON *object)
{
    if (channel->fd >= 0) {
        (void)weft_channel_send(channel, object);
        return;
    }
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (text != NULL) {
        weft_utf8_repair(text);
        puts(text);
        fflush(stdout);
        cJSON_free(text);
    }
}
