/* Internals of the scheduler's service, shared by service.c (lifecycle, decisions), service_plan.c
 * (output of plans), service_report.c (input of reports), service_read.c (admission of reads) and
 * service_rate.c (link capacities). Private to these files. */
#ifndef WEFT_SCHED_SERVICE_INTERNAL_H
#define WEFT_SCHED_SERVICE_INTERNAL_H

#include "base/assert.h"
#include "sched/service.h"

#define CONN_NONE UINT32_MAX

/* First count of versions of the planner. Base versions of shards are mapped to the planner's by
 * their distance from the current count; a large first count can represent versions from before the
 * scheduler's start. */
#define FIRST_VERSION (UINT64_C(1) << 48)

struct service_conn {
    bool is_open;
    bool is_due; /* a plan must be sent */
    enum weft_sched_role role;
    uint32_t index;
    uint32_t number_in;
    uint32_t number_out;
    uint16_t status; /* last status sent to it */
};

enum update_state {
    UPDATE_NONE,
    UPDATE_HELD,      /* its base version is ahead of the shards' reports */
    UPDATE_WAITING,   /* in the planner */
    UPDATE_IN_FLIGHT, /* granted, not committed */
    UPDATE_DROPPED,
    UPDATE_UNPLANNED,
};

struct service_grant {
    uint64_t transfer; /* 0 = none */
    uint64_t start_ns;
    uint64_t booked_bps; /* mean rate of the transfer's fastest booking */
    uint64_t rate_bps;   /* rate sent to the worker; 0 = no grant */
    uint32_t members;    /* with a hop: of the sum, with bytes for this shard */
    uint64_t largest;    /* with a hop: the bytes of the largest of these members */
    uint64_t others;     /* with a hop: the bytes of all other members together */
    /* With a hop: rates and bytes of the last sums of its group that were measured. Two, because an
     * aggregator may send a group in two parts. */
    struct {
        uint64_t bps;
        uint64_t bytes;
    } measured[2];
    uint32_t measured_next;
};

/* A worker's read, in a job with read credits. */
enum read_state {
    READ_NONE,
    READ_WANTED, /* requested; passed to the planner when the worker's previous update has ended */
    READ_QUEUED, /* in the planner */
    READ_BEGUN,  /* begun without an admission, not counted yet */
    READ_HELD,   /* admitted: the worker has a credit */
    READ_OVER,   /* its credit has passed to its update, or was returned */
};

struct service_worker {
    uint32_t conn;
    uint64_t incarnation;
    bool is_here;
    uint64_t heard_ns;
    enum update_state state;
    uint64_t clock;     /* clock of the last update requested or sent */
    uint64_t ended;     /* clock of the last update that the worker reported as ended */
    uint64_t held_ns;   /* time of the request */
    uint64_t reports_due_ns; /* IN_FLIGHT, but reported as ended by the worker: time until which
                              * to wait for the servers' reports; else WEFT_NEVER */
    double norm;
    uint8_t why;
    enum read_state read_state;
    bool has_read;        /* HELD: the worker has reported that it has begun */
    uint64_t read;        /* clock of its update; 0 = NONE */
    uint64_t read_ns;     /* HELD: time of the admission */
    uint64_t step_ns;     /* time from the last admission to the request of its update */
    uint64_t position;    /* in the order of grants */
    uint32_t aggregators; /* number of aggregators that it has reported */
    uint32_t reached;     /* aggregators that accept its pushes, one bit each */
    uint32_t hop;         /* IN_FLIGHT: as in struct weft_sched_plan; also the next two fields */
    uint32_t group;
    uint32_t members;
    uint64_t hop_transfer; /* to the aggregator, not delivered; 0 = none */
    bool is_new_member;    /* member of a group of which not all members' decisions have been
                            * processed */
    bool is_regrouped;     /* IN_FLIGHT: it was in another group before, whose sum may have
                            * arrived */
    uint64_t revision;
    uint64_t limited_ns; /* time of the first plan of this revision with a start that was limited to
                          * WEFT_SCHED_START_S_MAX; WEFT_NEVER = none */
    uint64_t closed;    /* IN_FLIGHT: one bit per shard that reported the commit */
    double norm_square; /* square of the norm of the steps closed so far; negative = unknown */
    struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX];
    struct service_grant grants[WEFT_SCHED_SHARDS_MAX];
};

