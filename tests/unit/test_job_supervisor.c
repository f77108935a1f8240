/* Processes in slots: started, watched, restarted, stopped; no process and no descriptor is leaked.
 * Children are `sh`, or functions of this file. */
#define _GNU_SOURCE
#include "job/supervisor.h"

#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A machine may be suspended for seconds. */
static const uint64_t patience_ns = 60 * WEFT_NS_PER_S;

static const struct weft_supervisor_policy plain = {.grace_ns = 60 * WEFT_NS_PER_S};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * WEFT_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void init(struct weft_supervisor *supervisor, const struct weft_supervisor_policy *policy,
                 uint32_t count, uint32_t spares)
{
    assert_int_equal(weft_supervisor_init(supervisor, policy, count, spares), WEFT_OK);
    for (uint32_t i = 0; i < count; i++) {
        supervisor->slots[i].role = "worker";
        supervisor->slots[i].rank = i;
    }
}

static void start(struct weft_supervisor *supervisor, uint32_t slot)
{
    struct weft_error error = {.text = ""};
    if (weft_supervisor_start(supervisor, &supervisor->slots[slot], &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static void start_sh(struct weft_supervisor *supervisor, uint32_t slot, const char *script)
{
    struct weft_args *args = &supervisor->slots[slot].args;
    weft_args_fini(args);
    weft_args_add(args, "sh");
    weft_args_add(args, "-c");
    weft_args_add(args, "%s", script);
    start(supervisor, slot);
}

/* The next event, which must be of this type and slot. */
static struct weft_supervisor_event expect(struct weft_supervisor *supervisor,
                                           enum weft_supervisor_event_type type, uint32_t slot)
{
    struct weft_supervisor_event event;
    weft_supervisor_next(supervisor, patience_ns, &event);
    assert_int_equal(event.type, type);
    assert_ptr_equal(event.slot, &supervisor->slots[slot]);
    return event;
}

static void expect_end(struct weft_supervisor *supervisor, uint32_t slot, const char *how)
{
    char text[160];
    expect(supervisor, WEFT_SUPERVISOR_EXITED, slot);
    weft_slot_ending(&supervisor->slots[slot], text, sizeof(text));
    assert_string_equal(text, how);
    assert_false(supervisor->slots[slot].is_running);
}

static void expect_message(struct weft_supervisor *supervisor, uint32_t slot, const char *name)
{
    struct weft_supervisor_event event = expect(supervisor, WEFT_SUPERVISOR_MESSAGE, slot);
    assert_string_equal(weft_channel_text(event.object, "event"), name);
    cJSON_Delete(event.object);
}

/* Until the process is stopped. */
static void await_stop(const struct weft_slot *slot)
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)slot->pid, &info, WSTOPPED | WNOWAIT), 0);
}

/* ---- start and end --------------------------------------------------------------------------- */

static void endings(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, 1, 0);
    start_sh(&supervisor, 0, "exit 0");
    expect_end(&supervisor, 0, "ended with exit status 0");
    assert_int_equal(supervisor.slots[0].wait_status, 0);
    start_sh(&supervisor, 0, "exit 7");
    expect_end(&supervisor, 0, "ended with exit status 7");
    start_sh(&supervisor, 0, "kill -9 $$");
    expect_end(&supervisor, 0, "was killed by signal 9 (Killed)");
    assert_int_equal(supervisor.slots[0].starts, 3);
    supervisor.slots[0].program = "/nonexistent";
    start(&supervisor, 0);
    expect_end(&supervisor, 0, "ended with exit status 127");
    weft_supervisor_fini(&supervisor);
}

static void timeouts(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    init(&supervisor, &plain, 1, 0);
    weft_supervisor_next(&supervisor, 0, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_TIMEOUT);
    uint64_t begun_ns = clock_ns();
    weft_supervisor_next(&supervisor, 20 * WEFT_NS_PER_MS, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_TIMEOUT);
    assert_true(clock_ns() - begun_ns >= 20 * WEFT_NS_PER_MS);
    weft_supervisor_fini(&supervisor);
}

