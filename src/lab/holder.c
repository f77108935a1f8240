#include "lab/holder.h"

#include "base/units.h"
#include "lab/background_member.h"
#include "lab/build.h"
#include "lab/clock.h"
#include "lab/registry.h"
#include "lab/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The holder's report to the caller, sent once. */
struct report {
    weft_status status;
    uint64_t base_rtt_ns;
    bool hysteresis;
    struct weft_error error;
};

static const int end_patience_ms = 10000;

/* An error of the kernel when making a namespace or a mount, with advice. */
static weft_status refused(const char *what, struct weft_error *error)
{
    int why = errno;
    if (why == EPERM && geteuid() != 0) {
        return weft_fail(error, WEFT_IO,
                         "cannot make %s: this needs root, or CAP_SYS_ADMIN and "
                         "CAP_NET_ADMIN: sudo weft lab ...",
                         what);
    }
    if (why == EPERM || why == EACCES) {
        return weft_fail(error, WEFT_IO,
                         "cannot make %s: %s; root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN here. "
                         "In a container: docker run --privileged",
                         what, strerror(why));
    }
    if (why == ENOSPC) {
        return weft_fail(error, WEFT_IO,
                         "cannot make %s: the limit of namespaces is reached "
                         "(/proc/sys/user/max_*_namespaces)",
                         what);
    }
    return weft_fail(error, WEFT_IO, "cannot make %s: %s", what, strerror(why));
}

/* ---- the holder: namespaces and mounts ------------------------------------------------------- */

/* The machine's /etc/hosts followed by the lab's hosts. */
static weft_status write_hosts_file(const struct weft_lab_spec *spec, struct weft_error *error)
{
    FILE *out = fopen(WEFT_LAB_PRIVATE "/hosts", "we");
    FILE *in = fopen("/etc/hosts", "re");
    if (out == NULL) {
        return refused(WEFT_LAB_PRIVATE "/hosts", error);
    }
    int letter;
    while (in != NULL && (letter = fgetc(in)) != EOF) {
        fputc(letter, out);
    }
    fputc('\n', out);
    for (uint32_t h = 0; h < spec->hosts; h++) {
        char name[WEFT_LAB_NODE_BYTES];
        char address[WEFT_LAB_ADDRESS_BYTES];
        weft_lab_host_name(h, name);
        weft_lab_host_address(h, address);
        fprintf(out, "%s %s\n", address, name);
    }
    bool good = fclose(out) == 0;
    if (in != NULL) {
        fclose(in); /* without the file there is nothing to mount over */
        good = good && mount(WEFT_LAB_PRIVATE "/hosts", "/etc/hosts", NULL, MS_BIND, NULL) == 0;
    }
    return good ? WEFT_OK : refused("the lab's /etc/hosts", error);
}

/* Slave, not private: an unmount on the machine propagates here. A private copy would keep the
 * file system busy for as long as the lab runs. */
static weft_status make_view(const struct weft_lab_spec *spec, struct weft_error *error)
{
    if (unshare(CLONE_NEWNS) != 0) {
        return refused("a mount namespace", error);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        if (errno == EINVAL) {
            return weft_fail(error, WEFT_UNSUPPORTED,
                             "/ is not a mount point, as in a plain chroot, and mounts of a lab "
                             "must not get out of it: use a container, or `mount --bind DIR "
                             "DIR` before `chroot DIR`");
        }
        return refused("a mount namespace", error);
    }
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) {
        return refused("the lab's /proc", error);
    }
    if (mount("weft-lab", WEFT_LAB_PRIVATE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=0755") != 0 ||
        mkdir(WEFT_LAB_PRIVATE "/netns", 0755) != 0) {
        return refused("the lab's own folder", error);
    }
    return write_hosts_file(spec, error);
}

static weft_status make_lab(const struct weft_lab_spec *spec, uint64_t *base_rtt_ns_p,
                            struct weft_error *error)
{
    weft_status status = make_view(spec, error);
    if (status == WEFT_OK) {
        status = weft_lab_build(spec, error);
    }
    return status == WEFT_OK ? weft_lab_verify(spec, base_rtt_ns_p, error) : status;
}

/* ---- the holder: while the lab runs ---------------------------------------------------------- */

/* One step at a time: if steps follow each other faster than tc works, hold() sees between them
 * that the lab ends. */
static void apply_due(struct weft_lab_spec *spec, struct weft_lab_play *play)
{
    const struct weft_lab_step *step = weft_lab_play_step(play, weft_lab_now_ns());
    if (step == NULL) {
        return;
    }
    struct weft_error error = {.text = ""};
    struct weft_lab_link *link = &spec->links[step->host];
    link->up_bps = step->link.up_bps != 0 ? step->link.up_bps : link->up_bps;
    link->down_bps = step->link.down_bps != 0 ? step->link.down_bps : link->down_bps;
    if (weft_lab_reshape(spec, step->host, link, &error) != WEFT_OK) {
        fprintf(stderr, "weft lab %s: rates of h%u: %s\n", spec->name, step->host, error.text);
    }
}

