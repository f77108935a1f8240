/* The scheduler as a state machine: reports of workers and servers in, plans out.
 *
 * It checks what processes claim, translates it into events of the planner (planner.h), and keeps
 * for each process what it has to be told. It lives longer than any connection: a process that
 * connects again goes on where it was, another process with its rank or shard takes its place.
 *
 * What it is not: it sends and receives nothing. A connection is an index that the driver chooses;
 * messages may be lost, repeated and overtaken (wire.h).
 *
 *     weft_sched_service_connected(service, conn, role, index, incarnation, now);
 *     weft_sched_service_report(service, conn, bytes, count, now);      for each message
 *     if (weft_sched_service_is_ready(service)) weft_sched_job_new(service);
 *     weft_sched_service_progress(service, now);                        and at _deadline
 *     while (weft_sched_service_poll(service, now, &conn, &plan)) ...   pack and send
 *
 * An update that never ends does not hold up the others for ever: its worker is *lapsed* when it was
 * silent for config.silent_ns, and a worker that says that its update has ended is believed when the
 * servers' reports of that are lost.
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
    WEFT_SCHED_NOTE_REFUSED, /* with the status it was told */
    WEFT_SCHED_NOTE_LEFT,
    WEFT_SCHED_NOTE_LAPSED,
    WEFT_SCHED_NOTE_READY, /* all shards and a worker are there: planning begins */
};

struct weft_sched_service_config {
    uint32_t conns_max;
    uint32_t workers;               /* of the job; 0 = as the first report says */
    uint32_t shards;                /* the same */
    char job[WEFT_SCHED_JOB_BYTES]; /* empty = as the first report says */
    uint64_t life;                  /* random, not 0 */
    uint64_t link_bps;              /* of links that nobody reports; then learned */
    uint64_t silent_ns;             /* a worker is lapsed after that */
    uint32_t ahead;                 /* of the planner */
    /* Something a person may want to know. NULL = nobody does. */
    void (*note)(void *arg, enum weft_sched_note what, enum weft_sched_role role, uint32_t index,
                 uint16_t status);
    void *arg;
};

/* Defaults: 4,096 connections, 10 Gbit/s, lapsed after 3 s, 3 grants ahead; life and job are for the
 * caller. */
void weft_sched_service_config_default(struct weft_sched_service_config *config_p);

/* Errors:  WEFT_INVALID  a field is out of range.   WEFT_NOMEM. */
weft_status weft_sched_service_new(const struct weft_sched_service_config *config,
                                   struct weft_sched_service **service_p);
void weft_sched_service_free(struct weft_sched_service *service);

/* All shards and a worker have reported, and the planner has not been made. */
bool weft_sched_service_is_ready(const struct weft_sched_service *service);

/* Make the planner: the last memory that is taken.   Errors:  WEFT_NOMEM. */
weft_status weft_sched_job_new(struct weft_sched_service *service);

/* A connection of a process: role and index as its endpoint's name says, which the transport has
 * authenticated. An older connection of the same rank or shard counts no more. */
void weft_sched_service_connected(struct weft_sched_service *service, uint32_t conn,
                                  enum weft_sched_role role, uint32_t index, uint64_t incarnation);
void weft_sched_service_disconnected(struct weft_sched_service *service, uint32_t conn,
                                     uint64_t now_ns);

/* A message over a connection. False: it was refused, and counted; nothing changed. */
bool weft_sched_service_report(struct weft_sched_service *service, uint32_t conn,
                               const uint8_t *bytes, size_t count, uint64_t now_ns);

void weft_sched_service_progress(struct weft_sched_service *service, uint64_t now_ns);
uint64_t weft_sched_service_deadline(const struct weft_sched_service *service);

/* The next plan that is due. */
bool weft_sched_service_poll(struct weft_sched_service *service, uint64_t now_ns, uint32_t *conn_p,
                             struct weft_sched_plan *plan_p);
/* The last one of this connection could not be sent: it is due again. */
void weft_sched_service_unsent(struct weft_sched_service *service, uint32_t conn);

/* All cumulative, but where another word is said. */
struct weft_sched_service_counters {
    uint64_t reports;
    uint64_t plans;
    uint64_t refused_malformed; /* reports that do not decode: ranges, norms, lengths */
    uint64_t refused_identity;  /* of another rank or shard than the connection's name says */
    uint64_t refused_job;       /* of another job, or with other sizes or another mode */
    uint64_t
        refused_version; /* a base version that no shard has reached, or a clock that went back */
    uint64_t refused_events;   /* events of no worker of the job, or ahead of the sequence's end */
    uint64_t repeated;         /* messages and events that had been taken before */
    uint64_t events_lost;      /* servers had no room to keep them */
    uint64_t lapsed;           /* workers that were silent */
    uint64_t updates;          /* asked for */
    uint64_t unplanned;        /* of these, told to go without a grant */
    uint64_t direct;           /* updates that workers sent without waiting for an answer */
    uint64_t ended_untold;     /* updates that ended by their worker's word alone */
    uint64_t capacity_lowered; /* links found slower than thought */
    uint64_t capacity_raised;
    uint64_t workers_here; /* now */
    uint64_t shards_here;  /* now */
};

const struct weft_sched_service_counters *
weft_sched_service_counters(const struct weft_sched_service *service);

/* NULL before weft_sched_job_new. */
const struct weft_planner *weft_sched_service_planner(const struct weft_sched_service *service);

/* What the links of a shard or worker are thought to carry; 0 before weft_sched_job_new. */
uint64_t weft_sched_service_capacity(struct weft_sched_service *service,
                                     enum weft_sched_role role, uint32_t index);

#endif