static void environment(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, 1, 0);
    assert_int_equal(setenv("WEFT_TEST_OURS", "ours", 1), 0);
    assert_int_equal(setenv("WEFT_TEST_BOTH", "ours", 1), 0);
    struct weft_slot *slot = &supervisor.slots[0];
    weft_slot_setenv(slot, "WEFT_TEST_BOTH", "first");
    weft_slot_setenv(slot, "WEFT_TEST", "of another name");
    weft_slot_setenv(slot, "WEFT_TEST_BOTH", "%s %d", "the slot's", 2);
    assert_int_equal(slot->environment.count, 2);
    start_sh(&supervisor, 0,
             "test \"$WEFT_TEST_OURS, $WEFT_TEST_BOTH, $WEFT_TEST\" = "
             "\"ours, the slot's 2, of another name\" && "
             "test \"$(env | grep -c WEFT_TEST_BOTH)\" = 1");
    expect_end(&supervisor, 0, "ended with exit status 0");
    weft_supervisor_fini(&supervisor);
}

static void signals(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    struct weft_supervisor_policy policy = plain;
    sigset_t now;
    init(&supervisor, &plain, 1, 0);
    sigprocmask(SIG_BLOCK, NULL, &now);
    assert_true(sigismember(&now, SIGCHLD) && !sigismember(&now, SIGTERM));
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_BLOCK, NULL, &now);
    assert_false(sigismember(&now, SIGCHLD));

    policy.takes_signals = true;
    init(&supervisor, &policy, 1, 0);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    weft_supervisor_next(&supervisor, patience_ns, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_SIGNAL);
    assert_int_equal(event.signal, SIGTERM);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
}

/* nohup ignores SIGHUP; scripts start background jobs with SIGINT ignored, which is taken
 * nevertheless. */
static void ignored_signals(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    struct weft_supervisor_policy policy = plain;
    policy.takes_signals = true;
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    init(&supervisor, &policy, 1, 0);
    assert_int_equal(kill(getpid(), SIGHUP), 0);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    weft_supervisor_next(&supervisor, patience_ns, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_SIGNAL);
    assert_int_equal(event.signal, SIGINT);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
}

/* ---- restarts -------------------------------------------------------------------------------- */

static void restarts(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    const uint64_t pause_ns = 20 * WEFT_NS_PER_MS;
    const struct weft_supervisor_policy policy = {
        .grace_ns = 1, .restarts = 3, .restart_pause_ns = pause_ns, .doublings = 1};
    init(&supervisor, &policy, 1, 0);
    start_sh(&supervisor, 0, "kill -9 $$");
    static const uint64_t pauses[] = {1, 2, 2};
    for (int i = 0; i < 3; i++) {
        expect_end(&supervisor, 0, "was killed by signal 9 (Killed)");
        uint64_t ended_ns = clock_ns();
        assert_true(weft_supervisor_restart(&supervisor, &supervisor.slots[0]));
        expect(&supervisor, WEFT_SUPERVISOR_DUE, 0);
        assert_true(clock_ns() - ended_ns >= pauses[i] * pause_ns);
        start(&supervisor, 0);
    }
    expect_end(&supervisor, 0, "was killed by signal 9 (Killed)");
    assert_false(weft_supervisor_restart(&supervisor, &supervisor.slots[0]));
    assert_int_equal(supervisor.slots[0].starts, 4);
    weft_supervisor_fini(&supervisor);
}

static void stop_ends_what_is_due(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    const struct weft_supervisor_policy policy = {.restarts = 1, .restart_pause_ns = 1};
    init(&supervisor, &policy, 1, 0);
    start_sh(&supervisor, 0, "exit 1");
    expect_end(&supervisor, 0, "ended with exit status 1");
    assert_true(weft_supervisor_restart(&supervisor, &supervisor.slots[0]));
    weft_supervisor_stop(&supervisor, NULL);
    weft_supervisor_next(&supervisor, 10 * WEFT_NS_PER_MS, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_TIMEOUT);
    weft_supervisor_fini(&supervisor);
}

