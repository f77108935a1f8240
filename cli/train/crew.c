#define _GNU_SOURCE
#include "cli/train/crew.h"

#include "base/assert.h"
#include "base/units.h"
#include "io/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

weft_status weft_crew_init(struct weft_crew *crew, uint32_t capacity)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(stop_signals); i++) {
        /* A script's background job starts with SIGINT ignored, and an ignored signal reaches no
         * signalfd. */
        signal(stop_signals[i], SIG_DFL);
        sigaddset(&set, stop_signals[i]);
    }
    struct weft_process *processes = calloc(capacity, sizeof(*processes));
    struct pollfd *fds = calloc((size_t)capacity + 1, sizeof(*fds));
    if (processes == NULL || fds == NULL) {
        free(processes);
        free(fds);
        return WEFT_NOMEM;
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signal_fd < 0) {
        free(processes);
        free(fds);
        return WEFT_IO;
    }
    *crew = (struct weft_crew){
        .processes = processes, .capacity = capacity, .fds = fds, .signal_fd = signal_fd};
    return WEFT_OK;
}

weft_status weft_crew_start(struct weft_crew *crew, const char *role, uint32_t rank,
                            struct weft_arguments *arguments, struct weft_process **process_p)
{
    WEFT_ASSERT(crew->count < crew->capacity);
    struct weft_process *process = &crew->processes[crew->count];
    weft_status status = weft_process_start(process, role, rank, arguments);
    if (status == WEFT_OK) {
        crew->count++;
        *process_p = process;
    }
    return status;
}

/* Collect the ended; only our own children, by their ids. */
static void reap(struct weft_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        struct weft_process *process = &crew->processes[i];
        if (!process->exited &&
            waitpid(process->pid, &process->wait_status, WNOHANG) == process->pid) {
            process->exited = true;
        }
    }
}

/* One message, or one end; false when nothing is there now. */
static bool take(struct weft_crew *crew, struct weft_crew_event *event_p)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        struct weft_process *process = &crew->processes[i];
        if (process->channel.fd < 0) {
            continue;
        }
        cJSON *object = NULL;
        weft_status status = weft_channel_next(&process->channel, &object);
        if (object != NULL) {
            *event_p = (struct weft_crew_event){
                .type = WEFT_CREW_MESSAGE, .process = process, .object = object};
            return true;
        }
        /* A child that closed its end is about to exit; its exit says how. */
        if (status != WEFT_OK || process->exited) {
            weft_channel_fini(&process->channel);
        }
    }
    for (uint32_t i = 0; i < crew->count; i++) {
        struct weft_process *process = &crew->processes[i];
        if (process->exited && !process->told) {
            process->told = true;
            *event_p = (struct weft_crew_event){.type = WEFT_CREW_EXITED, .process = process};
            return true;
        }
    }
    return false;
}

/* Sleep until something happens; SIGCHLD and silence alike lead to another look around. */
static void wait_for_any(struct weft_crew *crew, uint64_t timeout_ns)
{
    struct pollfd *fds = crew->fds;
    nfds_t used = 0;
    fds[used++] = (struct pollfd){.fd = crew->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < crew->count; i++) {
        if (crew->processes[i].channel.fd >= 0) {
            fds[used++] = (struct pollfd){.fd = crew->processes[i].channel.fd, .events = POLLIN};
        }
    }
    struct timespec left = {.tv_sec = (time_t)(timeout_ns / WEFT_NS_PER_S),
                            .tv_nsec = (long)(timeout_ns % WEFT_NS_PER_S)};
    (void)ppoll(fds, used, timeout_ns == WEFT_NEVER ? NULL : &left, NULL);
}

/* The signal that asks us to stop, or 0. */
static int take_signal(struct weft_crew *crew)
{
    struct signalfd_siginfo info;
    while (read(crew->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) {
            return (int)info.ssi_signo;
        }
    }
    return 0;
}

void weft_crew_next(struct weft_crew *crew, uint64_t timeout_ns, struct weft_crew_event *event_p)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    for (;;) {
        int signal = take_signal(crew);
        if (signal != 0) {
            *event_p = (struct weft_crew_event){.type = WEFT_CREW_SIGNAL, .signal = signal};
            return;
        }
        reap(crew);
        if (take(crew, event_p)) {
            return;
        }
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= until_ns) {
            *event_p = (struct weft_crew_event){.type = WEFT_CREW_TIMEOUT};
            return;
        }
        wait_for_any(crew, until_ns == WEFT_NEVER ? WEFT_NEVER : until_ns - now_ns);
    }
}

static uint32_t running(const struct weft_crew *crew)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < crew->count; i++) {
        count += !crew->processes[i].exited;
    }
    return count;
}

static void send_all(struct weft_crew *crew, int signal)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        /* Not yet waited for, so the id still is this child's. */
        if (!crew->processes[i].exited) {
            kill(crew->processes[i].pid, signal);
        }
    }
}

void weft_crew_stop(struct weft_crew *crew, uint64_t grace_ns)
{
    reap(crew);
    send_all(crew, SIGTERM);
    for (uint32_t i = 0; i < crew->count; i++) {
        if (!crew->processes[i].exited && weft_process_is_stopped(crew->processes[i].pid)) {
            kill(crew->processes[i].pid, SIGCONT);
        }
    }
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), grace_ns);
    while (running(crew) > 0 && weft_clock_now_ns() < until_ns) {
        struct weft_crew_event event;
        weft_crew_next(crew, 10 * WEFT_NS_PER_MS, &event);
        cJSON_Delete(event.type == WEFT_CREW_MESSAGE ? event.object : NULL);
    }
    send_all(crew, SIGKILL);
    for (uint32_t i = 0; i < crew->count; i++) {
        struct weft_process *process = &crew->processes[i];
        while (!process->exited) {
            pid_t got = waitpid(process->pid, &process->wait_status, 0);
            process->exited = got == process->pid || (got < 0 && errno == ECHILD);
        }
    }
}

void weft_crew_fini(struct weft_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        weft_channel_fini(&crew->processes[i].channel);
    }
    free(crew->processes);
    free(crew->fds);
    close(crew->signal_fd);
}
