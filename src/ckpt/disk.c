#define _GNU_SOURCE
#include "ckpt/disk.h"

#include "base/assert.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { COPY_BYTES = 1 << 18 };

/* A tensor is written to the disk in windows of WINDOW_BYTES; after WINDOWS_BACK windows the
 * pages are released. */
enum { WINDOW_BYTES = 4 << 20, WINDOWS_BACK = 4, PAGE_BYTES = 4096 };

enum { TEMPORARIES_MAX = 99 }; /* programs that save one file at the same time */

struct progress {
    uint64_t written;
    uint64_t begun; /* offset in the file up to which writeback was started; 0 = not started */
};

struct weft_ckpt_writer {
    char path[WEFT_CKPT_PATH_BYTES]; /* of the file */
    char temporary[WEFT_CKPT_PATH_BYTES + sizeof(".99" WEFT_CKPT_TEMPORARY)];
    char name[WEFT_CKPT_FILE_BYTES];
    int fd;
    struct weft_ckpt_head head;
    size_t head_bytes;
    XXH3_state_t **hashes;     /* (tensors,) */
    struct progress *progress; /* (tensors,) */
};

struct weft_ckpt_reader {
    char path[WEFT_CKPT_PATH_BYTES];
    int fd;
    struct weft_ckpt_head head;
    size_t head_bytes;
};

