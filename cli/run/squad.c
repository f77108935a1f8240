#define _GNU_SOURCE
#include "cli/run/squad.h"

#include "base/assert.h"
#include "base/units.h"
#include "cli/train/process.h"
#include "io/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

enum { FDS_PER_PLACE = 3, FREE_FD = 10 };

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    return memory;
}

/* ---- the keeper ------------------------------------------------------------------------------ */

static void remove_folder(const char *path)
{
    DIR *folder = path != NULL ? opendir(path) : NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char inside[PATH_MAX];
        int length = snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && unlinkat(dirfd(folder), entry->d_name, 0) != 0 &&
            length < (int)sizeof(inside)) {
            remove_folder(inside); /* quarantine/ of journals */
        }
    }
    if (folder != NULL) {
        closedir(folder);
        rmdir(path);
    }
}

/* In the keeper: sleep until the pipe's other end is closed, which only our parent's end does. */
static void keep(struct weft_squad *squad, int fd, const char *folder)
{
    setsid(); /* away from the terminal's signals */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) {
        dup2(null, i);
    }
    char byte;
    while (read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    for (uint32_t i = 0; i < squad->count; i++) {
        pid_t group = squad->groups[i];
        if (group > 0) {
            kill(-group, SIGKILL);
        }
    }
    remove_folder(folder);
    _exit(0);
}

static weft_status start_keeper(struct weft_squad *squad, const char *folder)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        keep(squad, ends[0], folder);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return WEFT_IO;
    }
    squad->keeper = pid;
    squad->keeper_fd = ends[1];
    return WEFT_OK;
}

/* ---- start and end of the squad -------------------------------------------------------------- */

