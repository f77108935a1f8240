/* The inside of the scheduler's service, shared by service.c (life, plans out), service_report.c
 * (reports in) and service_rate.c (what links carry). Not for others. */
#ifndef WEFT_SCHED_SERVICE_INTERNAL_H
#define WEFT_SCHED_SERVICE_INTERNAL_H

#include "base/assert.h"
#include "sched/service.h"

#define CONN_NONE UINT32_MAX

/* Base versions of shards become the planner's by their distance from now; it counts from here, so
 * that what lies before the scheduler's start has a number, too. */
#define FIRST_VERSION (UINT64_C(1) << 48)

struct service_conn {
    bool is_open;
    bool is_due; /* a plan is to be sent */
    enum weft_sched_role role;
    uint32_t index;
    uint32_t number_in;
    uint32_t number_out;
    uint16_t status; /* that it was told last */
};

enum update_state {
    UPDATE_NONE,
    UPDATE_HELD,    /* its base version is ahead of what the shards have reported */
    UPDATE_WAITING, /* in the planner */
    UPDATE_FLYING,  /* granted, not committed */
    UPDATE_DROPPED,
    UPDATE_UNPLANNED,
};

struct service_grant {
    uint64_t transfer; /* 0 = none */
    uint64_t start_ns;
    uint64_t booked_bps; /* mean, of the fastest booking that it had */
    uint64_t rate_bps;   /* that the worker is told; 0 = no grant */
};

struct service_worker {
    uint32_t conn;
    uint64_t incarnation;
    bool is_here;
    uint64_t heard_ns;
    enum update_state state;
    uint64_t clock;     /* of the last update asked for or sent */
    uint64_t ended;     /* the last that the worker says has ended */
    uint64_t held_ns;   /* HELD: since */
    uint64_t untold_ns; /* FLYING, and the worker says that it has ended: since; WEFT_NEVER = not */
    double norm;
    uint8_t why;
    uint64_t position; /* in the order of grants */
    uint32_t aggregators; /* that it was told of */
    uint32_t reached;     /* those that take its pushes, a bit each */
    uint32_t hop;      /* FLYING: as struct weft_sched_plan has it; so are the next two */
    uint32_t group;
    uint32_t members;
    uint64_t hop_transfer; /* to the aggregator, not delivered; 0 = none */
    uint64_t revision;
    uint64_t closed;    /* FLYING: a bit for each shard that has said so */
    double norm_square; /* of the steps, as closed so far; negative = not known */
    struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX];
    struct service_grant grants[WEFT_SCHED_SHARDS_MAX];
};

enum { SERVICE_SAMPLES = 8 };

/* What a link was seen to carry. */
struct service_sample {
    uint64_t at_ns;
    uint64_t bps;
    uint32_t worker;
};

struct service_link {
    uint64_t given_bps; /* as reported or configured: never thought to be faster */
    uint64_t now_bps;
    uint32_t count; /* samples, ever */
    struct service_sample samples[SERVICE_SAMPLES];
};

struct service_shard {
    uint32_t conn;
    uint64_t incarnation;
    bool is_here;
    uint64_t heard_ns;
    uint64_t taken;  /* events of this incarnation up to this number */
    uint64_t opened; /* as reported last */
    uint64_t closed;
    uint64_t host;
    uint32_t host_index; /* in the planner */
    uint64_t down_bps;
    uint64_t up_bps;
    struct service_link down;
};

struct weft_sched_service {
    struct weft_sched_service_config config;
    struct weft_sched_service_counters counters;
    struct weft_planner *planner;
    struct service_conn *conns;
    struct service_worker *workers; /* (WORKERS_MAX,) */
    struct service_link *up;        /* (WORKERS_MAX,) */
    uint64_t *worker_up_bps;        /* (WORKERS_MAX,) as reported */
    struct service_shard shards[WEFT_SCHED_SHARDS_MAX];
    bool has_mode;
    enum weft_sched_mode mode;
    uint64_t tau_max;
    uint32_t aggregators;     /* of the planner */
    uint32_t aggregator_host; /* of the first; the others follow it */
    uint32_t aggregators_here; /* a bit each: every worker that is here reaches it */
    uint64_t batch_ns; /* a plan waits until then for others to ask; 0 = it does not wait */
    uint32_t flying;
    uint32_t due_next; /* where poll goes on */
    uint64_t lapse_ns; /* when progress looks at silent workers next */
};

static inline bool service_has_update(const struct service_worker *w)
{
    return w->state == UPDATE_WAITING || w->state == UPDATE_FLYING;
}

/* Is every update of a BSP clock sent at once, in order alone? */
static inline bool service_sends_at_once(const struct weft_sched_service *service)
{
    return service->mode == WEFT_SCHED_BSP && service->aggregators == 0;
}

/* ---- service.c ------------------------------------------------------------------------------- */

void service_note(struct weft_sched_service *service, enum weft_sched_note what,
                  enum weft_sched_role role, uint32_t index, uint16_t status);
void service_due(struct weft_sched_service *service, uint32_t conn);
/* Whether all shards are there, so that updates can be planned. */
bool service_is_planning(const struct weft_sched_service *service);
/* Tell the planner which aggregators every worker reaches. */
void service_find_aggregators(struct weft_sched_service *service, uint64_t now_ns);

/* ---- service_report.c ------------------------------------------------------------------------ */

/* What the worker had in the planner ends without a commit. */
void service_forget_update(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* An update is over: in the planner, committed. */
void service_commit(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns);
/* Give updates that are held to the planner, or refuse them. */
void service_release_held(struct weft_sched_service *service, uint64_t now_ns);

/* ---- service_rate.c -------------------------------------------------------------------------- */

void service_rate_init(struct weft_sched_service *service);
/* A shard has closed a granted share; before the planner hears of it. */
void service_rate_measured(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                           const struct weft_sched_event *event, uint64_t now_ns);
/* What to tell the worker of a booking of this mean rate. */
uint64_t service_rate_of(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                         uint64_t booked_bps);
/* A worker's share of the slowest server's link. */
uint64_t service_direct_bps(struct weft_sched_service *service);
/* What an uplink or a shard's downlink is thought to carry. */
uint64_t service_capacity(struct weft_sched_service *service, bool is_worker, uint32_t index);

#endif
