/* Termination by signal: SIGINT, SIGTERM or SIGHUP sets a flag and wakes a blocked socket.
 *
 * For the single-threaded verbs; those that block in poll read signals from a descriptor. `weft
 * train` and `weft run` use their supervisor (job/supervisor.h). */
#ifndef WEFT_CLI_STOP_H
#define WEFT_CLI_STOP_H

#include "io/driver.h"

#include <stdbool.h>

/* Call once. If SIGINT is ignored (in a child of `weft train`), it stays ignored. */
void weft_stop_install(void);

/* Wake this transport on a signal; NULL = none. */
void weft_stop_wakes(struct weft_driver *driver);

bool weft_stop_requested(void);

/* Ignore SIGPIPE: the reader of the output may end first, as `tee` at Ctrl-C, and must not end a
 * program that has work to complete. Lost output is an error at its end (output.h, main.c).
 * Programs started by this one need weft_stop_restore_pipes. */
void weft_stop_ignore_pipes(void);
/* In a child, before exec. */
void weft_stop_restore_pipes(void);

/* True of SIGHUP if it is ignored, as under nohup: this program must survive the end of its
 * terminal. A blocked signal is queued, and read from a descriptor, even if it is ignored; so this
 * one must not be blocked. */
bool weft_stop_survives(int signal);

/* Block SIGINT, SIGTERM, SIGHUP (unless it is ignored) and `more` (0 = none) in this thread and in
 * threads that it starts, and ignore SIGPIPE. Returns a descriptor that is readable when one of
 * them arrives; < 0 on failure. */
int weft_stop_fd(int more);

#endif