static void retire(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, 1, 1);
    start_sh(&supervisor, 0, "kill -STOP $$; exit 3");
    pid_t first = supervisor.slots[0].pid;
    await_stop(&supervisor.slots[0]);
    assert_true(weft_supervisor_retire(&supervisor, &supervisor.slots[0]));
    assert_false(supervisor.slots[0].is_running);
    assert_true(supervisor.slots[1].is_retired);
    start_sh(&supervisor, 0, "sleep 1000");
    assert_false(weft_supervisor_retire(&supervisor, &supervisor.slots[0]));
    kill(first, SIGCONT);
    expect_end(&supervisor, 1, "ended with exit status 3");
    assert_int_equal(supervisor.slots[1].pid, first);
    assert_true(supervisor.slots[0].is_running);
    /* the spare slot is free again */
    assert_true(weft_supervisor_retire(&supervisor, &supervisor.slots[0]));
    weft_supervisor_stop(&supervisor, "worker");
    assert_int_equal(supervisor.slots[1].wait_status, SIGTERM);
    weft_supervisor_fini(&supervisor);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void a_stopped_one_ends_by_sigterm(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, 2, 0);
    start_sh(&supervisor, 0, "kill -STOP $$");
    start_sh(&supervisor, 1, "trap 'exit 5' TERM; while :; do sleep 0.01; done");
    await_stop(&supervisor.slots[0]);
    supervisor.slots[1].role = "server";
    weft_supervisor_stop(&supervisor, "worker");
    assert_int_equal(supervisor.slots[0].wait_status,
                     SIGTERM); /* not by SIGKILL, because the grace period is long */
    assert_true(supervisor.slots[1].is_running);
    weft_supervisor_stop(&supervisor, NULL);
    assert_false(supervisor.slots[1].is_running);
    weft_supervisor_fini(&supervisor);
}

static void a_deaf_one_ends_by_sigkill(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    const struct weft_supervisor_policy policy = {.grace_ns = 30 * WEFT_NS_PER_MS};
    init(&supervisor, &policy, 2, 0);
    supervisor.slots[1].grace_ns = 90 * WEFT_NS_PER_MS;
    for (uint32_t i = 0; i < 2; i++) {
        start_sh(&supervisor, i, "trap '' TERM; kill -STOP $$; while :; do sleep 1; done");
        await_stop(&supervisor.slots[i]);
    }
    uint64_t begun_ns = clock_ns();
    weft_supervisor_stop(&supervisor, NULL);
    assert_true(clock_ns() - begun_ns >= 90 * WEFT_NS_PER_MS);
    assert_int_equal(supervisor.slots[0].wait_status, SIGKILL);
    assert_int_equal(supervisor.slots[1].wait_status, SIGKILL);
    weft_supervisor_fini(&supervisor);
}

/* The pid that a child wrote into a file; 0: not yet. */
static pid_t read_pid(const char *path)
{
    int pid = 0;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        char end = '\0';
        if (fscanf(file, "%d%c", &pid, &end) != 2 || end != '\n') {
            pid = 0;
        }
        (void)fclose(file);
    }
    return pid;
}

static pid_t await_pid(const char *path)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    pid_t pid;
    while ((pid = read_pid(path)) == 0) {
        (void)nanosleep(&pause, NULL);
    }
    return pid;
}

