#define _GNU_SOURCE
#include "job/journal.h"

#include "base/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[16] = "weft members 1\n";

enum { HEAD_BYTES = 16, FILE_BYTES_MAX = 64 << 20 };

struct weft_journal {
    int fd;
};

static uint64_t checksum(const uint8_t head[8], const uint8_t *body, size_t count)
{
    return XXH64(body, count, XXH64(head, 8, 0));
}

/* op and check, from the length and op. */
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

/* A record that cannot be read is a torn tail when the file ends within it, or holds nothing more
 * but the zeros that a file system leaves. */
static bool is_torn(const uint8_t *at, size_t left)
{
    if (left < HEAD_BYTES || all_zero(at, left)) {
        return true;
    }
    uint64_t bytes = HEAD_BYTES + (uint64_t)weft_get_u32(at);
    return head_is_good(at) && (bytes >= left || all_zero(at + bytes, left - bytes));
}

/* *used_p: bytes of whole records. */
static weft_status replay(const uint8_t *bytes, size_t count, weft_journal_apply *apply, void *arg,
                          const char *path, size_t *used_p, struct weft_job_error *error)
{
    size_t at = sizeof(magic);
    while (at < count) {
        size_t left = count - at;
        const uint8_t *head = bytes + at;
        uint32_t body = left >= HEAD_BYTES ? weft_get_u32(head) : 0;
        bool good = left >= HEAD_BYTES && head_is_good(head) && body > 0 &&
                    body <= WEFT_JOURNAL_BODY_MAX && left - HEAD_BYTES >= body &&
                    weft_get_u64(head + 8) == checksum(head, head + HEAD_BYTES, body);
        if (!good && is_torn(head, left)) {
            break;
        }
        if (!good) {
            return weft_job_fail(error, WEFT_DATA,
                                 "%.160s is damaged at byte %zu; move it away to begin anew: "
                                 "members that live will register again",
                                 path, at);
        }
        weft_status status = apply(arg, head[4], head + HEAD_BYTES, body);
        if (status != WEFT_OK) {
            return weft_job_fail(error, status,
                                 "%.160s does not fit this job at byte %zu: is it the journal of "
                                 "another one?",
                                 path, at);
        }
        at += HEAD_BYTES + body;
    }
    *used_p = at;
    return WEFT_OK;
}

/* The file's name, too, must be on the disk. */
static bool sync_folder(const char *path)
{
    char *copy = strdup(path);
    int fd = copy != NULL ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    free(copy);
    return good;
}

static weft_status begin(int fd, const char *path, struct weft_job_error *error)
{
    if (!write_all(fd, (const uint8_t *)magic, sizeof(magic)) || fsync(fd) != 0 ||
        !sync_folder(path)) {
        return weft_job_fail(error, WEFT_IO, "cannot write %.160s: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

static weft_status load(int fd, size_t count, const char *path, weft_journal_apply *apply,
                        void *arg, uint64_t *torn_bytes_p, struct weft_job_error *error)
{
    size_t used = 0;
    uint8_t *bytes = malloc(count);
    if (bytes == NULL) {
        return weft_job_fail(error, WEFT_NOMEM, "out of memory for %.160s", path);
    }
    weft_status status = WEFT_OK;
    if (!read_all(fd, bytes, count)) {
        status = weft_job_fail(error, WEFT_IO, "cannot read %.160s: %s", path, strerror(errno));
    } else if (memcmp(bytes, magic, count < sizeof(magic) ? count : sizeof(magic)) != 0) {
        status = weft_job_fail(error, WEFT_DATA, "%.160s is no journal of `weft scheduler`", path);
    } else if (count >= sizeof(magic)) {
        status = replay(bytes, count, apply, arg, path, &used, error);
    }
    free(bytes);
    if (status != WEFT_OK) {
        return status;
    }
    if (used < count && (ftruncate(fd, (off_t)used) != 0 || fsync(fd) != 0)) {
        return weft_job_fail(error, WEFT_IO, "cannot cut %.160s: %s", path, strerror(errno));
    }
    *torn_bytes_p = count - used;
    return used == 0 ? begin(fd, path, error) : WEFT_OK;
}

static weft_status open_locked(int fd, const char *path, weft_journal_apply *apply, void *arg,
                               uint64_t *torn_bytes_p, struct weft_job_error *error)
{
    struct stat about;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return weft_job_fail(error, errno == EWOULDBLOCK ? WEFT_EXISTS : WEFT_IO,
                             "%.160s is in use by another coordinator", path);
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > FILE_BYTES_MAX) {
        return weft_job_fail(error, WEFT_DATA, "%.160s is no journal of `weft scheduler`", path);
    }
    return about.st_size == 0
               ? begin(fd, path, error)
               : load(fd, (size_t)about.st_size, path, apply, arg, torn_bytes_p, error);
}

weft_status weft_journal_open(const char *path, weft_journal_apply *apply, void *arg,
                              struct weft_journal **journal_p, uint64_t *torn_bytes_p,
                              struct weft_job_error *error)
{
    struct weft_journal *journal = malloc(sizeof(*journal));
    if (journal == NULL) {
        return weft_job_fail(error, WEFT_NOMEM, "out of memory");
    }
    *torn_bytes_p = 0;
    journal->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal->fd < 0) {
        free(journal);
        return weft_job_fail(error, WEFT_IO, "cannot open %.160s: %s", path, strerror(errno));
    }
    weft_status status = open_locked(journal->fd, path, apply, arg, torn_bytes_p, error);
    if (status != WEFT_OK) {
        weft_journal_close(journal);
        return status;
    }
    *journal_p = journal;
    return WEFT_OK;
}

weft_status weft_journal_append(struct weft_journal *journal, uint8_t op, const uint8_t *bytes,
                                size_t count)
{
    uint8_t record[HEAD_BYTES + WEFT_JOURNAL_BODY_MAX];
    if (count == 0 || count > WEFT_JOURNAL_BODY_MAX) {
        return WEFT_INVALID;
    }
    weft_put_u32(record, (uint32_t)count);
    weft_put_u32(record + 4, op_word((uint32_t)count, op));
    memcpy(record + HEAD_BYTES, bytes, count);
    weft_put_u64(record + 8, checksum(record, record + HEAD_BYTES, count));
    return write_all(journal->fd, record, HEAD_BYTES + count) ? WEFT_OK : WEFT_IO;
}

weft_status weft_journal_sync(struct weft_journal *journal)
{
    return fdatasync(journal->fd) == 0 ? WEFT_OK : WEFT_IO;
}

void weft_journal_close(struct weft_journal *journal)
{
    if (journal != NULL) {
        close(journal->fd);
        free(journal);
    }
}
