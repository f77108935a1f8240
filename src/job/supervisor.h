/* The supervisor of a job's processes on this machine: starts, watches, restarts and stops them.
 *
 * A slot runs one process at a time: a command, or a function of this program. It can have a
 * channel (job/channel.h), on which weft's own programs send "ready". All output of a process is
 * delivered before its exit is reported.
 *
 * The reader of this program's output may be slow, or read nothing: while output waits, no more is
 * read from the processes that have more of it, and all events are still delivered.
 *
 * A process that runs but does not respond can be retired: it moves to a spare slot, where its
 * output, its channel and its exit are still handled, and its own slot can be restarted.
 *
 * No process outlives this program, however it ends: the kernel kills each direct child
 * (PR_SET_PDEATHSIG), and a watchdog, a small process that waits for this program to end, kills the
 * process groups of all children, grandchildren included, and removes a folder. The policy can
 * select another signal than SIGKILL, so that they can clean up.
 *
 * Thread: the one that created it.
 */
#ifndef WEFT_JOB_SUPERVISOR_H
#define WEFT_JOB_SUPERVISOR_H

#include "base/error.h"
#include "job/args.h"
#include "job/channel.h"
#include "job/output_queue.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors of a process for its channel (--control-fd) and the job key (--key-fd). */
enum { WEFT_CONTROL_FD = 3, WEFT_KEY_FD = 4 };

enum { WEFT_SLOT_LINE_BYTES = 4096 };

/* Output that is not yet a complete line. */
struct weft_slot_stream {
    int fd;                       /* -1 = closed */
    struct weft_output_queue *to; /* of the supervisor */
    size_t count;
    char *bytes; /* (WEFT_SLOT_LINE_BYTES,); NULL when closed */
};

struct weft_slot {
    /* Set by the caller before a start. */
    const char *role;             /* "server"; static */
    uint32_t rank;                /* in the role */
    const char *program;          /* NULL = args.list[0], looked up in PATH */
    struct weft_args args;        /* freed by the supervisor */
    struct weft_args environment; /* NAME=value, overrides the supervisor's: weft_slot_setenv */
    /* Runs in place of a program; its result is the exit status. It inherits the descriptors
     * that a program would, and any others that do not belong to this supervisor. */
    int (*body)(void *context, const struct weft_slot *slot);
    void *context;
    bool has_channel;
    bool is_prefixed;  /* each line of output is printed after "[role rank] " */
    int stdout_fd;     /* not prefixed: target of standard output; 0 = the supervisor's own */
    int key_fd;        /* becomes WEFT_KEY_FD in the child; 0 = none. The next start closes it */
    uint64_t grace_ns; /* from SIGTERM to SIGKILL; 0 = set by the policy */

    /* For use by the caller. */
    bool is_ready; /* its process has sent ready; false after a start */
    bool is_done;  /* its work is complete: an exit is expected, and it must not be restarted */

    /* Private to the supervisor. */
    bool is_running;
    bool is_retired; /* a spare slot: its process was replaced in its original slot */
    pid_t pid;       /* of its last process */
    int wait_status; /* of its last process that ended */
    uint32_t starts;
    uint64_t restart_ns;         /* 0 = not due */
    struct weft_channel channel; /* fd -1 = none; non-blocking */
    struct weft_slot_stream out[2];
    bool has_ended; /* a zombie, with events to deliver before its exit */
};

struct weft_supervisor_policy {
    uint64_t grace_ns;         /* from SIGTERM to SIGKILL */
    uint32_t restarts;         /* maximum for each slot */
    uint64_t restart_pause_ns; /* before the first, doubled for each: a process that fails at
                                * once must not spin */
    uint32_t doublings;        /* maximum number of doublings */
    bool takes_signals;        /* SIGINT, SIGTERM and SIGHUP are delivered as events; SIGPIPE is
                                * ignored, and in the processes if it was before. A SIGHUP that is
                                * ignored, as under nohup, stays so */
    int orphan_signal;         /* sent to running processes if this program dies; 0 = SIGKILL */
    const char *folder;        /* removed with its files at the end; NULL = none */
    /* Replaces fork(), for instance to start in another network namespace: the process must be a
     * child of this program, and is killed when this program ends. -1: *error_p has the reason.
     * NULL = fork(). */
    pid_t (*fork)(void *context, uint32_t slot_index, struct weft_error *error_p);
    void *context;
};

struct weft_supervisor {
    struct weft_supervisor_policy policy;
    struct weft_slot *slots; /* (count,): the last `spares` are for retired processes */
    uint32_t count;
    uint32_t spares;
    uint32_t turn;      /* the next slot to check, round-robin: a busy slot does not starve the
                         * others */
    struct pollfd *fds; /* signals; per slot the channel, output, errors; `output` */
    struct weft_output_queue output[2]; /* standard output and error */
    int signal_fd;
    bool keeps_sigpipe; /* takes_signals: it was ignored before, and the processes ignore it */
    sigset_t signals_before;
    pid_t watchdog;
    int watchdog_fd;
    pid_t *groups; /* (count,): shared with the watchdog; 0 = none */
};

