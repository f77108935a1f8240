/* The processes of one `weft run`: places in a job, each held by one process at a time.
 *
 * A place has a command and an environment and can be started again. What its process writes comes
 * out as whole lines with the place's name before them. A place may have a channel (job/channel.h):
 * weft's own programs say "ready" on it.
 *
 * A process that does not react but lives can be retired: it moves to a spare place, where its output,
 * its channel and its end are still attended to, and its own place can be started again.
 *
 * Nothing outlives this program, however it ends: the kernel kills each direct child
 * (PR_SET_PDEATHSIG), and a keeper, a small process that waits for nothing but our end, kills the
 * process groups of all of them, grandchildren included, and removes a folder.
 *
 * It differs from cli/train/crew.h, which runs only this program itself and never anything twice.
 */
#ifndef WEFT_CLI_RUN_SQUAD_H
#define WEFT_CLI_RUN_SQUAD_H

#include "job/channel.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_SQUAD_LINE_BYTES = 4096, WEFT_SQUAD_VARIABLES = 16 };

/* Output on its way to a whole line. */
struct weft_squad_stream {
    int fd; /* -1 = closed */
    int to; /* our own descriptor */
    size_t count;
    char bytes[WEFT_SQUAD_LINE_BYTES];
};

struct weft_place {
    const char *role; /* "scheduler", "server", "worker" */
    uint32_t rank;
    char **words;     /* ends with NULL; words[0] is looked up in PATH. Borrowed */
    char *variables[WEFT_SQUAD_VARIABLES]; /* NAME=value, owned: weft_place_set */
    unsigned variable_count;
    bool has_channel; /* give it one: --control-fd is in words already */

    pid_t pid; /* 0 = is not running */
    uint32_t starts;
    bool is_ready;    /* it said so on its channel */
    bool is_finished; /* ended as it should, and is not to be started again */
    bool is_retired;  /* a spare place: its process was replaced in the place that it had */
    int wait_status;  /* of its last process */
    struct weft_channel channel;
    struct weft_squad_stream out[2];
};

struct weft_squad {
    struct weft_place *places; /* (count,): the last `spares` are for retired processes */
    uint32_t count;
    uint32_t spares;
    struct pollfd *fds;
    int signal_fd;
    pid_t keeper;
    int keeper_fd;
    pid_t *groups; /* (count,): shared with the keeper; 0 = none */
};

enum weft_squad_event_type {
    WEFT_SQUAD_TIMEOUT,
    WEFT_SQUAD_MESSAGE, /* object is the caller's */
    WEFT_SQUAD_EXITED,  /* the place's process has ended; pid is 0 now */
    WEFT_SQUAD_SIGNAL,
};

struct weft_squad_event {
    enum weft_squad_event_type type;
    struct weft_place *place;
    cJSON *object;
    pid_t pid; /* EXITED: it was */
    int signal;
};

/* Room for `count` places and `spares` more, zeroed. Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of this thread.
 *
 * folder:  the keeper removes it with the files in it when this program dies; NULL = none.
 * Errors:  WEFT_IO (errno says why), WEFT_NOMEM. */
weft_status weft_squad_init(struct weft_squad *squad, uint32_t count, uint32_t spares,
                            const char *folder);

/* Set NAME=value for the place's next process; one of the same name is replaced. */
[[gnu::format(printf, 3, 4)]] void weft_place_set(struct weft_place *place, const char *name,
                                                  const char *format, ...);

/* Start the place's process. It has our environment and the place's variables; standard input is
 * empty.
 * Errors:  WEFT_IO  errno says why. A command that cannot be executed ends with status 127. */
weft_status weft_squad_start(struct weft_squad *squad, struct weft_place *place);

/* Move the place's process to a spare place, alive or stopped as it is: the place can be started again.
 * False: every spare place has a process that has not ended yet. */
bool weft_squad_retire(struct weft_squad *squad, struct weft_place *place);

/* The next event; TIMEOUT after timeout_ns (WEFT_NEVER = none). Output is passed on meanwhile. */
void weft_squad_next(struct weft_squad *squad, uint64_t timeout_ns,
                     struct weft_squad_event *event_p);

/* End the processes of a role (NULL = of all): SIGTERM to their groups, then after grace_ns
 * SIGKILL. Waits until none is left. */
void weft_squad_end(struct weft_squad *squad, const char *role, uint64_t grace_ns);

/* After weft_squad_end of all. */
void weft_squad_fini(struct weft_squad *squad);

#endif