static int wait_ms(const struct weft_lab_play *play)
{
    uint64_t at_ns = weft_lab_play_deadline(play);
    if (at_ns == WEFT_NEVER) {
        return -1;
    }
    uint64_t now = weft_lab_now_ns();
    uint64_t ms = at_ns > now ? weft_div_ceil_u64(at_ns - now, WEFT_NS_PER_MS) : 0;
    return (int)weft_min_u64(ms, 60000);
}

/* Process 1 reaps every process that exits in the lab. */
static void collect(const char *name, pid_t background)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid == background) {
            fprintf(stderr, "weft lab %s: the background traffic has ended\n", name);
        }
    }
}

/* Runs until SIGTERM, or until the process of until_fd ends (-1 = none); SIGKILL works as well. */
static void hold(struct weft_lab_spec *spec, struct weft_lab_play *play, pid_t background,
                 int until_fd)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    struct pollfd fds[2] = {{.fd = signalfd(-1, &signals, SFD_CLOEXEC), .events = POLLIN},
                            {.fd = until_fd, .events = POLLIN}};
    for (;;) {
        int ready = poll(fds, 2, wait_ms(play));
        if (ready > 0 && fds[1].revents != 0) {
            return;
        }
        if (ready > 0) {
            struct signalfd_siginfo info;
            ssize_t bytes = read(fds[0].fd, &info, sizeof(info));
            if (bytes == (ssize_t)sizeof(info) && info.ssi_signo == SIGTERM) {
                return;
            }
            collect(spec->name, background);
        }
        apply_due(spec, play);
    }
}

/* Called before the lab's own mounts are made: they hide the registry. */
static int open_log(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), WEFT_LAB_REGISTRY "/%s.log", name);
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

/* Detach from the terminal, the signals and the files of the caller, which may exit before the
 * lab: another process may wait for the end of an inherited pipe. `dialogue` stays open, and
 * *until_fd_p, at another number. */
static void detach(int log_fd, int dialogue, int *until_fd_p)
{
    int last = dialogue;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    if (*until_fd_p >= 0) {
        last++;
        if (*until_fd_p != last) {
            (void)dup3(*until_fd_p, last, O_CLOEXEC);
        }
        *until_fd_p = last;
    }
    if (dialogue > STDERR_FILENO + 1) {
        (void)close_range(STDERR_FILENO + 1, (unsigned)dialogue - 1, 0);
    }
    (void)close_range((unsigned)last + 1, UINT_MAX, 0);
    prctl(PR_SET_PDEATHSIG, 0);
    if (chdir("/") != 0) {
        fprintf(stderr, "weft lab: chdir: %s\n", strerror(errno));
    }
}

[[gnu::noreturn]] static void holder_run(const struct weft_lab_start *start, int fd, int until_fd)
{
    static const struct weft_lab_rate_trace no_trace;
    static struct weft_lab_spec spec;
    char go;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "weft-lab");
    setsid();
    if (read(fd, &go, 1) != 1) { /* the caller exited, or did not get the name */
        _exit(1);
    }
    struct report report = {.status = WEFT_OK, .hysteresis = weft_lab_hysteresis()};
    spec = *start->spec;
    spec.hysteresis = report.hysteresis;
    int log_fd = start->tied ? -1 : open_log(spec.name);
    report.status = make_lab(&spec, &report.base_rtt_ns, &report.error);
    pid_t background = 0;
    if (report.status == WEFT_OK) {
        report.status = weft_lab_background_start(&spec, &background, &report.error);
    }
    if (write(fd, &report, sizeof(report)) != (ssize_t)sizeof(report) || report.status != WEFT_OK ||
        read(fd, &go, 1) != 1) {
        _exit(1);
    }
    if (!start->tied) {
        detach(log_fd, fd, &until_fd);
    }
    close(fd);
    struct weft_lab_play play = {.trace = start->trace != NULL ? start->trace : &no_trace,
                                 .start_ns = weft_lab_now_ns()};
    hold(&spec, &play, background, until_fd);
    _exit(0);
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* fork() with the child as process 1 of a new PID namespace; later children of the caller are in
 * the caller's own namespace again. */
static weft_status fork_first(pid_t *pid_p, struct weft_error *error)
{
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (own < 0 || unshare(CLONE_NEWPID) != 0) {
        weft_status status = refused("a PID namespace", error);
        if (own >= 0) {
            close(own);
        }
        return status;
    }
    fflush(NULL);
    pid_t pid = fork();
    int why = errno;
    if (pid != 0) {
        if (setns(own, CLONE_NEWPID) != 0) {
            why = errno;
            if (pid > 0) {
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
            }
            pid = -1;
        }
    }
    close(own);
    errno = why;
    if (pid < 0) {
        return refused("the holder's process", error);
    }
    *pid_p = pid;
    return WEFT_OK;
}

