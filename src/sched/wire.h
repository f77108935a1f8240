/* Messages between the scheduler and the processes of a job: reports and plans.
 *
 * Both contain the whole state, not a change. A REPORT contains the current state of its sender,
 * and a PLAN contains all decisions for its receiver. Each has a number; a message whose number is
 * not above the last is ignored. A message that is lost, duplicated or reordered therefore only
 * costs time. Events of servers are the exception: they are a numbered sequence, resent until a
 * PLAN acknowledges them.
 *
 * This header defines formats only. All input is decoded and checked here with the bounds-checked
 * cursor; a decoder that fails leaves its output unchanged. The service checks the consistency of
 * fields with other state.
 *
 * Times are durations from the arrival of the message, because clocks of different hosts are not
 * comparable.
 *
 * Source: docs/PROTOCOL.md section 13.
 */
#ifndef WEFT_SCHED_WIRE_H
#define WEFT_SCHED_WIRE_H

#include "base/names.h"
#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

enum {
    WEFT_SCHED_ELEM_BYTES = 8, /* of the messages: every length below is a multiple of it */
    WEFT_SCHED_REPORT_BYTES = 120,
    WEFT_SCHED_PLAN_BYTES = 64,
    WEFT_SCHED_SHARE_BYTES = 24,
    WEFT_SCHED_EVENT_BYTES = 56,
    WEFT_SCHED_GRANT_BYTES = 24,
    WEFT_SCHED_SHARDS_MAX = 64,
    WEFT_SCHED_WORKERS_MAX = 2048,
    WEFT_SCHED_START_S_MAX = 60, /* upper bound of the start of a grant, since its receiver waits
                                  * for it */
    WEFT_SCHED_EVENTS_MAX = 64,  /* in one message */
    WEFT_SCHED_AGGREGATORS_MAX = 32,
    WEFT_SCHED_MEMBERS_MAX = 256, /* of a group */
    WEFT_SCHED_JOB_BYTES = WEFT_JOB_NAME_BYTES,
    WEFT_SCHED_REPORT_BYTES_MAX =
        WEFT_SCHED_REPORT_BYTES + WEFT_SCHED_EVENTS_MAX * WEFT_SCHED_EVENT_BYTES,
    WEFT_SCHED_PLAN_BYTES_MAX =
        WEFT_SCHED_PLAN_BYTES + WEFT_SCHED_SHARDS_MAX * WEFT_SCHED_GRANT_BYTES,
};

/* Values of the op byte of the tag; distinct from the ops of the parameter server and the
 * coordinator. */
enum weft_sched_op {
    WEFT_SCHED_REPORT = 48, /* to the scheduler */
    WEFT_SCHED_PLAN = 49,   /* from it */
};

/* Roles, as in an endpoint's name. */
enum weft_sched_role { WEFT_SCHED_SERVER = 1, WEFT_SCHED_WORKER = 2 };

/* Consistency modes, with the values of TABLE. */
enum weft_sched_mode { WEFT_SCHED_BSP = 0, WEFT_SCHED_SSP = 1, WEFT_SCHED_ASP = 2 };

/* A worker's share of an update, for one shard. */
struct weft_sched_share {
    uint64_t bytes;   /* <= 2^40 */
    uint64_t base;    /* number of opened updates of the shard, from the worker's last pull */
    uint64_t span_ns; /* DELIVERED: duration of the transfer; 0 = not delivered */
};

enum {
    WEFT_SCHED_LATE = 0x01
}; /* flag of an event: refused because its delay is above the
    * bound */

/* COMMITTED: an update is closed at a shard. */
struct weft_sched_event {
    uint32_t worker;
    uint8_t flags;
    uint64_t clock;     /* of the update; not 0 */
    double norm;        /* of the applied step; -1 = unknown */
    uint64_t rate_bps;  /* receive rate of the update; 0 = unknown, also for the next two */
    uint64_t alone_bps; /* receive rate while no other update arrived */
    uint64_t all_bps;   /* receive rate of all updates in that time */
    uint32_t members;   /* updates in the sum that contained it, the most if its pushes were in
                         * several, <= MEMBERS_MAX; 0 = in none */
    uint64_t sum_bytes; /* of the messages of these sums, <= 2^40; 0 without members */
};

enum weft_sched_report_flag {
    WEFT_SCHED_SENDING = 0x01, /* worker: the update is being sent, or was; no reply is needed */
    WEFT_SCHED_LEAVE = 0x02,   /* the process ends */
    WEFT_SCHED_READING = 0x04, /* worker: the read was begun, admitted or not; else it waits */
    WEFT_SCHED_TRANSFER_WAITS = 0x08, /* server: the transfer waits for a grant; else it is begun */
};

struct weft_sched_report {
    uint32_t number; /* per connection, from 1 */
    enum weft_sched_role role;
    uint8_t flags;
    uint32_t index;            /* rank or shard */
    uint32_t workers;          /* of the job, 1 .. WORKERS_MAX; 0 = a server that does not know
                                * it */
    uint32_t shards;           /* of the job, 1 .. SHARDS_MAX */
    enum weft_sched_mode mode; /* worker; else 0 */
    uint64_t tau_max;          /* worker: delay bound of the job, WEFT_NEVER = none; else 0 */
    uint64_t up_bps;           /* of the host's links; 0 = unknown */
    uint64_t down_bps;
    char job[WEFT_SCHED_JOB_BYTES]; /* NUL-padded; may be empty */