weft_status weft_squad_init(struct weft_squad *squad, uint32_t count, uint32_t spares,
                            const char *folder)
{
    count += spares;
    *squad = (struct weft_squad){
        .count = count, .spares = spares, .signal_fd = -1, .keeper_fd = -1};
    squad->places = need(calloc(count, sizeof(*squad->places)));
    squad->fds = need(calloc((size_t)count * FDS_PER_PLACE + 1, sizeof(*squad->fds)));
    for (uint32_t i = 0; i < count; i++) {
        squad->places[i].channel.fd = -1;
        squad->places[i].out[0].fd = -1;
        squad->places[i].out[1].fd = -1;
    }
    squad->groups = mmap(NULL, count * sizeof(*squad->groups), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (squad->groups == MAP_FAILED) {
        squad->groups = NULL;
        return WEFT_IO;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(stop_signals); i++) {
        /* A script's background job starts with SIGINT ignored, and an ignored signal reaches no
         * signalfd. */
        signal(stop_signals[i], SIG_DFL);
        sigaddset(&set, stop_signals[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    squad->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return squad->signal_fd < 0 ? WEFT_IO : start_keeper(squad, folder);
}

void weft_squad_fini(struct weft_squad *squad)
{
    for (uint32_t i = 0; i < squad->count; i++) {
        for (unsigned v = 0; v < squad->places[i].variable_count; v++) {
            char *variable = squad->places[i].variables[v];
            explicit_bzero(variable, strlen(variable)); /* one of them is the job key */
            free(variable);
        }
        weft_channel_fini(&squad->places[i].channel);
    }
    if (squad->keeper_fd >= 0) {
        close(squad->keeper_fd); /* it finds no group left, removes the folder, and ends */
        while (waitpid(squad->keeper, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (squad->groups != NULL) {
        munmap(squad->groups, squad->count * sizeof(*squad->groups));
    }
    if (squad->signal_fd >= 0) {
        close(squad->signal_fd);
    }
    free(squad->places);
    free(squad->fds);
}

/* ---- a place --------------------------------------------------------------------------------- */

void weft_place_set(struct weft_place *place, const char *name, const char *format, ...)
{
    char *value = NULL;
    char *variable = NULL;
    va_list list;
    va_start(list, format);
    int bytes = vasprintf(&value, format, list);
    va_end(list);
    if (bytes < 0 || asprintf(&variable, "%s=%s", name, value) < 0) {
        need(NULL);
    }
    explicit_bzero(value, strlen(value));
    free(value);
    size_t name_bytes = strlen(name) + 1;
    for (unsigned i = 0; i < place->variable_count; i++) {
        if (strncmp(place->variables[i], variable, name_bytes) == 0) {
            free(place->variables[i]);
            place->variables[i] = variable;
            return;
        }
    }
    WEFT_ASSERT(place->variable_count < WEFT_SQUAD_VARIABLES);
    place->variables[place->variable_count++] = variable;
}

static bool is_set_by(const struct weft_place *place, const char *variable)
{
    size_t bytes = strcspn(variable, "=") + 1;
    for (unsigned i = 0; i < place->variable_count; i++) {
        if (strncmp(place->variables[i], variable, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Ours, with the place's own in their stead. Made before the fork: between fork and exec nothing
 * may allocate. */
static char **make_environment(const struct weft_place *place)
{
    size_t ours = 0;
    while (environ[ours] != NULL) {
        ours++;
    }
    char **variables = need(calloc(ours + place->variable_count + 1, sizeof(*variables)));
    size_t count = 0;
    for (size_t i = 0; i < ours; i++) {
        if (!is_set_by(place, environ[i])) {
            variables[count++] = environ[i];
        }
    }
    for (unsigned i = 0; i < place->variable_count; i++) {
        variables[count++] = place->variables[i];
    }
    return variables;
}

/* The descriptors of one start; -1 = not opened. */
struct ends {
    int out[2][2]; /* pipes: standard output and error */
    int channel[2];
};

static void close_ends(struct ends *ends)
{
    int *all = &ends->out[0][0];
    for (unsigned i = 0; i < 4; i++) {
        if (all[i] >= 0) {
            close(all[i]);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        if (ends->channel[i] >= 0) {
            close(ends->channel[i]);
        }
    }
}

static bool open_ends(struct ends *ends, bool has_channel)
{
    *ends = (struct ends){.out = {{-1, -1}, {-1, -1}}, .channel = {-1, -1}};
    return pipe2(ends->out[0], O_CLOEXEC) == 0 && pipe2(ends->out[1], O_CLOEXEC) == 0 &&
           (!has_channel ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->channel) == 0);
}

/* In the child between fork and exec. */
static void become(const struct weft_place *place, const struct ends *ends, char **environment,
                   pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before the line above */
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* Out of the way first: the channel may lie where another one must go. */
    int channel =
        ends->channel[1] >= 0 ? fcntl(ends->channel[1], F_DUPFD_CLOEXEC, FREE_FD) : -1;
    int out = fcntl(ends->out[0][1], F_DUPFD_CLOEXEC, FREE_FD);
    int error = fcntl(ends->out[1][1], F_DUPFD_CLOEXEC, FREE_FD);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    if (channel >= 0) {
        dup2(channel, WEFT_CONTROL_FD);
    }
    execvpe(place->words[0], place->words, environment);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", place->words[0], strerror(errno));
    _exit(127);
}

weft_status weft_squad_start(struct weft_squad *squad, struct weft_place *place)
{
    struct ends ends;
    char **environment = make_environment(place);
    pid_t parent = getpid();
    pid_t pid = open_ends(&ends, place->has_channel) ? fork() : -1;
    if (pid == 0) {
        become(place, &ends, environment, parent);
    }
    int why = errno;
    free(environment);
    if (pid < 0) {
        close_ends(&ends);
        errno = why;
        return WEFT_IO;
    }
    setpgid(pid, pid); /* both sides do it: whoever comes first */
    squad->groups[place - squad->places] = pid;
    for (unsigned i = 0; i < 2; i++) {
        place->out[i].fd = ends.out[i][0];
        place->out[i].to = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
        place->out[i].count = 0;
        fcntl(ends.out[i][0], F_SETFL, O_NONBLOCK);
        ends.out[i][0] = -1;
    }
    weft_channel_fini(&place->channel);
    place->channel = (struct weft_channel){.fd = ends.channel[0]};
    if (ends.channel[0] >= 0) {
        fcntl(ends.channel[0], F_SETFL, O_NONBLOCK);
        ends.channel[0] = -1;
    }
    close_ends(&ends);
    place->pid = pid;
    place->starts++;
    place->is_ready = false;
    return WEFT_OK;
}

bool weft_squad_retire(struct weft_squad *squad, struct weft_place *place)
{
    for (uint32_t i = squad->count - squad->spares; i < squad->count; i++) {
        struct weft_place *spare = &squad->places[i];
        if (spare->pid != 0) {
            continue;
        }
        weft_channel_fini(&spare->channel);
        *spare = (struct weft_place){.role = place->role,
                                     .rank = place->rank,
                                     .is_retired = true,
                                     .pid = place->pid,
                                     .channel = place->channel,
                                     .out = {place->out[0], place->out[1]}};
        squad->groups[i] = place->pid;
        squad->groups[place - squad->places] = 0;
        place->pid = 0;
        place->is_ready = false;
        place->channel = (struct weft_channel){.fd = -1};
        place->out[0].fd = place->out[1].fd = -1;
        return true;
    }
    return false;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_line(const struct weft_place *place, const struct weft_squad_stream *stream,
                       size_t count)
{
    dprintf(stream->to, "[%s %u%s] %.*s\n", place->role, place->rank,
            place->is_retired ? ", replaced" : "", (int)count, stream->bytes);
}

/* Whole lines; a line that is too long is cut into several. */
static void print_lines(const struct weft_place *place, struct weft_squad_stream *stream, bool all)
{
    for (;;) {
        char *end = memchr(stream->bytes, '\n', stream->count);
        bool is_full = stream->count == sizeof(stream->bytes);
        if (end == NULL && !is_full && !(all && stream->count > 0)) {
            return;
        }
        size_t count = end != NULL ? (size_t)(end - stream->bytes) : stream->count;
        print_line(place, stream, count);
        count += end != NULL;
        stream->count -= count;
        memmove(stream->bytes, stream->bytes + count, stream->count);
    }
}

/* Take what is there; false when there is nothing now. At its end the stream is closed. */
static bool take_output(const struct weft_place *place, struct weft_squad_stream *stream)
{
    if (stream->fd < 0) {
        return false;
    }
    ssize_t got = read(stream->fd, stream->bytes + stream->count,
                       sizeof(stream->bytes) - stream->count);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (got <= 0) {
        print_lines(place, stream, true);
        close(stream->fd);
        stream->fd = -1;
        return false;
    }
    stream->count += (size_t)got;
    print_lines(place, stream, false);
    return true;
}

static void take_all_output(struct weft_place *place)
{
    for (unsigned i = 0; i < 2; i++) {
        while (take_output(place, &place->out[i])) {
        }
    }
}

/* The process has ended; what a grandchild could still write is not waited for. */
static void close_output(struct weft_place *place)
{
    take_all_output(place);
    for (unsigned i = 0; i < 2; i++) {
        if (place->out[i].fd >= 0) {
            print_lines(place, &place->out[i], true);
            close(place->out[i].fd);
            place->out[i].fd = -1;
        }
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Has the place's process ended? It stays a zombie, so that its group's number is nobody else's,
 * until the rest of the group is killed and the keeper has forgotten it. */
static bool reap(struct weft_squad *squad, struct weft_place *place)
{
    siginfo_t info = {.si_pid = 0};
    if (place->pid == 0 ||
        waitid(P_PID, (id_t)place->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != place->pid) {
        return false;
    }
    kill(-place->pid, SIGKILL);
    squad->groups[place - squad->places] = 0;
    while (waitpid(place->pid, &place->wait_status, 0) < 0 && errno == EINTR) {
    }
    close_output(place);
    place->pid = 0;
    return true;
}

static bool take(struct weft_squad *squad, struct weft_squad_event *event_p)
{
    for (uint32_t i = 0; i < squad->count; i++) {
        struct weft_place *place = &squad->places[i];
        take_all_output(place);
        if (place->channel.fd < 0) {
            continue;
        }
        cJSON *object = NULL;
        weft_status status = weft_channel_next(&place->channel, &object);
        if (object != NULL) {
            *event_p = (struct weft_squad_event){
                .type = WEFT_SQUAD_MESSAGE, .place = place, .object = object};
            return true;
        }
        if (status != WEFT_OK) {
            weft_channel_fini(&place->channel);
        }
    }
    for (uint32_t i = 0; i < squad->count; i++) {
        pid_t pid = squad->places[i].pid;
        if (reap(squad, &squad->places[i])) {
            *event_p = (struct weft_squad_event){
                .type = WEFT_SQUAD_EXITED, .place = &squad->places[i], .pid = pid};
            return true;
        }
    }
    return false;
}

static int take_signal(struct weft_squad *squad)
{
    struct signalfd_siginfo info;
    while (read(squad->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) {
            return (int)info.ssi_signo;
        }
    }
    return 0;
}

static nfds_t add_fd(struct weft_squad *squad, nfds_t used, int fd)
{
    if (fd >= 0) {
        squad->fds[used++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return used;
}

static void wait_for_any(struct weft_squad *squad, uint64_t timeout_ns)
{
    nfds_t used = add_fd(squad, 0, squad->signal_fd);
    for (uint32_t i = 0; i < squad->count; i++) {
        used = add_fd(squad, used, squad->places[i].channel.fd);
        used = add_fd(squad, used, squad->places[i].out[0].fd);
        used = add_fd(squad, used, squad->places[i].out[1].fd);
    }
    struct timespec left = {.tv_sec = (time_t)(timeout_ns / WEFT_NS_PER_S),
                            .tv_nsec = (long)(timeout_ns % WEFT_NS_PER_S)};
    (void)ppoll(squad->fds, used, timeout_ns == WEFT_NEVER ? NULL : &left, NULL);
}

void weft_squad_next(struct weft_squad *squad, uint64_t timeout_ns,
                     struct weft_squad_event *event_p)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    for (;;) {
        int signal = take_signal(squad);
        if (signal != 0) {
            *event_p = (struct weft_squad_event){.type = WEFT_SQUAD_SIGNAL, .signal = signal};
            return;
        }
        if (take(squad, event_p)) {
            return;
        }
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= until_ns) {
            *event_p = (struct weft_squad_event){.type = WEFT_SQUAD_TIMEOUT};
            return;
        }
        wait_for_any(squad, until_ns == WEFT_NEVER ? WEFT_NEVER : until_ns - now_ns);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_all(struct weft_squad *squad, const char *role, int signal)
{
    for (uint32_t i = 0; i < squad->count; i++) {
        const struct weft_place *place = &squad->places[i];
        if (place->pid != 0 && (role == NULL || strcmp(role, place->role) == 0)) {
            kill(-place->pid, signal); /* not waited for yet, so the number is still its own */
        }
    }
}

/* Returns how many run still. */
static uint32_t wake_stopped(struct weft_squad *squad, const char *role)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < squad->count; i++) {
        const struct weft_place *place = &squad->places[i];
        if (place->pid != 0 && (role == NULL || strcmp(role, place->role) == 0)) {
            if (weft_process_is_stopped(place->pid)) {
                kill(-place->pid, SIGCONT);
            }
            count++;
        }
    }
    return count;
}

void weft_squad_end(struct weft_squad *squad, const char *role, uint64_t grace_ns)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), grace_ns);
    signal_all(squad, role, SIGTERM);
    while (wake_stopped(squad, role) > 0) {
        struct weft_squad_event event;
        if (weft_clock_now_ns() >= until_ns) {
            signal_all(squad, role, SIGKILL);
        }
        weft_squad_next(squad, 10 * WEFT_NS_PER_MS, &event);
        cJSON_Delete(event.type == WEFT_SQUAD_MESSAGE ? event.object : NULL);
    }
}