enum { SERVICE_SAMPLES = 8 };

/* An observed rate of a link. */
struct service_sample {
    uint64_t at_ns;
    uint64_t bps;
    uint32_t worker;
    uint64_t sum_ns; /* of a sum: the time that it took; of an update: 0 */
    uint32_t group;  /* of a sum of several updates; else 0 */
    uint64_t shards; /* bits: which measured it */
};

struct service_link {
    uint64_t given_bps; /* as reported or configured; an upper bound of the estimate */
    uint64_t now_bps;
    uint32_t count; /* number of samples */
    struct service_sample samples[SERVICE_SAMPLES];
};

struct service_shard {
    uint32_t conn;
    uint64_t incarnation;
    bool is_here;
    uint64_t heard_ns;
    uint64_t taken;  /* all events of this incarnation up to this number are processed */
    uint64_t opened; /* as last reported */
    uint64_t closed;
    uint32_t flying; /* updates in flight with bytes for it, of which it has not reported the end */
    uint64_t host;
    uint32_t host_index; /* in the planner */
    uint64_t down_bps;
    uint64_t up_bps;
    uint32_t transfer;   /* number of its transfer that the planner has; 0 = none */
    bool may_transfer;   /* the planner has granted it */
    struct service_link down;
};

struct weft_sched_service {
    struct weft_sched_service_config config; /* workers, shards, job: as given, else the job's */
    struct {
        uint32_t workers;
        uint32_t shards;
        char job[WEFT_SCHED_JOB_BYTES];
    } given; /* as configured */
    bool has_job; /* a process has reported to which job it belongs */
    struct weft_planner_counters past; /* of the jobs that have ended */
    struct weft_sched_service_counters counters;
    struct weft_planner *planner;
    bool has_failed; /* no memory for the planner; until a shard leaves, as at the end of a job */
    struct service_conn *conns;
    struct service_worker *workers; /* (WORKERS_MAX,) */
    struct service_link *up;        /* (WORKERS_MAX,) */
    uint64_t *worker_up_bps;        /* (WORKERS_MAX,) as reported */
    struct service_shard shards[WEFT_SCHED_SHARDS_MAX];
    bool has_mode;
    enum weft_sched_mode mode;
    uint64_t tau_max;
    uint32_t aggregators;      /* of the planner */
    uint32_t aggregator_host;  /* host index of the first aggregator; the others follow it */
    uint32_t aggregators_here; /* one bit each: all connected workers reach it */
    uint32_t sum_ppm[WEFT_PLANNER_WINDOW_MAX + 1]; /* service_sum_measured, by number of members */
    bool has_sum_ppm[WEFT_PLANNER_WINDOW_MAX + 1];
    uint64_t batch_ns; /* a plan waits until then for further requests; 0 = it does not wait */
    uint32_t flying;
    bool retry_held;   /* what decides about held updates has changed: the shards' counts of
                        * updates, or which shards are connected */
    uint64_t held_ns;  /* time at which a held update is refused, or earlier; WEFT_NEVER = none */
    uint32_t due_next; /* next connection for poll to examine */
    uint64_t lapse_ns; /* next time at which progress checks for expired workers */
};

static inline bool service_has_update(const struct service_worker *w)
{
    return w->state == UPDATE_WAITING || w->state == UPDATE_IN_FLIGHT;
}

/* True if both are members of one group. */
static inline bool service_is_in_sum(const struct service_worker *w,
                                     const struct service_worker *of)
{
    return w->state == UPDATE_IN_FLIGHT && w->hop == of->hop && w->group == of->group;
}

