#define _GNU_SOURCE
#include "job/coordinator_journal.h"

#include "base/cursor.h"
#include "file/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[16] = "weft members 1\n";

enum { HEAD_BYTES = 16, LONG_BYTES = 1 << 20, SECTOR_BYTES = 512 };

struct weft_coordinator_journal {
    int fd;
    uint64_t bytes;
    uint64_t bytes_compact; /* size when it was last rewritten, or when a rewrite last failed */
    bool is_renamed;        /* renamed, and the new name may not be on the disk yet */
    char *path;             /* as resolved by the kernel: a symbolic link stays in place */
};

static uint64_t checksum(const uint8_t head[8], const uint8_t *body, size_t count)
{
    return XXH64(body, count, XXH64(head, 8, 0));
}

/* Encode op and check from the length and op. */
static uint32_t op_word(uint32_t body_bytes, uint8_t op)
{
    uint8_t bytes[5];
    weft_put_u32(bytes, body_bytes);
    bytes[4] = op;
    return (uint32_t)op << 24 | (uint32_t)(XXH64(bytes, sizeof(bytes), 0) & 0xffffff);
}

static bool head_is_good(const uint8_t *head)
{
    uint32_t word = weft_get_u32(head + 4);
    return word == op_word(weft_get_u32(head), (uint8_t)(word >> 24));
}

