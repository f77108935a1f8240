/* The collectives of a process (coll/coll.h) with a thread of their own: its endpoint, its
 * connections to all other ranks, and the state machine on top. Operations go on while the program
 * computes.
 *
 * Other threads begin operations and wait for them; both are queues under one lock. A thread that
 * waits progresses the endpoint itself (node/leader.h). Memory that an operation needs beyond the
 * caller's buffers is allocated by the leader, and kept for later operations unless it is large.
 *
 * Thread:  start and stop: one. All else: any.
 */
#ifndef WEFT_NODE_COLL_THREAD_H
#define WEFT_NODE_COLL_THREAD_H

#include "coll/box.h"
#include "coll/coll.h"
#include "io/driver.h"
#include "job/launch.h"
#include "node/security.h"
#include "sched/collective.h"

enum {
    WEFT_COLL_THREAD_BUSY_POLL_US = 50, /* the default: a rank waits for its next segment */
    WEFT_COLL_THREAD_LOOPBACK_BYTES = 65000, /* loopback_packet_bytes, the most */
};

struct weft_coll_thread;

/* An aggregation box, through which all_reduce goes while it works (coll/box.h). All values except
 * the addresses must be equal at all ranks. */
struct weft_coll_thread_box {
    const char *host; /* numeric; NULL = no box. Borrowed until start returns, like own_host */
    const char *own_host; /* numeric, to bind */
    uint16_t port;
    uint16_t job;    /* the box's */
    bool floats;     /* the box sums float32; else int32 */
    bool block_floats; /* float32 vectors, as int32 with an exponent for each packet */
    int8_t exponent; /* of the box. Without floats: 0 = int32 vectors; else float32 vectors, in
                      * fixed point */
    uint32_t slots;  /* at most the box's */
    uint64_t bytes_min;
    uint64_t silence_ns;
    uint64_t retry_ns;
};

struct weft_coll_thread_config {
    struct weft_coll_config coll; /* set by start: peers_max, chunks_max */
    struct weft_coll_thread_box box;
    /* Set by start: name, accept, security, peers_max, expects_max, senders_expected. */
    struct weft_driver_config driver;
    const struct weft_security *security; /* loaded; borrowed until stop */
};

struct weft_coll_thread_counters {
    struct weft_coll_counters coll; /* begun and done: those of the caller */
    struct weft_driver_counters driver;
    enum weft_coll_box_state box_state; /* without a box: OFF; also the next two */
    struct weft_coll_box_counters box;
    uint64_t box_packets_resent;
};

/* Keepalive of 0.5 s, messages of up to 65,536 chunks, WEFT_COLL_THREAD_BUSY_POLL_US; no box, but
 * the defaults of coll/box.h for slots, bytes_min, silence_ns and retry_ns; otherwise the defaults
 * of both. The caller sets rank, ranks, epoch and security. */
void weft_coll_thread_config_default(struct weft_coll_thread_config *config_p);

/* Open the socket and start the thread. Ranks connect when join passes them each other's addresses.
 * With a box it sleeps until the next second begins (weft_box_link_epoch_now), and the object makes
 * a group: those of the caller begin at 2.
 *
 * Owns:    gives *thread_p, to be ended by weft_coll_thread_stop.
 * Errors:  as weft_security_arm, weft_driver_open, weft_coll_new, weft_box_link_open; WEFT_IO  no
 *          thread.
 *          error->text has the reason. */
weft_status weft_coll_thread_start(const struct weft_coll_thread_config *config,
                                   struct weft_coll_thread **thread_p, struct weft_error *error);

/* The port bound. */
uint16_t weft_coll_thread_port(const struct weft_coll_thread *thread);

/* Connect to all other ranks, and wait for the connections.
 *
 * Shape:   addresses (ranks,); this rank's own is ignored.
 * Errors:  WEFT_TIMEOUT  not in time: the text names the missing ranks. Call again, or give up.
 *          WEFT_PEER     a rank refused, or it has failed since; the text says which and why.
 *          WEFT_STATE    another thread is joining.   Others as weft_driver_connect. */
weft_status weft_coll_thread_join(struct weft_coll_thread *thread,
                                  const struct weft_launch_address *addresses, uint64_t timeout_ns,
                                  struct weft_error *error);

/* As weft_coll_group; operations begun earlier are started first. */
weft_status weft_coll_thread_group(struct weft_coll_thread *thread, const uint32_t *ranks,
                                   uint32_t n, uint32_t *group_p, struct weft_error *error);

