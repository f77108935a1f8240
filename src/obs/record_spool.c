#include "obs/record_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

enum {
    HEAD_BYTES = sizeof(struct weft_spool_head),
    UNIT_BYTES = WEFT_RPC_RECORD_UNIT_BYTES,
    SEARCH_UNITS = 512, /* read at once in search of a block */
};

uint64_t weft_spool_hash(const struct weft_spool_head *head,
                         const struct weft_rpc_record_unit *units)
{
    const size_t from = offsetof(struct weft_spool_head, first);
    uint64_t seed = XXH3_64bits(units, (size_t)head->units * UNIT_BYTES);
    return XXH3_64bits_withSeed((const uint8_t *)head + from, sizeof(*head) - from, seed);
}

weft_status weft_spool_reader_open(const char *path, struct weft_spool_reader *reader_p)
{
    struct stat about;
    /* O_NONBLOCK: opening a FIFO would wait for a writer. */
    struct weft_spool_reader reader = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (reader.fd < 0) {
        return WEFT_IO;
    }
    weft_status status = WEFT_OK;
    if (fstat(reader.fd, &about) != 0) {
        status = WEFT_IO;
    } else if (!S_ISREG(about.st_mode)) {
        status = WEFT_INVALID;
    } else if (flock(reader.fd, LOCK_SH | LOCK_NB) != 0) {
        status = WEFT_STATE;
    } else {
        reader.bytes = (uint64_t)about.st_size;
        reader.units = malloc((size_t)WEFT_SPOOL_UNITS_MAX * UNIT_BYTES);
        status = reader.units == NULL ? WEFT_NOMEM : WEFT_OK;
    }
    if (status != WEFT_OK) {
        int why = errno;
        (void)close(reader.fd);
        errno = why;
        return status;
    }
    *reader_p = reader;
    return WEFT_OK;
}

static bool read_all(int fd, void *out, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (uint8_t *)out + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static bool head_good(const struct weft_spool_head *head, uint64_t room)
{
    return memcmp(head->magic, WEFT_SPOOL_MAGIC, sizeof(head->magic)) == 0 &&
           head->order == WEFT_SPOOL_ORDER && head->units <= WEFT_SPOOL_UNITS_MAX &&
           (uint64_t)head->units * UNIT_BYTES <= room &&
           memchr(head->role, '\0', sizeof(head->role)) != NULL;
}

/* The units came from a ring and have a valid hash, but the file is untrusted. */
static bool units_good(const struct weft_spool_reader *reader)
{
    struct weft_rpc_record record;
    uint32_t count = 0;
    for (uint32_t at = 0, used; at < reader->head.units; at += used) {
        used = weft_rpc_record_read(reader->units + at, reader->head.units - at, &record);
        if (used == 0) {
            return false;
        }
        count += record.type != WEFT_RPC_RECORD_NOTHING;
    }
    return count == reader->head.count;
}

/* Read the block at `at`, if it is undamaged. */
static bool read_block(struct weft_spool_reader *reader)
{
    uint64_t behind = reader->at + HEAD_BYTES;
    if (!read_all(reader->fd, &reader->head, HEAD_BYTES, reader->at) ||
        !head_good(&reader->head, reader->bytes - behind) ||
        !read_all(reader->fd, reader->units, (size_t)reader->head.units * UNIT_BYTES, behind)) {
        return false;
    }
    return weft_spool_hash(&reader->head, reader->units) == reader->head.hash && units_good(reader);
}

/* The next place that may be the start of a block: blocks start only at multiples of UNIT_BYTES.
 * The memory for units is used to read many places at once. */
static uint64_t next_place(const struct weft_spool_reader *reader)
{
    uint64_t at = reader->at + UNIT_BYTES;
    while (reader->bytes - at >= HEAD_BYTES) {
        const size_t units =
            (size_t)weft_min_u64(SEARCH_UNITS, (reader->bytes - at) / UNIT_BYTES);
        if (!read_all(reader->fd, reader->units, units * UNIT_BYTES, at)) {
            return at;
        }
        for (size_t i = 0; i < units; i++) {
            if (memcmp(&reader->units[i], WEFT_SPOOL_MAGIC, sizeof(reader->head.magic)) == 0) {
                return at + i * UNIT_BYTES;
            }
        }
        at += units * UNIT_BYTES;
    }
    return at;
}

bool weft_spool_reader_next(struct weft_spool_reader *reader)
{
    while (reader->bytes - reader->at >= HEAD_BYTES) {
        if (read_block(reader)) {
            reader->at += HEAD_BYTES + (uint64_t)UNIT_BYTES * reader->head.units;
            return true;
        }
        const uint64_t next = next_place(reader);
        reader->skipped += next - reader->at;
        reader->at = next;
    }
    reader->skipped += reader->bytes - reader->at;
    reader->at = reader->bytes;
    return false;
}

void weft_spool_reader_close(struct weft_spool_reader *reader)
{
    (void)close(reader->fd);
    free(reader->units);
    *reader = (struct weft_spool_reader){.fd = -1};
}
