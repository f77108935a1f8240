/* A shard thread that is a replica: the connection to the shard that it replicates, made anew when it
 * ends, and the replica behind it (ps/replica.h) with its memory.
 *
 * When the connection ends, what there is stays: it may be promoted for as long as the lease says. A
 * connection that comes anew begins with nothing, so the shard is made anew, too: the caller does that
 * when weft_standby_is_spent says so.
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
/* The endpoint has been closed, or the connection is over. NULL is fine. */
void weft_standby_free(struct weft_standby *standby);

/* Every event of the endpoint. Before weft_standby_end it takes all of them; then false: the event is
 * the shard's. */
bool weft_standby_event(struct weft_standby *standby, const struct weft_msg_event *event,
                        uint64_t now_ns);
void weft_standby_progress(struct weft_standby *standby, uint64_t now_ns);

/* Between two steps of the driver: connects. Returns when it has to be called again. */
uint64_t weft_standby_maintain(struct weft_standby *standby, uint64_t now_ns);

/* There is another connection than the one that the shard's contents came over. */
bool weft_standby_is_spent(const struct weft_standby *standby);
/* It begins again over that, with a new shard. Errors: WEFT_NOMEM: there is no replica any more. */
weft_status weft_standby_renew(struct weft_standby *standby, struct weft_shard *shard,
                               uint64_t now_ns);

/* NULL while there is none, for want of memory. */
const struct weft_replica *weft_standby_replica(const struct weft_standby *standby);

/* May the shard serve in the place of the one that it replicates, which has told nobody anything since
 * at_ns? */
enum weft_replica_why weft_standby_may_end(const struct weft_standby *standby, uint64_t at_ns);
/* The shard is to serve from now on. WEFT_REPLICA_GOOD: it does, and the connection is closed. */
enum weft_replica_why weft_standby_end(struct weft_standby *standby, uint64_t at_ns);
bool weft_standby_has_ended(const struct weft_standby *standby);

#endif
