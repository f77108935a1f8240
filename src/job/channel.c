#include "job/channel.h"

#include "job/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 65536 };

cJSON *weft_channel_event(const char *event)
{
    cJSON *object = weft_job_need(cJSON_CreateObject());
    weft_job_need(cJSON_AddStringToObject(object, "event", event));
    return object;
}

weft_status weft_channel_send(struct weft_channel *channel, cJSON *object)
{
    char *text = weft_job_need(cJSON_PrintUnformatted(object));
    cJSON_Delete(object);
    size_t bytes = strlen(text);
    text[bytes++] = '\n'; /* replaces the final zero; the text is written by length */
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < bytes;) {
        /* MSG_NOSIGNAL: if the parent has exited, the result is a status, not SIGPIPE. */
        ssize_t written = send(channel->fd, text + at, bytes - at, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            status = WEFT_PEER;
            break;
        }
        at += (size_t)written;
    }
    cJSON_free(text);
    return status;
}

/* Remove the first complete line from the buffer and parse it; *object_p stays NULL if there is
 * none. */
static weft_status take_line(struct weft_channel *channel, cJSON **object_p)
{
    char *end = channel->count > 0 ? memchr(channel->bytes, '\n', channel->count) : NULL;
    if (end == NULL) {
        *object_p = NULL;
        return WEFT_OK;
    }
    size_t bytes = (size_t)(end - channel->bytes);
    cJSON *object = cJSON_ParseWithLength(channel->bytes, bytes);
    channel->count -= bytes + 1;
    memmove(channel->bytes, end + 1, channel->count);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return WEFT_DATA;
    }
    *object_p = object;
    return WEFT_OK;
}

weft_status weft_channel_next(struct weft_channel *channel, cJSON **object_p)
{
    for (;;) {
        weft_status status = take_line(channel, object_p);
        if (status != WEFT_OK || *object_p != NULL) {
            return status;
        }
        if (channel->capacity - channel->count < READ_BYTES) {
            channel->capacity += READ_BYTES;
            channel->bytes = weft_job_need(realloc(channel->bytes, channel->capacity));
        }
        ssize_t got = read(channel->fd, channel->bytes + channel->count, READ_BYTES);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return WEFT_OK;
        }
        if (got <= 0) {
            return WEFT_PEER;
        }
        channel->count += (size_t)got;
    }
}

void weft_channel_fini(struct weft_channel *channel)
{
    if (channel->fd >= 0) {
        close(channel->fd);
    }
    free(channel->bytes);
    *channel = (struct weft_channel){.fd = -1};
}

const char *weft_channel_text(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text != NULL ? text : "";
}

double weft_channel_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0.0;
}

void weft_channel_ports(const cJSON *object, uint16_t *ports_p, uint32_t count)
{
    const cJSON *ports = cJSON_GetObjectItemCaseSensitive(object, "ports");
    for (uint32_t i = 0; i < count; i++) {
        const cJSON *port = cJSON_GetArrayItem(ports, (int)i);
        ports_p[i] = cJSON_IsNumber(port) ? (uint16_t)port->valuedouble : 0;
    }
}
