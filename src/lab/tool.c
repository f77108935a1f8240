#include "lab/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Use memfds instead of pipes for input and output, so that neither side can block on the other. */
static int memory_file(const char *text)
{
    int fd = memfd_create("weft lab", MFD_CLOEXEC);
    size_t bytes = strlen(text);
    if (fd >= 0 && (write(fd, text, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static const char *package_of(const char *program)
{
    return strcmp(program, "nft") == 0 ? "nftables" : "iproute2";
}

static int spawn(const char *const *argv, int in, int out, pid_t *pid_p)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE); /* which this program may ignore */
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *const *words = (char *const *)argv; /* posix_spawn does not modify it */
    int result = posix_spawnp(pid_p, argv[0], &actions, &attributes, words, environ);
    /* `su` without a dash keeps the user's PATH, which may lack these directories. */
    static const char *const folders[] = {"/usr/sbin", "/sbin"};
    for (size_t i = 0; i < 2 && result == ENOENT; i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/%s", folders[i], argv[0]);
        result = posix_spawn(pid_p, path, &actions, &attributes, words, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return result;
}

/* The first line of the program's output, without its newline. */
static void first_output_line(int fd, char *room, size_t bytes)
{
    ssize_t count = pread(fd, room, bytes - 1, 0);
    room[count > 0 ? count : 0] = '\0';
    room[strcspn(room, "\n")] = '\0';
    if (room[0] == '\0') {
        snprintf(room, bytes, "no output");
    }
}

/* On failure `ip -batch` and `tc -batch` print "Command failed -:12"; 12 is the line of the
 * batch. */
static void failed_batch_line(int fd, const char *input, char *room, size_t bytes)
{
    char words[4096];
    ssize_t count = pread(fd, words, sizeof(words) - 1, 0);
    words[count > 0 ? count : 0] = '\0';
    const char *mark = strstr(words, "Command failed -:");
    room[0] = '\0';
    if (mark == NULL) {
        return;
    }
    unsigned long line = strtoul(mark + strlen("Command failed -:"), NULL, 10);
    for (; line > 1 && input != NULL; line--) {
        input = strchr(input, '\n');
        input += input != NULL;
    }
    if (input != NULL) {
        snprintf(room, bytes, " \"%.*s\"", (int)strcspn(input, "\n"), input);
    }
}

static weft_status check_exit_status(const char *program, int wait_status, int out,
                                     const char *input, struct weft_error *error)
{
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        return WEFT_OK;
    }
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 127) {
        return weft_fail(error, WEFT_UNSUPPORTED, "cannot run %s: install the package %s", program,
                         package_of(program));
    }
    char words[240];
    char line[240];
    first_output_line(out, words, sizeof(words));
    failed_batch_line(out, input, line, sizeof(line));
    return weft_fail(error, WEFT_IO, "%s failed%s: %s", program, line, words);
}

weft_status weft_lab_tool(const char *const *argv, const char *input, struct weft_error *error)
{
    int in = memory_file(input);
    int out = memory_file("");
    pid_t pid = 0;
    int why = in < 0 || out < 0 ? errno : spawn(argv, in, out, &pid);
    weft_status status = WEFT_OK;
    if (why == ENOENT) {
        status =
            weft_fail(error, WEFT_UNSUPPORTED, "the program %s is missing: install the package %s",
                      argv[0], package_of(argv[0]));
    } else if (why != 0) {
        status = weft_fail(error, WEFT_IO, "cannot run %s: %s", argv[0], strerror(why));
    } else {
        int wait_status = 0;
        while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
        }
        status = check_exit_status(argv[0], wait_status, out, input, error);
    }
    if (in >= 0) {
        close(in);
    }
    if (out >= 0) {
        close(out);
    }
    return status;
}
