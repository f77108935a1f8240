#define _GNU_SOURCE
#include "fault_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 64 };

static struct {
    uint32_t at;
    uint32_t calls;
    enum fault_kind kind;
    int why;
    bool met;
    const char *name;
    bool network;
    uint32_t stale;
    struct {
        char path[256];
        uint32_t left;
    } absent[NAMES_MAX]; /* names remembered as missing */
    void (*hook)(void *arg);
    void *hook_arg;
} fs;

void fault_fs_arm(uint32_t at, enum fault_kind kind, int why)
{
    memset(&fs, 0, sizeof(fs));
    fs.at = at;
    fs.kind = kind;
    fs.why = why;
}

void fault_fs_disarm(void)
{
    memset(&fs, 0, sizeof(fs));
}

uint32_t fault_fs_calls(void)
{
    return fs.calls;
}

bool fault_fs_met(void)
{
    return fs.met;
}

const char *fault_fs_name(void)
{
    return fs.name;
}

void fault_fs_network(uint32_t stale)
{
    memset(&fs, 0, sizeof(fs));
    fs.network = true;
    fs.stale = stale;
}

void fault_fs_before_link(void (*hook)(void *arg), void *arg)
{
    fs.hook = hook;
    fs.hook_arg = arg;
}

/* True: this call must fail. */
static bool falls(const char *name)
{
    fs.calls++;
    if (fs.at == 0 || fs.calls != fs.at) {
        return false;
    }
    fs.met = true;
    fs.name = name;
    return true;
}

/* The call fails with an errno. */
static bool fails(const char *name)
{
    if (!falls(name) || fs.kind != FAULT_ERRNO) {
        return false;
    }
    errno = fs.why;
    return true;
}

/* ---- look-ups of a network file system ------------------------------------------------------- */

static bool is_stale(const char *path)
{
    for (int i = 0; fs.network && i < NAMES_MAX; i++) {
        if (fs.absent[i].left > 0 && strcmp(fs.absent[i].path, path) == 0) {
            fs.absent[i].left--;
            return true;
        }
    }
    return false;
}

static void remember_absent(const char *path)
{
    for (int i = 0; fs.network && i < NAMES_MAX; i++) {
        if (fs.absent[i].left == 0) {
            snprintf(fs.absent[i].path, sizeof(fs.absent[i].path), "%s", path);
            fs.absent[i].left = fs.stale;
            return;
        }
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    if (fails("open")) {
        return -1;
    }
    if ((flags & O_CREAT) == 0 && is_stale(path)) {
        errno = ENOENT;
        return -1;
    }
    int fd = __real_open64(path, flags, mode);
    if (fd < 0 && errno == ENOENT) {
        remember_absent(path);
        errno = ENOENT;
    }
    return fd;
}

ssize_t __real_pread64(int fd, void *to, size_t count, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t count, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t count, off_t at)
{
    if (fails("pread")) {
        return -1;
    }
    bool is_short = fs.at != 0 && fs.calls == fs.at && fs.kind == FAULT_SHORT && count > 1;
    return __real_pread64(fd, to, is_short ? 1 : count, at);
}

ssize_t __real_pwrite64(int fd, const void *from, size_t count, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t count, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t count, off_t at)
{
    if (fails("pwrite")) {
        return -1;
    }
    bool is_short = fs.at != 0 && fs.calls == fs.at && fs.kind == FAULT_SHORT && count > 1;
    return __real_pwrite64(fd, from, is_short ? 1 : count, at);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails("fsync") ? -1 : __real_fsync(fd);
}

int __real_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info);
int __wrap_fstat64(int fd, struct stat *info)
{
    return fails("fstat") ? -1 : __real_fstat64(fd, info);
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return fails("unlink") ? -1 : __real_unlink(path);
}

/* Make the call, but report another result. */
static bool is_unclear(int result, int why)
{
    if (result == 0 && fs.at != 0 && fs.calls == fs.at && fs.kind == FAULT_UNCLEAR) {
        errno = why;
        return true;
    }
    return false;
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    if (fs.hook != NULL) {
        fs.hook(fs.hook_arg);
    }
    if (fails("link")) {
        return -1;
    }
    int result = __real_link(from, to);
    if (is_unclear(result, EEXIST) || (fs.network && result == 0)) {
        errno = EEXIST;
        return -1;
    }
    return result;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (fails("rename")) {
        return -1;
    }
    int result = __real_rename(from, to);
    return is_unclear(result, EIO) ? -1 : result;
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    if (fails("mkdir")) {
        return -1;
    }
    int result = __real_mkdir(path, mode);
    return is_unclear(result, EEXIST) ? -1 : result;
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return fails("opendir") ? NULL : __real_opendir(path);
}

struct dirent *__real_readdir64(DIR *dir);
struct dirent *__wrap_readdir64(DIR *dir);
struct dirent *__wrap_readdir64(DIR *dir)
{
    return fails("readdir") ? NULL : __real_readdir64(dir);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails("malloc") ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails("calloc") ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    return fails("realloc") ? NULL : __real_realloc(old, bytes);
}
