#define _GNU_SOURCE
#include "job/supervisor.h"

#include "base/units.h"
#include "job/slot_stream.h"
#include "job/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* Descriptors to poll: one for signals, per slot the channel and two for its output, and two for
 * output that waits. */
enum { SLOT_FDS = 3, OUTPUTS = 2 };

/* Descriptors from here on have no fixed meaning in a child. */
enum { FREE_FD = WEFT_KEY_FD + 1 };

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * WEFT_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint32_t index_of(const struct weft_supervisor *supervisor, const struct weft_slot *slot)
{
    return (uint32_t)(slot - supervisor->slots);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* As poll(2), until a time. */
static int poll_until(struct pollfd *fds, nfds_t count, uint64_t until_ns)
{
    const uint64_t now_ns = clock_ns();
    const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec left = {.tv_sec = (time_t)(left_ns / WEFT_NS_PER_S),
                                  .tv_nsec = (long)(left_ns % WEFT_NS_PER_S)};
    return ppoll(fds, count, until_ns == WEFT_NEVER ? NULL : &left, NULL);
}

/* ---- start and end of the supervisor --------------------------------------------------------- */

/* Add the signals that are delivered as events to the set. */
static void take_stop_signals(sigset_t *set)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(stop_signals); i++) {
        struct sigaction before;
        if (stop_signals[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 &&
            before.sa_handler == SIG_IGN) {
            continue; /* nohup: this program must survive the end of its terminal */
        }
        /* A background job of a script starts with SIGINT ignored, and so would its processes. A
         * signal that is ignored and blocked is queued, but one that arrives before is lost. */
        signal(stop_signals[i], SIG_DFL);
        sigaddset(set, stop_signals[i]);
    }
}

