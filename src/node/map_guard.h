/* A mapped file whose pages may fail: a store that finds no room on the disk, or a disk that cannot
 * read the page, is no error of a call but a signal, SIGBUS, in the middle of whatever stored.
 *
 * A region that is guarded loses its file then: the handler puts anonymous memory in its place, and
 * sets a flag. The store is done again, into memory that nobody will read, and the owner of the region
 * sees the flag when it looks. A SIGBUS anywhere else goes to the handler that there was before.
 *
 * Thread:  add and remove: one thread for each region, any for different ones. failed: any.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_NODE_MAP_GUARD_H
#define WEFT_NODE_MAP_GUARD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct weft_map_guard; /* one region */

/* Guard the pages [memory, memory + bytes). It installs the handler, if it is not there.
 * Owns:    gives *guard_p, to be ended with weft_map_guard_remove before the region is unmapped.
 * Errors:  WEFT_IO  no handler could be installed, or too many regions: errno says which. */
weft_status weft_map_guard_add(void *memory, size_t bytes, struct weft_map_guard **guard_p);

/* Has a page failed? */
bool weft_map_guard_failed(const struct weft_map_guard *guard);

/* NULL is fine. */
void weft_map_guard_remove(struct weft_map_guard *guard);

#endif
