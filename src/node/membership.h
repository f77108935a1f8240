/* How a process joins its job: a member thread (io/member_thread.h) registers with the coordinator
 * that the launch environment (job/launch.h), the program or an option names. The coordinator gives
 * a worker its rank, the number of workers and the servers, and later the new address of a server
 * that moved.
 */
#ifndef WEFT_NODE_MEMBERSHIP_H
#define WEFT_NODE_MEMBERSHIP_H

#include "io/member_thread.h"
#include "job/launch.h"
#include "node/security.h"
#include "node/transport_options.h"

struct weft_membership {
    const char *coordinator;   /* option; NULL = not given */
    uint32_t patience_s;       /* option */
    struct weft_launch launch; /* coordinator_port 0 = no coordinator */
    const struct weft_security *security;
    struct weft_provider *provider;    /* the member thread's */
    struct weft_member_thread *thread; /* NULL = not joined */
};

#define WEFT_MEMBERSHIP_DEFAULTS {.patience_s = 60}

bool weft_membership_has_coordinator(const struct weft_membership *membership);

struct weft_membership_join {
    const struct weft_security *security; /* loaded */
    const struct weft_transport_options *transport;
    uint32_t first;     /* server: its first shard; else WEFT_MEMBER_NONE */
    uint32_t span;      /* server: number of shards; 0 = a worker or an aggregator */
    bool is_aggregator;
    uint32_t number;       /* of the aggregator */
    const char *rack;      /* the rack or host of a worker or an aggregator; NULL = not given */
    bool wants_aggregator; /* worker: it requests an aggregator */
    enum weft_member_wait what;
    uint64_t patience_ns;
    bool (*stop)(void); /* NULL = the wait is not interruptible */
};

/* Register and wait for the lease, or also for all shards.
 *
 * Owns:    borrows join->security until weft_membership_leave, which must be called also after an
 *          error.
 * Errors:  as weft_member_thread_wait. */
weft_status weft_membership_join(struct weft_membership *membership,
                                 const struct weft_membership_join *join,
                                 struct weft_member_state *state_p, struct weft_error *error);

/* The current address of a shard. False: not joined, or the coordinator does not know all
 * `shards`. */
bool weft_membership_locate(struct weft_membership *membership, uint32_t shard, uint32_t shards,
                            struct weft_launch_address *address_p);

/* The current address of this worker's aggregator for a shard. False: there is none, or it does not
 * have this many shards. */
bool weft_membership_aggregator(struct weft_membership *membership, uint32_t shard, uint32_t shards,
                                struct weft_launch_address *address_p);

/* done: the work is finished. A membership that never joined is allowed. */
void weft_membership_leave(struct weft_membership *membership, bool done);

#endif
