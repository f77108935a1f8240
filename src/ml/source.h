/* A stream of uncompressed bytes from a file or from memory: plain, zstd or gzip.
 *
 * The compression is detected from the first bytes (28 B5 2F FD or a skippable frame = zstd, 1F 8B
 * = gzip), not from the name. A file named .zst or .gz with other content is an error, because
 * downloads often save an error page under the expected name. A stream that ends inside a frame is
 * an error and never a shorter file. Consecutive frames or members are one stream. It is not a
 * general codec: no seeking, no writing.
 *
 * Source: RFC 8878 (zstd frames), RFC 1952 (gzip members).
 */
#ifndef WEFT_ML_SOURCE_H
#define WEFT_ML_SOURCE_H

#include "ml/error.h"

struct weft_ml_source;

/* Errors:  WEFT_NOTFOUND     no such file.
 *          WEFT_IO           cannot be opened or read; a directory.
 *          WEFT_NOMEM        no memory for the decoder.
 *          WEFT_DATA         named .zst or .gz, but the first bytes are neither.
 *          The text does not name the path: the caller does (weft_ml_error_place).
 * Owns:    gives *source_p; end it with weft_ml_source_close.
 */
weft_status weft_ml_source_open(const char *path, struct weft_error *error,
                                struct weft_ml_source **source_p);

/* The same over bytes in memory.   Owns: borrows bytes until close. */
weft_status weft_ml_source_open_memory(const void *bytes, size_t count, struct weft_error *error,
                                       struct weft_ml_source **source_p);

/* Read the next bytes: as many as fit, or up to the end or the damage; *count_p = 0 only at the end
 * (or for capacity 0). Bytes decoded before the damage are returned first, so that the error is
 * reported at its position.
 *
 * Errors:  WEFT_DATA   the compressed stream is damaged or cut short.
 *          WEFT_IO     read(2) failed.
 *          An error is returned again until close.
 */
weft_status weft_ml_source_read(struct weft_ml_source *source, void *buffer, size_t capacity,
                                struct weft_error *error, size_t *count_p);

/* NULL is allowed. */
void weft_ml_source_close(struct weft_ml_source *source);

#endif
