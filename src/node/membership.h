/* How a process joins its job: the coordinator that the launch environment (job/launch.h) or its user
 * names, asked by a thread of its own (io/member_thread.h).
 */
#ifndef WEFT_NODE_MEMBERSHIP_H
#define WEFT_NODE_MEMBERSHIP_H

#include "io/member_thread.h"
#include "job/launch.h"
#include "node/security.h"
#include "node/transport_options.h"

struct weft_membership {
    const char *scheduler; /* --scheduler; NULL = not given */
    uint32_t patience_s;
    struct weft_launch launch;    /* after weft_membership_detect */
    const struct weft_security *security;
    struct weft_transport_options transport;
    struct weft_provider *provider; /* the member thread's */
    struct weft_member_thread *thread; /* after weft_membership_join; NULL = there is no coordinator */
};

#define WEFT_MEMBERSHIP_DEFAULTS {.patience_s = 60}

/* Is there a coordinator to join? */
bool weft_membership_has_coordinator(const struct weft_membership *membership);

/* Register and wait for the lease, or also for all shards. first, span: of a server, else NONE, 0.
 *
 * Owns:    borrows security, loaded, until weft_membership_leave, which is due also after an error.
 * Errors:  as weft_member_thread_wait. */
weft_status weft_membership_join(struct weft_membership *membership,
                                 const struct weft_security *security,
                                 const struct weft_transport_options *transport, uint32_t first, uint32_t span,
                                 enum weft_member_wait what, bool (*stop)(void),
                                 struct weft_member_state *state_p, struct weft_io_error *error);

/* A membership that never joined is fine. */
void weft_membership_leave(struct weft_membership *membership, bool done);

#endif
