/* The supervisor of a job's processes on this machine: starts, watches, restarts and stops them.
 *
 * A slot is held by one process at a time: a command, or a function of this program. It can have a
 * channel (job/channel.h), on which weft's own programs say "ready". Whatever a process wrote before it
 * ended is handed out before its end is.
 *
 * A process that lives but does not react can be retired: it moves to a spare slot, where its output,
 * its channel and its end are still attended to, and its own slot can be started again.
 *
 * Nothing outlives this program, however it ends: the kernel kills each direct child
 * (PR_SET_PDEATHSIG), and a watchdog, a small process that waits for nothing but our end, kills the
 * process groups of all of them, grandchildren included, and removes a folder. Those that have to put
 * something away themselves are sent a SIGTERM instead, if the policy says so.
 *
 * Thread: one, which made it.
 */
#ifndef WEFT_JOB_SUPERVISOR_H
#define WEFT_JOB_SUPERVISOR_H

#include "base/error.h"
#include "job/args.h"
#include "job/channel.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a process finds its channel (--control-fd) and the job key (--key-fd). */
enum { WEFT_CONTROL_FD = 3, WEFT_KEY_FD = 4 };

enum { WEFT_SLOT_LINE_BYTES = 4096 };

/* Output on its way to a whole line. */
struct weft_slot_stream {
    int fd; /* -1 = closed */
    int to; /* our own descriptor */
    size_t count;
    char *bytes; /* (WEFT_SLOT_LINE_BYTES,); NULL when closed */
};

struct weft_slot {
    /* The caller's, before a start. */
    const char *role;        /* "server"; static */
    uint32_t rank;           /* in the role */
    const char *program;     /* NULL = args.list[0], looked up in PATH */
    struct weft_args args;   /* the supervisor's to free */
    struct weft_args environment; /* NAME=value, before ours: weft_slot_setenv */
    /* In place of a program: its result is the exit status. Of our descriptors it has those of a
     * program, and others that are not this supervisor's. */
    int (*body)(void *context, const struct weft_slot *slot);
    void *context;
    bool has_channel;
    bool is_prefixed;  /* output is printed by the line, behind "[role rank] " */
    int stdout_fd;     /* not prefixed: standard output goes there; 0 = where ours does */
    int key_fd;        /* what it finds as WEFT_KEY_FD; 0 = none. The next start closes it */
    uint64_t grace_ns; /* from SIGTERM to SIGKILL; 0 = as the policy says */

    /* The caller's notes. */
    bool is_ready; /* its process said so; false after a start */
    bool is_done;  /* its work is: an end is in turn, and it is not to be started again */

    /* The supervisor's. */
    bool is_running;
    bool is_retired;     /* a spare slot: its process was replaced in the slot that it had */
    pid_t pid;           /* of its last process */
    int wait_status;     /* of its last process that ended */
    uint32_t starts;
    uint64_t restart_ns; /* 0 = not due */
    struct weft_channel channel; /* fd -1 = none; does not block */
    struct weft_slot_stream out[2];
    bool has_ended; /* a zombie, with events to hand out before its end */
};

struct weft_supervisor_policy {
    uint64_t grace_ns;           /* from SIGTERM to SIGKILL */
    uint32_t restarts;           /* of each slot */
    uint64_t restart_pause_ns;   /* before the first, doubled for each: what fails at once must not spin */
    uint32_t doublings;          /* at most */
    bool takes_signals;          /* SIGINT, SIGTERM and SIGHUP are events */
    int orphan_signal;           /* to what runs when we die; 0 = SIGKILL */
    const char *folder;          /* removed with the files in it at the end; NULL = none */
    /* In place of fork(), for instance into another network: the child is ours and is killed when we
     * end. -1: *error_p says why. NULL = fork(). */
    pid_t (*fork)(void *context, uint32_t slot_index, struct weft_error *error_p);
    void *context;
};

struct weft_supervisor {
    struct weft_supervisor_policy policy;
    struct weft_slot *slots; /* (count,): the last `spares` are for retired processes */
    uint32_t count;
    uint32_t spares;
    uint32_t turn;      /* the slot to look at next: one that never falls silent starves nobody */
    struct pollfd *fds; /* signals; of each slot the channel, output, errors */
    int signal_fd;
    sigset_t signals_before;
    pid_t watchdog;
    int watchdog_fd;
    pid_t *groups; /* (count,): shared with the watchdog; 0 = none */
};

enum weft_supervisor_event_type {
    WEFT_SUPERVISOR_TIMEOUT,
    WEFT_SUPERVISOR_MESSAGE, /* object is the caller's */
    WEFT_SUPERVISOR_EXITED,  /* the slot's process has ended: wait_status */
    WEFT_SUPERVISOR_DUE,     /* the pause of weft_supervisor_restart is over: start the slot */
    WEFT_SUPERVISOR_SIGNAL,
};

struct weft_supervisor_event {
    enum weft_supervisor_event_type type;
    struct weft_slot *slot;
    cJSON *object;
    int signal;
};

/* Room for `count` slots and `spares` more, zeroed, and a watchdog. Blocks SIGCHLD, and the signals
 * that it takes, in this thread; the latter stay blocked.
 *
 * Errors:  WEFT_IO (errno says why); weft_supervisor_fini is due in any case. */
weft_status weft_supervisor_init(struct weft_supervisor *supervisor,
                                 const struct weft_supervisor_policy *policy, uint32_t count,
                                 uint32_t spares);

/* After weft_supervisor_stop of all. */
void weft_supervisor_fini(struct weft_supervisor *supervisor);

/* Set NAME=value for the slot's next process. */
[[gnu::format(printf, 3, 4)]] void weft_slot_setenv(struct weft_slot *slot, const char *name,
                                                    const char *format, ...);

/* Start the slot's process. Standard input is empty.
 * Errors:  WEFT_IO  error->text says why. A command that cannot be executed ends with status 127. */
weft_status weft_supervisor_start(struct weft_supervisor *supervisor, struct weft_slot *slot,
                                  struct weft_error *error);

/* Let the slot be due when the policy's pause is over. False: it was restarted as often as it may. */
bool weft_supervisor_restart(struct weft_supervisor *supervisor, struct weft_slot *slot);

/* Move the slot's process to a spare slot, alive or stopped as it is: the slot can be started again.
 * False: every spare slot has a process that has not ended yet. */
bool weft_supervisor_retire(struct weft_supervisor *supervisor, struct weft_slot *slot);

/* Exchange two slots with all that is in them, their processes too. */
void weft_supervisor_swap(struct weft_supervisor *supervisor, struct weft_slot *a,
                          struct weft_slot *b);

/* The next event; TIMEOUT after timeout_ns (WEFT_NEVER = none). Output is passed on meanwhile. */
void weft_supervisor_next(struct weft_supervisor *supervisor, uint64_t timeout_ns,
                          struct weft_supervisor_event *event_p);

/* End the processes of a role (NULL = of all): SIGTERM to their groups, SIGCONT to those that are
 * stopped, SIGKILL after their grace. Waits until none is left, and nothing is due. */
void weft_supervisor_stop(struct weft_supervisor *supervisor, const char *role);

/* How the slot's last process ended: "was killed by signal 9 (Killed)". */
void weft_slot_ending(const struct weft_slot *slot, char *text, size_t bytes);

#endif
