/* Being asked to end: SIGINT, SIGTERM or SIGHUP sets a flag, and a sleeping socket is woken.
 *
 * For the verbs that run one thread. `weft train` and `weft run` get signals from their supervisor
 * (job/supervisor.h), `weft server` reads them from a descriptor (server.c).
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

#endif
