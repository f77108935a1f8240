#define _GNU_SOURCE
#include "cli/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_BYTES = 16 << 20, PAGE_BYTES = 4096 };

uint64_t weft_journal_job(const char *name)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at != '\0'; at++) {
        sum = (sum ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* Blocks for all of it: what is mapped must be there when it is touched. */
static weft_status take_blocks(struct weft_journal_file *file, uint64_t bytes)
{
    int why = posix_fallocate(file->fd, 0, (off_t)bytes);
    if (why != 0) {
        errno = why;
        return WEFT_IO;
    }
    file->bytes = bytes;
    return WEFT_OK;
}

static weft_status map(struct weft_journal_file *file, bool fresh, uint64_t bytes_max)
{
    struct stat info;
    if (fresh && ftruncate(file->fd, 0) != 0) {
        return WEFT_IO;
    }
    if (fstat(file->fd, &info) != 0) {
        return WEFT_IO;
    }
    uint64_t there = (uint64_t)info.st_size / PAGE_BYTES * PAGE_BYTES;
    uint64_t first = weft_min_u64(bytes_max, STEP_BYTES);
    file->bytes_max = weft_max_u64(bytes_max, there);
    if (take_blocks(file, weft_max_u64(first, there)) != WEFT_OK) {
        return WEFT_IO;
    }
    file->memory = mmap(NULL, file->bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (file->memory == MAP_FAILED) {
        file->memory = NULL;
        return WEFT_IO;
    }
    return WEFT_OK;
}

/* Whoever may write to the folder could have put another file of this user's in the place. */
static bool is_ours(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
           info.st_nlink == 1;
}

weft_status weft_journal_file_open(struct weft_journal_file *file,
                                   const struct weft_journal_options *options, uint32_t shard,
                                   bool fresh, struct weft_ckpt_error *error)
{
    char path[4096];
    *file = (struct weft_journal_file){.fd = -1};
    int used = snprintf(path, sizeof(path), "%s/journal-%04" PRIu32, options->directory, shard);
    if (used < 0 || used >= (int)sizeof(path)) {
        return weft_ckpt_fail(error, WEFT_IO, "--journal: the directory's name is too long");
    }
    if (mkdir(options->directory, 0777) != 0 && errno != EEXIST) {
        return weft_ckpt_fail(error, WEFT_IO, "cannot make directory %s: %s", options->directory,
                              strerror(errno));
    }
    file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd < 0) {
        return weft_ckpt_fail(error, WEFT_IO, "cannot open %s: %s", path, strerror(errno));
    }
    weft_status status = WEFT_OK;
    if (!is_ours(file->fd)) {
        status = weft_ckpt_fail(error, WEFT_IO,
                                "%s is not a file of its own that belongs to this user: choose "
                                "another directory",
                                path);
    } else if (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
        status = weft_ckpt_fail(error, WEFT_IO,
                                "%s is another process's: two servers with the "
                                "same shard?",
                                path);
    } else if (map(file, fresh, (uint64_t)options->mib << 20) != WEFT_OK) {
        status = weft_ckpt_fail(error, WEFT_IO, "cannot take %" PRIu64 " bytes for %s: %s",
                                weft_min_u64(STEP_BYTES, (uint64_t)options->mib << 20), path,
                                strerror(errno));
    }
    if (status != WEFT_OK) {
        weft_journal_file_close(file);
    }
    return status;
}

static const char *why_not(weft_status status)
{
    return status == WEFT_UNSUPPORTED ? "it is of another version"
           : status == WEFT_EXISTS    ? "it is of another job, or of another number of shards"
                                      : "it is damaged";
}

weft_status weft_journal_replay(struct weft_journal_file *file,
                                const struct weft_journal_options *options,
                                struct weft_shard *shard, uint64_t checkpoint,
                                weft_checkpoint_supply *supply, const char **why_p)
{
    const struct weft_shard_journal_config config = {.memory = file->memory,
                                                     .bytes = file->bytes,
                                                     .bytes_max = file->bytes_max,
                                                     .job = options->job,
                                                     .checkpoint = checkpoint};
    static const uint8_t zeros[PAGE_BYTES];
    bool blank = memcmp(file->memory, zeros, sizeof(zeros)) == 0;
    *why_p = "";
    weft_status status = weft_shard_journal_init(shard, &config);
    if (status == WEFT_DATA || status == WEFT_UNSUPPORTED || status == WEFT_EXISTS) {
        *why_p = why_not(status);
        /* All of it: records of another job would lie where records of this one would. The head last:
         * while it stands it is refused. */
        memset((uint8_t *)file->memory + PAGE_BYTES, 0, file->bytes - PAGE_BYTES);
        atomic_signal_fence(memory_order_seq_cst);
        memset(file->memory, 0, PAGE_BYTES);
        status = weft_shard_journal_init(shard, &config);
    }
    if (status != WEFT_OK) {
        return status;
    }
    while (weft_shard_journal_replay(shard)) {
        supply(shard);
    }
    if (!weft_shard_journal_report(shard)->used && !blank && *why_p[0] == '\0') {
        *why_p = "it does not begin before this checkpoint";
    }
    return WEFT_OK;
}

void weft_journal_grow(struct weft_journal_file *file, struct weft_shard *shard)
{
    if (file->fd < 0 || !weft_shard_journal_wants(shard)) {
        return;
    }
    uint64_t bytes = weft_min_u64(file->bytes_max, file->bytes + STEP_BYTES);
    if (bytes > file->bytes && take_blocks(file, bytes) == WEFT_OK) {
        weft_shard_journal_grow(shard, bytes);
    }
}

void weft_journal_file_close(struct weft_journal_file *file)
{
    if (file->memory != NULL) {
        (void)munmap(file->memory, file->bytes_max);
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    *file = (struct weft_journal_file){.fd = -1};
}
