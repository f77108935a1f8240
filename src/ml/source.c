#include "ml/source.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_BYTES = 1 << 16, MAGIC_BYTES = 4 };

enum packing { PACKING_NONE, PACKING_ZSTD, PACKING_GZIP };

struct weft_ml_source {
    int fd;                /* -1 if memory is read */
    const uint8_t *memory; /* the remaining bytes, if memory is read */
    size_t memory_count;
    bool raw_ended; /* the file or memory has no more bytes for `input` */

    enum packing packing;
    bool between_frames; /* the decoder is at the end of a frame: the stream may end here */
    ZSTD_DStream *zstd;
    z_stream gzip; /* valid iff packing is PACKING_GZIP */

    weft_status failure; /* occurred after decoded bytes that were returned first; for the next
                          * read */
    struct weft_error failure_text;

    size_t input_at; /* input[input_at .. input_count) is raw and not yet decoded */
    size_t input_count;
    uint8_t input[INPUT_BYTES];
};

/* One read of raw bytes, retried after a signal. */
static weft_status raw_read(struct weft_ml_source *source, uint8_t *buffer, size_t capacity,
                            struct weft_error *error, size_t *count_p)
{
    if (source->fd < 0) {
        size_t count = weft_min_u64(capacity, source->memory_count);
        if (count > 0) {
            memcpy(buffer, source->memory, count);
            source->memory += count;
            source->memory_count -= count;
        }
        *count_p = count;
        return WEFT_OK;
    }
    ssize_t count = 0;
    do {
        count = read(source->fd, buffer, capacity);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
        return weft_fail(error, WEFT_IO, "read: %s", strerror(errno));
    }
    *count_p = (size_t)count;
    return WEFT_OK;
}

/* Fill `input` completely or up to the end of the raw bytes. */
static weft_status fill_input(struct weft_ml_source *source, struct weft_error *error)
{
    WEFT_ASSERT(source->input_at == source->input_count);
    source->input_at = 0;
    source->input_count = 0;
    while (!source->raw_ended && source->input_count < INPUT_BYTES) {
        size_t count = 0;
        weft_status status = raw_read(source, source->input + source->input_count,
                                      INPUT_BYTES - source->input_count, error, &count);
        if (status != WEFT_OK) {
            return status;
        }
        source->raw_ended = count == 0;
        source->input_count += count;
    }
    return WEFT_OK;
}

static enum packing packing_of(const uint8_t *bytes, size_t count)
{
    if (count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
        return PACKING_GZIP;
    }
    if (count >= MAGIC_BYTES) {
        uint32_t magic = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                         (uint32_t)bytes[3] << 24;
        if (magic == ZSTD_MAGICNUMBER ||
            (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START) {
            return PACKING_ZSTD;
        }
    }
    return PACKING_NONE;
}

static weft_status start_decoder(struct weft_ml_source *source, struct weft_error *error)
{
    source->packing = packing_of(source->input, source->input_count);
    if (source->packing == PACKING_ZSTD) {
        source->zstd = ZSTD_createDStream();
        if (source->zstd == NULL) {
            return weft_fail(error, WEFT_NOMEM, "no memory for a zstd decoder");
        }
    } else if (source->packing == PACKING_GZIP) {
        enum { WINDOW_BITS_GZIP_ONLY = 15 + 16 };
        if (inflateInit2(&source->gzip, WINDOW_BITS_GZIP_ONLY) != Z_OK) {
            source->packing = PACKING_NONE;
            return weft_fail(error, WEFT_NOMEM, "no memory for a gzip decoder");
        }
    }
    source->between_frames = true;
    return WEFT_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t text_bytes = strlen(text);
    size_t end_bytes = strlen(end);
    return text_bytes >= end_bytes && strcmp(text + text_bytes - end_bytes, end) == 0;
}

static weft_status start(struct weft_ml_source *source, const char *name, struct weft_error *error)
{
    weft_status status = fill_input(source, error);
    if (status == WEFT_OK) {
        status = start_decoder(source, error);
    }
    if (status == WEFT_OK && source->packing == PACKING_NONE && source->input_count > 0 &&
        (ends_with(name, ".zst") || ends_with(name, ".gz"))) {
        status = weft_fail(error, WEFT_DATA,
                           "named as compressed, but its first bytes are neither zstd nor gzip");
    }
    return status;
}

static weft_status open_file(const char *path, struct weft_error *error, int *fd_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        weft_status status = errno == ENOENT || errno == ENOTDIR ? WEFT_NOTFOUND : WEFT_IO;
        return weft_fail(error, status, "cannot open: %s", strerror(errno));
    }
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        (void)close(fd);
        return weft_fail(error, WEFT_IO, "is a directory, not a data file");
    }
    *fd_p = fd;
    return WEFT_OK;
}

weft_status weft_ml_source_open(const char *path, struct weft_error *error,
                                struct weft_ml_source **source_p)
{
    int fd = -1;
    weft_status status = open_file(path, error, &fd);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ml_source *source = calloc(1, sizeof(*source));
    if (source == NULL) {
        (void)close(fd);
        return weft_fail(error, WEFT_NOMEM, "no memory for a read buffer");
    }
    source->fd = fd;
    status = start(source, path, error);
    if (status != WEFT_OK) {
        weft_ml_source_close(source);
        return status;
    }
    *source_p = source;
    return WEFT_OK;
}

