/* Creates and maintains a lab: the holder process.
 *
 * The holder is process 1 of a PID namespace and has its own mount namespace. The networks of hosts
 * and routers are named in a file system visible only to it and its members. So nothing of a lab is
 * visible or left over elsewhere: no entry in /run/netns, no interface, rule or queue in the
 * machine's network, and no clean-up code that a kill -9 could skip. Outside of its namespaces a
 * lab changes only /run/weft/lab (lab/registry.h).
 */
#ifndef WEFT_LAB_HOLDER_H
#define WEFT_LAB_HOLDER_H

#include "lab/spec.h"
#include "lab/rate_trace.h"

#include <stdbool.h>
#include <sys/types.h>

struct weft_lab_start {
    const struct weft_lab_spec *spec;
    const struct weft_lab_rate_trace *trace; /* content of spec->trace; NULL = none */
    bool tied;   /* the lab ends when the calling process ends; it prints to the caller's
                  * standard error */
    int stop_fd; /* readable = cancel and undo (a signalfd); -1 = none */
    pid_t until_pid; /* the lab ends when this process ends; 0 = none. Not with tied */
};

/* Create the lab, verify that it works and register it. After a failure nothing is left.
 *
 * Owns:    borrows all of start until return. The holder is a child of the caller.
 * Errors:  WEFT_EXISTS       the name is taken.
 *          WEFT_UNSUPPORTED  a program or a feature is missing; the text names it.
 *          WEFT_TIMEOUT      the network was made but did not work.
 *          WEFT_STATE        stop_fd was readable.
 *          WEFT_NOTFOUND     no process has until_pid.
 *          WEFT_IO           not root, or a step failed.
 * Thread:  the process has one thread. */
[[nodiscard]] weft_status weft_lab_start(const struct weft_lab_start *start,
                                         struct weft_lab_info *info_p, struct weft_error *error);

/* End the lab and wait until all of its processes have exited.
 *
 * Errors:  WEFT_IO  not root, or the holder does not exit. */
[[nodiscard]] weft_status weft_lab_end(const struct weft_lab_info *info, struct weft_error *error);

#endif
