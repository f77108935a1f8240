/* A worker's or shard's side of the scheduler protocol: it reports its state and receives plans.
 *
 * A worker requests each update. The reply is a set of grants, a drop, or DIRECT: send without a
 * grant. The wait is always bounded. The reply is DIRECT, with a rate that gives every worker an
 * equal share of the link, if
 *  - the scheduler has not replied within silent_ns, neither with a decision nor with "waiting";
 *  - it replied "waiting" but has not decided within 30 times silent_ns; or
 *  - it is not connected.
 * When the scheduler replies again, the next update is requested again. A shard reports the updates
 * that it closed, and repeats the report until the scheduler has acknowledged it. It keeps at most
 * EVENTS_KEPT events and discards the oldest.
 *
 * No I/O and no clock. There is one connection at a time; the driver opens and reopens it.
 * Messages may be lost, duplicated or reordered (wire.h). Each update gets one reply. Later grants
 * of the update replace earlier ones.
 *
 *     weft_sched_daemon_connected / _disconnected;     weft_sched_daemon_plan for each message
 *     worker:  _ask; while (_answer) ...;  _delivered, _ended
 *              if (_reads_wait) _read, and read when _may_read; _read_over
 *     shard:   _counts, _committed
 *     while (weft_sched_daemon_poll(daemon, now, &report)) pack and send;   and at _deadline
 *
 * Thread:  one.   Source: docs/PROTOCOL.md section 13; docs/SCHEDULER.md.
 */
#ifndef WEFT_SCHED_DAEMON_H
#define WEFT_SCHED_DAEMON_H

#include "sched/wire.h"

struct weft_sched_daemon;

enum { WEFT_SCHED_EVENTS_KEPT = 4096 };

struct weft_sched_daemon_config {
    enum weft_sched_role role;
    uint32_t index;
    uint32_t workers; /* number of workers of the job; a shard: 0 = unknown */
    uint32_t shards;
    enum weft_sched_mode mode; /* worker */
    uint64_t tau_max;          /* worker; WEFT_NEVER = none */
    uint64_t up_bps;           /* rates of this host's links; 0 = unknown */
    uint64_t down_bps;
    uint64_t host; /* shard */
    char job[WEFT_SCHED_JOB_BYTES];
    uint64_t silent_ns;
    uint64_t heartbeat_ns;
};

/* Defaults: no bound, timeout 1 s (silent_ns), a report every 200 ms. */
void weft_sched_daemon_config_default(struct weft_sched_daemon_config *config_p);

/* Errors:  WEFT_INVALID  role, index, workers or shards is out of range.   WEFT_NOMEM. */
weft_status weft_sched_daemon_new(const struct weft_sched_daemon_config *config,
                                  struct weft_sched_daemon **daemon_p);
void weft_sched_daemon_free(struct weft_sched_daemon *daemon);

void weft_sched_daemon_connected(struct weft_sched_daemon *daemon, uint64_t now_ns);
void weft_sched_daemon_disconnected(struct weft_sched_daemon *daemon);

/* Process a message from the scheduler. Returns false, with nothing changed, if the message was
 * refused or is not newer than the last. */
bool weft_sched_daemon_plan(struct weft_sched_daemon *daemon, const uint8_t *bytes, size_t count,
                            uint64_t now_ns);

/* Get the next report that is due; false = none. If the driver cannot send it, it calls
 * weft_sched_daemon_unsent and discards the report. */
bool weft_sched_daemon_poll(struct weft_sched_daemon *daemon, uint64_t now_ns,
                            struct weft_sched_report *report_p);
void weft_sched_daemon_unsent(struct weft_sched_daemon *daemon);

/* Time at which _poll or _answer may have output without a received message; WEFT_NEVER = none. */
uint64_t weft_sched_daemon_deadline(const struct weft_sched_daemon *daemon);

/* The same, for _answer only. */
uint64_t weft_sched_daemon_silence(const struct weft_sched_daemon *daemon);

/* ---- a worker -------------------------------------------------------------------------------- */

/* Request an update. Its clock must be later than those of all earlier requests. The previous
 * update should have ended; otherwise it is discarded.
 * Shape:   shares (shards,), borrowed until return; the sum of their bytes must not be 0.
 * Units:   norm finite, >= 0. */
void weft_sched_daemon_ask(struct weft_sched_daemon *daemon, uint64_t clock, double norm,
                           const struct weft_sched_share *shares, uint64_t now_ns);

enum weft_sched_answer_kind { WEFT_SCHED_SEND, WEFT_SCHED_DROP, WEFT_SCHED_SEND_DIRECT };

