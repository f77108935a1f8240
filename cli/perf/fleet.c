#define _GNU_SOURCE // pipe2
#include "cli/perf/fleet.h"

#include "cli/stop.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 100, /* for the wish to stop */
    OPEN_S = 120,
};

static const uint64_t end_ns = 60 * WEFT_NS_PER_S;

/* The first failure is the cause; those that follow are its consequences. */
[[gnu::format(printf, 2, 3)]] static bool fail(struct weft_perf_fleet *fleet, const char *format,
                                               ...)
{
    if (fleet->failure[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(fleet->failure, sizeof(fleet->failure), format, arguments);
        va_end(arguments);
    }
    return false;
}

/* "sender 3", and on a lab "(host 3)". */
static void name(const struct weft_perf_fleet *fleet, uint32_t participant, char *text_p,
                 unsigned bytes)
{
    char role[48];
    weft_perf_plan_role(fleet->job->plan, participant, role, sizeof(role));
    if (fleet->job->place->lab != NULL) {
        (void)snprintf(text_p, bytes, "%s (host %u)", role, fleet->job->place->hosts[participant]);
    } else {
        (void)snprintf(text_p, bytes, "%s", role);
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

/* In the child. The terminal's Ctrl-C is the coordinator's to judge, and so is a `kill` of the
 * whole group; its end is this process's end. */
static _Noreturn void be(struct weft_perf_fleet *fleet, uint32_t participant, int channel,
                            const int key[2])
{
    static const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(deaf); i++) {
        (void)signal(deaf[i], SIG_IGN);
    }
    for (uint32_t i = 0; i < participant; i++) {
        (void)close(fleet->members[i].channel);
    }
    (void)close(key[1]);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    _exit(weft_perf_agent_run(fleet->job, fleet->shared, participant, channel, key[0]));
}

static bool start_one(struct weft_perf_fleet *fleet, uint32_t participant)
{
    struct weft_perf_member *member = &fleet->members[participant];
    char error[WEFT_PERF_PLACE_ERROR_BYTES];
    int pair[2];
    int key[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
        (fleet->security.key != NULL &&
         (pipe2(key, O_CLOEXEC) != 0 ||
          weft_job_key_write_fd(fleet->security.key, key[1]) != WEFT_OK))) {
        return fail(fleet, "no channel to a participant: %s", strerror(errno));
    }
    pid_t pid = 0;
    bool forked = weft_perf_place_fork(fleet->job->place, participant, &pid, error);
    if (forked && pid == 0) {
        (void)close(pair[0]);
        be(fleet, participant, pair[1], key);
    }
    (void)close(pair[1]);
    (void)close(key[0]);
    (void)close(key[1]);
    if (!forked) {
        (void)close(pair[0]);
        return fail(fleet, "%s", error);
    }
    member->pid = pid;
    member->channel = pair[0];
    return true;
}

bool weft_perf_fleet_start(const struct weft_perf_job *job, const struct weft_security *security,
                           struct weft_perf_fleet *fleet_p)
{
    *fleet_p = (struct weft_perf_fleet){.job = job, .security = *security};
    for (uint32_t i = 0; i < WEFT_PERF_PARTICIPANTS_MAX; i++) {
        fleet_p->members[i].channel = -1;
    }
    fleet_p->shared = weft_perf_shared_new();
    struct weft_crypto_error error;
    if (fleet_p->shared == NULL) {
        return fail(fleet_p, "no memory");
    }
    if (weft_security_load(&fleet_p->security, true, &error) != WEFT_OK) {
        return fail(fleet_p, "%s", error.text);
    }
    (void)fflush(NULL); /* or the children would print it again */
    for (uint32_t i = 0; i < job->plan->participants; i++) {
        if (!start_one(fleet_p, i)) {
            return false;
        }
    }
    switch (weft_perf_fleet_hear(fleet_p, WEFT_PERF_OPEN,
                                 weft_clock_now_ns() + OPEN_S * WEFT_NS_PER_S)) {
    case WEFT_PERF_ALL:
        return true;
    case WEFT_PERF_TOO_LONG:
        return fail(fleet_p, "the participants did not open their sockets within %d s",
                    OPEN_S);
    case WEFT_PERF_INTERRUPTED:
    case WEFT_PERF_BROKEN:
        break;
    }
    return false;
}

/* ---- words ----------------------------------------------------------------------------------- */

void weft_perf_fleet_say(struct weft_perf_fleet *fleet, const struct weft_perf_message *message)
{
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        fleet->members[i].said = false;
        if (fleet->members[i].channel >= 0) {
            /* One that is gone is noticed by reading. */
            (void)send(fleet->members[i].channel, message, sizeof(*message), MSG_NOSIGNAL);
        }
    }
}

static void reap(struct weft_perf_member *member, int options)
{
    if (member->pid > 0 && waitpid(member->pid, &member->status, options) == member->pid) {
        member->pid = 0;
    }
}

/* What a killed one leaves behind are peers that lost it, and over TCP they may say so first. */
static void blame_killed(struct weft_perf_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        struct weft_perf_member *member = &fleet->members[i];
        reap(member, WNOHANG);
        if (member->pid == 0 && WIFSIGNALED(member->status)) {
            char who[80];
            name(fleet, i, who, sizeof(who));
            fail(fleet, "%s was killed by signal %d (%s)", who, WTERMSIG(member->status),
                 strsignal(WTERMSIG(member->status)));
        }
    }
}