weft_status weft_ml_source_open_memory(const void *bytes, size_t count, struct weft_error *error,
                                       struct weft_ml_source **source_p)
{
    struct weft_ml_source *source = calloc(1, sizeof(*source));
    if (source == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a read buffer");
    }
    source->fd = -1;
    source->memory = bytes;
    source->memory_count = count;
    weft_status status = start(source, "", error);
    if (status != WEFT_OK) {
        weft_ml_source_close(source);
        return status;
    }
    *source_p = source;
    return WEFT_OK;
}

/* Each decoder below consumes `input` and produces output as far as possible, and keeps
 * `between_frames` true exactly while the stream may end. */

static weft_status decode_none(struct weft_ml_source *source, uint8_t *out, size_t capacity,
                               size_t *count_p)
{
    size_t count = weft_min_u64(capacity, source->input_count - source->input_at);
    memcpy(out, source->input + source->input_at, count);
    source->input_at += count;
    *count_p = count;
    return WEFT_OK;
}

static weft_status decode_zstd(struct weft_ml_source *source, uint8_t *out, size_t capacity,
                               struct weft_error *error, size_t *count_p)
{
    ZSTD_inBuffer in = {source->input, source->input_count, source->input_at};
    ZSTD_outBuffer to = {out, capacity, 0};
    size_t hint = ZSTD_decompressStream(source->zstd, &to, &in);
    if (ZSTD_isError(hint)) {
        return weft_fail(error, WEFT_DATA, "damaged zstd stream: %s", ZSTD_getErrorName(hint));
    }
    source->input_at = in.pos;
    source->between_frames = hint == 0;
    *count_p = to.pos;
    return WEFT_OK;
}

static weft_status decode_gzip(struct weft_ml_source *source, uint8_t *out, size_t capacity,
                               struct weft_error *error, size_t *count_p)
{
    z_stream *gzip = &source->gzip;
    gzip->next_in = source->input + source->input_at;
    gzip->avail_in = (uInt)(source->input_count - source->input_at);
    gzip->next_out = out;
    uInt room = (uInt)weft_min_u64(capacity, INPUT_BYTES);
    gzip->avail_out = room;
    int result = inflate(gzip, Z_NO_FLUSH);
    source->input_at = source->input_count - gzip->avail_in;
    *count_p = room - gzip->avail_out;
    source->between_frames = result == Z_STREAM_END;
    if (result == Z_STREAM_END) {
        /* Another member may follow; it starts with a reset decoder. */
        result = inflateReset(gzip);
    }
    if (result != Z_OK && result != Z_BUF_ERROR) {
        return weft_fail(error, WEFT_DATA, "damaged gzip stream: %s",
                         gzip->msg != NULL ? gzip->msg : zError(result));
    }
    return WEFT_OK;
}

static weft_status decode(struct weft_ml_source *source, uint8_t *out, size_t capacity,
                          struct weft_error *error, size_t *count_p)
{
    switch (source->packing) {
    case PACKING_ZSTD:
        return decode_zstd(source, out, capacity, error, count_p);
    case PACKING_GZIP:
        return decode_gzip(source, out, capacity, error, count_p);
    case PACKING_NONE:
        break;
    }
    return decode_none(source, out, capacity, count_p);
}

/* One decoding step; *count_p = 0 with *ended_p = false means: call again. */
static weft_status step(struct weft_ml_source *source, uint8_t *out, size_t capacity,
                        struct weft_error *error, size_t *count_p, bool *ended_p)
{
    if (source->input_at == source->input_count) {
        weft_status status = fill_input(source, error);
        if (status != WEFT_OK) {
            return status;
        }
    }
    bool starved = source->input_at == source->input_count;
    if (starved && source->between_frames) {
        *ended_p = true;
        return WEFT_OK;
    }
    /* Called even without input: the decoder may hold output that did not fit before. */
    size_t count = 0;
    weft_status status = decode(source, out, capacity, error, &count);
    if (status == WEFT_OK && starved && count == 0 && !source->between_frames) {
        status = weft_fail(error, WEFT_DATA, "the compressed stream is cut short");
    }
    if (status == WEFT_OK) {
        *count_p = count;
    }
    return status;
}

weft_status weft_ml_source_read(struct weft_ml_source *source, void *buffer, size_t capacity,
                                struct weft_error *error, size_t *count_p)
{
    size_t total = 0;
    bool ended = false;
    while (source->failure == WEFT_OK && total < capacity && !ended) {
        size_t count = 0;
        source->failure = step(source, (uint8_t *)buffer + total, capacity - total,
                               &source->failure_text, &count, &ended);
        total += count;
    }
    if (total == 0 && source->failure != WEFT_OK) {
        return weft_fail(error, source->failure, "%s", source->failure_text.text);
    }
    *count_p = total;
    return WEFT_OK;
}

void weft_ml_source_close(struct weft_ml_source *source)
{
    if (source == NULL) {
        return;
    }
    (void)ZSTD_freeDStream(source->zstd);
    if (source->packing == PACKING_GZIP) {
        (void)inflateEnd(&source->gzip);
    }
    if (source->fd >= 0) {
        (void)close(source->fd);
    }
    free(source);
}
