#define _GNU_SOURCE
#include "node/journal_file.h"

#include "node/journal_file_internal.h"
#include "node/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_BYTES = 16 << 20 };

uint64_t weft_journal_job(const char *name)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at != '\0'; at++) {
        sum = (sum ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* ---- this process's file --------------------------------------------------------------------- */

/* Allocate all blocks: mapped pages must have disk space when they are stored to. */
static weft_status take_blocks(struct weft_journal_file *file, uint64_t bytes)
{
    int why;
    do {
        why = posix_fallocate(file->fd, 0, (off_t)bytes);
    } while (why == EINTR);
    if (why != 0) {
        errno = why;
        return WEFT_IO;
    }
    file->bytes = bytes;
    return WEFT_OK;
}

/* A copy-on-write file system does not write to the allocated block but to a new one, and if the
 * disk is full the store raises SIGBUS. Btrfs can be set to write in place while the file is empty.
 * Where that is not supported, or does not help (a snapshot), the guard handles the signal. */
static void write_in_place(int fd)
{
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static weft_status map(struct weft_journal_file *file, uint64_t bytes_max)
{
    file->bytes_max = weft_max_u64(bytes_max, file->former.bytes);
    write_in_place(file->fd);
    if (take_blocks(file, weft_min_u64(file->bytes_max, STEP_BYTES)) != WEFT_OK) {
        return WEFT_IO;
    }
    void *memory = mmap(NULL, file->bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (memory == MAP_FAILED) {
        return WEFT_IO;
    }
    file->memory = memory;
    return weft_map_guard_add(memory, file->bytes_max, &file->guard);
}

/* The name is in use by a file of another job, with another checkpoint directory whose claims
 * reached the same number. A lock on it means that its process lives. */
static weft_status clear_name(const struct weft_journal_options *options, const char *path,
                              struct weft_journal_news *news, struct weft_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool free_now = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (!free_now) {
        return weft_fail(error, WEFT_IO,
                         fd >= 0 ? "%s is in use by another process: choose another --journal "
                                   "directory"
                                 : "cannot open %s: %s",
                         path, strerror(why));
    }
    weft_status status = weft_journal_put_aside(options, path, error);
    if (status == WEFT_OK) {
        weft_journal_news_add(news,
                              "%s already existed, of another checkpoint directory: moved to "
                              "quarantine/ beside it; remove it there when it is not needed",
                              path);
    }
    return status;
}

static weft_status create(struct weft_journal_file *file, const char *path,
                          struct weft_journal_news *news, struct weft_error *error)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    weft_status status = weft_ckpt_make_directory(file->options->directory, error);
    if (status != WEFT_OK) {
        return status;
    }
    file->fd = open(path, flags, 0600);
    if (file->fd < 0 && errno == EEXIST) {
        status = clear_name(file->options, path, news, error);
        if (status != WEFT_OK) {
            return status;
        }
        file->fd = open(path, flags, 0600);
    }
    if (file->fd < 0) {
        return weft_fail(error, WEFT_IO, "cannot make %s: %s", path, strerror(errno));
    }
    (void)flock(file->fd, LOCK_EX | LOCK_NB); /* shows other processes that this one lives */
    return WEFT_OK;
}

/* A failed start removes its file: it may have failed because the disk is full. No process reads
 * this file before the log records that this process has replaced its predecessor. */
static void discard(const struct weft_journal_file *file)
{
    char path[JOURNAL_PATH_BYTES];
    struct weft_error ignored;
    if (file->fd >= 0 && weft_journal_path(file->options, file->names.shard, file->names.claim,
                                           path, &ignored) == WEFT_OK) {
        (void)unlink(path);
    }
}

weft_status weft_journal_file_open(struct weft_journal_file *file,
                                   const struct weft_journal_options *options,
                                   const struct weft_journal_names *names,
                                   struct weft_journal_news *news, struct weft_error *error)
{
    char path[JOURNAL_PATH_BYTES];
    *file = (struct weft_journal_file){.fd = -1, .options = options, .names = *names};
    *news = (struct weft_journal_news){.text = ""};
    weft_status status = weft_journal_path(options, names->shard, names->claim, path, error);
    status = status == WEFT_OK ? weft_journal_former_read(file, news, error) : status;
    status = status == WEFT_OK ? create(file, path, news, error) : status;
    if (status == WEFT_OK && map(file, (uint64_t)options->mib << 20) != WEFT_OK) {
        status = weft_fail(error, WEFT_IO, "cannot take %" PRIu64 " bytes for %s: %s",
                           weft_min_u64(STEP_BYTES, (uint64_t)options->mib << 20), path,
                           strerror(errno));
    }
    if (status != WEFT_OK) {
        discard(file);
        weft_journal_file_close(file);
    }
    return status;
}

void weft_journal_file_close(struct weft_journal_file *file)
{
    weft_map_guard_remove(file->guard);
    if (file->memory != NULL) {
        (void)munmap(file->memory, file->bytes_max);
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    weft_journal_former_unmap(&file->former);
    free(file->former.path);
    *file = (struct weft_journal_file){.fd = -1};
}

/* ---- replay ---------------------------------------------------------------------------------- */

static weft_status init(struct weft_journal_file *file, struct weft_shard *shard,
                        uint64_t checkpoint, uint64_t cut, bool with_former)
{
    struct weft_shard_journal_config config = {.memory = file->memory,
                                               .bytes = file->bytes,
                                               .bytes_max = file->bytes_max,
                                               .job = file->options->job,
                                               .checkpoint = checkpoint,
                                               .cut = cut};
    if (getrandom(&config.lineage, sizeof(config.lineage), 0) != sizeof(config.lineage)) {
        config.lineage = 0;
    }
    config.lineage |= 1; /* not 0 */
    config.source = with_former ? file->former.memory : NULL;
    config.source_bytes = file->former.bytes;
    return weft_shard_journal_init(shard, &config);
}

/* Errors that must end the start: this process's file would lack records of the predecessor's. */
static weft_status stop(const struct weft_journal_file *file, weft_status status,
                        struct weft_error *error)
{
    if (status == WEFT_UNSUPPORTED) {
        return weft_fail(error, status,
                         "%s has another format version: start the release that wrote it, or move "
                         "it away to begin at the checkpoint",
                         file->former.path);
    }
    if (status == WEFT_INVALID) {
        return weft_fail(error, status,
                         "the records of %s do not fit into a journal of this size: start with a "
                         "larger --journal-mib",
                         file->former.path);
    }
    return weft_fail(error, status, "no memory for a journal");
}

static weft_status replay(struct weft_journal_file *file, struct weft_shard *shard,
                          weft_checkpoint_supply *supply, struct weft_error *error)
{
    while (weft_shard_journal_replay(shard)) {
        supply(shard);
        if (!weft_shard_journal_stalls(shard)) {
            continue;
        }
        uint64_t bytes = weft_min_u64(file->bytes_max, file->bytes + STEP_BYTES);
        if (bytes == file->bytes || take_blocks(file, bytes) != WEFT_OK) {
            return weft_fail(error, WEFT_IO,
                             "no room in %s to copy the journal of the previous process: %s",
                             file->options->directory, strerror(errno));
        }
        weft_shard_journal_grow(shard, bytes);
    }
    return WEFT_OK;
}

/* Report only the worst damage. */
static void say(struct weft_journal_file *file, const struct weft_shard_journal_report *report,
                weft_status why, uint64_t checkpoint, struct weft_journal_news *news)
{
    const char *path = file->former.path, *aside = "It is kept, in quarantine/ beside it";
    file->former.aside = true;
    if (why != WEFT_OK) {
        weft_journal_news_add(news, "%s cannot be used: %s; its records are not replayed. %s", path,
                              why == WEFT_DATA
                                  ? "its head is damaged, or it was truncated"
                                  : "it is of another job, or of another number of shards",
                              aside);
    } else if (report->end_unknown) {
        weft_journal_news_add(
            news, "%s is damaged: where it ended and what is lost is not known; %s. %s", path,
            report->used ? "its intact records are replayed" : "nothing is replayed", aside);
    } else if (report->damaged) {
        weft_journal_news_add(news,
                              "%s is damaged, or the host lost its power: its last %" PRIu64
                              " records (%" PRIu64 " bytes) are lost, and %s. %s",
                              path, report->lost_records, report->lost_bytes,
                              report->used ? "those before are replayed" : "none is replayed",
                              aside);
    } else if (!report->used) {
        weft_journal_news_add(news,
                              "%s does not continue from checkpoint %" PRIu64 ": its %" PRIu64
                              " records are not replayed. %s",
                              path, checkpoint, report->unused_records, aside);
    } else if (report->unused_records > 0) {
        weft_journal_news_add(news,
                              "%s was full, and its last %" PRIu64
                              " records continue from a checkpoint that was not restored: they are "
                              "not replayed. %s",
                              path, report->unused_records, aside);
    } else {
        file->former.aside = false;
    }
}

/* The predecessor's journal, whose records may be on the disk, will be removed: their copies must
 * be on the disk before. */
static weft_status sync_all(struct weft_journal_file *file, struct weft_shard *shard,
                            struct weft_error *error)
{
    if (fdatasync(file->fd) != 0) {
        return weft_fail(error, WEFT_IO, "cannot write a journal in %s: %s",
                         file->options->directory, strerror(errno));
    }
    if (weft_map_guard_failed(file->guard)) {
        return weft_fail(error, WEFT_IO, "the disk of %s failed while a journal was written",
                         file->options->directory);
    }
    file->synced = weft_shard_journal_changes(shard);
    file->freed = weft_shard_journal_frees(shard);
    return weft_ckpt_sync_directory(file->options->directory, error);
}

weft_status weft_journal_replay(struct weft_journal_file *file, struct weft_shard *shard,
                                uint64_t checkpoint, uint64_t cut, weft_checkpoint_supply *supply,
                                struct weft_journal_news *news, struct weft_error *error)
{
    bool with_former = file->former.memory != NULL;
    weft_status why = init(file, shard, checkpoint, cut, with_former), status = why;
    if (with_former && (why == WEFT_DATA || why == WEFT_EXISTS)) {
        status = init(file, shard, checkpoint, cut, false);
    }
    status = status == WEFT_OK ? replay(file, shard, supply, error) : stop(file, status, error);
    status = status == WEFT_OK ? sync_all(file, shard, error) : status;
    weft_journal_former_unmap(&file->former);
    if (status != WEFT_OK) {
        discard(file);
    } else if (with_former) {
        say(file, weft_shard_journal_report(shard), why, checkpoint, news);
    }
    return status;
}

/* ---- while it serves ------------------------------------------------------------------------- */

/* Earlier records stay; later ones are not written. A failed fsync is not retried: the kernel
 * reports the error once, and then treats the pages as clean. */
static void fail(struct weft_journal_file *file, struct weft_shard *shard)
{
    file->failed = true;
    weft_shard_journal_fail(shard);
}

void weft_journal_turn(struct weft_journal_file *file, struct weft_shard *shard)
{
    if (file->fd < 0 || file->failed) {
        return;
    }
    if (weft_map_guard_failed(file->guard)) {
        fail(file, shard);
        return;
    }
    if (weft_shard_journal_wants(shard)) {
        uint64_t bytes = weft_min_u64(file->bytes_max, file->bytes + STEP_BYTES);
        if (bytes > file->bytes && take_blocks(file, bytes) == WEFT_OK) {
            weft_shard_journal_grow(shard, bytes);
        }
    }
}

void weft_journal_commit(struct weft_journal_file *file, struct weft_shard *shard)
{
    if (file->fd < 0 || file->failed || !file->options->sync ||
        weft_shard_journal_changes(shard) == file->synced) {
        return;
    }
    file->synced = weft_shard_journal_changes(shard);
    if (fdatasync(file->fd) != 0 || weft_map_guard_failed(file->guard)) {
        fail(file, shard);
    }
}

void weft_journal_commit_freed(struct weft_journal_file *file, struct weft_shard *shard)
{
    uint64_t frees = file->fd >= 0 ? weft_shard_journal_frees(shard) : 0;
    if (frees != file->freed) {
        file->freed = frees;
        weft_journal_commit(file, shard);
    }
}
