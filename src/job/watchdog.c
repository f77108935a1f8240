#define _GNU_SOURCE
#include "job/watchdog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void remove_folder(const char *path)
{
    DIR *folder = path != NULL ? opendir(path) : NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char inside[PATH_MAX];
        int length = snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && unlinkat(dirfd(folder), entry->d_name, 0) != 0 &&
            length < (int)sizeof(inside)) {
            remove_folder(inside); /* a directory, such as quarantine/ of a journal */
        }
    }
    if (folder != NULL) {
        closedir(folder);
        rmdir(path);
    }
}

/* In the watchdog: sleep until the other end of the pipe is closed; only the parent has it open. */
static void watch(struct weft_supervisor *supervisor, int fd)
{
    setsid(); /* detach from the terminal's signals */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) {
        dup2(null, i);
    }
    char byte;
    while (read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    for (uint32_t i = 0; i < supervisor->count; i++) {
        pid_t group = supervisor->groups[i];
        if (group > 0) {
            kill(-group, supervisor->policy.orphan_signal);
        }
    }
    remove_folder(supervisor->policy.folder);
    _exit(0);
}

weft_status weft_watchdog_start(struct weft_supervisor *supervisor)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        watch(supervisor, ends[0]);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return WEFT_IO;
    }
    supervisor->watchdog = pid;
    supervisor->watchdog_fd = ends[1];
    return WEFT_OK;
}
