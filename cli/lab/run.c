/* `weft lab exec`: runs a command on a host. `weft lab run`: creates a lab for one command.
 *
 * Two processes can clean up after `run`, so that either of them may be killed:
 *
 *     weft lab run --- guard --+-- holder (process 1 of the lab)
 *                              `-- the command
 *
 * The kernel signals the guard when weft ends (PR_SET_PDEATHSIG). Both weft and the guard adopt the
 * orphans of their descendants (PR_SET_CHILD_SUBREAPER). If weft is killed by SIGKILL, the guard
 * ends the lab, the command and all processes started by it; if the guard is killed, weft does.
 * Signals are forwarded to the command; the terminal's own (Ctrl-C) reach it directly. */
#define _GNU_SOURCE
#include "cli/lab/options.h"
#include "cli/lab/verbs.h"
#include "cli/stop.h"

#include "base/units.h"
#include "lab/holder.h"
#include "lab/registry.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals and children -------------------------------------------------------------------- */

static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

int weft_cli_lab_signals(sigset_t *old_p)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(passed_on); i++) {
        if (!weft_stop_survives(passed_on[i])) {
            sigaddset(&signals, passed_on[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &signals, old_p);
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

static int exit_status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? WEFT_LAB_EXIT_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

bool weft_cli_lab_wait(pid_t child, int signal_fd, pid_t parent, int *exit_status_p)
{
    for (;;) {
        struct signalfd_siginfo info;
        if (read(signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
            continue; /* interrupted */
        }
        int wait_status;
        pid_t ended;
        while ((ended = waitpid(-1, &wait_status, WNOHANG)) > 0) {
            if (ended == child) {
                *exit_status_p = exit_status_of(wait_status);
                return true;
            }
        }
        if (parent != 0 && getppid() != parent) {
            return false;
        }
        if (info.ssi_signo != SIGCHLD && info.ssi_code <= 0) { /* sent by a process */
            kill(child, (int)info.ssi_signo);
        }
    }
}

/* SIGKILL every child, and adopted ones, until none is left. A kernel without
 * CONFIG_PROC_CHILDREN does not list them: then only the holder and the command end, by the signal
 * that the kernel sends to them when the guard exits. */
static void end_descendants(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    do {
        FILE *file = fopen(path, "re");
        int pid;
        while (file != NULL && fscanf(file, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
        }
        if (file == NULL) {
            return;
        }
        fclose(file);
    } while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

[[gnu::noreturn]] static void exec_words(char **words, const sigset_t *mask)
{
    sigprocmask(SIG_SETMASK, mask, NULL);
    weft_stop_restore_pipes();
    execvp(words[0], words);
    int why = errno;
    fprintf(stderr, "weft lab: cannot run %s: %s\n", words[0], strerror(why));
    _exit(why == ENOENT ? WEFT_LAB_EXIT_NOT_FOUND : WEFT_LAB_EXIT_NOT_RUN);
}

/* ---- exec ------------------------------------------------------------------------------------ */

/* Find a host by number or name, or a router by name. False: no such node. */
static bool find_node(const struct weft_lab_info *info, const char *text,
                      char node[WEFT_LAB_NODE_BYTES])
{
    uint32_t host;
    char path[128];
    if (weft_lab_parse_host(text, info->hosts, &host)) {
        weft_lab_host_name(host, node);
        return true;
    }
    snprintf(path, sizeof(path), "/proc/%d/root/run/weft/netns/%s", (int)info->holder, text);
    if (!weft_lab_name_ok(text) || strlen(text) >= WEFT_LAB_NODE_BYTES ||
        (access(path, F_OK) != 0 && errno != EACCES)) {
        return false;
    }
    snprintf(node, WEFT_LAB_NODE_BYTES, "%s", text);
    return true;
}

static int exec_in(const struct weft_lab_info *info, const char *node, char **words)
{
    struct weft_error error = {.text = ""};
    sigset_t mask;
    int signal_fd = weft_cli_lab_signals(&mask);
    pid_t pid;
    if (weft_lab_fork_node(info, node, &pid, &error) != WEFT_OK) {
        return weft_cli_fail("lab exec", "%s", error.text);
    }
    if (pid == 0) {
        exec_words(words, &mask);
    }
    int status = WEFT_EXIT_FAILED;
    (void)weft_cli_lab_wait(pid, signal_fd, 0, &status);
    close(signal_fd);
    return status;
}

static const struct weft_option no_options[] = {{0}};

static const struct weft_command exec_command = {
    .name = "lab exec",
    .summary = "run a command on a host of a lab",
    .arguments = "NAME HOST -- CMD...",
    .description =
        "HOST is 0 or h0 for the first host; switch, leaf0 or spine0 for a switch. The command\n"
        "has the host's network, name and /sys, the lab's processes in /proc, and the files of\n"
        "the machine. It ends when the lab ends. The exit status is the command's; 128 + n if\n"
        "signal n ended it, 127 if the command was not found. Signals are forwarded.",
    .example = "  weft lab exec demo 0 -- ping -c 3 h1\n"
               "  weft lab exec demo h1 -- sh -c 'ss -ti | head'\n"
               "  weft lab exec demo switch -- tc -s qdisc",
    .options = no_options,
};

int weft_cli_lab_exec(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        int status = weft_options_parse(&exec_command, argc, argv);
        if (status != WEFT_OPTIONS_RUN) {
            return status;
        }
    }
    if (argc < 3 || strcmp(argv[2], "--") == 0) {
        return weft_options_usage(&exec_command, "the lab's name or the host is missing");
    }
    int words = argc > 3 && strcmp(argv[3], "--") == 0 ? 4 : 3;
    if (words >= argc) {
        return weft_options_usage(&exec_command, "the command is missing; it follows NAME HOST --");
    }
    struct weft_lab_info info;
    struct weft_error error = {.text = ""};
    char node[WEFT_LAB_NODE_BYTES];
    if (weft_lab_find(argv[1], &info, &error) != WEFT_OK) {
        return weft_cli_fail("lab exec", "%s", error.text);
    }
    if (!find_node(&info, argv[2], node)) {
        return weft_options_usage(&exec_command, "lab %s has no host \"%.40s\"; it has 0 .. %u",
                                  info.name, argv[2], info.hosts - 1);
    }
    return exec_in(&info, node, argv + words);
}

/* ---- run ------------------------------------------------------------------------------------- */

struct run {
    struct weft_lab_options options;
    const char *on; /* NULL = on this machine */
    uint32_t host;
    char **words;
    sigset_t mask; /* for the command */
    int signal_fd;
};

/* On this machine, the command dies with the guard. */
static pid_t fork_here(void)
{
    pid_t guard = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != guard) {
            _exit(WEFT_LAB_EXIT_NOT_RUN);
        }
    }
    return pid;
}

static int run_command(struct run *run, const struct weft_lab_info *info, pid_t parent)
{
    struct weft_error error = {.text = ""};
    pid_t pid = -1;
    setenv("WEFT_LAB", info->name, 1);
    if (run->on == NULL) {
        pid = fork_here();
    } else if (weft_lab_fork(info, run->host, &pid, &error) != WEFT_OK) {
        return weft_cli_fail("lab run", "%s", error.text);
    }
    if (pid == 0) {
        exec_words(run->words, &run->mask);
    }
    if (pid < 0) {
        return weft_cli_fail("lab run", "cannot start a process: %s", strerror(errno));
    }
    int status = WEFT_EXIT_FAILED;
    (void)weft_cli_lab_wait(pid, run->signal_fd, parent, &status);
    return status;
}

/* The signal that interrupted weft while the lab was being created. */
static int interrupted(int stop_fd)
{
    struct signalfd_siginfo info;
    ssize_t bytes = read(stop_fd, &info, sizeof(info));
    return bytes == (ssize_t)sizeof(info) ? WEFT_LAB_EXIT_SIGNAL + (int)info.ssi_signo
                                          : WEFT_EXIT_FAILED;
}

static int run_lab(struct run *run, pid_t parent)
{
    struct weft_error error = {.text = ""};
    struct weft_lab_info info;
    int stop_fd = weft_stop_fd(SIGQUIT);
    const struct weft_lab_start start = {
        .spec = &run->options.spec, .trace = &run->options.trace, .tied = true, .stop_fd = stop_fd};
    weft_status made = weft_lab_start(&start, &info, &error);
    int status = made == WEFT_STATE ? interrupted(stop_fd) : WEFT_EXIT_FAILED;
    close(stop_fd);
    if (made != WEFT_OK) {
        fprintf(stderr, "weft lab run: %s\n", error.text);
        return status;
    }
    status = run_command(run, &info, parent);
    end_descendants();
    weft_lab_registry_remove(info.name, info.holder);
    return status;
}

static int guard_run(struct run *run, pid_t parent)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        return WEFT_EXIT_FAILED;
    }
    return run_lab(run, parent);
}

/* After the guard was killed, its descendants are children of this process, except the holder,
 * which the kernel ends with the guard. The lab's file in the registry remains, and get removes it,
 * because its holder has ended. */
static void clean_up_after_guard(const char *name)
{
    end_descendants();
    cJSON_Delete(weft_lab_registry_get(name));
}

static int run_guarded(struct run *run)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t parent = getpid();
    run->signal_fd = weft_cli_lab_signals(&run->mask);
    fflush(NULL);
    pid_t guard = fork();
    if (guard == 0) {
        exit(guard_run(run, parent));
    }
    if (guard < 0) {
        return weft_cli_fail("lab run", "cannot start a process: %s", strerror(errno));
    }
    int status = WEFT_EXIT_FAILED;
    (void)weft_cli_lab_wait(guard, run->signal_fd, 0, &status);
    clean_up_after_guard(run->options.spec.name);
    return status;
}