static weft_status fail_call(struct weft_error *error, const char *what, const char *path)
{
    return weft_fail(error, WEFT_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static weft_status path_make(char *out, const char *directory, const char *name,
                             struct weft_error *error)
{
    int length = snprintf(out, WEFT_CKPT_PATH_BYTES, "%s/%s", directory, name);
    if (length < 0 || length >= WEFT_CKPT_PATH_BYTES) {
        return weft_fail(error, WEFT_IO, "the directory's name is too long");
    }
    return WEFT_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static weft_status write_at(int fd, const char *path, const void *bytes, size_t count,
                            uint64_t offset, struct weft_error *error)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t n = pwrite(fd, at, count, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return fail_call(error, "write", path);
        }
        at += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return WEFT_OK;
}

/* Start writeback of a window, and release the pages of earlier windows that are already
 * written. If the disk keeps up, a checkpoint reuses few pages of the page cache. A
 * large one then evicts no other data, touches no new pages (on a virtual machine this was most
 * of the cost of writing) and leaves little work to fsync. If the disk does not keep up, the
 * pages stay in the cache as they would without this function: waiting here would make the
 * shards copy more rows. Failures are reported by fsync. */
static void pass_on(struct weft_ckpt_writer *writer, uint32_t tensor)
{
    struct progress *p = &writer->progress[tensor];
    uint64_t first = writer->head_bytes + writer->head.tensors[tensor].offset;
    uint64_t page = first / PAGE_BYTES * PAGE_BYTES;
    uint64_t from = weft_max_u64(p->begun, page);
    uint64_t end = (first + p->written) / PAGE_BYTES * PAGE_BYTES;
    if (end < from + WINDOW_BYTES) {
        return;
    }
    uint64_t back = weft_min_u64(WINDOWS_BACK * (uint64_t)WINDOW_BYTES, from - page);
    (void)sync_file_range(writer->fd, (off_t)from, (off_t)(end - from), SYNC_FILE_RANGE_WRITE);
    if (back > 0) {
        (void)posix_fadvise(writer->fd, (off_t)(from - back), (off_t)back, POSIX_FADV_DONTNEED);
    }
    p->begun = end;
}

/* Returns true if the file is locked by the caller alone and still has its name: a writer that is
 * done gives the file another name before it unlocks it. */
static bool is_own(int fd, const char *name)
{
    struct stat file, named;
    return (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(fd, &file) == 0 &&
           stat(name, &named) == 0 && file.st_dev == named.st_dev && file.st_ino == named.st_ino;
}

/* Two programs may save the same model at the same time: each writes a file of its own, and the
 * last one to finish replaces the other's. What a killed program left is used again. */
static weft_status temporary_open(struct weft_ckpt_writer *writer, struct weft_error *error)
{
    snprintf(writer->temporary, sizeof(writer->temporary), "%s" WEFT_CKPT_TEMPORARY, writer->path);
    for (unsigned n = 1; n <= TEMPORARIES_MAX; n++) {
        int fd = open(writer->temporary, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (fd < 0) {
            break;
        }
        if (is_own(fd, writer->temporary) && ftruncate(fd, 0) == 0) {
            writer->fd = fd;
            return WEFT_OK;
        }
        (void)close(fd);
        snprintf(writer->temporary, sizeof(writer->temporary), "%s.%u" WEFT_CKPT_TEMPORARY,
                 writer->path, n);
        errno = EBUSY;
    }
    return fail_call(error, "create", writer->temporary);
}

static weft_status writer_init(struct weft_ckpt_writer *writer, const char *directory,
                               const char *name, struct weft_error *error)
{
    weft_status status = path_make(writer->path, directory, name, error);
    if (status != WEFT_OK) {
        return status;
    }
    WEFT_ASSERT(strlen(name) < sizeof(writer->name));
    snprintf(writer->name, sizeof(writer->name), "%s", name);
    uint32_t count = writer->head.tensor_count;
    writer->hashes = calloc(count + 1, sizeof(*writer->hashes));
    writer->progress = calloc(count + 1, sizeof(*writer->progress));
    bool have = writer->hashes != NULL && writer->progress != NULL;
    for (uint32_t i = 0; have && i < count; i++) {
        writer->hashes[i] = XXH3_createState();
        have = writer->hashes[i] != NULL && XXH3_64bits_reset(writer->hashes[i]) == XXH_OK;
    }
    char *bytes;
    if (!have || weft_ckpt_head_print(&writer->head, &bytes, &writer->head_bytes) != WEFT_OK) {
        return weft_fail(error, WEFT_NOMEM, "no memory to write %s", writer->path);
    }
    free(bytes);
    return temporary_open(writer, error);
}

weft_status weft_ckpt_writer_open(const char *directory, const char *name,
                                  struct weft_ckpt_head *head, struct weft_ckpt_writer **writer_p,
                                  struct weft_error *error)
{
    struct weft_ckpt_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        weft_ckpt_head_fini(head);
        return weft_fail(error, WEFT_NOMEM, "no memory to write %s", name);
    }
    writer->fd = -1;
    writer->head = *head;
    *head = (struct weft_ckpt_head){.tensors = NULL};
    weft_status status = writer_init(writer, directory, name, error);
    if (status != WEFT_OK) {
        weft_ckpt_writer_abandon(writer);
        return status;
    }
    *writer_p = writer;
    return WEFT_OK;
}

weft_status weft_ckpt_writer_put(struct weft_ckpt_writer *writer, uint32_t tensor,
                                 const void *bytes, size_t count, struct weft_error *error)
{
    WEFT_ASSERT(tensor < writer->head.tensor_count);
    const struct weft_ckpt_tensor *t = &writer->head.tensors[tensor];
    uint64_t *written = &writer->progress[tensor].written;
    WEFT_ASSERT(count <= t->bytes - *written);
    if (count == 0) {
        return WEFT_OK;
    }
    weft_status status = write_at(writer->fd, writer->temporary, bytes, count,
                                  writer->head_bytes + t->offset + *written, error);
    if (status != WEFT_OK) {
        return status;
    }
    *written += count;
    (void)XXH3_64bits_update(writer->hashes[tensor], bytes, count);
    pass_on(writer, tensor);
    return WEFT_OK;
}

static void writer_free(struct weft_ckpt_writer *writer)
{
    for (uint32_t i = 0; writer->hashes != NULL && i < writer->head.tensor_count; i++) {
        XXH3_freeState(writer->hashes[i]);
    }
    free(writer->hashes);
    free(writer->progress);
    weft_ckpt_head_fini(&writer->head);
    free(writer);
}

void weft_ckpt_writer_abandon(struct weft_ckpt_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        (void)unlink(writer->temporary); /* while it is locked: then nobody else writes it */
        (void)close(writer->fd);
    }
    writer_free(writer);
}

/* Write the head again, now with the checksums; then sync everything. */
static weft_status writer_finish(struct weft_ckpt_writer *writer, struct weft_ckpt_file *file_p,
                                 struct weft_error *error)
{
    for (uint32_t i = 0; i < writer->head.tensor_count; i++) {
        WEFT_ASSERT(writer->progress[i].written == writer->head.tensors[i].bytes);
        writer->head.tensors[i].hash = XXH3_64bits_digest(writer->hashes[i]);
    }
    char *bytes;
    size_t count;
    if (weft_ckpt_head_print(&writer->head, &bytes, &count) != WEFT_OK) {
        return weft_fail(error, WEFT_NOMEM, "no memory to write %s", writer->path);
    }
    WEFT_ASSERT(count == writer->head_bytes);
    weft_status status = write_at(writer->fd, writer->temporary, bytes, count, 0, error);
    uint64_t hash = XXH3_64bits(bytes, count);
    free(bytes);
    if (status == WEFT_OK && fsync(writer->fd) != 0) {
        status = fail_call(error, "synchronise", writer->temporary);
    }
    if (status == WEFT_OK && rename(writer->temporary, writer->path) != 0) {
        status = fail_call(error, "rename", writer->temporary);
    }
    if (status == WEFT_OK) {
        *file_p = (struct weft_ckpt_file){
            .bytes = count + weft_ckpt_head_data_bytes(&writer->head), .head_hash = hash};
        memcpy(file_p->name, writer->name, sizeof(file_p->name));
    }
    return status;
}

weft_status weft_ckpt_writer_close(struct weft_ckpt_writer *writer, struct weft_ckpt_file *file_p,
                                   struct weft_error *error)
{
    weft_status status = writer_finish(writer, file_p, error);
    if (status != WEFT_OK) {
        weft_ckpt_writer_abandon(writer);
        return status;
    }
    (void)close(writer->fd);
    writer_free(writer);
    return WEFT_OK;
}

weft_status weft_ckpt_write_new(const char *path, const void *bytes, size_t count,
                                struct weft_error *error)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail_call(error, "create", path);
    }
    weft_status status = write_at(fd, path, bytes, count, 0, error);
    if (status == WEFT_OK && fsync(fd) != 0) {
        status = fail_call(error, "synchronise", path);
    }
    (void)close(fd);
    if (status != WEFT_OK) {
        (void)unlink(path);
    }
    return status;
}

