/* A worker's updates and the transfer scheduler: requests of the client (ps/update.h) are passed to
 * the daemon of a link (node/sched_link.h), and its grants to the client. Internal to node/worker.
 *
 * The client has several updates, the daemon requests one at a time: the others wait here, the
 * lowest clock first. Updates that cannot be requested are sent without a grant.
 *
 * Reads wait for admission if the scheduler requires it.
 *
 * Thread: the worker's. */
#ifndef WEFT_NODE_WORKER_SCHED_H
#define WEFT_NODE_WORKER_SCHED_H

#include "node/worker.h"

struct weft_worker_sched;

/* Errors:  as weft_sched_link_new. */
weft_status weft_worker_sched_new(const struct weft_worker_config *config, struct weft_msgr msgr,
                                  struct weft_worker_sched **sched_p);
/* Call after the endpoint was closed. NULL is allowed. */
void weft_worker_sched_free(struct weft_worker_sched *sched);

/* True: the event belongs to the scheduler's connection, and was consumed. */
bool weft_worker_sched_event(struct weft_worker_sched *sched, const struct weft_msg_event *event,
                             uint64_t now_ns);

/* Call after weft_ps_client_progress. */
void weft_worker_sched_progress(struct weft_worker_sched *sched, struct weft_ps_client *client,
                                uint64_t now_ns);

/* Call before a step: connect if that is due, make progress. Returns how long the step may
 * sleep. */
uint64_t weft_worker_sched_maintain(struct weft_worker_sched *sched, struct weft_worker *worker);

const struct weft_sched_daemon_counters *
weft_worker_sched_counters(const struct weft_worker_sched *sched);

#endif
