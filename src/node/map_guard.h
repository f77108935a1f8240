/* A guard for mapped files whose pages may fail. When the disk is full, or a page cannot be read, a
 * store into the mapping does not return an error but raises SIGBUS.
 *
 * In a guarded region the handler then replaces the file mapping with anonymous memory, and sets a
 * flag. The store is repeated, into memory that is never read, and the owner of the region finds
 * the flag at its next check. A SIGBUS anywhere else is passed to the previous handler.
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

/* Guard the pages [memory, memory + bytes). Installs the handler if it is not installed.
 * Owns:    gives *guard_p, to be ended with weft_map_guard_remove before the region is unmapped.
 * Errors:  WEFT_IO  no handler could be installed, or too many regions: errno says which. */
weft_status weft_map_guard_add(void *memory, size_t bytes, struct weft_map_guard **guard_p);

/* True: a page has failed. */
bool weft_map_guard_failed(const struct weft_map_guard *guard);

/* NULL is allowed. */
void weft_map_guard_remove(struct weft_map_guard *guard);

#endif
