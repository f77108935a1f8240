/* The journal of the previous process: read, and removed or moved aside when this process's journal
 * has replaced it. */
#define _GNU_SOURCE
#include "node/journal_file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUARANTINE "quarantine"

enum { READ_BYTES_MAX = 1 << 30, ASIDE_MAX = 10000, LEAST_BYTES = 2 * JOURNAL_PAGE_BYTES };

weft_status weft_journal_path(const struct weft_journal_options *options, uint32_t shard,
                              uint64_t claim, char path_p[JOURNAL_PATH_BYTES],
                              struct weft_error *error)
{
    int used =
        snprintf(path_p, JOURNAL_PATH_BYTES, "%s/journal-%04" PRIu32, options->directory, shard);
    if (used >= 0 && used < JOURNAL_PATH_BYTES && claim > 0) {
        used += snprintf(path_p + used, (size_t)(JOURNAL_PATH_BYTES - used), "-%012" PRIu64, claim);
    }
    if (used < 0 || used >= JOURNAL_PATH_BYTES) {
        return weft_fail(error, WEFT_IO, "--journal: the directory's name is too long");
    }
    return WEFT_OK;
}

bool weft_journal_is_ours(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
           info.st_nlink == 1;
}

void weft_journal_news_add(struct weft_journal_news *news, const char *format, ...)
{
    size_t used = strlen(news->text);
    va_list list;
    if (used > 0) {
        used += (size_t)snprintf(news->text + used, sizeof(news->text) - used, "; ");
    }
    va_start(list, format);
    if (used < sizeof(news->text)) {
        (void)vsnprintf(news->text + used, sizeof(news->text) - used, format, list);
    }
    va_end(list);
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status read_all(int fd, uint8_t *to, uint64_t bytes)
{
    uint64_t at = 0;
    while (at < bytes) {
        size_t want = (size_t)weft_min_u64(bytes - at, READ_BYTES_MAX);
        ssize_t n = pread(fd, to + at, want, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EIO : errno; /* the file has become shorter */
            return WEFT_IO;
        }
        at += (uint64_t)n;
    }
    return WEFT_OK;
}

static weft_status cannot_read(const char *path, struct weft_error *error)
{
    return weft_fail(error, errno == ENOMEM ? WEFT_NOMEM : WEFT_IO,
                     "cannot read %s: %s. It may have records that no checkpoint has: start again "
                     "when it can be read, or move it away to begin at the checkpoint",
                     path, strerror(errno));
}

/* Files are opened with O_NONBLOCK: a FIFO under such a name would keep the start waiting for a
 * writer. */

/* Read with system calls instead of mapping the file: an unreadable page is then an error, not a
 * signal. */
static weft_status read_file(struct weft_journal_former *former, int fd, const char *path,
                             struct weft_error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return cannot_read(path, error);
    }
    if (!weft_journal_is_ours(fd)) {
        return weft_fail(error, WEFT_IO,
                         "%s is not a regular file of this user with one link: choose another "
                         "directory",
                         path);
    }
    uint64_t bytes = (uint64_t)info.st_size / JOURNAL_PAGE_BYTES * JOURNAL_PAGE_BYTES;
    former->bytes = weft_max_u64(bytes, LEAST_BYTES); /* missing bytes read as zeros */
    void *memory = mmap(NULL, former->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    former->memory = memory == MAP_FAILED ? NULL : memory;
    if (former->memory == NULL || read_all(fd, former->memory, bytes) != WEFT_OK) {
        return cannot_read(path, error);
    }
    return WEFT_OK;
}

/* True: this file is from a process that died before it replaced the former one, or from an earlier
 * one. The head decides: all journals copied from one another have the same lineage. A file without
 * a head is from a process that died before it wrote anything, or from a living process, which
 * holds a lock on the file. */
static bool is_leftover(const char *path, uint64_t lineage)
{
    uint8_t head[JOURNAL_PAGE_BYTES] = {0};
    static const uint8_t zeros[JOURNAL_PAGE_BYTES];
    uint64_t other;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    ssize_t n = weft_journal_is_ours(fd) ? pread(fd, head, sizeof(head), 0) : -1;
    bool copied = weft_shard_journal_lineage(head, &other) && other == lineage;
    bool blank = n >= 0 && memcmp(head, zeros, sizeof(zeros)) == 0;
    bool left = n >= 0 && (copied || (blank && flock(fd, LOCK_EX | LOCK_NB) == 0));
    (void)close(fd);
    return left;
}

static bool is_other_claim(const struct weft_journal_names *names, const char *name,
                           uint64_t *claim_p)
{
    uint32_t shard;
    int end = 0;
    return sscanf(name, "journal-%4" SCNu32 "-%12" SCNu64 "%n", &shard, claim_p, &end) == 2 &&
           name[end] == '\0' && shard == names->shard && *claim_p > 0 && *claim_p < names->claim &&
           *claim_p != names->former;
}

/* Clear all files of the former one's lineage, except the former one itself: remove a file whose
 * process never served, and move any other (its successor ended before it could move it) to
 * quarantine/. A file that cannot be examined, removed or moved stays: no process reads it. */
static void remove_leftovers(const struct weft_journal_file *file)
{
    uint64_t lineage, claim;
    DIR *directory =
        file->former.memory != NULL && weft_shard_journal_lineage(file->former.memory, &lineage)
            ? opendir(file->options->directory)
            : NULL;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char path[JOURNAL_PATH_BYTES];
        struct weft_error ignored;
        if (is_other_claim(&file->names, entry->d_name, &claim) &&
            weft_journal_path(file->options, file->names.shard, claim, path, &ignored) == WEFT_OK &&
            is_leftover(path, lineage)) {
            (void)!(claim < file->names.former
                        ? weft_journal_put_aside(file->options, path, &ignored) == WEFT_OK
                        : unlink(path) == 0);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

/* A journal of a process after the former one, which may have served or not. The record that it
 * served is after its claim: no damaged record before the claim can be that one. */
static weft_status refuse_doubt(const struct weft_journal_file *file, struct weft_error *error)
{
    weft_status status = WEFT_OK;
    uint64_t claim;
    DIR *directory = file->names.damaged > 0 ? opendir(file->options->directory) : NULL;
    for (struct dirent *entry;
         status == WEFT_OK && directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (is_other_claim(&file->names, entry->d_name, &claim) && claim > file->names.former &&
            claim < file->names.damaged) {
            status = weft_fail(error, WEFT_DATA,
                               "%.200s/%.60s may be the journal of the previous process, but the "
                               "record of the checkpoint directory that says so is damaged: "
                               "move the file away to begin without it",
                               file->options->directory, entry->d_name);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return status;
}

weft_status weft_journal_former_read(struct weft_journal_file *file, struct weft_journal_news *news,
                                     struct weft_error *error)
{
    struct weft_journal_former *former = &file->former;
    char path[JOURNAL_PATH_BYTES];
    weft_status status =
        weft_journal_path(file->options, file->names.shard, file->names.former, path, error);
    if (status != WEFT_OK || file->names.fresh) {
        return status;
    }
    status = refuse_doubt(file, error);
    if (status != WEFT_OK) {
        return status;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        if (file->names.former != 0) {
            weft_journal_news_add(news,
                                  "the journal of the previous process does not exist (%s): "
                                  "operations after the checkpoint are not replayed",
                                  path);
        }
        return WEFT_OK;
    }
    if (fd < 0) {
        return cannot_read(path, error);
    }
    status = read_file(former, fd, path, error);
    (void)close(fd);
    former->path = status == WEFT_OK ? strdup(path) : NULL;
    if (status == WEFT_OK && former->path == NULL) {
        status = cannot_read(path, error);
    }
    if (status == WEFT_OK) {
        remove_leftovers(file);
    }
    return status;
}

void weft_journal_former_unmap(struct weft_journal_former *former)
{
    if (former->memory != NULL) {
        (void)munmap(former->memory, former->bytes);
        former->memory = NULL;
    }
}

/* ---- removing it ----------------------------------------------------------------------------- */

static weft_status cannot_move(const char *path, struct weft_error *error)
{
    return weft_fail(error, WEFT_IO, "cannot move %s to " QUARANTINE "/ beside it: %s", path,
                     strerror(errno));
}

weft_status weft_journal_put_aside(const struct weft_journal_options *options, const char *path,
                                   struct weft_error *error)
{
    char target[JOURNAL_PATH_BYTES + 64];
    const char *name = strrchr(path, '/') + 1;
    int used = snprintf(target, sizeof(target), "%s/" QUARANTINE "/%s", options->directory, name);
    char *dash = strrchr(target, '/');
    *dash = '\0';
    bool made = mkdir(target, 0777) == 0 || errno == EEXIST;
    *dash = '/';
    if (!made) {
        return cannot_move(path, error);
    }
    /* No two processes share a claim, but claims in two checkpoint directories may have the same
     * number. */
    for (uint32_t i = 1; i < ASIDE_MAX && access(target, F_OK) == 0; i++) {
        (void)snprintf(target + used, sizeof(target) - (size_t)used, ".%" PRIu32, i);
    }
    return rename(path, target) == 0 ? WEFT_OK : cannot_move(path, error);
}

static weft_status release_path(const struct weft_journal_options *options, const char *path,
                                bool aside, struct weft_error *error)
{
    if (aside) {
        return weft_journal_put_aside(options, path, error);
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        return weft_fail(error, WEFT_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

weft_status weft_journal_release_former(struct weft_journal_file *file, struct weft_error *error)
{
    struct weft_journal_former *former = &file->former;
    weft_status status = WEFT_OK;
    if (former->path != NULL) {
        status = release_path(file->options, former->path, former->aside, error);
        free(former->path);
        former->path = NULL;
    }
    return status;
}
