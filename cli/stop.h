/* Being asked to end: SIGINT, SIGTERM or SIGHUP sets a flag, and a sleeping socket is woken.
 *
 * For the verbs that run one thread; those that sleep in poll read the signals from a descriptor.
 * `weft train` and `weft run` get them from their supervisor (job/supervisor.h).
 */
#ifndef WEFT_CLI_STOP_H
#define WEFT_CLI_STOP_H

#include "io/driver.h"

#include <stdbool.h>

/* Call once. A SIGINT that is ignored (a child of `weft train`) stays ignored. */
void weft_stop_install(void);

/* Wake this transport when asked; NULL = none. */
void weft_stop_wakes(struct weft_driver *driver);

bool weft_stop_asked(void);

/* Block SIGINT, SIGTERM, SIGHUP and one more (0 = none), in this thread and those that it starts, and
 * give a descriptor that is readable when one came; < 0: refused. */
int weft_stop_fd(int more);

#endif