/* The wait status of a process that this process inherits when its parent dies. */
static int await_orphan(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int status;
    while (waitpid(pid, &status, 0) != pid) {
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

static void make_folder(char path_p[64])
{
    (void)snprintf(path_p, 64, "/tmp/weft-supervisor-XXXXXX");
    assert_non_null(mkdtemp(path_p));
}

static void grandchildren_end_with_the_child(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    char folder[64];
    char path[80];
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/pid", folder);
    struct weft_supervisor_policy policy = plain;
    policy.folder = folder;
    init(&supervisor, &policy, 1, 0);
    weft_slot_setenv(&supervisor.slots[0], "FILE", "%s", path);
    start_sh(&supervisor, 0, "sleep 1000 & echo $! >\"$FILE\"; exit 4");
    expect_end(&supervisor, 0, "ended with exit status 4");
    assert_int_equal(await_orphan(read_pid(path)), SIGKILL);
    weft_supervisor_fini(&supervisor);
    assert_int_equal(access(folder, F_OK), -1);
}

/* Kill a process with a supervisor; its grandchildren must be killed, too, although the kernel does
 * not do that. Returns the wait status of a grandchild. */
static int kill_supervisor(int orphan_signal)
{
    char folder[64];
    char path[80];
    char inner[80];
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/pid", folder);
    (void)snprintf(inner, sizeof(inner), "%s/inner", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    (void)fflush(NULL);
    pid_t parent = fork();
    if (parent == 0) {
        struct weft_supervisor supervisor;
        struct weft_supervisor_event event;
        struct weft_supervisor_policy policy = plain;
        policy.folder = folder;
        policy.orphan_signal = orphan_signal;
        init(&supervisor, &policy, 1, 0);
        weft_slot_setenv(&supervisor.slots[0], "FILE", "%s", path);
        start_sh(&supervisor, 0, "sleep 1000 & echo $! >\"$FILE\"; wait");
        weft_supervisor_next(&supervisor, WEFT_NEVER, &event);
        _exit(1);
    }
    assert_true(parent > 0);
    pid_t grandchild = await_pid(path);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(await_orphan(parent), SIGKILL);
    int status = await_orphan(grandchild);
    while (waitpid(-1, NULL, 0) > 0 ||
           errno == EINTR) { /* the child, and the watchdog when it ends */
    }
    assert_int_equal(access(folder, F_OK), -1);
    return status;
}

static void watchdog(void **state)
{
    (void)state;
    assert_int_equal(kill_supervisor(0), SIGKILL);
    assert_int_equal(kill_supervisor(SIGTERM), SIGTERM);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Redirect standard output or error to a file. */
struct capture {
    int fd;
    int saved;
    FILE *file;
};

static void capture_begin(struct capture *capture, int fd)
{
    capture->fd = fd;
    capture->saved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    capture->file = tmpfile();
    assert_true(capture->saved >= 0 && capture->file != NULL);
    (void)fflush(NULL);
    assert_int_equal(dup2(fileno(capture->file), fd), fd);
}

static void capture_end(struct capture *capture, char *text_p, size_t bytes)
{
    (void)dup2(capture->saved, capture->fd);
    (void)close(capture->saved);
    rewind(capture->file);
    size_t got = fread(text_p, 1, bytes - 1, capture->file);
    text_p[got] = '\0';
    (void)fclose(capture->file);
}

static void lines(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct capture out;
    struct capture err;
    char text[64];
    init(&supervisor, &plain, 1, 0);
    supervisor.slots[0].is_prefixed = true;
    supervisor.slots[0].rank = 3;
    capture_begin(&out, STDOUT_FILENO);
    capture_begin(&err, STDERR_FILENO);
    start_sh(&supervisor, 0, "printf 'one\\n\\nt'; sleep 0.05; printf 'wo\\nopen'; echo bad >&2");
    expect(&supervisor, WEFT_SUPERVISOR_EXITED, 0);
    capture_end(&err, text, sizeof(text));
    assert_string_equal(text, "[worker 3] bad\n");
    capture_end(&out, text, sizeof(text));
    assert_string_equal(text, "[worker 3] one\n[worker 3] \n[worker 3] two\n[worker 3] open\n");
    weft_supervisor_fini(&supervisor);
}

/* A process fills its pipe faster than lines are printed: timeouts still work, and it can be
 * stopped. */
static void a_loud_one_starves_nobody(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    const struct weft_supervisor_policy policy = {.grace_ns = 100 * WEFT_NS_PER_MS};
    struct capture out;
    char text[64];
    init(&supervisor, &policy, 2, 0);
    supervisor.slots[0].is_prefixed = true;
    capture_begin(&out, STDOUT_FILENO);
    start_sh(&supervisor, 0, "trap '' TERM; while :; do echo; echo; echo; echo; done");
    start_sh(&supervisor, 1, "exit 3");
    expect_end(&supervisor, 1, "ended with exit status 3");
    weft_supervisor_next(&supervisor, 100 * WEFT_NS_PER_MS, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_TIMEOUT);
    weft_supervisor_stop(&supervisor, NULL);
    capture_end(&out, text, sizeof(text));
    assert_int_equal(supervisor.slots[0].wait_status, SIGKILL);
    assert_memory_equal(text, "[worker 0] \n[worker 0] \n", 24);
    weft_supervisor_fini(&supervisor);
}

/* Children that end while another is processed: their SIGCHLDs are merged. */
static void ends_at_the_same_time(void **state)
{
    (void)state;
    enum { SLOTS = 24, ROUNDS = 20 };
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, SLOTS, 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            start_sh(&supervisor, i, "exit 0");
        }
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct weft_supervisor_event event;
            weft_supervisor_next(&supervisor, patience_ns, &event);
            assert_int_equal(event.type, WEFT_SUPERVISOR_EXITED);
        }
    }
    weft_supervisor_fini(&supervisor);
}

static void a_long_line_is_cut(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct capture out;
    static char text[2 * WEFT_SLOT_LINE_BYTES];
    init(&supervisor, &plain, 1, 0);
    supervisor.slots[0].is_prefixed = true;
    capture_begin(&out, STDOUT_FILENO);
    start_sh(&supervisor, 0, "printf '%05000d\\n' 1");
    expect(&supervisor, WEFT_SUPERVISOR_EXITED, 0);
    capture_end(&out, text, sizeof(text));
    const char *prefix = "[worker 0] ";
    const char *second = text + strlen(prefix) + WEFT_SLOT_LINE_BYTES + 1;
    assert_int_equal(strlen(text), 2 * (strlen(prefix) + 1) + 5000);
    assert_memory_equal(text, prefix, strlen(prefix));
    assert_int_equal(second[-1], '\n');
    assert_memory_equal(second, prefix, strlen(prefix));
    weft_supervisor_fini(&supervisor);
}

static void output_elsewhere(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct capture err;
    char text[64];
    init(&supervisor, &plain, 1, 0);
    supervisor.slots[0].stdout_fd = STDERR_FILENO;
    capture_begin(&err, STDERR_FILENO);
    start_sh(&supervisor, 0, "echo hello; cat"); /* standard input is empty */
    expect(&supervisor, WEFT_SUPERVISOR_EXITED, 0);
    capture_end(&err, text, sizeof(text));
    assert_string_equal(text, "hello\n");
    weft_supervisor_fini(&supervisor);
}

/* A pipe in place of standard output, with room for nothing. */
static void fill_pipe(int ends_p[2])
{
    static const char zeros[4096];
    assert_int_equal(pipe2(ends_p, O_CLOEXEC | O_NONBLOCK), 0);
    while (write(ends_p[1], zeros, sizeof(zeros)) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    /* The supervisor's output is in blocking mode. */
    assert_int_equal(fcntl(ends_p[1], F_SETFL, 0), 0);
}

static size_t drain_pipe(int fd, char *text_p, size_t bytes)
{
    char piece[4096];
    size_t count = 0;
    for (ssize_t got; (got = read(fd, piece, sizeof(piece))) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            if (piece[i] != '\0' && count < bytes - 1) {
                text_p[count++] = piece[i];
            }
        }
    }
    text_p[count] = '\0';
    return count;
}

/* Exits, messages and signals are events also while nobody reads the output. */
static void an_unread_pipe(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    struct weft_supervisor_policy policy = plain;
    static char text[2 * WEFT_SLOT_LINE_BYTES];
    int ends[2];
    int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    (void)fflush(NULL);
    fill_pipe(ends);
    policy.takes_signals = true;
    init(&supervisor, &policy, 2, 0);
    supervisor.slots[0].is_prefixed = supervisor.slots[1].is_prefixed = true;
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    start_sh(&supervisor, 0, "echo one; echo two; exit 3");
    expect_end(&supervisor, 0, "ended with exit status 3");
    start_sh(&supervisor, 1, "exec yes");
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    weft_supervisor_next(&supervisor, patience_ns, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_SIGNAL);
    weft_supervisor_stop(&supervisor, NULL);
    assert_int_equal(weft_supervisor_lost(&supervisor), 0);
    assert_int_equal(drain_pipe(ends[0], text, sizeof(text)), 0);
    weft_supervisor_next(&supervisor, 0, &event);
    (void)drain_pipe(ends[0], text, sizeof(text));
    assert_memory_equal(text, "[worker 0] one\n[worker 0] two\n", 30);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* At the end the program waits for the reader, until a signal or for a given time; a message of its
 * own may be lost, a line of a process may not without a note. */
static void the_end_of_output(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_policy policy = plain;
    int ends[2];
    int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    fill_pipe(ends);
    policy.takes_signals = true;
    init(&supervisor, &policy, 1, 0);
    supervisor.slots[0].is_prefixed = true;
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(weft_supervisor_finish_output(&supervisor, patience_ns), 0);
    weft_supervisor_say(&supervisor, "a message %d\n", 1);
    assert_int_equal(weft_supervisor_finish_output(&supervisor, WEFT_NS_PER_MS), 0);
    assert_int_equal(weft_supervisor_lost(&supervisor), 0);
    start_sh(&supervisor, 0, "echo bad >&2");
    expect(&supervisor, WEFT_SUPERVISOR_EXITED, 0);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    assert_int_equal(weft_supervisor_finish_output(&supervisor, WEFT_NEVER), SIGINT);
    assert_int_equal(weft_supervisor_lost(&supervisor), EPIPE);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* The end of a reader does not end the program, but a process of the job as usual. */
static void a_broken_pipe(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_policy policy = plain;
    int ends[2];
    int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    (void)fflush(NULL);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)close(ends[0]);
    policy.takes_signals = true;
    init(&supervisor, &policy, 1, 0);
    supervisor.slots[0].is_prefixed = true;
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    start_sh(&supervisor, 0, "echo line; kill -PIPE $$; exit 0");
    expect_end(&supervisor, 0, "was killed by signal 13 (Broken pipe)");
    assert_int_equal(weft_supervisor_lost(&supervisor), EPIPE);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(ends[1]);
}

/* A caller that ignores SIGPIPE, such as a service manager, has processes that ignore it. */
static void an_ignored_pipe_signal(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_policy policy = plain;
    policy.takes_signals = true;
    (void)signal(SIGPIPE, SIG_IGN);
    init(&supervisor, &policy, 1, 0);
    start_sh(&supervisor, 0, "kill -PIPE $$; exit 3");
    expect_end(&supervisor, 0, "ended with exit status 3");
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
}

/* A terminal that nobody reads: it has room for a part of a write only, and the write must not wait
 * for the rest. */
static void an_unread_terminal(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    struct weft_supervisor_event event;
    struct weft_supervisor_policy policy = plain;
    char name[64];
    int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    (void)fflush(NULL);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, name, sizeof(name)) != 0) {
        skip();
    }
    int terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    policy.takes_signals = true;
    init(&supervisor, &policy, 1, 0);
    supervisor.slots[0].is_prefixed = true;
    assert_int_equal(dup2(terminal, STDOUT_FILENO), STDOUT_FILENO);
    start_sh(&supervisor, 0, "exec yes");
    while (supervisor.output[0].count == 0) {
        weft_supervisor_next(&supervisor, WEFT_NS_PER_MS, &event);
        assert_int_equal(event.type, WEFT_SUPERVISOR_TIMEOUT);
    }
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    weft_supervisor_next(&supervisor, patience_ns, &event);
    assert_int_equal(event.type, WEFT_SUPERVISOR_SIGNAL);
    /* the mode of the caller's descriptor is unchanged */
    assert_int_equal(fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK, 0);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    weft_supervisor_stop(&supervisor, NULL);
    weft_supervisor_fini(&supervisor);
    sigprocmask(SIG_SETMASK, &supervisor.signals_before, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(terminal);
    (void)close(master);
}

/* ---- channels, keys, descriptors ------------------------------------------------------------- */

static int speak(void *context, const struct weft_slot *slot)
{
    struct weft_channel channel = {.fd = WEFT_CONTROL_FD};
    cJSON *object = NULL;
    (void)context;
    (void)slot;
    if (weft_channel_send(&channel, weft_channel_event("ready")) != WEFT_OK ||
        weft_channel_next(&channel, &object) != WEFT_OK ||
        strcmp(weft_channel_text(object, "event"), "go") != 0 ||
        weft_channel_send(&channel, weft_channel_event("done")) != WEFT_OK ||
        weft_channel_send(&channel, weft_channel_event("figures")) != WEFT_OK) {
        return 1;
    }
    cJSON_Delete(object);
    return 6;
}

static void channel(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    init(&supervisor, &plain, 1, 0);
    struct weft_slot *slot = &supervisor.slots[0];
    slot->has_channel = true;
    slot->body = speak;
    for (int i = 0; i < 2; i++) {
        start(&supervisor, 0);
        expect_message(&supervisor, 0, "ready");
        assert_int_equal(weft_channel_send(&slot->channel, weft_channel_event("go")), WEFT_OK);
        /* All output is delivered before the exit event, however late it is polled. */
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)slot->pid, &info, WEXITED | WNOWAIT), 0);
        expect_message(&supervisor, 0, "done");
        expect_message(&supervisor, 0, "figures");
        expect_end(&supervisor, 0, "ended with exit status 6");
        assert_int_equal(slot->channel.fd, -1);
    }
    weft_supervisor_fini(&supervisor);
}

