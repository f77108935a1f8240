/* The connection of a worker or a shard to the transfer scheduler: a daemon (sched/daemon.h) on the
 * message interface that also carries the process's data. There is one connection; while it is
 * down, an attempt is made every 100 ms. The owner of the endpoint connects:
 *
 *     before a step: if (weft_sched_link_wants_peer(link, now)) connect to the scheduler, then
 *                    weft_sched_link_connecting(link, peer, now);
 *     for each event: if (weft_sched_link_event(link, &event, now)) the link has consumed it;
 *     after a batch of events, and at _deadline: weft_sched_link_progress(link, now);
 *
 * Without a scheduler the link is NULL, and each call site tests for that.
 *
 * Sans-I/O, one thread.   Source: docs/PROTOCOL.md section 13. */
#ifndef WEFT_NODE_SCHED_LINK_H
#define WEFT_NODE_SCHED_LINK_H

#include "core/msg.h"
#include "sched/daemon.h"

enum {
    WEFT_SCHED_LINK_EXPECTS = 4
}; /* expectations that the link posts; it also needs two more peers: the connection and a spare */

struct weft_sched_link;

/* Errors:  as weft_sched_daemon_new. */
weft_status weft_sched_link_new(const struct weft_sched_daemon_config *config,
                                struct weft_msgr msgr, struct weft_sched_link **link_p);
/* Call after the endpoint was closed, which borrows its memory. NULL is allowed. */
void weft_sched_link_free(struct weft_sched_link *link);

struct weft_sched_daemon *weft_sched_link_daemon(struct weft_sched_link *link);

bool weft_sched_link_wants_peer(const struct weft_sched_link *link, uint64_t now_ns);
/* peer: the new connection; WEFT_PEER_ANY: the attempt could not begin. */
void weft_sched_link_connecting(struct weft_sched_link *link, weft_peer peer, uint64_t now_ns);

/* True: the event belongs to the scheduler's connection, and was consumed. */
bool weft_sched_link_event(struct weft_sched_link *link, const struct weft_msg_event *event,
                           uint64_t now_ns);
void weft_sched_link_progress(struct weft_sched_link *link, uint64_t now_ns);
/* True: the process that was reached last is not a scheduler. */
bool weft_sched_link_is_other(const struct weft_sched_link *link);
/* True while it is connected and reports are not yet delivered: check before the endpoint is
 * closed. */
bool weft_sched_link_is_sending(const struct weft_sched_link *link);
uint64_t weft_sched_link_deadline(const struct weft_sched_link *link);

#endif
