#define _GNU_SOURCE
#include "cli/train/process.h"

#include "base/assert.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void weft_arguments_add(struct weft_arguments *arguments, const char *format, ...)
{
    WEFT_ASSERT(arguments->count + 1 < WEFT_ARRAY_COUNT(arguments->words));
    va_list list;
    va_start(list, format);
    char *word = NULL;
    int bytes = vasprintf(&word, format, list);
    va_end(list);
    if (bytes < 0) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    arguments->words[arguments->count++] = word;
    arguments->words[arguments->count] = NULL;
}

void weft_arguments_fini(struct weft_arguments *arguments)
{
    for (unsigned i = 0; i < arguments->count; i++) {
        free(arguments->words[i]);
    }
    arguments->count = 0;
}

/* From here on nothing has a fixed meaning. */
enum { FREE_FD = 10 };

/* In the child between fork and exec. */
static void become(struct weft_arguments *arguments, int socket, pid_t parent)
{
    /* weft_lab_fork has done this; and in a lab getppid() is 0. */
    if (arguments->lab == NULL) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1); /* it died before the line above */
        }
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_IGN);
    int key = arguments->key_fd != 0 ? fcntl(arguments->key_fd, F_DUPFD_CLOEXEC, FREE_FD) : -1;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
    }
    dup2(STDERR_FILENO, STDOUT_FILENO);
    /* Out of the way first: one may have the other's number, and dup2 onto itself would keep
     * close-on-exec. */
    socket = fcntl(socket, F_DUPFD_CLOEXEC, FREE_FD);
    dup2(socket, WEFT_CONTROL_FD);
    if (key >= 0) {
        dup2(key, WEFT_KEY_FD);
    }
    execv("/proc/self/exe", arguments->words);
    _exit(127);
}

/* -1: see weft_process_start. */
static pid_t fork_there(struct weft_arguments *arguments)
{
    if (arguments->lab == NULL) {
        return fork();
    }
    pid_t pid;
    weft_status status =
        weft_lab_fork(arguments->lab, arguments->host, &pid, &arguments->lab_error);
    return status == WEFT_OK ? pid : -1;
}

weft_status weft_process_start(struct weft_process *process, const char *role, uint32_t rank,
                               struct weft_arguments *arguments)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return WEFT_IO;
    }
    weft_arguments_add(arguments, "--control-fd");
    weft_arguments_add(arguments, "%d", (int)WEFT_CONTROL_FD);
    pid_t parent = getpid();
    pid_t pid = fork_there(arguments);
    if (pid == 0) {
        become(arguments, pair[1], parent);
    }
    close(pair[1]);
    if (pid < 0) {
        int why = errno;
        close(pair[0]);
        errno = why;
        return WEFT_IO;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    *process =
        (struct weft_process){.role = role, .rank = rank, .pid = pid, .channel = {.fd = pair[0]}};
    return WEFT_OK;
}

bool weft_process_is_stopped(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

void weft_process_ending(const struct weft_process *process, char *text, size_t bytes)
{
    int status = process->wait_status;
    if (WIFSIGNALED(status)) {
        snprintf(text, bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(text, bytes, "ended with exit status %d", WEXITSTATUS(status));
    }
}