static bool read_all(int fd, uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        ssize_t got = pread(fd, bytes + at, count - at, (off_t)at);
        if (got <= 0) {
            if (got < 0 && errno == EINTR) {
                continue;
            }
            errno = got == 0 ? EIO : errno; /* the file has become shorter */
            return false;
        }
        at += (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        ssize_t put = write(fd, bytes + at, count - at);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* An unreadable record is a torn tail if it extends past the end of the file, or consists of
 * zeros from its start or from a sector boundary within it to the end. A complete record with a
 * wrong hash was damaged later: it may have been synced and acknowledged. */
static bool is_torn(const uint8_t *file, size_t at, size_t count)
{
    size_t left = count - at;
    if (left < HEAD_BYTES || all_zero(file + at, left)) {
        return true;
    }
    uint64_t bytes = HEAD_BYTES + (uint64_t)weft_get_u32(file + at);
    if (!head_is_good(file + at)) {
        return false;
    }
    size_t sector = at / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES;
    while (bytes <= left && sector < at + bytes && !all_zero(file + sector, count - sector)) {
        sector += SECTOR_BYTES;
    }
    return bytes > left || sector < at + bytes;
}

/* *used_p: bytes of complete records. */
static weft_status replay(const uint8_t *bytes, size_t count, weft_coordinator_journal_apply *apply,
                          void *arg, const char *path, size_t *used_p, struct weft_error *error)
{
    size_t at = sizeof(magic);
    while (at < count) {
        size_t left = count - at;
        const uint8_t *head = bytes + at;
        uint32_t body = left >= HEAD_BYTES ? weft_get_u32(head) : 0;
        bool good = left >= HEAD_BYTES && head_is_good(head) && body > 0 &&
                    body <= WEFT_COORDINATOR_JOURNAL_BODY_MAX && left - HEAD_BYTES >= body &&
                    weft_get_u64(head + 8) == checksum(head, head + HEAD_BYTES, body);
        if (!good && is_torn(bytes, at, count)) {
            break;
        }
        if (!good) {
            return weft_fail(error, WEFT_DATA,
                             "%.160s is damaged at byte %zu; move it away to start with an empty "
                             "one: running members will register again",
                             path, at);
        }
        weft_status status = apply(arg, head[4], head + HEAD_BYTES, body);
        if (status != WEFT_OK) {
            return weft_fail(error, status,
                             "%.160s does not fit this job at byte %zu; name the journal of this "
                             "job, or a new file",
                             path, at);
        }
        at += HEAD_BYTES + body;
    }
    *used_p = at;
    return WEFT_OK;
}

static weft_status begin(int fd, const char *path, struct weft_error *error)
{
    if (!write_all(fd, (const uint8_t *)magic, sizeof(magic)) || fsync(fd) != 0 ||
        weft_file_sync_name(path) != WEFT_OK) {
        return weft_fail(error, WEFT_IO, "cannot write %.160s: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

static weft_status not_ours(const char *path, struct weft_error *error)
{
    return weft_fail(error, WEFT_DATA, "%.160s is not a journal of `weft coordinator`", path);
}

static weft_status load(struct weft_coordinator_journal *journal, size_t count, const char *path,
                        weft_coordinator_journal_apply *apply, void *arg, uint64_t *torn_bytes_p,
                        struct weft_error *error)
{
    size_t used = 0;
    uint8_t head[sizeof(magic)];
    size_t head_bytes = count < sizeof(head) ? count : sizeof(head);
    if (!read_all(journal->fd, head, head_bytes)) {
        return weft_fail(error, WEFT_IO, "cannot read %.160s: %s", path, strerror(errno));
    }
    if (memcmp(head, magic, head_bytes) != 0) {
        return not_ours(path, error); /* checked before allocating memory for a file of any size */
    }
    uint8_t *bytes = malloc(count);
    if (bytes == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for the %zu bytes of %.160s", count, path);
    }
    weft_status status = WEFT_OK;
    if (!read_all(journal->fd, bytes, count)) {
        status = weft_fail(error, WEFT_IO, "cannot read %.160s: %s", path, strerror(errno));
    } else if (count >= sizeof(magic)) {
        status = replay(bytes, count, apply, arg, path, &used, error);
    }
    free(bytes);
    if (status != WEFT_OK) {
        return status;
    }
    if (used < count && (ftruncate(journal->fd, (off_t)used) != 0 || fsync(journal->fd) != 0)) {
        return weft_fail(error, WEFT_IO, "cannot truncate %.160s: %s", path, strerror(errno));
    }
    *torn_bytes_p = count - used;
    journal->bytes = used;
    return used == 0 ? begin(journal->fd, path, error) : WEFT_OK;
}

/* Another coordinator may have given the name to a new file between open and lock. */
static bool has_name(int fd, const char *path)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && stat(path, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

static weft_status open_locked(struct weft_coordinator_journal *journal, const char *path,
                               weft_coordinator_journal_apply *apply, void *arg,
                               uint64_t *torn_bytes_p, struct weft_error *error)
{
    struct stat about;
    bool is_locked = flock(journal->fd, LOCK_EX | LOCK_NB) == 0;
    if (!is_locked && errno != EWOULDBLOCK) {
        return weft_fail(error, WEFT_IO, "cannot lock %.160s: %s", path, strerror(errno));
    }
    if (!is_locked || !has_name(journal->fd, path)) {
        return weft_fail(error, WEFT_EXISTS, "%.160s is in use by another coordinator", path);
    }
    journal->path = realpath(path, NULL);
    if (journal->path == NULL || fstat(journal->fd, &about) != 0) {
        return weft_fail(error, WEFT_IO, "cannot open %.160s: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return not_ours(path, error);
    }
    journal->bytes = sizeof(magic);
    return about.st_size == 0
               ? begin(journal->fd, path, error)
               : load(journal, (size_t)about.st_size, path, apply, arg, torn_bytes_p, error);
}

weft_status weft_coordinator_journal_open(const char *path, weft_coordinator_journal_apply *apply,
                                          void *arg, struct weft_coordinator_journal **journal_p,
                                          uint64_t *torn_bytes_p, struct weft_error *error)
{
    struct weft_coordinator_journal *journal = calloc(1, sizeof(*journal));
    if (journal == NULL) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    *torn_bytes_p = 0;
    journal->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal->fd < 0) {
        free(journal);
        return weft_fail(error, WEFT_IO, "cannot open %.160s: %s", path, strerror(errno));
    }
    weft_status status = open_locked(journal, path, apply, arg, torn_bytes_p, error);
    if (status != WEFT_OK) {
        weft_coordinator_journal_close(journal);
        return status;
    }
    *journal_p = journal;
    return WEFT_OK;
}

static bool put_record(int fd, uint8_t op, const uint8_t *bytes, size_t count)
{
    uint8_t record[HEAD_BYTES + WEFT_COORDINATOR_JOURNAL_BODY_MAX];
    weft_put_u32(record, (uint32_t)count);
    weft_put_u32(record + 4, op_word((uint32_t)count, op));
    memcpy(record + HEAD_BYTES, bytes, count);
    weft_put_u64(record + 8, checksum(record, record + HEAD_BYTES, count));
    return write_all(fd, record, HEAD_BYTES + count);
}

weft_status weft_coordinator_journal_append(struct weft_coordinator_journal *journal, uint8_t op,
                                            const uint8_t *bytes, size_t count)
{
    if (count == 0 || count > WEFT_COORDINATOR_JOURNAL_BODY_MAX) {
        return WEFT_INVALID;
    }
    journal->bytes += HEAD_BYTES + count;
    return put_record(journal->fd, op, bytes, count) ? WEFT_OK : WEFT_IO;
}

weft_status weft_coordinator_journal_sync(struct weft_coordinator_journal *journal)
{
    if (fdatasync(journal->fd) != 0 ||
        (journal->is_renamed && weft_file_sync_name(journal->path) != WEFT_OK)) {
        return WEFT_IO;
    }
    journal->is_renamed = false;
    return WEFT_OK;
}

/* ---- rewriting ------------------------------------------------------------------------------- */

bool weft_coordinator_journal_is_long(const struct weft_coordinator_journal *journal)
{
    return journal->bytes >= LONG_BYTES && journal->bytes >= 2 * journal->bytes_compact;
}

/* Lock the file before giving it the name: a process that opens the name finds it locked. */
static bool fill(int fd, weft_coordinator_journal_supply *supply, void *arg, uint64_t *bytes_p)
{
    uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX];
    uint8_t op;
    size_t count;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 ||
        !write_all(fd, (const uint8_t *)magic, sizeof(magic))) {
        return false;
    }
    *bytes_p = sizeof(magic);
    for (uint32_t i = 0; (count = supply(arg, i, &op, body)) > 0; i++) {
        if (!put_record(fd, op, body, count)) {
            return false;
        }
        *bytes_p += HEAD_BYTES + count;
    }
    return fsync(fd) == 0;
}

weft_status weft_coordinator_journal_compact(struct weft_coordinator_journal *journal,
                                             weft_coordinator_journal_supply *supply, void *arg,
                                             struct weft_error *error)
{
    char *name = NULL;
    uint64_t bytes = 0;
    journal->bytes_compact = journal->bytes;
    if (asprintf(&name, "%s.new", journal->path) < 0) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    (void)unlink(name); /* left by a process that died during a rewrite */
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || !fill(fd, supply, arg, &bytes) || rename(name, journal->path) != 0) {
        weft_status status =
            weft_fail(error, WEFT_IO, "cannot rewrite %.160s: %s", journal->path, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
            (void)unlink(name);
        }
        free(name);
        return status;
    }
    free(name);
    (void)close(journal->fd);
    journal->fd = fd;
    journal->bytes = journal->bytes_compact = bytes;
    journal->is_renamed = true;
    weft_status status = weft_coordinator_journal_sync(journal);
    return status == WEFT_OK ? WEFT_OK
                             : weft_fail(error, status, "cannot sync the folder of %.160s: %s",
                                         journal->path, strerror(errno));
}

void weft_coordinator_journal_close(struct weft_coordinator_journal *journal)
{
    if (journal != NULL) {
        close(journal->fd);
        free(journal->path);
        free(journal);
    }
}