/* Open descriptors above those reserved for a child. */
static int count_fds(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        count += entry->d_name[0] != '.' && fd > WEFT_KEY_FD && fd != dirfd(folder);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

static int look(void *context, const struct weft_slot *slot)
{
    char text[8] = "";
    (void)slot;
    if (read(WEFT_KEY_FD, text, sizeof(text)) != 4 || memcmp(text, "key\n", 4) != 0) {
        return 1;
    }
    if (fcntl(WEFT_CONTROL_FD, F_GETFD) != 0 || fcntl(WEFT_KEY_FD, F_GETFD) != 0) {
        return 2; /* otherwise exec would close them */
    }
    return count_fds() == *(const int *)context ? 0 : 3;
}

static int key_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "key\n", 4), 4);
    (void)close(ends[1]);
    return ends[0];
}

static void descriptors(void **state)
{
    (void)state;
    struct weft_supervisor supervisor;
    /* Descriptors inherited by the test are ignored. */
    int before = count_fds();
    init(&supervisor, &plain, 3, 0);
    for (uint32_t i = 0; i < 2; i++) { /* a child could inherit their descriptors */
        supervisor.slots[i].has_channel = supervisor.slots[i].is_prefixed = true;
        start_sh(&supervisor, i, "sleep 1000");
    }
    struct weft_slot *slot = &supervisor.slots[2];
    slot->has_channel = slot->is_prefixed = true;
    slot->body = look;
    slot->context = &before;
    for (int i = 0; i < 2; i++) {
        slot->key_fd = key_pipe();
        start(&supervisor, 2);
        assert_int_equal(slot->key_fd, 0);
        expect_end(&supervisor, 2, "ended with exit status 0");
    }
    weft_supervisor_stop(&supervisor, NULL);
    weft_supervisor_fini(&supervisor);
    assert_int_equal(count_fds(), before);
}