weft_status weft_supervisor_init(struct weft_supervisor *supervisor,
                                 const struct weft_supervisor_policy *policy, uint32_t count,
                                 uint32_t spares)
{
    count += spares;
    *supervisor = (struct weft_supervisor){
        .policy = *policy, .count = count, .spares = spares, .signal_fd = -1, .watchdog_fd = -1};
    if (policy->orphan_signal == 0) {
        supervisor->policy.orphan_signal = SIGKILL;
    }
    supervisor->slots = weft_job_need(calloc(count, sizeof(*supervisor->slots)));
    supervisor->fds =
        weft_job_need(calloc(1 + (size_t)count * SLOT_FDS + OUTPUTS, sizeof(*supervisor->fds)));
    weft_output_queue_init(&supervisor->output[0], STDOUT_FILENO);
    weft_output_queue_init(&supervisor->output[1], STDERR_FILENO);
    for (uint32_t i = 0; i < count; i++) {
        supervisor->slots[i].channel.fd = -1;
        supervisor->slots[i].out[0].fd = -1;
        supervisor->slots[i].out[1].fd = -1;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (policy->takes_signals) {
        take_stop_signals(&set);
        /* Ctrl-C also ends `tee`, to which the output may go. */
        supervisor->keeps_sigpipe = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
    }
    sigprocmask(SIG_BLOCK, &set, &supervisor->signals_before);
    void *groups = mmap(NULL, count * sizeof(*supervisor->groups), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    supervisor->groups = groups != MAP_FAILED ? groups : NULL;
    supervisor->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return supervisor->groups == NULL || supervisor->signal_fd < 0
               ? WEFT_IO
               : weft_watchdog_start(supervisor);
}

void weft_supervisor_fini(struct weft_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        weft_args_fini(&supervisor->slots[i].args);
        weft_args_fini(&supervisor->slots[i].environment);
        weft_channel_fini(&supervisor->slots[i].channel);
    }
    if (supervisor->watchdog_fd >= 0) {
        close(supervisor->watchdog_fd); /* it finds no process group, removes the folder, and
                                         * exits */
        while (waitpid(supervisor->watchdog, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (supervisor->groups != NULL) {
        munmap(supervisor->groups, supervisor->count * sizeof(*supervisor->groups));
    }
    close_fd(&supervisor->signal_fd);
    /* A second Ctrl-C must not end this process during the cleanup. */
    if (!supervisor->policy.takes_signals) {
        sigprocmask(SIG_SETMASK, &supervisor->signals_before, NULL);
    }
    for (unsigned o = 0; o < OUTPUTS; o++) {
        weft_output_queue_fini(&supervisor->output[o]);
    }
    free(supervisor->slots);
    free(supervisor->fds);
}

/* ---- start of a process ---------------------------------------------------------------------- */

/* The index of NAME=value in the slot's environment; count: not found. */
static uint32_t find_variable(const struct weft_slot *slot, const char *name, size_t bytes)
{
    uint32_t i = 0;
    while (i < slot->environment.count && (strncmp(slot->environment.list[i], name, bytes) != 0 ||
                                           slot->environment.list[i][bytes] != '=')) {
        i++;
    }
    return i;
}

void weft_slot_setenv(struct weft_slot *slot, const char *name, const char *format, ...)
{
    char *value;
    va_list list;
    va_start(list, format);
    value = weft_job_need(vasprintf(&value, format, list) < 0 ? NULL : value);
    va_end(list);
    uint32_t i = find_variable(slot, name, strlen(name));
    if (i < slot->environment.count) {
        weft_args_set(&slot->environment, i, "%s=%s", name, value);
    } else {
        weft_args_add(&slot->environment, "%s=%s", name, value);
    }
    explicit_bzero(value, strlen(value));
    free(value);
}

/* The supervisor's environment, with the slot's variables overriding it. Made before the fork:
 * between fork and exec nothing may allocate. */
static char **make_environment(const struct weft_slot *slot)
{
    size_t count = 0;
    for (size_t i = 0; environ[i] != NULL; i++) {
        count++;
    }
    char **variables =
        weft_job_need(calloc(count + slot->environment.count + 1, sizeof(*variables)));
    count = 0;
    for (size_t i = 0; environ[i] != NULL; i++) {
        if (find_variable(slot, environ[i], strcspn(environ[i], "=")) == slot->environment.count) {
            variables[count++] = environ[i];
        }
    }
    for (uint32_t i = 0; i < slot->environment.count; i++) {
        variables[count++] = slot->environment.list[i];
    }
    return variables;
}

/* The descriptors of one start, the supervisor's ends first; -1 = not opened. */
struct ends {
    int out[2][2]; /* pipes: standard output and error */
    int channel[2];
};

static void close_ends(struct ends *ends)
{
    for (unsigned i = 0; i < 2; i++) {
        close_fd(&ends->out[0][i]);
        close_fd(&ends->out[1][i]);
        close_fd(&ends->channel[i]);
    }
}

static bool open_ends(struct ends *ends, const struct weft_slot *slot)
{
    *ends = (struct ends){.out = {{-1, -1}, {-1, -1}}, .channel = {-1, -1}};
    return (!slot->is_prefixed ||
            (pipe2(ends->out[0], O_CLOEXEC) == 0 && pipe2(ends->out[1], O_CLOEXEC) == 0)) &&
           (!slot->has_channel ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->channel) == 0);
}

/* In the child: move the descriptors to their fixed numbers, and close the supervisor's. All
 * inherited descriptors are first moved to high numbers: one may have the number meant for
 * another, and dup2 onto itself would keep close-on-exec. */
static void install_fds(struct weft_supervisor *supervisor, struct weft_slot *slot,
                        struct ends *ends)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int from[FREE_FD] = {
        null,
        slot->is_prefixed     ? ends->out[0][1]
        : slot->stdout_fd > 0 ? slot->stdout_fd
                              : -1,
        ends->out[1][1],
        ends->channel[1],
        slot->key_fd > 0 ? slot->key_fd : -1,
    };
    for (int i = 0; i < FREE_FD; i++) {
        from[i] = from[i] >= 0 ? fcntl(from[i], F_DUPFD_CLOEXEC, FREE_FD) : -1;
    }
    close_ends(ends);
    close_fd(&null);
    if (slot->key_fd > 0) {
        close_fd(&slot->key_fd);
    }
    close_fd(&supervisor->signal_fd);
    close_fd(&supervisor->watchdog_fd);
    for (unsigned o = 0; o < OUTPUTS; o++) {
        weft_output_queue_close(&supervisor->output[o]);
    }
    for (uint32_t i = 0; slot->body != NULL && i < supervisor->count; i++) {
        close_fd(&supervisor->slots[i].channel.fd);
        close_fd(&supervisor->slots[i].out[0].fd);
        close_fd(&supervisor->slots[i].out[1].fd);
    }
    for (int i = 0; i < FREE_FD; i++) {
        if (from[i] >= 0) {
            dup2(from[i], i);
            close(from[i]);
        }
    }
}

/* In the child. */
static void run_child(struct weft_supervisor *supervisor, struct weft_slot *slot, struct ends *ends,
                      char **environment, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, supervisor->policy.orphan_signal);
    pid_t above = getppid();
    if (above != parent && above != 0) { /* 0: it is in another PID namespace */
        _exit(1);                        /* the parent died before prctl */
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!supervisor->keeps_sigpipe) {
        signal(SIGPIPE, SIG_DFL);
    }
    install_fds(supervisor, slot, ends);
    if (slot->body != NULL) {
        _exit(slot->body(slot->context, slot));
    }
    const char *program = slot->program != NULL ? slot->program : slot->args.list[0];
    execvpe(program, slot->args.list, environment);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

static pid_t fork_slot(struct weft_supervisor *supervisor, const struct weft_slot *slot,
                       struct weft_error *error)
{
    if (supervisor->policy.fork != NULL) {
        return supervisor->policy.fork(supervisor->policy.context, index_of(supervisor, slot),
                                       error);
    }
    pid_t pid = fork();
    if (pid < 0) {
        (void)weft_fail(error, WEFT_IO, "%s", strerror(errno));
    }
    return pid;
}

/* Store the supervisor's ends of the new process's descriptors. */
static void take_ends(struct weft_supervisor *supervisor, struct weft_slot *slot, struct ends *ends)
{
    for (unsigned i = 0; i < OUTPUTS; i++) {
        slot->out[i].fd = ends->out[i][0];
        slot->out[i].to = &supervisor->output[i];
        slot->out[i].count = 0;
        slot->out[i].bytes = slot->is_prefixed ? weft_job_need(malloc(WEFT_SLOT_LINE_BYTES)) : NULL;
        fcntl(ends->out[i][0], F_SETFL, O_NONBLOCK);
        ends->out[i][0] = -1;
    }
    slot->channel = (struct weft_channel){.fd = ends->channel[0]};
    fcntl(ends->channel[0], F_SETFL, O_NONBLOCK);
    ends->channel[0] = -1;
}

weft_status weft_supervisor_start(struct weft_supervisor *supervisor, struct weft_slot *slot,
                                  struct weft_error *error)
{
    struct ends ends;
    char **environment = make_environment(slot);
    pid_t parent = getpid();
    pid_t pid = -1;
    if (open_ends(&ends, slot)) {
        pid = fork_slot(supervisor, slot, error);
    } else {
        (void)weft_fail(error, WEFT_IO, "%s", strerror(errno));
    }
    if (pid == 0) {
        run_child(supervisor, slot, &ends, environment, parent);
    }
    free(environment);
    if (pid > 0) {
        setpgid(pid, pid); /* called by both sides, whichever is first */
        supervisor->groups[index_of(supervisor, slot)] = pid;
        take_ends(supervisor, slot, &ends);
        slot->pid = pid;
        slot->is_running = true;
        slot->is_ready = false;
        slot->restart_ns = 0;
        slot->starts++;
    }
    close_ends(&ends);
    if (slot->key_fd > 0) {
        close(slot->key_fd);
        slot->key_fd = 0;
    }
    return pid > 0 ? WEFT_OK : WEFT_IO;
}

bool weft_supervisor_restart(struct weft_supervisor *supervisor, struct weft_slot *slot)
{
    const struct weft_supervisor_policy *policy = &supervisor->policy;
    if (slot->starts > policy->restarts) {
        return false;
    }
    uint64_t doublings = weft_min_u64(slot->starts - 1, policy->doublings);
    slot->restart_ns = clock_ns() + (policy->restart_pause_ns << doublings);
    return true;
}

bool weft_supervisor_retire(struct weft_supervisor *supervisor, struct weft_slot *slot)
{
    for (uint32_t i = supervisor->count - supervisor->spares; i < supervisor->count; i++) {
        struct weft_slot *spare = &supervisor->slots[i];
        if (spare->is_running) {
            continue;
        }
        *spare = (struct weft_slot){.role = slot->role,
                                    .rank = slot->rank,
                                    .is_retired = true,
                                    .grace_ns = slot->grace_ns,
                                    .pid = slot->pid,
                                    .is_running = slot->is_running,
                                    .has_ended = slot->has_ended,
                                    .channel = slot->channel,
                                    .out = {slot->out[0], slot->out[1]}};
        supervisor->groups[i] = slot->pid;
        supervisor->groups[index_of(supervisor, slot)] = 0;
        slot->is_running = slot->has_ended = slot->is_ready = false;
        slot->channel = (struct weft_channel){.fd = -1};
        slot->out[0] = slot->out[1] = (struct weft_slot_stream){.fd = -1};
        return true;
    }
    return false;
}

void weft_supervisor_swap(struct weft_supervisor *supervisor, struct weft_slot *a,
                          struct weft_slot *b)
{
    const struct weft_slot slot = *a;
    const pid_t group = supervisor->groups[index_of(supervisor, a)];
    supervisor->groups[index_of(supervisor, a)] = supervisor->groups[index_of(supervisor, b)];
    supervisor->groups[index_of(supervisor, b)] = group;
    *a = *b;
    *b = slot;
}

/* ---- output ---------------------------------------------------------------------------------- */

void weft_supervisor_write(struct weft_supervisor *supervisor, int fd, const char *bytes,
                           size_t count)
{
    weft_output_queue_add(&supervisor->output[fd == STDERR_FILENO], bytes, count,
                          fd == STDOUT_FILENO);
}

void weft_supervisor_say(struct weft_supervisor *supervisor, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    text = weft_job_need(vasprintf(&text, format, list) < 0 ? NULL : text);
    va_end(list);
    weft_supervisor_write(supervisor, STDERR_FILENO, text, strlen(text));
    free(text);
}

int weft_supervisor_lost(const struct weft_supervisor *supervisor)
{
    const int lost = supervisor->output[0].lost;
    return lost != 0 ? lost : supervisor->output[1].lost;
}

/* The number of a stop signal that has arrived, or 0. */
static int take_stop_signal(struct weft_supervisor *supervisor)
{
    struct signalfd_siginfo info;
    int signal = 0;
    while (signal == 0 &&
           read(supervisor->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        signal = info.ssi_signo != SIGCHLD ? (int)info.ssi_signo : 0;
    }
    return signal;
}

int weft_supervisor_finish_output(struct weft_supervisor *supervisor, uint64_t patience_ns)
{
    const uint64_t until_ns = weft_time_add(clock_ns(), patience_ns);
    struct pollfd *fds = supervisor->fds;
    int signal = 0;
    while (supervisor->output[0].count + supervisor->output[1].count > 0 && signal == 0 &&
           clock_ns() < until_ns) {
        fds[0] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
        weft_output_queue_watch(supervisor->output, OUTPUTS, fds + 1);
        (void)poll_until(fds, 1 + OUTPUTS, until_ns);
        weft_output_queue_serve(supervisor->output, OUTPUTS);
        signal = take_stop_signal(supervisor);
    }
    for (unsigned o = 0; o < OUTPUTS; o++) {
        weft_output_queue_drop(&supervisor->output[o], EPIPE);
    }
    return signal;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Find the processes that have exited. They stay zombies, so that their group numbers are not
 * reused until all their events are delivered and the rest of the group is killed. */
static void find_ended(struct weft_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct weft_slot *slot = &supervisor->slots[i];
        siginfo_t info = {.si_pid = 0};
        if (slot->is_running && !slot->has_ended &&
            waitid(P_PID, (id_t)slot->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == slot->pid) {
            slot->has_ended = true;
        }
    }
}

/* Does not wait for further output of a grandchild. */
static void reap(struct weft_supervisor *supervisor, struct weft_slot *slot)
{
    kill(-slot->pid, SIGKILL);
    supervisor->groups[index_of(supervisor, slot)] = 0;
    while (waitpid(slot->pid, &slot->wait_status, 0) < 0 && errno == EINTR) {
    }
    for (unsigned i = 0; i < 2; i++) {
        weft_slot_stream_drain(slot, &slot->out[i]);
        weft_slot_stream_close(slot, &slot->out[i]);
    }
    weft_channel_fini(&slot->channel);
    slot->is_running = slot->has_ended = false;
}

/* The next message of a channel, or NULL. */
static cJSON *take_message(struct weft_slot *slot)
{
    cJSON *object = NULL;
    if (slot->channel.fd >= 0 && weft_channel_next(&slot->channel, &object) != WEFT_OK) {
        weft_channel_fini(&slot->channel);
    }
    return object;
}

/* Deliver one event of the slot, from the results of the last poll. */
static bool take_of(struct weft_supervisor *supervisor, uint32_t i,
                    struct weft_supervisor_event *event_p)
{
    struct weft_slot *slot = &supervisor->slots[i];
    struct pollfd *fds = &supervisor->fds[1 + (size_t)i * SLOT_FDS];
    *event_p = (struct weft_supervisor_event){.slot = slot};
    for (unsigned o = 0; o < 2; o++) {
        if (fds[1 + o].revents != 0) {
            fds[1 + o].revents = 0;
            (void)weft_slot_stream_forward(slot, &slot->out[o]);
        }
    }
    if (fds[0].revents != 0 || slot->has_ended) {
        event_p->type = WEFT_SUPERVISOR_MESSAGE;
        event_p->object = take_message(slot);
        if (event_p->object != NULL) {
            return true;
        }
        fds[0].revents = 0;
    }
    if (slot->has_ended) {
        event_p->type = WEFT_SUPERVISOR_EXITED;
        reap(supervisor, slot);
        return true;
    }
    if (slot->restart_ns != 0 && slot->restart_ns <= clock_ns()) {
        event_p->type = WEFT_SUPERVISOR_DUE;
        slot->restart_ns = 0;
        return true;
    }
    return false;
}

static bool take_signal(struct weft_supervisor *supervisor, struct weft_supervisor_event *event_p)
{
    struct signalfd_siginfo info;
    while (supervisor->fds[0].revents != 0 &&
           read(supervisor->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        /* After the read: a SIGCHLD before it is merged with this one and not reported
         * separately. */
        if (info.ssi_signo == SIGCHLD) {
            find_ended(supervisor);
        } else {
            *event_p = (struct weft_supervisor_event){.type = WEFT_SUPERVISOR_SIGNAL,
                                                      .signal = (int)info.ssi_signo};
            return true;
        }
    }
    supervisor->fds[0].revents = 0;
    return false;
}

static bool take(struct weft_supervisor *supervisor, struct weft_supervisor_event *event_p)
{
    if (take_signal(supervisor, event_p)) {
        return true;
    }
    for (uint32_t i = 0; i < supervisor->count; i++) {
        supervisor->turn = (supervisor->turn + 1) % supervisor->count;
        if (take_of(supervisor, supervisor->turn, event_p)) {
            return true;
        }
    }
    return false;
}

/* Sleep until an event arrives, or a restart is due. False: until_ns has passed; check once more
 * for events. */
static bool wait_for_any(struct weft_supervisor *supervisor, uint64_t until_ns)
{
    struct pollfd *fds = supervisor->fds;
    nfds_t count = 1 + (nfds_t)supervisor->count * SLOT_FDS + OUTPUTS;
    uint64_t wake_ns = until_ns;
    fds[0] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < supervisor->count; i++) {
        const struct weft_slot *slot = &supervisor->slots[i];
        struct pollfd *of = &fds[1 + (size_t)i * SLOT_FDS];
        of[0] = (struct pollfd){.fd = slot->channel.fd, .events = POLLIN};
        for (unsigned o = 0; o < OUTPUTS; o++) {
            const bool waits = supervisor->output[o].count > 0;
            of[1 + o] = (struct pollfd){.fd = waits ? -1 : slot->out[o].fd, .events = POLLIN};
        }
        wake_ns = slot->restart_ns != 0 ? weft_min_u64(wake_ns, slot->restart_ns) : wake_ns;
    }
    weft_output_queue_watch(supervisor->output, OUTPUTS, fds + count - OUTPUTS);
    int ready = poll_until(fds, count, wake_ns);
    if (ready < 0) { /* interrupted; revents are unchanged */
        return clock_ns() < until_ns;
    }
    weft_output_queue_serve(supervisor->output, OUTPUTS);
    bool look = ready == 0;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        /* If this program has other threads, one of them may receive the SIGCHLD instead. */
        look = look || (fds[1 + (size_t)i * SLOT_FDS].revents & POLLHUP) != 0;
    }
    if (look) {
        find_ended(supervisor);
    }
    return clock_ns() < until_ns;
}

void weft_supervisor_next(struct weft_supervisor *supervisor, uint64_t timeout_ns,
                          struct weft_supervisor_event *event_p)
{
    uint64_t until_ns = weft_time_add(clock_ns(), timeout_ns);
    bool more = true;
    while (!take(supervisor, event_p)) {
        if (!more) {
            *event_p = (struct weft_supervisor_event){.type = WEFT_SUPERVISOR_TIMEOUT};
            return;
        }
        more = wait_for_any(supervisor, until_ns);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* A stopped process receives SIGTERM only after a SIGCONT. Running processes are not sent one:
 * it would be an unnecessary signal to a process that is just starting or exiting. */
static bool is_stopped(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* The PIDs cannot have been reused: none was waited for yet. */
uint32_t weft_supervisor_press(struct weft_supervisor *supervisor, const char *role,
                               uint64_t waited_ns)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct weft_slot *slot = &supervisor->slots[i];
        if (slot->role == NULL || (role != NULL && strcmp(role, slot->role) != 0)) {
            continue;
        }
        slot->restart_ns = 0;
        if (!slot->is_running) {
            continue;
        }
        running++;
        if (waited_ns == 0) {
            kill(-slot->pid, SIGTERM);
        }
        if (is_stopped(slot->pid)) {
            kill(-slot->pid, SIGCONT);
        }
        uint64_t grace_ns = slot->grace_ns != 0 ? slot->grace_ns : supervisor->policy.grace_ns;
        if (waited_ns >= weft_max_u64(grace_ns, 1)) {
            kill(-slot->pid, SIGKILL);
        }
    }
    return running;
}

void weft_supervisor_stop(struct weft_supervisor *supervisor, const char *role)
{
    uint64_t begun_ns = clock_ns();
    uint64_t waited_ns = 0;
    while (weft_supervisor_press(supervisor, role, waited_ns) > 0) {
        struct weft_supervisor_event event;
        weft_supervisor_next(supervisor, 10 * WEFT_NS_PER_MS, &event);
        cJSON_Delete(event.type == WEFT_SUPERVISOR_MESSAGE ? event.object : NULL);
        waited_ns = weft_max_u64(clock_ns() - begun_ns, 1);
    }
}

void weft_slot_ending(const struct weft_slot *slot, char *text, size_t bytes)
{
    int status = slot->wait_status;
    if (WIFSIGNALED(status)) {
        snprintf(text, bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(text, bytes, "ended with exit status %d", WEXITSTATUS(status));
    }
}
