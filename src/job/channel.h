/* JSON objects, one per line, between a supervisor and its child processes.
 *
 * One stream socket per child, both ways: the child sends events such as ready, epoch, done and
 * error, the parent commands such as go, stop and promote. End of file means that the other process
 * has exited. The format is private to one binary: the bytes are trusted, and a line that is not a
 * JSON object is an error.
 */
#ifndef WEFT_JOB_CHANNEL_H
#define WEFT_JOB_CHANNEL_H

#include "base/status.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

struct weft_channel {
    int fd; /* -1 = none */
    char *bytes;
    size_t count;
    size_t capacity;
};

/* A new message {"event": event}; fill it and send it. Never NULL: the process ends if memory is
 * exhausted. */
cJSON *weft_channel_event(const char *event);

/* Write the whole object.   Owns: takes object, also on failure.
 * Errors:  WEFT_PEER  the other process has exited. */
weft_status weft_channel_send(struct weft_channel *channel, cJSON *object);

/* The next object, or NULL if the descriptor is non-blocking and no complete line has arrived.
 * Owns:    gives *object_p, to be freed with cJSON_Delete.
 * Errors:  WEFT_PEER  end of file or a broken socket.  WEFT_DATA  a line that is not an object. */
weft_status weft_channel_next(struct weft_channel *channel, cJSON **object_p);

/* Close and free; a channel with fd -1 is allowed. */
void weft_channel_fini(struct weft_channel *channel);

/* The string or number of a key; "" or 0 if it is missing. */
const char *weft_channel_text(const cJSON *object, const char *key);
double weft_channel_number(const cJSON *object, const char *key);
/* The first `count` numbers of the list "ports"; 0 for missing ones. */
void weft_channel_ports(const cJSON *object, uint16_t *ports_p, uint32_t count);

#endif