/* ---- a fork of the caller's ------------------------------------------------------------------ */

static pid_t fork_for_slot_1(void *context, uint32_t slot, struct weft_error *error_p)
{
    ++*(int *)context;
    if (slot == 1) {
        return fork();
    }
    (void)weft_fail(error_p, WEFT_IO, "no host %u", slot);
    return -1;
}

static void fork_elsewhere(void **state)
{
    (void)state;
    int calls = 0;
    struct weft_error error;
    struct weft_supervisor supervisor;
    struct weft_supervisor_policy policy = plain;
    policy.fork = fork_for_slot_1;
    policy.context = &calls;
    init(&supervisor, &policy, 2, 0);
    weft_args_add(&supervisor.slots[0].args, "true");
    supervisor.slots[0].has_channel = true;
    supervisor.slots[0].key_fd = key_pipe();
    assert_int_equal(weft_supervisor_start(&supervisor, &supervisor.slots[0], &error), WEFT_IO);
    assert_string_equal(error.text, "no host 0");
    assert_false(supervisor.slots[0].is_running);
    assert_int_equal(supervisor.slots[0].key_fd, 0);
    start_sh(&supervisor, 1, "exit 9");
    expect_end(&supervisor, 1, "ended with exit status 9");
    assert_int_equal(calls, 2);
    weft_supervisor_fini(&supervisor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(environment),
        cmocka_unit_test(signals),
        cmocka_unit_test(ignored_signals),
        cmocka_unit_test(restarts),
        cmocka_unit_test(stop_ends_what_is_due),
        cmocka_unit_test(retire),
        cmocka_unit_test(a_stopped_one_ends_by_sigterm),
        cmocka_unit_test(a_deaf_one_ends_by_sigkill),
        cmocka_unit_test(grandchildren_end_with_the_child),
        cmocka_unit_test(watchdog),
        cmocka_unit_test(lines),
        cmocka_unit_test(a_loud_one_starves_nobody),
        cmocka_unit_test(ends_at_the_same_time),
        cmocka_unit_test(a_long_line_is_cut),
        cmocka_unit_test(output_elsewhere),
        cmocka_unit_test(an_unread_pipe),
        cmocka_unit_test(the_end_of_output),
        cmocka_unit_test(a_broken_pipe),
        cmocka_unit_test(an_ignored_pipe_signal),
        cmocka_unit_test(an_unread_terminal),
        cmocka_unit_test(channel),
        cmocka_unit_test(descriptors),
        cmocka_unit_test(fork_elsewhere),
    };
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans become children of this process, so their
                                             * wait status is available */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
