/* Shared by the files of <weft/coll.h>. Internal to src/api.
 *
 *   coll_config.c  the structs that callers fill: defaults, growth, ranges
 *   coll.c         open, join, operations
 */
#ifndef WEFT_API_COLL_INTERNAL_H
#define WEFT_API_COLL_INTERNAL_H

#include "api/internal.h"
#include "io/resolve.h"
#include "node/coll_thread.h"

#include <weft/coll.h>

/* Addresses that the thread's configuration borrows. */
struct weft_api_comm_box {
    char host[WEFT_RESOLVE_TEXT_BYTES];
    char own_host[WEFT_RESOLVE_TEXT_BYTES];
};

/* Convert a caller's configuration to the thread's, except security.
 * Owns:    *thread_p borrows room, if there is an aggregation box: keep it until the thread has
 *          started.
 * Errors:  WEFT_INVALID, WEFT_UNSUPPORTED; WEFT_NOTFOUND  the box's name has no address. */
weft_status weft_api_comm_config_read(const struct weft_comm_config *theirs,
                                      struct weft_comm_config *ours_p,
                                      struct weft_coll_thread_config *thread_p,
                                      struct weft_api_comm_box *room, struct weft_error *error);

/* Read a caller's operation, of any release. WEFT_INVALID: it was not set by its _init function. */
weft_status weft_api_comm_op_read(const struct weft_comm_op *theirs, struct weft_comm_op *ours_p,
                                  struct weft_error *error);

#endif
