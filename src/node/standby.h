/* A shard thread that is a replica: its connection to the replicated shard, which is re-established
 * when it ends, and the replica (ps/replica.h) with its memory.
 *
 * When the connection ends, the contents stay, and may be promoted until the lease expires. A new
 * connection begins a new transfer, so the shard must be recreated, too: the caller does that when
 * weft_standby_is_spent returns true.
 *
 * Thread:  the shard's.
 */
#ifndef WEFT_NODE_STANDBY_H
#define WEFT_NODE_STANDBY_H

#include "io/driver.h"
#include "job/launch.h"
#include "ps/replica.h"

struct weft_standby;

/* Owns:    borrows shard, driver and address; gives *standby_p.
 * Errors:  WEFT_NOMEM, WEFT_INVALID. */
weft_status weft_standby_new(struct weft_driver *driver, struct weft_shard *shard,
                             const struct weft_launch_address *address,
                             void (*supply)(struct weft_shard *shard),
                             struct weft_standby **standby_p);
/* Call after the endpoint was closed, or when the connection is no longer needed. NULL is
 * allowed. */
void weft_standby_free(struct weft_standby *standby);

/* Pass every event of the endpoint here. True: the event is consumed. Before weft_standby_end that
 * is every event; afterwards only those of the replica's connection, and others are the shard's. */
bool weft_standby_event(struct weft_standby *standby, const struct weft_msg_event *event,
                        uint64_t now_ns);
void weft_standby_progress(struct weft_standby *standby, uint64_t now_ns);

/* Call between two steps of the driver: it connects. Returns when to call it again. */
uint64_t weft_standby_maintain(struct weft_standby *standby, uint64_t now_ns);

/* True: a newer connection exists than the one that delivered the shard's contents. */
bool weft_standby_is_spent(const struct weft_standby *standby);
/* Restart over the newer connection, with a new shard. Errors: WEFT_NOMEM: the replica no longer
 * exists. */
weft_status weft_standby_renew(struct weft_standby *standby, struct weft_shard *shard,
                               uint64_t now_ns);

/* NULL while memory for the replica is lacking. */
const struct weft_replica *weft_standby_replica(const struct weft_standby *standby);

/* Check whether this shard may replace the replicated one, which has sent nothing to any worker
 * since at_ns. */
enum weft_replica_why weft_standby_may_end(const struct weft_standby *standby, uint64_t at_ns);
/* Let the shard serve from now on. WEFT_REPLICA_GOOD: it does, and the connection is closed. */
enum weft_replica_why weft_standby_end(struct weft_standby *standby, uint64_t at_ns);
bool weft_standby_has_ended(const struct weft_standby *standby);

#endif
