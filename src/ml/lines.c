#include "ml/lines.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES_MIN = 1 << 16 };

weft_status weft_ml_lines_init(struct weft_ml_lines *lines, struct weft_ml_source *source,
                               struct weft_error *error)
{
    char *buffer = malloc(BUFFER_BYTES_MIN);
    if (buffer == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a line buffer");
    }
    *lines =
        (struct weft_ml_lines){.source = source, .buffer = buffer, .capacity = BUFFER_BYTES_MIN};
    return WEFT_OK;
}

static weft_status too_long(struct weft_error *error)
{
    return weft_fail(error, WEFT_DATA, "line is longer than %zu bytes", WEFT_ML_LINE_BYTES_MAX);
}

/* Make room after the incomplete line: move it to the front, or grow the buffer if it is full. */
static weft_status make_room(struct weft_ml_lines *lines, struct weft_error *error)
{
    if (lines->at > 0) {
        memmove(lines->buffer, lines->buffer + lines->at, lines->count - lines->at);
        lines->count -= lines->at;
        lines->at = 0;
    }
    if (lines->count < lines->capacity) {
        return WEFT_OK;
    }
    /* Two more for the line end: a line of exactly the maximum length is allowed. */
    size_t capacity_max = WEFT_ML_LINE_BYTES_MAX + 2;
    if (lines->capacity == capacity_max) {
        return too_long(error);
    }
    size_t capacity = weft_min_u64(lines->capacity * 2, capacity_max);
    char *buffer = realloc(lines->buffer, capacity);
    if (buffer == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a line of %zu bytes", capacity);
    }
    lines->buffer = buffer;
    lines->capacity = capacity;
    return WEFT_OK;
}

static weft_status read_more(struct weft_ml_lines *lines, struct weft_error *error)
{
    weft_status status = make_room(lines, error);
    if (status != WEFT_OK) {
        return status;
    }
    size_t count = 0;
    status = weft_ml_source_read(lines->source, lines->buffer + lines->count,
                                 lines->capacity - lines->count, error, &count);
    if (status != WEFT_OK) {
        return status;
    }
    lines->count += count;
    lines->ended = count == 0;
    return WEFT_OK;
}

static weft_status hand_out(struct weft_ml_lines *lines, const char *newline,
                            struct weft_error *error, struct weft_ml_line *line_p)
{
    const char *text = lines->buffer + lines->at;
    const char *end = newline != NULL ? newline : lines->buffer + lines->count;
    size_t next = (size_t)(end - lines->buffer) + (newline != NULL);
    if (newline != NULL && end > text && end[-1] == '\r') {
        end--;
    }
    size_t bytes = (size_t)(end - text);
    if (bytes > WEFT_ML_LINE_BYTES_MAX) {
        return too_long(error);
    }
    lines->at = next;
    lines->number++;
    *line_p = (struct weft_ml_line){.text = text, .bytes = bytes, .number = lines->number};
    return WEFT_OK;
}

weft_status weft_ml_lines_next(struct weft_ml_lines *lines, struct weft_error *error,
                               struct weft_ml_line *line_p, bool *more_p)
{
    size_t searched = 0; /* bytes of the incomplete line known to contain no newline */
    for (;;) {
        const char *text = lines->buffer + lines->at;
        size_t bytes = lines->count - lines->at;
        const char *newline = memchr(text + searched, '\n', bytes - searched);
        if (newline != NULL || lines->ended) {
            *more_p = newline != NULL || bytes > 0;
            return *more_p ? hand_out(lines, newline, error, line_p) : WEFT_OK;
        }
        searched = bytes;
        weft_status status = read_more(lines, error);
        if (status != WEFT_OK) {
            return status;
        }
    }
}

void weft_ml_lines_fini(struct weft_ml_lines *lines)
{
    free(lines->buffer);
    *lines = (struct weft_ml_lines){0};
}