    /* Worker. */
    uint64_t clock; /* of the update that is requested, or with SENDING sent; 0 = none */
    uint64_t ended; /* last clock whose update has ended, by any path; at most `clock` */
    double norm;    /* of the update */
    uint64_t read;  /* clock of the update for which it waits to read the model, or has read it;
                     * 0 = none, also after the end of that update */
    uint32_t aggregators; /* number of aggregators known to it, <= AGGREGATORS_MAX */
    uint32_t reached;     /* bit a: aggregator a accepts its pushes, for every shard */

    /* Server. */
    uint64_t first;  /* number of events[0], from 1; 0 = none */
    uint64_t opened; /* number of updates that this shard has opened */
    uint64_t closed; /* of these, closed */
    uint64_t host;   /* shards with equal values share links; 0 = it has its own links */
    uint32_t transfer;       /* number of its transfer to its replica, if one waits or is in
                              * progress; else 0 */
    uint64_t transfer_bytes; /* an estimate, <= 2^40; 0 without a transfer */

    uint32_t count; /* worker: shards when clock is not 0, else 0; server: events */
    struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX];
    struct weft_sched_event events[WEFT_SCHED_EVENTS_MAX];
};

/* X(name, description and remedy) */
#define WEFT_SCHED_STATUS_MAP(X)                                                                   \
    X(OK, "planned")                                                                               \
    X(INCOMPLETE, "not all shards have reported yet; updates are sent without a grant")            \
    X(OTHER_JOB, "the scheduler serves a job with a different name")                               \
    X(OTHER_WORKERS, "the job has a different number of workers")                                  \
    X(OTHER_SHARDS, "the job has a different number of shards")                                    \
    X(OTHER_MODE, "the workers of the job have different consistency modes or delay bounds")       \
    X(SUPERSEDED, "another process has replaced this one")

enum weft_sched_status {
#define X(name, text) WEFT_SCHED_##name,
    WEFT_SCHED_STATUS_MAP(X)
#undef X
        WEFT_SCHED_STATUS_COUNT
};

/* Never NULL, for any number. */
const char *weft_sched_status_name(uint16_t status);
const char *weft_sched_status_text(uint16_t status);

/* Verdict on the update that the worker requested last. */
enum weft_sched_verdict {
    WEFT_SCHED_NONE,      /* no request */
    WEFT_SCHED_WAITING,   /* not decided */
    WEFT_SCHED_GRANTED,   /* send according to the grants */
    WEFT_SCHED_DROPPED,   /* do not send; read again */
    WEFT_SCHED_UNPLANNED, /* send without a grant: the scheduler does not plan it */
    WEFT_SCHED_VERDICT_COUNT
};

struct weft_sched_grant {
    uint32_t shard;
    uint32_t rank;    /* number of updates in flight that precede this one */
    uint32_t members; /* with a hop: updates in the sum with bytes for this shard, 1 .. members of
                       * the plan; else 0 */
    uint64_t start_in_ns; /* from the arrival of the message */
    uint64_t rate_bps;    /* not 0 */
};

/* Flags of a plan: reads need an admission; server: its transfer `group` may begin. */
enum { WEFT_SCHED_ADMITS = 0x01, WEFT_SCHED_MAY_TRANSFER = 0x02 };

struct weft_sched_plan {
    uint32_t number; /* per connection, from 1 */
    uint16_t status; /* may be a value that this release does not know */
    uint32_t report; /* largest number of a report received over this connection */
    enum weft_sched_verdict verdict;
    uint8_t why;       /* DROPPED: enum weft_planner_drop */
    uint8_t flags;
    uint64_t life;     /* identifies the scheduler's process; not 0 */
    uint64_t clock;    /* of the update that the verdict is for; 0 = none */
    uint64_t revision; /* of the grants of this update: increases when they change; 0 = no grant */
    uint64_t direct_bps; /* a worker's share of a server's link, for updates without a grant; 0 =
                          * unknown */
    uint64_t taken;      /* server: events up to this number are acknowledged */
    uint64_t admitted;   /* worker: the `read` of its report that may begin; 0 = none. Only with
                          * ADMITS */
    uint32_t hop;        /* GRANTED: 0 = to the servers; else aggregator hop - 1 */
    uint32_t group;      /* with a hop: id of the sum that contains the update, not 0; with
                          * MAY_TRANSFER: number of the transfer; else 0 */
    uint32_t members;    /* with a hop: updates in that sum, 2 .. MEMBERS_MAX; else 0 */
    uint32_t count;      /* GRANTED: 1 .. SHARDS_MAX; else 0 */
    struct weft_sched_grant grants[WEFT_SCHED_SHARDS_MAX];
};

/* Returns the bytes used. out must have the size of the largest message. */
size_t weft_sched_report_pack(const struct weft_sched_report *report, uint8_t *out);
size_t weft_sched_plan_pack(const struct weft_sched_plan *plan, uint8_t *out);

/* Errors:  WEFT_PROTO  too short or too long, a reserved field is nonzero, or a field is out of
 *                      range, such as a norm that is negative, infinite or not a number. */
weft_status weft_sched_report_unpack(const uint8_t *bytes, size_t count,
                                     struct weft_sched_report *report_p);
weft_status weft_sched_plan_unpack(const uint8_t *bytes, size_t count,
                                   struct weft_sched_plan *plan_p);

#endif
