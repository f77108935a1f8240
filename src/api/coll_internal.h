/* What the files of <weft/coll.h> share. Not for anyone outside src/api.
 *
 *   coll_config.c  the structs that callers fill: defaults, growth, ranges
 *   coll.c         open, join, operations
 */
#ifndef WEFT_API_COLL_INTERNAL_H
#define WEFT_API_COLL_INTERNAL_H

#include "api/internal.h"
#include "node/coll_thread.h"

#include <weft/coll.h>

/* The thread's configuration for a caller's, but security. Errors: WEFT_INVALID, WEFT_UNSUPPORTED. */
weft_status weft_api_comm_config_read(const struct weft_comm_config *theirs,
                                      struct weft_comm_config *ours_p,
                                      struct weft_coll_thread_config *thread_p,
                                      struct weft_error *error);

/* A caller's operation, of any age. WEFT_INVALID: it was not made by its _init function. */
weft_status weft_api_comm_op_read(const struct weft_comm_op *theirs, struct weft_comm_op *ours_p,
                                  struct weft_error *error);

#endif
