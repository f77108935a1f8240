/* Background traffic as a permanent member of a lab (`weft lab up --background`). */
#ifndef WEFT_LAB_BACKGROUND_MEMBER_H
#define WEFT_LAB_BACKGROUND_MEMBER_H

#include "lab/spec.h"

/* Start the process for spec->background (*pid_p; 0 if there is none). Returns when its sinks
 * listen on all hosts. It runs until the lab ends, and its statistics are not kept: to get
 * statistics, run `weft lab background`.
 *
 * Errors:  those of weft_background_parse and weft_background_run.
 * Thread:  the holder, once the networks are made. */
[[nodiscard]] weft_status weft_lab_background_start(const struct weft_lab_spec *spec, pid_t *pid_p,
                                                    struct weft_error *error);

#endif
