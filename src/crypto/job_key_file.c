/* Key files: checks of ownership and access, and writing a file that survives a power failure. */
#include "crypto/job_key.h"
#include "file/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* One byte more than the longest valid text, so that a longer one is detected. */
    READ_BYTES = WEFT_JOB_KEY_TEXT_BYTES + 2,
    FILE_MODE = 0600,
    MODE_OTHERS = 0077,
};

/* ---- reading --------------------------------------------------------------------------------- */

weft_status weft_job_key_read_fd(int fd, const char *name, struct weft_job_key **key_p,
                                 struct weft_error *error)
{
    char text[READ_BYTES];
    size_t count = 0;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && count < sizeof(text)) {
        ssize_t got = read(fd, text + count, sizeof(text) - count);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            status = weft_fail(error, WEFT_IO, "cannot read %s: %s", name, strerror(errno));
        }
        count += got > 0 ? (size_t)got : 0;
    }
    if (status == WEFT_OK) {
        status = weft_job_key_parse(text, count, name, key_p, error);
    }
    OPENSSL_cleanse(text, sizeof(text));
    return status;
}

/* In a folder that other users can write to, a link of theirs could point to any file of this
 * user, or to a key that they know. Root's links are as trusted as the user's own. */
static weft_status check_link(const char *path, struct weft_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0) {
        int why = errno;
        if (why == ENOENT) {
            return weft_fail(error, WEFT_NOTFOUND,
                             "there is no key file %s; `weft keygen %s` makes one", path, path);
        }
        return weft_fail(error, WEFT_IO, "cannot look at key file %s: %s", path, strerror(why));
    }
    if (S_ISLNK(about.st_mode) && about.st_uid != geteuid() && about.st_uid != 0) {
        return weft_fail(error, WEFT_DATA,
                         "key file %s is a symbolic link that belongs to user %u; name the "
                         "file itself",
                         path, (unsigned)about.st_uid);
    }
    return WEFT_OK;
}

/* Checks the opened file, not the current target of the name. */
static weft_status check_file(int fd, const char *path, struct weft_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return weft_fail(error, WEFT_IO, "cannot look at key file %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return weft_fail(error, WEFT_DATA, "key file %s is not a regular file", path);
    }
    if ((about.st_mode & MODE_OTHERS) != 0) {
        return weft_fail(error, WEFT_DATA,
                         "key file %s has mode %04o: others may read it or change it; run: "
                         "chmod 600 %s (and make a new key if they did)",
                         path, (unsigned)(about.st_mode & 07777), path);
    }
    return WEFT_OK;
}

weft_status weft_job_key_read(const char *path, struct weft_job_key **key_p,
                              struct weft_error *error)
{
    weft_status status = check_link(path, error);
    if (status != WEFT_OK) {
        return status;
    }
    /* A FIFO must not block until its writer opens it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return weft_fail(error, errno == ENOENT ? WEFT_NOTFOUND : WEFT_IO,
                         "cannot open key file %s: %s", path, strerror(errno));
    }
    status = check_file(fd, path, error);
    if (status == WEFT_OK) {
        char name[WEFT_ERROR_BYTES / 2];
        snprintf(name, sizeof(name), "key file %s", path);
        status = weft_job_key_read_fd(fd, name, key_p, error);
    }
    (void)close(fd);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static weft_status fill(const struct weft_job_key *key, int fd)
{
    /* Independent of the umask. */
    if (fchmod(fd, FILE_MODE) != 0) {
        return WEFT_IO;
    }
    weft_status status = weft_job_key_write_fd(key, fd);
    return status == WEFT_OK && fsync(fd) != 0 ? WEFT_IO : status;
}

weft_status weft_job_key_write(const struct weft_job_key *key, const char *path,
                               struct weft_error *error)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, FILE_MODE);
    if (fd < 0 && errno == EEXIST) {
        return weft_fail(error, WEFT_EXISTS,
                         "%s exists already and is left as it is; `weft keygen --check %s` "
                         "tells which key it holds",
                         path, path);
    }
    if (fd < 0) {
        return weft_fail(error, WEFT_IO, "cannot make %s: %s", path, strerror(errno));
    }
    weft_status status = fill(key, fd);
    int why = errno;
    if (close(fd) != 0 && status == WEFT_OK) {
        status = WEFT_IO;
        why = errno;
    }
    if (status == WEFT_OK && weft_file_sync_name(path) != WEFT_OK) {
        status = WEFT_IO;
        why = errno;
    }
    if (status != WEFT_OK) {
        (void)unlink(path);
        return weft_fail(error, status, "cannot write %s: %s", path,
                         status == WEFT_IO ? strerror(why) : weft_status_text(status));
    }
    return WEFT_OK;
}