static weft_status await_report(int fd, int stop_fd, struct report *report,
                                struct weft_error *error)
{
    struct pollfd polls[] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    while (poll(polls, 2, -1) < 0 && errno == EINTR) {
    }
    if (polls[0].revents == 0) {
        return weft_fail(error, WEFT_STATE, "interrupted while it was being set up");
    }
    if (read(fd, report, sizeof(*report)) != (ssize_t)sizeof(*report)) {
        return weft_fail(error, WEFT_IO, "the process that makes the lab has ended");
    }
    if (report->status != WEFT_OK && error != NULL) {
        *error = report->error;
    }
    return report->status;
}

static weft_status publish(cJSON *facts, const struct report *report, struct weft_error *error)
{
    cJSON_AddNumberToObject(facts, "base_rtt_ns", (double)report->base_rtt_ns);
    cJSON_AddBoolToObject(facts, "htb_hysteresis", report->hysteresis);
    cJSON_ReplaceItemInObjectCaseSensitive(facts, "state", cJSON_CreateString("up"));
    return weft_lab_registry_write(facts, error);
}

/* The exchange with a new holder: name, go, report, published. */
static weft_status lead(const struct weft_lab_start *start, pid_t pid, int fd, cJSON *facts,
                        struct weft_error *error)
{
    struct report report;
    weft_status status = weft_lab_registry_claim(facts, pid, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (write(fd, "g", 1) != 1) {
        status = weft_fail(error, WEFT_IO, "the process that makes the lab has ended");
    }
    if (status == WEFT_OK) {
        status = await_report(fd, start->stop_fd, &report, error);
    }
    if (status == WEFT_OK) {
        status = publish(facts, &report, error);
    }
    /* End of file: the holder has removed its parent-death signal, so this process may exit. */
    char end;
    if (status == WEFT_OK && (write(fd, "p", 1) != 1 || read(fd, &end, 1) != 0)) {
        status = weft_fail(error, WEFT_IO, "the holder process of the lab has ended");
    }
    return status;
}

static weft_status start_with(const struct weft_lab_start *start, cJSON *facts, int pair[2],
                              int until_fd, struct weft_error *error)
{
    const char *name = start->spec->name;
    pid_t pid = 0;
    weft_status status = fork_first(&pid, error);
    if (status == WEFT_OK && pid == 0) {
        close(pair[0]);
        holder_run(start, pair[1], until_fd);
    }
    if (status == WEFT_OK) {
        close(pair[1]);
        pair[1] = -1;
        status = lead(start, pid, pair[0], facts, error);
        if (status != WEFT_OK) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            weft_lab_registry_remove(name, pid);
        }
    }
    return status;
}

weft_status weft_lab_start(const struct weft_lab_start *start, struct weft_lab_info *info_p,
                           struct weft_error *error)
{
    int pair[2];
    int until_fd = -1;
    if (start->until_pid != 0) { /* before the fork: the holder has other process ids */
        until_fd = (int)syscall(SYS_pidfd_open, start->until_pid, 0);
        if (until_fd < 0) {
            return weft_fail(error, errno == ESRCH ? WEFT_NOTFOUND : WEFT_IO, "--until-pid %d: %s",
                             (int)start->until_pid, strerror(errno));
        }
    }
    cJSON *facts = weft_lab_spec_json(start->spec);
    if (facts == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        weft_status failed = weft_fail(error, WEFT_IO, "cannot make a socket: %s", strerror(errno));
        cJSON_Delete(facts);
        if (until_fd >= 0) {
            close(until_fd);
        }
        return failed;
    }
    weft_status status = start_with(start, facts, pair, until_fd, error);
    close(pair[0]);
    if (until_fd >= 0) {
        close(until_fd);
    }
    if (pair[1] >= 0) {
        close(pair[1]);
    }
    cJSON_Delete(facts);
    return status == WEFT_OK ? weft_lab_find(start->spec->name, info_p, error) : status;
}

weft_status weft_lab_end(const struct weft_lab_info *info, struct weft_error *error)
{
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, info->holder, 0), .events = POLLIN};
    if (end.fd < 0 && errno == ESRCH) {
        weft_lab_registry_remove(info->name, info->holder);
        return WEFT_OK;
    }
    if (end.fd < 0 || syscall(SYS_pidfd_send_signal, end.fd, SIGKILL, NULL, 0) != 0) {
        int why = errno;
        if (end.fd >= 0) {
            close(end.fd);
        }
        return weft_fail(error, WEFT_IO, "cannot end lab %s: %s%s", info->name, strerror(why),
                         why == EPERM ? " (it needs root: sudo weft lab ...)" : "");
    }
    int ready = poll(&end, 1, end_patience_ms);
    close(end.fd);
    if (ready <= 0) {
        return weft_fail(error, WEFT_IO, "the processes of lab %s do not end", info->name);
    }
    weft_lab_registry_remove(info->name, info->holder);
    return WEFT_OK;
}
