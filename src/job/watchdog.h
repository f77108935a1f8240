/* The watchdog of a supervisor: a process that ends the job's process groups and removes the job's
 * folder when the supervisor has ended, also after kill -9.
 */
#ifndef WEFT_JOB_WATCHDOG_H
#define WEFT_JOB_WATCHDOG_H

#include "job/supervisor.h"

/* Start it. supervisor->groups and ->policy are read when it acts, so groups must be shared memory.
 * It acts when supervisor->watchdog_fd, which this sets with ->watchdog, is closed.
 *
 * Errors:  WEFT_IO  no pipe or no process: errno has the reason, nothing was started.
 */
weft_status weft_watchdog_start(struct weft_supervisor *supervisor);

#endif
