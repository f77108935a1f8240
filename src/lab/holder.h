/* Makes a lab and keeps it: the holder process.
 *
 * The holder is process 1 of a PID namespace and has a mount namespace of its own; the networks of
 * hosts and routers are named in a file system that only it and its members see. So nothing of a lab
 * is visible or left anywhere else: no entry in /run/netns, no interface, rule or queue in the
 * machine's network, and no clean-up code that a kill -9 could skip. What a lab touches outside its
 * namespaces is /run/weft/lab (lab/registry.h) and nothing else.
 */
#ifndef WEFT_LAB_HOLDER_H
#define WEFT_LAB_HOLDER_H

#include "lab/spec.h"
#include "lab/trace.h"

#include <stdbool.h>

struct weft_lab_start {
    const struct weft_lab_spec *spec;
    const struct weft_lab_trace *trace; /* what spec->trace holds; NULL = none */
    bool tied;   /* the lab ends when the calling process ends; its words go to our standard error */
    int stop_fd; /* readable = give up and undo (a signalfd); -1 = none */
};

/* Make the lab, prove that it works and enter it in the registry; or leave nothing.
 *
 * Owns:    borrows all of start until return. The holder is a child of the caller.
 * Errors:  WEFT_EXISTS       the name is taken.
 *          WEFT_UNSUPPORTED  a program or a feature is missing; the text says which.
 *          WEFT_TIMEOUT      the network was made and did not work.
 *          WEFT_STATE        stop_fd was readable.
 *          WEFT_IO           not root, or a step was refused.
 * Thread:  the process has one thread. */
[[nodiscard]] weft_status weft_lab_start(const struct weft_lab_start *start,
                                         struct weft_lab_info *info_p, struct weft_error *error);

/* End the lab and wait until all of its processes are gone.
 *
 * Errors:  WEFT_IO  not root, or the holder does not end. */
[[nodiscard]] weft_status weft_lab_end(const struct weft_lab_info *info, struct weft_error *error);

#endif
