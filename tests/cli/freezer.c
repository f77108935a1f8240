/* A library to be preloaded (LD_PRELOAD): it stops the process at a given step of writing a
 * checkpoint.
 *
 * FREEZER names a folder. If that folder has a file "server-RANK", with this process's rank
 * (WEFT_RANK), the file contains a number N. At its next checkpoint call the process removes the
 * file, and it stops itself (SIGSTOP) before the N-th checkpoint call. Checkpoint calls are open,
 * rename, link and unlink below a folder named "checkpoints", and every pwrite, fsync and
 * fdatasync. A process that is continued later then makes that call, like a process that was
 * suspended in the middle of it.
 *
 * Only for tests: one thread at a time makes such calls. */
#define _GNU_SOURCE
#pragma GCC visibility push(default)
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left; /* calls until the stop; 0 = not armed */

#define REAL(name) (__extension__(__typeof__(&(name))) dlsym(RTLD_NEXT, #name))

static void arm(void)
{
    char path[512], text[32] = "";
    const char *folder = getenv("FREEZER"), *rank = getenv("WEFT_RANK"),
               *role = getenv("WEFT_ROLE");
    if (folder == NULL || rank == NULL || role == NULL || strcmp(role, "server") != 0) {
        return;
    }
    snprintf(path, sizeof(path), "%s/server-%s", folder, rank);
    int fd = REAL(open64)(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (read(fd, text, sizeof(text) - 1) > 0) {
        left = strtol(text, NULL, 10);
    }
    (void)close(fd);
    (void)REAL(unlink)(path);
}

static void step(void)
{
    if (left == 0) {
        arm();
    }
    if (left > 0 && --left == 0) {
        raise(SIGSTOP);
    }
}

static void step_at(const char *path)
{
    if (strstr(path, "/checkpoints/") != NULL) {
        step();
    }
}

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    step_at(path);
    return REAL(open64)(path, flags, mode);
}

int rename(const char *from, const char *to)
{
    step_at(to);
    return REAL(rename)(from, to);
}

int link(const char *from, const char *to)
{
    step_at(to);
    return REAL(link)(from, to);
}

int unlink(const char *path)
{
    step_at(path);
    return REAL(unlink)(path);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    step();
    return REAL(pwrite64)(fd, bytes, count, at);
}

int fsync(int fd)
{
    step();
    return REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    step();
    return REAL(fdatasync)(fd);
}