/* Its channel is closed, or it said that it failed. */
static void give_up(struct weft_perf_fleet *fleet, uint32_t participant)
{
    struct weft_perf_member *member = &fleet->members[participant];
    const char *reason = fleet->shared->agents[participant].failure;
    char who[80];
    name(fleet, participant, who, sizeof(who));
    (void)close(member->channel);
    member->channel = -1;
    reap(member, 0); /* it has nothing left to do but to end */
    blame_killed(fleet);
    if (reason[0] != '\0') {
        fail(fleet, "%s: %.*s", who, (int)WEFT_PERF_ERROR_BYTES, reason);
    } else {
        fail(fleet, "%s ended with exit status %d", who, WEXITSTATUS(member->status));
    }
}

/* One word from each that has something to say; false: one of them is gone. */
static bool read_words(struct weft_perf_fleet *fleet, const struct pollfd *polls,
                       enum weft_perf_word word)
{
    bool good = true;
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        struct weft_perf_message message = {0};
        struct weft_perf_member *member = &fleet->members[i];
        if (polls[i].revents == 0 || member->channel < 0) {
            continue;
        }
        ssize_t got = recv(member->channel, &message, sizeof(message), MSG_DONTWAIT);
        if (got == sizeof(message) && message.word != WEFT_PERF_FAILED) {
            member->said = member->said || message.word == word;
        } else if (got >= 0 || errno != EAGAIN) {
            give_up(fleet, i);
            good = false;
        }
    }
    return good;
}

static bool all_said(const struct weft_perf_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        if (!fleet->members[i].said) {
            return false;
        }
    }
    return true;
}

enum weft_perf_heard weft_perf_fleet_hear(struct weft_perf_fleet *fleet, enum weft_perf_word word,
                                          uint64_t until_ns)
{
    static struct pollfd polls[WEFT_PERF_PARTICIPANTS_MAX];
    while (!all_said(fleet)) {
        for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
            bool wanted = !fleet->members[i].said;
            polls[i] = (struct pollfd){.fd = wanted ? fleet->members[i].channel : -1,
                                       .events = POLLIN};
        }
        if (weft_stop_asked()) {
            return WEFT_PERF_INTERRUPTED;
        }
        if (weft_clock_now_ns() > until_ns) {
            return WEFT_PERF_TOO_LONG;
        }
        if (poll(polls, fleet->job->plan->participants, LOOK_MS) > 0 &&
            !read_words(fleet, polls, word)) {
            return WEFT_PERF_BROKEN;
        }
    }
    return WEFT_PERF_ALL;
}

/* ---- end ------------------------------------------------------------------------------------- */

static bool all_ended(struct weft_perf_fleet *fleet)
{
    bool ended = true;
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        reap(&fleet->members[i], WNOHANG);
        ended = ended && fleet->members[i].pid == 0;
    }
    return ended;
}

/* One that did not end well, though asked in time. */
static void judge(struct weft_perf_fleet *fleet, uint32_t participant)
{
    struct weft_perf_member *member = &fleet->members[participant];
    if (member->channel >= 0 && member->status != 0) {
        give_up(fleet, participant);
    }
}

bool weft_perf_fleet_end(struct weft_perf_fleet *fleet)
{
    const struct weft_perf_message quit = {.word = WEFT_PERF_QUIT};
    uint64_t until_ns = weft_clock_now_ns() + end_ns;
    if (fleet->shared != NULL) {
        weft_perf_fleet_say(fleet, &quit);
    }
    while (!all_ended(fleet) && weft_clock_now_ns() < until_ns) {
        (void)poll(NULL, 0, 5);
    }
    for (uint32_t i = 0; i < fleet->job->plan->participants; i++) {
        struct weft_perf_member *member = &fleet->members[i];
        if (member->pid > 0) {
            (void)kill(member->pid, SIGKILL);
            reap(member, 0);
        }
        judge(fleet, i);
        (void)close(member->channel);
    }
    weft_security_fini(&fleet->security);
    weft_perf_shared_free(fleet->shared);
    fleet->shared = NULL;
    return fleet->failure[0] == '\0';
}