/* Position of "--" in argv, or argc. */
static int find_dashes(int argc, char **argv)
{
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        at++;
    }
    return at;
}

static int run_spec(struct run *run, const struct weft_command *command)
{
    char name[WEFT_LAB_NAME_BYTES];
    snprintf(name, sizeof(name), "run-%d", (int)getpid());
    int status = weft_lab_options_spec(&run->options, command, name);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (run->on != NULL && !weft_lab_parse_host(run->on, run->options.spec.hosts, &run->host)) {
        return weft_options_usage(command, "--on: host \"%.40s\" does not exist; the last is %u",
                                  run->on, run->options.spec.hosts - 1);
    }
    return run_guarded(run);
}

int weft_cli_lab_run(int argc, char **argv)
{
    static struct run run;
    weft_lab_options_init(&run.options);
    const struct weft_option options[] = {
        WEFT_LAB_OPTIONS(&run.options),
        {"on", "HOST", "run the command on that host; default: on this machine", WEFT_OPTION_STRING,
         &run.on, .fallback = ""},
        {0},
    };
    const struct weft_command command = {
        .name = "lab run",
        .summary = "create a lab, run one command, and remove the lab in any case",
        .arguments = "-- CMD...",
        .description =
          "The variable WEFT_LAB has the lab's name. When the command ends, the lab and all\n"
          "processes started by the command end, too, even if weft is killed by SIGKILL. The exit\n"
          "status is the command's; 128 + n if signal n ended it, 127 if the command was not "
          "found.",
        .example =
            "  weft lab run --hosts 2 --rate 100mbit --on 0 -- ping -c 3 h1\n"
            "  weft lab run --hosts 9 --loss 0.01 -- sh -c 'weft lab exec $WEFT_LAB 1 -- ip route'",
        .options = options,
    };
    int dashes = find_dashes(argc, argv);
    int status = weft_options_parse(&command, dashes, argv);
    if (status == WEFT_OPTIONS_RUN && dashes + 1 >= argc) {
        status = weft_options_usage(&command, "the command is missing; it follows --");
    }
    if (status == WEFT_OPTIONS_RUN) {
        run.words = argv + dashes + 1;
        status = run_spec(&run, &command);
    }
    weft_lab_options_fini(&run.options);
    return status;
}