weft_status weft_ckpt_read_whole(const char *path, size_t bytes_max, char **bytes_p,
                                 size_t *count_p, struct weft_error *error)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        weft_status status = errno == ENOENT ? WEFT_NOTFOUND : WEFT_IO;
        (void)fail_call(error, "open", path);
        return status;
    }
    weft_status status = fstat(fd, &info) == 0 ? WEFT_OK : fail_call(error, "read", path);
    size_t count = status == WEFT_OK ? (size_t)info.st_size : 0, at = 0;
    count = count > bytes_max ? bytes_max : count;
    char *bytes = malloc(count + 1);
    if (bytes == NULL) {
        status = weft_fail(error, WEFT_NOMEM, "no memory to read %s", path);
    }
    while (status == WEFT_OK && at < count) {
        ssize_t n = pread(fd, bytes + at, count - at, (off_t)at);
        if (n < 0 && errno != EINTR) {
            status = fail_call(error, "read", path);
        } else if (n == 0) {
            break;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    int why = errno;
    (void)close(fd);
    if (status != WEFT_OK) {
        free(bytes);
        errno = why;
        return status;
    }
    *bytes_p = bytes;
    *count_p = at;
    return WEFT_OK;
}

weft_status weft_ckpt_sync_directory(const char *directory, struct weft_error *error)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail_call(error, "open", directory);
    }
    weft_status status = fsync(fd) == 0 ? WEFT_OK : fail_call(error, "synchronise", directory);
    (void)close(fd);
    return status;
}

/* The directory that contains a path. Returns false if it does not fit. */
static bool parent_of(const char *path, char out[WEFT_CKPT_PATH_BYTES])
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    while (end > 0 && path[end - 1] != '/') {
        end--;
    }
    int length = end > 0 ? snprintf(out, WEFT_CKPT_PATH_BYTES, "%.*s", (int)end, path)
                         : snprintf(out, WEFT_CKPT_PATH_BYTES, ".");
    return length >= 0 && length < WEFT_CKPT_PATH_BYTES;
}

