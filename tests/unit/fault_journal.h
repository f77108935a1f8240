/* Counts every call on a journal's files, and makes one of them fail. To be linked with
 * fault_journal_wraps of tests/unit/meson.build. Calls inside the C library (opendir's open) and in
 * other objects are counted only if they use these names. Names with 64: the build requests 64-bit
 * offsets. */
#ifndef WEFT_TESTS_FAULT_JOURNAL_H
#define WEFT_TESTS_FAULT_JOURNAL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    bool armed;
    uint32_t calls;   /* calls since it was armed */
    uint32_t fails;   /* number of the call that fails, from 1; 0 = none */
    int why;          /* errno; 0 = a read returns only one byte */
    const char *name; /* name of the failed call; NULL = none */
} fault;

static inline void fault_arm(uint32_t fails, int why)
{
    fault.armed = true;
    fault.calls = 0;
    fault.fails = fails;
    fault.why = why;
    fault.name = NULL;
}

static inline uint32_t fault_disarm(void)
{
    fault.armed = false;
    return fault.calls;
}

static inline bool fault_hits(const char *name)
{
    if (!fault.armed || ++fault.calls != fault.fails) {
        return false;
    }
    fault.name = name;
    errno = fault.why;
    return true;
}

/* A call that returns -1 and errno. */
#define FAULT_CALL(name, parameters, arguments)                                                    \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        return fault_hits(#name) && fault.why != 0 ? -1 : __real_##name arguments;                 \
    }

FAULT_CALL(mkdir, (const char *path, mode_t mode), (path, mode))
FAULT_CALL(fstat64, (int fd, struct stat *info), (fd, info))
FAULT_CALL(flock, (int fd, int operation), (fd, operation))
FAULT_CALL(rename, (const char *from, const char *to), (from, to))
FAULT_CALL(unlink, (const char *path), (path))
FAULT_CALL(access, (const char *path, int mode), (path, mode))
FAULT_CALL(fsync, (int fd), (fd))
FAULT_CALL(fdatasync, (int fd), (fd))

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fault_hits("open") && fault.why != 0 ? -1 : __real_open64(path, flags, mode);
}

ssize_t __real_pread64(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t at)
{
    if (fault_hits("pread")) {
        return fault.why != 0 ? -1 : __real_pread64(fd, to, 1, at);
    }
    return __real_pread64(fd, to, bytes, at);
}

int __real_posix_fallocate64(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t at, off_t bytes)
{
    if (fault_hits("posix_fallocate64") && fault.why != 0) {
        errno = 0; /* this call returns its error instead of setting errno */
        return fault.why;
    }
    return __real_posix_fallocate64(fd, at, bytes);
}

void *__real_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t at);
void *__wrap_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t at);
void *__wrap_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t at)
{
    return fault_hits("mmap") && fault.why != 0
               ? MAP_FAILED
               : __real_mmap64(start, bytes, protection, flags, fd, at);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return fault_hits("opendir") && fault.why != 0 ? NULL : __real_opendir(path);
}

struct dirent *__real_readdir64(DIR *directory);
struct dirent *__wrap_readdir64(DIR *directory);
struct dirent *__wrap_readdir64(DIR *directory)
{
    return fault_hits("readdir") && fault.why != 0 ? NULL : __real_readdir64(directory);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fault_hits("strdup") && fault.why != 0 ? NULL : __real_strdup(text);
}

ssize_t __real_getrandom(void *to, size_t bytes, unsigned int flags);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned int flags);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned int flags)
{
    return fault_hits("getrandom") && fault.why != 0 ? -1 : __real_getrandom(to, bytes, flags);
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    return fault_hits("ioctl") && fault.why != 0 ? -1 : __real_ioctl(fd, request, argument);
}

#endif