enum weft_supervisor_event_type {
    WEFT_SUPERVISOR_TIMEOUT,
    WEFT_SUPERVISOR_MESSAGE, /* object is owned by the caller */
    WEFT_SUPERVISOR_EXITED,  /* the slot's process has exited: wait_status */
    WEFT_SUPERVISOR_DUE,     /* the pause of weft_supervisor_restart has passed: start the slot */
    WEFT_SUPERVISOR_SIGNAL,
};

struct weft_supervisor_event {
    enum weft_supervisor_event_type type;
    struct weft_slot *slot;
    cJSON *object;
    int signal;
};

/* Allocate `count` slots and `spares` more, zeroed, and start the watchdog. Blocks SIGCHLD, and the
 * signals that are delivered as events, in this thread. weft_supervisor_fini unblocks them, unless
 * the policy takes signals.
 *
 * Errors:  WEFT_IO (errno has the reason); weft_supervisor_fini must be called in any case. */
weft_status weft_supervisor_init(struct weft_supervisor *supervisor,
                                 const struct weft_supervisor_policy *policy, uint32_t count,
                                 uint32_t spares);

/* Call after weft_supervisor_stop of all processes. */
void weft_supervisor_fini(struct weft_supervisor *supervisor);

/* Set NAME=value for the slot's next process. */
[[gnu::format(printf, 3, 4)]] void weft_slot_setenv(struct weft_slot *slot, const char *name,
                                                    const char *format, ...);

/* Start the slot's process. Standard input is empty.
 * Errors:  WEFT_IO error->text has the reason. A command that cannot be executed ends with
 *          status 127. */
weft_status weft_supervisor_start(struct weft_supervisor *supervisor, struct weft_slot *slot,
                                  struct weft_error *error);

/* Schedule a restart of the slot after the policy's pause. False: it has reached the maximum
 * number of restarts. */
bool weft_supervisor_restart(struct weft_supervisor *supervisor, struct weft_slot *slot);

/* Move the slot's process, running or stopped, to a spare slot: the slot can then be restarted.
 * False: the process of every spare slot is still running. */
bool weft_supervisor_retire(struct weft_supervisor *supervisor, struct weft_slot *slot);

/* Exchange two slots with all their contents, including their processes. */
void weft_supervisor_swap(struct weft_supervisor *supervisor, struct weft_slot *a,
                          struct weft_slot *b);

/* Return the next event; TIMEOUT after timeout_ns (WEFT_NEVER = none). Forwards output
 * meanwhile. */
void weft_supervisor_next(struct weft_supervisor *supervisor, uint64_t timeout_ns,
                          struct weft_supervisor_event *event_p);

/* Terminate the processes of a role (NULL = of all): SIGTERM to their groups, SIGCONT to stopped
 * ones, SIGKILL after their grace period. Waits until all have exited and no restart is due. The
 * messages and signals that arrive meanwhile are discarded. */
void weft_supervisor_stop(struct weft_supervisor *supervisor, const char *role);

/* One step of weft_supervisor_stop, for a caller that handles the events of the termination itself:
 * call it, with the time since the first call (which has 0), every few milliseconds. A slot's
 * grace_ns may change between two calls. Returns the number of processes of the role that still
 * run. */
uint32_t weft_supervisor_press(struct weft_supervisor *supervisor, const char *role,
                               uint64_t waited_ns);

/* Print a message of the caller on standard error, in order with the lines of the processes,
 * without waiting for its reader. */
[[gnu::format(printf, 2, 3)]] void weft_supervisor_say(struct weft_supervisor *supervisor,
                                                       const char *format, ...);

/* Write the caller's output to STDOUT_FILENO or STDERR_FILENO in the same way. Its loss is noted in
 * weft_supervisor_lost if it is for STDOUT_FILENO. */
void weft_supervisor_write(struct weft_supervisor *supervisor, int fd, const char *bytes,
                           size_t count);

/* After the end of all processes: wait until all output is written, for patience_ns at most, or
 * until a stop signal arrives (with takes_signals). Returns the signal, or 0. Output that is not
 * written then is dropped. */
int weft_supervisor_finish_output(struct weft_supervisor *supervisor, uint64_t patience_ns);

/* errno of the first write that lost output of the processes, or of the caller to STDOUT_FILENO;
 * 0 = nothing was lost. */
int weft_supervisor_lost(const struct weft_supervisor *supervisor);

/* Describe how the slot's last process ended: "was killed by signal 9 (Killed)". */
void weft_slot_ending(const struct weft_slot *slot, char *text, size_t bytes);

#endif