weft_status weft_ckpt_make_directory(const char *directory, struct weft_error *error)
{
    char parent[WEFT_CKPT_PATH_BYTES];
    if (!parent_of(directory, parent)) {
        return weft_fail(error, WEFT_IO, "the directory's name is too long");
    }
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        return fail_call(error, "make directory", directory);
    }
    /* One that is there may have been made by a process that could not sync it, or did not yet. A
     * parent that this process may not read cannot be synced by it. */
    return access(parent, R_OK) != 0 && errno == EACCES ? WEFT_OK
                                                        : weft_ckpt_sync_directory(parent, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status read_at(const struct weft_ckpt_reader *reader, void *out, size_t count,
                           uint64_t offset, struct weft_error *error)
{
    char *at = out;
    while (count > 0) {
        ssize_t n = pread(reader->fd, at, count, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_call(error, "read", reader->path);
        }
        if (n == 0) {
            return weft_fail(error, WEFT_DATA, "%s ends too early", reader->path);
        }
        at += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return WEFT_OK;
}

static weft_status read_head(struct weft_ckpt_reader *reader, const struct weft_ckpt_file *file,
                             struct weft_error *error)
{
    struct stat info;
    if (fstat(reader->fd, &info) != 0) {
        return fail_call(error, "look at", reader->path);
    }
    if ((uint64_t)info.st_size != file->bytes) {
        return weft_fail(error, WEFT_DATA, "%s has %llu bytes, but should have %" PRIu64,
                         reader->path, (unsigned long long)info.st_size, file->bytes);
    }
    uint64_t length;
    weft_status status = read_at(reader, &length, sizeof(length), 0, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (length > WEFT_CKPT_HEAD_BYTES_MAX || length + sizeof(length) > file->bytes) {
        return weft_fail(error, WEFT_DATA, "%s: the head is damaged", reader->path);
    }
    reader->head_bytes = sizeof(length) + length;
    char *bytes = malloc(reader->head_bytes);
    if (bytes == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory to read %s", reader->path);
    }
    status = read_at(reader, bytes, reader->head_bytes, 0, error);
    if (status == WEFT_OK && XXH3_64bits(bytes, reader->head_bytes) != file->head_hash) {
        status = weft_fail(error, WEFT_DATA, "%s: the head is damaged", reader->path);
    }
    if (status == WEFT_OK) {
        struct weft_error why = {.text = ""};
        size_t used;
        status = weft_ckpt_head_parse(bytes, reader->head_bytes, file->bytes, &reader->head, &used,
                                      &why);
        if (status != WEFT_OK) {
            (void)!weft_fail(error, status, "%.200s: %.250s", reader->path, why.text);
        }
    }
    free(bytes);
    return status;
}

weft_status weft_ckpt_reader_open(const char *directory, const struct weft_ckpt_file *file,
                                  struct weft_ckpt_reader **reader_p, struct weft_error *error)
{
    struct weft_ckpt_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory to read %s", file->name);
    }
    reader->fd = -1;
    weft_status status = path_make(reader->path, directory, file->name, error);
    if (status == WEFT_OK) {
        reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        bool is_absent = reader->fd < 0 && errno == ENOENT;
        status = reader->fd >= 0 ? read_head(reader, file, error)
                                 : fail_call(error, "open", reader->path);
        status = is_absent ? WEFT_NOTFOUND : status;
    }
    if (status != WEFT_OK) {
        weft_ckpt_reader_close(reader);
        return status;
    }
    *reader_p = reader;
    return WEFT_OK;
}

void weft_ckpt_reader_close(struct weft_ckpt_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        (void)close(reader->fd);
    }
    weft_ckpt_head_fini(&reader->head);
    free(reader);
}

const struct weft_ckpt_head *weft_ckpt_reader_head(const struct weft_ckpt_reader *reader)
{
    return &reader->head;
}

static weft_status verify_tensor(struct weft_ckpt_reader *reader,
                                 const struct weft_ckpt_tensor *tensor, XXH3_state_t *hash,
                                 char *buffer, struct weft_error *error)
{
    (void)XXH3_64bits_reset(hash);
    for (uint64_t at = 0; at < tensor->bytes; at += COPY_BYTES) {
        size_t count = (size_t)weft_min_u64(COPY_BYTES, tensor->bytes - at);
        weft_status status =
            read_at(reader, buffer, count, reader->head_bytes + tensor->offset + at, error);
        if (status != WEFT_OK) {
            return status;
        }
        (void)XXH3_64bits_update(hash, buffer, count);
    }
    if (XXH3_64bits_digest(hash) != tensor->hash) {
        return weft_fail(error, WEFT_DATA, "%s: tensor %s is damaged", reader->path, tensor->name);
    }
    return WEFT_OK;
}

weft_status weft_ckpt_reader_verify(struct weft_ckpt_reader *reader, struct weft_error *error)
{
    XXH3_state_t *hash = XXH3_createState();
    char *buffer = malloc(COPY_BYTES);
    weft_status status = WEFT_OK;
    if (hash == NULL || buffer == NULL) {
        status = weft_fail(error, WEFT_NOMEM, "no memory to read %s", reader->path);
    }
    for (uint32_t i = 0; status == WEFT_OK && i < reader->head.tensor_count; i++) {
        status = verify_tensor(reader, &reader->head.tensors[i], hash, buffer, error);
    }
    XXH3_freeState(hash);
    free(buffer);
    return status;
}

weft_status weft_ckpt_reader_get(struct weft_ckpt_reader *reader,
                                 const struct weft_ckpt_tensor *tensor, uint64_t at, void *out,
                                 size_t count, struct weft_error *error)
{
    WEFT_ASSERT(at <= tensor->bytes && count <= tensor->bytes - at);
    return read_at(reader, out, count, reader->head_bytes + tensor->offset + at, error);
}
