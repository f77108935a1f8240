/* JSON objects, one a line, between a supervisor and the processes it started.
 *
 * One stream socket per child, both ways: the child says ready, epoch, done or error; the parent
 * says go. Its end of file tells each side that the other is gone. This is a private agreement of
 * one binary with itself: the bytes are trusted, and a line that is no object is an error.
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

/* A new message {"event": event}; fill it and send it. Never NULL: no memory ends the process. */
cJSON *weft_channel_event(const char *event);

/* Write the whole object.   Owns: takes object, also on failure.
 * Errors:  WEFT_PEER  the other side is gone. */
weft_status weft_channel_send(struct weft_channel *channel, cJSON *object);

/* The next object, or NULL when no whole line is there and the descriptor does not block.
 * Owns:    gives *object_p, to be freed with cJSON_Delete.
 * Errors:  WEFT_PEER  end of file or a broken socket.  WEFT_DATA  a line that is no object. */
weft_status weft_channel_next(struct weft_channel *channel, cJSON **object_p);

/* Close and free; a channel with fd -1 is fine. */
void weft_channel_fini(struct weft_channel *channel);

/* The string or number of a key; "" or 0 when it is missing. */
const char *weft_channel_text(const cJSON *object, const char *key);
double weft_channel_number(const cJSON *object, const char *key);
/* The first `count` numbers of the list "ports"; 0 for those that are missing. */
void weft_channel_ports(const cJSON *object, uint16_t *ports_p, uint32_t count);

#endif
