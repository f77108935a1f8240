/* A child process of `weft train`: this program again, with another verb.
 *
 * A child never outlives its parent, however that ends: the kernel kills it (PR_SET_PDEATHSIG), and
 * the end of file on its channel tells it to stop. It does not hear the terminal's Ctrl-C; the
 * parent does, and decides.
 */
#ifndef WEFT_CLI_TRAIN_PROCESS_H
#define WEFT_CLI_TRAIN_PROCESS_H

#include "job/channel.h"
#include "lab/cluster.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The descriptor on which a child finds its channel (--control-fd). */
enum { WEFT_CONTROL_FD = 3 };

/* The descriptor on which it finds the job key (--key-fd). */
enum { WEFT_KEY_FD = 4 };

/* The argument list of a child, built step by step. */
struct weft_arguments {
    char *words[64]; /* the last one in use is followed by NULL */
    unsigned count;
    int key_fd; /* what the child finds as WEFT_KEY_FD; 0 = nothing */
    const struct weft_lab_info *lab; /* the child is on a host of it; NULL = it stays here */
    uint32_t host;
    struct weft_lab_error lab_error; /* after a failure that was the lab's */
};

[[gnu::format(printf, 2, 3)]] void weft_arguments_add(struct weft_arguments *arguments,
                                                      const char *format, ...);
void weft_arguments_fini(struct weft_arguments *arguments);

struct weft_process {
    const char *role; /* "server", "worker" */
    uint32_t rank;
    pid_t pid;        /* 0 = never started */
    bool exited;
    bool told;        /* the crew has handed out its end */
    bool is_done;     /* it said so, and may end */
    int wait_status;  /* of waitpid, when exited */
    struct weft_channel channel; /* does not block */
};

/* Start /proc/self/exe with these arguments and --control-fd. Its standard output goes to our
 * standard error.
 * Errors:  WEFT_IO  errno says why, or arguments->lab_error when it has a text. */
weft_status weft_process_start(struct weft_process *process, const char *role, uint32_t rank,
                               struct weft_arguments *arguments);

/* True when this child of ours is stopped: it would not hear a SIGTERM before a SIGCONT. Those that run
 * get none: to a process that is just coming up or going down it is one more signal to trip over. */
bool weft_process_is_stopped(pid_t pid);

/* One line about how it ended: "was killed by signal 9 (Killed)". */
void weft_process_ending(const struct weft_process *process, char *text, size_t bytes);

#endif
