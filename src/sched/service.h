/* The scheduler as a state machine: its input is reports of workers and servers, its output is
 * plans.
 *
 * It validates reports, translates them into events of the planner (planner.h), and keeps the
 * pending plan of each process. It outlives connections: a process that reconnects resumes, and a
 * new process with the same rank or shard replaces the old one.
 *
 * What it is not: it does no I/O. A connection is an index that the driver assigns. Messages may be
 * lost, duplicated or reordered (wire.h).
 *
 *     weft_sched_service_connected(service, conn, role, index, incarnation);
 *     weft_sched_service_report(service, conn, bytes, count, now);      for each message
 *     if (weft_sched_service_is_ready(service)) weft_sched_job_new(service);
 *     weft_sched_service_progress(service, now);                        and at _deadline
 *     while (weft_sched_service_poll(service, now, &conn, &plan)) ...   pack and send
 *
 * A job ends when none of its processes is left; the next report begins another one, which may have
 * another name, size and mode where the configuration leaves them open.
 *
 * An update that never ends does not block the others forever: its worker *expires* after
 * config.silent_ns without a report. If the servers' reports of a commit are lost, the worker's
 * report that its update has ended is used instead.
 *
 * With read_credits workers request each read. A credit is returned when the update is committed or
 * dropped, when the worker reports the end of an update that was not planned, when it leaves, and
 * when it has not requested its update within 10 s after the admission, or 4 times its last such
 * time if that is longer: it may have read for another purpose.
 *
 * Thread:  one.   Cost: a report or a plan costs O(shards); progress is one plan of the planner.
 *
 * Source: docs/PROTOCOL.md section 13; docs/SCHEDULER.md.
 */
#ifndef WEFT_SCHED_SERVICE_H
#define WEFT_SCHED_SERVICE_H

#include "sched/planner.h"
#include "sched/wire.h"

struct weft_sched_service;

enum weft_sched_note {
    WEFT_SCHED_NOTE_JOINED,
    WEFT_SCHED_NOTE_REFUSED, /* a process was refused, with the status that was sent to it */
    WEFT_SCHED_NOTE_LEFT,
    WEFT_SCHED_NOTE_LAPSED,
    WEFT_SCHED_NOTE_READY, /* all shards and a worker are connected: planning begins */
};

struct weft_sched_service_config {
    uint32_t conns_max;
    uint32_t workers;               /* of the job; 0 = use the first report */
    uint32_t shards;                /* of the job; 0 = use the first report */
    char job[WEFT_SCHED_JOB_BYTES]; /* empty = use the first report */
    uint64_t life;                  /* random, not 0 */
    uint64_t link_bps;              /* initial rate of links without a reported rate; later the rate
                                     * is measured */
    uint64_t silent_ns;             /* a worker is expired after this time without a report */
    uint32_t ahead;                 /* planner's `ahead` */
    uint32_t pieces; /* > 1: workers cut their updates into so many pieces, and aggregators forward
                      * each when it has arrived from all members; the same as of the workers */
    uint32_t read_credits; /* maximum number of workers between read and commit (planner.h), no
                            * effect in BSP; 0 = reads need no admission */
    /* Called for events worth logging. May be NULL. */
    void (*note)(void *arg, enum weft_sched_note what, enum weft_sched_role role, uint32_t index,
                 uint16_t status);
    void *arg;
};

/* Defaults: 4,096 connections, 10 Gbit/s, expired after 3 s, 3 grants ahead; the caller sets life
 * and job. */
void weft_sched_service_config_default(struct weft_sched_service_config *config_p);

/* Errors:  WEFT_INVALID  a field is out of range.   WEFT_NOMEM. */
weft_status weft_sched_service_new(const struct weft_sched_service_config *config,
                                   struct weft_sched_service **service_p);
void weft_sched_service_free(struct weft_sched_service *service);

/* True if all shards and a worker have reported, and the planner is not created yet. After a
 * failure to create it, false until a shard has left: a job without a planner stays so, and the
 * next one gets one. */
bool weft_sched_service_is_ready(const struct weft_sched_service *service);

/* Create the planner of the job. Nothing else allocates later.   Errors:  WEFT_NOMEM. */
weft_status weft_sched_job_new(struct weft_sched_service *service);

/* A connection was opened. Role and index are from its endpoint's name, which the transport has
 * authenticated. An older connection of the same rank or shard becomes invalid. */
void weft_sched_service_connected(struct weft_sched_service *service, uint32_t conn,
                                  enum weft_sched_role role, uint32_t index, uint64_t incarnation);
void weft_sched_service_disconnected(struct weft_sched_service *service, uint32_t conn,
                                     uint64_t now_ns);

/* Process a message from a connection. Returns false, with nothing else changed, if the message was
 * refused and counted. */
bool weft_sched_service_report(struct weft_sched_service *service, uint32_t conn,
                               const uint8_t *bytes, size_t count, uint64_t now_ns);

void weft_sched_service_progress(struct weft_sched_service *service, uint64_t now_ns);
uint64_t weft_sched_service_deadline(const struct weft_sched_service *service);

/* Get the next plan that is due. */
bool weft_sched_service_poll(struct weft_sched_service *service, uint64_t now_ns, uint32_t *conn_p,
                             struct weft_sched_plan *plan_p);
/* The last plan of this connection could not be sent: it becomes due again. */
void weft_sched_service_unsent(struct weft_sched_service *service, uint32_t conn);

/* All are cumulative, unless noted otherwise. */
struct weft_sched_service_counters {
    uint64_t reports;
    uint64_t plans;
    uint64_t refused_malformed; /* reports that do not decode: ranges, norms, lengths */
    uint64_t refused_identity;  /* rank or shard differs from the connection's name */
    uint64_t refused_job;       /* another job, or another size or mode */
    uint64_t
        refused_version; /* a base version that no shard has reached, or a clock that decreased */
    uint64_t refused_events;   /* events of unknown workers, or beyond the next sequence number */
    uint64_t retried;          /* times that a held update, of a base version that no shard had
                                * reached, was tried again */
    uint64_t repeated;         /* messages and events that had been processed before */
    uint64_t events_lost;      /* discarded by servers, whose buffer was full */
    uint64_t expired;          /* workers that timed out */
    uint64_t updates;          /* requested */
    uint64_t unplanned;        /* of these, updates to be sent without a grant */
    uint64_t direct;           /* updates that workers sent without waiting for a reply */
    uint64_t ended_unreported; /* updates ended only by their worker's report */
    uint64_t reads_expired;    /* credits returned because no update followed in time */
    uint64_t capacity_lowered; /* links found to be slower than assumed */
    uint64_t capacity_raised;
    uint64_t workers_here; /* now (a gauge) */
    uint64_t shards_here;  /* now (a gauge) */
};

const struct weft_sched_service_counters *
weft_sched_service_counters(const struct weft_sched_service *service);

/* The planners' counters, summed over all jobs; delay_max is the largest. */
void weft_sched_service_planned(const struct weft_sched_service *service,
                                struct weft_planner_counters *counters_p);

/* The planner of the current job, for checks; NULL before weft_sched_job_new. */
const struct weft_planner *weft_sched_service_planner(const struct weft_sched_service *service);

/* The assumed capacity of the links of a shard or worker; 0 before weft_sched_job_new. */
uint64_t weft_sched_service_capacity(struct weft_sched_service *service, enum weft_sched_role role,
                                     uint32_t index);

#endif
