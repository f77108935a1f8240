/* A worker's or a shard's side of the scheduler: says what it has, and hears what to do.
 *
 * A worker asks for each update and is answered: grants, a drop, or to send it without a grant. It
 * never waits without limit: when the scheduler has not answered for silent_ns, has not said within it that
 * the update waits for its turn, has said so and not decided for 30 times as long, or is not connected, the
 * answer is DIRECT, at a rate that leaves every worker its share; when the scheduler speaks again,
 * the next update is asked for again. A shard says which updates it has closed, again and again
 * until the scheduler has taken that; of more than EVENTS_KEPT the oldest are forgotten.
 *
 * Pure: one connection at a time, which the driver makes and makes again; messages may be lost,
 * repeated and overtaken (wire.h). An update is answered once; of its grants later ones replace
 * earlier ones.
 *
 *     weft_sched_daemon_connected / _disconnected;     weft_sched_daemon_plan for each message
 *     worker:  _ask; while (_answer) ...;  _delivered, _ended
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
    uint32_t workers; /* of the job; a shard: 0 = it does not know */
    uint32_t shards;
    enum weft_sched_mode mode; /* worker */
    uint64_t tau_max;          /* worker; WEFT_NEVER = none */
    uint64_t up_bps;           /* of this host's links; 0 = not known */
    uint64_t down_bps;
    uint64_t host; /* shard */
    char job[WEFT_SCHED_JOB_BYTES];
    uint64_t silent_ns;
    uint64_t heartbeat_ns;
};

/* Defaults: no bound, silent after 1 s, a report every 200 ms. */
void weft_sched_daemon_config_default(struct weft_sched_daemon_config *config_p);

/* Errors:  WEFT_INVALID  role, index, workers or shards is out of range.   WEFT_NOMEM. */
weft_status weft_sched_daemon_new(const struct weft_sched_daemon_config *config,
                                  struct weft_sched_daemon **daemon_p);
void weft_sched_daemon_free(struct weft_sched_daemon *daemon);

void weft_sched_daemon_connected(struct weft_sched_daemon *daemon, uint64_t now_ns);
void weft_sched_daemon_disconnected(struct weft_sched_daemon *daemon);

/* A message of the scheduler. False: it was refused or is not new, and nothing changed. */
bool weft_sched_daemon_plan(struct weft_sched_daemon *daemon, const uint8_t *bytes, size_t count,
                            uint64_t now_ns);

/* The next report that is due; false = none. The driver sends it as it can: one that it cannot send
 * it may forget, after weft_sched_daemon_unsent. */
bool weft_sched_daemon_poll(struct weft_sched_daemon *daemon, uint64_t now_ns,
                            struct weft_sched_report *report_p);
void weft_sched_daemon_unsent(struct weft_sched_daemon *daemon);

/* When _poll or _answer has something to say though nothing was received; WEFT_NEVER = no time. */
uint64_t weft_sched_daemon_deadline(const struct weft_sched_daemon *daemon);

/* The same of _answer alone. */
uint64_t weft_sched_daemon_silence(const struct weft_sched_daemon *daemon);

/* ---- a worker -------------------------------------------------------------------------------- */

/* Ask for an update, of a later clock than all before. The former is forgotten; it should be over.
 * Shape:   shares (shards,), borrowed until return; not all of 0 bytes.
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
    uint32_t hop;      /* SEND, of all shards alike: 0 = to the shard, else to aggregator hop - 1 */
    uint32_t group;    /* with a hop: the sum that it is to be in, not 0; and how many are in it */
    uint32_t members;
    uint64_t rate_bps; /* SEND: not 0; SEND_DIRECT: to each shard, 0 = not limited */
    uint8_t why;       /* DROP: enum weft_planner_drop */
};

/* The next part of the answer. SEND may come again for a shard; it then replaces what was said. */
bool weft_sched_daemon_answer(struct weft_sched_daemon *daemon, uint64_t now_ns,
                              struct weft_sched_answer *answer_p);

/* Aggregators that this worker was told of, and those of them that take its pushes (bit a: the one with
 * number a). Said again when it changes. */
void weft_sched_daemon_aggregators(struct weft_sched_daemon *daemon, uint32_t count,
                                   uint32_t reached);

/* A shard has confirmed its share, which took span_ns, or the aggregator has it; the update is over. */
void weft_sched_daemon_delivered(struct weft_sched_daemon *daemon, uint32_t shard,
                                 uint64_t span_ns);
void weft_sched_daemon_ended(struct weft_sched_daemon *daemon);

/* ---- a shard --------------------------------------------------------------------------------- */

void weft_sched_daemon_counts(struct weft_sched_daemon *daemon, uint64_t opened, uint64_t closed);
void weft_sched_daemon_committed(struct weft_sched_daemon *daemon,
                                 const struct weft_sched_event *event);
/* Of what was committed the scheduler has not said that it has all. */
bool weft_sched_daemon_has_news(const struct weft_sched_daemon *daemon);

/* ---- figures --------------------------------------------------------------------------------- */

struct weft_sched_daemon_counters {
    uint64_t asked;
    uint64_t granted;
    uint64_t dropped;
    uint64_t direct;        /* sent without a grant: the scheduler was silent or did not plan it */
    uint64_t silences;      /* times that the scheduler was found silent */
    uint64_t wait_ns;       /* from asking to the answer, over all updates */
    uint64_t plans_refused; /* malformed, repeated, or overtaken */
    uint64_t events_lost;   /* shard: forgotten before the scheduler had taken them */
};

const struct weft_sched_daemon_counters *
weft_sched_daemon_counters(const struct weft_sched_daemon *daemon);

/* The last status that the scheduler told, for a message to a person. */
uint16_t weft_sched_daemon_status(const struct weft_sched_daemon *daemon);

#endif
