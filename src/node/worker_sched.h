/* A worker's updates and the transfer scheduler: what the client asks for (ps/update.h) goes to the
 * daemon of a link (node/sched_link.h), what that answers to the client. Inside of node/worker.
 *
 * The client keeps several updates, the daemon asks for one at a time: the others wait here, the lowest
 * clock first. What cannot be asked for goes direct.
 *
 * Thread: the worker's.
 */
#ifndef WEFT_NODE_WORKER_SCHED_H
#define WEFT_NODE_WORKER_SCHED_H

#include "node/worker.h"

struct weft_worker_sched;

/* Errors:  as weft_sched_link_new. */
weft_status weft_worker_sched_new(const struct weft_worker_config *config, struct weft_msgr msgr,
                                  struct weft_worker_sched **sched_p);
/* After the endpoint. NULL is fine. */
void weft_worker_sched_free(struct weft_worker_sched *sched);

/* True: it was of the scheduler's connection, and nobody else's. */
bool weft_worker_sched_event(struct weft_worker_sched *sched, const struct weft_msg_event *event,
                             uint64_t now_ns);

/* After weft_ps_client_progress. */
void weft_worker_sched_progress(struct weft_worker_sched *sched, struct weft_ps_client *client,
                                uint64_t now_ns);

/* Before a step: connect if that is due, make progress. Returns how long a sleep may last. */
uint64_t weft_worker_sched_maintain(struct weft_worker_sched *sched, struct weft_worker *worker);

const struct weft_sched_daemon_counters *
weft_worker_sched_counters(const struct weft_worker_sched *sched);

#endif