struct weft_sched_answer {
    enum weft_sched_answer_kind kind;
    uint64_t clock;
    uint32_t shard;    /* SEND */
    uint32_t rank;     /* SEND */
    uint64_t start_ns; /* SEND; on the clock of now_ns */
    uint32_t hop;      /* SEND, equal for all shards: 0 = to the shard, else to aggregator hop -
                        * 1 */
    uint32_t group;    /* with a hop: the id (not 0) of the sum that contains this update, and the
                        * number of updates in it that have bytes for this shard */
    uint32_t members;
    uint64_t rate_bps; /* SEND: not 0; SEND_DIRECT: to each shard, 0 = unlimited */
    uint8_t why;       /* DROP: enum weft_planner_drop */
};

/* Get the next part of the reply. A later SEND for the same shard replaces the earlier one. */
bool weft_sched_daemon_answer(struct weft_sched_daemon *daemon, uint64_t now_ns,
                              struct weft_sched_answer *answer_p);

/* True if reads need an admission: the scheduler replies, and its last plan requires it. */
bool weft_sched_daemon_reads_wait(const struct weft_sched_daemon *daemon);

/* Request to read the model for the update of this clock, not 0. The previous read ends. No effect
 * if this read is already requested or begun. */
void weft_sched_daemon_read(struct weft_sched_daemon *daemon, uint64_t clock, uint64_t now_ns);

/* Returns true, once for each request, when the read may begin: it was admitted, reads need no
 * admission any more, or the scheduler has not admitted it within 30 times silent_ns. */
bool weft_sched_daemon_may_read(struct weft_sched_daemon *daemon, uint64_t now_ns);

/* The update for which this worker has read has ended, by any path. */
void weft_sched_daemon_read_over(struct weft_sched_daemon *daemon);

/* Set the aggregators known to this worker, and those of them that accept its pushes (bit a:
 * aggregator a). Call again on each change. */
void weft_sched_daemon_aggregators(struct weft_sched_daemon *daemon, uint32_t count,
                                   uint32_t reached);

/* A shard has confirmed its share, whose transfer took span_ns, or the aggregator has received it;
 * with weft_sched_daemon_ended: the update has ended. */
void weft_sched_daemon_delivered(struct weft_sched_daemon *daemon, uint32_t shard,
                                 uint64_t span_ns);
void weft_sched_daemon_ended(struct weft_sched_daemon *daemon);

/* ---- a shard --------------------------------------------------------------------------------- */

void weft_sched_daemon_counts(struct weft_sched_daemon *daemon, uint64_t opened, uint64_t closed);
void weft_sched_daemon_committed(struct weft_sched_daemon *daemon,
                                 const struct weft_sched_event *event);
/* The transfer to the replica (ps/transfer.h): number 0 = none; waits: it waits for a grant, else
 * it has begun. bytes: > 0 if there is one. Call again on each change. */
void weft_sched_daemon_transfer(struct weft_sched_daemon *daemon, uint32_t number, bool waits,
                                uint64_t bytes, uint64_t now_ns);
/* Returns true, once for each transfer, when the one that waits may begin: it was granted, there is
 * no scheduler, or the scheduler has not granted it within silent_ns. */
bool weft_sched_daemon_may_transfer(struct weft_sched_daemon *daemon, uint64_t now_ns);
/* True if the scheduler has not acknowledged all committed updates. */
bool weft_sched_daemon_has_news(const struct weft_sched_daemon *daemon);

/* ---- counters -------------------------------------------------------------------------------- */

struct weft_sched_daemon_counters {
    uint64_t asked;
    uint64_t granted;
    uint64_t dropped;
    uint64_t direct;        /* updates sent without a grant: the scheduler did not reply or did not
                             * plan them */
    uint64_t timeouts;      /* timeouts of the scheduler */
    uint64_t wait_ns;       /* from request to reply, over all updates */
    uint64_t reads_waited;  /* reads requested */
    uint64_t reads_direct;  /* of these, begun without an admission */
    uint64_t reads_wait_ns; /* from request to begin, over all reads */
    uint64_t plans_refused; /* malformed, duplicate or reordered plans */
    uint64_t events_lost;   /* shard: events discarded before the scheduler acknowledged them */
    uint64_t transfers;     /* shard: transfers that waited for a grant */
    uint64_t transfers_direct; /* of these, begun without one */
};

const struct weft_sched_daemon_counters *
weft_sched_daemon_counters(const struct weft_sched_daemon *daemon);

/* The last status received from the scheduler, for a message to the user. */
uint16_t weft_sched_daemon_status(const struct weft_sched_daemon *daemon);

#endif
