/* How `weft server` and `weft worker` find out who they are and join their job: the launch
 * environment (job/launch.h) and the coordinator (io/member_thread.h), with the options for both.
 */
#ifndef WEFT_CLI_MEMBERSHIP_H
#define WEFT_CLI_MEMBERSHIP_H

#include "cli/carrier.h"
#include "cli/security.h"
#include "io/member_thread.h"
#include "job/launch.h"

struct weft_membership {
    const char *scheduler; /* --scheduler; NULL = not given */
    uint32_t patience_s;
    struct weft_launch launch;    /* after weft_membership_detect */
    const struct weft_security *security;
    struct weft_carrier carrier;
    struct weft_provider *provider; /* the member thread's */
    struct weft_member_thread *thread; /* after weft_membership_join; NULL = there is no coordinator */
};

#define WEFT_MEMBERSHIP_DEFAULTS {.patience_s = 60}

/* Rows of an option table. */
#define WEFT_MEMBERSHIP_OPTIONS(membership)                                                        \
    {"scheduler", "HOST:PORT", "the coordinator, `weft scheduler`: who is in the job, and where\n" \
     "the shards are", WEFT_OPTION_STRING, .value = &(membership)->scheduler,                      \
     .fallback = "WEFT_SCHEDULER, or as the launcher says"},                                       \
    {"start-timeout", "S", "seconds to wait for the coordinator and for all that are missing",     \
     WEFT_OPTION_U32, .value = &(membership)->patience_s, .min = 1, .max = 86400}

/* Find out who this process is: flags first, then the environment; one line on standard error when
 * the environment said something. flags.coordinator_* are filled in from --scheduler.
 *
 * environment: false = flags alone count.
 * Returns WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_membership_detect(struct weft_membership *membership, const struct weft_command *command,
                           const struct weft_launch *flags, uint32_t shards_per_server,
                           bool environment);

/* Is there a coordinator to join? */
bool weft_membership_has_coordinator(const struct weft_membership *membership);

/* Register and wait for the lease, or also for all shards. first, span: of a server, else NONE, 0.
 *
 * Owns:    borrows security, loaded, until weft_membership_leave, which is due also after an error.
 * Errors:  as weft_member_thread_wait. */
weft_status weft_membership_join(struct weft_membership *membership,
                                 const struct weft_security *security,
                                 const struct weft_carrier *carrier, uint32_t first, uint32_t span,
                                 enum weft_member_wait what, bool (*stop)(void),
                                 struct weft_member_state *state_p, struct weft_io_error *error);

/* A membership that never joined is fine. */
void weft_membership_leave(struct weft_membership *membership, bool done);

#endif
