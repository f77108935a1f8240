/* Lines of a source, numbered from 1, without their ends.
 *
 * Only one trailing "\n" or "\r\n" is removed: the train/test split hashes the remaining bytes. A
 * last line without a line end is a line. Memory is one buffer as long as the longest line (at
 * least 64 KiB).
 */
#ifndef WEFT_ML_LINES_H
#define WEFT_ML_LINES_H

#include "ml/source.h"

#include <stdbool.h>

/* A longer line is rejected: the file is binary or lacks line ends. */
#define WEFT_ML_LINE_BYTES_MAX ((size_t)16 << 20)

struct weft_ml_line {
    const char *text; /* not terminated; valid until the next weft_ml_lines_next */
    size_t bytes;
    uint64_t number;
};

struct weft_ml_lines {
    struct weft_ml_source *source; /* borrowed */
    char *buffer;                  /* [at, count) is read and not yet returned */
    size_t capacity;
    size_t at;
    size_t count;
    uint64_t number; /* number of the last line returned */
    bool ended;      /* the source has no more bytes */
};

/* Owns:    borrows source until fini. */
weft_status weft_ml_lines_init(struct weft_ml_lines *lines, struct weft_ml_source *source,
                               struct weft_error *error);

/* Read the next line; *more_p = false and no line at the end.
 *
 * Errors:  those of weft_ml_source_read; WEFT_DATA for a line longer than WEFT_ML_LINE_BYTES_MAX;
 *          WEFT_NOMEM. `lines->number + 1` is the line that could not be read.
 *
 */
weft_status weft_ml_lines_next(struct weft_ml_lines *lines, struct weft_error *error,
                               struct weft_ml_line *line_p, bool *more_p);

void weft_ml_lines_fini(struct weft_ml_lines *lines);

#endif
