/* Shared by the files of <weft/coll.h>. Internal to src/api.
 *
 *   coll_config.c  the structs that callers fill: defaults, growth, ranges
 *   coll.c         open, join, operations
 *   coll_plan.c    plans
 */
#ifndef WEFT_API_COLL_INTERNAL_H
#define WEFT_API_COLL_INTERNAL_H

#include "api/internal.h"
#include "io/resolve.h"
#include "node/coll_thread.h"

#include <weft/coll.h>

#include <unistd.h>

/* A group, as seen by this rank. */
struct weft_api_comm_group {
    uint32_t n;
    uint32_t me; /* UINT32_MAX = not a member */
};

struct weft_comm {
    struct weft_coll_thread *thread;
    struct weft_coll_config coll; /* limits for checking calls */
    struct weft_security security;
    uint64_t op_timeout_ns;
    pid_t pid;
    char address[WEFT_LAUNCH_ADDRESS_BYTES + 10];
    bool has_box;
    struct weft_comm_plan first;         /* that join sets; form NONE: none, or it is set */
    struct weft_coll_exchange *exchange; /* of it, in progress */
    uint32_t groups_max;
    struct weft_api_comm_group *group; /* (groups_max,); created before its number is returned */
};

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

/* Begin, or go on with, the plan that the configuration wants; the connections exist.
 * Errors: as weft_comm_plan_set; WEFT_TIMEOUT: call it again. */
weft_status weft_api_comm_plan_first(struct weft_comm *comm, uint64_t until_ns,
                                     struct weft_error *error);

/* The calling thread's error text for weft_comm_error. */
struct weft_error *weft_api_comm_error(void);
weft_status weft_api_comm_forked(void);

#endif