/* True if all updates of a BSP clock are sent at once, constrained only in order. */
static inline bool service_sends_at_once(const struct weft_sched_service *service)
{
    return service->mode == WEFT_SCHED_BSP && service->aggregators == 0;
}

/* ---- service.c ------------------------------------------------------------------------------- */

void service_note(struct weft_sched_service *service, enum weft_sched_note what,
                  enum weft_sched_role role, uint32_t index, uint16_t status);
void service_due(struct weft_sched_service *service, uint32_t conn);
/* Whether all shards are connected, so that updates can be planned. */
bool service_is_planning(const struct weft_sched_service *service);
/* No process of the job is left: forget it, but not its connections. The next job may have another
 * name, size or mode, and gets a planner of its own. */
void service_end_job(struct weft_sched_service *service);
/* Report to the planner which aggregators all workers reach. */
void service_find_aggregators(struct weft_sched_service *service, uint64_t now_ns);

/* ---- service_read.c -------------------------------------------------------------------------- */

/* Whether workers must request reads. */
bool service_admits(const struct weft_sched_service *service);
/* Process the fields about reads of a worker's report. */
void service_read_says(struct weft_sched_service *service, uint32_t worker,
                       const struct weft_sched_report *q, uint64_t now_ns);
/* The worker has requested its update: remove its waiting read from the planner. */
void service_read_waits(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* The worker's update is in the planner; the credit of its read passes to it. */
void service_read_passes(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* The worker is gone or expired. */
void service_read_forget(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* Pass requests to the planner, and return credits that are not used in time. Returns the time of
 * the next call. */
uint64_t service_read_progress(struct weft_sched_service *service, uint64_t now_ns);
/* The planner has admitted a read. */
void service_read_admitted(struct weft_sched_service *service, uint32_t worker, uint64_t transfer,
                           uint64_t now_ns);

/* ---- service_report.c ------------------------------------------------------------------------ */

/* End the worker's update or read in the planner without a commit. */
void service_forget_update(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* If the worker is not connected and has no update in flight, the planner does not wait for its
 * clock any more. */
void service_leave(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* An update is granted, or has another grant. */
void service_fly(struct weft_sched_service *service, struct service_worker *w);
/* An update is over: commit it in the planner. */
void service_commit(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* The shard's transfer to its replica is over, or is not requested any more. */
void service_transfer_over(struct weft_sched_service *service, uint32_t shard, uint64_t now_ns);
/* Pass held updates to the planner, or refuse them, if anything that decides about them has changed
 * or their time is over. */
void service_release_held(struct weft_sched_service *service, uint64_t now_ns);

/* ---- service_rate.c -------------------------------------------------------------------------- */

void service_rate_init(struct weft_sched_service *service);
/* A worker reports the rate of its host's links, 0 = not known: the plan uses it from now on. */
void service_rate_given(struct weft_sched_service *service, uint32_t worker, uint64_t up_bps,
                        uint64_t now_ns);
/* As it, for the host of a shard: the uplink is not measured. */
void service_rate_given_shard(struct weft_sched_service *service, uint32_t shard, uint64_t up_bps,
                              uint64_t down_bps, uint64_t now_ns);
/* A shard has closed a granted share. Called before the planner is updated. */
void service_rate_measured(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                           const struct weft_sched_event *event, uint64_t now_ns);
/* The same for an update that was granted as a member of a sum: learn the sizes of sums. */
void service_sum_measured(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                          const struct weft_sched_event *event);
/* The rate to send to the worker for a booking of this mean rate. */
uint64_t service_rate_of(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                         uint64_t booked_bps);
/* A worker's share of the slowest server's link, for each shard behind it. */
uint64_t service_direct_bps(struct weft_sched_service *service);
/* The assumed capacity of an uplink or of a shard's downlink. */
uint64_t service_capacity(struct weft_sched_service *service, bool is_worker, uint32_t index);

#endif