/* What this rank wants its group's plan to be, and what it tells the others. */
struct weft_coll_thread_plan {
    uint32_t group;
    bool is_none;                   /* equal slices; also the next two: equal at all ranks */
    enum weft_collective_form form;
    uint64_t bytes;                 /* of the vectors */
    uint64_t up_bps;                /* this and the following: struct weft_collective_rank */
    uint64_t down_bps;
    uint64_t late_ns;
    uint64_t host;
};

struct weft_coll_exchange;

/* Make a plan for the group's all_reduces (coll/plan.h): tell the others this rank's link. All
 * ranks of the group call it, between the same two operations, and begin none until _end.
 *
 * Shape:   n: ranks of the group.
 * Owns:    gives *exchange_p, for _end, or for weft_coll_exchange_free after stop.
 * Errors:  WEFT_INVALID  a value is out of range.
 *          WEFT_STATE    operations are in progress.   WEFT_PEER: it has failed. WEFT_NOMEM. */
weft_status weft_coll_thread_plan_begin(struct weft_coll_thread *thread,
                                        const struct weft_coll_thread_plan *plan, uint32_t n,
                                        uint64_t timeout_ns,
                                        struct weft_coll_exchange **exchange_p,
                                        struct weft_error *error);

/* Wait for the others, make the plan, and use it from the next operation on.
 *
 * Owns:    takes exchange, except on WEFT_TIMEOUT. The arrays of *planned_p belong to the thread,
 *          until the group's next plan.
 * Errors:  WEFT_TIMEOUT  not all ranks have called it by until_ns: the text names the missing ones.
 *                        Call _end again.
 *          WEFT_INVALID  the ranks want different plans, or a rank told an impossible value.
 *          WEFT_PEER     it has failed.   WEFT_STATE, WEFT_NOMEM. */
weft_status weft_coll_thread_plan_end(struct weft_coll_thread *thread,
                                      struct weft_coll_exchange *exchange, uint64_t until_ns,
                                      struct weft_collective_plan *planned_p,
                                      struct weft_error *error);

/* Only after stop, if _end has not taken it. NULL is allowed. */
void weft_coll_exchange_free(struct weft_coll_exchange *exchange);

/* Begin an operation; work and user of the call are ignored. A call that the state machine refuses
 * fails in wait: the caller checks it first (weft_coll_call_check).
 *
 * Owns:    borrows the call's buffers until it has been waited for, or stop.
 * Errors:  WEFT_AGAIN  ops_max operations have begun and were not waited for.
 *          WEFT_PEER   it has failed: weft_coll_thread_failed. */
weft_status weft_coll_thread_begin(struct weft_coll_thread *thread,
                                   const struct weft_coll_call *call, uint64_t *id_p);

#define WEFT_COLL_THREAD_ANY UINT64_MAX

/* Wait until an operation is done, or until until_ns; each is returned once. ANY: the first one
 * done, of those that no thread waits for by id.
 *
 * Errors:  WEFT_TIMEOUT   it is not done.
 *          WEFT_NOTFOUND  there is none with this id: an earlier wait returned it. ANY: none has
 *          begun. */
weft_status weft_coll_thread_wait(struct weft_coll_thread *thread, uint64_t id, uint64_t until_ns,
                                  uint64_t *id_p, struct weft_coll_done *done_p);

/* An eventfd that is readable while an operation is done and not waited for. Do not read or close
 * it; the thread owns it.   Errors:  WEFT_IO  errno says why. */
weft_status weft_coll_thread_fd(struct weft_coll_thread *thread, int *fd_p);

/* Make the collectives fail at all ranks. */
void weft_coll_thread_abort(struct weft_coll_thread *thread, const char *text);

/* True: the collectives have failed. The text is one sentence. */
bool weft_coll_thread_failed(struct weft_coll_thread *thread, char *text_p, size_t bytes);

/* Operations begun and not waited for. */
uint32_t weft_coll_thread_open_ops(struct weft_coll_thread *thread);

void weft_coll_thread_counters(struct weft_coll_thread *thread,
                               struct weft_coll_thread_counters *counters_p);

/* Whether there is a box that is not used, because it has failed. The text is one sentence. */
bool weft_coll_thread_box_failed(struct weft_coll_thread *thread, char *text_p, size_t bytes);

/* CLOSE to all ranks, join the thread, free. Unfinished operations end here, and their buffers are
 * the caller's again. NULL is allowed.
 *
 * No other thread may be in a call, especially not in a wait: a waiting thread may lead, and stop
 * does not end its wait. stop would block until that thread gives up the lead, and then free memory
 * that the thread still uses. So let every wait end first; weft_coll_thread_abort ends those that
 * wait for other ranks. */
void weft_coll_thread_stop(struct weft_coll_thread *thread);

#endif
