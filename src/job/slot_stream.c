#define _GNU_SOURCE
#include "job/slot_stream.h"

#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Print complete lines; a line that is too long is split. */
static void print_lines(const struct weft_slot *slot, struct weft_slot_stream *stream, bool all)
{
    char line[WEFT_SLOT_LINE_BYTES + 64]; /* with "[aggregator 1234, replaced] " */
    for (;;) {
        char *end = memchr(stream->bytes, '\n', stream->count);
        bool is_full = stream->count == WEFT_SLOT_LINE_BYTES;
        if (end == NULL && !is_full && !(all && stream->count > 0)) {
            return;
        }
        size_t count = end != NULL ? (size_t)(end - stream->bytes) : stream->count;
        int bytes = snprintf(line, sizeof(line), "[%s %u%s] %.*s\n", slot->role, slot->rank,
                             slot->is_retired ? ", replaced" : "", (int)count, stream->bytes);
        weft_output_queue_add(stream->to, line, weft_min_u64((uint64_t)bytes, sizeof(line) - 1),
                              true);
        count += end != NULL;
        stream->count -= count;
        memmove(stream->bytes, stream->bytes + count, stream->count);
    }
}

void weft_slot_stream_close(const struct weft_slot *slot, struct weft_slot_stream *stream)
{
    if (stream->fd >= 0) {
        print_lines(slot, stream, true);
        close(stream->fd);
        stream->fd = -1;
        free(stream->bytes);
        stream->bytes = NULL;
    }
}

size_t weft_slot_stream_forward(const struct weft_slot *slot, struct weft_slot_stream *stream)
{
    if (stream->fd < 0) {
        return 0;
    }
    ssize_t got =
        read(stream->fd, stream->bytes + stream->count, WEFT_SLOT_LINE_BYTES - stream->count);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got <= 0) {
        weft_slot_stream_close(slot, stream);
        return 0;
    }
    stream->count += (size_t)got;
    print_lines(slot, stream, false);
    return (size_t)got;
}

void weft_slot_stream_drain(const struct weft_slot *slot, struct weft_slot_stream *stream)
{
    int room = stream->fd >= 0 ? fcntl(stream->fd, F_GETPIPE_SZ) : 0;
    size_t left = room > 0 ? (size_t)room : 0;
    while (left > 0) {
        size_t got = weft_slot_stream_forward(slot, stream);
        left = got > 0 && got < left ? left - got : 0;
    }
}
